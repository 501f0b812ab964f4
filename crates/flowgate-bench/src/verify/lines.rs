//! Reads the fields of recorded lines, and compares recorded lines with those of a repeated run. [`verify`](super) and
//! its other submodules use it.

use serde_json::Value;

use super::Verification;

/// Returns the error for a run of a real model whose recorded answers are not at hand.
pub(super) fn not_repeatable(model: &str) -> String {
    format!(
        "line 1: the run of the model `{}` cannot be repeated without its recorded answers; name the file that `--answers` kept, or give a run of a double",
        model.escape_debug()
    )
}

/// A kind of recorded lines that is not compared: its name, as it follows `lines of` in the report, and whether a
/// line belongs to it.
pub(super) type SkippedLines = (&'static str, fn(&Value) -> bool);

/// Compares the recorded lines with those of the repeated run, in order. Recorded lines of a kind in `skipped` are left
/// out and counted. A difference names the line by its number in the file. A different number of lines is a difference
/// of its own.
pub(super) fn compare(recorded: &[Value], repeated: &[Value], skipped: &[SkippedLines]) -> Verification {
    let mut result = Verification::default();
    for (name, is_of_kind) in skipped {
        let left_out = recorded.iter().filter(|line| is_of_kind(line)).count();
        if left_out > 0 {
            result.left_out.push(format!("{left_out} lines of {name}"));
        }
    }
    let is_skipped = |line: &Value| skipped.iter().any(|(_, is_of_kind)| is_of_kind(line));
    let compared = recorded.iter().enumerate().filter(|(_, line)| !is_skipped(line));
    let compared: Vec<(usize, &Value)> = compared.collect();
    for ((index, line), repeated_line) in compared.iter().zip(repeated) {
        if *line == repeated_line {
            result.repeated += 1;
        } else if text(line, "type") == "manifest" && without_code(line) == without_code(repeated_line) {
            // The manifests differ only in the code that recorded the run, which is a note and no difference.
            result.repeated += 1;
            let difference = difference(line, repeated_line);
            result.notes.push(format!("line {}: other code has recorded the run: {difference}", index + 1));
        } else {
            result.differences.push(format!("line {}: {}", index + 1, difference(line, repeated_line)));
        }
    }
    if compared.len() != repeated.len() {
        let (has, again) = (compared.len(), repeated.len());
        result.differences.push(format!("the file has {has} lines to compare, the repeated run has {again}"));
    }
    result
}

/// Returns a manifest without the fields that identify the code: the version, and the digests of the sources and of the
/// screener's code. Two runs with the same figures count as equal, even if other code has recorded one of them.
fn without_code(manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("version");
        if let Some(sums) = fields.get_mut("sha256").and_then(Value::as_object_mut) {
            sums.remove("code");
            sums.remove("screener");
        }
    }
    manifest
}

/// Returns a phrase that names the fields in which two lines differ, each once, such as `questions, sha256.code
/// differs`. A field of an object within a line is named `OBJECT.FIELD`. The phrase omits the values, since they can be
/// long. If one of the lines is not an object, the phrase says so.
fn difference(recorded: &Value, repeated: &Value) -> String {
    let (Some(recorded), Some(repeated)) = (recorded.as_object(), repeated.as_object()) else {
        return "the line is not a JSON object; give a file that `flowgate bench` wrote".to_owned();
    };
    let mut fields: Vec<String> = Vec::new();
    for name in recorded.keys().chain(repeated.keys()) {
        let (one, other) = (recorded.get(name), repeated.get(name));
        if one == other {
            continue;
        }
        // Two objects are compared field by field, other values as a whole.
        let objects = one.and_then(Value::as_object).zip(other.and_then(Value::as_object));
        let found: Vec<String> = match objects {
            Some((one, other)) => {
                let changed = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
                changed.map(|key| format!("{name}.{key}")).collect()
            }
            None => vec![name.clone()],
        };
        for field in found {
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
    let fields: Vec<String> = fields.iter().map(|field| field.escape_debug().to_string()).collect();
    format!("{} differs", fields.join(", "))
}

/// Returns a field of a line as text; empty if the field is absent or is not a text.
pub(super) fn text<'v>(line: &'v Value, name: &str) -> &'v str {
    line.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the whole number `name` of the manifest, 0 or more; an error with advice if there is no such number.
pub(super) fn number(manifest: &Value, name: &str) -> Result<u64, String> {
    let found = manifest.get(name).and_then(Value::as_u64);
    found.ok_or_else(|| format!("line 1 has no number `{name}`; give a file that `flowgate bench` wrote"))
}

/// Returns the strings in the list `name` of the manifest; an error with advice if there is no such list, or if one of
/// its items is not a string.
pub(super) fn string_list(manifest: &Value, name: &str) -> Result<Vec<String>, String> {
    let found = manifest.get(name).and_then(Value::as_array);
    let text = |item: &Value| item.as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = found.and_then(|items| items.iter().map(text).collect());
    texts.ok_or_else(|| {
        format!("line 1 has no list `{name}` of names; give a file that `flowgate bench` wrote")
    })
}
