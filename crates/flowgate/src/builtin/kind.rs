//! Implements the built-in functions that recognise kinds of values, such as dates, numbers and e-mail addresses. The
//! evaluator calls them through the table in [`builtin`](super).
//!
//! A kind with a *canonical form* has exactly one spelling for each value. The spelling carries no information beyond
//! the value, so an `endorse` statement may accept a value because it is of such a kind. E-mail addresses deliberately
//! have no canonical form: `is_email` accepts an attacker's address too, so this test must not suffice for `endorse`.

use serde_json::Value as Json;

use super::date::{canonical_date, canonical_datetime, canonical_time};
use super::{Function, map_text, resolved_argument, row};
use crate::detect;
use crate::eval::{Evaluator, Result, Value};
use crate::policy::plan::{CanonicalForm, CanonicalKind};

/// The most digits of a number that is spelled as a text.
const MAX_DIGITS: usize = 15;
/// The most bytes of a path.
const MAX_PATH: usize = 255;

pub(super) const TABLE: &[Function] = &[
    // The last argument of each row, in bits, bounds the number of different values of the kind. There are fewer than
    // 2^22 days up to the year 9999, and fewer than 2^17 times of a day. An integer, signed or unsigned, has 65 bits;
    // with the floats of 64 bits, a number has 66. A text of 15 digits with a sign and a point has fewer than 2^56
    // values, so a decimal number has 67 bits.
    kind_row("is_date", "Whether a value is a date: `2024-05-19`.", |e, a| is_of_kind(e, a, date), date, 22),
    kind_row(
        "is_time",
        "Whether a value is a time of day: `12:00`.",
        |e, a| is_of_kind(e, a, time),
        time,
        17,
    ),
    kind_row(
        "is_datetime",
        "Whether a value is a date with a time: `2024-05-19 12:00`.",
        |e, a| is_of_kind(e, a, datetime),
        datetime,
        39,
    ),
    kind_row("is_number", "Whether a value is a number.", |e, a| is_of_kind(e, a, number), number, 66),
    kind_row(
        "is_integer",
        "Whether a value is a whole number.",
        |e, a| is_of_kind(e, a, integer),
        integer,
        65,
    ),
    kind_row(
        "is_decimal",
        "Whether a value is a number, or a text that spells one in at most 15 digits: `12.50`.",
        |e, a| is_of_kind(e, a, decimal),
        decimal,
        67,
    ),
    kind_row(
        "is_yes_no",
        "Whether a value is `True` or `False`, or a text: `true`, `false`, `yes`, `no`.",
        |e, a| is_of_kind(e, a, yes_no),
        yes_no,
        3,
    ),
    kind_row(
        "is_bool",
        "Whether a value is `True` or `False`.",
        |e, a| is_of_kind(e, a, boolean),
        boolean,
        1,
    ),
    row(
        "is_path_in",
        (2, 2),
        "Whether a text is a path in the folder that the second argument names, without `..`.",
        |e, a| {
            let folder = resolved_argument(e, a, 1)?.to_text().unwrap_or_default();
            map_text(e, a, "is_path_in", |path| Value::Bool(is_path_in(path, &folder)))
        },
    ),
    row("is_email", (1, 1), "Whether the text is an e-mail address.", |e, a| {
        map_text(e, a, "is_email", |text| {
            Value::Bool(detect::emails(text).any(|span| span == (0..text.len())))
        })
    }),
];

/// Creates the table row of a function of one argument that recognises a kind of value with a canonical form, such as a
/// date. `form` converts a value to its canonical form, or returns `None` if the value is not of this kind. There are
/// at most 2^`bits` different values of this kind, so an endorsed value carries at most `bits` bits of information from
/// its author.
const fn kind_row(
    name: &'static str,
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
    form: CanonicalForm,
    bits: u32,
) -> Function {
    Function { canonical: Some(CanonicalKind { form, bits }), ..row(name, (1, 1), doc, run) }
}

/// Returns whether the first argument is of a kind: whether `canonical` converts it to a canonical form. The result is
/// a missing value if the argument is not a scalar, or is a float that is infinite or not a number.
fn is_of_kind(evaluator: &mut Evaluator<'_>, arguments: &[Value], canonical: CanonicalForm) -> Result<Value> {
    let value = resolved_argument(evaluator, arguments, 0)?;
    Ok(match to_json(&value) {
        Some(json) => Value::Bool(canonical(&json).is_some()),
        None => Value::Absent,
    })
}

/// Converts a scalar to JSON; `None` for another value, a missing one, or a float that JSON cannot represent (NaN or
/// infinite).
fn to_json(value: &Value) -> Option<Json> {
    match value {
        Value::Bool(b) => Some(Json::Bool(*b)),
        Value::Int(n) => Some((*n).into()),
        Value::Float(x) => serde_json::Number::from_f64(*x).map(Json::Number),
        Value::Str(text) => Some(Json::String(text.to_string())),
        _ => None,
    }
}

/// Returns the canonical form of a text that is a date; `None` for any other value.
fn date(value: &Json) -> Option<Json> {
    canonical_date(value.as_str()?).map(Json::String)
}

/// Returns the canonical form of a text that is a time of day; `None` for any other value.
fn time(value: &Json) -> Option<Json> {
    canonical_time(value.as_str()?).map(Json::String)
}

