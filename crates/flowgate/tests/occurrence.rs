//! Tests of the warnings about names in a policy that do not occur in recorded traces: which are reported, and which
//! are not.

#![expect(clippy::unwrap_used, reason = "tests")]

use flowgate::analysis;
use flowgate::occurrence::Occurrences;
use flowgate::policy::Policy;
use flowgate::trace::read;
use serde_json::{Value, json};

fn runs() -> Vec<Value> {
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    vec![
        json!({"tools": [{"name": "schedule", "inputSchema": {"type": "object", "properties": {"day": {"type": "string"}}}}]}),
        json!({"role": "system", "content": "Be nice."}),
        json!({"role": "user", "content": "Refund it."}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            call("c1", "read_mail", json!({"folder": "inbox"})),
            call("c2", "refund", json!({"amount": 5, "recipient": "bob", "card": {"number": "1"}}))]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "[{\"from\": \"ann\", \"subject\": \"x\"}]"}),
        json!({"role": "tool", "tool_call_id": "c2", "content": "done"}),
    ]
}

/// Returns the codes of a policy's warnings, with the name and the suggestion of each.
fn warnings(source: &str) -> Vec<(String, String, String)> {
    let policy = Policy::parse(source).map_err(|problems| format!("{source}\n{problems:?}")).unwrap();
    let mut occurrences = Occurrences::new();
    occurrences.add(&analysis::build_trace(read::list(&runs()).unwrap()).unwrap());
    let found = occurrences.warnings(&policy).into_iter().map(|warning| {
        let near = warning.help.unwrap_or_default();
        let near = near.strip_prefix("did you mean `").and_then(|near| near.strip_suffix("`?"));
        (
            warning.code.to_owned(),
            source.get(warning.span).unwrap().to_owned(),
            near.unwrap_or_default().to_owned(),
        )
    });
    found.collect()
}

