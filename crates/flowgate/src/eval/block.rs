//! Evaluates the quantified blocks of conditions, `forall:` and `count(min=1, max=2):`. They count the assignments of
//! variables that satisfy the block.

use super::{EvalError, Evaluator, Frame, MatchLocation, Result, Value};
use crate::policy::plan::{QuantifiedBlock, QuantifierKind};

impl Evaluator<'_> {
    /// Evaluates a block: whether the number of its assignments is within the bounds, or whether all of them satisfy
    /// the conditions.
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

    /// Evaluates a bound, which is an integer.
    fn evaluate_bound(
        &mut self,
        bound: Option<&crate::policy::plan::CompiledExpr>,
        frame: &mut Frame,
    ) -> Result<Option<i64>> {
        let Some(bound) = bound else { return Ok(None) };
        let value = self.evaluate(bound, frame)?;
        match self.resolve(&value)? {
            Value::Int(n) => Ok(Some(n)),
            Value::Absent | Value::None => Ok(None),
            other => Err(EvalError::Type(format!(
                "a bound of `count` has the type {}, not int or float",
                other.type_name()
            ))),
        }
    }

    /// Returns whether the number of assignments that satisfy the block lies between the bounds.
    fn count(
        &mut self,
        block: &QuantifiedBlock,
        min: Option<i64>,
        max: Option<i64>,
        frame: &mut Frame,
    ) -> Result<bool> {
        let mut inner = frame.clone();
        let mut matches = 0_i64;
        // The number of matches that decides the result, at which the search stops. While locations are recorded, it
        // does not stop early.
        let deciding_count = match (min, max) {
            _ if self.marks.is_some() => i64::MAX,
            (_, Some(max)) => max.saturating_add(1),
            (Some(min), None) => min,
            (None, None) => return Ok(true),
        };
        if deciding_count <= 0 {
            return Ok(max.is_none());
        }
        let (undecided, failure) = self.tally(&block.ops, &mut inner, &mut |evaluator, frame| {
            matches += 1;
            if let Some(mut marks) = evaluator.marks.take() {
                for variable in &block.variables {
                    marks.extend(frame.get(variable.slot).and_then(MatchLocation::of_value));
                }
                evaluator.marks = Some(marks);
                for item in &block.items {
                    evaluator.mark(item.ex(), &mut frame.clone())?;
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

    /// Returns whether some assignment does not satisfy the block.
    fn has_exception(&mut self, block: &QuantifiedBlock, frame: &mut Frame) -> Result<bool> {
        let before = self.marks.as_ref().map_or(0, Vec::len);
        let found = self.solve(&block.ops, &mut frame.clone(), &mut |_, _| Ok(true))?;
        if let (true, Some(marks)) = (found, self.marks.as_mut()) {
            // Locations that were recorded before the exception do not concern it.
            marks.truncate(before);
        }
        Ok(found)
    }

    /// Returns whether the variables of the block have any assignment.
    fn has_assignment(&mut self, block: &QuantifiedBlock, frame: &mut Frame) -> Result<bool> {
        let bind = block.ops.split_last().map_or(&[] as &[_], |(_, bind)| bind);
        self.solve(bind, &mut frame.clone(), &mut |_, _| Ok(true))
    }
}
