//! Compiles the bodies of statements (the indented lines after `if:`): declarations of variables, conditions and
//! definitions. The result is the query of the statement: its variables with the conditions that an assignment of
//! values must satisfy. [`super::body_reads`] says which events a body reads. The compilers of all statements with
//! conditions call this module.

use std::sync::Arc;

use super::super::diagnostic::{Diagnostic, Span, nearest};
use super::super::dialect::Dialect;
use super::super::plan::{
    CompiledExpr, CompiledQuery, MAX_SLOTS, QuantifiedBlock, QuantifierKind, QueryItem, SearchOp, Type,
    Variable, VariableSlot, order_conditions,
};
use super::super::syntax::{BodyLine, Comparison, ConditionBody, Expr, ExprKind, Name, Quantifier};
use super::{CompileResult, Compiler};
use crate::value::Value;

/// Maximum number of conditions of a statement; they are evaluated recursively.
const MAX_LINES: usize = 200;

/// Returns the location at which an error about a whole body is reported: the condition of its first line, or the name
/// that this line defines. An empty body has no line, so its errors are reported at the beginning of the source.
fn first_line_span(body: &ConditionBody) -> Span {
    body.lines.first().map_or(0..0, |line| match line {
        BodyLine::Condition(expr) => expr.span.clone(),
        BodyLine::Let(name, _) => name.span.clone(),
    })
}

/// Returns the names and types of `events`, variables of a scope, for an error message. An event without a name was
/// declared by a part of it, `(img: Image)`, so the variable over its parts is returned instead.
fn names_of_events<'s>(scope: &'s Scope, events: &[&Variable]) -> Vec<(&'s str, Type)> {
    let is_part_of = |variable: &Variable, holder: VariableSlot| {
        matches!(&variable.domain, Some(CompiledExpr::Parts(event, _))
            if matches!(**event, CompiledExpr::Slot(slot) if slot == holder))
    };
    let mut names = Vec::new();
    for event in events {
        let part = scope.query.variables.iter().find(|variable| is_part_of(variable, event.slot));
        let named = part.unwrap_or(event);
        if let Some((name, _)) = scope.names_with_slots().find(|(_, slot)| *slot == named.slot) {
            names.push((name, named.ty));
        }
    }
    names
}

/// Returns the message and the help for a statement about one event that declares no event, several events, an event of
/// the wrong type, or only a part of an event. `declared` are the names and types of the events and parts that the
/// statement declares. `types` are the types of event that it may be about, and `expected` names them in the message.
fn wrong_events(declared: &[(&str, Type)], types: &[Type], expected: &str) -> (String, String) {
    let example = match types {
        [Type::ToolCall] => "(call: ToolCall) is tool:NAME",
        _ => "(out: ToolOutput) is tool:NAME",
    };
    match declared {
        // Only a part of an event, such as an image, has a name, and the event itself has none.
        [(name, ty)] if !ty.is_event() => (
            format!("the statement applies to {expected}, but `{name}` is a part of an event"),
            format!(
                "declare the event in the first condition, such as `{example}`, and the part in it: `({name}: {}) in LIST`",
                ty.name()
            ),
        ),
        // One event, but not of a type in `types`.
        [(name, ty)] => {
            let fitting = types.first().map_or("event", |ty| ty.name());
            let message = format!("the statement applies to {expected}, but `{name}` is a {}", ty.name());
            (
                message,
                format!(
                    "declare `({name}: {fitting})`, or write a statement that applies to a {}",
                    ty.name()
                ),
            )
        }
        [] => (
            format!("the statement applies to one event, {expected}, but declares none"),
            format!("declare it in the first condition, such as `{example}`"),
        ),
        several => {
            let names: Vec<String> = several.iter().map(|(name, _)| format!("`{name}`")).collect();
            let message = format!(
                "the statement applies to one event, {expected}, but declares several: {}",
                names.join(" and ")
            );
            (message, "keep one event; only a rule (`raise`, `ask`) may declare several".to_owned())
        }
    }
}