/// Returns the canonical form of a text that is a date with a time; `None` for any other value.
fn datetime(value: &Json) -> Option<Json> {
    canonical_datetime(value.as_str()?).map(Json::String)
}

/// Returns a JSON number unchanged; `None` for any other value, also for a text that contains a number.
fn number(value: &Json) -> Option<Json> {
    value.is_number().then(|| value.clone())
}

/// Returns a whole number of 64 bits unchanged, since it has only one spelling; `None` for any other value.
fn integer(value: &Json) -> Option<Json> {
    (value.is_i64() || value.is_u64()).then(|| value.clone())
}

/// Returns a truth value unchanged, since it has only one spelling; `None` for any other value.
fn boolean(value: &Json) -> Option<Json> {
    value.is_boolean().then(|| value.clone())
}

/// Returns the canonical form of a decimal number. A JSON number is its own canonical form. The canonical form of a
/// text such as `012.50` is the text without leading zeros and without trailing zeros after the point (`12.5`). `None`
/// for any other value, and for a text with more than [`MAX_DIGITS`] digits. White space around a text is ignored.
fn decimal(value: &Json) -> Option<Json> {
    let Json::String(text) = value else { return number(value) };
    let text = text.trim();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (digits, ""),
    };
    let is_decimal = !whole.is_empty()
        && whole.len() + fraction.len() <= MAX_DIGITS
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_decimal {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    // Zero has no sign: `-0.0` is `0`.
    let sign = if (whole, fraction) == ("0", "") { "" } else { sign };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(Json::String(format!("{sign}{whole}{point}{fraction}")))
}

/// Returns the canonical form of a truth value or of a text such as `Yes`. A truth value is its own canonical form; the
/// canonical form of a text is in lower case, without white space at its ends. `None` for any other value.
fn yes_no(value: &Json) -> Option<Json> {
    let Json::String(text) = value else { return boolean(value) };
    let text = text.trim().to_ascii_lowercase();
    matches!(text.as_str(), "true" | "false" | "yes" | "no").then_some(Json::String(text))
}

/// Returns whether a path is within a folder and spelled without a detour. It must have no empty part, no `.` or `..`,
/// no backslash, no control character, no percent sign (a tool may decode `%2e`), and at most [`MAX_PATH`] bytes. The
/// result is false if the folder is the root, since every absolute path is in the root.
fn is_path_in(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    if folder.is_empty() {
        return false;
    }
    let Some(rest) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else { return false };
    path.len() <= MAX_PATH
        && !path.chars().any(|c| matches!(c, '\\' | '%') || c.is_control())
        && rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn numbers_and_answers_that_are_spelled_as_texts_have_one_spelling() {
        for (value, as_decimal, as_answer) in [
            (Json::from(12.5), Some(Json::from(12.5)), None),
            (Json::from(true), None, Some(Json::from(true))),
            (Json::from(" 012.50 "), Some(Json::from("12.5")), None),
            (Json::from("-0.00"), Some(Json::from("0")), None),
            (Json::from("-.5"), None, None),
            (Json::from("5."), None, None),
            (Json::from("1e9"), None, None),
            (Json::from("+5"), None, None),
            (Json::from("٥"), None, None),
            (Json::from("123456789.123456"), Some(Json::from("123456789.123456")), None),
            (Json::from("123456789.1234567"), None, None),
            (Json::from("5 EUR"), None, None),
            (Json::from(" Yes"), None, Some(Json::from("yes"))),
            (Json::from("no, wait"), None, None),
            (Json::Null, None, None),
        ] {
            assert_eq!((decimal(&value), yes_no(&value)), (as_decimal, as_answer), "{value}");
        }
    }

    #[test]
    fn a_path_in_a_folder_has_no_detour() {
        let long = format!("/reports/{}", "a".repeat(MAX_PATH));
        for (path, folder, is_in) in [
            ("/reports/a.txt", "/reports", true),
            ("/reports/2024/a.txt", "/reports/", true),
            ("reports/a", "reports", true),
            ("/a", "/", false),
            ("/reports/%2e%2e/secret", "/reports", false),
            ("/reports", "/reports", false),
            ("/reports/", "/reports", false),
            ("/reports2/a", "/reports", false),
            ("/reports/../secret", "/reports", false),
            ("/reports/./a", "/reports", false),
            ("/reports//a", "/reports", false),
            ("/reports/a\\..\\b", "/reports", false),
            ("/reports/a\0", "/reports", false),
            ("/Reports/a", "/reports", false),
            (&long, "/reports", false),
        ] {
            assert_eq!(is_path_in(path, folder), is_in, "{path:.40} in {folder}");
        }
    }

    #[test]
    fn texts_have_their_kinds() {
        check("is_date", r#""2024-05-19""#, "true");
        check("is_date", r#""2024-05-19 send it all""#, "false");
        check("is_date", "null", "absent");
        check("is_datetime", r#""2024-05-19 12:00""#, "true");
        check("is_time", r#""12:00""#, "true");
        check("is_number", "1.5", "true");
        check("is_number", r#""1.5""#, "false");
        check("is_integer", "3", "true");
        check("is_bool", "true", "true");
        check("is_email", r#""ann@example.org""#, "true");
        check("is_email", r#""mail ann@example.org""#, "false");
    }
}
