//! Evaluates the templates and conditions of a privacy task over the answers of its tools: computes the arguments of
//! calls and the texts of replies.
//!
//! The [check](super::check) evaluates them for the ground truth, where every answer is visible. The
//! [double](super::double) evaluates them over its view, where a placeholder replaces each hidden region.

use serde_json::Value;

use super::task::{Condition, Derivation, Piece, Reference, Template};

/// What a view shows of a field of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sight {
    /// The value is visible.
    Shown(Value),
    /// The region with this name hides the field. `is_whole` says whether the region is the field alone; otherwise it
    /// contains more.
    Hidden { name: String, is_whole: bool },
    /// There is no such answer, row or field.
    Absent,
}

/// A value, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueOrNeed {
    /// The value.
    Known(Value),
    /// The value needs the hidden regions `names`. If it only copies them, `slot` is the value with placeholders
    /// instead of the regions.
    Needs { names: Vec<String>, slot: Option<Value> },
    /// A field that the value needs does not exist or has an unsuitable value.
    Missing,
}

/// Looks up a field in an answer: in the object itself or, if the reference has a row, in the row with this id. The
/// field is hidden if a placeholder replaces the whole answer or the field. In the second case, the hidden region is
/// exactly the field (`is_whole`).
pub(super) fn find(answer: &Value, reference: &Reference) -> Sight {
    if let Some(name) = answer.as_str().and_then(placeholder) {
        // The region is the answer, of which the field is only a part.
        return Sight::Hidden { name, is_whole: false };
    }
    let object = match (&reference.row, answer) {
        (None, answer) => Some(answer),
        (Some(id), Value::Array(rows)) => {
            rows.iter().find(|row| row.get("id").and_then(Value::as_str) == Some(id))
        }
        (Some(_), _) => None,
    };
    match object.and_then(|object| object.get(&reference.field)) {
        None => Sight::Absent,
        Some(value) => match value.as_str().and_then(placeholder) {
            Some(name) => Sight::Hidden { name, is_whole: true },
            None => Sight::Shown(value.clone()),
        },
    }
}

/// Returns the name in a placeholder, such as `h1` for `[hidden h1]`; `None` if the text is not exactly a placeholder.
fn placeholder(text: &str) -> Option<String> {
    let name = text.strip_prefix("[hidden ")?.strip_suffix(']')?;
    Some(name.to_owned())
}

