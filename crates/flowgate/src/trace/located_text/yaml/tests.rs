//! Tests the reader for YAML: the spans of fields and block scalars, and ambiguous texts that must be rejected.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{check, check_rejected, check_replacement, check_spans, values};
use super::super::{LocateError, Notation, locate};
use super::BREAKS;

const YAML: Notation = Notation::Yaml;

#[test]
fn rows_are_located() {
    check(
        YAML,
        "- all_day: false\n  id_: '13'\n  size: 7\n  at: 2024-05-26 19:00:00\n  who:\n  - a@b.c\n  - d\n  shared: {}\n- id_: null\n",
        &[
            ("/0/all_day", "false", json!(false)),
            ("/0/id_", "'13'", json!("13")),
            ("/0/size", "7", json!(7)),
            ("/0/at", "2024-05-26 19:00:00", json!("2024-05-26 19:00:00")),
            ("/0/who/0", "a@b.c", json!("a@b.c")),
            ("/0/who/1", "d", json!("d")),
            ("/1/id_", "null", json!(null)),
        ],
    );
}

#[test]
fn lists_and_maps_end_with_their_last_node() {
    let text = "# top\na:\n- x: 1\n  y: 2  # why\n\n- z: é\n\nb:\n   c: [1, {d: 2}] # end\n\n";
    let located = locate(text, Some(YAML)).unwrap();
    let spelled = |n: &super::LocatedNode| text.get(n.span.clone()).unwrap().to_owned();
    let a = located.root.get("a").unwrap();
    let b = located.root.get("b").unwrap();
    assert_eq!(spelled(&located.root), text.trim_end().replace("# top\n", "").replace(" # end", ""));
    assert_eq!(spelled(a), "- x: 1\n  y: 2  # why\n\n- z: é");
    assert_eq!(spelled(b), "c: [1, {d: 2}]");
    assert_eq!(spelled(b.get("c").unwrap()), "[1, {d: 2}]");
}

#[test]
fn wrapped_scalars_are_located() {
    check(
        YAML,
        "a: one\n  two\n\n  three\nb: 'it''s\n\n  so' # it's\nc: \"x\\n\\\n  \\ y\\té\"\nd: e",
        &[
            ("/a", "one\n  two\n\n  three", json!("one two\nthree")),
            ("/b", "'it''s\n\n  so'", json!("it's\nso")),
            ("/c", "\"x\\n\\\n  \\ y\\té\"", json!("x\n y\té")),
            ("/d", "e", json!("e")),
        ],
    );
}

#[test]
fn block_scalars_are_located_with_their_header() {
    check(
        YAML,
        "- |\n  é: 1\n   # b\n\n- a: |-\n    x\n\n    y  \n  b: >+\n    p\n    q\n\n\n  c: |2-\n     r\n- >-\n\n  s\n",
        &[
            ("/0", "|\n  é: 1\n   # b", json!("é: 1\n # b\n")),
            ("/1/a", "|-\n    x\n\n    y  ", json!("x\n\ny  ")),
            ("/1/b", ">+\n    p\n    q", json!("p q\n\n\n")),
            ("/1/c", "|2-\n     r", json!(" r")),
            ("/2", ">-\n\n  s", json!("\ns")),
        ],
    );
    check(YAML, "a: |\nb: |-\n  \n", &[("/a", "|", json!("")), ("/b", "|-", json!(""))]);
}

#[test]
fn values_left_out_are_empty() {
    check(
        YAML,
        "-\n- # c - d\n- a:\n  b:   \n-  - \n   - {c: , d: 1}\n",
        &[
            ("/0", "", json!(null)),
            ("/1", "", json!(null)),
            ("/2/a", "", json!(null)),
            ("/2/b", "", json!(null)),
            ("/3/0", "", json!(null)),
            ("/3/1/c", "", json!(null)),
            ("/3/1/d", "1", json!(1)),
        ],
    );
    let located = locate("-\n- a:\n", Some(YAML)).unwrap();
    assert_eq!(located.root.span, 0..6);
}

#[test]
fn documents_may_be_framed() {
    for text in ["---\na: 1\n...\n", "--- # c\r\na: 1\r\n", "\u{feff}a: 1", "  a: 1\n", "# c\n---\na: 1"] {
        check(YAML, text, &[("/a", "1", json!(1))]);
    }
}

#[test]
fn flow_collections_are_located() {
    check(
        YAML,
        "[a, 'b' , {\"c\":1, d: [],}, [e: f], # g\n h,]",
        &[
            ("/0", "a", json!("a")),
            ("/1", "'b'", json!("b")),
            ("/2/c", "1", json!(1)),
            ("/3/0/e", "f", json!("f")),
            ("/4", "h", json!("h")),
        ],
    );
}

