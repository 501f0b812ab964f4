//! Implements the built-in functions on texts that policies can call, such as `len`, `lower` and `split`. The evaluator
//! calls them through the table in [`builtin`](super).

use super::{Function, map_text, method, resolved_argument, row, type_error};
use crate::eval::{Evaluator, Result, Value};

pub(super) const TABLE: &[Function] = &[
    row("len", (1, 1), "The number of characters of a text, or of items of a list or a map.", |e, a| {
        // The items of a tool's schema are the tool's parameters, so its length is their number.
        if let Some(schema @ Value::Node(event, node)) = a.first()
            && e.is_schema(*event, *node)
        {
            return Ok(count(e.items(schema)?.len()));
        }
        Ok(match resolved_argument(e, a, 0)? {
            // An error in the dialect of Flowgate, and a missing value in that of invariant-ai.
            value @ (Value::Absent | Value::None) => {
                e.require_present(value, "`len`").map(|_| Value::Absent)?
            }
            // The content of a message without text counts as an empty text.
            Value::Silent => Value::Int(0),
            Value::Str(text) => {
                // One step pays for 64 bytes.
                e.spend(text.len() / 64)?;
                count(text.chars().count())
            }
            Value::List(items) | Value::Texts(items) => count(items.len()),
            Value::Answers(answers) => count(answers.len()),
            Value::Dict(entries) => count(entries.len()),
            other => {
                return type_error(format!(
                    "a value of the type {} has no length; give `len` a text, a list or a map",
                    other.type_name()
                ));
            }
        })
    }),
    method("lower", (1, 1), "The text in lower case.", |e, a| {
        map_text(e, a, "lower", |t| Value::text(t.to_lowercase()))
    }),
    method("upper", (1, 1), "The text in upper case.", |e, a| {
        map_text(e, a, "upper", |t| Value::text(t.to_uppercase()))
    }),
    method("strip", (1, 1), "The text without white space at its ends.", |e, a| {
        map_text(e, a, "strip", |t| Value::text(t.trim()))
    }),
    method("splitlines", (1, 1), "The lines of the text.", |e, a| {
        map_text(e, a, "splitlines", |t| Value::list(t.lines().map(Value::text)))
    }),
    method("split", (1, 2), "The parts of the text between separators, or between white space.", |e, a| {
        let separator = resolved_argument(e, a, 1)?;
        map_text(e, a, "split", |t| match separator.as_text() {
            Some(separator) if !separator.is_empty() => Value::list(t.split(separator).map(Value::text)),
            _ => Value::list(t.split_whitespace().map(Value::text)),
        })
    }),
    method("startswith", (2, 2), "Whether the text begins with another.", |e, a| {
        let start = resolved_argument(e, a, 1)?;
        let Some(start) = start.as_text() else { return e.outcome_without_text(&start, "`startswith`") };
        map_text(e, a, "startswith", |t| Value::Bool(t.starts_with(start)))
    }),
    method("endswith", (2, 2), "Whether the text ends with another.", |e, a| {
        let end = resolved_argument(e, a, 1)?;
        let Some(end) = end.as_text() else { return e.outcome_without_text(&end, "`endswith`") };
        map_text(e, a, "endswith", |t| Value::Bool(t.ends_with(end)))
    }),
    method(
        "replace",
        (3, 3),
        "The text with every occurrence of the second argument replaced by the third.",
        |e, a| {
            let (from, to) = (resolved_argument(e, a, 1)?, resolved_argument(e, a, 2)?);
            match (from.as_text(), to.as_text()) {
                (Some(from), Some(to)) => {
                    let text = resolved_argument(e, a, 0)?;
                    let Some(text) = text.as_text() else {
                        return e.outcome_without_text(&text, "`replace`");
                    };
                    // One step pays for 16 bytes.
                    e.spend(text.len() / 16)?;
                    // A short text with many occurrences can become very long, so its growth is paid for first.
                    e.charge_bytes(text.matches(from).count().saturating_mul(to.len()))?;
                    Ok(Value::text(text.replace(from, to)))
                }
                _ => type_error(
                    "an argument of `replace` is not a string; convert a number with `str`".to_owned(),
                ),
            }
        },
    ),
    method("join", (2, 2), "The texts of a list, with the first argument between them.", |e, a| {
        let list = resolved_argument(e, a, 1)?;
        let items = e.items(&list)?;
        // Items that are not texts are left out.
        let parts: Vec<String> = items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect();
        let separator = resolved_argument(e, a, 0)?;
        let Some(separator) = separator.as_text() else {
            return e.outcome_without_text(&separator, "`join`");
        };
        e.charge_bytes(parts.len().saturating_mul(separator.len()))?;
        Ok(Value::text(parts.join(separator)))
    }),
    method(
        "format",
        (1, 64),
        "The text with the other arguments in place of `{}`, `{0}` and so on.",
        |e, a| {
            let mut values = Vec::new();
            for index in 1..a.len() {
                values.push(resolved_argument(e, a, index)?);
            }
            let text = resolved_argument(e, a, 0)?;
            let Some(text) = text.as_text() else { return e.outcome_without_text(&text, "`format`") };
            format(e, text, &values).map(Value::text)
        },
    ),
    row("str", (1, 1), "The value as text: lists and maps as JSON.", |e, a| {
        Ok(match resolved_argument(e, a, 0)? {
            Value::Absent => Value::Absent,
            value => {
                let mut text = String::new();
                value.print(&mut text);
                // One step pays for 16 bytes.
                e.spend(text.len() / 16)?;
                Value::text(text)
            }
        })
    }),
    row("int", (1, 1), "The whole number that a text spells, or missing.", |e, a| {
        Ok(match resolved_argument(e, a, 0)? {
            Value::Int(n) => Value::Int(n),
            // Up to about 9e15 (2^53), a floating-point number represents every integer exactly.
            Value::Float(x) if x.abs() < 9e15 => Value::Int(x as i64),
            Value::Str(text) => text.trim().parse().map_or(Value::Absent, Value::Int),
            // In the dialect of Flowgate, a missing or null value is an error. For any other value, the result is
            // missing.
            other => e.require_present(other, "`int`").map(|_| Value::Absent)?,
        })
    }),
    row("float", (1, 1), "The number that a text spells, or missing.", |e, a| {
        Ok(match resolved_argument(e, a, 0)? {
            Value::Str(text) => {
                text.trim().parse().ok().filter(|x: &f64| x.is_finite()).map_or(Value::Absent, Value::Float)
            }
            value => {
                let number = value.as_number();
                e.require_present(value, "`float`")?;
                number.map_or(Value::Absent, Value::Float)
            }
        })
    }),
];