/// Returns the outer variables that a quantified block needs, as a set of slots in bits: those that its lines use and
/// do not bind themselves, and those in the bounds of `count`, which are evaluated outside of the block. `how` is the
/// kind of the block, with these bounds.
fn outer_slots(block: &CompiledQuery, how: &QuantifierKind) -> u64 {
    let slot_bit = |slot: VariableSlot| CompiledExpr::Slot(slot).required_slots();
    // What the block binds itself: its variables, and the names that its lines define.
    let variables = block.variables.iter().map(|variable| slot_bit(variable.slot));
    let definitions = block.items.iter().map(|item| match item {
        QueryItem::Let(slot, _) => slot_bit(*slot),
        QueryItem::Test(_) => 0,
    });
    let bound = variables.chain(definitions).fold(0, |slots, slot| slots | slot);
    let in_bounds = match how {
        QuantifierKind::Count { min, max } => slots_used_by(min.iter().chain(max)),
        QuantifierKind::ForAll { .. } | QuantifierKind::NotForAll => 0,
    };
    (slots_used_by(block.expressions()) & !bound) | in_bounds
}

/// Returns the variables that expressions use, as bits by their slots.
fn slots_used_by<'e>(expressions: impl Iterator<Item = &'e CompiledExpr>) -> u64 {
    expressions.fold(0, |slots, expression| slots | expression.required_slots())
}

/// The names that are visible in a body, and the query that its lines are compiled to.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// The names with their slots; a later one hides an earlier one.
    names: Vec<(String, VariableSlot)>,
    query: CompiledQuery,
}

impl Scope {
    /// Returns the slot of a name; `None` if the name is not visible.
    pub(super) fn slot(&self, name: &str) -> Option<VariableSlot> {
        self.names.iter().rev().find(|(known, _)| known == name).map(|(_, slot)| *slot)
    }

    /// Returns the names that are visible, for the suggestions in error messages.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the names with their slots.
    pub(super) fn names_with_slots(&self) -> impl Iterator<Item = (&str, VariableSlot)> {
        self.names.iter().map(|(name, slot)| (name.as_str(), *slot))
    }

    /// Creates the scope of a block: it sees the outer names and has its own query.
    fn block_scope(&self) -> Self {
        let query = CompiledQuery { slots: self.query.slots, ..CompiledQuery::default() };
        Self { names: self.names.clone(), query }
    }

    /// Removes the name that was bound last, such as the variable of a comprehension after its end.
    pub(super) fn forget_last(&mut self) {
        self.names.pop();
    }
}

