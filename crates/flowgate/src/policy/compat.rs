//! Warns about expressions that invariant-ai reads differently from Flowgate. Flowgate's language is derived from the
//! language of invariant-ai, the policy analyzer of *AI Agents with Formal Security Guarantees*.
//! [`Policy::load`](super::Policy::load) calls [`warnings`] for a policy without errors.
//!
//! The grammar of invariant-ai is ambiguous and resolves to unintended readings: it reads
//! `a == 1 and b == 2 and c == 3` as `(a == 1) and (((b == 2) and c) == 3)`. The author of a policy that was written
//! for invariant-ai receives a warning for each such expression. A policy with a lattice cannot have been written for
//! invariant-ai and is not checked.

use super::diagnostic::{Diagnostic, Span};
use super::syntax::{
    Arithmetic, BodyLine, Comparison, Expr, ExprKind, PolicyFile, Quantifier, StatementKind,
};

/// Functions that return a list. A call of one of them, used as a condition, never holds in invariant-ai.
const LISTS: &[&str] = &[
    "secrets",
    "pii",
    "find",
    "copyright",
    "unicode",
    "links",
    "text",
    "image",
    "semgrep",
    "tuple",
    "splitlines",
    "split",
    "keys",
    "values",
    "items",
];

/// Returns a warning for each expression that invariant-ai reads differently, in the statements that invariant-ai has:
/// rules, predicates and constants. `source` is the text of the policy. A policy with a lattice gets no warning, since
/// only Flowgate has lattices and the policy was therefore not written for invariant-ai.
pub(super) fn warnings(file: &PolicyFile, source: &str) -> Vec<Diagnostic> {
    let mut check = CompatibilityCheck { source, warnings: Vec::new() };
    if file.statements.iter().any(|statement| matches!(statement.kind, StatementKind::Lattice { .. })) {
        return check.warnings;
    }
    for statement in &file.statements {
        match &statement.kind {
            StatementKind::Rule { message, body, .. } => {
                check.check_expression(message);
                check.check_lines(&body.lines);
            }
            StatementKind::Predicate { body, .. } => check.check_lines(&body.lines),
            StatementKind::Constant { value, .. } => check.check_expression(value),
            _ => {}
        }
    }
    check.warnings
}

/// Collects the warnings about the expressions of one policy.
struct CompatibilityCheck<'a> {
    source: &'a str,
    warnings: Vec<Diagnostic>,
}

