//! Searches for the assignments of values to variables that satisfy the conditions of a query. Statements, rules,
//! blocks and predicates call [`Evaluator::solve`] or [`Evaluator::search`]. The search is depth first. Its steps
//! (`ops`, of the type [`SearchOp`]) bind a variable or test a condition; the compiler has put them into an order in
//! which each step needs only variables that are already bound. An assignment is *undecided* if a condition on it
//! cannot be evaluated and no other condition rules it out; such assignments are recorded as failures.

use std::sync::Arc;

use super::{
    ANY_NUMBER, EvalError, Evaluator, Frame, MAX_FAILURES, MatchCallback, MissingValueMode, Result,
    UndecidedReason, Value, set,
};
use crate::policy::dialect::Dialect;
use crate::policy::plan::{CompiledExpr, SearchOp, Type, VariableSlot};
use crate::trace::EventId;

impl Evaluator<'_> {
    /// Finds the assignments that satisfy `ops`, the steps of a compiled query, and calls `found` for each until it
    /// returns `true`. `frame` contains the values of variables. Returns whether `found` ended the search.
    ///
    /// # Errors
    /// If an assignment could not be decided, since a condition on it cannot be evaluated, or the fuel is spent.
    /// Outside of predicates, an assignment that is undecided because a value is missing sets `missed` instead.
    pub(crate) fn solve(
        &mut self,
        ops: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<bool> {
        // The failures of an enclosing search are set aside, so that only the failures of this search count. The number
        // of undecided assignments of the enclosing search is restored afterwards.
        let (outer_failures, outer_undecided) = (std::mem::take(&mut self.failures), self.undecided);
        let result = self.search(ops, frame, found);
        let failures = std::mem::replace(&mut self.failures, outer_failures);
        self.undecided = outer_undecided;
        let stopped = result?;
        if stopped {
            return Ok(true);
        }
        // A missing value does not make a statement fail: the statement does not hold.
        let is_missing = |failure: &EvalError| *failure == EvalError::Missing && self.depth == 0;
        self.missed |= failures.iter().any(is_missing);
        let failure = failures.into_iter().find(|failure| !is_missing(failure));
        failure.map_or(Ok(false), Err)
    }

    /// Calls `found` for each assignment that satisfies `ops` until it returns `true`. An undecided assignment has a
    /// condition that cannot be evaluated; unlike in [`Self::solve`], it is no error here, since it may not change the
    /// result of a `count`. Returns the number of undecided assignments, and why the first of them is undecided (`None`
    /// if there are none). `frame` contains the values of variables.
    ///
    /// # Errors
    /// If the fuel is spent.
    pub(super) fn search_and_count_undecided(
        &mut self,
        ops: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<(u64, Option<EvalError>)> {
        // The results of an enclosing search are set aside, as in `solve`, so that both begin empty and count only this
        // search.
        let outer_failures = std::mem::take(&mut self.failures);
        let outer_undecided = std::mem::take(&mut self.undecided);
        let result = self.search(ops, frame, found);
        let failures = std::mem::replace(&mut self.failures, outer_failures);
        let undecided = std::mem::replace(&mut self.undecided, outer_undecided);
        result?;
        Ok((undecided, failures.into_iter().next()))
    }

    /// Finds the assignments that satisfy `ops` like [`Self::solve`], but records the reasons of undecided ones in
    /// `failures` and continues. Returns whether `found` ended the search. `frame` contains the values of variables.
    ///
    /// An assignment is undecided if a condition on it cannot be evaluated and no other one rules it out. So the order
    /// in which conditions are evaluated does not matter, and a test such as `x is not None` protects the other
    /// conditions from a missing `x`.
    ///
    /// # Errors
    /// If the fuel is spent.
    pub(crate) fn search(
        &mut self,
        ops: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<bool> {
        // An undecided condition of an enclosing search does not concern the assignments of this one.
        let trouble = self.trouble.take();
        let result = self.descend(ops, frame, found);
        self.trouble = trouble;
        result
    }

    /// Performs the first step of `ops` and, for each value that it permits, the remaining steps; calls `found` after
    /// the last one. After a condition that cannot be evaluated, the search continues and records the error in
    /// `trouble`: the assignment counts as undecided unless another condition rules it out. For statements that can
    /// only restrict, an undecided condition counts as satisfied. Returns whether `found` ended the search. `frame`
    /// contains the values of variables.
    fn descend(
        &mut self,
        ops: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<bool> {
        self.spend(1)?;
        let Some((op, rest)) = ops.split_first() else {
            let Some(trouble) = self.trouble.clone() else { return found(self, frame) };
            self.undecided = self.undecided.saturating_add(trouble.assignments);
            if self.failures.len() < MAX_FAILURES && !self.failures.contains(&trouble.error) {
                self.failures.push(trouble.error);
            }
            return Ok(false);
        };
        // The state before the step, which is restored afterwards.
        let reads_before = self.reads.len();
        let trouble = self.trouble.clone();
        let result = match op {
            SearchOp::Test(ex) => match self.holds(ex, frame) {
                Ok(true) => self.descend(rest, frame, found),
                Ok(false) => Ok(false),
                Err(EvalError::Missing) if self.accepts_undecided() => self.descend(rest, frame, found),
                // `1`: one assignment is undecided.
                Err(error) => self.continue_undecided(error, 1, rest, frame, found),
            },
            SearchOp::Let(slot, ex) => match self.evaluate(ex, frame) {
                Ok(value) => {
                    set(frame, *slot, value);
                    self.descend(rest, frame, found)
                }
                Err(error) => {
                    set(frame, *slot, Value::Failed(Arc::new(error.clone())));
                    match error {
                        EvalError::Missing if self.accepts_undecided() => self.descend(rest, frame, found),
                        error => self.continue_undecided(error, 1, rest, frame, found),
                    }
                }
            },
            SearchOp::Events(slot, ty) => {
                // Candidates are selected for the variables of a rule; a predicate's variables range over all events.
                let events = self.candidates.events(*slot, frame).filter(|_| self.depth == 0);
                let events = events.unwrap_or_else(|| (0..self.trace.len()).map(EventId).collect());
                let events = events.into_iter().map(Value::Event).collect();
                self.descend_each(*slot, *ty, events, rest, frame, found)
            }
            SearchOp::Each(slot, ty, domain) => match self.domain_values(domain, *ty, frame) {
                Ok(items) => self.descend_each(*slot, *ty, items, rest, frame, found),
                Err(error) => {
                    set(frame, *slot, Value::Failed(Arc::new(error.clone())));
                    // The number of values is unknown, so an upper bound counts as undecided.
                    self.continue_undecided(error, ANY_NUMBER, rest, frame, found)
                }
            },
        };
        self.trouble = trouble;
        // A branch that fails grants nothing, so its reads are forgotten. The reads of a predicate that does not hold
        // remain: its negative result is an answer too, and depends on everything that it read.
        if !matches!(result, Ok(true)) && self.depth == 0 {
            self.truncate_reads(reads_before);
        }
        result
    }

    /// Returns whether a condition that a missing value leaves undecided counts as satisfied. Within a predicate it
    /// does not, since the predicate may be negated.
    fn accepts_undecided(&self) -> bool {
        self.doubt_restricts && self.depth == 0
    }

    /// Continues the search with `rest` after a step could not be evaluated because of `error`. `assignments` is the
    /// number of assignments that this error leaves undecided: 1, or `ANY_NUMBER` if the values of a variable are
    /// unknown. In `trouble`, keeps the first such error of a branch, and the greatest number of assignments. Returns
    /// whether `found` ended the search.
    ///
    /// # Errors
    /// If the error is that the fuel is spent.
    fn continue_undecided(
        &mut self,
        error: EvalError,
        assignments: u64,
        rest: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<bool> {
        if error == EvalError::Fuel {
            return Err(error);
        }
        let trouble = self.trouble.get_or_insert(UndecidedReason { error, assignments });
        trouble.assignments = trouble.assignments.max(assignments);
        self.descend(rest, frame, found)
    }

    /// Returns whether a condition holds: whether its value counts as true. In the dialect of invariant-ai only `True`
    /// itself holds. `frame` contains the values of variables.
    pub(crate) fn holds(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<bool> {
        let value = self.evaluate(ex, frame)?;
        match self.dialect() {
            Dialect::Flowgate => self.truth(&value),
            Dialect::Compat => Ok(self.resolve(&value)? == Value::Bool(true)),
        }
    }

    /// Returns the values that a variable of the type `ty` ranges over; `domain` is the expression after `in`. In a
    /// rule, they are all values of the type in the domain, at any depth. In any other statement, they are the items
    /// of the domain, and the caller skips items of another type. Within a predicate of such a statement, an item of
    /// another type is an error instead, since the predicate may be negated. `frame` contains the values of variables.
    pub(crate) fn domain_values(
        &mut self,
        domain: &CompiledExpr,
        ty: Type,
        frame: &mut Frame,
    ) -> Result<Vec<Value>> {
        // `Parts` has selected the parts of an event by their type already, and its result is a list. If the type is
        // `list`, `select` would also take this list for one of the values.
        let has_type_already = matches!(domain, CompiledExpr::Parts(..));
        let domain = self.evaluate(domain, frame)?;
        // A statement may be evaluated twice, the second time so that missing values restrict (`doubt_restricts`). It
        // ranges over the same items both times: a search at any depth would depend on whether a field is a list or a
        // map.
        if self.missing == MissingValueMode::IsNone && !self.doubt_restricts {
            if ty == Type::Any || has_type_already {
                return self.items(&domain);
            }
            let mut selected = Vec::new();
            self.select(&domain, ty, &mut selected)?;
            return Ok(selected);
        }
        if self.depth > 0 {
            // A predicate may be negated, so no item may be skipped.
            let items = self.items(&domain)?;
            let fits = items.iter().all(|item| self.has_type(item, ty));
            return if fits { Ok(items) } else { Err(EvalError::Missing) };
        }
        // Where the statement permits it (`quiet`), the iteration over the items does not count as a read of the list.
        self.is_quiet = self.quiet;
        let items = self.items(&domain);
        self.is_quiet = false;
        match items {
            // A text where the statement expects a list has no items, and nothing is granted.
            Err(EvalError::Type(_)) => Ok(Vec::new()),
            items => items,
        }
    }

    /// Binds the variable `slot` to each of the values that have the type `ty`, one after the other, and continues the
    /// search with `rest`. Skips values of other types. Returns whether `found` ended the search.
    fn descend_each(
        &mut self,
        slot: VariableSlot,
        ty: Type,
        values: Vec<Value>,
        rest: &[SearchOp],
        frame: &mut Frame,
        found: &mut MatchCallback<'_>,
    ) -> Result<bool> {
        for value in values {
            self.spend(1)?;
            if self.has_type(&value, ty) {
                set(frame, slot, value);
                if self.descend(rest, frame, found)? {
                    return Ok(true);
                }
            }
        }
        // The variable is no longer bound: its last value must not restrict the candidates for another variable.
        set(frame, slot, Value::Absent);
        Ok(false)
    }
}
