//! What chat templates use of Python and of Hugging Face's renderer, beside Jinja itself.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Adds functions, filters and methods. `strftime_now` is not defined, so that a prompt does not depend on the day:
/// templates that use it have a date for this case.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_filter("tojson", to_json);
    environment.set_formatter(|out, state, value| match value.kind() {
        // Python writes its own names.
        minijinja::value::ValueKind::Bool => {
            out.write_str(if value.is_true() { "True" } else { "False" }).map_err(Error::from)
        }
        minijinja::value::ValueKind::None => out.write_str("None").map_err(Error::from),
        _ => minijinja::escape_formatter(out, state, value),
    });
}

/// `json.dumps` of Python without `ensure_ascii`: spaces after separators, unless lines are indented.
#[expect(clippy::needless_pass_by_value, reason = "the engine passes options by value")]
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // These change nothing here.
    let _: (Option<bool>, Option<bool>) = (options.get("ensure_ascii")?, options.get("sort_keys")?);
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced(CompactFormatter)))
        }
    };
    let failed = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(out).map_err(|error| failed(error.to_string()))
}

/// Writes `, ` and `: ` as Python does.
struct Spaced(CompactFormatter);

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Removes the blocks of one name, such as `{% generation %}`, with the white space that their dashes remove.
pub(super) fn without_tag(source: &str, name: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        kept.push_str(before);
        let Some((inside, next)) = after.split_once("%}") else {
            kept.push_str("{%");
            kept.push_str(after);
            return kept;
        };
        if inside.trim_matches(['-', '+']).trim() == name {
            if inside.starts_with('-') {
                kept.truncate(kept.trim_end().len());
            }
            rest = if inside.ends_with('-') { next.trim_start() } else { next };
        } else {
            kept.push_str("{%");
            kept.push_str(inside);
            kept.push_str("%}");
            rest = next;
        }
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_removed() {
        for (source, expected) in [
            ("a {% generation %} b {%- endgeneration -%} c", "a  b {%- endgeneration -%} c"),
            ("a {%- generation -%} b", "ab"),
            ("{% if generation %}x{% endif %}", "{% if generation %}x{% endif %}"),
            ("a {% unfinished", "a {% unfinished"),
        ] {
            assert_eq!(without_tag(source, "generation"), expected);
        }
    }
}
