//! Generates messages and answers that contain a marker: a unique text.

use flowgate_guard::conversation::ToolAnswer;
use serde_json::{Value, json};

use crate::bytes::Choices;

/// Generates a text that contains no part of a marker.
pub(crate) fn word(choices: &mut Choices<'_>, longest: usize) -> String {
    choices.text(longest).replace(['q', 'z'], "_")
}

pub(crate) fn region(choices: &mut Choices<'_>) -> String {
    choices.of(&["h1", "h2", "h3", "h4", "h9", "none"]).to_owned()
}

pub(crate) fn names(choices: &mut Choices<'_>) -> Value {
    match choices.below(5) {
        0 => json!({}),
        1 => json!({"secrecy": "private"}),
        2 => json!({"integrity": "untrusted", "secrecy": "public"}),
        3 => json!({"secrecy": ["private"], "nobody": "knows"}),
        _ => json!(word(choices, 4)),
    }
}

pub(crate) fn said(choices: &mut Choices<'_>, marker: &str) -> Value {
    match choices.below(4) {
        0 => json!(format!("{} {marker}", word(choices, 12))),
        1 => json!([{"type": "text", "text": marker}, {"type": "image_url", "image_url": {"url": marker}}]),
        2 => value(choices, marker),
        _ => json!(value(choices, marker).to_string()),
    }
}

/// Generates an answer that contains the marker, as a value or as a text in some format, which may be
/// malformed.
pub(crate) fn answered(choices: &mut Choices<'_>, marker: &str) -> ToolAnswer {
    let value = value(choices, marker);
    let mut text = match choices.below(4) {
        0 => value.to_string(),
        1 => format!("{value:#}"),
        2 => value.to_string().replace('"', "'").replace("null", "None"),
        _ => yaml(&value),
    };
    let mut structured = None;
    let content = match choices.below(8) {
        0 | 1 => value,
        2..=4 => Value::String(text),
        5 => {
            let at = text.char_indices().map(|(at, _)| at).nth(choices.below(40)).unwrap_or(0);
            text.insert_str(at, &word(choices, 6));
            Value::String(text)
        }
        6 => json!([{"type": "text", "text": text}, {"type": "image", "mimeType": marker, "data": marker}]),
        _ => {
            structured = Some(value);
            Value::String(text)
        }
    };
    let carries = (choices.below(4) == 3).then(|| names(choices));
    ToolAnswer { content, structured, is_error: choices.below(8) == 7, carries }
}

/// Generates a value of the shape that the policy refers to, with the marker in it.
fn value(choices: &mut Choices<'_>, marker: &str) -> Value {
    let any = |choices: &mut Choices<'_>| match choices.below(6) {
        0 => json!("me"),
        1 => json!("Rating: 4 of 5"),
        2 => Value::Null,
        3 => json!(choices.below(3)),
        4 => json!({"text": word(choices, 3)}),
        _ => json!(word(choices, 6)),
    };
    let holds = [
        "MARKER",
        "Rating: 4. MARKER",
        "- MARKER",
        "{\"a\": \"MARKER\"}",
        "{\"MARKER\": [1]}",
        "a: 1 # MARKER\nb: 2",
        "[hidden MARKER",
    ];
    let hold = json!(choices.of(&holds).replace("MARKER", marker));
    let mut value = json!({
        "k": any(choices),
        "note": any(choices),
        "secret": any(choices),
        "rows": [{"x": any(choices), "y": any(choices)}],
    });
    match choices.below(8) {
        0 => value["secret"] = hold,
        1 => value["k"] = hold,
        2 => value["note"] = hold,
        3 => value["rows"][0]["y"] = hold,
        4 => value["rows"] = json!([{"x": "me", "y": {"z": hold}}]),
        5 => value["secret"] = json!({marker: 1}),
        6 => value[marker] = json!([]),
        _ => value = hold,
    }
    value
}

fn yaml(value: &Value) -> String {
    let Value::Object(map) = value else { return value.to_string() };
    map.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}
