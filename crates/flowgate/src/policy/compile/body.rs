//! Bodies: variables, conditions and definitions.

use super::super::diagnostic::{Span, nearest};
use super::super::plan::{Ex, Item, MAX_SLOTS, Query, Slot, Type, Variable};
use super::super::syntax::{Body, BodyLine, Comparison, Expr, ExprKind, Name};
use super::{Compiled, Compiler};

/// How many conditions a statement may have: they are evaluated one inside the other.
const MAX_LINES: usize = 200;

/// Where a body begins.
fn scope_span(body: &Body) -> Span {
    body.lines.first().map_or(0..0, |line| match line {
        BodyLine::Condition(expr) => expr.span.clone(),
        BodyLine::Let(name, _) => name.span.clone(),
    })
}

/// The names that are known in a body, and what is known of them.
#[derive(Debug, Default)]
pub(super) struct Scope {
    names: Vec<(String, Slot)>,
    query: Query,
}

impl Scope {
    pub(super) fn slot(&self, name: &str) -> Option<Slot> {
        self.names.iter().rev().find(|(known, _)| known == name).map(|(_, slot)| *slot)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// Takes the last name out of scope again.
    pub(super) fn forget_last(&mut self) {
        self.names.pop();
    }
}

impl Compiler<'_> {
    /// Gives a name the next slot.
    pub(super) fn bind(&mut self, scope: &mut Scope, name: &Name) -> Compiled<Slot> {
        if scope.slot(&name.text).is_some() {
            let message = format!("`{}` is declared twice", name.text);
            return self.fail("duplicate-name", &name.span, message, "give the second one another name");
        }
        if scope.query.slots >= MAX_SLOTS {
            let message = format!("the statement has more than {MAX_SLOTS} variables");
            return self.fail("too-many", &name.span, message, "move conditions into a predicate");
        }
        let slot = scope.query.slots;
        scope.query.slots += 1;
        scope.names.push((name.text.clone(), slot));
        Ok(slot)
    }

    /// A body that speaks of exactly one event, of one of the given types, which gets slot 0.
    pub(super) fn one_event(&mut self, body: &Body, types: &[Type], what: &str) -> Compiled<Scope> {
        let mut scope = Scope::default();
        self.body(body, &mut scope)?;
        let events: Vec<&Variable> = scope.query.variables.iter().filter(|v| v.domain.is_none()).collect();
        let fits = matches!(events.as_slice(), [only] if types.contains(&only.ty) && only.slot == 0);
        if fits {
            return Ok(scope);
        }
        let span = scope_span(body);
        let message = format!("the statement speaks of one event, {what}");
        self.fail(
            "one-event",
            &span,
            message,
            "declare it in the first condition, such as `(call: ToolCall) is tool:NAME`",
        )
    }

    /// Compiles all lines into the scope's query.
    pub(super) fn body(&mut self, body: &Body, scope: &mut Scope) -> Compiled<()> {
        // Variables over events may be used in any line, so they are declared first.
        if body.lines.len() > MAX_LINES {
            let span = scope_span(body);
            let message = format!("the statement has more than {MAX_LINES} conditions");
            return self.fail("too-many", &span, message, "move conditions into predicates");
        }
        let declared: Vec<bool> = body
            .lines
            .iter()
            .map(|line| match line {
                BodyLine::Condition(expr) => self.declare_events(expr, scope).is_ok(),
                BodyLine::Let(..) => true,
            })
            .collect();
        let mut broken = declared.contains(&false);
        for (line, _) in body.lines.iter().zip(declared).filter(|(_, declared)| *declared) {
            let done = match line {
                BodyLine::Condition(expr) => self.condition(expr, scope),
                BodyLine::Let(name, value) => self.expression(value, scope).and_then(|value| {
                    let slot = self.bind(scope, name)?;
                    scope.query.items.push(Item::Let(slot, value));
                    Ok(())
                }),
            };
            broken |= done.is_err();
        }
        if broken { Err(super::Broken) } else { Ok(()) }
    }

