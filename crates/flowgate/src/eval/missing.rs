//! Values that are missing or null, where something needs a value.
//!
//! Nobody may decide by leaving a value out, or by writing null, whether a rule applies or a statement grants: what needs a
//! value has no result without one.

use super::{EvalError, Evaluator, Missing, Read, Result, Value};
use crate::policy::Dialect;
use crate::policy::plan::Ex;
use crate::policy::syntax::Comparison;
use crate::trace::Content;

impl Evaluator<'_> {
    /// Why something has no result: a value that it needs is missing or null. `what` names the value and its use.
    ///
    /// A rule fails then, and says so; a statement that grants something does not hold.
    pub(crate) fn lacking(&self, what: impl FnOnce() -> String) -> EvalError {
        match self.missing {
            Missing::IsNone if !self.doubt_restricts => EvalError::Type(what()),
            _ => EvalError::Missing,
        }
    }

    /// Whether what needs a value fails if there is none. The analyzer of the paper fails as a whole there; in its
    /// dialect a missing value counts as one that does not meet the condition.
    pub(crate) fn needs_values(&self) -> bool {
        self.dialect() == Dialect::Flowgate
    }

    /// Whether a value is missing or null. A tool may take the one for the other, so neither grants anything.
    pub(super) fn is_null(&mut self, value: &Value) -> bool {
        let (Value::Node(event, node) | Value::Part(_, event, node)) = value else {
            return value.is_nothing();
        };
        let document = self.trace.event(*event).map(|event| &event.document);
        let Some(found) = document.and_then(|document| document.node(*node)) else { return true };
        let Content::Scalar(scalar) = &found.content else { return false };
        if found.text.is_some() {
            return false;
        }
        // That a scalar is not null is something that it says.
        self.reads.push(Read { event: *event, node: *node, deep: false });
        scalar.is_null()
    }

    /// The value that a function asks for, which must be there.
    ///
    /// # Errors
    /// If it is missing or null.
    pub(crate) fn needed(&self, value: Value, what: &str) -> Result<Value> {
        match value.is_nothing() && self.needs_values() {
            true => Err(self.lacking(|| lacks(what))),
            false => Ok(value),
        }
    }

    /// The same of a value that may be a part of an event.
    ///
    /// # Errors
    /// If it is missing or null.
    pub(crate) fn needed_part(&mut self, value: &Value, what: &str) -> Result<()> {
        if self.is_null(value) {
            self.needed(Value::None, what)?;
        }
        Ok(())
    }

    /// Whether a comparison that needs values on both sides has them.
    ///
    /// Nobody may decide by leaving a value out, or by writing null, whether a rule applies: an order with nothing and
    /// membership in nothing have no answer. Nothing is in a list that names `None` itself.
    ///
    /// # Errors
    /// If a value is missing or null. The message names the field as the policy writes it, never what the trace says.
    pub(super) fn decidable(
        &self,
        operator: Comparison,
        (left, left_ex): (&Value, &Ex),
        (right, right_ex): (&Value, &Ex),
    ) -> Result<()> {
        let is_membership = matches!(operator, Comparison::In | Comparison::NotIn);
        let names_none =
            |list: &Value| matches!(list, Value::List(items) if items.iter().any(Value::is_nothing));
        let says_nothing = |value: &Value| value.is_nothing() || (!is_membership && *value == Value::Silent);
        let lacks = match operator {
            Comparison::ContainsOnly => {
                [left, right].into_iter().zip([left_ex, right_ex]).find(|(value, _)| value.is_nothing())
            }
            _ if says_nothing(right) => Some((right, right_ex)),
            _ if says_nothing(left) && !(is_membership && names_none(right)) => Some((left, left_ex)),
            _ => None,
        };
        lacks.map_or(Ok(()), |(_, ex)| {
            let what = || {
                let (field, operator) = (field(ex), operator.symbol());
                format!("{field} is missing or null, so `{operator}` has no answer; ask first whether it `is None`")
            };
            Err(self.lacking(what))
        })
    }
}

/// Why something has no result. It names what is computed, never what the trace says.
pub(super) fn lacks(what: &str) -> String {
    format!("{what} needs a value, and it is missing or null; ask first whether it `is None`")
}

/// What an expression asks for, as far as it is a field: `call.arguments.amount` is `arguments.amount`.
fn field(ex: &Ex) -> String {
    let mut names = Vec::new();
    let mut next = ex;
    while let Ex::Member(object, name) = next {
        names.push(&**name);
        next = object;
    }
    if names.is_empty() {
        return "a value".to_owned();
    }
    names.reverse();
    format!("`{}`", names.join("."))
}
