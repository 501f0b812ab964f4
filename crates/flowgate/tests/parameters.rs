//! Tests of parameters that the embedding program passes to a policy: `input.NAME`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use flowgate::monitor::{Denial, Monitor, Permit, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Tool};
use serde_json::{Map, Value, json};

const POLICY: &str = r#"
lattice secrecy: public < private

require top if:
    (call: ToolCall) is tool:pay

raise "too much" if:
    (call: ToolCall) is tool:pay
    call.arguments.amount > input.limit
"#;

fn session(limit: Option<i64>) -> Monitor {
    let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
    limit.into_iter().for_each(|limit| monitor.set_parameters(&limited(limit)));
    monitor
}

fn limited(limit: i64) -> Map<String, Value> {
    Map::from_iter([("limit".to_owned(), json!(limit))])
}

fn pay(monitor: &mut Monitor) -> Result<Permit, Denial> {
    match monitor.judge(Call::from_json("1".to_owned(), Tool::local("pay"), "{\"amount\": 50}")) {
        Verdict::Permit(permit) => Ok(permit),
        Verdict::Deny(denial) => Err(denial),
        Verdict::Confirm(question) => panic!("{question:?}"),
    }
}

/// A rule that refers to a missing parameter fails, and denies.
#[test]
fn a_rule_compares_with_its_parameters() {
    for (limit, is_permitted) in [(Some(100), true), (Some(50), true), (Some(49), false), (None, false)] {
        assert_eq!(pay(&mut session(limit)).is_ok(), is_permitted, "{limit:?}");
    }
}

/// A permit is judged again when it is redeemed if parameters have changed since.
#[test]
fn a_permit_is_good_for_the_parameters_of_its_moment() {
    for (later, runs) in [(None, true), (Some(100), true), (Some(10), false)] {
        let mut monitor = session(Some(100));
        let permit = pay(&mut monitor).unwrap();
        later.into_iter().for_each(|limit| monitor.set_parameters(&limited(limit)));
        assert_eq!(monitor.redeem(permit).is_ok(), runs, "{later:?}");
    }
}
