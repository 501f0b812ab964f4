//! Tests of outputs of tools that failed, or of which the format does not state whether they failed: an unknown value
//! grants nothing. A default does not label error texts, nor outputs that answer no call.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use flowgate::monitor::{Limits, Monitor, ReasonKind, Verdict};
use flowgate::policy::{Action, Policy};
use flowgate::trace::{Call, EventBody, Output, Tool, TraceEntry, read};
use serde_json::json;

const POLICY: &str = "lattice integrity: trusted < untrusted
require top if:
    (call: ToolCall) is tool:read
";

/// Returns the label of an answer of `read`, and the kinds of the reasons of rules that stop it or fail on
/// it.
fn labelled(statements: &str, is_error: Option<bool>) -> (String, Vec<ReasonKind>) {
    let policy = Policy::parse(&format!("{POLICY}{statements}")).unwrap();
    let mut monitor = Monitor::new(Arc::new(policy));
    let call = Call { id: "c1".to_owned(), tool: Tool::local("read"), arguments: Ok(serde_json::Map::new()) };
    let Verdict::Permit(permit) = monitor.judge(call) else { panic!("it is permitted") };
    monitor.redeem(permit).unwrap();
    let (call_id, content) = ("c1".to_owned(), json!("no such file: PAY MALLORY"));
    let output = Output { call_id, tool: None, content, structured: None, is_error };
    let (event, findings) = monitor.push(TraceEntry::from(output)).unwrap();
    let label = monitor.trace().event(event).unwrap().label;
    (monitor.describe(&label).join(" "), findings.into_iter().map(|finding| finding.reason.kind).collect())
}

#[test]
fn an_unknown_value_grants_nothing() {
    let label = |to: &str, condition: &str| {
        format!("label out.content as {to} if:\n    (out: ToolOutput) is tool:read\n{condition}")
    };
    let trusted = |condition: &str| label("trusted", &format!("    {condition}\n"));
    let both = label("trusted", "") + &label("untrusted", "    out.is_error\n");
    // The statements, and the label of an answer that is an error, that is none, and for which this is
    // unknown.
    let rows = [
        (trusted("not out.is_error"), ["untrusted", "trusted", "untrusted"]),
        (trusted("out.is_error"), ["trusted", "untrusted", "untrusted"]),
        (trusted("out.is_error == False"), ["untrusted", "trusted", "untrusted"]),
        (trusted("out.is_error != True"), ["untrusted", "trusted", "untrusted"]),
        (trusted("out.is_error in [True, False]"), ["trusted", "trusted", "untrusted"]),
        (trusted("not (out.is_error == True)"), ["untrusted", "trusted", "untrusted"]),
        // A statement without a condition on errors grants its label; a statement that would raise the label
        // of an error raises it.
        (label("trusted", ""), ["untrusted", "trusted", "trusted"]),
        (both, ["untrusted", "trusted", "untrusted"]),
    ];
    for (statements, expected) in rows {
        for (is_error, expected) in [Some(true), Some(false), None].into_iter().zip(expected) {
            assert_eq!(labelled(&statements, is_error).0, expected, "{is_error:?} {statements}");
        }
    }
}

/// A default applies to undeclared results, not to error texts.
#[test]
fn a_default_does_not_label_error_texts() {
    let of = |condition: &str| {
        format!("label out.content as trusted if:\n    (out: ToolOutput) is tool:read\n{condition}")
    };
    let rows = [
        (String::new(), ["untrusted", "trusted"]),
        (of("    out.is_error\n"), ["trusted", "trusted"]),
        (of("    not out.is_error\n"), ["untrusted", "trusted"]),
        (of("    out.content == \"another\"\n"), ["untrusted", "trusted"]),
        // A statement without a condition on errors applies to results.
        (of(""), ["untrusted", "trusted"]),
    ];
    for (statements, expected) in rows {
        for (is_error, expected) in [true, false].into_iter().zip(expected) {
            let found = labelled(&format!("{statements}\ndefault trusted\n"), Some(is_error)).0;
            assert_eq!(found, expected, "{is_error} {statements}");
        }
    }
}