#[test]
fn a_name_that_never_occurs_is_reported_with_a_suggestion() {
    let check = |lines: &str, expected: &[(&str, &str, &str)]| {
        let source = format!("raise \"x\" if:\n    {}\n", lines.replace('\n', "\n    "));
        let expected: Vec<_> =
            expected.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
        assert_eq!(warnings(&source), expected, "{source}");
    };
    let call = "(call: ToolCall) is tool:refund\n";
    let of = |line: &str| format!("{call}{line}");
    // Tools.
    check("(call: ToolCall) is tool:refnd", &[("unused-tool", "tool:refnd", "refund")]);
    check("(call: ToolCall) is not tool:refnd", &[("unused-tool", "tool:refnd", "refund")]);
    check("(call: ToolCall)\ncall is tool:bank/refnd", &[("unused-tool", "tool:bank/refnd", "bank/refund")]);
    check("(out: ToolOutput) is tool:read_mial", &[("unused-tool", "tool:read_mial", "read_mail")]);
    check("(call: ToolCall) is tool:transfer_funds", &[("unused-tool", "tool:transfer_funds", "")]);
    check("(call: ToolCall) is tool:get_*", &[("unused-tool", "tool:get_*", "")]);
    check("(call: ToolCall) is tool:r\"(get|send)_.*\"", &[("unused-tool", "tool:r\"(get|send)_.*\"", "")]);
    check("(call: ToolCall) is tool:re*", &[]);
    check("(call: ToolCall) is tool:schedule", &[]);
    check("(call: ToolCall) is tool:*", &[]);
    // Tools by their name alone.
    check("(call: ToolCall)\ncall.name == \"refnd\"", &[("unused-tool", "\"refnd\"", "refund")]);
    check("(call: ToolCall)\n\"refnd\" != call.function.name", &[("unused-tool", "\"refnd\"", "refund")]);
    check("(call: ToolCall)\nn := call.name\nn == \"refnd\"", &[("unused-tool", "\"refnd\"", "refund")]);
    check(
        "(call: ToolCall)\ncall.name in [\"refund\", \"refnd\"]",
        &[("unused-tool", "\"refnd\"", "refund")],
    );
    check("(call: ToolCall)\ncall.name in [\"refund\", \"mcp__mail__read_mail\"]", &[]);
    check("(call: ToolCall)\ncall.arguments.name == \"bob\"", &[("unused-argument", "name", "")]);
    // For a tool that does not occur, no arguments are reported in addition.
    check(
        "(call: ToolCall) is tool:refnd({amuont: 5})\ncall.arguments.amuont == 1",
        &[("unused-tool", "tool:refnd({amuont: 5})", "refund")],
    );
    // Arguments.
    check(&of("call.arguments.amuont > 5"), &[("unused-argument", "amuont", "amount")]);
    check(&of("call.arguments[\"amuont\"] > 5"), &[("unused-argument", "\"amuont\"", "amount")]);
    check(&of("call.arguments.get(\"amuont\", 0) > 5"), &[("unused-argument", "\"amuont\"", "amount")]);
    check(&of("\"amuont\" not in call.arguments"), &[("unused-argument", "\"amuont\"", "amount")]);
    check(&of("\"amount\" in call.arguments"), &[]);
    check(&of("\"bbo\" in call.arguments.recipient"), &[]);
    check(&of("call.function.arguments.amuont > 5"), &[("unused-argument", "amuont", "amount")]);
    check(&of("a := call.arguments\na.amuont > 5"), &[("unused-argument", "amuont", "amount")]);
    check(&of("a := call.arguments\nb := a.amuont\nb > 5"), &[("unused-argument", "amuont", "amount")]);
    check(
        "(call: ToolCall) is tool:refund({recipent: \"bob\"})",
        &[("unused-argument", "recipent", "recipient")],
    );
    check(&of("call.arguments.card.numbr == \"1\""), &[("unused-field", "numbr", "number")]);
    check(&of("call.arguments.folder == \"x\""), &[("unused-argument", "folder", "")]);
    check(&of("call.arguments.amount > 5\ncall.arguments.card.number.lower() == \"x\""), &[]);
    check("(call: ToolCall) is tool:schedule\ncall.arguments.day == \"x\"", &[]);
    check(
        "(call: ToolCall) is tool:schedule\ncall.arguments.dya == \"x\"",
        &[("unused-argument", "dya", "day")],
    );
    check("(call: ToolCall)\ncall.arguments.folder == \"x\"", &[]);
    check("(call: ToolCall)\nany([c.amuont == 1 for c in [call.arguments]])", &[]);
    // Fields of answers.
    check(
        "(out: ToolOutput) is tool:read_mail\n(row: dict) in out.content\nrow.fro == \"ann\"",
        &[("unused-field", "fro", "from")],
    );
    check(
        "(out: ToolOutput) is tool:read_mail\nany([row.fro == \"ann\" for row in out.content])",
        &[("unused-field", "fro", "from")],
    );
    check(
        "(out: ToolOutput) is tool:read_mail\nout.content[0].fro == \"ann\"",
        &[("unused-field", "fro", "from")],
    );
    check("(out: ToolOutput)\nout.content.fro == \"ann\"", &[("unused-field", "fro", "from")]);
    check("(out: ToolOutput) is tool:read_mail\n(row: dict) in out.content\nrow.from == \"ann\"", &[]);
    check("(out: ToolOutput) is tool:read_mail\n\"x\" in out.content.lower()", &[]);
    // Roles.
    check("(m: Message)\nm.role == \"developer\"", &[("unused-role", "\"developer\"", "")]);
    check("(m: Message)\n\"moderator\" == m.role", &[("unused-role", "\"moderator\"", "")]);
    check("(m: Message)\nm.role in [\"user\", \"developer\"]", &[]);
    check("(m: Message)\nm.role in [\"user\", \"moderator\"]", &[("unused-role", "\"moderator\"", "")]);
    check("(m: Message)\nm.role == \"asistant\"", &[("unused-role", "\"asistant\"", "assistant")]);
    check("(m: Message)\nm.role != \"asistant\"", &[("unused-role", "\"asistant\"", "assistant")]);
    check("(m: Message)\nm.role == \"assistant\"", &[]);
    // Within blocks and predicates.
    check("count(min=1):\n    (call: ToolCall) is tool:refnd", &[("unused-tool", "tool:refnd", "refund")]);
    check(
        "not:\n    (call: ToolCall) is tool:refund\n    call.arguments.amuont == 1",
        &[("unused-argument", "amuont", "amount")],
    );
}

