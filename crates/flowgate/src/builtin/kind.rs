//! Implements the built-in functions that recognise kinds of values: dates, numbers, addresses.
//!
//! A kind with a *canonical form* has one spelling for each value, which carries no other information; such a kind
//! may be endorsed. E-mail addresses have none on purpose: `is_email` accepts an attacker's address too, so that it must
//! not endorse.

use serde_json::Value as Json;

use super::date::{canonical_date, canonical_datetime, canonical_time};
use super::{Function, map_text, resolved_argument, row};
use crate::detect;
use crate::eval::{Evaluator, Result, Value};
use crate::policy::plan::{CanonicalForm, CanonicalKind};

pub(super) const TABLE: &[Function] = &[
    // The bits bound how many values a kind has: days up to the year 9999, seconds of a day, 64-bit numbers.
    kind_row("is_date", "Whether it is a date: `2024-05-19`.", |e, a| is_of_kind(e, a, date), date, 22),
    kind_row("is_time", "Whether it is a time of day: `12:00`.", |e, a| is_of_kind(e, a, time), time, 17),
    kind_row(
        "is_datetime",
        "Whether it is a date with a time: `2024-05-19 12:00`.",
        |e, a| is_of_kind(e, a, datetime),
        datetime,
        39,
    ),
    kind_row("is_number", "Whether it is a number.", |e, a| is_of_kind(e, a, number), number, 66),
    kind_row("is_integer", "Whether it is a whole number.", |e, a| is_of_kind(e, a, integer), integer, 65),
    kind_row("is_bool", "Whether it is `True` or `False`.", |e, a| is_of_kind(e, a, boolean), boolean, 1),
    row("is_email", (1, 1), "Whether the text is an e-mail address.", |e, a| {
        map_text(e, a, "is_email", |text| {
            Value::Bool(detect::emails(text).any(|span| span == (0..text.len())))
        })
    }),
];

const fn kind_row(
    name: &'static str,
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
    form: CanonicalForm,
    bits: u32,
) -> Function {
    Function { canonical: Some(CanonicalKind { form, bits }), ..row(name, (1, 1), doc, run) }
}

fn is_of_kind(e: &mut Evaluator<'_>, a: &[Value], canonical: CanonicalForm) -> Result<Value> {
    let value = resolved_argument(e, a, 0)?;
    Ok(match to_json(&value) {
        Some(json) => Value::Bool(canonical(&json).is_some()),
        None => Value::Absent,
    })
}

/// Returns the JSON of a scalar.
fn to_json(value: &Value) -> Option<Json> {
    match value {
        Value::Bool(b) => Some(Json::Bool(*b)),
        Value::Int(n) => Some((*n).into()),
        Value::Float(x) => serde_json::Number::from_f64(*x).map(Json::Number),
        Value::Str(text) => Some(Json::String(text.to_string())),
        _ => None,
    }
}

fn date(value: &Json) -> Option<Json> {
    canonical_date(value.as_str()?).map(Json::String)
}

fn time(value: &Json) -> Option<Json> {
    canonical_time(value.as_str()?).map(Json::String)
}

fn datetime(value: &Json) -> Option<Json> {
    canonical_datetime(value.as_str()?).map(Json::String)
}

fn number(value: &Json) -> Option<Json> {
    value.is_number().then(|| value.clone())
}

fn integer(value: &Json) -> Option<Json> {
    (value.is_i64() || value.is_u64()).then(|| value.clone())
}

fn boolean(value: &Json) -> Option<Json> {
    value.is_boolean().then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn kinds() {
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
