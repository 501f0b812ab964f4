//! Walks the statements of a policy, and warns about constants that an argument can never equal: a statement compares
//! the argument with the constant, but the schema of the argument does not permit this value.
//! [`ToolSchemas::diagnostics`] calls [`diagnostics`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::name_check::{MatchedTools, ToolMatcher, path_text};
use super::schema::SchemaSet;
use super::{ToolSchemas, help_for, quoted};
use crate::policy::event_path::{EventStep, StatementPaths};
use crate::policy::pattern::{ToolPattern, compile_whole};
use crate::policy::roles::{Constants, constants};
use crate::policy::syntax::{Comparison, Expr, ExprKind, PolicyFile, Statement};
use crate::policy::{Diagnostic, Span};

/// Warns about comparisons that never hold: a policy compares an argument with a constant that the schema of the
/// argument does not permit.
pub(super) fn diagnostics(schemas: &ToolSchemas, file: &PolicyFile) -> Vec<Diagnostic> {
    let (tools, constants) = (ToolMatcher::new(schemas, file), constants(&file.statements));
    let mut checker = ValueChecker { tools, constants: &constants, found: Vec::new() };
    for statement in &file.statements {
        checker.check_statement(statement);
    }
    checker.found
}

/// Collects the diagnostics about the constants in a policy.
struct ValueChecker<'a> {
    tools: ToolMatcher<'a>,
    constants: &'a Constants<'a>,
    found: Vec<Diagnostic>,
}

/// An argument whose values the schemas list.
struct ListedValues<'v> {
    matched: &'v MatchedTools<'v>,
    steps: &'v [EventStep],
    values: Vec<&'v Value>,
}

impl ValueChecker<'_> {
    /// Checks the comparisons of a statement, and the constants in its tool patterns.
    fn check_statement(&mut self, statement: &Statement) {
        let paths = StatementPaths::new(statement, self.constants);
        statement.walk(&mut |expr| match &*expr.kind {
            ExprKind::Compare(first, rest) => {
                // `a < b < c` compares each operand with the next one.
                let operands = std::iter::once(first).chain(rest.iter().map(|(_, expr)| expr));
                for (left, (how, right)) in operands.zip(rest) {
                    self.check_comparison(&paths, left, *how, right);
                }
            }
            ExprKind::Tool(tool) => {
                if let Some(shape) = &tool.arguments
                    && let Ok(pattern) = ToolPattern::new(&tool.name)
                    && let Some(matched) = self.tools.of_pattern(&pattern)
                {
                    // The path to the shape is empty, since the shape is that of all arguments.
                    self.check_shape(shape, &matched, &matched.inputs(), &mut Vec::new());
                }
            }
            _ => {}
        });
    }

    /// Checks the constants of one comparison, on either side: `call.arguments.mode == "fast"`,
    /// `call.arguments.mode in ["fast", "safe"]`, or `"fast" in call.arguments.modes`. `paths` resolves the names in
    /// the statement.
    fn check_comparison(&mut self, paths: &StatementPaths<'_>, left: &Expr, how: Comparison, right: &Expr) {
        let constants = self.constants;
        // `check_values` compares the constants with the argument itself (`false`) or with the items of the argument
        // (`true`).
        match how {
            Comparison::Equal | Comparison::NotEqual => {
                for (side, other) in [(left, right), (right, left)] {
                    self.check_values(paths, side, false, &[Self::resolved(constants, other)]);
                }
            }
            Comparison::In | Comparison::NotIn | Comparison::ContainsOnly => {
                if let ExprKind::List(items) = &*Self::resolved(constants, right).kind {
                    let items: Vec<&Expr> = items.iter().collect();
                    // The argument may be a value or a list; the check that does not apply to its schema does nothing.
                    self.check_values(paths, left, false, &items);
                    self.check_values(paths, left, true, &items);
                }
                if how != Comparison::ContainsOnly {
                    self.check_values(paths, right, true, &[Self::resolved(constants, left)]);
                }
            }
            _ => {}
        }
    }

    /// Checks the constants with which one `side` of a comparison is compared. The side must be an argument that is a
    /// list (with `is_list`) or is not one (without). Reports each constant that the schemas do not permit as an item
    /// of the list, or as the argument itself. Reports nothing if the side is no such argument, or if its schema does
    /// not list the permitted values. `paths` resolves the names in the statement.
    fn check_values(&mut self, paths: &StatementPaths<'_>, side: &Expr, is_list: bool, constants: &[&Expr]) {
        let Some(path) = paths.path_of(side) else { return };
        let Some(steps) = path.below_arguments().filter(|steps| !steps.is_empty()) else { return };
        let Some(matched) = self.tools.of_variable(paths, &path.variable) else { return };
        let schemas = steps.iter().fold(matched.inputs(), |set, step| set.step(step));
        // The schema decides whether the argument is a list; for `in`, the caller tries both.
        if schemas.is_list() != is_list {
            return;
        }
        let schemas = if is_list { schemas.step(&EventStep::Item) } else { schemas };
        let Some(values) = schemas.values() else { return };
        let listed = ListedValues { matched: &matched, steps, values };
        for constant in constants {
            let Some(value) = scalar(constant) else { continue };
            if !listed.values.iter().any(|permitted| is_equal(permitted, &value)) {
                self.found.push(listed.diagnostic(&value, &constant.span));
            }
        }
    }

    /// Checks the constants in a test of arguments: `tool:send({mode: "fast"})`. A text there is a regular expression,
    /// so it is reported only if it matches no listed value. `above` is the path to `shape`, and `schemas` describe the
    /// values there. `matched` are the tools that the pattern matches.
    fn check_shape(
        &mut self,
        shape: &Expr,
        matched: &MatchedTools<'_>,
        schemas: &SchemaSet<'_>,
        above: &mut Vec<EventStep>,
    ) {
        let parts: Vec<(EventStep, &Expr)> = match &*shape.kind {
            ExprKind::Dict(entries) => entries
                .iter()
                .filter_map(|(key, value)| match &*key.kind {
                    ExprKind::Str(name) | ExprKind::Name(name) => Some((EventStep::Key(name.clone()), value)),
                    _ => None,
                })
                .collect(),
            ExprKind::List(items) => items.iter().map(|item| (EventStep::Item, item)).collect(),
            // A single constant is compared with the values that the schemas list, if they list any.
            _ => {
                let (Some(value), Some(values)) = (scalar(shape), schemas.values()) else { return };
                let listed = ListedValues { matched, steps: &*above, values };
                if !listed.values.iter().any(|known| is_equal(known, &value) || may_match(&value, known)) {
                    self.found.push(listed.diagnostic(&value, &shape.span));
                }
                return;
            }
        };
        for (step, value) in parts {
            let below = schemas.step(&step);
            above.push(step);
            self.check_shape(value, matched, &below, above);
            above.pop();
        }
    }

    /// Returns the definition of a constant if the expression is its name; otherwise the expression.
    fn resolved<'e>(constants: &'e Constants<'_>, expr: &'e Expr) -> &'e Expr {
        match &*expr.kind {
            ExprKind::Name(name) => constants.get(name.as_str()).copied().unwrap_or(expr),
            _ => expr,
        }
    }
}

