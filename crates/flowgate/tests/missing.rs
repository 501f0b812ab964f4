//! Tests that omitting a value, or sending null or a value of another type in its place, is never to the caller's
//! advantage: a rule that needs the value fails and denies, a statement that grants does not apply, and one
//! that restricts applies.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use flowgate::analysis::{AnalysisOptions, EvaluationFailureKind, analyze};
use flowgate::monitor::{Attribution, Monitor, Outcome, ReasonKind};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Message, Tool, TraceEntry, read};
use serde_json::{Value, json};

/// Returns the outcome of a call of `pay` with these arguments after `before`, whether a rule failed, and the
/// reasons.
fn judge(policy: &Arc<Policy>, before: Vec<TraceEntry>, arguments: &str) -> (Outcome, bool, String) {
    let mut monitor = Monitor::new(Arc::clone(policy));
    for entry in before {
        monitor.push(entry).unwrap();
    }
    let call = Call::from_json("c", Tool::local("pay"), arguments);
    let verdict = monitor.judge_entry(TraceEntry::from(call), Attribution::everything());
    let reasons = &verdict.judgement().reasons;
    let fails = reasons.iter().any(|reason| reason.kind == ReasonKind::RuleError);
    let said: Vec<&str> = reasons.iter().map(|reason| &*reason.message).collect();
    (verdict.judgement().outcome(), fails, said.join("; "))
}

fn policy(source: &str) -> Arc<Policy> {
    Arc::new(Policy::parse(source).map_err(|problems| format!("{source}\n{problems:?}")).unwrap())
}

/// A condition of a `raise` on the arguments `a` of a call, with arguments for which the rule fails, matches,
/// and does not match.
struct MissingValueCase {
    condition: &'static str,
    fails: &'static [&'static str],
    matches: &'static str,
    passes: &'static str,
}

