//! Supports the tests of the three notations of located texts (JSON, Python, YAML): generates texts, and checks the
//! spans that the parsers find in them.
#![expect(clippy::string_slice, reason = "tests")]

use std::ops::Range;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::{LocateError, LocatedNode, LocatedNodeKind, LocatedText, Notation, locate};

/// A leaf: the path to it, the text that spells it, and its value.
pub(super) type Leaf<'t> = (String, &'t str, Value);

/// Asserts that a text is parsed in a notation and has these leaves: the path, the spelling and the value of each.
pub(super) fn check(form: Notation, text: &str, expected: &[(&str, &str, Value)]) {
    let located = locate(text, Some(form)).unwrap_or_else(|why| panic!("{text}: {why}"));
    let leaves = check_spans(&located, text);
    let leaves: Vec<_> = leaves.iter().map(|(p, s, v)| (p.as_str(), *s, v.clone())).collect();
    assert_eq!(leaves, expected, "{text}");
}

/// Asserts that a text is rejected in a notation.
pub(super) fn check_rejected(form: Notation, text: &str, why: &LocateError) {
    assert_eq!(locate(text, Some(form)).as_ref(), Err(why), "{text}");
}

/// Returns the leaves of a text, after asserting that its spans are valid and nest.
pub(super) fn check_spans<'t>(located: &LocatedText, text: &'t str) -> Vec<Leaf<'t>> {
    assert!(matches!(located.root.kind, LocatedNodeKind::List(_) | LocatedNodeKind::Map(_)));
    let mut leaves = Vec::new();
    visit(&located.root, String::new(), text, &(0..text.len()), &mut leaves);
    leaves
}

/// Asserts that replacing one leaf, which `pick` selects at random, by another text changes no other leaf.
pub(super) fn check_replacement(form: Notation, text: &str, pick: &Index) {
    let located = locate(text, Some(form)).unwrap();
    let mut leaves = check_spans(&located, text);
    if leaves.is_empty() {
        return;
    }
    let at = pick.index(leaves.len());
    let start = leaves[at].1.as_ptr() as usize - text.as_ptr() as usize;
    let end = start + leaves[at].1.len();
    let other = format!("{}\"R\"{}", &text[..start], &text[end..]);
    let found = locate(&other, Some(form)).unwrap();
    leaves[at] = (leaves[at].0.clone(), "\"R\"", Value::from("R"));
    assert_eq!(check_spans(&found, &other), leaves);
}

/// Adds the leaves below `node`, which is at `path`, to `leaves`, after asserting that the spans of its parts are
/// valid, in order and within the span `within`.
fn visit<'t>(
    node: &LocatedNode,
    path: String,
    text: &'t str,
    within: &Range<usize>,
    leaves: &mut Vec<Leaf<'t>>,
) {
    let spelled = spelled_text(text, &node.span, within);
    // A span begins at its node, not at the space before the node.
    assert_eq!(spelled, spelled.trim_ascii_start());
    // The part of the span that the children visited so far do not cover.
    let mut free = node.span.clone();
    match &node.kind {
        LocatedNodeKind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(item, format!("{path}/{index}"), text, &free, leaves);
                free.start = item.span.end;
            }
        }
        LocatedNodeKind::Map(entries) => {
            for entry in entries {
                self::spelled_text(text, &entry.key_span, &free);
                assert!(!entry.key_span.is_empty());
                free.start = entry.key_span.end;
                let path = format!("{path}/{}", entry.key);
                visit(&entry.value, path, text, &free, leaves);
                free.start = entry.value.span.end;
            }
        }
        _ => leaves.push((path, spelled, node.to_value())),
    }
}

/// Returns the bytes at `span` of a text, after asserting that the span is valid and within the span `within`.
fn spelled_text<'t>(text: &'t str, span: &Range<usize>, within: &Range<usize>) -> &'t str {
    assert!(span.start <= span.end, "{span:?}");
    assert!(within.start <= span.start && span.end <= within.end, "{span:?} in {within:?}");
    &text[span.clone()]
}

/// Generates any value whose root is a list or a map.
pub(super) fn values() -> impl Strategy<Value = Value> {
    let tree = scalars().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(strings(), inner, 0..6).prop_map(|m| m.into_iter().collect()),
        ]
    });
    prop_oneof![
        vec(tree.clone(), 0..6).prop_map(Value::from),
        btree_map(strings(), tree, 0..6).prop_map(|m| m.into_iter().collect()),
    ]
}

/// Generates any scalar that JSON can represent.
fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        strings().prop_map(Value::from),
    ]
}

/// Generates strings with a bias to characters that the notations treat specially.
pub(super) fn strings() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z]{0,6}",
        "[-:#'\"\\\\\\[\\]{}|>&*!%@`?,. \t\n\r0-9a-e~é€😀\u{85}\u{2028}]{0,20}",
    ]
}

/// Generates texts with a bias to fragments of the notations, so that many are almost a list or a map.
pub(super) fn garbage() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b: ",
        "- ",
        "\n",
        "\n  ",
        "\n- ",
        "? ",
        ": ",
        ":",
        ",",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        "|",
        "|-\n",
        ">\n  ",
        "|+2\n",
        "'",
        "\"",
        "\\",
        "\\u00e9",
        "\\ud83d",
        "\\x",
        "\\\n",
        "#",
        " # c\n",
        "&x ",
        "*x",
        "!t ",
        "<<: ",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\t",
        "\r\n",
        "1",
        "-",
        "0x1",
        "1.5e3",
        "None",
        "True",
        "null",
        "~",
        "é",
        "😀",
        "\u{feff}",
        "\0",
        "\u{85}",
        "\u{2028}",
        "x(",
        "b'",
        "{'a': 1, ",
        "[1, ",
        "{\"k\": ",
        "''",
    ];
    let pieces = vec(proptest::sample::select(pieces.to_vec()), 0..24);
    prop_oneof![any::<String>(), strings(), pieces.prop_map(|p| p.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    // Every text is parsed without a panic. The spans of the nodes are valid, and the offsets and spans in an error are
    // at boundaries of characters.
    #[test]
    fn no_text_breaks_a_reader(text in garbage()) {
        for form in [None, Some(Notation::Json), Some(Notation::Python), Some(Notation::Yaml)] {
            match locate(&text, form) {
                Ok(located) => {
                    check_spans(&located, &text);
                }
                Err(LocateError::Syntax { offset } | LocateError::Alias { offset }) => {
                    prop_assert!(text.is_char_boundary(offset), "{}", offset);
                }
                Err(LocateError::DuplicateKey { span }) => prop_assert!(text.get(span).is_some()),
                Err(_) => {}
            }
        }
    }
}
