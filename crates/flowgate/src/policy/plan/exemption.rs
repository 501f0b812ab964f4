//! Finds the patterns by which a rule exempts tools: a rule with the condition `not (call is tool:NAME)` applies to
//! every tool but `NAME`. The compiler records the patterns in the plan.
//!
//! If two servers offer a tool of that name, the pattern is *ambiguous*: the rule exempts neither tool, and the monitor
//! denies calls of both. An exemption must not apply to the tool of the wrong server.

use super::{CompiledExpr, CompiledQuery, ListSource, PatternId, Plan, QuantifierKind, QueryItem};

impl Plan {
    /// Returns the patterns by which a rule can exempt a tool: those whose match might make a condition of the rule
    /// false, as in `not (call is tool:NAME)`. Every pattern in the rule counts, except where a match can only make a
    /// condition true.
    pub(crate) fn exempting_patterns(&self, query: &CompiledQuery) -> Vec<PatternId> {
        let mut exempting = Vec::new();
        let mut seen = vec![false; self.predicates.len()];
        // Every pattern in the list that a variable ranges over counts, since a match might remove values from the
        // list.
        let domains = query.variables.iter().filter_map(|variable| variable.domain.as_ref());
        domains.for_each(|domain| exempting.extend(self.patterns_of([domain])));
        query.items.iter().for_each(|item| self.collect_from_item(item, &mut seen, &mut exempting));
        exempting
    }

    /// Adds to `exempting` the patterns in one line of a query by which the rule can exempt a tool. `seen` marks
    /// the predicates whose conditions were searched already.
    fn collect_from_item(&self, item: &QueryItem, seen: &mut [bool], exempting: &mut Vec<PatternId>) {
        match item {
            QueryItem::Test(ex) => self.collect_from_condition(ex, seen, exempting),
            // `NAME := VALUE`: a match of a pattern in the value might change the value, and so make any condition
            // false that uses the name. So all patterns in the value count.
            QueryItem::Let(_, ex) => exempting.extend(self.patterns_of([ex])),
        }
    }

    /// Adds to `exempting` the patterns whose match might make the condition `ex` false. `seen` marks the predicates
    /// whose conditions were searched already.
    fn collect_from_condition(&self, ex: &CompiledExpr, seen: &mut [bool], exempting: &mut Vec<PatternId>) {
        match ex {
            // The pattern of `call is tool:NAME` itself does not count: if it matches, the condition holds.
            CompiledExpr::IsTool(event, _, shape) => {
                let mut computed = Vec::new();
                if let Some(shape) = shape {
                    shape.expressions(&mut computed);
                }
                exempting.extend(self.patterns_of(std::iter::once(&**event).chain(computed)));
            }
            CompiledExpr::And(items) | CompiledExpr::Or(items) => {
                items.iter().for_each(|item| self.collect_from_condition(item, seen, exempting));
            }
            CompiledExpr::Predicate(index, arguments) => {
                exempting.extend(self.patterns_of(arguments));
                if let (Some(is_seen @ false), Some(predicate)) =
                    (seen.get_mut(*index), self.predicates.get(*index))
                {
                    *is_seen = true;
                    let domains =
                        predicate.query.variables.iter().filter_map(|variable| variable.domain.as_ref());
                    exempting.extend(self.patterns_of(domains));
                    predicate
                        .query
                        .items
                        .iter()
                        .for_each(|item| self.collect_from_item(item, seen, exempting));
                }
            }
            // `count` without a maximum: each further assignment that satisfies the block can only make it true. So a
            // pattern in a condition of the block counts only if its match might make that condition false. All
            // patterns in the bound and in the lists of the block's variables count.
            CompiledExpr::Quantified(block)
                if matches!(block.how, QuantifierKind::Count { max: None, .. }) =>
            {
                // The guard above admits only `Count`, so `else` is unreachable.
                let QuantifierKind::Count { min, .. } = &block.how else { return };
                let domains = block.variables.iter().filter_map(|variable| variable.domain.as_ref());
                exempting.extend(self.patterns_of(min.iter().chain(domains)));
                block.items.iter().for_each(|item| self.collect_from_item(item, seen, exempting));
            }
            // In any other expression, such as one with `not`, all patterns count.
            ex => exempting.extend(self.patterns_of([ex])),
        }
    }

    /// Returns every tool pattern that expressions test, including those in the predicates that they call, directly or
    /// through other predicates.
    pub(crate) fn patterns_of<'e>(
        &self,
        expressions: impl IntoIterator<Item = &'e CompiledExpr>,
    ) -> Vec<PatternId> {
        let (mut patterns, mut pending) = (Vec::new(), Vec::new());
        let mut collect = |ex: &CompiledExpr, pending: &mut Vec<usize>| {
            ex.walk(&mut |ex| match ex {
                CompiledExpr::IsTool(_, pattern, _)
                | CompiledExpr::Listed(
                    _,
                    ListSource::Answers(pattern) | ListSource::MatchingAnswers(pattern, _),
                    _,
                ) => {
                    patterns.push(*pattern);
                }
                CompiledExpr::Predicate(index, _) => pending.push(*index),
                _ => {}
            });
        };
        // First the patterns in the expressions themselves, then those in each predicate that is called, once.
        expressions.into_iter().for_each(|ex| collect(ex, &mut pending));
        let mut seen = if pending.is_empty() { Vec::new() } else { vec![false; self.predicates.len()] };
        while let Some(index) = pending.pop() {
            if let (Some(is_seen @ false), Some(predicate)) =
                (seen.get_mut(index), self.predicates.get(index))
            {
                *is_seen = true;
                predicate.query.expressions().for_each(|ex| collect(ex, &mut pending));
            }
        }
        patterns
    }
}
