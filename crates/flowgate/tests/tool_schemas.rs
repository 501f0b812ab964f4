//! Tests of the comparison of a policy with the schemas of tools: what is reported, and what is not.

#![expect(clippy::unwrap_used, reason = "tests")]

use flowgate::policy::{Policy, Severity};
use flowgate::tool_schemas::{CODES, MAX_TOOLS, ToolSchemas};
use serde_json::{Value, json};

fn mail() -> Value {
    json!({"tools": [
        {"name": "send_mail", "inputSchema": {"type": "object", "properties": {
            "recipient": {"type": "string"},
            "body": {"type": "string"},
            "priority": {"enum": ["low", "normal", "high"]},
            "level": {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]},
            "folders": {"type": "array", "items": {"enum": ["inbox", "sent"]}},
            "files": {"type": "array", "items": {"$ref": "#/$defs/File"}},
            "extra": {"type": "object"},
        }, "$defs": {"File": {"type": "object", "properties": {"name": {"type": "string"}}}}},
         "outputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}},
        {"name": "list_mails", "inputSchema": {"type": "object", "properties": {"folder": {"type": "string"}}},
         "outputSchema": {"type": "object", "properties": {"result": {"type": "array", "items": {
            "type": "object", "properties": {"from": {"type": "string"}, "subject": {"type": "string"}}}}}}},
        {"name": "anything", "inputSchema": {"type": "object"}},
        {"name": "nothing", "inputSchema": {"type": "object", "additionalProperties": false}},
    ]})
}

fn tools(lists: &[(Option<&str>, Value)]) -> ToolSchemas {
    let mut tools = ToolSchemas::new();
    for (server, list) in lists {
        tools.add_list(*server, &list.to_string()).unwrap();
    }
    tools
}

/// Returns what is reported about a policy: each with its severity, its location, its message and its help.
fn reported(tools: &ToolSchemas, source: &str) -> Vec<(Severity, String, String, String)> {
    let policy = Policy::parse(source).map_err(|problems| format!("{source}\n{problems:?}")).unwrap();
    let found = tools.diagnostics(&policy).into_iter().map(|found| {
        assert!(CODES.contains(&found.code), "{}", found.code);
        let text = source.get(found.span).unwrap().to_owned();
        (found.severity, text, found.message, found.help.unwrap())
    });
    found.collect()
}

/// Returns a rule with these conditions.
fn rule(lines: &str) -> String {
    format!("raise \"x\" if:\n    {}\n", lines.replace('\n', "\n    "))
}

/// Checks that exactly one thing is reported, with its severity, location, message and help.
fn check_one(tools: &ToolSchemas, source: &str, expected: (Severity, &str, &str, &str)) {
    let (severity, text, message, help) = expected;
    let expected = vec![(severity, text.to_owned(), message.to_owned(), help.to_owned())];
    assert_eq!(reported(tools, source), expected, "{source}");
}

const ERROR: Severity = Severity::Error;
const WARNING: Severity = Severity::Warning;

#[test]
fn a_tool_that_no_list_has_is_an_error() {
    let (local, served) = (tools(&[(None, mail())]), tools(&[(Some("mail"), mail())]));
    let all = "the listed tools are `anything`, `list_mails`, `nothing`, `send_mail`";
    for (tools, pattern, help) in [
        (&local, "tool:send_mial", "did you mean `send_mail`?"),
        (&served, "tool:send_mial", "did you mean `send_mail`?"),
        (&served, "tool:mail/send_mial", "did you mean `mail/send_mail`?"),
        (&served, "tool:\"send_mial\"", "did you mean `send_mail`?"),
        (&local, "tool:transfer", all),
        (&local, "tool:get_*", all),
        (&served, "tool:mail/get_*", all),
        (&local, "tool:r\"get_.*\"", all),
    ] {
        let message = format!("no listed tool matches `{pattern}`");
        for line in
            [format!("(call: ToolCall) is {pattern}"), format!("(call: ToolCall)\ncall is not {pattern}")]
        {
            check_one(tools, &rule(&line), (ERROR, pattern, &message, help));
        }
    }
    let store = "lattice integrity: trusted < untrusted\nstore mail: written by send_mial, read by list_*\n";
    let message = "no listed tool matches `tool:send_mial`";
    check_one(&local, store, (ERROR, "send_mial", message, "did you mean `send_mail`?"));
}

