//! Implements the policy language's built-in functions on lists and maps: `any`, `all`, `sum`, `keys` and similar
//! functions. The evaluator calls them through the table in [`builtin`](super).

use super::{Function, method, resolved_argument, row, type_error};
use crate::eval::{Evaluator, Result, Value};

pub(super) const TABLE: &[Function] = &[
    row("any", (1, 1), "Whether any item counts as true.", |e, a| {
        let items = items(e, a)?;
        Ok(Value::Bool(items.iter().any(Value::is_true)))
    }),
    row("all", (1, 1), "Whether every item counts as true.", |e, a| {
        let items = items(e, a)?;
        Ok(Value::Bool(items.iter().all(Value::is_true)))
    }),
    row("empty", (1, 1), "Whether a value is empty or counts as false.", |e, a| {
        let value = resolved_argument(e, a, 0)?;
        Ok(Value::Bool(!value.is_true()))
    }),
    row("sum", (1, 1), "The sum of numbers.", |e, a| {
        let mut total = Value::Int(0);
        for item in items(e, a)? {
            total = match (&total, &item) {
                // A sum that does not fit in 64 bits becomes a floating-point number.
                (Value::Int(a), Value::Int(b)) => {
                    a.checked_add(*b).map_or(Value::Float(*a as f64 + *b as f64), Value::Int)
                }
                _ => match (total.as_number(), item.as_number()) {
                    (Some(a), Some(b)) => Value::Float(a + b),
                    _ => {
                        return type_error(format!(
                            "an item of `sum` has the type {}, not int or float; convert a text with `int` or `float`",
                            item.type_name()
                        ));
                    }
                },
            };
        }
        Ok(total)
    }),
    row("min", (1, 8), "The least number of a list, or of several arguments.", |e, a| {
        extreme(e, a, |x, y| x < y)
    }),
    row("max", (1, 8), "The greatest number of a list, or of several arguments.", |e, a| {
        extreme(e, a, |x, y| x > y)
    }),
    method("keys", (1, 1), "The keys of a map.", |e, a| {
        Ok(match structure(e, a)? {
            Value::Dict(entries) => Value::list(entries.iter().map(|(key, _)| Value::text(key))),
            // In the dialect of Flowgate, a missing or null value is an error. For any other value, the result is
            // missing.
            other => e.require_present(other, "`keys`").map(|_| Value::Absent)?,
        })
    }),
    method("values", (1, 1), "The values of a map.", |e, a| {
        let value = argument(e, a, "`values`")?;
        Ok(Value::list(e.items(&value)?))
    }),
    method("items", (1, 1), "The pairs of key and value of a map.", |e, a| {
        Ok(match structure(e, a)? {
            Value::Dict(entries) => {
                Value::list(entries.iter().map(|(key, value)| Value::list([Value::text(key), value.clone()])))
            }
            // In the dialect of Flowgate, a missing or null value is an error. For any other value, the result is
            // missing.
            other => e.require_present(other, "`items`").map(|_| Value::Absent)?,
        })
    }),
    method("get", (2, 3), "The value under a key of a map; if there is none, the third argument.", |e, a| {
        let (map, key) = (structure(e, a)?, resolved_argument(e, a, 1)?);
        let found = match (&map, &key) {
            // A list or a map cannot be a key. It must not count as a missing key, for which the result is the default.
            (_, Value::List(_) | Value::Dict(_) | Value::Texts(_)) => {
                return type_error(format!(
                    "the key given to `get` has the type {}, not str; give the name of a key as text",
                    key.type_name()
                ));
            }
            (Value::Dict(entries), Value::Str(key)) => {
                entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
            }
            _ => None,
        };
        found.map_or_else(|| resolved_argument(e, a, 2), Ok)
    }),
    row("json_loads", (1, 1), "The value that a text spells as JSON, or missing.", |e, a| {
        let text = resolved_argument(e, a, 0)?;
        // A parsed number takes far more memory than its digits.
        e.charge_bytes(text.as_text().map_or(0, |text| text.len().saturating_mul(16)))?;
        super::map_text(e, &[text], "json_loads", |text| {
            crate::json::parse(text, crate::json::Numbers::Any)
                .map_or(Value::Absent, |json| Value::from_json(&json))
        })
    }),
];