    fn declare_events(&mut self, expr: &Expr, scope: &mut Scope) -> Compiled<()> {
        match &*expr.kind {
            ExprKind::Typed(name, ty) => {
                let ty = self.ty(ty)?;
                if !ty.is_event() {
                    // Declared with its domain; see `condition`.
                    return Ok(());
                }
                let slot = self.bind(scope, name)?;
                scope.query.variables.push(Variable { slot, ty, domain: None });
                Ok(())
            }
            ExprKind::Not(a) | ExprKind::Negate(a) | ExprKind::Member(a, _) => self.declare_events(a, scope),
            ExprKind::And(items) | ExprKind::Or(items) | ExprKind::List(items) => {
                items.iter().try_for_each(|item| self.declare_events(item, scope))
            }
            ExprKind::Compare(first, rest) => {
                // `(x: Message) in list` ranges over the list.
                if !matches!(rest.as_slice(), [(Comparison::In, _)]) {
                    self.declare_events(first, scope)?;
                }
                rest.iter().try_for_each(|(_, expr)| self.declare_events(expr, scope))
            }
            ExprKind::Call(_, arguments, _) => {
                arguments.iter().try_for_each(|item| self.declare_events(item, scope))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ty(&mut self, name: &Name) -> Compiled<Type> {
        if let Some((_, ty)) = Type::NAMES.iter().find(|(known, _)| *known == name.text) {
            return Ok(*ty);
        }
        let known = Type::NAMES.map(|(known, _)| known);
        let help = match nearest(&name.text, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are: {}", known.join(", ")),
        };
        self.fail("unknown-type", &name.span, format!("unknown type `{}`", name.text), help)
    }

    fn condition(&mut self, expr: &Expr, scope: &mut Scope) -> Compiled<()> {
        match &*expr.kind {
            ExprKind::And(items) => items.iter().try_for_each(|item| self.condition(item, scope)),
            ExprKind::Typed(name, ty) if scope.slot(&name.text).is_none() => {
                let message = format!("`{}` is no event, so it must range over something", name.text);
                let help = format!("write `({}: {}) in LIST`", name.text, ty.text);
                self.fail("no-domain", &expr.span, message, help)
            }
            ExprKind::Typed(..) => Ok(()),
            ExprKind::Compare(first, rest) => match (&*first.kind, rest.as_slice()) {
                (ExprKind::Typed(name, ty), [(Comparison::In, list)]) => {
                    let domain = self.expression(list, scope)?;
                    let ty = self.ty(ty)?;
                    let slot = self.bind(scope, name)?;
                    scope.query.variables.push(Variable { slot, ty, domain: Some(domain) });
                    Ok(())
                }
                _ => self.test(expr, scope),
            },
            _ => self.test(expr, scope),
        }
    }

    fn test(&mut self, expr: &Expr, scope: &mut Scope) -> Compiled<()> {
        let test = self.expression(expr, scope)?;
        if scope.query.items.len() > MAX_LINES {
            let message = format!("the statement has more than {MAX_LINES} conditions");
            return self.fail("too-many", &expr.span, message, "move conditions into predicates");
        }
        // A chain of comparisons is a conjunction; each part is tested as soon as it can be.
        match test {
            Ex::And(parts) => scope.query.items.extend(parts.into_iter().map(Item::Test)),
            test => scope.query.items.push(Item::Test(test)),
        }
        Ok(())
    }

    pub(super) fn variable<'s>(&self, scope: &'s Scope, slot: Slot) -> Option<&'s Variable> {
        scope.query.variables.iter().find(|variable| variable.slot == slot)
    }

    /// The query of a scope, with the tools that its first event must match.
    pub(super) fn finish(&self, scope: Scope) -> Query {
        let mut query = scope.query;
        let tools = query.items.iter().filter_map(|item| match item {
            Item::Test(Ex::IsTool(event, pattern, _)) if matches!(**event, Ex::Slot(0)) => Some(*pattern),
            _ => None,
        });
        query.tools = tools.collect();
        query
    }

    /// The query of a statement that grants something to the event in slot 0.
    pub(super) fn granting(&self, scope: Scope) -> Query {
        let mut query = self.finish(scope);
        query.ops = query.order(1);
        query
    }

    /// Going through the rows of which one is labelled does not count as looking at the structure around
    /// them: that a labelled row exists is known to whoever sees it.
    pub(super) fn quiet_iteration(&self, scope: &mut Scope, root: Slot) {
        let mut needed = Ex::Slot(root).needs();
        for variable in scope.query.variables.iter().rev() {
            if needed & Ex::Slot(variable.slot).needs() != 0
                && let Some(domain) = &variable.domain
            {
                needed |= domain.needs();
            }
        }
        let outside = scope
            .query
            .variables
            .iter()
            .any(|v| v.domain.is_some() && needed & Ex::Slot(v.slot).needs() == 0);
        scope.query.is_quiet = !outside;
    }

    /// A statement that labels may look at its own event only.
    pub(super) fn stays_in_event(&mut self, body: &Body, span: &Span) -> Compiled<()> {
        if has_flow(body) || self.calls_looking_around(body) {
            let help =
                "labels come before influence: write a rule (`raise`, `ask`) that uses the flow instead";
            return self.fail("label-flow", span, "a label must not depend on flows between events", help);
        }
        Ok(())
    }

    /// Whether a body calls a predicate that looks at the trace and not only at its arguments.
    pub(super) fn calls_looking_around(&self, body: &Body) -> bool {
        lines(body).any(|expr| {
            let mut found = false;
            walk(expr, &mut |expr| {
                if let ExprKind::Call(function, ..) = &*expr.kind
                    && let ExprKind::Name(name) = &*function.kind
                    && let Some(index) = self.predicates.get(name.as_str())
                {
                    found |= self.predicate_looks_around.get(*index).copied().unwrap_or(true);
                }
            });
            found
        })
    }
}

/// Whether any condition looks at the content of events, and not only at their kind and tool.
pub(super) fn reads_content(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Test(Ex::IsTool(_, _, shape)) => shape.is_some(),
        Item::Test(Ex::Constant(_)) => false,
        _ => true,
    })
}