#[test]
fn a_tool_that_may_exist_elsewhere_is_not_reported() {
    let paged = json!({"tools": [{"name": "a"}], "nextCursor": "2"});
    let hosted = json!([{"name": "a"}, {"type": "mcp", "server_label": "x"}]);
    let cases: [(&ToolSchemas, &str); 11] = [
        (&tools(&[(None, mail())]), "(call: ToolCall) is tool:send_mail"),
        (&tools(&[(None, mail())]), "(call: ToolCall) is tool:*"),
        (&tools(&[(None, mail())]), "(call: ToolCall) is tool:bank/pay"),
        // The server `bank` is not described, so `pay` may be its tool.
        (&tools(&[(None, mail())]), "(call: ToolCall) is tool:pay\n(out: ToolOutput) is tool:bank/*"),
        (&tools(&[(Some("mail"), mail())]), "(call: ToolCall) is tool:*/send_mail"),
        (&tools(&[(Some("mail"), mail())]), "(call: ToolCall) is tool:mail/resources/read"),
        (&tools(&[(Some("mail"), mail())]), "(call: ToolCall) is tool:flowgate/link"),
        (&tools(&[(None, paged.clone())]), "(call: ToolCall) is tool:b"),
        (&tools(&[(Some("mail"), paged)]), "(call: ToolCall) is tool:mail/b"),
        (&tools(&[(None, hosted)]), "(call: ToolCall) is tool:b"),
        (&ToolSchemas::new(), "(m: Message)\nm.role == \"user\""),
    ];
    for (tools, lines) in cases {
        assert_eq!(reported(tools, &rule(lines)), [], "{lines}");
    }
    // With its last page, a list is complete.
    let both = tools(&[
        (None, json!({"tools": [{"name": "a"}], "nextCursor": "2"})),
        (None, json!({"tools": [{"name": "b"}]})),
    ]);
    assert!(both.continued_servers().is_empty());
    assert_eq!(reported(&both, &rule("(call: ToolCall) is tool:c")).len(), 1);
}

#[test]
fn an_argument_that_no_schema_has_is_an_error() {
    let tools = tools(&[(None, mail())]);
    let call = "(call: ToolCall) is tool:send_mail\n";
    let message = "the tool `send_mail` has no argument `recipiant`";
    let near = "did you mean `recipient`?";
    for (line, text) in [
        ("call.arguments.recipiant == \"eve\"", "recipiant"),
        ("call.function.arguments.recipiant == \"eve\"", "recipiant"),
        ("call.arguments[\"recipiant\"] == \"eve\"", "\"recipiant\""),
        ("call.arguments.get(\"recipiant\", \"\") == \"eve\"", "\"recipiant\""),
        ("call.arguments.recipiant.lower() == \"eve\"", "recipiant"),
        ("a := call.arguments\na.recipiant == \"eve\"", "recipiant"),
    ] {
        check_one(&tools, &rule(&format!("{call}{line}")), (ERROR, text, message, near));
    }
    check_one(
        &tools,
        &rule("(call: ToolCall) is tool:send_mail({recipiant: \"eve\"})"),
        (ERROR, "recipiant", message, near),
    );
    let file = "the tool `send_mail` has no field `nmae` in its argument `files[*]`";
    for line in [
        "call.arguments.files[0].nmae == \"x\"",
        "(f: dict) in call.arguments.files\nf.nmae == \"x\"",
        "any([f.nmae == \"x\" for f in call.arguments.files])",
    ] {
        check_one(&tools, &rule(&format!("{call}{line}")), (ERROR, "nmae", file, "did you mean `name`?"));
    }
    check_one(
        &tools,
        &rule("(call: ToolCall) is tool:send_mail({files: [{nmae: \"x\"}]})"),
        (ERROR, "nmae", file, "did you mean `name`?"),
    );
    check_one(
        &tools,
        &rule("(call: ToolCall) is tool:nothing\ncall.arguments.x == 1"),
        (ERROR, "x", "the tool `nothing` has no argument `x`", "there are no arguments"),
    );
    let both = "(call: ToolCall) is tool:r\"(send|list)_.*\"\ncall.arguments.sender == \"eve\"";
    let known =
        "the arguments are `body`, `extra`, `files`, `folder`, `folders`, `level`, `priority`, `recipient`";
    check_one(
        &tools,
        &rule(both),
        (ERROR, "sender", "none of the 2 matched tools has the argument `sender`", known),
    );
    let either =
        "(call: ToolCall)\ncall is tool:send_mail or call is tool:list_mails\ncall.arguments.foldr == \"x\"";
    let message = "none of the 2 matched tools has the argument `foldr`";
    check_one(&tools, &rule(either), (ERROR, "foldr", message, "did you mean `folder`?"));
}

