//! Tests of the error messages about traces that cannot be parsed.

use crate::{POLICY, check, file, name};

/// Every row is invalid input; the message contains its position, and no payment is permitted without an objection.
#[test]
fn bad_traces_are_located_or_fail_closed() {
    let pay = |arguments: &str| {
        format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"c1","function":{{"name":"send_money","arguments":{arguments}}}}}]}}"#
        )
    };
    let user = r#"{"role":"user","content":"pay"}"#;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let rows: Vec<(&str, String, i32, &str)> = vec![
        (
            "truncated",
            format!("{user}\n{{\"role\":\"assi"),
            2,
            "line 2: not strict JSON: EOF while parsing a string",
        ),
        (
            "printed over lines",
            format!("{{\"messages\": [{user},\n {user}\n]}}"),
            0,
            "1 run: 0 calls permitted",
        ),
        (
            "cut off",
            format!("{{\"messages\": [{user},\n {user}"),
            2,
            "line 2: not strict JSON: EOF while parsing a list",
        ),
        ("empty", String::new(), 0, "0 runs"),
        ("prose", "Hello\n".into(), 2, "line 1: not strict JSON: expected value at column 1"),
        (
            "number",
            "[1]".into(),
            2,
            "line 1, message 0: the message is not a JSON object; write one with a `role`",
        ),
        ("twins", r#"{"role":"user","role":"system"}"#.into(), 2, "duplicate key at column 21"),
        ("deep", format!(r#"[{{"role":"user","content":{deep}}}]"#), 2, "recursion limit exceeded"),
        (
            "no call",
            format!(r#"[{user},{{"role":"tool","tool_call_id":"x","content":"ok"}}]"#),
            1,
            "no call of the session has the id that the output names, so the output is labelled top",
        ),
        ("no output", format!("[{user},{}]", pay(r#""{}""#)), 0, "1 call permitted"),
        (
            "same id",
            format!("[{user},{},{}]", pay(r#""{}""#), pay(r#""{}""#)),
            1,
            "another call of the session has the same id",
        ),
        (
            "two keys",
            format!("[{user},{}]", pay(r#""{\"to\":\"a\",\"to\":\"b\"}""#)),
            1,
            "the arguments are not strict JSON: duplicate key",
        ),
        (
            "big number",
            format!("[{user},{}]", pay(r#""{\"amount\":12345678901234567890}""#)),
            1,
            "number is too large to be exact",
        ),
        (
            "no object",
            format!("[{user},{}]", pay(r#""[1]""#)),
            1,
            "the arguments are not a JSON object; write one, such as `{}`",
        ),
        (
            "no name",
            format!(r#"[{user},{{"role":"assistant","tool_calls":[{{"id":"c"}}]}}]"#),
            2,
            "line 1, message 1: a tool call of the message has no `function.name`; add the name of the tool",
        ),
    ];
    for (row, trace, code, part) in rows {
        let path = file(&format!("{}.json", row.replace(' ', "-")), trace.as_bytes());
        check(&["check", POLICY, name(&path)], code, part);
    }
    let path = file("latin.json", b"{\"role\":\"user\",\"content\":\"caf\xe9\"}\n");
    check(&["check", POLICY, name(&path)], 2, "latin.json: line 1 is not valid UTF-8 from byte 29 on");
    let path = file("broken.json.gz", &[0x1f, 0x8b, 8, 0, 1, 2, 3]);
    check(&["check", POLICY, name(&path)], 2, "broken.json.gz: line 1:");
}

#[test]
fn a_line_of_a_hundred_megabytes_is_refused_by_its_number() {
    let mut line = br#"{"role":"user","content":""#.to_vec();
    line.resize(100 << 20, b'x');
    let path = file("long.jsonl", &line);
    let problem = "long.jsonl: line 1 is longer than 64 MiB; write this run to a separate file, with each message on its own line, or leave the run out";
    check(&["check", POLICY, name(&path)], 2, problem);
    std::fs::remove_file(path).unwrap();
}