impl Compiler<'_> {
    /// Binds the name of a variable to a new slot, the index of its value during an evaluation; fails if the name is in
    /// scope already.
    pub(super) fn bind(&mut self, scope: &mut Scope, name: &Name) -> CompileResult<VariableSlot> {
        if scope.slot(&name.text).is_some() {
            let message = format!("`{}` is declared twice", name.text);
            return self.fail("duplicate-name", &name.span, message, "give the second variable another name");
        }
        let slot = self.next_slot(scope, &name.span)?;
        scope.names.push((name.text.clone(), slot));
        Ok(slot)
    }

    /// Allocates a slot, the index of a variable's value during an evaluation; fails if the statement has too many
    /// variables, since sets of slots are bits of a `u64`.
    fn next_slot(&mut self, scope: &mut Scope, span: &Span) -> CompileResult<VariableSlot> {
        if scope.query.slots >= MAX_SLOTS {
            let message = format!("the statement has more than {MAX_SLOTS} variables");
            return self.fail("too-many", span, message, "move conditions into a predicate");
        }
        scope.query.slots += 1;
        Ok(scope.query.slots - 1)
    }

    /// Declares a variable without a list. With the type of an event, such as `ToolCall`, it ranges over the events of
    /// the trace. With the type of a part, such as an image, a variable without a name (`holder`) ranges over the
    /// events, and the declared one over the parts of that event.
    fn declare_free(&mut self, name: &Name, ty: Type, scope: &mut Scope) -> CompileResult<()> {
        if ty.is_event() {
            let slot = self.bind(scope, name)?;
            scope.query.variables.push(Variable { slot, ty, domain: None });
            return Ok(());
        }
        let holder = self.next_slot(scope, &name.span)?;
        scope.query.variables.push(Variable { slot: holder, ty: ty.event_type(), domain: None });
        let slot = self.bind(scope, name)?;
        let domain = Some(CompiledExpr::Parts(Box::new(CompiledExpr::Slot(holder)), ty));
        scope.query.variables.push(Variable { slot, ty, domain });
        Ok(())
    }

    /// Compiles `forall:` or `count(...):` with its block. The block has its own variables and conditions, and sees the
    /// names of the enclosing body. In Flowgate's dialect, `count:` without bounds means `count(min=1):`, and causes a
    /// warning at `span`.
    pub(super) fn quantified(
        &mut self,
        quantifier: &Quantifier,
        body: &ConditionBody,
        span: &Span,
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let how = self.quantifier_kind(quantifier, span, scope)?;
        let mut inner = scope.block_scope();
        let compiled = self.body(body, &mut inner);
        // The block and the statement share one frame, so the slots of the block count for the statement as well.
        scope.query.slots = inner.query.slots;
        compiled?;
        let needs = outer_slots(&inner.query, &how);
        let CompiledQuery { variables, items, .. } = inner.query;
        // `forall` is tested by a search for a counterexample: the conditions form one test, evaluated when all
        // variables are bound.
        let ops = match how {
            QuantifierKind::Count { .. } => order_conditions(&variables, &items, needs),
            // A `not` around the block turns `ForAll` into `NotForAll` later, and keeps this search.
            QuantifierKind::ForAll { .. } | QuantifierKind::NotForAll => {
                let (tests, lets): (Vec<QueryItem>, Vec<QueryItem>) =
                    items.iter().cloned().partition(|item| matches!(item, QueryItem::Test(_)));
                let tests = tests.into_iter().map(|test| test.expression().clone()).collect();
                let mut ops = order_conditions(&variables, &lets, needs);
                ops.push(SearchOp::Test(CompiledExpr::Not(Box::new(CompiledExpr::And(tests)))));
                ops
            }
        };
        Ok(CompiledExpr::Quantified(Arc::new(QuantifiedBlock { how, variables, items, ops, needs })))
    }

    /// Compiles the head of a quantified block, `forall` or `count` with its bounds. Warns at `span` about a `count`
    /// without bounds.
    fn quantifier_kind(
        &mut self,
        quantifier: &Quantifier,
        span: &Span,
        scope: &mut Scope,
    ) -> CompileResult<QuantifierKind> {
        match quantifier {
            // In invariant-ai, `forall` over nothing holds.
            Quantifier::ForAll => {
                Ok(QuantifierKind::ForAll { or_none: self.plan.dialect == Dialect::Compat })
            }
            Quantifier::Count { min: None, max: None } if self.plan.dialect == Dialect::Flowgate => {
                let message = "`count:` has no bounds, so it holds if anything matches";
                let help = "write `count(min=1):`; in invariant-ai `count:` always holds";
                self.diagnostics.push(Diagnostic::warning("compat-count", span.clone(), message).help(help));
                Ok(QuantifierKind::Count { min: Some(CompiledExpr::Constant(Value::Int(1))), max: None })
            }
            Quantifier::Count { min, max } => {
                let mut compile_bound = |bound: &Option<Expr>| {
                    bound.as_ref().map(|bound| self.expression(bound, scope)).transpose()
                };
                Ok(QuantifierKind::Count { min: compile_bound(min)?, max: compile_bound(max)? })
            }
        }
    }

    /// Compiles the body of a statement about exactly one event (`label`, `require`, `payload`, `consent`, `endorse`)
    /// and returns its scope, with that event as variable 0. Rejects a body that looks at other events, or whose event
    /// is not of one of `types`; `expected` names these in the error message.
    pub(super) fn single_event_scope(
        &mut self,
        body: &ConditionBody,
        types: &[Type],
        expected: &str,
    ) -> CompileResult<Scope> {
        let mut scope = Scope::default();
        self.body(body, &mut scope)?;
        // The statement must not depend on other events, not even on their number, which is content as well.
        let looks_at_others = |line: &&BodyLine| {
            let mut found = false;
            line.expr().walk(&mut |expr| {
                // The calls that a message proposes are events of their own.
                let reads_calls = types.contains(&Type::Message) && self.may_read_calls(expr);
                found |= matches!(&*expr.kind, ExprKind::Quantified(..)) || reads_calls;
            });
            found
        };
        let reading_line = body.lines.iter().find(looks_at_others).map(|line| line.expr().span.clone());
        let forbidden =
            reading_line.or_else(|| self.calls_trace_reading_predicate(body).then(|| first_line_span(body)));
        if let Some(span) = forbidden {
            let message = "the condition reads other events, but the statement may depend on one event only";
            let help = "write a rule (`raise`, `ask`) instead, which may depend on several events";
            return self.fail("one-event", &span, message, help);
        }
        // Variables without a domain range over events. There must be one, which was declared first.
        let events: Vec<&Variable> = scope.query.variables.iter().filter(|v| v.domain.is_none()).collect();
        let declares_one_event =
            matches!(events.as_slice(), [only] if types.contains(&only.ty) && only.slot == 0);
        if declares_one_event {
            return Ok(scope);
        }
        let declared = names_of_events(&scope, &events);
        let (message, help) = wrong_events(&declared, types, expected);
        self.fail("one-event", &first_line_span(body), message, help)
    }

    /// Compiles all lines of a body into the scope's query. Every line is checked, even if another one has an error.
    pub(super) fn body(&mut self, body: &ConditionBody, scope: &mut Scope) -> CompileResult<()> {
        if body.lines.len() > MAX_LINES {
            let span = first_line_span(body);
            let message = format!("the statement has more than {MAX_LINES} conditions");
            return self.fail("too-many", &span, message, "move conditions into predicates");
        }
        // Variables over events may be used in any line, so they are declared first.
        let declared: Vec<bool> = body
            .lines
            .iter()
            .map(|line| match line {
                BodyLine::Condition(expr) => self.declare_events(expr, scope).is_ok(),
                BodyLine::Let(..) => true,
            })
            .collect();
        let mut has_error = declared.contains(&false);
        // A line whose declaration has failed is skipped: its other errors would only follow from that.
        for (line, _) in body.lines.iter().zip(declared).filter(|(_, declared)| *declared) {
            let done = match line {
                BodyLine::Condition(expr) => self.condition(expr, scope),
                BodyLine::Let(name, value) => self.expression(value, scope).and_then(|value| {
                    let slot = self.bind(scope, name)?;
                    scope.query.items.push(QueryItem::Let(slot, value));
                    Ok(())
                }),
            };
            has_error |= done.is_err();
        }
        if has_error { Err(super::ReportedCompileError) } else { Ok(()) }
    }

    /// Declares the variables over events that an expression contains, such as `(call: ToolCall)`, but not those in its
    /// blocks (`forall:`), which have a scope of their own.
    fn declare_events(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<()> {
        match &*expr.kind {
            ExprKind::Typed(name, ty) => {
                let ty = self.variable_type(name, ty)?;
                if ty == Type::Any {
                    let message =
                        format!("the variable `{}` has the type `any`, but no list to range over", name.text);
                    let help = format!("write `({}: any) in LIST`", name.text);
                    return self.fail("no-domain", &expr.span, message, help);
                }
                self.declare_free(name, ty, scope)
            }
            ExprKind::Not(a) | ExprKind::Negate(a) | ExprKind::Member(a, _) => self.declare_events(a, scope),
            ExprKind::And(items) | ExprKind::Or(items) | ExprKind::List(items) => {
                items.iter().try_for_each(|item| self.declare_events(item, scope))
            }
            ExprKind::Compare(first, rest) => {
                // `(x: T) in list` declares no event, since it ranges over the list; except for the calls of a message,
                // which are events.
                let is_in_list =
                    matches!(rest.as_slice(), [(Comparison::In, list)] if !is_call_of_message(first, list));
                let ranges_over_list = is_in_list && matches!(&*first.kind, ExprKind::Typed(..));
                if !ranges_over_list {
                    self.declare_events(first, scope)?;
                }
                rest.iter().try_for_each(|(_, expr)| self.declare_events(expr, scope))
            }
            ExprKind::Call(_, arguments, _) => {
                arguments.iter().try_for_each(|item| self.declare_events(item, scope))
            }
            // A block has a scope of its own. A declaration anywhere else is an error (`no-domain`), which the
            // compilation of the expression reports.
            _ => Ok(()),
        }
    }

    /// Returns the type that the declaration of a variable names; fails if there is no such type. The error underlines
    /// the declaration, from `variable` to `name`.
    pub(super) fn variable_type(&mut self, variable: &Name, name: &Name) -> CompileResult<Type> {
        if let Some(ty) = self.named_type(&name.text) {
            return Ok(ty);
        }
        let known = Type::NAMES.map(|(known, _)| known);
        let help = match nearest(&name.text, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are: {}", known.join(", ")),
        };
        let span = variable.span.start..name.span.end;
        self.fail("unknown-type", &span, format!("unknown type `{}`", name.text), help)
    }

    /// Returns the type with this name: built in or imported.
    pub(super) fn named_type(&self, name: &str) -> Option<Type> {
        let known = Type::NAMES.iter().find(|(known, _)| *known == name).map(|(_, ty)| *ty);
        known.or_else(|| self.imports.types.get(name).copied())
    }

    /// Compiles a condition and adds its tests to the query of `scope`: each part of an `and` separately. A declaration
    /// `(x: T)` alone adds no test, because its variable is declared before.
    fn condition(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<()> {
        match &*expr.kind {
            ExprKind::And(items) => items.iter().try_for_each(|item| self.condition(item, scope)),
            ExprKind::Typed(..) => Ok(()),
            ExprKind::Compare(first, rest) => match (&*first.kind, rest.as_slice()) {
                // `(x: T) in LIST` declares a variable. It adds a test only if the list is `message.tool_calls`.
                (ExprKind::Typed(name, ty), [(Comparison::In, list)]) => {
                    self.compile_ranged_variable(first, name, ty, list, scope).map(|test| {
                        scope.query.items.extend(test.map(QueryItem::Test));
                    })
                }
                _ => self.test(expr, scope),
            },
            _ => self.test(expr, scope),
        }
    }

    /// Compiles `(x: T) in list`: declares a variable that ranges over the list, and returns `None`, since nothing is
    /// left to test. In `(call: ToolCall) in message.tool_calls`, the variable ranges over events and is declared
    /// already, so the result is the test that the message proposes the call. `typed` is the declaration `x: T`, and
    /// `name` and `ty` are its parts.
    pub(super) fn compile_ranged_variable(
        &mut self,
        typed: &Expr,
        name: &Name,
        ty: &Name,
        list: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<Option<CompiledExpr>> {
        if let (true, ExprKind::Member(message, _)) = (is_call_of_message(typed, list), &*list.kind) {
            let message = self.expression(message, scope)?;
            // `declare_events` gives the variable a slot, except within the kinds of expressions that it does not
            // visit, such as `a if b else c`.
            let Some(call) = scope.slot(&name.text) else {
                let problem = format!("the variable `{}` is declared within an expression", name.text);
                let help =
                    "write the declaration on a line of its own: `(call: ToolCall) in message.tool_calls`";
                return self.fail("no-domain", &typed.span, problem, help);
            };
            return Ok(Some(CompiledExpr::Proposes(Box::new([CompiledExpr::Slot(call), message]))));
        }
        // A wrong type fails only at the end: the list is compiled and the name bound first, so that their errors are
        // reported, too.
        let ty = self.variable_type(name, ty);
        let domain = self.expression(list, scope)?;
        let slot = self.bind(scope, name)?;
        scope.query.variables.push(Variable { slot, ty: ty?, domain: Some(domain) });
        Ok(None)
    }

    /// Compiles an expression and adds it to the query as a test. Fails if the query already has too many conditions:
    /// they are evaluated recursively, so their number is limited to protect the stack.
    fn test(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<()> {
        let test = self.expression(expr, scope)?;
        if scope.query.items.len() > MAX_LINES {
            let message = format!("the statement has more than {MAX_LINES} conditions");
            return self.fail("too-many", &expr.span, message, "move conditions into predicates");
        }
        // A chain of comparisons is a conjunction. Each part becomes a test of its own, so that the search can evaluate
        // it as early as possible.
        match test {
            CompiledExpr::And(parts) => scope.query.items.extend(parts.into_iter().map(QueryItem::Test)),
            test => scope.query.items.push(QueryItem::Test(test)),
        }
        Ok(())
    }

    /// Returns the typed variable in a slot; `None` for a name that is defined by `:=`.
    pub(super) fn variable<'s>(&self, scope: &'s Scope, slot: VariableSlot) -> Option<&'s Variable> {
        scope.query.variables.iter().find(|variable| variable.slot == slot)
    }

    /// Returns the query of a scope with its `tools`: the patterns that the tool of the statement's event must match. A
    /// statement is selected only for tools that match all of them, and skipped for every other tool. The event is that
    /// of the first variable, in slot 0.
    pub(super) fn finish(&self, scope: Scope) -> CompiledQuery {
        let mut query = scope.query;
        // Only an `is tool:` test that is a conjunct of the body by itself is necessary for the statement to apply. One
        // within `or`, `not` or another expression is not.
        let tools = query.items.iter().filter_map(|item| match item {
            QueryItem::Test(CompiledExpr::IsTool(event, pattern, _))
                if matches!(**event, CompiledExpr::Slot(0)) =>
            {
                Some(*pattern)
            }
            _ => None,
        });
        query.tools = tools.collect();
        query
    }

    /// Returns the query of a statement about one event, which is the variable in slot 0. The steps of its search
    /// (`ops`) are ordered for a search that begins with this event.
    pub(super) fn granting_query(&self, scope: Scope) -> CompiledQuery {
        let mut query = self.finish(scope);
        // `1` is a set of slots as bits, those with a value before the search: bit 0 is slot 0, the event.
        query.ops = query.order(1);
        query
    }

    /// Marks the query of a statement as quiet if every variable over a list leads to the region that the statement
    /// labels or endorses, whose path begins at the variable `root`. Normally, an iteration over the items of a list
    /// counts as a read of the list, and so raises the label of the result. A quiet iteration does not count: an
    /// observer of a labelled item already knows that the list has this item.
    pub(super) fn mark_quiet_iteration(&self, scope: &mut Scope, root: VariableSlot) {
        // The variables through which the region is reached, as bits: `root`, and those that their lists refer to. A
        // list refers to earlier variables only, so one pass from the last variable to the first finds them all.
        let mut needed = CompiledExpr::Slot(root).required_slots();
        for variable in scope.query.variables.iter().rev() {
            if needed & CompiledExpr::Slot(variable.slot).required_slots() != 0
                && let Some(domain) = &variable.domain
            {
                needed |= domain.required_slots();
            }
        }
        // Whether a variable ranges over a list that does not lead to the region.
        let leads_elsewhere = scope
            .query
            .variables
            .iter()
            .any(|v| v.domain.is_some() && needed & CompiledExpr::Slot(v.slot).required_slots() == 0);
        scope.query.is_quiet = !leads_elsewhere;
    }
}

/// Returns whether `typed` and `list` are the two sides of `(call: ToolCall) in message.tool_calls`.
fn is_call_of_message(typed: &Expr, list: &Expr) -> bool {
    matches!((&*typed.kind, &*list.kind), (ExprKind::Typed(_, ty), ExprKind::Member(_, name))
        if ty.text == "ToolCall" && name.text == "tool_calls")
}