impl CompatibilityCheck<'_> {
    /// Adds a warning about the expression at `span`; `help` says what to write instead.
    fn warn(&mut self, code: &'static str, span: &Span, message: &str, help: &str) {
        self.warnings.push(Diagnostic::warning(code, span.clone(), message).help(help));
    }

    /// Checks the lines of a body and their expressions. Warns about each condition whose value is a list, a text or a
    /// number: in invariant-ai it never holds, whereas in Flowgate it holds unless the value is empty or 0.
    fn check_lines(&mut self, lines: &[BodyLine]) {
        for line in lines {
            if let BodyLine::Condition(expr) = line
                && is_no_truth_value(expr)
            {
                let message = "in invariant-ai a condition holds only if it is `True`, so this condition, which is a list, a text or a number, never holds there";
                self.warn(
                    "compat-truth",
                    &expr.span,
                    message,
                    "write `any(...)`, which means the same in Flowgate and in invariant-ai",
                );
            }
            self.check_expression(line.expr());
        }
    }

    /// Warns if invariant-ai reads an expression or one of its subexpressions differently.
    fn check_expression(&mut self, expr: &Expr) {
        match &*expr.kind {
            ExprKind::Quantified(quantifier, body) => {
                if *quantifier == Quantifier::ForAll {
                    let message = "in invariant-ai `forall` holds if nothing matches its declarations";
                    self.warn(
                        "compat-forall",
                        &expr.span,
                        message,
                        "in Flowgate `forall` holds only if something matches its declarations; check that the rule is right if nothing matches",
                    );
                }
                self.check_lines(&body.lines);
                // The lines of the block are its subexpressions, so they must not be checked again below.
                return;
            }
            ExprKind::And(items) | ExprKind::Or(items) => self.check_connective(expr, items),
            ExprKind::Not(inner) if matches!(&*inner.kind, ExprKind::Compare(..)) && !inner.is_grouped => {
                let message = "invariant-ai reads `not a == b` as `(not a) == b`";
                let help = "write `not (a == b)`, which means the same in Flowgate and in invariant-ai";
                self.warn("compat-precedence", &expr.span, message, help);
            }
            ExprKind::Choice { value, condition, other } => {
                let is_bare_comparison =
                    |expr: &Expr| matches!(&*expr.kind, ExprKind::Compare(..)) && !expr.is_grouped;
                if [value, condition, other].into_iter().any(is_bare_comparison) {
                    let message = "invariant-ai binds `if` and `else` tighter than comparisons";
                    self.warn(
                        "compat-precedence",
                        &expr.span,
                        message,
                        "put comparisons in parentheses, which means the same in Flowgate and in invariant-ai",
                    );
                }
            }
            ExprKind::Arithmetic(Arithmetic::Power, _, right)
                if matches!(&*right.kind, ExprKind::Arithmetic(Arithmetic::Power, ..))
                    && !right.is_grouped =>
            {
                let message = "invariant-ai reads `a ** b ** c` as `(a ** b) ** c`";
                self.warn(
                    "compat-precedence",
                    &expr.span,
                    message,
                    "write parentheses, which means the same in Flowgate and in invariant-ai",
                );
            }
            ExprKind::Compare(_, rest) => self.check_comparison(expr, rest),
            ExprKind::Format(_) => {
                let message = "invariant-ai does not replace `{...}` in f-strings by values";
                self.warn(
                    "compat-text",
                    &expr.span,
                    message,
                    "invariant-ai does not fill in `{...}` and compares with the text as it is written, braces included; leave out the `f` if this text is meant",
                );
            }
            ExprKind::Str(_) => self.check_text(expr),
            ExprKind::List(_) if self.source_text(&expr.span).starts_with('(') => {
                let message = "invariant-ai reads `(a, b)` as `a`";
                self.warn(
                    "compat-tuple",
                    &expr.span,
                    message,
                    "write `[a, b]`, which means the same in Flowgate and in invariant-ai",
                );
            }
            _ => {}
        }
        expr.children().into_iter().for_each(|child| self.check_expression(child));
    }

    /// Warns if invariant-ai groups the operands `items` of `expr`, an `and` or an `or`, differently. That happens in
    /// two cases:
    ///
    /// * there are three or more operands, and one after the first is a comparison or a negation without parentheses;
    /// * an operand of an `or` after the first is an `and` without parentheses.
    fn check_connective(&mut self, expr: &Expr, items: &[Expr]) {
        // The operands of nested `and` and `or` without parentheses count as well.
        let mut operands = Vec::new();
        flatten(items, &mut operands);
        let is_compound =
            |expr: &Expr| matches!(&*expr.kind, ExprKind::Compare(..) | ExprKind::Not(_)) && !expr.is_grouped;
        let is_bare_and = |item: &Expr| matches!(&*item.kind, ExprKind::And(_)) && !item.is_grouped;
        let regroups_compound = operands.len() > 2 && operands.iter().skip(1).any(|item| is_compound(item));
        if regroups_compound || items.iter().skip(1).any(is_bare_and) {
            let message = "invariant-ai groups three or more conditions joined by `and` and `or` differently";
            let help = "put each condition in parentheses or on a separate line, which means the same in Flowgate and in invariant-ai";
            self.warn("compat-precedence", &expr.span, message, help);
        }
    }

    /// Warns about a comparison that invariant-ai reads differently: a chain such as `a < b < c`, or `contains_only`.
    /// Chains of flow operators, such as `a -> b -> c`, have the same meaning in both.
    fn check_comparison(&mut self, expr: &Expr, rest: &[(Comparison, Expr)]) {
        let is_flow = |op: &Comparison| {
            matches!(op, Comparison::Before | Comparison::RightBefore | Comparison::Influences)
        };
        if rest.len() > 1 && !rest.iter().all(|(op, _)| is_flow(op)) {
            let message = "invariant-ai reads `a < b < c` as `(a < b) < c`";
            self.warn("compat-precedence", &expr.span, message, "write `a < b and b < c`");
        }
        if rest.iter().any(|(op, _)| *op == Comparison::ContainsOnly) {
            let message = "in invariant-ai `a contains_only b` holds if `a` contains all of `b`";
            self.warn(
                "compat-contains-only",
                &expr.span,
                message,
                "in Flowgate `a contains_only b` holds if `b` contains all of `a`; write `b contains_only a` for the meaning of invariant-ai",
            );
        }
    }

    /// Warns about a text literal with an escape such as `\n`, which invariant-ai does not replace. A literal with the
    /// prefix `r` has no escapes in either language, so it needs no warning.
    fn check_text(&mut self, expr: &Expr) {
        let spelled = self.source_text(&expr.span);
        let is_escaped = ["\\n", "\\t", "\\r", "\\\\"].iter().any(|escape| spelled.contains(escape));
        if is_escaped && !spelled.starts_with(['r', 'R']) {
            let message = "invariant-ai leaves `\\n` and `\\\\` in texts as they are written";
            self.warn(
                "compat-text",
                &expr.span,
                message,
                "write r\"...\" if the text contains backslashes, which Flowgate and invariant-ai read alike; leave it if Flowgate's escape, such as a line feed, is meant",
            );
        }
    }

    /// Returns the text of the policy at `span`, to see how an expression is written.
    fn source_text(&self, span: &Span) -> &str {
        self.source.get(span.clone()).unwrap_or_default()
    }
}