#[test]
fn every_kind_of_statement_is_read() {
    let lattice = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n";
    let check = |statement: &str, expected: &[&str]| {
        let found = warnings(&format!("{lattice}{statement}\n"));
        let spoken: Vec<&str> = found.iter().map(|(_, spoken, _)| spoken.as_str()).collect();
        assert_eq!(spoken, expected, "{statement}");
    };
    check("label out.content[*].fro as trusted if:\n    (out: ToolOutput) is tool:read_mail", &["fro"]);
    check(
        "label row.fro as trusted if:\n    (out: ToolOutput) is tool:read_mail\n    (row: dict) in out.content",
        &["fro"],
    );
    check("label out.content[*].from as trusted if:\n    (out: ToolOutput) is tool:read_mail", &[]);
    check(
        "require trusted for call.arguments.recipent if:\n    (call: ToolCall) is tool:refund",
        &["recipent"],
    );
    check("payload call.arguments.amuont if:\n    (call: ToolCall) is tool:refund", &["amuont"]);
    check("consent private for call.arguments.amuont if:\n    (call: ToolCall) is tool:refund", &["amuont"]);
    check("store mail: written by refnd, read by read_mail", &["refnd"]);
    check(
        "f(call: ToolCall) :=\n    call is tool:refnd\nraise \"x\" if:\n    (c: ToolCall)\n    f(c)",
        &["tool:refnd"],
    );
    check("ask \"x\" if:\n    (call: ToolCall) is tool:refnd", &["tool:refnd"]);
    check("log \"x\" if:\n    (call: ToolCall) is tool:refund", &[]);
}

/// Constants are resolved.
#[test]
fn names_in_constants_are_read() {
    let rows = [
        ("TOOLS := [\"refund\", \"refnd\"]", "(call: ToolCall)\n    call.name in TOOLS", "\"refnd\""),
        ("TOOL := \"refnd\"", "(call: ToolCall)\n    call.name == TOOL", "\"refnd\""),
        ("ROLES := [\"user\", \"moderator\"]", "(m: Message)\n    m.role in ROLES", "\"moderator\""),
    ];
    for (constant, conditions, expected) in rows {
        let found = warnings(&format!("{constant}\nraise \"x\" if:\n    {conditions}\n"));
        let spoken: Vec<&str> = found.iter().map(|(_, spoken, _)| spoken.as_str()).collect();
        assert_eq!(spoken, [expected], "{constant}");
    }
}

/// Without events nothing is reported; unusual names of roles are printable.
#[test]
fn traces_without_events_and_with_odd_roles() {
    let policy = Policy::parse("raise \"x\" if:\n    (call: ToolCall) is tool:refnd\n").unwrap();
    let mut occurrences = Occurrences::new();
    assert!(occurrences.is_empty() && occurrences.warnings(&policy).is_empty());
    let odd = [json!({"role": "asis\u{1b}[2Jtant", "content": "x"}), json!({"role": "user", "content": "x"})];
    occurrences.add(&analysis::build_trace(read::list(&odd).unwrap()).unwrap());
    assert_eq!(occurrences.unknown_roles(), ["asis\\u{1b}[2Jtant"]);
}
