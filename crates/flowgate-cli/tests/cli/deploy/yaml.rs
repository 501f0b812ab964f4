//! Reads the documents of a YAML file as JSON values.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// A list or a map whose end was not read yet; a map has the key whose value comes next.
enum OpenNode {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// Returns the documents of a text. Panics if it is not YAML, or uses what these files do not need: anchors, and keys
/// that occur twice or are no texts.
pub(super) fn documents(text: &str) -> Vec<Value> {
    let (mut documents, mut open) = (Vec::new(), Vec::<OpenNode>::new());
    for event in Parser::new_from_str(text) {
        let ended = match event.unwrap().0 {
            Event::SequenceStart(..) => {
                open.push(OpenNode::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(OpenNode::Map(Map::new(), None));
                continue;
            }
            Event::Scalar(text, style, ..) => match open.last_mut() {
                Some(OpenNode::Map(map, key @ None)) => {
                    assert!(!map.contains_key(&*text), "`{text}` occurs twice");
                    *key = Some(text.into_owned());
                    continue;
                }
                _ if style == ScalarStyle::Plain => plain(&text),
                _ => Value::from(text.into_owned()),
            },
            Event::SequenceEnd | Event::MappingEnd => match open.pop().unwrap() {
                OpenNode::List(list) => list.into(),
                OpenNode::Map(map, _) => map.into(),
            },
            Event::Alias(_) => panic!("aliases are not supported"),
            _ => continue,
        };
        match open.last_mut() {
            Some(OpenNode::List(list)) => list.push(ended),
            Some(OpenNode::Map(map, key)) => drop(map.insert(key.take().unwrap(), ended)),
            None => documents.push(ended),
        }
    }
    documents
}

/// Returns the value of a scalar without quotation marks.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => true.into(),
        "false" => false.into(),
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}

#[test]
fn documents_are_read() {
    let text = "# comment\na: [1, x]\nb:\n  c: |\n    one\n    two\n  d: \"0\"\n---\n- true\n- {e: ~}\n";
    let expected = [
        serde_json::json!({"a": [1, "x"], "b": {"c": "one\ntwo\n", "d": "0"}}),
        serde_json::json!([true, {"e": null}]),
    ];
    assert_eq!(documents(text), expected);
}
