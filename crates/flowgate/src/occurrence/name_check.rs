//! Walks the statements of a policy, and reports each tool, role, field and argument that is named in a statement and
//! does not occur in recorded runs. [`Occurrences::warnings`] calls it.

use super::Occurrences;
use crate::policy::diagnostic::nearest;
use crate::policy::event_path::{EventKind, EventPath, EventStep, StatementPaths};
use crate::policy::pattern::ToolPattern;
use crate::policy::roles::{Constants, ROLES, compared_literals, constants, role_literals};
use crate::policy::syntax::{Expr, ExprKind, Statement, ToolName, ToolRef};
use crate::policy::{Diagnostic, Policy, Span};

/// Returns a warning for each name in the statements of a policy that does not occur in the traces. `occurrences` are
/// the names in the traces.
pub(super) fn warnings(occurrences: &Occurrences, policy: &Policy) -> Vec<Diagnostic> {
    let file = policy.syntax();
    let mut found = Vec::new();
    let constants = constants(&file.statements);
    for statement in &file.statements {
        let (paths, constants) = (StatementPaths::new(statement, &constants), &constants);
        let mut checker = NameChecker { occurrences, constants, paths, found: &mut found };
        checker.check_statement(statement);
    }
    found
}

/// Checks the names in one statement, and adds the warnings to `found`.
struct NameChecker<'a> {
    occurrences: &'a Occurrences,
    constants: &'a Constants<'a>,
    paths: StatementPaths<'a>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> NameChecker<'a> {
    /// Reports the tools, roles, fields and arguments in a statement that do not occur in the traces.
    fn check_statement(&mut self, statement: &'a Statement) {
        statement.walk(&mut |expr| {
            self.check_tool_pattern(expr);
            self.check_tool_names(expr);
            self.check_roles(expr);
        });
        let mut reads = Vec::new();
        self.paths.each_key_read(statement, &mut |read| reads.push(read));
        for read in reads {
            self.check_field(&read.path, &read.span);
        }
    }

    /// Checks `expr` if it is a tool pattern: warns if no tool in the traces matches the pattern; otherwise checks the
    /// names of arguments in the pattern.
    fn check_tool_pattern(&mut self, expr: &Expr) {
        let ExprKind::Tool(tool) = &*expr.kind else { return };
        let Ok(pattern) = ToolPattern::new(&tool.name) else { return };
        // The endpoints that the guard itself calls are not tools of an agent, so traces do not contain them.
        let is_own = matches!(&tool.name, ToolName::Glob(name) if name.starts_with("flowgate/"));
        if is_own {
            return;
        }
        if self.occurrences.tools.iter().any(|known| pattern.matches(known)) {
            self.check_argument_names(tool, &pattern);
            return;
        }
        // The most similar name in the traces, as a suggestion; none for a pattern with `*` or a regular expression.
        let near = match &tool.name {
            ToolName::Glob(name) | ToolName::Exact(name) if !name.contains('*') => {
                let (server, name) = name.split_once('/').unwrap_or(("", name.as_str()));
                let known = self.occurrences.tools.iter().map(|tool| &*tool.name);
                let near = nearest(name, known).map(str::to_owned);
                // The suggestion replaces the whole pattern, so it begins with the server of the pattern.
                near.map(|near| if server.is_empty() { near } else { format!("{server}/{near}") })
            }
            _ => None,
        };
        self.report(
            "unused-tool",
            &expr.span,
            &format!("no tool in the traces matches `{pattern}`"),
            near.as_deref(),
        );
    }

    /// Warns about each tool that does not occur in the traces, but is named in a comparison: `call.name == "send"`,
    /// `call.function.name in ["send", "pay"]`.
    fn check_tool_names(&mut self, expr: &Expr) {
        // Whether an expression is the name of a call's tool: `call.name` or `call.function.name`.
        let is_name = |expr: &Expr| {
            self.paths.path_of(expr).is_some_and(|path| {
                let steps: Vec<Option<&str>> = path.steps.iter().map(EventStep::key).collect();
                path.kind == EventKind::Call
                    && matches!(steps.as_slice(), [Some("name")] | [Some("function"), Some("name")])
            })
        };
        let tools = &self.occurrences.tools;
        // The policy may name a server's tool with the prefix that a client puts before it.
        let occurs = |name: &str| tools.iter().any(|tool| name.ends_with(&*tool.name));
        let unused: Vec<(String, Span)> = compared_literals(expr, self.constants, &is_name)
            .into_iter()
            .filter(|(name, _)| !occurs(name))
            .map(|(name, span)| (name.to_owned(), span.clone()))
            .collect();
        for (name, span) in unused {
            let near = nearest(&name, tools.iter().map(|tool| &*tool.name)).map(str::to_owned);
            let message = format!("no tool in the traces has the name `{name}`");
            self.report("unused-tool", &span, &message, near.as_deref());
        }
    }

    /// Reports each argument that is named in a pattern, such as `to` in `tool:send({to: "bob"})`, but that no call of
    /// the pattern's tools in the traces has.
    fn check_argument_names(&mut self, tool: &ToolRef, pattern: &ToolPattern) {
        let Some(ExprKind::Dict(entries)) = tool.arguments.as_ref().map(|arguments| &*arguments.kind) else {
            return;
        };
        for (key, _) in entries {
            let (ExprKind::Str(name) | ExprKind::Name(name)) = &*key.kind else { continue };
            let known = self.known_keys(EventKind::Call, std::slice::from_ref(pattern));
            self.check_key("unused-argument", name, &key.span, known);
        }
    }

    /// Warns about each role that is named in a comparison, such as `message.role == "user"`, and does not occur in the
    /// traces.
    fn check_roles(&mut self, expr: &Expr) {
        let literals = role_literals(expr, self.constants);
        // The messages with the role `tool` are outputs of a trace, so the traces record no such role.
        let occurs = |role: &str| self.occurrences.roles.contains(role) || role == "tool";
        // In a list with a role that occurs, a usual role that does not occur is not a sign of a mistake.
        let lists_occurring_role = literals.len() > 1 && literals.iter().any(|(role, _)| occurs(role));
        let unused: Vec<(String, Span)> = literals
            .into_iter()
            .filter(|(role, _)| !(occurs(role) || lists_occurring_role && ROLES.contains(role)))
            .map(|(role, span)| (role.to_owned(), span.clone()))
            .collect();
        for (role, span) in unused {
            let known = self.occurrences.roles.iter().map(String::as_str).chain(ROLES);
            let near = nearest(&role, known.filter(|known| *known != role)).map(str::to_owned);
            let message = format!("no message in the traces has the role `{role}`");
            self.report("unused-role", &span, &message, near.as_deref());
        }
    }

    /// Checks the last key of a path, such as `to` in `call.arguments.to`: warns if no event of this kind has it.
    /// `span` is the location of the key. Only keys below `arguments`, `content` and `structured` are checked, since
    /// every event of a kind has the same keys above them.
    fn check_field(&mut self, path: &EventPath, span: &Span) {
        let mut steps = path.steps.iter().map(EventStep::key);
        let mut field = steps.next().flatten();
        // `call.function.arguments` is another name of `call.arguments`.
        if field == Some("function") {
            field = steps.next().flatten();
        }
        // With one step left, the path ends with the name of an argument.
        let code = match (path.kind, field) {
            (EventKind::Call, Some("arguments")) if steps.len() == 1 => "unused-argument",
            (EventKind::Call, Some("arguments"))
            | (EventKind::Output, Some("content" | "structured"))
            | (EventKind::Message, Some("content")) => "unused-field",
            _ => return,
        };
        let Some(EventStep::Key(name)) = path.steps.last() else { return };
        if steps.next().is_none() {
            // The path ends with `arguments` or `content` itself.
            return;
        }
        // The fields of a block of content, such as a text or an image, are always the same, so they are not checked.
        if path.kind != EventKind::Call && matches!(name.as_str(), "text" | "type" | "image_url" | "url") {
            return;
        }
        let known = self.known_keys(path.kind, self.paths.patterns_of(&path.variable));
        self.check_key(code, name, span, known);
    }

    /// Returns the keys that the recorded events of a kind have. Unless `patterns` is empty, only events count whose
    /// tool matches one of the patterns. `None` if there are no such events.
    fn known_keys(&self, kind: EventKind, patterns: &[ToolPattern]) -> Option<Vec<&'a str>> {
        let occurrences: &'a Occurrences = self.occurrences;
        let fits = |tool: &Option<crate::trace::Tool>| {
            patterns.is_empty()
                || tool.as_ref().is_some_and(|tool| patterns.iter().any(|pattern| pattern.matches(tool)))
        };
        let mut events =
            occurrences.keys.iter().filter(|((known, tool), _)| *known == kind && fits(tool)).peekable();
        events.peek()?;
        Some(events.flat_map(|(_, keys)| keys.iter().map(String::as_str)).collect())
    }

    /// Warns if `known`, the keys of the events in the traces, lacks the key `name` of the policy. `known` is `None` if
    /// the traces contain no event that could have the key; then does nothing. `code` is the code of the warning.
    fn check_key(&mut self, code: &'static str, name: &str, span: &Span, known: Option<Vec<&str>>) {
        // `None`: the tool of the event does not occur, which another warning reports, or no event of this kind occurs.
        let Some(known) = known else { return };
        if known.contains(&name) {
            return;
        }
        let near = nearest(name, known).map(str::to_owned);
        let what = if code == "unused-argument" { "argument" } else { "field" };
        let message = format!("the {what} `{name}` does not occur in the traces");
        self.report(code, span, &message, near.as_deref());
    }

    /// Adds a warning; `near` is a similar name that occurs.
    fn report(&mut self, code: &'static str, span: &Span, message: &str, near: Option<&str>) {
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "check the spelling; if it is right, nothing in these traces has this name".to_owned(),
        };
        self.found.push(Diagnostic::warning(code, span.clone(), message).help(help));
    }
}