#[test]
fn targets_of_statements_are_compared() {
    let tools = tools(&[(None, mail())]);
    let lattice = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n";
    for statement in [
        "require trusted for call.arguments.bdoy if:",
        "payload call.arguments.bdoy if:",
        "consent private for call.arguments.bdoy if:",
        "role call.arguments.bdoy is content if:",
    ] {
        let source = format!("{lattice}{statement}\n    (call: ToolCall) is tool:send_mail\n");
        let message = "the tool `send_mail` has no argument `bdoy`";
        check_one(&tools, &source, (ERROR, "bdoy", message, "did you mean `body`?"));
        assert_eq!(reported(&tools, &source.replace("bdoy", "body")), []);
    }
}

/// A group of tools is each of its tools.
#[test]
fn groups_of_tools_are_compared() {
    let tools = tools(&[(None, mail())]);
    let group = |members: &str, line: &str| {
        format!("SENDERS := [{members}]\n{}", rule(&format!("(call: ToolCall) is SENDERS\n{line}")))
    };
    let line = "call.arguments.recipiant == \"eve\"";
    let message = "the tool `send_mail` has no argument `recipiant`";
    check_one(
        &tools,
        &group("tool:send_mail", line),
        (ERROR, "recipiant", message, "did you mean `recipient`?"),
    );
    let message = "none of the 2 matched tools has the argument `recipiant`";
    let both = group("tool:send_mail, tool:list_*", line);
    check_one(&tools, &both, (ERROR, "recipiant", message, "did you mean `recipient`?"));
    assert_eq!(reported(&tools, &group("tool:send_mail, tool:anything", line)), []);
    let message = "no listed tool matches `tool:send_mial`";
    let unlisted = group("tool:send_mail, tool:send_mial", "call.arguments.body == \"x\"");
    check_one(&tools, &unlisted, (ERROR, "tool:send_mial", message, "did you mean `send_mail`?"));
}

#[test]
fn where_a_schema_does_not_say_nothing_is_reported() {
    let tools = tools(&[(None, mail())]);
    for lines in [
        "(call: ToolCall) is tool:send_mail\ncall.arguments.recipient == \"eve\"",
        "(call: ToolCall) is tool:send_mail\ncall.arguments.extra.x == \"eve\"",
        "(call: ToolCall) is tool:send_mail\ncall.arguments.body.x == \"eve\"",
        "(call: ToolCall) is tool:send_mail\n(x: str) in call.arguments\n\"eve\" in x",
        "(call: ToolCall) is tool:anything\ncall.arguments.x == \"eve\"",
        "(call: ToolCall) is tool:*\ncall.arguments.x == \"eve\"",
        "(call: ToolCall) is tool:bank/pay\ncall.arguments.x == \"eve\"",
        // The call may be one of a tool that permits every argument.
        "(call: ToolCall)\ncall.arguments.x == \"eve\"",
        "(call: ToolCall)\nnot (call is tool:send_mail)\ncall.arguments.x == \"eve\"",
        "(call: ToolCall)\ncall is tool:send_mail or call.arguments.x == \"eve\"",
        "(call: ToolCall)\nnot count(min=1):\n    call is tool:send_mail\ncall.arguments.x == 1",
        "(call: ToolCall) is tool:send_mail\ncount(min=1):\n    (out: ToolOutput) is tool:list_mails\n    out.is_error",
        "(out: ToolOutput) is tool:anything\nout.content.x == \"eve\"",
        "(out: ToolOutput) is tool:send_mail\nout.content[0].x == \"eve\"",
        "(out: ToolOutput) is tool:list_mails\nout.content[0].text == \"eve\"",
        "(m: Message)\nm.content.x == \"eve\"",
    ] {
        assert_eq!(reported(&tools, &rule(lines)), [], "{lines}");
    }
}

