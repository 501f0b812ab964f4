//! Implements the built-in functions on sequences and numbers that policies can call, such as `sorted`, `range` and
//! `abs`. The evaluator calls them through the table in [`builtin`](super).

use super::{Function, resolved_argument, row, type_error};
use crate::eval::{Result, Value};

/// Maximum number of items that `range` returns.
const MAX_RANGE: i64 = 100_000;

pub(super) const TABLE: &[Function] = &[
    row(
        "tuple",
        (0, 64),
        "The arguments as a list; if there is one argument, which is a list, its items.",
        |e, a| match a {
            [only @ (Value::List(_) | Value::Texts(_) | Value::Answers(_) | Value::Node(..))] => {
                Ok(Value::list(e.items(only)?))
            }
            all => Ok(Value::list(all.iter().cloned())),
        },
    ),
    row("sorted", (1, 1), "The items in order: numbers by size, texts by their letters.", |e, a| {
        let list = a.first().cloned().unwrap_or(Value::Absent);
        e.check_present(&list, "`sorted`")?;
        let items = e.items(&list)?;
        let mut items = items.iter().map(|item| e.resolve(item)).collect::<Result<Vec<_>>>()?;
        e.spend(items.len())?;
        let numbers = items.iter().all(|item| item.as_number().is_some());
        if !numbers && !items.iter().all(|item| item.as_text().is_some()) {
            return type_error("the items of `sorted` are neither all numbers nor all texts; convert them with `str` or `float`".to_owned());
        }
        items.sort_by(|a, b| match (a.as_number(), b.as_number()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => a.as_text().cmp(&b.as_text()),
        });
        Ok(Value::list(items))
    }),
    row(
        "range",
        (1, 3),
        "The whole numbers from the first argument to before the second, by steps of the third or of 1; with \
        one argument, from 0 to before it.",
        |e, a| {
            let mut bounds = Vec::new();
            for index in 0..a.len() {
                match resolved_argument(e, a, index)? {
                    Value::Int(n) => bounds.push(n),
                    other => {
                        return type_error(format!(
                            "an argument of `range` has the type {}, not int; convert a text with `int`",
                            other.type_name()
                        ));
                    }
                }
            }
            let (from, to, step) = match bounds.as_slice() {
                [to] => (0, *to, 1),
                [from, to] => (*from, *to, 1),
                [from, to, step] => (*from, *to, *step),
                // Unreachable: the table permits one to three arguments.
                _ => return Ok(Value::Absent),
            };
            if step == 0 {
                return type_error("the step of `range` is 0; give another number".to_owned());
            }
            let numbers = std::iter::successors(Some(from), |n| n.checked_add(step));
            let is_empty = if step > 0 { from >= to } else { from <= to };
            if !is_empty && from.abs_diff(to).div_ceil(step.unsigned_abs()) > MAX_RANGE.unsigned_abs() {
                return type_error(format!(
                    "the result of `range` would have more than {MAX_RANGE} numbers; give bounds that are closer together"
                ));
            }
            let in_range = numbers.take_while(|n| if step > 0 { *n < to } else { *n > to });
            let listed: Vec<Value> = in_range.map(Value::Int).collect();
            e.spend(listed.len())?;
            Ok(Value::list(listed))
        },
    ),
    row("abs", (1, 1), "The number without its sign.", |e, a| {
        Ok(match resolved_argument(e, a, 0)? {
            // The absolute value of the least integer does not fit in 64 bits.
            Value::Int(n) => n.checked_abs().map_or(Value::Float((n as f64).abs()), Value::Int),
            Value::Float(x) => Value::Float(x.abs()),
            // An error in the dialect of Flowgate, and a missing value in that of invariant-ai.
            value @ (Value::Absent | Value::None) => {
                e.require_present(value, "`abs`").map(|_| Value::Absent)?
            }
            other => {
                return type_error(format!(
                    "the argument of `abs` has the type {}, not int or float; convert a text with `int` or `float`",
                    other.type_name()
                ));
            }
        })
    }),
    row("round", (1, 1), "The nearest whole number.", |e, a| {
        Ok(match resolved_argument(e, a, 0)? {
            Value::Int(n) => Value::Int(n),
            // Up to about 9e15 (2^53), a floating-point number represents every integer exactly.
            Value::Float(x) if x.abs() < 9e15 => Value::Int(x.round_ties_even() as i64),
            Value::Float(_) => {
                return type_error("the argument of `round` is not between -9e15 and 9e15; leave out `round`, since a larger number is whole already".to_owned());
            }
            // An error in the dialect of Flowgate, and a missing value in that of invariant-ai.
            value @ (Value::Absent | Value::None) => {
                e.require_present(value, "`round`").map(|_| Value::Absent)?
            }
            other => {
                return type_error(format!(
                    "the argument of `round` has the type {}, not int or float; convert a text with `float`",
                    other.type_name()
                ));
            }
        })
    }),
];

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn sequences_and_numbers() {
        check("tuple", "1, \"a\"", "[1, \"a\"]");
        check("tuple", "[1, 2]", "[1, 2]");
        check("sorted", "[3, 1.5, 2]", "[1.5, 2, 3]");
        check("sorted", r#"["b", "a"]"#, r#"["a", "b"]"#);
        check(
            "sorted",
            r#"["b", 1]"#,
            "the items of `sorted` are neither all numbers nor all texts; convert them with `str` or `float`",
        );
        check("range", "3", "[0, 1, 2]");
        check("range", "1, 3", "[1, 2]");
        check("range", "3, 0, -2", "[3, 1]");
        check("range", "10000000, 0", "[]");
        check("range", "0, 10000000, -1", "[]");
        check("range", "0, 1, 0", "the step of `range` is 0; give another number");
        check(
            "range",
            "10000000",
            "the result of `range` would have more than 100000 numbers; give bounds that are closer together",
        );
        check("abs", "-1.5", "1.5");
        check("abs", "-9223372036854775808", "9.223372036854776e18");
        check("round", "2.5", "2");
        check(
            "round",
            "1e16",
            "the argument of `round` is not between -9e15 and 9e15; leave out `round`, since a larger number is whole already",
        );
        check(
            "round",
            "\"x\"",
            "the argument of `round` has the type str, not int or float; convert a text with `float`",
        );
    }
}
