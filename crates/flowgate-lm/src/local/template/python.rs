//! Implements the parts of Python and of Hugging Face's renderer that chat templates use in addition to Jinja:
//! functions, filters, methods, and Python's spelling of values. `template.rs` adds them to its environment.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Adds the parts of Python that templates use to the environment of a template: the function `raise_exception`, the
/// filter `tojson`, the methods of Python's types, and Python's form of `True`, `False` and `None`. The function
/// `strftime_now` (the current date) is not defined, so that a prompt does not depend on the date. Templates use a
/// fixed date if this function is missing.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_filter("tojson", to_json);
    environment.set_formatter(|out, state, value| match value.kind() {
        // Python spells these values in its own way.
        minijinja::value::ValueKind::Bool => {
            out.write_str(if value.is_true() { "True" } else { "False" }).map_err(Error::from)
        }
        minijinja::value::ValueKind::None => out.write_str("None").map_err(Error::from),
        _ => minijinja::escape_formatter(out, state, value),
    });
}

/// Serialises a value as Python's `json.dumps` without `ensure_ascii` does: on one line with spaces after separators,
/// or on several lines if the option `indent` is given. Fails for any option other than `indent`, `ensure_ascii` and
/// `sort_keys`.
#[expect(clippy::needless_pass_by_value, reason = "the engine passes options by value")]
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Templates also pass these two options, which have no effect here. They are read only so that `assert_all_used`
    // accepts them.
    let _: (Option<bool>, Option<bool>) = (options.get("ensure_ascii")?, options.get("sort_keys")?);
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            // The width is limited, since the template comes from a file.
            let indent = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out,
            PythonFormatter(CompactFormatter),
        )),
    };
    let failed = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(out).map_err(|error| failed(error.to_string()))
}

/// Writes JSON on one line, with the separators `, ` and `: `, as Python does.
struct PythonFormatter(CompactFormatter);

impl Formatter for PythonFormatter {
    /// Separates the items of a list by a comma and a space, as Python does.
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    /// Separates the entries of an object by a comma and a space, as Python does.
    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    /// Separates a key from its value by a colon and a space, as Python does.
    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Removes the tags with the name `name`, such as `{% generation %}`, from the template `source`. As in Jinja, a dash
/// in a tag, as in `{%- generation %}`, also removes the white space on this side of the tag. The text between two tags
/// remains.
pub(super) fn without_tag(source: &str, name: &str) -> String {
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        output.push_str(before);
        // A tag that does not end is not a tag.
        let Some((inside, next)) = after.split_once("%}") else {
            output.push_str("{%");
            output.push_str(after);
            return output;
        };
        if inside.trim_matches(['-', '+']).trim() == name {
            if inside.starts_with('-') {
                output.truncate(output.trim_end().len());
            }
            rest = if inside.ends_with('-') { next.trim_start() } else { next };
        } else {
            output.push_str("{%");
            output.push_str(inside);
            output.push_str("%}");
            rest = next;
        }
    }
    output.push_str(rest);
    output
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