#[test]
fn anchors_and_aliases_are_refused() {
    for (text, offset) in [
        ("a: &x 1\nb: *x", 3),
        ("a: *x", 3),
        ("&x a: 1", 0),
        ("- &x\n  a: 1", 2),
        ("- 1\n- *x", 6),
        ("a: {b: &c d}", 7),
    ] {
        check_rejected(YAML, text, &LocateError::Alias { offset });
    }
}

#[test]
fn ambiguous_yaml_is_refused() {
    for text in [
        "a: 1\n---\nb: 2",
        "- a\n--- b",
        "a: 'x\u{2028}b: c'",
        "a: b\u{85}",
        "a: !!python/object/apply:os.system ['x']",
        "a: !!str 1",
        "a: ! 1",
        "!t {a: 1}",
        "<<: {a: 1}",
        "a:\n  <<: {b: 1}",
        "? a\n: b",
        "? a",
        "{? a : b}",
        "[?a]",
        "{a}",
        "{a, b: c}",
        "[a]: b",
        "{a: 1}: b",
        "- [b]: c",
        ": a",
        "{: a}",
        "a:\n\tb: 1",
        "a:\n  b: 1\n\tc: 2",
        "-\ta\n-\tb: 1",
        "a: 1\n\tb: 2",
        "a: 1\n b: 2",
        "a: b: c",
        "a: 'b' c",
        "a: 'b",
        "[a",
        "[a]]",
        "a: [b,, c]",
        "a: @b",
        "a: %b\n%c",
        "a: b\n\0",
        "%YAML 1.1\n---\na: 1",
        "%TAG ! tag:a,b:\n---\na: 1",
        "...\n---\na: 1",
    ] {
        let located = locate(text, Some(YAML));
        assert!(matches!(located, Err(LocateError::Syntax { .. })), "{text}: {located:?}");
    }
}

#[test]
fn scalars_and_double_keys_are_refused() {
    for text in ["", "\n", "# c", "a", "'a'", "|\n  a", "---", "&x a", "!!map a"] {
        check_rejected(YAML, text, &LocateError::NotStructured);
    }
    check_rejected(YAML, "- a: 1\n  \"a\": 2", &LocateError::DuplicateKey { span: 9..12 });
    check_rejected(YAML, "{1: 1, '1': 3}", &LocateError::DuplicateKey { span: 7..10 });
}

#[test]
fn the_limit_on_yaml_is_its_own() {
    let text = format!("a: {}", "b".repeat(super::YAML_LIMIT - 3));
    assert!(locate(&text, None).is_ok());
    check_rejected(YAML, &(text + "b"), &LocateError::TooLarge);
}

#[test]
fn hostile_texts_cost_little() {
    let n = 20_000;
    for text in [
        "- ".repeat(n),
        "? ".repeat(n),
        "a:\n ".repeat(n),
        format!("a: {}", "[".repeat(n)),
        format!("a: [{}", ",".repeat(n)),
        format!("a: [{}", "'' ".repeat(n)),
        format!("a: {}", "{a: ".repeat(n)),
        "- &a\n".repeat(n),
        "...\n".repeat(n),
        "#\n".repeat(n),
        "a: |\n".to_owned() + &"\n".repeat(n),
        (0..n).fold("a: 1".to_owned(), |t, i| t + "\n" + &" ".repeat(i % 200)),
    ] {
        assert!(locate(&text, Some(YAML)).is_err() || text.starts_with("a: "));
    }
}

/// Prints a value in block style.
fn block(value: &Value, indent: usize, out: &mut String) {
    let space = " ".repeat(indent);
    match value {
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                write!(out, "{space}-").unwrap();
                nested(item, indent + 2, out);
            }
        }
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                write!(out, "{space}{}:", json!(key)).unwrap();
                nested(value, indent + 2, out);
            }
        }
        scalar => writeln!(out, "{space}{scalar}").unwrap(),
    }
}

fn nested(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, indent, out);
        }
        Value::Object(entries) if !entries.is_empty() => {
            out.push('\n');
            block(value, indent, out);
        }
        scalar => writeln!(out, " {scalar}").unwrap(),
    }
}

proptest! {
    #[test]
    fn printed_values_come_back(value in values()) {
        let mut blocks = String::new();
        block(&value, 0, &mut blocks);
        prop_assume!(!blocks.contains(BREAKS));
        for text in [blocks, value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let located = locate(&text, Some(YAML)).unwrap();
            prop_assert_eq!(located.root.to_value(), value.clone());
            for (_, spelled, decoded) in check_spans(&located, &text) {
                prop_assert_eq!(spelled, decoded.to_string());
            }
        }
    }

    #[test]
    fn one_leaf_can_be_replaced(value in values(), pick in any::<proptest::sample::Index>()) {
        let mut text = String::new();
        block(&value, 0, &mut text);
        prop_assume!(!text.contains(BREAKS));
        check_replacement(YAML, &text, &pick);
    }
}
