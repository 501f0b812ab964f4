//! Decides the result of operations on missing or null values. The other files of the evaluator and the built-in
//! functions call these methods for each value that they need.
//!
//! The author of a value must not be able to decide, by omitting it or writing null, whether a rule applies or a
//! statement grants something. So an operation that needs a value has no result if the value is missing or null.

use super::{EvalError, Evaluator, MissingValueMode, RegionRead, Result, Value};
use crate::policy::dialect::Dialect;
use crate::policy::plan::CompiledExpr;
use crate::policy::syntax::Comparison;
use crate::trace::NodeContent;

impl Evaluator<'_> {
    /// Returns the error for a value that is needed and is missing or null. `what` returns the message of the error,
    /// which is used only in a rule.
    ///
    /// A rule fails with a type error. Any other statement gets [`EvalError::Missing`] and does not fail: a statement
    /// that grants something does not hold, and one that can only restrict (`doubt_restricts`) counts the condition as
    /// satisfied.
    pub(crate) fn missing_value_error(&self, what: impl FnOnce() -> String) -> EvalError {
        match self.missing {
            MissingValueMode::IsNone if !self.doubt_restricts => EvalError::Type(what()),
            _ => EvalError::Missing,
        }
    }

    /// Returns whether an operation fails if a value that it needs is missing. This is so in the dialect of Flowgate.
    /// In the dialect of invariant-ai, the operation yields a missing value, and the condition is not satisfied
    /// (invariant-ai itself would stop the whole evaluation).
    pub(crate) fn needs_values(&self) -> bool {
        self.dialect() == Dialect::Flowgate
    }

    /// Returns whether a value is missing or null. A tool may treat one as the other, so neither grants anything.
    /// A part that its event does not have counts as missing. If the value is a scalar in an event, also records that
    /// the scalar was read.
    pub(super) fn is_null(&mut self, value: &Value) -> bool {
        let (Value::Node(event, node) | Value::Part(_, event, node)) = value else {
            return value.is_absent_or_none();
        };
        let document = self.trace.event(*event).map(|event| &event.document);
        let Some(found) = document.and_then(|document| document.node(*node)) else { return true };
        let NodeContent::Scalar(scalar) = &found.content else { return false };
        // A text that encodes a scalar is a text, even `null`.
        if found.text.is_some() {
            return false;
        }
        // That a scalar is not null is information that the scalar carries.
        self.reads.push(RegionRead { event: *event, node: *node, deep: false });
        scalar.is_null()
    }

    /// Returns the value unchanged if it is present. `what` names the operation that needs it, for the message. In the
    /// dialect of invariant-ai, the value may also be missing.
    ///
    /// # Errors
    /// In the dialect of Flowgate, if the value is missing or null.
    pub(crate) fn require_present(&self, value: Value, what: &str) -> Result<Value> {
        match value.is_absent_or_none() && self.needs_values() {
            true => Err(self.missing_value_error(|| missing_value_message(what))),
            false => Ok(value),
        }
    }

    /// Checks that a value, which may be a part of an event, is present. `what` names the operation that needs it.
    ///
    /// # Errors
    /// In the dialect of Flowgate, if the value is missing or null.
    pub(crate) fn check_present(&mut self, value: &Value, what: &str) -> Result<()> {
        if self.is_null(value) {
            self.require_present(Value::None, what)?;
        }
        Ok(())
    }

    /// Checks that a comparison has the values that it needs. Each side is given as its value and its expression.
    ///
    /// Omitting a value or writing null must not decide whether a rule applies: an order against a missing value and
    /// membership in a missing value have no answer. A missing value can be a member of a list that names `None`.
    ///
    /// # Errors
    /// If a value is missing or null. The message names the field as the policy writes it, never content of the
    /// trace.
    pub(super) fn check_decidable(
        &self,
        operator: Comparison,
        (left, left_ex): (&Value, &CompiledExpr),
        (right, right_ex): (&Value, &CompiledExpr),
    ) -> Result<()> {
        let is_membership = matches!(operator, Comparison::In | Comparison::NotIn);
        let names_none =
            |list: &Value| matches!(list, Value::List(items) if items.iter().any(Value::is_absent_or_none));
        // The empty content of a message (`Silent`) contains nothing, but has no order.
        let is_undefined =
            |value: &Value| value.is_absent_or_none() || (!is_membership && *value == Value::Silent);
        let undefined_side = match operator {
            // For `contains_only`, the empty content of a message is a list without items.
            Comparison::ContainsOnly => [left, right]
                .into_iter()
                .zip([left_ex, right_ex])
                .find(|(value, _)| value.is_absent_or_none()),
            _ if is_undefined(right) => Some((right, right_ex)),
            _ if is_undefined(left) && !(is_membership && names_none(right)) => Some((left, left_ex)),
            _ => None,
        };
        let Some((_, ex)) = undefined_side else { return Ok(()) };
        let message = || {
            let (field, operator) = (field_path(ex), operator.symbol());
            format!(
                "{field} is missing or null, so `{operator}` has no result; test first whether it `is None`"
            )
        };
        Err(self.missing_value_error(message))
    }
}

/// Returns the message for an operation without a value. It names the operation, never content of the trace.
pub(super) fn missing_value_message(what: &str) -> String {
    format!("{what} was given a value that is missing or null; test first whether it `is None`")
}

/// Returns the path of the field that an expression reads, for a message: `arguments.amount` for
/// `call.arguments.amount`, or a general phrase for another expression.
fn field_path(ex: &CompiledExpr) -> String {
    let mut names = Vec::new();
    let mut next = ex;
    while let CompiledExpr::Member(object, name) = next {
        names.push(&**name);
        next = object;
    }
    if names.is_empty() {
        return "a value".to_owned();
    }
    names.reverse();
    format!("`{}`", names.join("."))
}