/// Formats like Python's `str.format` with positional values: `{}` takes the next value, `{1}` the second one, and `{{`
/// and `}}` each become a single brace. A field without a value, and a single brace, remain unchanged, whereas they are
/// errors in Python.
fn format(evaluator: &mut Evaluator<'_>, template: &str, values: &[Value]) -> Result<String> {
    // One step pays for 16 bytes.
    evaluator.spend(template.len() / 16)?;
    let mut text = String::new();
    let mut next_index = 0;
    let mut rest = template;
    while let Some(brace) = rest.find(['{', '}']) {
        text.push_str(rest.get(..brace).unwrap_or_default());
        rest = rest.get(brace..).unwrap_or_default();
        let doubled = ["{{", "}}"].into_iter().find_map(|pair| Some((pair, rest.strip_prefix(pair)?)));
        if let Some((pair, behind)) = doubled {
            text.push_str(pair.get(1..).unwrap_or_default());
            rest = behind;
            continue;
        }
        // A field, `{}` or `{1}`, that has a value is replaced by it; otherwise, the brace is a character of the text.
        let field = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let value = field.and_then(|(name, _)| {
            let index = if name.is_empty() { Some(next_index) } else { name.parse().ok() };
            values.get(index?)
        });
        match (field, value) {
            (Some((name, behind)), Some(value)) => {
                next_index += usize::from(name.is_empty());
                let before = text.len();
                value.print(&mut text);
                evaluator.charge_bytes(text.len() - before)?;
                rest = behind;
            }
            _ => {
                text.push_str(rest.get(..1).unwrap_or_default());
                rest = rest.get(1..).unwrap_or_default();
            }
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// Converts a number of items to a value.
fn count(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn text_functions() {
        check("len", r#""é!""#, "2");
        check("len", "[1,2]", "absent".replace("absent", "2").as_str());
        check("len", "3", "a value of the type int has no length; give `len` a text, a list or a map");
        let missing = "was given a value that is missing or null; test first whether it `is None`";
        check("len", "null", &format!("`len` {missing}"));
        check("lower", r#""Ab""#, r#""ab""#);
        check("lower", "3", "`lower` needs text, not int; convert the value with `str`");
        check("split", r#""a b,c", ",""#, r#"["a b", "c"]"#);
        check("split", r#"" a  b ""#, r#"["a", "b"]"#);
        check("startswith", r#""abc", "ab""#, "true");
        check("startswith", r#"null, "ab""#, &format!("`startswith` {missing}"));
        check("int", "null", &format!("`int` {missing}"));
        check("float", "null", &format!("`float` {missing}"));
        check("endswith", r#""abc", "ab""#, "false");
        check("replace", r#""aba", "a", "x""#, r#""xbx""#);
        check("join", r#"", ", ["a", "b"]"#, r#""a, b""#);
        check("splitlines", r#""a\nb""#, r#"["a", "b"]"#);
        check("str", "1.5", r#""1.5""#);
        check("str", r#"["a", 1]"#, r#""[\"a\",1]""#);
        check("format", r#""{} {{}} {1} {x} {""#, r#""{} {} {1} {x} {""#);
        check("format", r#""{}-{1}", "a", 2"#, r#""a-2""#);
        check("int", r#"" 12 ""#, "12");
        check("int", r#""x""#, "absent");
        check("float", r#""1e999""#, "absent");
        check("upper", r#""a""#, r#""A""#);
        check("strip", r#"" a ""#, r#""a""#);
    }
}
