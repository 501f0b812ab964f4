//! Compiles rules (`raise`, `ask`, `log`): their messages, their conditions, and one search for each variable over
//! events. When an event arrives, the module `rules` binds it to each variable in turn, and runs the search of that
//! variable for the other events of a match. The compiler calls [`Compiler::rule`] for each rule.

use std::sync::Arc;

use super::super::diagnostic::{Diagnostic, Span};
use super::super::grant_scope::GrantClause;
use super::super::plan::{
    CompiledExpr, CompiledQuery, EventVariable, QuantifiedBlock, QuantifierKind, QueryItem, Rule, SearchOp,
    Type, Variable, VariableSlot, single_variable_conditions,
};
use super::super::syntax::{Action, Comparison, ConditionBody, Expr, ExprKind, Name};
use super::body::Scope;
use super::{CompileResult, Compiler};
use crate::value::Value;

/// Arguments by position and by name.
type CompiledArguments = (Vec<CompiledExpr>, Vec<(Arc<str>, CompiledExpr)>);

impl Compiler<'_> {
    /// Compiles the rule at `span` and adds it to the plan. Warns if its evaluation may be costly, or if it has no
    /// condition or no event.
    pub(super) fn rule(
        &mut self,
        span: Span,
        (action, grant): (Action, GrantClause),
        message: &Expr,
        body: &ConditionBody,
    ) -> CompileResult<()> {
        let mut scope = Scope::default();
        let body = self.body(body, &mut scope);
        // The message is checked even if a condition is invalid.
        let message = self.message(message, &mut scope);
        body?;
        let (args, kwargs) = message?;
        // An analysis identifies a match by the values of the rule's variables and definitions, in the alphabetical
        // order of their names.
        let mut named: Vec<(String, VariableSlot)> =
            scope.names_with_slots().map(|(name, slot)| (name.to_owned(), slot)).collect();
        named.sort();
        let query = self.finish(scope);
        let mut events = Vec::new();
        self.push_outer_events(&query, &mut events);
        for ex in query.expressions() {
            ex.walk(&mut |ex| {
                if let CompiledExpr::Quantified(block) = ex {
                    self.push_inner_events(block, &query.variables, &mut events);
                }
            });
        }
        let other_event_kinds = self.other_event_kinds(&query);
        let has_block = events.iter().any(|event| !event.is_outer);
        // Without blocks and reads of other events, a match stays a match, whatever happens later.
        let is_settled =
            !events.is_empty() && !has_block && other_event_kinds.is_empty() && !contains_quantifier(&query);
        self.warn_of_cost(&span, &events, &query);
        // The empty set of slots: no variable has a value before the search.
        let ops = query.order(0);
        // The event variables of all rules are numbered consecutively.
        let first_event = self.plan.rules.last().map_or(0, |rule| rule.first_event + rule.events.len());
        self.plan.rules.push(Rule {
            grant,
            span,
            action,
            args,
            kwargs,
            query,
            events,
            first_event,
            ops,
            is_settled,
            other_event_kinds,
            named,
            exempting: Vec::new(),
        });
        Ok(())
    }

    /// Compiles the message of a rule to arguments by position and by name. A message `Violation(...)` has the
    /// arguments in its parentheses, except `ranges`, since the evaluator computes the locations itself. For the name
    /// `Violation` alone, the only argument is this name as a text. Any other message is itself the only argument.
    fn message(&mut self, message: &Expr, scope: &mut Scope) -> CompileResult<CompiledArguments> {
        let is_violation = |expr: &Expr| match &*expr.kind {
            ExprKind::Name(name) => matches!(name.as_str(), "Violation" | "PolicyViolation"),
            _ => false,
        };
        match &*message.kind {
            ExprKind::Call(function, arguments, named) if is_violation(function) => {
                // All arguments are compiled before the first error is returned, so that every error is reported.
                let args: Vec<_> = arguments.iter().map(|expr| self.expression(expr, scope)).collect();
                let named = named.iter().filter(|(name, _)| name.text != "ranges");
                let kwargs: Vec<_> = named
                    .map(|(name, expr): &(Name, Expr)| {
                        Ok((name.text.as_str().into(), self.expression(expr, scope)?))
                    })
                    .collect();
                Ok((
                    args.into_iter().collect::<CompileResult<_>>()?,
                    kwargs.into_iter().collect::<CompileResult<_>>()?,
                ))
            }
            ExprKind::Name(name) if is_violation(message) => {
                Ok((vec![CompiledExpr::Constant(Value::text(name))], Vec::new()))
            }
            _ => Ok((vec![self.expression(message, scope)?], Vec::new())),
        }
    }

    /// Appends the event variables that the rule itself binds; [`Self::push_inner_events`] appends those of quantified
    /// blocks. With them, the monitor matches a new event without a search over all assignments:
    ///
    /// * `alone` and `named`: the conditions on the variable alone, and the name that they require of the event. They
    ///   exclude an event early.
    /// * `anchor`: the search for the other events of a match once a new event is bound to the variable.
    /// * `can_be_last`: false if a condition requires that another event of the match follows. A new event, which is
    ///   the last one, then completes no match as the value of this variable.
    fn push_outer_events(&self, query: &CompiledQuery, events: &mut Vec<EventVariable>) {
        for variable in query.variables.iter().filter(|variable| variable.domain.is_none()) {
            let slot = variable.slot;
            let alone = single_variable_conditions(&query.items, slot, &self.predicate_looks_around);
            events.push(EventVariable {
                slot,
                ty: variable.ty,
                named: self.required_name(&alone, slot, variable.ty),
                alone,
                anchor: query.order(CompiledExpr::Slot(slot).required_slots()),
                can_be_last: !comes_before_another(&query.items, slot, &query.variables),
                is_outer: true,
                // The next two concern only variables of blocks.
                is_universal: false,
                matters_later: false,
                right_before: right_before(&query.items, slot),
            });
        }
    }

    /// Appends the event variables of a quantified block (`forall:`, `count(...):`), by which the monitor knows which
    /// new events can change the result of the block. A variable with a domain ranges over values, not events, and is
    /// left out.
    ///
    /// * `alone`: the conditions on one variable alone, by which an event is excluded early. A `forall:` has none,
    ///   because an event that does not fulfil its conditions changes the result too.
    /// * `matters_later`: false if the event must precede one of the rule's own variables, `outer`; a new event is
    ///   then too late to change an earlier match.
    fn push_inner_events(
        &self,
        block: &QuantifiedBlock,
        outer: &[Variable],
        events: &mut Vec<EventVariable>,
    ) {
        let is_universal = !matches!(block.how, QuantifierKind::Count { .. });
        for variable in block.variables.iter().filter(|variable| variable.domain.is_none()) {
            let slot = variable.slot;
            let alone = if is_universal {
                Vec::new()
            } else {
                single_variable_conditions(&block.items, slot, &self.predicate_looks_around)
            };
            events.push(EventVariable {
                slot,
                ty: variable.ty,
                named: self.required_name(&alone, slot, variable.ty),
                alone,
                // The search for a match never starts at an event of a block.
                anchor: Vec::new(),
                can_be_last: false,
                is_outer: false,
                is_universal,
                matters_later: is_universal || !comes_before_another(&block.items, slot, outer),
                right_before: None,
            });
        }
    }

    /// Returns the kinds of events that a rule reads in addition to the events of its variables. The rule is evaluated
    /// again when an event of such a kind arrives. These are all kinds (`Type::Event`) if the rule calls a predicate
    /// that reads the trace, and calls if it reads the calls that a message proposes.
    fn other_event_kinds(&self, query: &CompiledQuery) -> Vec<Type> {
        let mut kinds = Vec::new();
        let mut reads_calls = ranges_over_calls(&query.variables);
        for ex in query.expressions() {
            ex.walk(&mut |ex| match ex {
                CompiledExpr::Predicate(index, _)
                    if self.predicate_looks_around.get(*index) != Some(&false) =>
                {
                    kinds.push(Type::Event);
                }
                CompiledExpr::Quantified(block) => reads_calls |= ranges_over_calls(&block.variables),
                ex => reads_calls |= ex.may_read_calls(),
            });
        }
        if reads_calls {
            kinds.push(Type::ToolCall);
        }
        kinds
    }

    /// Returns the only name that the event of a variable can have, so that events with other names need not be tested.
    /// The name of a message is its role, and that of a call or an output is the name of its tool. `None` if several
    /// names are possible. `alone` are the conditions on the variable in `slot` alone, and `ty` is its type.
    fn required_name(&self, alone: &[SearchOp], slot: VariableSlot, ty: Type) -> Option<Arc<str>> {
        let is_variable = |ex: &CompiledExpr| matches!(ex, CompiledExpr::Slot(s) if *s == slot);
        // The first condition that requires a name decides. For a condition that requires none, the closure returns
        // `None`, and the search continues.
        alone.iter().find_map(|op| match op {
            // `call is tool:NAME`
            SearchOp::Test(CompiledExpr::IsTool(event, pattern, _)) if is_variable(event) => {
                self.plan.patterns.get(pattern.0)?.exact_name().cloned()
            }
            // `message.role == "ROLE"`
            SearchOp::Test(CompiledExpr::Compare(Comparison::Equal, left, right)) => {
                match (&**left, &**right) {
                    (CompiledExpr::Member(object, field), CompiledExpr::Constant(Value::Str(text)))
                        if ty == Type::Message && **field == *"role" && is_variable(object) =>
                    {
                        Some(Arc::clone(text))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Warns about a rule whose cost for one new event can grow faster than the trace: a rule that binds more than two
    /// events, or has a block whose events are searched for each match. Also warns about a rule without a condition or
    /// an event.
    fn warn_of_cost(&mut self, span: &Span, events: &[EventVariable], query: &CompiledQuery) {
        let outer = events.iter().filter(|event| event.is_outer).count();
        let inner = events.len() - outer;
        // A rule whose only variable over events is that of a `count` costs at most one test of each event, so it causes
        // no warning.
        let is_block_costly =
            inner > 1 || (inner > 0 && outer > 0) || events.iter().any(|event| event.is_universal);
        let (code, message, help) = if outer > 2 {
            let message =
                format!("the rule joins {outer} events, so its cost can grow faster than the trace");
            (
                "superlinear",
                message,
                "name the tool of each variable of the rule (`(call: ToolCall) is tool:NAME`), so that fewer events are tried, or split the rule; a call whose evaluation exceeds its fuel is denied",
            )
        } else if is_block_costly {
            let message = "the block is evaluated again for each event that it refers to, so its cost can grow faster than the trace";
            (
                "superlinear",
                message.to_owned(),
                "name the tool of each variable of the block (`(call: ToolCall) is tool:NAME`), so that fewer events are tried; a call whose evaluation exceeds its fuel is denied",
            )
        } else if events.is_empty() && query.items.is_empty() {
            (
                "no-condition",
                "the rule has no condition".to_owned(),
                "declare a variable, such as `(call: ToolCall)`",
            )
        } else if events.is_empty() {
            let message = "the rule declares no event, so it always holds or never does".to_owned();
            ("no-event", message, "declare a variable, such as `(call: ToolCall)`")
        } else {
            return;
        };
        self.diagnostics.push(Diagnostic::warning(code, span.clone(), message).help(help));
    }
}

/// Returns whether a variable may range over the calls of a message, `(call: ToolCall) in LIST`. Such calls are events
/// that the rule reads in addition to the events of its variables. A variable over the parts of an event (`Parts`)
/// reads no further event, since the event with these parts is itself a variable of the rule.
fn ranges_over_calls(variables: &[Variable]) -> bool {
    variables.iter().any(|variable| {
        // A `Function` is a part of a call.
        matches!(variable.ty, Type::ToolCall | Type::Function)
            && !matches!(variable.domain, None | Some(CompiledExpr::Parts(..)))
    })
}

/// Returns whether a query contains a quantified block, such as `forall` or `count`.
fn contains_quantifier(query: &CompiledQuery) -> bool {
    let mut found = false;
    query.expressions().for_each(|ex| ex.walk(&mut |ex| found |= matches!(ex, CompiledExpr::Quantified(_))));
    found
}

/// Returns whether a condition such as `a -> b` requires that the event of `slot` precedes the event of another one of
/// `variables`. The event of `slot` then cannot be the last one of a match.
fn comes_before_another(items: &[QueryItem], slot: VariableSlot, variables: &[Variable]) -> bool {
    // A variable with a domain ranges over the values of a list.
    let is_event = |other: VariableSlot| variables.iter().any(|v| v.slot == other && v.domain.is_none());
    items.iter().any(|item| match item {
        QueryItem::Test(CompiledExpr::Compare(
            Comparison::Before | Comparison::RightBefore | Comparison::Influences,
            a,
            b,
        )) => {
            matches!((&**a, &**b), (CompiledExpr::Slot(a), CompiledExpr::Slot(b)) if *a == slot && *b != slot && is_event(*b))
        }
        _ => false,
    })
}

/// Returns the variable whose event must directly follow the event of the variable in `slot`: `b`, if `slot` is `a` in
/// a condition `a ~> b`. `None` if there is no such condition.
fn right_before(items: &[QueryItem], slot: VariableSlot) -> Option<VariableSlot> {
    items.iter().find_map(|item| match item {
        QueryItem::Test(CompiledExpr::Compare(Comparison::RightBefore, a, b)) => match (&**a, &**b) {
            (CompiledExpr::Slot(a), CompiledExpr::Slot(b)) if *a == slot && *b != slot => Some(*b),
            _ => None,
        },
        _ => None,
    })
}