const AMOUNT: &[&str] =
    &["{}", r#"{"amount": null}"#, r#"{"amount": "1"}"#, r#"{"amount": [1]}"#, r#"{"amount": true}"#];
const NOTHING: &[&str] = &["{}", r#"{"amount": null}"#];
const HIGH: &str = r#"{"amount": 101}"#;
const LOW: &str = r#"{"amount": 99}"#;

const fn order(condition: &'static str) -> MissingValueCase {
    MissingValueCase { condition, fails: AMOUNT, matches: HIGH, passes: LOW }
}

const ROWS: &[MissingValueCase] = &[
    // Every comparison operator, in both directions, chained, negated, and together with other conditions.
    order("a.amount > 100"),
    order("a.amount >= 100"),
    order("100 < a.amount"),
    order("100 <= a.amount"),
    order("100 < a.amount < 1000"),
    order("not (a.amount <= 100)"),
    order("not a.amount < 100"),
    order("not (100 >= a.amount)"),
    order("a.amount > 100 or a.other"),
    order("a.other or a.amount > 100"),
    order("a.amount > 100 and not a.other"),
    order("not (a.amount <= 100 or a.other)"),
    order("True if a.amount > 100 else False"),
    order("any([a.amount > 100])"),
    order("any([x > 100 for x in [a.amount]])"),
    order("(a.amount > 100) == True"),
    order("(a.amount > 100) is not False"),
    order("[a.amount > 100] == [True]"),
    order("is_large(a.amount)"),
    order("not is_small(a.amount)"),
    order("a.get(\"amount\") > 100"),
    order("a[\"amount\"] > 100"),
    // Arithmetic and functions.
    order("a.amount + 1 > 100"),
    order("a.amount - 1 >= 100"),
    order("a.amount - 1 == 100"),
    order("a.amount % 2 == 1 and a.amount > 100"),
    order("-a.amount < -100"),
    order("abs(a.amount) > 100"),
    order("round(a.amount) > 100"),
    order("max(a.amount, 1) > 100"),
    order("max([a.amount, 1]) > 100"),
    order("min([a.amount]) > 100"),
    order("sum([a.amount]) > 100"),
    order("sorted([a.amount])[0] > 100"),
    MissingValueCase {
        condition: "int(a.amount) > 100",
        fails: NOTHING,
        matches: r#"{"amount": "101"}"#,
        passes: LOW,
    },
    MissingValueCase {
        condition: "float(a.amount) > 100",
        fails: &["{}", r#"{"amount": null}"#, r#"{"amount": "ten"}"#],
        matches: r#"{"amount": "1e3"}"#,
        passes: LOW,
    },
    MissingValueCase {
        condition: "len(a.body) > 3",
        fails: &["{}", r#"{"body": null}"#, r#"{"body": 5}"#],
        matches: r#"{"body": "long"}"#,
        passes: r#"{"body": ""}"#,
    },
    MissingValueCase {
        condition: "a.body.lower() == \"x\"",
        fails: &["{}", r#"{"body": null}"#, r#"{"body": 5}"#],
        matches: r#"{"body": "X"}"#,
        passes: r#"{"body": "y"}"#,
    },
    MissingValueCase {
        condition: "a.body.startswith(\"x\")",
        fails: &["{}", r#"{"body": null}"#],
        matches: r#"{"body": "xy"}"#,
        passes: r#"{"body": "y"}"#,
    },
    MissingValueCase {
        condition: "a.body[:1] == \"x\"",
        fails: &["{}", r#"{"body": null}"#],
        matches: r#"{"body": "xy"}"#,
        passes: r#"{"body": "y"}"#,
    },
    MissingValueCase {
        condition: "match(r\"x\", a.body)",
        fails: &["{}", r#"{"body": null}"#, r#"{"body": 5}"#],
        matches: r#"{"body": "xy"}"#,
        passes: r#"{"body": "y"}"#,
    },
    MissingValueCase {
        condition: "any(find(r\"x\", a.body))",
        fails: &["{}", r#"{"body": null}"#],
        matches: r#"{"body": "yx"}"#,
        passes: r#"{"body": "y"}"#,
    },
    MissingValueCase {
        condition: "any(a.flags)",
        fails: &["{}", r#"{"flags": null}"#],
        matches: r#"{"flags": [1]}"#,
        passes: r#"{"flags": [0]}"#,
    },
    MissingValueCase {
        condition: "not all(a.flags)",
        fails: &["{}", r#"{"flags": null}"#],
        matches: r#"{"flags": [0]}"#,
        passes: r#"{"flags": [1]}"#,
    },
    MissingValueCase {
        condition: "sum(a.amounts) > 100",
        fails: &["{}", r#"{"amounts": null}"#, r#"{"amounts": [null]}"#],
        matches: r#"{"amounts": [60, 60]}"#,
        passes: r#"{"amounts": []}"#,
    },
    MissingValueCase {
        condition: "host(a.url) in [\"evil.org\"]",
        fails: &["{}", r#"{"url": null}"#, r#"{"url": "not an address"}"#],
        matches: r#"{"url": "http://evil.org"}"#,
        passes: r#"{"url": "http://bank.org"}"#,
    },
    // Membership, with the value on either side.
    MissingValueCase {
        condition: "a.to in [\"eve\"]",
        fails: &["{}", r#"{"to": null}"#],
        matches: r#"{"to": "eve"}"#,
        passes: r#"{"to": "ann"}"#,
    },
    MissingValueCase {
        condition: "a.to not in [\"ann\"]",
        fails: &["{}", r#"{"to": null}"#],
        matches: r#"{"to": "eve"}"#,
        passes: r#"{"to": "ann"}"#,
    },
    MissingValueCase {
        condition: "\"x\" in a.body",
        fails: &["{}", r#"{"body": null}"#, r#"{"body": 5}"#],
        matches: r#"{"body": "x"}"#,
        passes: r#"{"body": ""}"#,
    },
    MissingValueCase {
        condition: "\"eve\" in a.list",
        fails: &["{}", r#"{"list": null}"#],
        matches: r#"{"list": [null, "eve"]}"#,
        passes: r#"{"list": [null]}"#,
    },
    MissingValueCase {
        condition: "not (\"ann\" in a.list)",
        fails: &["{}", r#"{"list": null}"#],
        matches: r#"{"list": ["eve"]}"#,
        passes: r#"{"list": ["ann"]}"#,
    },
    MissingValueCase {
        condition: "a.to in {\"eve\": 1}",
        fails: &["{}", r#"{"to": null}"#],
        matches: r#"{"to": "eve"}"#,
        passes: r#"{"to": "ann"}"#,
    },
    MissingValueCase {
        condition: "a.to in \"eve\"",
        fails: &["{}", r#"{"to": null}"#],
        matches: r#"{"to": "eve"}"#,
        passes: r#"{"to": "ann"}"#,
    },
    MissingValueCase {
        condition: "not (a.list contains_only [\"ann\"])",
        fails: &["{}", r#"{"list": null}"#, r#"{"list": "ann"}"#],
        matches: r#"{"list": ["eve"]}"#,
        passes: r#"{"list": ["ann"]}"#,
    },
    MissingValueCase {
        condition: "[\"eve\"] in a.list",
        fails: &["{}", r#"{"list": null}"#],
        matches: r#"{"list": ["eve"]}"#,
        passes: r#"{"list": ["ann"]}"#,
    },
    // Nested fields and rows.
    MissingValueCase {
        condition: "a.payment.amount > 100",
        fails: &[
            "{}",
            r#"{"payment": null}"#,
            r#"{"payment": {}}"#,
            r#"{"payment": {"amount": null}}"#,
            r#"{"payment": 5}"#,
        ],
        matches: r#"{"payment": {"amount": 101}}"#,
        passes: r#"{"payment": {"amount": 1}}"#,
    },
    MissingValueCase {
        condition: "a.rows[0].amount > 100",
        fails: &["{}", r#"{"rows": []}"#, r#"{"rows": [{}]}"#, r#"{"rows": null}"#],
        matches: r#"{"rows": [{"amount": 101}]}"#,
        passes: r#"{"rows": [{"amount": 1}]}"#,
    },
    MissingValueCase {
        condition: "any([row.amount > 100 for row in a.rows])",
        fails: &[
            r#"{"rows": [{"amount": 1}, {}]}"#,
            r#"{"rows": [{"amount": null}]}"#,
            r#"{"rows": [null]}"#,
        ],
        matches: r#"{"rows": [{"amount": 1}, {"amount": 101}]}"#,
        passes: r#"{"rows": []}"#,
    },
    MissingValueCase {
        condition: "(row: dict) in a.rows\n    row.amount > 100",
        fails: &[r#"{"rows": [{"amount": 1}, {}]}"#, r#"{"rows": [{"amount": null}]}"#],
        matches: r#"{"rows": [{"amount": 1}, {"amount": 101}]}"#,
        passes: r#"{"rows": [{"amount": 1}]}"#,
    },
    MissingValueCase {
        condition: "limit := a.limits.day\n    a.amount > limit",
        fails: &[
            r#"{"amount": 5}"#,
            r#"{"amount": 5, "limits": {"day": null}}"#,
            r#"{"limits": {"day": 1}}"#,
        ],
        matches: r#"{"amount": 5, "limits": {"day": 1}}"#,
        passes: r#"{"amount": 1, "limits": {"day": 1}}"#,
    },
    MissingValueCase {
        condition: "{\"ann\": 100}[a.to] < a.amount",
        fails: &["{}", r#"{"to": "eve", "amount": 1}"#, r#"{"to": "ann"}"#, r#"{"to": null, "amount": 1}"#],
        matches: r#"{"to": "ann", "amount": 101}"#,
        passes: r#"{"to": "ann", "amount": 1}"#,
    },
    // Blocks.
    MissingValueCase {
        condition: "count(min=1):\n        (row: dict) in a.rows\n        row.amount > 100",
        fails: &[r#"{"rows": [{}]}"#, r#"{"rows": [{"amount": null}]}"#],
        matches: r#"{"rows": [{"amount": 101}]}"#,
        passes: r#"{"rows": [{"amount": 1}]}"#,
    },
    MissingValueCase {
        condition: "not:\n        (row: dict) in a.rows\n        row.amount <= 100",
        fails: &[r#"{"rows": [{}]}"#, r#"{"rows": [{"amount": null}]}"#],
        matches: r#"{"rows": [{"amount": 101}]}"#,
        passes: r#"{"rows": [{"amount": 1}]}"#,
    },
];

/// Predicates that the rows use.
const PREDICATES: &str = "is_large(x) := x > 100\nis_small(x) := x <= 100\n";

fn rule(action: &str, condition: &str) -> Arc<Policy> {
    policy(&format!(
        "{PREDICATES}{action} \"met\" if:\n    (call: ToolCall) is tool:pay\n    a := call.arguments\n    {condition}\n"
    ))
}

#[test]
fn a_rule_that_needs_a_missing_value_denies() {
    let mut wrong = Vec::new();
    for action in ["raise", "ask"] {
        for MissingValueCase { condition, fails, matches, passes } in ROWS {
            let policy = rule(action, condition);
            let met = if action == "raise" { Outcome::Deny } else { Outcome::Confirm };
            let cases = fails.iter().map(|arguments| (*arguments, Outcome::Deny, true));
            for (arguments, outcome, fails) in
                cases.chain([(*matches, met, false), (*passes, Outcome::Permit, false)])
            {
                let found = judge(&policy, Vec::new(), arguments);
                if (found.0, found.1) != (outcome, fails) {
                    wrong.push(format!("{action}: {condition} over {arguments}: {found:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A failed rule that only records stops nothing.
#[test]
fn a_record_that_fails_is_a_note() {
    let policy = rule("log", "a.amount > 100");
    for arguments in ["{}", HIGH, LOW] {
        let found = judge(&policy, Vec::new(), arguments);
        assert_eq!(found.0, Outcome::Permit, "{arguments}: {}", found.2);
    }
}

/// The analysis of a finished trace agrees with the monitor.
#[test]
fn the_analysis_fails_where_the_monitor_denies() {
    for MissingValueCase { condition, fails, matches, passes } in ROWS {
        let policy = rule("raise", condition);
        let analyzed = |arguments: &str| {
            let call = json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "pay", "arguments": arguments}}]});
            let analysis =
                analyze(&policy, read::list(&[call]).unwrap(), &AnalysisOptions::default()).unwrap();
            (
                analysis.violations.len(),
                analysis.failures.iter().map(|failure| failure.kind).collect::<Vec<_>>(),
            )
        };
        for arguments in *fails {
            assert_eq!(analyzed(arguments).1, [EvaluationFailureKind::Type], "{condition} over {arguments}");
        }
        assert!(analyzed(matches).0 >= 1 && analyzed(matches).1.is_empty(), "{condition}");
        assert_eq!(analyzed(passes), (0, vec![]), "{condition}");
    }
}

/// A rule may test whether a value is present; conditions after that test are then decided.
#[test]
fn a_presence_test_decides_later_conditions() {
    let rows = [
        ("a.amount is None", "{}", r#"{"amount": 1}"#),
        ("a.amount == None", r#"{"amount": null}"#, r#"{"amount": 1}"#),
        ("None == a.amount", "{}", r#"{"amount": 1}"#),
        ("a.amount is not None", r#"{"amount": 1}"#, "{}"),
        ("a.amount != None", r#"{"amount": 1}"#, r#"{"amount": null}"#),
        ("a.amount is None or a.amount > 100", "{}", r#"{"amount": 1}"#),
        ("a.amount != None and a.amount > 100", HIGH, "{}"),
        ("a.amount > 100 and a.amount != None", HIGH, r#"{"amount": null}"#),
        ("\"amount\" in a and a.amount > 100", HIGH, "{}"),
        ("\"amount\" in a\n    a.amount > 100", HIGH, "{}"),
        ("a.amount > 100\n    \"amount\" in a", HIGH, "{}"),
        ("a.get(\"amount\", 0) > 100", HIGH, "{}"),
        ("(a.amount if a.amount else 0) > 100", HIGH, r#"{"amount": null}"#),
        ("a.to in [None, \"eve\"]", r#"{"to": null}"#, r#"{"to": "ann"}"#),
        ("a.to not in [None, \"ann\"]", r#"{"to": "eve"}"#, "{}"),
        // Equality is defined for all values: only None equals None.
        ("a.to == \"eve\"", r#"{"to": "eve"}"#, "{}"),
        ("a.to != \"ann\"", "{}", r#"{"to": "ann"}"#),
        ("a.flag", r#"{"flag": true}"#, "{}"),
        ("not a.flag", "{}", r#"{"flag": true}"#),
        ("empty(a.body)", "{}", r#"{"body": "x"}"#),
        ("\"x\" in text(a.body)", r#"{"body": "x"}"#, r#"{"body": null}"#),
        ("any(secrets(a.body))", r#"{"body": "AKIAIOSFODNN7EXAMPLE"}"#, "{}"),
        // An omitted list has no items.
        ("(x: str) in a.cc\n    x != \"ann\"", r#"{"cc": ["eve"]}"#, "{}"),
        ("any([x != \"ann\" for x in a.cc])", r#"{"cc": ["eve"]}"#, r#"{"cc": null}"#),
    ];
    for (condition, matches, passes) in rows {
        let policy = rule("raise", condition);
        let found = judge(&policy, Vec::new(), matches);
        assert_eq!((found.0, found.1), (Outcome::Deny, false), "{condition} over {matches}: {}", found.2);
        let found = judge(&policy, Vec::new(), passes);
        assert_eq!(found.0, Outcome::Permit, "{condition} over {passes}: {}", found.2);
    }
}

fn message(role: &str, content: Value) -> TraceEntry {
    TraceEntry::from(Message::new(role, content))
}

/// A message with calls has no text, and an answer may be empty. Neither counts as an omitted value.
#[test]
fn silent_messages_fail_no_rule() {
    let output = |content: Value| TraceEntry::tool_output("x", content);
    for condition in [
        "\"secret\" in m.content",
        "\"secret\" in m.content.lower()",
        "any(find(r\"secret\", m.content))",
        "match(r\".*secret\", m.content)",
        "len(m.content) > 5",
        "m.content == \"secret\"",
        "m.content[0:6] == \"secret\"",
        "(chunk: str) in m.content.split(\" \")\n    chunk == \"secret\"",
    ] {
        for kind in ["Message", "ToolOutput"] {
            let source = format!(
                "raise \"met\" if:\n    (m: {kind}) -> (call: ToolCall)\n    call is tool:pay\n    {condition}\n"
            );
            let policy = policy(&source);
            let of = |content: Value| {
                vec![if kind == "Message" { message("assistant", content) } else { output(content) }]
            };
            let found = judge(&policy, of(Value::Null), "{}");
            assert_eq!(found.0, Outcome::Permit, "{source}: {}", found.2);
            let found = judge(&policy, of(json!("secret")), "{}");
            assert_eq!(found.0, Outcome::Deny, "{source}: {}", found.2);
        }
    }
    // An empty answer contains no number.
    let source = "raise \"met\" if:\n    (out: ToolOutput) -> (call: ToolCall)\n    call is tool:pay\n    out.content.amount > 100\n";
    let answers = [
        (Value::Null, true),
        (json!({}), true),
        (json!({"amount": null}), true),
        (json!({"amount": 1}), false),
    ];
    for (content, denies) in answers {
        let found = judge(&policy(source), vec![output(content.clone())], "{}");
        assert_eq!(found.0 == Outcome::Deny, denies, "{content}: {}", found.2);
    }
}

/// Statements that grant, and statements that restrict, on missing values.
#[test]
fn nothing_grants_nothing() {
    const HEAD: &str = "lattice integrity: trusted < untrusted\n";
    let said = || vec![message("user", json!("pay"))];
    let granting = [
        "a.amount <= 100",
        "not (a.amount > 100)",
        "a.amount != 1000",
        "not (a.amount == 1000)",
        "a.amount is not 1000",
        "a.amount not in [1000]",
        "not (a.amount in [1000])",
        "not a.amount in [1000]",
        "f\"{a.amount}\" != \"1000\"",
        "(a.amount, 1) != (1000, 1)",
        "{\"x\": a.amount} != {\"x\": 1000}",
        "not is_large(a.amount)",
        "abs(a.amount) <= 100",
        "a.amount + 0 <= 100",
        "False if a.amount == 1000 else True",
        "not (call is tool:pay({amount: 1000}))",
        "not (call is tool:pay({amount: \"1.*\"}))",
        "not (call is tool:pay({amount: [1000]}))",
        "not isinstance(a.amount, str)",
        "not any([x > 100 for x in [a.amount]])",
        "[a.amount] contains_only [1, 2]",
        "a.get(\"amount\") != 1000",
    ];
    for condition in granting {
        let statement = |shape: &str| {
            policy(&format!(
                "{HEAD}{PREDICATES}{shape} if:\n    (call: ToolCall) is tool:pay\n    a := call.arguments\n    {condition}\n"
            ))
        };
        for lacking in NOTHING {
            let found = judge(&statement("require untrusted"), said(), lacking);
            assert_ne!(found.0, Outcome::Permit, "require: {condition} over {lacking}: {}", found.2);
            let with_body = lacking.replace('{', "{\"body\": \"x\", ").replace(", }", "}");
            let found = judge(&statement("payload call.arguments.body"), said(), &with_body);
            assert!(
                !found.2.contains("body") || found.0 != Outcome::Permit,
                "payload: {condition}: {}",
                found.2
            );
        }
        let found = judge(&statement("require untrusted"), said(), r#"{"amount": 1}"#);
        assert_eq!(found.0, Outcome::Permit, "{condition}: {}", found.2);
    }
    let restricting = [
        "a.amount > 100",
        "not (a.amount <= 100)",
        "a.amount in [1000]",
        "abs(a.amount) > 100",
        "is_large(a.amount)",
    ];
    for condition in restricting {
        let condition = condition.replace("[1000]", "[1000, 101]");
        let policy = policy(&format!(
            "{HEAD}{PREDICATES}require untrusted if:\n    (call: ToolCall) is tool:pay\n\
             require trusted if:\n    (call: ToolCall) is tool:pay\n    a := call.arguments\n    {condition}\n"
        ));
        for lacking in NOTHING.iter().chain([&HIGH]) {
            let found = judge(&policy, said(), lacking);
            assert_ne!(found.0, Outcome::Permit, "{condition} over {lacking}: {}", found.2);
        }
        let found = judge(&policy, said(), LOW);
        assert_eq!(found.0, Outcome::Permit, "{condition}: {}", found.2);
    }
}
