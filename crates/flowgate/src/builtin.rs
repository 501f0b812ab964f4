//! The functions that policies can call.
//!
//! Each family is one file; a function is a row with its name, its arguments and a sentence that says what
//! it does. What gets a missing value gives a missing value, so that one absent key does not stop a rule.

mod access;
mod collection;
mod date;
mod detector;
mod event;
mod kind;
mod net;
mod sequence;
mod text;

use std::fmt;

use serde_json::Value as Json;

pub(crate) use date::seconds;

use crate::detect;
use crate::eval::{EvalError, Evaluator, Result, Value};

/// One row of the table of functions.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// How many arguments it takes, at least and at most.
    pub(crate) arguments: (usize, usize),
    /// Their names, for functions that take them by name as well.
    pub(crate) parameters: &'static [&'static str],
    /// One sentence on what it gives.
    pub(crate) doc: &'static str,
    pub(crate) run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
    /// For a function that recognises values with only one sensible spelling: that spelling, if the value is one.
    pub(crate) canonical: Option<fn(&Json) -> Option<Json>>,
    /// Whether it may be called as a method: `text.lower()`.
    pub(crate) is_method: bool,
}

/// A function of the table.
#[derive(Clone, Copy)]
pub(crate) struct Builtin(pub(crate) &'static Spec);

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Builtin {
    pub(crate) fn call(self, evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
        let value = (self.0.run)(evaluator, arguments)?;
        evaluator.made(&value)?;
        Ok(value)
    }

    /// The function with this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        all().find(|spec| spec.name == name).map(Self)
    }
}

/// The kinds of values that tool patterns can ask for: `<EMAIL_ADDRESS>`.
pub(crate) const MATCHERS: [&str; 7] =
    ["EMAIL_ADDRESS", "PHONE_NUMBER", "LOCATION", "PERSON", "MODERATED", "SECRET", "DUMMY"];

fn all() -> impl Iterator<Item = &'static Spec> {
    [
        text::TABLE,
        collection::TABLE,
        sequence::TABLE,
        event::TABLE,
        kind::TABLE,
        net::TABLE,
        access::TABLE,
        detector::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// The name, the arguments and the description of every function, for the reference page.
pub(crate) fn reference() -> impl Iterator<Item = (&'static str, (usize, usize), &'static str)> {
    all().map(|spec| (spec.name, spec.arguments, spec.doc))
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|spec| spec.name)
}

/// Whether a detector finds something of a kind in a value: what `<KIND>` in a tool pattern asks.
pub(crate) fn finds(evaluator: &mut Evaluator<'_>, kind: &str, value: &Value) -> Result<bool> {
    for piece in evaluator.pieces(value)? {
        evaluator.spend(piece.text.len() / 4)?;
        let found = match kind {
            "DUMMY" => &*piece.text == "__DUMMY__",
            "SECRET" => detect::secrets(&piece.text).next().is_some(),
            "MODERATED" => !detect::moderation::find(&piece.text).is_empty(),
            kind => detect::personal::all(&piece.text).iter().any(|finding| finding.kind == kind),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The n-th argument, parts of events resolved; missing if there is none.
fn plain(evaluator: &mut Evaluator<'_>, arguments: &[Value], index: usize) -> Result<Value> {
    arguments.get(index).map_or(Ok(Value::Absent), |value| evaluator.resolve(value))
}

/// Applies `f` to the first argument if it is text.
fn on_text(
    evaluator: &mut Evaluator<'_>,
    arguments: &[Value],
    name: &str,
    f: impl FnOnce(&str) -> Value,
) -> Result<Value> {
    let value = plain(evaluator, arguments, 0)?;
    match value.as_text() {
        Some(text) => {
            evaluator.spend(text.len() / 16)?;
            Ok(f(text))
        }
        None => evaluator.not_text(&value, &format!("`{name}`")),
    }
}

fn type_error<T>(message: String) -> Result<T> {
    Err(EvalError::Type(message))
}

const fn row(
    name: &'static str,
    arguments: (usize, usize),
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
) -> Spec {
    Spec { name, arguments, parameters: &[], doc, run, canonical: None, is_method: false }
}

const fn method(
    name: &'static str,
    arguments: (usize, usize),
    doc: &'static str,
    run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
) -> Spec {
    Spec { is_method: true, ..row(name, arguments, doc, run) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Missing;
    use crate::policy::plan::Plan;
    use crate::trace::Trace;

    /// Each row of a family: function, arguments as JSON, result as JSON or the error.
    pub(super) fn check(name: &str, arguments: &str, expected: &str) {
        let (plan, trace, mut fuel) = (Plan::default(), Trace::new(), 100_000);
        let mut evaluator = Evaluator::new(&plan, &trace, &mut fuel, Missing::IsNone);
        let json: Json = serde_json::from_str(&format!("[{arguments}]")).unwrap();
        let arguments: Vec<Value> = json.as_array().unwrap().iter().map(Value::from_json).collect();
        let shown = match Builtin::find(name).unwrap().call(&mut evaluator, &arguments) {
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
        let mut names: Vec<_> = names().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(reference().all(|(_, (least, most), doc)| least <= most && doc.ends_with('.')));
    }
}