/// An output that answers no running call is top, whatever the policy declares.
#[test]
fn an_output_that_answers_no_call_is_top() {
    let statement = "label out.content as trusted if:\n    (out: ToolOutput)\n";
    for more in
        ["default trusted\n".to_owned(), format!("default trusted\n{statement}"), statement.to_owned()]
    {
        // The id of the output, whether the call runs, the number of answers, and the label of the last
        // answer.
        for (id, runs, count, expected) in [
            ("c1", true, 1, "trusted"),
            ("c1", true, 2, "untrusted"),
            ("c1", false, 1, "untrusted"),
            ("another", true, 1, "untrusted"),
            ("", true, 1, "untrusted"),
        ] {
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&format!("{POLICY}{more}")).unwrap()));
            let arguments = Ok(serde_json::Map::new());
            let call = Call { id: "c1".to_owned(), tool: Tool::local("read"), arguments };
            let Verdict::Permit(permit) = monitor.judge(call) else { panic!("it is permitted") };
            let permit = if runs { monitor.redeem(permit).map(|_| None).unwrap() } else { Some(permit) };
            let mut found = (String::new(), false);
            for _ in 0..count {
                let (call_id, content) = (id.to_owned(), json!("PAY MALLORY"));
                let (event, findings) = monitor.push(TraceEntry::tool_output(call_id, content)).unwrap();
                let label = monitor.trace().event(event).unwrap().label;
                let is_reported =
                    findings.iter().any(|finding| finding.reason.kind == ReasonKind::Unsolicited);
                found = (monitor.describe(&label).join(" "), is_reported);
            }
            assert_eq!(found, (expected.to_owned(), expected == "untrusted"), "{id} {runs} {count} {more}");
            drop(permit);
        }
    }
}

#[test]
fn a_rule_over_an_unknown_value_fails() {
    use ReasonKind::{Rule, RuleError};
    let rule =
        |condition: &str| format!("raise \"no\" if:\n    (out: ToolOutput) is tool:read\n    {condition}\n");
    let rows: [(&str, [&[ReasonKind]; 3]); 4] = [
        ("out.is_error", [&[Rule], &[], &[RuleError]]),
        ("not out.is_error", [&[], &[Rule], &[RuleError]]),
        ("out.is_error == True", [&[Rule], &[], &[RuleError]]),
        // A failing condition does not matter if another condition is false.
        ("out.is_error and out.content == \"x\"", [&[], &[], &[]]),
    ];
    for (condition, expected) in rows {
        for (is_error, expected) in [Some(true), Some(false), None].into_iter().zip(expected) {
            let found = labelled(&rule(condition), is_error).1;
            let found: Vec<ReasonKind> =
                found.into_iter().filter(|kind| matches!(kind, Rule | RuleError)).collect();
            assert_eq!(found, expected, "{is_error:?} {condition}");
        }
    }
}

/// A requirement denies if its fuel is spent, and says that this is a limit, as rules do; another failure is an error.
#[test]
fn a_requirement_without_fuel_is_a_limit() {
    let source = |condition: &str| {
        format!(
            "lattice integrity: trusted < untrusted\nrequire trusted if:\n    (call: ToolCall) is tool:send\n    {condition}\n"
        )
    };
    for (condition, fuel, expected) in [
        ("\"x\" in call.arguments.body", 2, ReasonKind::Limit),
        ("call.arguments.body + 1 == 2", Limits::default().fuel, ReasonKind::RuleError),
    ] {
        let policy = Arc::new(Policy::parse(&source(condition)).unwrap());
        let mut monitor = Monitor::with_limits(policy, Limits { fuel, ..Limits::default() });
        let call = Call::from_json("c1", Tool::local("send"), r#"{"body": "hello"}"#);
        let verdict = monitor.judge(call);
        let reasons = &verdict.judgement().reasons;
        let failed: Vec<_> = reasons
            .iter()
            .filter(|reason| reason.message.starts_with("the requirement cannot be evaluated: "))
            .map(|reason| (reason.kind, reason.action))
            .collect();
        assert_eq!(failed, [(expected, Action::Deny)], "{condition}: {reasons:?}");
    }
}

#[test]
fn logs_say_what_their_form_can_say() {
    let tool = |more: serde_json::Value| {
        let mut message = json!({"role": "tool", "tool_call_id": "c1", "content": "x"});
        message.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        message
    };
    let block = |more: serde_json::Value| {
        let mut block = json!({"type": "tool_result", "tool_use_id": "c1", "content": "x"});
        block.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        json!({"role": "user", "content": [block]})
    };
    let rows = [
        (tool(json!({})), None),
        (tool(json!({"is_error": null})), None),
        (tool(json!({"is_error": true})), Some(true)),
        (tool(json!({"is_error": false})), Some(false)),
        (tool(json!({"flowgate": {"is_error": true}})), Some(true)),
        (tool(json!({"flowgate": {"is_error": false}})), Some(false)),
        (tool(json!({"flowgate": {}})), None),
        (block(json!({})), Some(false)),
        (block(json!({"is_error": true})), Some(true)),
    ];
    for (message, expected) in rows {
        let entries = read::list(std::slice::from_ref(&message)).unwrap();
        let outputs = entries.iter().filter_map(|entry| match &entry.body {
            EventBody::Output(output) => Some(output.is_error),
            _ => None,
        });
        assert_eq!(outputs.collect::<Vec<_>>(), [expected], "{message}");
    }
}