/// Returns the first argument, or a missing value if there is no argument. If the argument is a text that encodes a
/// list or a map, returns that list or map.
fn structure(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
    arguments.first().map_or(Ok(Value::Absent), |value| evaluator.resolve_structure(value))
}

/// Returns the first argument, for a function on a list or a map. A part of an event stays a reference to that part.
///
/// # Errors
/// In the dialect of Flowgate, if the argument is missing or null. `what` names the function in the error.
fn argument(evaluator: &mut Evaluator<'_>, arguments: &[Value], what: &str) -> Result<Value> {
    evaluator.check_present(arguments.first().unwrap_or(&Value::Absent), what)?;
    Ok(arguments.first().cloned().unwrap_or(Value::Absent))
}

/// Returns the items of the list in the first argument, with parts of events replaced by their content. A truth value
/// counts as a list of one item.
///
/// # Errors
/// If the argument has a type without items, such as a number, or, in the dialect of Flowgate, is missing or null.
fn items(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Vec<Value>> {
    let list = argument(evaluator, arguments, "a function over a list")?;
    if let Value::Bool(_) = list {
        // In `any(x in list)`, the argument is one Boolean if `x` is a single value, and a list of them otherwise.
        return Ok(vec![list]);
    }
    let items = evaluator.items(&list)?;
    items.iter().map(|item| evaluator.resolve(item)).collect()
}

/// Implements `min` and `max`: returns the least or the greatest of the numbers. `better(x, y)` states whether `x` is
/// to be preferred to `y`: `x < y` for `min`, `x > y` for `max`. The numbers are the items of a single argument, or the
/// arguments themselves if there are several. Returns a missing value for an empty list.
///
/// # Errors
/// If an item is not a number.
fn extreme(
    evaluator: &mut Evaluator<'_>,
    arguments: &[Value],
    better: fn(f64, f64) -> bool,
) -> Result<Value> {
    // One argument is the list of the numbers; several are the numbers themselves.
    let candidates = if arguments.len() == 1 {
        items(evaluator, arguments)?
    } else {
        arguments.iter().map(|v| evaluator.resolve(v)).collect::<Result<_>>()?
    };
    let mut best: Option<(f64, Value)> = None;
    for candidate in candidates {
        let Some(number) = candidate.as_number() else {
            return type_error(format!(
                "a value of `min` or `max` has the type {}, not int or float; convert a text with `int` or `float`",
                candidate.type_name()
            ));
        };
        if best.as_ref().is_none_or(|(known, _)| better(number, *known)) {
            best = Some((number, candidate));
        }
    }
    Ok(best.map_or(Value::Absent, |(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn collection_functions() {
        check("any", "[0, \"\", 2]", "true");
        check("any", "[]", "false");
        check("any", "true", "true");
        check("all", "[1, 0]", "false");
        check("empty", "[]", "true");
        check("sum", "[1, 2, 0.5]", "3.5");
        check(
            "sum",
            "[\"a\"]",
            "an item of `sum` has the type str, not int or float; convert a text with `int` or `float`",
        );
        check("min", "[3, 1, 2]", "1");
        check("max", "3, 1.5", "3");
        check("max", "[]", "absent");
        check("keys", r#"{"a": 1}"#, r#"["a"]"#);
        check("values", r#"{"a": 1}"#, "[1]");
        check("items", r#"{"a": 1}"#, r#"[["a", 1]]"#);
        check("get", r#"{"a": 1}, "b", 3"#, "3");
        check("get", r#"{"a": 1}, "b""#, "absent");
        check("json_loads", r#""[1]""#, "[1]");
        check("json_loads", r#""[""#, "absent");
    }
}