/// Adds to `operands` the operands of nested `and` and `or` without parentheses between them: invariant-ai regroups all
/// of these.
fn flatten<'e>(items: &'e [Expr], operands: &mut Vec<&'e Expr>) {
    for item in items {
        match &*item.kind {
            ExprKind::And(inner) | ExprKind::Or(inner) if !item.is_grouped => flatten(inner, operands),
            _ => operands.push(item),
        }
    }
}

/// Returns whether the form of an expression shows that its value is a list, a text or a number, and not `True` or
/// `False`: it is a list, a comprehension, a text or an integer, or a call of a function in [`LISTS`].
fn is_no_truth_value(expr: &Expr) -> bool {
    match &*expr.kind {
        ExprKind::List(_) | ExprKind::Comprehension { .. } | ExprKind::Str(_) | ExprKind::Int(_) => true,
        ExprKind::Call(function, ..) => match &*function.kind {
            ExprKind::Name(name) => LISTS.contains(&name.as_str()),
            ExprKind::Member(_, name) => LISTS.contains(&name.text.as_str()),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;

    #[test]
    fn readings_that_differ_are_named() {
        let check = |line: &str, expected: &[&str]| {
            let source = format!("raise \"x\" if:\n    (m: Message)\n    {line}\n");
            let policy = Policy::parse(&source).unwrap_or_else(|errors| panic!("{line}: {}", errors[0]));
            let codes: Vec<_> = policy.warnings().iter().map(|warning| warning.code).collect();
            assert_eq!(codes, expected, "{line}");
        };
        check("m.role == \"user\" and m.content == \"b\"", &[]);
        check("m.a == 1 and m.b == 2 and m.c == 3", &["compat-precedence"]);
        check("(m.a == 1) and (m.b == 2) and (m.c == 3)", &[]);
        check("len(m.a) and len(m.b) and len(m.c)", &[]);
        check("m.a or m.b and m.c", &["compat-precedence"]);
        check("not m.a == 1", &["compat-precedence"]);
        check("not (m.a == 1)", &[]);
        check("not m.a", &[]);
        check("1 < m.a < 3", &["compat-precedence"]);
        check("m.a == 1 if m.b else m.c", &["compat-precedence"]);
        check("2 ** m.a ** 2 == 3", &["compat-precedence"]);
        check("m.content == f\"{m.role}\"", &["compat-text"]);
        check("\"a\\nb\" in m.content", &["compat-text"]);
        check("match(r\"a\\n\", m.content)", &[]);
        check("secrets(m.content)", &["compat-truth"]);
        check("any(secrets(m.content))", &[]);
        check("m.role in (\"a\", \"b\")", &["compat-tuple"]);
        check("m.a contains_only [1]", &["compat-contains-only"]);
    }

    #[test]
    fn a_policy_with_a_lattice_cannot_come_from_there() {
        let source = "lattice integrity: a < b\nraise \"x\" if:\n    (m: Message)\n    not m.role == \"x\"\n";
        assert!(Policy::parse(source).unwrap().warnings().is_empty());
    }
}
