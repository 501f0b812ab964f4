//! Compiles lists of tools: constants that name a group of tools, and the tools of a `store` statement. The compilers
//! of statements, of comparisons, and of `is_url_on` call this module.
//!
//! `READERS := [tool:search_*, tool:get_file]` names a group. `call is READERS` holds for a call of any tool of the
//! group: the patterns of the group are merged into one, here `tool:r"search_.*|get_file"`, and compiled like a pattern
//! that the policy writes. In a `store` statement, the patterns of a group stay separate.

use super::super::pattern::PatternId;
use super::super::syntax::{Expr, ExprKind, ToolName, ToolRef};
use super::body::Scope;
use super::{CompileResult, Compiler};

/// Returns whether the value of a constant is a group of tools: one pattern, or a list that begins with one. The other
/// items are not looked at here: [`check_group`](Compiler::check_group) reports those that are not patterns.
pub(super) fn is_group(value: &Expr) -> bool {
    match &*value.kind {
        ExprKind::Tool(_) => true,
        ExprKind::List(items) => matches!(items.first().map(|item| &*item.kind), Some(ExprKind::Tool(_))),
        _ => false,
    }
}

impl Compiler<'_> {
    /// Returns the tool pattern that an expression denotes, such as the right side of `is`: a pattern, or the name of a
    /// group, whose patterns are merged into one. `None` if the expression is another value.
    pub(super) fn tool_or_group(&mut self, expr: &Expr, scope: &Scope) -> CompileResult<Option<ToolRef>> {
        let ExprKind::Name(name) = &*expr.kind else {
            return Ok(match &*expr.kind {
                ExprKind::Tool(tool) => Some(tool.clone()),
                _ => None,
            });
        };
        let group = self.constants.get(name.as_str()).copied().filter(|value| is_group(value));
        // A variable of the same name hides the group.
        let Some(group) = group.filter(|_| scope.slot(name).is_none()) else { return Ok(None) };
        self.merge_group(group).map(Some)
    }

    /// Checks a group where it is defined, so that an error in it is reported there, even if no statement uses it.
    pub(super) fn check_group(&mut self, value: &Expr) -> CompileResult<()> {
        let merged = self.merge_group(value)?;
        self.pattern(&merged.name, &value.span).map(|_| ())
    }

    /// Merges the patterns of a group into one pattern, which matches the same tools.
    ///
    /// # Errors
    /// If the group is empty. In a group of several patterns, also if one is a quoted name with a `/`, or if some
    /// patterns name a server and others do not: a pattern with a server is compared with `server/name`, any other with
    /// the name alone, and one merged pattern cannot do both.
    fn merge_group(&mut self, value: &Expr) -> CompileResult<ToolRef> {
        let names = self.group_members(value)?;
        let [first, others @ ..] = names.as_slice() else {
            return self.fail(
                "tool",
                &value.span,
                "the group has no tools",
                "write `[tool:NAME, tool:NAME]`",
            );
        };
        if others.is_empty() {
            return Ok(ToolRef { name: first.clone(), arguments: None });
        }
        // In a quoted name, a `/` belongs to the name of the tool. In the merged pattern, it would end the name of a
        // server.
        if names.iter().any(|name| matches!(name, ToolName::Exact(text) if text.contains('/'))) {
            let help = "write the tool in a statement of its own";
            let message = "a quoted name with a `/` cannot be part of a group";
            return self.fail("tool", &value.span, message, help);
        }
        // Whether the pattern is compared with `server/name`. That includes `*`: any tool of any server.
        let names_server = |name: &ToolName| match name {
            ToolName::Glob(text) | ToolName::Regex(text) => text.contains('/') || text == "*",
            ToolName::Exact(_) => false,
        };
        if others.iter().any(|name| names_server(name) != names_server(first)) {
            let help = "write the server of every tool, such as `tool:bank/send_money`, or of none";
            let message = "the group names the servers of some of its tools, but not of all";
            return self.fail("tool", &value.span, message, help);
        }
        let alternatives: Vec<String> = names.iter().map(as_regex).collect();
        Ok(ToolRef { name: ToolName::Regex(alternatives.join("|")), arguments: None })
    }

    /// Returns the tool patterns in the value of a group: a list of `tool:NAME`, or a single one. Fails if an item is
    /// not a tool pattern, or tests arguments (`tool:NAME({...})`).
    fn group_members(&mut self, value: &Expr) -> CompileResult<Vec<ToolName>> {
        let items = match &*value.kind {
            ExprKind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let mut names = Vec::new();
        for item in items {
            match &*item.kind {
                ExprKind::Tool(ToolRef { name, arguments: None }) => names.push(name.clone()),
                ExprKind::Tool(_) => {
                    let help = "test the arguments where the group is used: `call.arguments.NAME == ...`";
                    return self.fail("tool", &item.span, "an item of the group tests arguments", help);
                }
                _ => {
                    let help = "write each item as `tool:NAME`";
                    return self.fail("tool", &item.span, "an item of the group is not a tool", help);
                }
            }
        }
        Ok(names)
    }

    /// Compiles the tools that a `store` statement lists. A name there may be that of a tool, without `tool:`, or that
    /// of a group; if both exist, it denotes the group.
    pub(super) fn tools(&mut self, tools: &[Expr]) -> CompileResult<Vec<PatternId>> {
        let mut patterns = Vec::new();
        for tool in tools {
            // The parser yields only tools here.
            let ExprKind::Tool(reference) = &*tool.kind else { continue };
            let group = match &reference.name {
                ToolName::Glob(name) => {
                    self.constants.get(name.as_str()).copied().filter(|value| is_group(value))
                }
                _ => None,
            };
            let names = match group {
                Some(group) => self.group_members(group)?,
                None => vec![reference.name.clone()],
            };
            for name in names {
                patterns.push(self.pattern(&name, &tool.span)?);
            }
        }
        Ok(patterns)
    }
}

/// Returns a regular expression that matches the same names as a pattern, as one alternative of a merged group.
fn as_regex(name: &ToolName) -> String {
    match name {
        ToolName::Glob(text) if text == "*" => ".*".to_owned(),
        ToolName::Glob(text) => text.split('*').map(regex::escape).collect::<Vec<_>>().join(".*"),
        ToolName::Exact(text) => regex::escape(text),
        ToolName::Regex(text) => format!("(?:{text})"),
    }
}
