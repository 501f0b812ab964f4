//! Evaluates the quantified blocks of conditions, `forall:` and `count(min=1, max=2):`, of rules and statements. A
//! block counts, or tests, the assignments of values to its variables that satisfy its conditions.
//! `Evaluator::evaluate` calls [`Evaluator::evaluate_quantified`] for each block.

use super::{EvalError, Evaluator, Frame, MatchLocation, Result, Value};
use crate::policy::plan::{QuantifiedBlock, QuantifierKind};

impl Evaluator<'_> {
    /// Evaluates a block to a truth value. A `count` holds if the number of satisfying assignments is within the
    /// bounds. A `forall` holds if every assignment satisfies the conditions, and a negated `forall` if one does not. A
    /// `forall` over nothing does not hold in the dialect of Flowgate, so that an empty list cannot satisfy a
    /// condition. In the dialect of invariant-ai (`or_none`), it does hold. `frame` contains the values of the
    /// variables outside the block.
    pub(super) fn evaluate_quantified(
        &mut self,
        block: &QuantifiedBlock,
        frame: &mut Frame,
    ) -> Result<Value> {
        let holds = match &block.how {
            QuantifierKind::Count { min, max } => {
                let min = self.evaluate_bound(min.as_ref(), frame)?;
                let max = self.evaluate_bound(max.as_ref(), frame)?;
                self.count(block, min, max, frame)?
            }
            QuantifierKind::NotForAll => self.has_exception(block, frame)?,
            QuantifierKind::ForAll { or_none } => {
                !self.has_exception(block, frame)? && (*or_none || self.has_assignment(block, frame)?)
            }
        };
        Ok(Value::Bool(holds))
    }

    /// Evaluates a bound of `count` (`min` or `max`), which must be an integer. Returns `None`, no bound, if the policy
    /// does not write the bound, and in the dialect of invariant-ai also if its value is missing. `frame` contains the
    /// values of variables.
    fn evaluate_bound(
        &mut self,
        bound: Option<&crate::policy::plan::CompiledExpr>,
        frame: &mut Frame,
    ) -> Result<Option<i64>> {
        let Some(bound) = bound else { return Ok(None) };
        let value = self.evaluate(bound, frame)?;
        match self.resolve(&value)? {
            Value::Int(n) => Ok(Some(n)),
            Value::Absent | Value::None => {
                // In the dialect of Flowgate, a missing bound is an error. In that of invariant-ai, it is no bound.
                self.require_present(Value::None, "a bound of `count`")?;
                Ok(None)
            }
            other => Err(EvalError::Type(format!(
                "a bound of `count` has the type {}, not int; write a whole number",
                other.type_name()
            ))),
        }
    }

    /// Returns whether the number of assignments that satisfy the block is at least `min` and at most `max`; a bound
    /// that is `None` does not restrict the number. If an assignment cannot be decided, this is an error only if the
    /// result depends on the assignment. `frame` contains the values of the variables outside the block.
    fn count(
        &mut self,
        block: &QuantifiedBlock,
        min: Option<i64>,
        max: Option<i64>,
        frame: &mut Frame,
    ) -> Result<bool> {
        let mut inner = frame.clone();
        let mut matches = 0_i64;
        // The number of matches that decides the result, at which the search stops. While locations are recorded, the
        // search does not stop early.
        let deciding_count = match (min, max) {
            // Every match contributes locations.
            _ if self.marks.is_some() => i64::MAX,
            (_, Some(max)) => max.saturating_add(1),
            (Some(min), None) => min,
            (None, None) => return Ok(true),
        };
        // Nothing needs to be counted: a `min` of 0 or less always holds, and a negative `max` never does.
        if deciding_count <= 0 {
            return Ok(max.is_none());
        }
        let (undecided, failure) =
            self.search_and_count_undecided(&block.ops, &mut inner, &mut |evaluator, frame| {
                matches += 1;
                // If locations are recorded, the match adds those of the block's variables and of its conditions.
                if let Some(mut marks) = evaluator.marks.take() {
                    for variable in &block.variables {
                        marks.extend(frame.get(variable.slot).and_then(MatchLocation::of_value));
                    }
                    evaluator.marks = Some(marks);
                    for item in &block.items {
                        evaluator.mark(item.expression(), &mut frame.clone())?;
                    }
                }
                Ok(matches >= deciding_count)
            })?;
        let holds = min.is_none_or(|min| matches >= min) && max.is_none_or(|max| matches <= max);
        // Undecided assignments matter unless the result is the same with all and with none of them.
        let greatest_count = matches.saturating_add(i64::try_from(undecided).unwrap_or(i64::MAX));
        let is_decided = min.is_none_or(|min| matches >= min || greatest_count < min)
            && max.is_none_or(|max| matches > max || greatest_count <= max);
        match failure {
            Some(failure) if !is_decided => Err(failure),
            _ => Ok(holds),
        }
    }

    /// Returns whether some assignment does not satisfy the block. The search steps (`ops`) of a `forall` block bind
    /// its variables and then test the negation of its conditions, so the search finds such assignments. `frame`
    /// contains the values of the variables outside the block.
    fn has_exception(&mut self, block: &QuantifiedBlock, frame: &mut Frame) -> Result<bool> {
        let marks_before = self.marks.as_ref().map_or(0, Vec::len);
        let has_exception = self.solve(&block.ops, &mut frame.clone(), &mut |_, _| Ok(true))?;
        if let (true, Some(marks)) = (has_exception, self.marks.as_mut()) {
            // The search also recorded locations of conditions that hold, which do not concern the exception.
            marks.truncate(marks_before);
        }
        Ok(has_exception)
    }

    /// Returns whether the variables of the block have any assignment: searches without the last of the `ops`, the
    /// negated conditions. `frame` contains the values of the variables outside the block.
    fn has_assignment(&mut self, block: &QuantifiedBlock, frame: &mut Frame) -> Result<bool> {
        let bind = block.ops.split_last().map_or(&[] as &[_], |(_, bind)| bind);
        self.solve(bind, &mut frame.clone(), &mut |_, _| Ok(true))
    }
}
