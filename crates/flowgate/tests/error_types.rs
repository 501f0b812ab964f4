//! Tests that every public error type is a standard error that other threads may take, and returns the error that it
//! wraps as its source.

use std::error::Error;
use std::sync::Arc;

use flowgate::analysis::TraceError;
use flowgate::json::{JsonError, Numbers, parse};
use flowgate::label::SpaceError;
use flowgate::label::lattice::LatticeError;
use flowgate::monitor::{Denial, ExternalStateError, Monitor, PushError, Verdict};
use flowgate::policy::{Diagnostic, Policy};
use flowgate::trace::located_text::LocateError;
use flowgate::trace::read::ReadError;
use flowgate::trace::{ArgumentsError, Call, EventPositionError, Tool};

#[test]
fn public_error_types_are_standard_errors() {
    fn check<E: Error + Send + Sync + 'static>() {}
    check::<ArgumentsError>();
    check::<Denial>();
    check::<Diagnostic>();
    check::<EventPositionError>();
    check::<ExternalStateError>();
    check::<JsonError>();
    check::<LatticeError>();
    check::<LocateError>();
    check::<PushError>();
    check::<ReadError>();
    check::<SpaceError>();
    check::<TraceError>();
}

#[test]
fn errors_return_their_sources() {
    let check = |error: &dyn Error, source: Option<&dyn Error>| {
        assert_eq!(error.source().map(ToString::to_string), source.map(ToString::to_string), "{error}");
    };
    let json = parse("{", Numbers::Any).unwrap_err();
    let position = EventPositionError::UnknownParent;
    check(&ArgumentsError::Json(json.clone()), Some(&json));
    check(&ArgumentsError::NoObject, None);
    check(&PushError::Position(position.clone()), Some(&position));
    check(&PushError::Full, None);
    check(&TraceError { event: 0, problem: position.clone() }, Some(&position));
}

#[test]
fn a_denial_names_its_reasons() {
    let policy = "raise \"no mail\" if:\n    (call: ToolCall) is tool:send\n";
    let mut monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
    let Verdict::Deny(denial) = monitor.judge(Call::from_json("c1", Tool::local("send"), "{}")) else {
        panic!("a rule denies it")
    };
    assert_eq!(denial.to_string(), "the call is denied: no mail");
}
