//! Tests what is read of programs that call tools: the rows of `tool_scripts.json`, each of which has the calls of a program
//! or why it is not read. `compat/agents` compares the calls with those that Node makes. Also tests that no text makes the
//! reader panic or hang.

#![expect(clippy::panic, reason = "tests")]

use flowgate_detect::tool_script::{ScriptUnreadReason, ScriptValue, ToolScript, tool_script};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn to_json(literal: &ScriptValue) -> Value {
    match literal {
        ScriptValue::Null => Value::Null,
        ScriptValue::Bool(value) => json!(value),
        #[expect(clippy::cast_possible_truncation, reason = "the numbers of the rows are small")]
        ScriptValue::Number(value) if value.fract() == 0.0 => json!(*value as i64),
        ScriptValue::Number(value) => json!(value),
        ScriptValue::Text(text) => json!(text),
        ScriptValue::List(items) => items.iter().map(to_json).collect(),
        ScriptValue::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), to_json(value))).collect())
        }
        _ => panic!("{literal:?}"),
    }
}

/// Reads a program and checks the invariants of the result.
fn read(text: &str) -> ToolScript {
    let script = tool_script(text);
    let spans = script.calls.iter().map(|call| &call.span);
    for span in spans.chain(script.unread.iter().map(|(_, span)| span)) {
        assert!(text.get(span.clone()).is_some(), "{span:?} in {text:?}");
    }
    script
}

#[test]
fn programs_are_read_as_javascript_reads_them() {
    let rows: Vec<Map<String, Value>> = serde_json::from_str(include_str!("tool_scripts.json")).unwrap();
    assert!(rows.len() > 100);
    let mut different = Vec::new();
    for row in rows {
        let text = row["script"].as_str().unwrap();
        let script = read(text);
        let shown = match script.unread {
            Some((reason, _)) => json!({"script": text, "unread": reason.as_str()}),
            None => {
                let call = |(tool, argument): (&String, Value)| json!([tool, argument]);
                let calls = script.calls.iter().map(|call| (&call.tool, to_json(&call.argument)));
                json!({"script": text, "calls": calls.map(call).collect::<Vec<_>>()})
            }
        };
        if shown != Value::Object(row.clone()) {
            different.push(format!("{shown}, and not {}", Value::Object(row)));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn long_and_deep_programs_end_at_a_limit() {
    let limit = |text: &str| {
        let reason = read(text).unread.map(|(reason, _)| reason);
        assert_eq!(reason, Some(ScriptUnreadReason::Limit), "{}", text.chars().take(60).collect::<String>());
    };
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{a:", "}"), ("`${", "}`"), ("!", ""), ("- ", ""), ("await ", "")]
    {
        limit(&format!("text({}1{})", open.repeat(20_000), close.repeat(20_000)));
    }
    limit(&"{".repeat(100_000));
    limit(&"if (1) ".repeat(20_000));
    limit(&(0..10_000).map(|n| format!("[1].map(x{n} => ")).collect::<String>());
    limit(&"text(1);".repeat(200_000));
    // Values that double, nested loops, joins, and lists in lists.
    let doubled: String = (0..64).map(|n| format!("const x{} = x{n} + x{n};", n + 1)).collect();
    limit(&format!("const x0 = 'abcdefgh';{doubled}"));
    let list = "['1','2','3','4','5','6','7','8','9','10']";
    let loops: String = (0..20).map(|n| format!("for (const a{n} of {list}) ")).collect();
    limit(&format!("{loops} text(1);"));
    limit(&format!("const s = '{}'; text([{}].join(s))", "x".repeat(100_000), "'',".repeat(40_000)));
    let nested: String = (0..10_000).map(|n| format!("const x{} = [x{n}];", n + 1)).collect();
    limit(&format!("const x0 = 1;{nested}"));
    let names: String = (0..8_000).map(|n| format!("a{n}:b{n},")).collect();
    let fields: String = (0..8_000).map(|n| format!("a{n}:1,")).collect();
    limit(&format!("const {{{names}}} = {{{fields}}};"));
}

proptest! {
    #[test]
    fn no_text_is_a_problem(text in prop::collection::vec(prop_oneof![
        prop::sample::select(vec!["const ", "x", " = ", "await ", "tools.f(", "text(", ")", "{", "}", "[", "]", "`", "${", "'", "\\u", "\\",
            "//", "/*", "*/", "\n", ";", ",", ".map(", "=>", "for (const y of ", "if (", "else ", "return ", "?", ":", "+", "1", "{cmd: 'ls'}", "é"])
            .prop_map(str::to_owned),
        ".{0,3}",
    ], 0..40)) {
        read(&text.concat());
    }
}