/// Whether a field of this name is asked for anywhere.
pub(super) fn mentions(body: &Body, field: &str) -> bool {
    lines(body).any(|expr| {
        let mut found = false;
        walk(expr, &mut |expr| {
            found |= matches!(&*expr.kind, ExprKind::Member(_, name) if name.text == field)
        });
        found
    })
}

fn lines(body: &Body) -> impl Iterator<Item = &Expr> {
    body.lines.iter().map(|line| match line {
        BodyLine::Condition(expr) | BodyLine::Let(_, expr) => expr,
    })
}

/// Whether a body has event variables of its own or compares the order of events.
pub(super) fn looks_around(body: &Body) -> bool {
    lines(body).any(|expr| {
        let mut found = false;
        walk(expr, &mut |expr| found |= matches!(&*expr.kind, ExprKind::Typed(_, ty) if matches!(ty.text.as_str(), "Message" | "ToolCall" | "ToolOutput")));
        found
    }) || has_flow(body)
}

fn has_flow(body: &Body) -> bool {
    let flow =
        |op: &Comparison| matches!(op, Comparison::Before | Comparison::RightBefore | Comparison::Influences);
    lines(body).any(|expr| {
        let mut found = false;
        walk(expr, &mut |expr| {
            if let ExprKind::Compare(_, rest) = &*expr.kind {
                found |= rest.iter().any(|(op, _)| flow(op));
            }
        });
        found
    })
}

/// Visits an expression and everything in it.
pub(super) fn walk(expr: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(expr);
    match &*expr.kind {
        ExprKind::List(items) | ExprKind::And(items) | ExprKind::Or(items) => {
            items.iter().for_each(|e| walk(e, visit))
        }
        ExprKind::Dict(entries) => entries.iter().for_each(|(_, e)| walk(e, visit)),
        ExprKind::Member(a, _) | ExprKind::Each(a) | ExprKind::Not(a) | ExprKind::Negate(a) => walk(a, visit),
        ExprKind::Index(a, b) | ExprKind::Arithmetic(_, a, b) => {
            [a, b].into_iter().for_each(|e| walk(e, visit))
        }
        ExprKind::Slice(a, b, c) => {
            [Some(a), b.as_ref(), c.as_ref()].into_iter().flatten().for_each(|e| walk(e, visit))
        }
        ExprKind::Call(f, arguments, named) => {
            walk(f, visit);
            arguments.iter().chain(named.iter().map(|(_, e)| e)).for_each(|e| walk(e, visit));
        }
        ExprKind::Compare(first, rest) => {
            walk(first, visit);
            rest.iter().for_each(|(_, e)| walk(e, visit));
        }
        ExprKind::Choice { value, condition, other } => {
            [value, condition, other].into_iter().for_each(|e| walk(e, visit));
        }
        ExprKind::Comprehension { value, list, condition, .. } => {
            [Some(value), Some(list), condition.as_ref()].into_iter().flatten().for_each(|e| walk(e, visit));
        }
        ExprKind::Tool(tool) => tool.arguments.iter().for_each(|e| walk(e, visit)),
        _ => {}
    }
}