/// Computes the value of a template; `look` returns what the view shows of a reference. A template of a single field
/// has the value of the field with its type, one of a single number is a number, and any other is a text. If fields are
/// hidden, the result names the regions that hide them. A slot can carry the value only if each hidden field is copied
/// and is the whole of its region; the result then also has the value with a placeholder for each hidden field. The
/// value is missing if an answer lacks a field, or a field cannot be derived.
pub(super) fn compute(template: &Template, look: &dyn Fn(&Reference) -> Sight) -> ValueOrNeed {
    let (mut values, mut names, mut is_copy) = (Vec::new(), Vec::new(), true);
    for piece in &template.0 {
        match piece {
            Piece::Text(text) => values.push(Value::String(text.clone())),
            Piece::Field(reference) => match look(reference) {
                Sight::Absent => return ValueOrNeed::Missing,
                Sight::Shown(value) => match derive(&value, &reference.derivation) {
                    Some(value) => values.push(value),
                    None => return ValueOrNeed::Missing,
                },
                Sight::Hidden { name, is_whole } => {
                    // As long as all hidden fields can be copied, placeholders take the positions of their values.
                    is_copy &= is_whole && reference.derivation == Derivation::Copy;
                    values.push(Value::String(format!("[hidden {name}]")));
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            },
        }
    }
    let value = match (template.0.as_slice(), values.as_slice()) {
        // The text of a number is read as a number.
        ([Piece::Text(text)], _) => {
            let number = serde_json::from_str(text).ok().filter(Value::is_number);
            number.unwrap_or_else(|| Value::String(text.clone()))
        }
        (_, [value]) => value.clone(),
        (_, values) => Value::String(values.iter().map(plain_text).collect()),
    };
    if names.is_empty() {
        ValueOrNeed::Known(value)
    } else {
        ValueOrNeed::Needs { names, slot: is_copy.then_some(value) }
    }
}

/// Returns whether the condition of a step holds. It compares a field of an answer with a number; `look` returns what
/// the view shows of the field.
///
/// # Errors
/// `Hidden` with the region that hides the field, or `Absent` if the field does not exist or is not a number.
pub(super) fn holds(condition: &Condition, look: &dyn Fn(&Reference) -> Sight) -> Result<bool, Sight> {
    match look(&condition.left) {
        Sight::Shown(value) => {
            let number = value.as_f64().ok_or(Sight::Absent)?;
            // The only other comparison, `<`, is the negation of `>=`.
            Ok((number >= condition.right) == condition.is_at_least)
        }
        unseen => Err(unseen),
    }
}

/// Returns the value that `derivation` makes of the value of a field: a copy, a quotient, or a chosen text. A quotient
/// without a fraction becomes an integer, as a tool expects it. The result is `None` if a value to divide is not a
/// number, or no choice names the value.
fn derive(value: &Value, derivation: &Derivation) -> Option<Value> {
    match derivation {
        Derivation::Copy => Some(value.clone()),
        Derivation::DivideBy(number) => {
            let quotient = value.as_f64()? / number;
            // Up to 10^15, a float represents every integer exactly.
            let is_integral = quotient.fract() == 0.0 && quotient.abs() < 1e15;
            Some(if is_integral { Value::from(quotient as i64) } else { Value::from(quotient) })
        }
        Derivation::Choose(choices) => {
            let text = plain_text(value);
            let found = choices.iter().find(|(known, _)| *known == text);
            found.map(|(_, chosen)| Value::String(chosen.clone()))
        }
    }
}

/// Returns a value as it is written in a text: a string without quotation marks, anything else as JSON.
pub(super) fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(row: Option<&str>, field: &str, derivation: Derivation) -> Reference {
        Reference { tool: "t".to_owned(), row: row.map(str::to_owned), field: field.to_owned(), derivation }
    }

    #[test]
    fn values_are_computed_from_what_is_seen() {
        let answer = json!([{"id": "a", "n": 9, "city": "Graz", "x": "[hidden h1]"}]);
        let look = |reference: &Reference| find(&answer, reference);
        let check = |pieces: Vec<Piece>, expected: ValueOrNeed| {
            assert_eq!(compute(&Template(pieces), &look), expected);
        };
        let field = |field: &str, derivation| Piece::Field(reference(Some("a"), field, derivation));
        let text = |text: &str| Piece::Text(text.to_owned());
        let choose = Derivation::Choose(vec![("Graz".to_owned(), "GRZ".to_owned())]);
        check(vec![text("12")], ValueOrNeed::Known(json!(12)));
        check(vec![field("n", Derivation::Copy)], ValueOrNeed::Known(json!(9)));
        check(vec![field("n", Derivation::DivideBy(2.0))], ValueOrNeed::Known(json!(4.5)));
        check(vec![field("n", Derivation::DivideBy(3.0))], ValueOrNeed::Known(json!(3)));
        check(vec![field("city", choose.clone())], ValueOrNeed::Known(json!("GRZ")));
        check(vec![text("to "), field("city", Derivation::Copy)], ValueOrNeed::Known(json!("to Graz")));
        check(vec![field("n", choose.clone())], ValueOrNeed::Missing);
        check(vec![field("y", Derivation::Copy)], ValueOrNeed::Missing);
        let needs = |slot| ValueOrNeed::Needs { names: vec!["h1".to_owned()], slot };
        check(vec![text("no "), field("x", Derivation::Copy)], needs(Some(json!("no [hidden h1]"))));
        check(vec![field("x", choose)], needs(None));
    }
}
