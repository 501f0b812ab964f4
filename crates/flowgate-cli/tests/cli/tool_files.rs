//! Tests of `flowgate check --tools`, which compares a policy with files that describe tools.

use serde_json::{Value, json};

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

const POLICY_TEXT: &str = "lattice integrity: trusted < untrusted
lattice secrecy: public < private
label out.content as trusted if:
    (out: ToolOutput) is tool:read_mail
require trusted, private if:
    (call: ToolCall) is tool:send_mail
payload call.arguments.body if:
    (call: ToolCall) is tool:send_mail
";

fn policy(case: &str, text: &str) -> std::path::PathBuf {
    file(&format!("tools-{case}.flow"), text.as_bytes())
}

/// Returns a list of tools in the form of MCP.
fn mcp() -> Value {
    json!([
        {"name": "send_mail", "inputSchema": {"type": "object", "properties": {
            "recipient": {"type": "string"}, "body": {"type": "string"}, "priority": {"enum": ["low", "high"]}}}},
        {"name": "read_mail", "inputSchema": {"type": "object", "properties": {"folder": {"type": "string"}}}},
        {"name": "delete_mail", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}},
    ])
}

/// Returns the same list in every form, with a name for each.
fn every_form() -> Vec<(&'static str, Value)> {
    let mapped = |map: &dyn Fn(&Value, &Value) -> Value| -> Value {
        let tools =
            mcp().as_array().unwrap().iter().map(|tool| map(&tool["name"], &tool["inputSchema"])).collect();
        Value::Array(tools)
    };
    let chat =
        mapped(&|name, schema| json!({"type": "function", "function": {"name": name, "parameters": schema}}));
    let responses = mapped(&|name, schema| json!({"type": "function", "name": name, "parameters": schema}));
    let anthropic = mapped(&|name, schema| json!({"name": name, "input_schema": schema}));
    vec![
        ("mcp", mcp()),
        ("mcp-result", json!({"tools": mcp()})),
        ("mcp-response", json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": mcp()}})),
        ("chat", chat.clone()),
        (
            "chat-request",
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": chat}),
        ),
        ("responses-request", json!({"model": "m", "input": "hi", "tools": responses})),
        ("anthropic-request", json!({"model": "m", "max_tokens": 1, "tools": anthropic})),
    ]
}

#[test]
fn every_form_of_a_file_of_tools_gives_the_same_result() {
    let (right, wrong) =
        (policy("right", POLICY_TEXT), policy("wrong", &POLICY_TEXT.replace(".body", ".bdoy")));
    for (form, tools) in every_form() {
        let tools = file(&format!("tools-{form}.json"), tools.to_string().as_bytes());
        let of_right = ["check", name(&right), "--tools", name(&tools)];
        let of_wrong = ["check", name(&wrong), "--tools", name(&tools)];
        check(&of_right, 0, "is a policy (with labels, 2 dimensions)");
        check(
            &of_right,
            0,
            "note: no `require` covers 2 tools, whose calls may carry only trusted, public data: read_mail, delete_mail \
             [no-requirement]",
        );
        check(
            &of_right,
            0,
            "note: no `label` covers the answers of 2 tools, which are untrusted, private: send_mail, delete_mail [no-label]",
        );
        check(&of_wrong, 2, "the tool `send_mail` has no argument `bdoy`");
        check(&of_wrong, 2, "did you mean `body`?");
        check(&of_wrong, 2, "tools-wrong.flow has 1 error");
    }
}

#[test]
fn the_server_of_a_file_is_part_of_the_names() {
    let tools = file("tools-mcp.json", mcp().to_string().as_bytes());
    let served = format!("mail={}", name(&tools));
    let policy = policy("served", &POLICY_TEXT.replace("tool:", "tool:mail/"));
    check(&["check", name(&policy), "--tools", &served], 0, "public data: mail/read_mail, mail/delete_mail");
    check(
        &["check", name(&policy), "--tools", name(&tools)],
        0,
        "note: no file describes the tools of the server `mail`, so they are not compared; `--tools mail=FILE` describes them",
    );
    let misspelled = format!("mial={}", name(&tools));
    check(
        &["check", name(&policy), "--tools", &misspelled],
        0,
        "they are not compared; did you mean `mial`?",
    );
    let two = ["check", name(&policy), "--tools", &served, "--tools", name(&tools)];
    check(&two, 0, "no `require` covers 5 tools");
}

#[test]
fn warnings_and_notes_are_in_every_format() {
    let tools = file("tools-mcp.json", mcp().to_string().as_bytes());
    let rule = format!(
        "{POLICY_TEXT}raise \"x\" if:\n    (call: ToolCall) is tool:send_mail\n    call.arguments.priority == \"hihg\"\n"
    );
    let policy = policy("value", &rule);
    let said = "the argument `priority` of the tool `send_mail` is never `hihg`";
    let arguments = ["check", name(&policy), "--tools", name(&tools)];
    check(&arguments, 0, said);
    check(&arguments, 0, "did you mean `high`?");
    check(&[&arguments[..], &["--deny-warnings"]].concat(), 1, said);
    let run = file("tools-run.json", br#"[{"role":"user","content":"hi"}]"#);
    for traces in [vec![], vec![name(&run)]] {
        let printed = |format: &str| {
            let output = flowgate(&[&arguments[..], &traces, &["--format", format]].concat());
            String::from_utf8(output.stdout).unwrap()
        };
        let document: Value = serde_json::from_str(&printed("json")).unwrap();
        let is_said =
            |warning: &Value| warning["message"] == said && warning["help"] == "did you mean `high`?";
        let warnings = document["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| is_said(warning) && warning["line"] == 11), "{document}");
        let notes = document["notes"].as_array().unwrap();
        let codes: Vec<&Value> = notes.iter().map(|note| &note["code"]).collect();
        assert_eq!(codes, ["no-requirement", "no-label"]);
        assert_eq!(notes[0]["tools"], json!(["read_mail", "delete_mail"]));
        let lines: Vec<Value> =
            printed("jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().filter(|line| line["type"] == "note").count(), 2, "{lines:?}");
        assert!(lines.iter().any(is_said), "{lines:?}");
        let sarif: Value = serde_json::from_str(&printed("sarif")).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        let levels: Vec<&Value> = results
            .iter()
            .filter(|result| result["ruleId"] != "unused-tool")
            .map(|result| &result["level"])
            .filter(|level| *level == "note")
            .collect();
        assert_eq!(levels.len(), 2, "{sarif}");
    }
    // Without the option, the document has no notes.
    let plain = flowgate(&["check", name(&policy), name(&run), "--format", "json"]);
    let plain: Value = serde_json::from_slice(&plain.stdout).unwrap();
    assert!(plain.get("notes").is_none());
}

#[test]
fn notes_fit_the_policy() {
    let tools = file("tools-mcp.json", mcp().to_string().as_bytes());
    let quiet = |case: &str, source: &str, absent: &str| {
        let policy = policy(case, source);
        let said = text(&flowgate(&["check", name(&policy), "--tools", name(&tools)]));
        assert!(!said.contains(absent), "{said}");
    };
    // Without labels, nothing is required.
    quiet("rules", "raise \"x\" if:\n    (call: ToolCall) is tool:send_mail\n", "[no-requirement]");
    quiet("default", &format!("{POLICY_TEXT}default trusted, public\n"), "[no-label]");
    let all =
        "require top if:\n    (call: ToolCall)\nlabel out.content as trusted if:\n    (out: ToolOutput)\n";
    quiet("all", &format!("lattice integrity: trusted < untrusted\n{all}"), "[no-");
    let many: Vec<Value> = (0..30).map(|n| json!({"name": format!("tool_{n}")})).collect();
    let many = file("tools-many.json", json!(many).to_string().as_bytes());
    let policy = policy("many", "lattice integrity: trusted < untrusted\n");
    check(
        &["check", name(&policy), "--tools", name(&many)],
        0,
        "tool_19, and 10 more, which --format json lists",
    );
    let page = file("tools-page.json", br#"{"tools": [{"name": "a"}], "nextCursor": "2"}"#);
    check(
        &["check", name(&policy), "--tools", name(&page)],
        0,
        "note: the list of tools has further pages (`nextCursor`)",
    );
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_place() {
    let big = format!("[{}]", " ".repeat(16 << 20));
    let rows: [(&str, &[u8], &str); 8] = [
        (
            "cut",
            b"{\"tools\": [\n  {\"name\": \"a\"",
            "cut.json: line 2, column 14: not JSON: EOF while parsing",
        ),
        ("binary", b"[\xff]", "binary.json: line 1 is not valid UTF-8 from byte 1 on"),
        (
            "twice",
            b"{\"tools\": [], \"tools\": []}",
            "twice.json: line 1, column 21: not JSON: duplicate key",
        ),
        (
            "nothing",
            b"{\"a\": 1}",
            "nothing.json: there is no list of tools; give the result of MCP `tools/list`, or a request",
        ),
        (
            "nameless",
            b"{\"tools\": [{\"name\": \"a\"}, {}]}",
            "nameless.json: tools[1]: the `name` of the tool is missing, empty or not a text; write one",
        ),
        (
            "schema",
            b"[{\"name\": \"a\", \"inputSchema\": \"x\"}]",
            "schema.json: [0].inputSchema: the schema is not a JSON object; write a JSON Schema",
        ),
        (
            "trace",
            b"[{\"role\": \"user\"}]",
            "trace.json: [0]: the entry is a message, not a tool; give a trace as an argument without",
        ),
        ("big", big.as_bytes(), "big.json: the file is longer than 16 MiB"),
    ];
    for (case, content, said) in rows {
        let path = file(&format!("tools-{case}.json"), content);
        check(&["check", POLICY, "--tools", name(&path)], 2, said);
        check(&["check", POLICY, TRACE, "--tools", &format!("bank={}", name(&path))], 2, said);
    }
    check(&["check", POLICY, "--tools", "=x.json"], 2, "the server has no name; write NAME=FILE");
    check(&["check", POLICY, "--tools", "flowgate=x.json"], 2, "give the server another name");
    // A name does not contain a slash, so this is a path.
    check(&["check", POLICY, "--tools", "a/b=c.json"], 2, "a/b=c.json: there is no such file");
}

/// Names of tools come from servers, and reach a terminal only in a visible form.
#[test]
fn names_of_tools_cannot_play_tricks_on_a_terminal() {
    let tools = json!([{"name": "a\u{1b}[2J\u{202e}\u{200b}b\n"}]);
    let tools = file("tools-odd.json", tools.to_string().as_bytes());
    for source in
        ["lattice integrity: trusted < untrusted\n", "raise \"x\" if:\n    (call: ToolCall) is tool:send\n"]
    {
        let policy = policy(if source.starts_with('l') { "odd-label" } else { "odd-rule" }, source);
        let said = text(&flowgate(&["check", name(&policy), "--tools", name(&tools), "--color", "never"]));
        assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{said:?}");
        assert!(said.contains("a\\u{1b}[2J\\u{202e}"), "{said:?}");
    }
}