#[test]
fn what_may_be_meant_is_a_warning() {
    let list = mail()["tools"].as_array().unwrap()[..2].to_vec();
    let closed = tools(&[(None, json!(list))]);
    let help = "the arguments are `body`, `extra`, `files`, `folders`, `level`, `priority`, `recipient`";
    // A rule may deny what a tool does not declare.
    check_one(
        &closed,
        &rule("(call: ToolCall) is tool:send_mail\n\"bcc\" in call.arguments"),
        (WARNING, "\"bcc\"", "the tool `send_mail` has no argument `bcc`", help),
    );
    // A rule about all calls may be meant for other agents, too.
    check_one(
        &closed,
        &rule("(call: ToolCall)\ncall.arguments.recipiant == \"eve\""),
        (
            WARNING,
            "recipiant",
            "none of the 2 listed tools has the argument `recipiant`",
            "did you mean `recipient`?",
        ),
    );
    let answer = "the tool `list_mails` has no field `form` in";
    for (line, end) in [
        ("out.content[0].form == \"eve\"", " `[*]` of its answer"),
        ("(row: dict) in out.content\nrow.form == \"eve\"", " `[*]` of its answer"),
        ("out.structured.result[0].form == \"eve\"", " `result[*]` of its answer"),
    ] {
        let source = rule(&format!("(out: ToolOutput) is tool:list_mails\n{line}"));
        check_one(&closed, &source, (WARNING, "form", &format!("{answer}{end}"), "did you mean `from`?"));
    }
    check_one(
        &closed,
        &rule("(out: ToolOutput) is tool:send_mail\nout.structured.di == \"eve\""),
        (WARNING, "di", "the tool `send_mail` has no field `di` in its answer", "did you mean `id`?"),
    );
}

#[test]
fn a_value_that_an_argument_never_has_is_a_warning() {
    let tools = tools(&[(None, mail())]);
    let call = "(call: ToolCall) is tool:send_mail\n";
    let never = |argument: &str, value: &str| {
        format!("the argument `{argument}` of the tool `send_mail` is never `{value}`")
    };
    for (line, text, argument, value, help) in [
        ("call.arguments.priority == \"hihg\"", "\"hihg\"", "priority", "hihg", "did you mean `high`?"),
        ("\"hihg\" != call.arguments.priority", "\"hihg\"", "priority", "hihg", "did you mean `high`?"),
        (
            "call.arguments.priority in [\"low\", \"hihg\"]",
            "\"hihg\"",
            "priority",
            "hihg",
            "did you mean `high`?",
        ),
        (
            "call.arguments.priority == \"urgent\"",
            "\"urgent\"",
            "priority",
            "urgent",
            "its values are `high`, `low`, `normal`",
        ),
        ("call.arguments.level == 3", "3", "level", "3", "its values are `1`, `2`"),
        (
            "call.arguments.folders contains_only [\"inbix\"]",
            "\"inbix\"",
            "folders",
            "inbix",
            "did you mean `inbox`?",
        ),
        ("\"inbix\" in call.arguments.folders", "\"inbix\"", "folders", "inbix", "did you mean `inbox`?"),
        (
            "call.arguments.folders[0] == \"inbix\"",
            "\"inbix\"",
            "folders[*]",
            "inbix",
            "did you mean `inbox`?",
        ),
    ] {
        check_one(&tools, &rule(&format!("{call}{line}")), (WARNING, text, &never(argument, value), help));
    }
    check_one(
        &tools,
        &rule("(call: ToolCall) is tool:send_mail({priority: \"hihg\"})"),
        (WARNING, "\"hihg\"", &never("priority", "hihg"), "did you mean `high`?"),
    );
    let constant =
        format!("GRAVE := [\"hihg\"]\n{}", rule(&format!("{call}call.arguments.priority in GRAVE")));
    check_one(&tools, &constant, (WARNING, "\"hihg\"", &never("priority", "hihg"), "did you mean `high`?"));
    for lines in [
        "call.arguments.priority in [\"low\", \"high\"]",
        "call.arguments.priority is None",
        "call.arguments.priority == None",
        "call.arguments.level == 1.0",
        "call.arguments.level == 2",
        "\"gh\" in call.arguments.priority",
        "call.arguments.recipient == \"eve\"",
        "call.arguments.folders == \"inbix\"",
        "call.arguments.priority == call.arguments.body",
    ] {
        assert_eq!(reported(&tools, &rule(&format!("{call}{lines}"))), [], "{lines}");
    }
    let shape = "(call: ToolCall) is tool:send_mail({priority: \"h.*\", folders: [\"inbox\"]})";
    assert_eq!(reported(&tools, &rule(shape)), []);
}

