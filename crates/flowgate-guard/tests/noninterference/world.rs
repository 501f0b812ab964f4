//! Generates the answers of tools, and their text formats.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// No word is one that policies endorse: endorsed values are released, and stay equal in both runs.
const WORDS: [&str; 13] = [
    "me",
    "you",
    "secret",
    "",
    "ann",
    "bob",
    "web",
    "2024-05-19 12:00",
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

/// Generates an unstructured text of random length.
pub(crate) fn plain(random: &mut Random) -> Value {
    Value::String("word ".repeat(1 + random.below(9)))
}

/// The prefix of marks. A mark makes a text distinguishable from every other text, wherever it is copied.
const MARK: &str = "zq";
const MARK_LENGTH: usize = 10;

/// Generates a text with a mark; a few are long.
pub(crate) fn marked(random: &mut Random) -> String {
    let words = if random.chance(2) { 400 } else { 1 + random.below(9) };
    format!("{}{}", "word ".repeat(words), mark(random))
}

/// Generates a mark.
pub(crate) fn mark(random: &mut Random) -> String {
    format!("{MARK}{:08x}", random.next() & 0xffff_ffff)
}

/// Generates a text with a mark that shares no 20 characters with another text.
pub(crate) fn unlike_others(random: &mut Random) -> String {
    format!("{:016x} {:016x} {}", random.next(), random.next(), mark(random))
}

/// Returns the marks in a text.
pub(crate) fn marks(text: &str) -> impl Iterator<Item = &str> {
    let is_mark = |mark: &&str| {
        mark.bytes().skip(MARK.len()).all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    text.match_indices(MARK).filter_map(|(at, _)| text.get(at..at + MARK_LENGTH)).filter(is_mark)
}

/// Generates an arbitrary value.
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

/// A text of the form from which policies capture parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormedText {
    pub(crate) n: String,
    pub(crate) k: String,
    pub(crate) rest: String,
}

impl FormedText {
    pub(crate) fn new(random: &mut Random) -> Self {
        let k = random.of_list(&["a", "bc", "def"]).to_owned();
        Self { n: random.below(10).to_string(), k, rest: marked(random) }
    }

    /// Parses the text, if it has the form.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (n, rest) = text.strip_prefix("n=")?.split_once(" k=")?;
        let (k, rest) = rest.split_once(' ')?;
        Some(Self { n: n.to_owned(), k: k.to_owned(), rest: rest.to_owned() })
    }

    pub(crate) fn text(&self) -> String {
        format!("n={} k={} {}", self.n, self.k, self.rest)
    }
}

/// Generates a scalar, or a text with capturable parts.
fn field(random: &mut Random) -> Value {
    if random.chance(40) { Value::String(FormedText::new(random).text()) } else { any(random) }
}

/// Generates a scalar that no condition depends on, often a text with a mark.
fn any(random: &mut Random) -> Value {
    if random.chance(60) { Value::String(marked(random)) } else { scalar(random) }
}

/// Generates content blocks: text and an image.
fn blocks(random: &mut Random) -> Value {
    json!([
        {"type": "text", "text": marked(random)},
        {"type": "image", "mimeType": "image/png", "data": marked(random)},
    ])
}

/// Generates a typical answer of a tool.
pub(crate) fn answer(random: &mut Random) -> Value {
    match random.below(20) {
        0 => return anything(random, 2),
        1 => return field(random),
        2 => return blocks(random),
        _ => {}
    }
    let rows: Vec<Value> =
        (0..random.below(4)).map(|_| json!({"x": field(random), "y": any(random)})).collect();
    let mut answer =
        json!({"k": scalar(random), "rows": rows, "s": field(random), "more": {"z": any(random)}});
    if random.chance(10)
        && let Some(map) = answer.as_object_mut()
    {
        map.remove("k");
    }
    answer
}

/// The text format of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnswerSpelling {
    Json,
    Python,
    Yaml,
    Value,
}

pub(crate) fn spelling(random: &mut Random) -> AnswerSpelling {
    [AnswerSpelling::Json, AnswerSpelling::Python, AnswerSpelling::Yaml, AnswerSpelling::Value]
        [random.below(4)]
}

pub(crate) fn spell(value: &Value, spelling: AnswerSpelling) -> Value {
    match spelling {
        AnswerSpelling::Value => value.clone(),
        AnswerSpelling::Json => Value::String(format!("{value:#}")),
        AnswerSpelling::Python => Value::String(python(value)),
        AnswerSpelling::Yaml => Value::String(yaml(value, 0)),
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(truth) => if *truth { "True" } else { "False" }.to_owned(),
        Value::Number(number) => number.to_string(),
        // As in Python's `repr`, the kind of quotes depends on the text.
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

/// Formats block-style YAML, whose layout depends on the values.
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

/// Returns every value that a tool can answer in place of a name.
pub(crate) fn names() -> Vec<String> {
    let plain = (1..10).map(|count| "word ".repeat(count));
    WORDS.iter().map(|word| (*word).to_owned()).chain(plain).collect()
}
