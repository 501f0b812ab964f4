//! Defines the built-in functions that policies can call, in one table. The compiler of policies looks up the names of
//! functions in this table, and the evaluator calls their implementations.
//!
//! Each submodule except `date` implements one family of functions: on texts (`text`), on lists and maps
//! (`collection`), on sequences and numbers (`sequence`), on events (`event`), on URLs and addresses (`net`), for roles
//! of users (`access`), for kinds of values such as dates (`kind`), detectors (`detector`) and readers of programs
//! (`code`). `date` parses dates for the others. Each function is a row in the table of its family: a name, the number
//! of arguments, one sentence of documentation, and the implementation. An implementation receives the evaluator (`e`)
//! and the arguments of the call (`a`).
//!
//! If a function needs an argument whose value is missing, such as an absent key of a map, the function has no result.
//! A rule then fails with an error, and a statement that grants something does not hold. In the dialect of invariant-ai
//! the result is a missing value instead, so that one absent key does not stop a rule.

mod access;
mod code;
mod collection;
mod date;
mod detector;
mod event;
mod kind;
mod net;
mod sequence;
mod text;

pub(crate) use date::seconds;

use crate::detect;
use crate::eval::{EvalError, Evaluator, Function, Functions, MissingValueMode, Result, Value};
use crate::policy::plan::Plan;
use crate::trace::Trace;

/// The table of all built-in functions, one family after the other.
pub(crate) static FUNCTIONS: Functions = Functions {
    families: &[
        text::TABLE,
        collection::TABLE,
        sequence::TABLE,
        event::TABLE,
        kind::TABLE,
        net::TABLE,
        access::TABLE,
        detector::TABLE,
        code::TABLE,
    ],
    finds: has_finding,
};

/// Creates an evaluator for conditions of `plan` over `trace` that can call the built-in functions. It subtracts each
/// evaluation step from `fuel`; `missing` decides how it treats a missing value.
pub(crate) fn evaluator<'a>(
    plan: &'a Plan,
    trace: &'a Trace,
    fuel: &'a mut u64,
    missing: MissingValueMode,
) -> Evaluator<'a> {
    Evaluator::new(plan, trace, fuel, missing, &FUNCTIONS)
}

/// The kinds of data that tool patterns can test for, such as `<EMAIL_ADDRESS>`; `has_finding` tests for one.
pub(crate) const MATCHERS: [&str; 7] =
    ["EMAIL_ADDRESS", "PHONE_NUMBER", "LOCATION", "PERSON", "MODERATED", "SECRET", "DUMMY"];

/// Returns the name, the least and the greatest number of arguments, and the description of every function, for the
/// reference page.
pub(crate) fn function_reference() -> impl Iterator<Item = (&'static str, (usize, usize), &'static str)> {
    FUNCTIONS.all().map(|function| (function.name, function.arguments, function.doc))
}

/// Returns the names of all built-in functions, for suggestions in error messages.
pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.all().map(|function| function.name)
}

/// Returns whether a detector finds data of `kind` in a text within `value`. This is the test that a tool pattern such
/// as `tool:send({to: <EMAIL_ADDRESS>})` contains. `kind` is one of [`MATCHERS`]; `DUMMY` is found only in the text
/// `__DUMMY__`. The search costs one step of fuel for 4 bytes of text.
fn has_finding(evaluator: &mut Evaluator<'_>, kind: &str, value: &Value) -> Result<bool> {
    for piece in evaluator.pieces(value)? {
        evaluator.spend(piece.text.len() / 4)?;
        let found = match kind {
            "DUMMY" => &*piece.text == "__DUMMY__",
            "SECRET" => detect::secrets(&piece.text).next().is_some(),
            "MODERATED" => !detect::moderation::find(&piece.text).is_empty(),
            kind => detect::personal::all_findings(&piece.text).iter().any(|finding| finding.kind == kind),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the argument at `index`, with references to parts of events replaced by the values of these parts; a missing
/// value if there is no such argument.
fn resolved_argument(evaluator: &mut Evaluator<'_>, arguments: &[Value], index: usize) -> Result<Value> {
    arguments.get(index).map_or(Ok(Value::Absent), |value| evaluator.resolve(value))
}

/// Implements a function of one text, the function `name` of the policy language: applies `f` to the first argument. If
/// the argument is not a text, [`Evaluator::outcome_without_text`] determines the result: an error that names the
/// function, or a missing or empty value where one is permitted.
fn map_text(
    evaluator: &mut Evaluator<'_>,
    arguments: &[Value],
    name: &str,
    f: impl FnOnce(&str) -> Value,
) -> Result<Value> {
    let value = resolved_argument(evaluator, arguments, 0)?;
    match value.as_text() {
        Some(text) => {
            // One step pays for 16 bytes.
            evaluator.spend(text.len() / 16)?;
            Ok(f(text))
        }
        None => evaluator.outcome_without_text(&value, &format!("`{name}`")),
    }
}

/// Returns the error of a function that cannot be applied to the types or values of its arguments. `message` says which
/// argument is wrong, and what to write instead.
fn type_error<T>(message: String) -> Result<T> {
    Err(EvalError::Type(message))
}

/// Creates the row of a function that is called by its name, such as `len(x)`. `arguments` are the least and the
/// greatest number of arguments, `doc` is the sentence of the reference page, and `run` the implementation. The row has
/// no names of parameters, so a policy can give the arguments only by position.
const fn row(
    name: &'static str,
    arguments: (usize, usize),
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
) -> Function {
    Function { name, arguments, parameters: &[], doc, run, canonical: None, is_method: false }
}

/// Creates the row of a function that can also be called as a method of its first argument: `lower(x)` or `x.lower()`.
/// The parameters have the same meanings as in [`row`].
const fn method(
    name: &'static str,
    arguments: (usize, usize),
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
) -> Function {
    Function { is_method: true, ..row(name, arguments, doc, run) }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    /// Checks one row of a family: function, arguments as JSON, and result as JSON or the error.
    pub(super) fn check(name: &str, arguments: &str, expected: &str) {
        let (plan, trace, mut fuel) = (Plan::default(), Trace::new(), 100_000);
        let mut evaluator = evaluator(&plan, &trace, &mut fuel, MissingValueMode::IsNone);
        let json: Json = serde_json::from_str(&format!("[{arguments}]")).unwrap();
        let arguments: Vec<Value> = json.as_array().unwrap().iter().map(Value::from_json).collect();
        let (_, function) = FUNCTIONS.find(name).unwrap();
        let shown = match (function.run)(&mut evaluator, &arguments) {
            Ok(value) => show(&value),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{name}({json})");
    }

    fn show(value: &Value) -> String {
        match value {
            Value::Absent => "absent".into(),
            Value::None => "None".into(),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => format!("{x:?}"),
            Value::Str(text) => format!("{text:?}"),
            Value::List(items) | Value::Texts(items) => {
                format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", "))
            }
            Value::Dict(entries) => {
                let entries: Vec<_> = entries.iter().map(|(k, v)| format!("{k}: {}", show(v))).collect();
                format!("{{{}}}", entries.join(", "))
            }
            other => other.type_name().into(),
        }
    }

    #[test]
    fn names_are_unique_and_explained() {
        let mut names: Vec<_> = function_names().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(function_reference().all(|(_, (least, most), doc)| least <= most && doc.ends_with('.')));
    }
}
