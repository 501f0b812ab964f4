//! Tests that every public error type is a standard error that other threads may take, and returns the error that it
//! wraps as its source.

use std::error::Error;

use flowgate::monitor::PushError;
use flowgate_guard::agent::TurnError;
use flowgate_guard::arguments::AmbiguousArgumentsError;
use flowgate_guard::conversation::ReplayDiverged;
use flowgate_guard::method::NameTaken;

#[test]
fn public_error_types_are_standard_errors() {
    fn check<E: Error + Send + Sync + 'static>() {}
    check::<AmbiguousArgumentsError>();
    check::<NameTaken>();
    check::<ReplayDiverged>();
    check::<TurnError>();
}

#[test]
fn errors_return_their_sources() {
    let check = |error: &dyn Error, source: &dyn Error| {
        assert_eq!(error.source().map(ToString::to_string), Some(source.to_string()), "{error}");
    };
    check(&TurnError::Full(PushError::Full), &PushError::Full);
    check(&TurnError::Model(flowgate_lm::Error::Timeout), &flowgate_lm::Error::Timeout);
}
