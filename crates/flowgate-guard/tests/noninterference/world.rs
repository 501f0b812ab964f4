//! What tools answer, and how an answer can change where nobody looks.

use flowgate::label::Label;
use flowgate::trace::{Content, Document, NodeId, Step};
use serde_json::{Map, Value, json};

use crate::random::Random;

const WORDS: [&str; 9] = [
    "me",
    "you",
    "secret",
    "",
    "a longer text\nof two lines: with [brackets] and \"quotes\"",
    "it's",
    "[hidden h1]",
    "{\"k\": \"me\"}",
    "- x: 1",
];

pub(crate) fn scalar(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!(random.below(3)),
        1 => json!(random.chance(50)),
        2 => Value::Null,
        _ => Value::String(random.of_list(&WORDS).to_owned()),
    }
}

/// A text that is nothing but a text, as long as it may be.
pub(crate) fn plain(random: &mut Random) -> Value {
    Value::String("word ".repeat(1 + random.below(9)))
}

/// Anything at all.
pub(crate) fn anything(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 2 } else { 4 }) {
        2 => (0..random.below(4)).map(|_| anything(random, depth - 1)).collect(),
        3 => {
            let entries = (0..random.below(4)).map(|_| {
                let key = random.of_list(&["k", "s", "rows", "x", "y", "odd"]).to_owned();
                (key, anything(random, depth - 1))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
        _ => scalar(random),
    }
}

/// What a tool usually answers.
pub(crate) fn answer(random: &mut Random) -> Value {
    if random.chance(10) {
        return anything(random, 2);
    }
    let rows: Vec<Value> =
        (0..random.below(4)).map(|_| json!({"x": scalar(random), "y": scalar(random)})).collect();
    json!({"k": scalar(random), "rows": rows, "s": scalar(random), "more": {"z": scalar(random)}})
}

/// How an answer is spelled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spelling {
    Json,
    Python,
    Yaml,
    Value,
}

pub(crate) fn spelling(random: &mut Random) -> Spelling {
    [Spelling::Json, Spelling::Python, Spelling::Yaml, Spelling::Value][random.below(4)]
}

pub(crate) fn spell(value: &Value, spelling: Spelling) -> Value {
    match spelling {
        Spelling::Value => value.clone(),
        Spelling::Json => Value::String(format!("{value:#}")),
        Spelling::Python => Value::String(python(value)),
        Spelling::Yaml => Value::String(yaml(value, 0)),
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(truth) => if *truth { "True" } else { "False" }.to_owned(),
        Value::Number(number) => number.to_string(),
        // As `repr` does: the quotes depend on the text.
        Value::String(text) => {
            let escaped = text.replace('\\', "\\\\").replace('\n', "\\n");
            if text.contains('\'') && !text.contains('"') {
                format!("\"{escaped}\"")
            } else {
                format!("'{}'", escaped.replace('\'', "\\'"))
            }
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("'{key}': {}", python(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Block style, whose layout depends on what stands there.
fn yaml(value: &Value, indent: usize) -> String {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            let entries = map.iter().map(|(key, value)| match value {
                Value::Object(inner) if !inner.is_empty() => {
                    format!("{pad}{key}:\n{}", yaml(value, indent + 2))
                }
                Value::Array(inner) if !inner.is_empty() => format!("{pad}{key}:\n{}", yaml(value, indent)),
                Value::Null => format!("{pad}{key}:"),
                Value::String(text) if text.contains('\n') && !text.contains('"') => {
                    let lines = text.lines().map(|line| format!("{pad}  {line}")).collect::<Vec<_>>();
                    format!("{pad}{key}: |-\n{}", lines.join("\n"))
                }
                other => format!("{pad}{key}: {other}"),
            });
            entries.collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) if !items.is_empty() => {
            let rows = items.iter().map(|item| {
                let inner = yaml(item, indent + 2);
                format!("{pad}- {}", inner.trim_start())
            });
            rows.collect::<Vec<_>>().join("\n")
        }
        other => format!("{pad}{other}"),
    }
}

/// The value of a part, with everything that does not flow to `observer` replaced by anything. Counts what changed.
pub(crate) fn changed(
    document: &Document,
    node: NodeId,
    observer: &Label,
    random: &mut Random,
    count: &mut usize,
) -> Value {
    let Some(part) = document.node(node) else { return Value::Null };
    if !part.label.flows_to(observer) {
        *count += 1;
        // Where something was declared inside, a text is labelled like what it could hold; that it is a text, and not
        // what was declared, is as visible as the place.
        return match &part.content {
            Content::Scalar(value) if !value.is_null() => plain(random),
            _ => anything(random, 2),
        };
    }
    match &part.content {
        Content::Scalar(value) => value.clone(),
        Content::List => {
            document.children(node).map(|child| changed(document, child, observer, random, count)).collect()
        }
        Content::Map => {
            let entries = document.children(node).filter_map(|child| match &document.node(child)?.step {
                Step::Key(key) => Some((key.to_string(), changed(document, child, observer, random, count))),
                _ => None,
            });
            Value::Object(entries.collect())
        }
    }
}
