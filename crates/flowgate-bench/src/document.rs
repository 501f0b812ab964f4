//! Builds the JSON document of a run from its lines: [`by_kind`]. `flowgate bench propagation` and `screeners` print it
//! for `--format json`.

use serde_json::{Map, Value, json};

/// Returns a document with the manifest, a list for each kind of lines in their order, and whether the run was
/// interrupted (`is_interrupted`). The field `type` of a line names its kind.
pub fn by_kind(manifest: &Value, lines: Vec<Value>, is_interrupted: bool) -> Value {
    let mut document = Map::new();
    for line in lines {
        let kind = line.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(list) = document.entry(kind).or_insert_with(|| json!([])).as_array_mut() {
            list.push(line);
        }
    }
    document.insert("manifest".to_owned(), manifest.clone());
    document.insert("interrupted".to_owned(), is_interrupted.into());
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_lists_by_their_kind() {
        let lines = vec![json!({"type": "a", "n": 1}), json!({"type": "b"}), json!({"type": "a", "n": 2})];
        let document = by_kind(&json!({"seed": 1}), lines, true);
        let expected = json!({
            "manifest": {"seed": 1}, "interrupted": true, "b": [{"type": "b"}],
            "a": [{"type": "a", "n": 1}, {"type": "a", "n": 2}],
        });
        assert_eq!(document, expected);
    }
}
