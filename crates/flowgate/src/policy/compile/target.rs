//! Compiles the targets of `label`, `require`, `payload`, `consent`, `endorse` and `role` statements. A target is the
//! path to the region of an event that the statement is about, such as `out.content[*].note`. The compiler calls
//! [`Compiler::target`] for a region of any event, and [`Compiler::argument`] for an argument of a call.

use super::super::argument_role::ArgumentRole;
use super::super::diagnostic::{Diagnostic, Span};
use super::super::plan::{CompiledQuery, TargetPath, TargetStep, Type};
use super::super::role_guess::suggested_role;
use super::super::syntax::{Expr, ExprKind, Independence};
use super::body::Scope;
use super::capture_position::{self, CaptureReliance};
use super::{CompileResult, Compiler};
use crate::policy::pattern::compile_whole;
use crate::trace::ArgumentSet;

impl Compiler<'_> {
    /// Compiles a target, the region that a statement names. It is a path from a variable, or a captured part of the
    /// text at a path. `capture(PATH, r"...(?<name>...)...", "name")` captures what the group `name` of the pattern
    /// matches; `capture_line` has the same arguments. Fails if the author of the text could choose where the group is.
    pub(super) fn target(&mut self, expr: &Expr, scope: &Scope) -> CompileResult<TargetPath> {
        // Anything but a call can only be a path; a call must be a capture with three arguments.
        let ExprKind::Call(function, arguments, _) = &*expr.kind else { return self.path(expr, scope) };
        // What the position of the group relies on; `None` if the function captures nothing.
        let reliance = match &*function.kind {
            ExprKind::Name(name) if name == "capture" => Some(CaptureReliance::Nothing),
            ExprKind::Name(name) if name == "capture_line" => Some(CaptureReliance::Lines),
            _ => None,
        };
        let [region, pattern, group] = arguments.as_slice() else {
            return self.not_a_region(expr);
        };
        let (ExprKind::Str(pattern_text), ExprKind::Str(group_name), Some(reliance)) =
            (&*pattern.kind, &*group.kind, reliance)
        else {
            return self.not_a_region(expr);
        };
        let mut target = self.path(region, scope)?;
        let regex = match compile_whole(pattern_text) {
            Ok(regex) => regex,
            Err(problem) => {
                let message = format!("the pattern is malformed: {problem}");
                return self.fail("pattern", &pattern.span, message, "write it as r\"...(?<name>...)...\"");
            }
        };
        if !regex.capture_names().flatten().any(|name| name == group_name) {
            let help = format!("write `(?<{group_name}>...)` in the pattern");
            return self.fail(
                "pattern",
                &group.span,
                format!("the pattern has no group `{group_name}`"),
                help,
            );
        }
        if let Err(help) = capture_position::check(pattern_text, group_name, reliance) {
            let message =
                format!("the pattern does not fix which part of the text the group `{group_name}` is");
            return self.fail("open-capture", &pattern.span, message, help);
        }
        target.capture = Some((regex, group_name.clone()));
        Ok(target)
    }

    /// Compiles the clause `independent of arguments` of a `label` statement: the labelled part of an output, such as a
    /// status line, does not depend on the arguments of the call, or on some of them. Returns the set of these
    /// arguments; it is empty if the statement has no such clause. `query` are the conditions of the statement, and
    /// `span` is its target, where errors are reported.
    ///
    /// Fails unless the target is a region of an output, and all conditions are about the tool: other conditions could
    /// depend on the arguments. Also fails if such clauses name too many different arguments.
    pub(super) fn independence(
        &mut self,
        independence: &Independence,
        target: &TargetPath,
        query: &CompiledQuery,
        span: &Span,
    ) -> CompileResult<ArgumentSet> {
        if *independence == Independence::Undeclared {
            return Ok(ArgumentSet::NONE);
        }
        let is_output = query.variables.first().is_some_and(|variable| variable.ty == Type::ToolOutput);
        let is_region_of_output = is_output && target.root == 0;
        let has_only_tool_conditions = !query.tools.is_empty() && query.is_about_tool_only();
        if !is_region_of_output || !has_only_tool_conditions {
            let message = "`independent of arguments` needs a region of a tool's output, and no condition except one on the tool";
            let help = "write `(out: ToolOutput) is tool:NAME` as the only condition, and a path from `out`";
            return self.fail("independence", span, message, help);
        }
        let Independence::OfNamed(names) = independence else { return Ok(ArgumentSet::ALL) };
        let mut arguments = ArgumentSet::NONE;
        for name in names {
            // The plan numbers the names of arguments in the order in which such clauses mention them.
            let known = &mut self.plan.independent_arguments;
            let number = known.iter().position(|other| *other == name.text).unwrap_or_else(|| {
                known.push(name.text.clone());
                known.len() - 1
            });
            let Some(argument) = ArgumentSet::of_name(number) else {
                let most = ArgumentSet::MAX_NAMES;
                let message =
                    format!("the policy names more than {most} arguments in `independent of arguments.NAME`");
                let help = "leave out the statements that no task needs";
                return self.fail("independence", &name.span, message, help);
            };
            arguments = arguments.union(argument);
        }
        Ok(arguments)
    }

    /// Fails because an expression is neither a path from a variable nor a capture.
    fn not_a_region<T>(&mut self, expr: &Expr) -> CompileResult<T> {
        let help = "write a path such as `out.content[*].subject`, `capture(PATH, r\"...(?<name>...)\", \"name\")`, or \
                    `capture_line` with the same arguments";
        self.fail("region", &expr.span, "the expression is not a region", help)
    }

    /// Compiles a path from a variable, such as `out.content[*].note`; fails for any other expression. The syntax tree
    /// has the last step outermost, so the steps are collected from the last to the first.
    fn path(&mut self, expr: &Expr, scope: &Scope) -> CompileResult<TargetPath> {
        let mut steps = Vec::new();
        let mut current = expr;
        loop {
            current = match &*current.kind {
                ExprKind::Name(name) => {
                    let Some(root) = scope.slot(name) else {
                        let known: Vec<&str> = scope.names().collect();
                        return self.unknown_name("variable", name, &current.span, &known);
                    };
                    // A name that a line defines (`NAME := VALUE`) has a slot, but is no variable.
                    if self.variable(scope, root).is_none() {
                        let help = "write a path from a variable of an event or of its items";
                        return self.fail("region", &current.span, format!("`{name}` is not a region"), help);
                    }
                    steps.reverse();
                    return Ok(TargetPath { root, steps, capture: None });
                }
                ExprKind::Member(object, name) => {
                    steps.push(TargetStep::Key(name.text.as_str().into()));
                    object
                }
                ExprKind::Each(object) => {
                    steps.push(TargetStep::Each);
                    object
                }
                ExprKind::Index(object, index) => {
                    match &*index.kind {
                        ExprKind::Str(key) => steps.push(TargetStep::Key(key.as_str().into())),
                        ExprKind::Int(index) => match usize::try_from(*index) {
                            Ok(index) => steps.push(TargetStep::Index(index)),
                            Err(_) => return self.not_a_region(expr),
                        },
                        _ => return self.not_a_region(expr),
                    }
                    object
                }
                _ => return self.not_a_region(expr),
            };
        }
    }

    /// Compiles an argument of the statement's call (the variable in slot 0), or a part of one: `call.arguments.NAME`,
    /// `call.arguments.NAME.FIELD`. Fails for any other expression.
    pub(super) fn argument(&mut self, expr: &Expr, scope: &Scope) -> CompileResult<TargetPath> {
        let target = self.path(expr, scope)?;
        let is_argument = matches!(target.steps.as_slice(), [TargetStep::Key(key), TargetStep::Key(_), ..] if **key == *"arguments");
        if target.root == 0 && is_argument {
            return Ok(target);
        }
        self.fail(
            "region",
            &expr.span,
            "the expression is not an argument of the call",
            "write `call.arguments.NAME`",
        )
    }

    /// Warns about a `payload` for an argument that decides something. Such an argument has a role other than
    /// `content`, declared or suggested by its name: it is a recipient, an amount or a command, for example.
    pub(super) fn warn_of_decisive_payload(
        &mut self,
        target: &TargetPath,
        expr: &Expr,
        query: &CompiledQuery,
    ) {
        let name = argument_name(target);
        let roles = self.roles_of(&name, query, suggested_role);
        // The least role is the one with the greatest effect.
        let Some(gain) =
            roles.into_iter().filter(|role| role.gain().is_some()).min().and_then(ArgumentRole::gain)
        else {
            return;
        };
        let message = format!("`payload` lets untrusted text choose `{name}`");
        let help = format!(
            "the author of a text that the model reads chooses {gain}; keep the requirement, or list the allowed values with `endorse` and `in [...]`"
        );
        self.diagnostics
            .push(Diagnostic::warning("payload-sensitive", expr.span.clone(), message).help(help));
    }
}

/// Returns the name of an argument, followed by the keys of the path within it: `mail.to` for `call.arguments.mail.to`.
/// Indices and `[*]` are left out.
pub(super) fn argument_name(target: &TargetPath) -> String {
    // The first step is `arguments`.
    let names = target.steps.iter().skip(1).filter_map(|step| match step {
        TargetStep::Key(key) => Some(key.to_string()),
        _ => None,
    });
    names.collect::<Vec<_>>().join(".")
}
