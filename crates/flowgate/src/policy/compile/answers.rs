//! Compiles the condition `VALUE in tool:NAME` of `endorse` and `consent` statements: a trusted answer of the tool must
//! list the value. `VALUE in tool:NAME({id: call.arguments.id})` considers only the answers to calls with these
//! arguments. So a policy can permit, for example, the recipients that an address book lists. `expression` calls this
//! module for comparisons, and `url_list` for conditions on URLs.

use super::super::plan::{CompiledExpr, ListSource};
use super::super::syntax::{Expr, ExprKind, ToolRef};
use super::body::Scope;
use super::{CompileResult, Compiler};

impl Compiler<'_> {
    /// Compiles `tool`, the right side of `VALUE in tool:NAME`, to the answers that may list the value: those of all
    /// calls of the tool or, for `tool:NAME({id: call.arguments.id})`, those of calls with these arguments. `expr` is
    /// the expression of `tool`, where errors are reported.
    ///
    /// # Errors
    /// If `{...}` is not a map, is empty or has a key that is an f-string, or if a value in it is neither an argument
    /// of the judged call nor a constant.
    pub(super) fn answers(
        &mut self,
        tool: &ToolRef,
        expr: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<ListSource> {
        let pattern = self.pattern(&tool.name, &expr.span)?;
        let Some(arguments) = &tool.arguments else { return Ok(ListSource::Answers(pattern)) };
        let help = "write `VALUE in tool:NAME({id: call.arguments.id})`: names of arguments, each with an argument of this call or a constant";
        let entries = match &*arguments.kind {
            ExprKind::Dict(entries) if !entries.is_empty() => entries,
            _ => {
                return self.fail(
                    "tool",
                    &arguments.span,
                    "the pattern does not name the arguments of the call whose answer lists the values",
                    help,
                );
            }
        };
        // The arguments of the answered call, with the values that they must have.
        let mut matched = Vec::new();
        for (key, value) in entries {
            // The parser yields only names, text literals and f-strings as keys; a name counts as a text literal.
            let ExprKind::Str(key) = &*key.kind else {
                return self.fail("tool", &key.span, "the name of an argument is an f-string", help);
            };
            let compiled = self.expression(value, scope)?;
            // The variable in slot 0 is the judged call: the path is `call.arguments.NAME` or a part of it.
            let is_argument = compiled.variable_path().is_some_and(|(root, keys)| {
                root == 0 && keys.len() >= 2 && keys.first() == Some(&"arguments")
            });
            if !is_argument && !matches!(compiled, CompiledExpr::Constant(_)) {
                let message = "the value is neither an argument of this call nor a constant";
                return self.fail("tool", &value.span, message, help);
            }
            matched.push((key.as_str().into(), compiled));
        }
        Ok(ListSource::MatchingAnswers(pattern, matched))
    }
}