#[test]
fn a_pattern_that_two_servers_match_is_a_warning_where_it_grants() {
    let both = tools(&[(Some("mail"), mail()), (Some("evil"), json!([{"name": "send_mail"}]))]);
    let policy = "lattice integrity: trusted < untrusted\nrequire untrusted if:\n    (call: ToolCall) is tool:send_mail\n";
    let message = "tools of 2 servers match `tool:send_mail`, so it is ambiguous which one is meant, and the statement grants nothing";
    let help = "write the server too: `evil/send_mail`, `mail/send_mail`";
    check_one(&both, policy, (WARNING, "tool:send_mail", message, help));
    assert_eq!(reported(&both, &rule("(call: ToolCall) is tool:send_mail")), []);
    assert_eq!(reported(&both, &policy.replace("tool:", "tool:mail/")), []);
}

#[test]
fn servers_without_a_list_are_named() {
    let tools = tools(&[(Some("mail"), mail())]);
    let policy = Policy::parse(&rule(
        "(a: ToolCall) -> (b: ToolCall)\na is tool:mial/send_mail\nb is tool:bank/resources/read",
    ))
    .unwrap();
    let named = tools.undescribed_servers(&policy);
    let named: Vec<_> = named.iter().map(|server| (server.name.as_str(), server.near.as_deref())).collect();
    assert_eq!(named, [("bank", None), ("mial", Some("mail"))]);
    assert_eq!(tools.tools().len(), 4);
}

#[test]
fn lists_are_bounded_and_names_in_messages_are_short() {
    let many: Vec<Value> = (0..=MAX_TOOLS).map(|n| json!({"name": format!("t{n}")})).collect();
    let error = ToolSchemas::new().add_list(None, &json!(many).to_string()).unwrap_err();
    assert_eq!(error.to_string(), "the lists have more than 5000 tools; give fewer lists");
    let long = tools(&[(None, json!([{"name": "n".repeat(500)}]))]);
    let source = rule("(call: ToolCall) is tool:send");
    let [(_, _, _, help)] = reported(&long, &source).try_into().unwrap();
    assert_eq!(help, format!("the listed tools are `{}…`", "n".repeat(60)));
}

/// An argument on which a part of an answer does not depend.
#[test]
fn the_arguments_that_do_not_flow_into_an_answer_are_compared() {
    let mail = tools(&[(None, mail())]);
    let source = |region: &str, arguments: &str| {
        format!(
            "lattice integrity: trusted < untrusted\nlabel {region} as trusted independent of {arguments} if:\n    (out: ToolOutput) is tool:send_mail\n"
        )
    };
    let message = "the tool `send_mail` has no argument `bodi`";
    for region in ["out.content.id", "capture(out.content, r\"(?<id>[0-9]{1,9})\", \"id\")"] {
        let known = source(region, "arguments.body, arguments[\"recipient\"]");
        assert_eq!(reported(&mail, &known), Vec::new(), "{known}");
        let unknown = source(region, "arguments.recipient, arguments.bodi");
        check_one(&mail, &unknown, (ERROR, "bodi", message, "did you mean `body`?"));
    }
}