impl ListedValues<'_> {
    /// Returns the warning that the argument never has this value, with the values that it may have.
    fn diagnostic(&self, value: &Value, span: &Span) -> Diagnostic {
        let argument = quoted(&path_text(self.steps));
        let shown = quoted(&text_of(value));
        let message = match self.matched.only_tool() {
            Some(tool) => format!("the argument {argument} of the tool {tool} is never {shown}"),
            None => format!("the argument {argument} of the {} is never {shown}", self.matched.plural()),
        };
        let known: BTreeSet<String> = self.values.iter().map(|value| text_of(value)).collect();
        let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
        // A number or a Boolean has the empty name, for which nothing is suggested: numbers that look alike are not
        // typing errors of each other.
        let name = value.as_str().unwrap_or_default();
        let help = help_for(name, &known, "its values are", "its schema permits no value");
        Diagnostic::warning("unlisted-value", span.clone(), message).help(help)
    }
}

/// Returns a value as a message shows it: a text without quotation marks, any other value as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the value of a constant that is a text, a number or a Boolean. `None` for any other expression, and for the
/// constant `None` of the policy language, which means a missing value.
fn scalar(expr: &Expr) -> Option<Value> {
    match &*expr.kind {
        ExprKind::Str(text) => Some(text.as_str().into()),
        ExprKind::Bool(value) => Some((*value).into()),
        ExprKind::Int(number) => Some((*number).into()),
        ExprKind::Float(number) => Some((*number).into()),
        ExprKind::Negate(operand) => match &*operand.kind {
            ExprKind::Int(number) => Some(number.checked_neg()?.into()),
            ExprKind::Float(number) => Some((-number).into()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether two values are equal in a condition: `1 == 1.0`, and `True == 1`.
fn is_equal(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        _ => value.as_f64(),
    };
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

/// Returns whether `pattern`, a text that is read as a regular expression, may match the whole of `value`; false if one
/// of them is not a text. True for an expression that cannot be compiled here, such as one with look-around, so that no
/// wrong warning is reported.
fn may_match(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (Value::String(pattern), Value::String(value)) => {
            compile_whole(pattern).map_or(true, |regex| regex.is_match(value))
        }
        _ => false,
    }
}
