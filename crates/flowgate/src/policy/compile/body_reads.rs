//! Says what the body of a statement reads: the content of an event, other events, or predicates that read the trace.
//! Only rules may depend on several events, so the compilers of the other statements reject bodies that read other
//! events, except where `endorse` and `consent` test whether trusted text lists a value. [`super::body`] compiles the
//! bodies.
//!
//! A *flow* is a relation between two events, which a flow operator tests: `a -> b` holds if the agent of `b` had seen
//! `a` before `b` happened. A label statement cannot test flows: it may depend on one event only, and flows to later
//! events do not exist yet when the event is labelled.

use super::super::diagnostic::Span;
use super::super::plan::{CompiledExpr, QueryItem};
use super::super::syntax::{BodyLine, Comparison, ConditionBody, Expr, ExprKind};
use super::{CompileResult, Compiler};

impl Compiler<'_> {
    /// Fails if the condition of a label statement depends on other events: by a flow operator, or by a predicate that
    /// reads the trace.
    pub(super) fn check_single_event(&mut self, body: &ConditionBody, span: &Span) -> CompileResult<()> {
        if has_flow(body) || self.calls_trace_reading_predicate(body) {
            let help =
                "labels are computed before flows: write a rule (`raise`, `ask`) that uses the flow instead";
            return self.fail(
                "label-flow",
                span,
                "the condition of a label depends on a flow between events",
                help,
            );
        }
        Ok(())
    }

    /// Returns whether a body calls a predicate that reads the trace in addition to its arguments.
    pub(super) fn calls_trace_reading_predicate(&self, body: &ConditionBody) -> bool {
        let looks = |index: &usize| self.predicate_looks_around.get(*index).copied().unwrap_or(true);
        self.called_predicates(body).iter().any(looks)
    }

    /// Returns the indices of the predicates of the policy that a body calls; one that it calls twice occurs twice.
    pub(super) fn called_predicates(&self, body: &ConditionBody) -> Vec<usize> {
        let mut called = Vec::new();
        for line in lines(body) {
            line.walk(&mut |expr| {
                if let ExprKind::Call(function, ..) = &*expr.kind
                    && let ExprKind::Name(name) = &*function.kind
                {
                    called.extend(self.predicates.get(name.as_str()));
                }
            });
        }
        called
    }

    /// Returns whether an expression may read the calls that a message proposes, which are events other than the
    /// message.
    pub(super) fn may_read_calls(&self, expr: &Expr) -> bool {
        match &*expr.kind {
            ExprKind::Member(_, name) => name.text == "tool_calls",
            ExprKind::Index(object, key) => match (&*object.kind, &*key.kind) {
                (_, ExprKind::Str(key)) => key == "tool_calls",
                // A number is the position of an item in a list, not a key.
                (_, ExprKind::Int(_) | ExprKind::Negate(_)) => false,
                // With a computed key, which may be `tool_calls`: a variable may be a message, but a constant, the
                // parameters (`input`) and any other expression are not.
                (ExprKind::Name(name), _) => !self.constants.contains_key(name.as_str()) && name != "input",
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns whether the body of a predicate reads events other than its arguments: it declares variables over
    /// events, counts events, compares their order, or reads the calls of a message.
    pub(super) fn reads_other_events(&self, body: &ConditionBody) -> bool {
        let reads_in_line = |line: &Expr| {
            let mut found = false;
            line.walk(&mut |expr| {
                found |= match &*expr.kind {
                    ExprKind::Quantified(..) => true,
                    // `(call: ToolCall) in LIST`: the calls are events, whatever the list is.
                    ExprKind::Compare(first, rest) if matches!(rest.as_slice(), [(Comparison::In, _)]) => {
                        let types_of_calls = ["ToolCall", "Function"];
                        matches!(&*first.kind, ExprKind::Typed(_, ty) if types_of_calls.contains(&ty.text.as_str()))
                    }
                    _ => self.may_read_calls(expr),
                }
            });
            found
        };
        lines(body).any(reads_in_line) || has_flow(body) || has_free_variable(body)
    }
}

/// Returns whether a condition or definition may read the content of the event, and not only its kind and tool.
pub(super) fn reads_content(items: &[QueryItem]) -> bool {
    items.iter().any(|item| match item {
        // A shape, as in `is tool:NAME({...})`, tests the arguments.
        QueryItem::Test(CompiledExpr::IsTool(_, _, shape)) => shape.is_some(),
        // A constant reads no event.
        QueryItem::Test(CompiledExpr::Constant(_)) => false,
        _ => true,
    })
}

/// Returns whether an expression in a body accesses a field of this name, such as `is_error` in `out.is_error`.
pub(super) fn mentions(body: &ConditionBody, field: &str) -> bool {
    lines(body).any(|expr| {
        let mut found = false;
        expr.walk(&mut |expr| {
            found |= matches!(&*expr.kind, ExprKind::Member(_, name) if name.text == field)
        });
        found
    })
}

/// Returns the condition or the defined value of each line.
fn lines(body: &ConditionBody) -> impl Iterator<Item = &Expr> {
    body.lines.iter().map(BodyLine::expr)
}

/// Returns whether a body declares a variable without a list, which ranges over the whole trace. A line contains such a
/// declaration if it has more declarations `x: T` (`typed`) than declarations with a list, `(x: T) in LIST` (`ranged`).
fn has_free_variable(body: &ConditionBody) -> bool {
    lines(body).any(|expr| {
        let (mut typed, mut ranged) = (0, 0);
        expr.walk(&mut |expr| match &*expr.kind {
            ExprKind::Typed(..) => typed += 1,
            ExprKind::Compare(first, rest)
                if matches!(&*first.kind, ExprKind::Typed(..))
                    && matches!(rest.as_slice(), [(Comparison::In, _)]) =>
            {
                ranged += 1;
            }
            _ => {}
        });
        typed > ranged
    })
}

/// Returns whether a body compares events by a flow operator (`->`, `~>`, `=>`).
fn has_flow(body: &ConditionBody) -> bool {
    let flow =
        |op: &Comparison| matches!(op, Comparison::Before | Comparison::RightBefore | Comparison::Influences);
    lines(body).any(|expr| {
        let mut found = false;
        expr.walk(&mut |expr| {
            if let ExprKind::Compare(_, rest) = &*expr.kind {
                found |= rest.iter().any(|(op, _)| flow(op));
            }
        });
        found
    })
}
