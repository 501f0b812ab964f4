//! Compiles `role` statements, and finds the roles that an argument can have ([`Compiler::roles_of`]). The compilers of
//! `endorse` and `payload` statements ask for these roles, since the role of an argument decides whether such a
//! statement is safe. So the compiler compiles the `role` statements first.

use super::super::argument_role::ArgumentRole;
use super::super::pattern::{PatternId, ToolPattern};
use super::super::plan::{CompiledQuery, DeclaredRole, Type};
use super::super::syntax::{ConditionBody, Expr, Name};
use super::target::argument_name;
use super::{CompileResult, Compiler};

impl Compiler<'_> {
    /// Compiles `role ARGUMENT is ROLE if:` and adds the role to the plan. Fails if the conditions test more than the
    /// tool, since an argument has the same role in every call.
    pub(super) fn role(&mut self, target: &Expr, role: &Name, body: &ConditionBody) -> CompileResult<()> {
        let scope = self.single_event_scope(body, &[Type::ToolCall], "a ToolCall")?;
        let argument = self.argument(target, &scope)?;
        let query = self.finish(scope);
        if !query.is_about_tool_only() {
            let help = "keep only conditions on the tool, such as `(call: ToolCall) is tool:NAME`";
            let message = "the role has conditions on more than the tool, but an argument has the same role in every call of its tool";
            return self.fail("role-condition", &target.span, message, help);
        }
        let Some(found) = ArgumentRole::from_name(&role.text) else {
            let known = ArgumentRole::ALL.map(ArgumentRole::name);
            return self.unknown_name("role", &role.text, &role.span, &known);
        };
        self.plan.roles.push(DeclaredRole {
            tools: query.tools,
            argument: argument_name(&argument),
            role: found,
        });
        Ok(())
    }

    /// Returns the roles that `argument` can have in calls that a query matches. These are the roles that the policy
    /// declares for it, or for the argument that it is a part of. Unless a declaration covers every such call, they
    /// include the role that `suggested` guesses from the argument's name.
    ///
    /// If it is unknown whether a declaration and the query are about the same tool, the declared role counts: a role
    /// can only restrict what the policy may say.
    pub(super) fn roles_of(
        &self,
        argument: &str,
        query: &CompiledQuery,
        suggested: impl FnOnce(&str) -> Option<ArgumentRole>,
    ) -> Vec<ArgumentRole> {
        let pattern = |id: &PatternId| self.plan.patterns.get(id.0);
        // A role is declared for the argument, or for a map that contains it: a role of `mail` counts for `mail.to`.
        let names_argument = |role: &&DeclaredRole| {
            let rest = argument.strip_prefix(role.argument.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // A tool must match all patterns of a statement. So if a pattern of the declaration and one of the query have
        // no tool in common, they never apply to the same call.
        let may_apply = |role: &&DeclaredRole| {
            let are_disjoint = |one: &PatternId, other: &PatternId| match (pattern(one), pattern(other)) {
                (Some(one), Some(other)) => one.is_disjoint(other),
                _ => false,
            };
            !role.tools.iter().any(|one| query.tools.iter().any(|other| are_disjoint(one, other)))
        };
        // Whether the declaration applies to every tool of the query: each of its patterns is also one of the query, or
        // matches the tool that a pattern of the query names.
        let covers_all_calls = |role: &DeclaredRole| {
            role.tools.iter().all(|one| {
                query.tools.iter().any(|other| {
                    let tool = pattern(other).and_then(ToolPattern::tool);
                    let matches = |tool| pattern(one).is_some_and(|pattern| pattern.matches(&tool));
                    one == other || tool.is_some_and(matches)
                })
            })
        };
        let declared: Vec<&DeclaredRole> =
            self.plan.roles.iter().filter(names_argument).filter(may_apply).collect();
        let is_declared_for_all = declared.iter().any(|role| covers_all_calls(role));
        let guessed = if is_declared_for_all { None } else { suggested(argument) };
        declared.into_iter().map(|role| role.role).chain(guessed).collect()
    }
}
