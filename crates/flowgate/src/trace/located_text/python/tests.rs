//! Tests the reader for Python literals: the spans of fields, decoded strings, and texts that must be rejected.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{check, check_rejected, check_replacement, check_spans, values};
use super::super::{LocateError, LocatedNodeKind, Notation, locate};

const PYTHON: Notation = Notation::Python;

#[test]
fn fields_are_located() {
    check(PYTHON, "()", &[]);
    check(PYTHON, "{ }", &[]);
    check(
        PYTHON,
        "{'é': [1, -2.5e-07, True], 'b': (False, None,), \"it's\": {'x'}}",
        &[
            ("/é/0", "1", json!(1)),
            ("/é/1", "-2.5e-07", json!(-2.5e-07)),
            ("/é/2", "True", json!(true)),
            ("/b/0", "False", json!(false)),
            ("/b/1", "None", json!(null)),
            ("/it's/0", "'x'", json!("x")),
        ],
    );
    check(
        PYTHON,
        "[inf, -inf, nan, 0, 00, 1., .5, 0.5, 01.5, +1]",
        &[
            ("/0", "inf", json!("inf")),
            ("/1", "-inf", json!("-inf")),
            ("/2", "nan", json!("nan")),
            ("/3", "0", json!(0)),
            ("/4", "00", json!(0)),
            ("/5", "1.", json!(1.0)),
            ("/6", ".5", json!(0.5)),
            ("/7", "0.5", json!(0.5)),
            ("/8", "01.5", json!(1.5)),
            ("/9", "+1", json!(1)),
        ],
    );
}

#[test]
fn strings_are_decoded() {
    for (spelled, decoded) in [
        ("''", ""),
        (r#"'say "hi"'"#, "say \"hi\""),
        (r#""it's""#, "it's"),
        (r"'\'\\\n\r\t\a\b\f\v'", "'\\\n\r\t\u{7}\u{8}\u{c}\u{b}"),
        (r"'\0\18\101\1011'", "\0\u{1}8AA1"),
        (r"'\x00\xe9\u20ac\U0001f600'", "\0é€😀"),
        (r"'C:\dir \é'", "C:\\dir \\é"),
        ("'€\u{85}\u{2028}'", "€\u{85}\u{2028}"),
    ] {
        let text = format!("[{spelled}]");
        check(PYTHON, &text, &[("/0", spelled, json!(decoded))]);
    }
}

#[test]
fn values_without_a_literal_keep_their_spelling() {
    for spelled in [
        "datetime.datetime(2024, 5, 15, 10, 0)",
        "<Color.RED: 'r>'>",
        "<function <lambda> at 0x7f>",
        "set()",
        "OrderedDict([('a)', 1), ('b', {2: [3]})])",
        "Decimal('1.5')",
        r"b'\x00\'\\'",
        "Straße(x=')\\'')",
    ] {
        let text = format!("{{'k': {spelled}, 2: [{spelled}]}}");
        let expected = [("/k", spelled, json!(spelled)), ("/2/0", spelled, json!(spelled))];
        check(PYTHON, &text, &expected);
        check(PYTHON, &format!("{{{spelled}}}"), &[("/0", spelled, json!(spelled))]);
    }
}

#[test]
fn keys_other_than_strings_are_spelled() {
    let text = "{1: 'a', -1.5: 'b', None: 'c', (1, ')'): 'd', <E.X: 1>: 'e', date(1): 'f'}";
    let located = locate(text, Some(PYTHON)).unwrap();
    let LocatedNodeKind::Map(entries) = &located.root.kind else {
        panic!("not a map");
    };
    let keys: Vec<_> = entries.iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["1", "-1.5", "None", "(1, ')')", "<E.X: 1>", "date(1)"]);
    for entry in entries {
        assert_eq!(text.get(entry.key_span.clone()), Some(entry.key.as_str()));
    }
}

#[test]
fn braces_nest() {
    check(
        PYTHON,
        "{({('a',)}, {(1,): 2})}",
        &[("/0/0/0/0", "'a'", json!("a")), ("/0/1/(1,)", "2", json!(2))],
    );
}

#[test]
fn broken_texts_are_refused() {
    for (text, offset) in [
        ("[", 1),
        ("[1", 2),
        ("[,]", 1),
        ("[1 2]", 3),
        ("[1,,2]", 3),
        ("[1}", 2),
        ("(1)", 2),
        ("(1]", 2),
        ("['a' 'b']", 5),
        ("['''a''']", 3),
        ("['a\nb']", 3),
        ("['a", 3),
        ("['a\\", 4),
        (r"['\x4']", 4),
        (r"['\ud83d\ude00']", 3),
        (r"['\U00110000']", 3),
        (r"['\N{BULLET}']", 3),
        ("[012]", 1),
        ("[1j]", 2),
        ("[1_000]", 2),
        ("[0x1f]", 2),
        ("[1e]", 3),
        ("[-]", 2),
        ("[.]", 2),
        ("[null]", 1),
        ("[name]", 1),
        ("[f(]", 3),
        ("[f(1]", 4),
        ("[<a]", 4),
        ("[u'a']", 1),
        ("{'a': }", 6),
        ("{'a': 1, 'b'}", 12),
        ("{'a', 'b': 1}", 9),
        ("{[1]: 2}", 4),
        ("[1] x", 4),
        ("[...]", 2),
    ] {
        check_rejected(PYTHON, text, &LocateError::Syntax { offset });
    }
    for text in ["", "None", "'a'", "set()", "prose"] {
        check_rejected(PYTHON, text, &LocateError::NotStructured);
    }
    let duplicate = LocateError::DuplicateKey { span: 9..15 };
    check_rejected(PYTHON, r"{'a': 1, '\x61': 2}", &duplicate);
    let deep = format!("[f{}]", "(".repeat(100));
    check_rejected(PYTHON, &deep, &LocateError::TooDeep { offset: 66 });
}

/// Prints a value the way Python's `repr` does.
fn repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => write!(out, "{number}").unwrap(),
        Value::String(text) => quote(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                quote(key, out);
                out.push_str(": ");
                repr(value, out);
            }
            out.push('}');
        }
    }
}

fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => write!(out, "\\{c}").unwrap(),
            c if !c.is_control() && c != '\u{2028}' => out.push(c),
            c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32).unwrap(),
            c => write!(out, "\\u{:04x}", c as u32).unwrap(),
        }
    }
    out.push(quote);
}

proptest! {
    #[test]
    fn printed_values_come_back(
        value in values(),
        pick in any::<proptest::sample::Index>(),
    ) {
        let mut text = String::new();
        repr(&value, &mut text);
        let located = locate(&text, Some(PYTHON)).unwrap();
        prop_assert_eq!(located.root.to_value(), value);
        for (_, spelled, decoded) in check_spans(&located, &text) {
            let mut again = String::new();
            repr(&decoded, &mut again);
            prop_assert_eq!(spelled, again);
        }
        check_replacement(PYTHON, &text, &pick);
        prop_assert_eq!(locate(&text, None).unwrap().root, located.root);
    }
}
