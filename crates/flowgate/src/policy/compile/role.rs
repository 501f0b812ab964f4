//! Compiles `role`, and finds the role of an argument that another statement is about.

use super::super::argument_role::ArgumentRole;
use super::super::plan::{CompiledExpr, CompiledQuery, DeclaredRole, QueryItem, Type};
use super::super::syntax::{ConditionBody, Expr, Name};
use super::target::argument_name;
use super::{CompileResult, Compiler};

impl Compiler<'_> {
    /// Compiles `role ARGUMENT is ROLE if:`.
    pub(super) fn role(&mut self, target: &Expr, role: &Name, body: &ConditionBody) -> CompileResult<()> {
        let scope = self.single_event_scope(body, &[Type::ToolCall], "a ToolCall")?;
        let argument = self.argument(target, &scope)?;
        let query = self.finish(scope);
        let is_about_tools =
            query.items.iter().all(|item| matches!(item, QueryItem::Test(CompiledExpr::IsTool(_, _, None))));
        if !is_about_tools {
            let help = "keep only conditions on the tool, such as `(call: ToolCall) is tool:NAME`";
            let message = "the role depends on more than the tool, but an argument has the same role in \
                every call of its tool";
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

    /// Returns the role that the policy declares for an argument of tools that a query may match. Of several, returns the one
    /// with the most effect.
    pub(super) fn declared_role(&self, argument: &str, query: &CompiledQuery) -> Option<ArgumentRole> {
        let pattern = |id| self.plan.patterns.get(id);
        let overlaps = |role: &&DeclaredRole| {
            let pairs =
                role.tools.iter().flat_map(|one| query.tools.iter().map(move |other| (one.0, other.0)));
            let mut shares = pairs.map(|(one, other)| {
                let (Some(a), Some(b)) = (pattern(one), pattern(other)) else { return false };
                match (a.example(), b.example()) {
                    _ if one == other => true,
                    // Of two regular expressions it is unknown whether both match some tool. Then the role restricts, and does not
                    // permit anything.
                    (None, None) => role.role.needs_listed_values(),
                    (a_tool, b_tool) => {
                        a_tool.is_some_and(|tool| b.matches(&tool))
                            || b_tool.is_some_and(|tool| a.matches(&tool))
                    }
                }
            });
            role.argument == argument && shares.all(|shares| shares)
        };
        self.plan.roles.iter().filter(overlaps).map(|role| role.role).min()
    }
}
