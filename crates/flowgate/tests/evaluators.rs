//! Tests that the incremental evaluator of rules agrees with the naive one, which tries every assignment, over
//! generated policies and traces: at the end of a trace, and after each of its events.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "generate/mod.rs"]
mod generate;

use std::collections::BTreeSet;

use flowgate::analysis::{
    Analysis, AnalysisOptions, analyze, analyze_naively, analyze_steps, analyze_steps_naively,
};
use flowgate::policy::Policy;
use flowgate::trace::read;
use generate::Choices;

/// Returns the violations, by their keys, and the rules that failed, without order. The evaluators may report
/// different conditions of a rule as failed.
fn found(analysis: &Analysis) -> (BTreeSet<String>, BTreeSet<usize>) {
    let violations =
        analysis.violations.iter().map(|v| format!("{} {:?} {:?}", v.key, v.args, v.kwargs)).collect();
    (violations, analysis.failures.iter().map(|failure| failure.rule).collect())
}

/// Returns whether there were violations.
fn check(bytes: &[u8]) -> bool {
    let mut choices = Choices::new(bytes);
    let source = generate::policy(&mut choices);
    agree(&source, &generate::trace(&mut choices)) > 0
}

/// Returns the number of violations.
fn agree(source: &str, messages: &[serde_json::Value]) -> usize {
    let policy = match Policy::parse(source) {
        Ok(policy) => policy,
        Err(diagnostics) => panic!("{source}\n{}", diagnostics[0]),
    };
    let entries = read::list(messages).unwrap();
    let options = AnalysisOptions::default();
    let shown = || format!("{source}\n{}", serde_json::to_string_pretty(messages).unwrap());
    let fast = analyze(&policy, entries.clone(), &options).unwrap();
    let slow = analyze_naively(&policy, entries.clone(), &options).unwrap();
    assert_eq!(found(&fast), found(&slow), "at the end of\n{}", shown());
    let fast_steps = analyze_steps(&policy, entries.clone(), &options).unwrap();
    let slow_steps = analyze_steps_naively(&policy, entries, &options).unwrap();
    for (index, (fast, slow)) in fast_steps.iter().zip(&slow_steps).enumerate() {
        assert_eq!(found(fast), found(slow), "at event {index} of\n{}", shown());
    }
    fast.violations.len()
}

/// Returns pseudorandom bytes from a seed.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..256).map(|_| next()).collect()
}

#[test]
fn evaluators_agree() {
    let runs =
        std::env::var("FLOWGATE_EVALUATOR_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(4_000);
    let matching = (0..runs).filter(|seed| check(&bytes(*seed))).count();
    // A comparison of policies without matches has no significance.
    assert!(
        matching * 5 > usize::try_from(runs).unwrap(),
        "only {matching} of {runs} policies found anything"
    );
}

/// A variable that is located by another variable must not use the previous binding of that one.
#[test]
fn an_unbound_variable_is_not_used() {
    let source = "raise \"x\" if:
    (e1: Message)
    (e2: Message)
    (e3: ToolCall)
    e2 ~> e3
    not count(min=1):
        (e4: ToolCall)
        e1.content == \"x\"
";
    let call = |id: &str| serde_json::json!({"id": id, "function": {"name": "send", "arguments": {}}});
    let messages = [
        serde_json::json!({"role": "assistant", "content": "a", "tool_calls": [call("1"), call("2")]}),
        serde_json::json!({"role": "user", "content": "b"}),
        serde_json::json!({"role": "assistant", "content": "c", "tool_calls": [call("3"), call("4")]}),
    ];
    assert_eq!(agree(source, &messages), 6);
}
