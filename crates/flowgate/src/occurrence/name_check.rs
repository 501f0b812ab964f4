//! Lists the tools, roles, fields and arguments that a policy names, and which of them do not occur.

use std::collections::HashMap;

use super::{FieldHolder, Occurrences};
use crate::policy::diagnostic::nearest;
use crate::policy::pattern::ToolPattern;
use crate::policy::roles::{Constants, ROLES, compared_literals, constants, role_literals};
use crate::policy::syntax::{
    BodyLine, Comparison, ConditionBody, Expr, ExprKind, Name, Statement, StatementKind, ToolName, ToolRef,
};
use crate::policy::{Diagnostic, Policy, Span};

/// Returns the warnings of all statements.
pub(super) fn warnings(occurrences: &Occurrences, policy: &Policy) -> Vec<Diagnostic> {
    let file = policy.syntax();
    let mut found = Vec::new();
    let constants = constants(&file.statements);
    for statement in &file.statements {
        let (paths, patterns, constants) = (HashMap::new(), HashMap::new(), &constants);
        let mut reader = NameChecker { occurrences, constants, paths, patterns, found: &mut found };
        reader.check_statement(statement);
    }
    found
}

/// The meaning of a name: an event, or a part of one.
#[derive(Debug, Clone)]
struct NamePath {
    /// The variable over events at which the path begins.
    variable: String,
    holder: FieldHolder,
    /// The keys on the path; `None` is an item of a list.
    steps: Vec<Option<String>>,
}

/// The maximum length of a chain of definitions that is resolved; fields of longer chains are not checked.
const MAX_DEFINITION_DEPTH: usize = 4;

struct NameChecker<'a> {
    occurrences: &'a Occurrences,
    constants: &'a Constants<'a>,
    /// The paths that the names in the statement stand for.
    paths: HashMap<String, NamePath>,
    /// The tools that variables are restricted to.
    patterns: HashMap<String, Vec<ToolPattern>>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> NameChecker<'a> {
    /// Reports the tools, roles, fields and arguments in a statement that do not occur in the traces. First finds out which path
    /// each name stands for.
    fn check_statement(&mut self, statement: &'a Statement) {
        match &statement.kind {
            StatementKind::Predicate { parameters, .. } => {
                for (name, ty) in parameters {
                    if let Some(ty) = ty {
                        self.declare_variable(name, ty);
                    }
                }
            }
            StatementKind::Store { written, read, .. } => {
                written.iter().chain(read).for_each(|expr| self.check_tool_pattern(expr));
                return;
            }
            _ => {}
        }
        // A definition may refer to a name that a later line defines, so each pass resolves one more link.
        for _ in 0..MAX_DEFINITION_DEPTH {
            statement.walk(&mut |expr| self.record_names(expr));
            each_line(statement, &mut |line| {
                if let BodyLine::Let(name, value) = line
                    && let Some(path) = self.path_of(value)
                {
                    self.paths.insert(name.text.clone(), path);
                }
            });
        }
        // The name of a called method is not a field.
        let mut methods: Vec<Span> = Vec::new();
        statement.walk(&mut |expr| {
            if let ExprKind::Call(callee, ..) = &*expr.kind {
                methods.push(callee.span.clone());
            }
        });
        statement.walk(&mut |expr| {
            self.check_tool_pattern(expr);
            self.check_tool_names(expr);
            self.check_roles(expr);
            if !methods.contains(&expr.span) {
                self.check_last_key(expr);
            }
        });
    }

    fn declare_variable(&mut self, name: &Name, ty: &Name) {
        let holder = match ty.text.as_str() {
            "ToolCall" => FieldHolder::Call,
            "ToolOutput" => FieldHolder::Output,
            "Message" => FieldHolder::Message,
            _ => return,
        };
        let path = NamePath { variable: name.text.clone(), holder, steps: Vec::new() };
        self.paths.insert(name.text.clone(), path);
    }

    /// Records what an expression states about names: their types, their tools, and what they range over.
    fn record_names(&mut self, expr: &Expr) {
        match &*expr.kind {
            ExprKind::Typed(name, ty) => self.declare_variable(name, ty),
            ExprKind::Comprehension { name, list, .. } => self.declare_item(name, list),
            ExprKind::Compare(first, rest) => {
                if let (ExprKind::Typed(name, ty), [(Comparison::In, list)]) = (&*first.kind, rest.as_slice())
                    && !matches!(ty.text.as_str(), "ToolCall" | "ToolOutput" | "Message")
                {
                    self.declare_item(name, list);
                }
                let variable = match &*first.kind {
                    ExprKind::Typed(name, _) => Some(name.text.clone()),
                    _ => self.path_of(first).filter(|path| path.steps.is_empty()).map(|path| path.variable),
                };
                if let (Some(variable), [(Comparison::Is, tool)]) = (variable, rest.as_slice())
                    && let ExprKind::Tool(tool) = &*tool.kind
                    && let Ok(pattern) = ToolPattern::new(&tool.name)
                {
                    let known = self.patterns.entry(variable).or_default();
                    if !known.iter().any(|other| other.to_string() == pattern.to_string()) {
                        known.push(pattern);
                    }
                }
            }
            _ => {}
        }
    }

    fn declare_item(&mut self, name: &Name, list: &Expr) {
        if let Some(mut path) = self.path_of(list) {
            path.steps.push(None);
            self.paths.insert(name.text.clone(), path);
        }
    }

    /// Returns the path of an expression, if it is a part of an event.
    fn path_of(&self, expr: &Expr) -> Option<NamePath> {
        let (object, step) = match &*expr.kind {
            ExprKind::Name(name) => return self.paths.get(name).cloned(),
            ExprKind::Typed(name, _) => return self.paths.get(&name.text).cloned(),
            ExprKind::Member(object, name) => (object, Some(name.text.clone())),
            ExprKind::Index(object, index) => match &*index.kind {
                ExprKind::Str(key) => (object, Some(key.clone())),
                _ => (object, None),
            },
            ExprKind::Each(object) => (object, None),
            _ => return None,
        };
        let mut path = self.path_of(object)?;
        path.steps.push(step);
        Some(path)
    }

    fn check_tool_pattern(&mut self, expr: &Expr) {
        let ExprKind::Tool(tool) = &*expr.kind else { return };
        let Ok(pattern) = ToolPattern::new(&tool.name) else { return };
        // The endpoints that the guard itself calls are not tools of an agent.
        let is_own = matches!(&tool.name, ToolName::Glob(name) if name.starts_with("flowgate/"));
        if is_own {
            return;
        }
        if self.occurrences.tools.iter().any(|known| pattern.matches(known)) {
            self.check_argument_names(tool, &pattern);
            return;
        }
        let near = match &tool.name {
            ToolName::Glob(name) | ToolName::Exact(name) if !name.contains('*') => {
                let (server, name) =
                    name.split_once('/').map_or(("", name.as_str()), |(server, name)| (server, name));
                let known = self.occurrences.tools.iter().map(|tool| &*tool.name);
                let near = nearest(name, known).map(str::to_owned);
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

    /// Checks the tools that a comparison names: `call.name == "send"`, `call.function.name in ["send",
    /// "pay"]`.
    fn check_tool_names(&mut self, expr: &Expr) {
        let is_name = |expr: &Expr| {
            self.path_of(expr).is_some_and(|path| {
                let steps: Vec<Option<&str>> = path.steps.iter().map(Option::as_deref).collect();
                path.holder == FieldHolder::Call
                    && matches!(steps.as_slice(), [Some("name")] | [Some("function"), Some("name")])
            })
        };
        let tools = &self.occurrences.tools;
        // A client may put a prefix before the name of a server's tool.
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

    /// Checks the arguments that a pattern names: `tool:send({to: "bob"})`.
    fn check_argument_names(&mut self, tool: &ToolRef, pattern: &ToolPattern) {
        let Some(ExprKind::Dict(entries)) = tool.arguments.as_ref().map(|arguments| &*arguments.kind) else {
            return;
        };
        for (key, _) in entries {
            let (ExprKind::Str(name) | ExprKind::Name(name)) = &*key.kind else { continue };
            let known = self.known_keys(FieldHolder::Call, std::slice::from_ref(pattern));
            self.check_key("unused-argument", name, &key.span, known);
        }
    }

    fn check_roles(&mut self, expr: &Expr) {
        let literals = role_literals(expr, self.constants);
        let occurs = |role: &str| self.occurrences.roles.contains(role) || role == "tool";
        // In a list of roles, a usual role that does not occur is not a sign of a mistake.
        let is_list = literals.len() > 1 && literals.iter().any(|(role, _)| occurs(role));
        let unused: Vec<(String, Span)> = literals
            .into_iter()
            .filter(|(role, _)| !(occurs(role) || is_list && ROLES.contains(role)))
            .map(|(role, span)| (role.to_owned(), span.clone()))
            .collect();
        for (role, span) in unused {
            let known = self.occurrences.roles.iter().map(String::as_str).chain(ROLES);
            let near = nearest(&role, known.filter(|known| *known != role)).map(str::to_owned);
            let message = format!("no message in the traces has the role `{role}`");
            self.report("unused-role", &span, &message, near.as_deref());
        }
    }

    /// Checks the last key of a path into an event.
    fn check_last_key(&mut self, expr: &Expr) {
        // `x.get("key")` reads a key as well.
        if let ExprKind::Call(callee, arguments, _) = &*expr.kind
            && let ExprKind::Member(object, method) = &*callee.kind
            && method.text == "get"
            && let Some(key) = arguments.first()
            && let ExprKind::Str(name) = &*key.kind
            && let Some(mut path) = self.path_of(object)
        {
            path.steps.push(Some(name.clone()));
            self.check_field(&path, &key.span);
            return;
        }
        // So does `"key" in call.arguments`, which is always a map.
        if let ExprKind::Compare(key, rest) = &*expr.kind
            && let ExprKind::Str(name) = &*key.kind
            && let [(Comparison::In | Comparison::NotIn, map)] = rest.as_slice()
            && let Some(mut path) = self.path_of(map)
            && path.holder == FieldHolder::Call
            && path.steps.last().is_some_and(|step| step.as_deref() == Some("arguments"))
        {
            path.steps.push(Some(name.clone()));
            self.check_field(&path, &key.span);
            return;
        }
        let span = match &*expr.kind {
            ExprKind::Member(_, name) => &name.span,
            ExprKind::Index(_, key) if matches!(&*key.kind, ExprKind::Str(_)) => &key.span,
            _ => return,
        };
        if let Some(path) = self.path_of(expr) {
            self.check_field(&path, span);
        }
    }

    fn check_field(&mut self, path: &NamePath, span: &Span) {
        let mut steps = path.steps.iter().map(Option::as_deref);
        let mut first = steps.next().flatten();
        if first == Some("function") {
            first = steps.next().flatten();
        }
        let code = match (path.holder, first) {
            (FieldHolder::Call, Some("arguments")) if steps.len() == 1 => "unused-argument",
            (FieldHolder::Call, Some("arguments"))
            | (FieldHolder::Output, Some("content" | "structured"))
            | (FieldHolder::Message, Some("content")) => "unused-field",
            _ => return,
        };
        let Some(Some(name)) = path.steps.last() else { return };
        if steps.next().is_none() {
            return;
        }
        // Blocks of content have specific fields.
        if path.holder != FieldHolder::Call && matches!(name.as_str(), "text" | "type" | "image_url" | "url")
        {
            return;
        }
        let none = Vec::new();
        let known = self.known_keys(path.holder, self.patterns.get(&path.variable).unwrap_or(&none));
        self.check_key(code, name, span, known);
    }

    /// Returns the keys in events of the tools; `None` if there are no such events.
    fn known_keys(&self, holder: FieldHolder, patterns: &[ToolPattern]) -> Option<Vec<&'a str>> {
        let occurrences: &'a Occurrences = self.occurrences;
        let fits = |tool: &Option<crate::trace::Tool>| {
            patterns.is_empty()
                || tool.as_ref().is_some_and(|tool| patterns.iter().any(|pattern| pattern.matches(tool)))
        };
        let mut events =
            occurrences.keys.iter().filter(|((kind, tool), _)| *kind == holder && fits(tool)).peekable();
        events.peek()?;
        Some(events.flat_map(|(_, keys)| keys.iter().map(String::as_str)).collect())
    }

    /// Warns if `known`, the keys in the traces, lacks the key `name` of the policy.
    fn check_key(&mut self, code: &'static str, name: &str, span: &Span, known: Option<Vec<&str>>) {
        // Without such events, the warning about the tool suffices.
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
            None => "if it is not misspelled, the traces lack what this names".to_owned(),
        };
        self.found.push(Diagnostic::warning(code, span.clone(), message).help(help));
    }
}

/// Visits the lines of a statement's body, and of the blocks in it.
fn each_line(statement: &Statement, visit: &mut impl FnMut(&BodyLine)) {
    let body = match &statement.kind {
        StatementKind::Label { body, .. }
        | StatementKind::Require { body, .. }
        | StatementKind::Payload { body, .. }
        | StatementKind::Consent { body, .. }
        | StatementKind::Endorse { body, .. }
        | StatementKind::Role { body, .. }
        | StatementKind::Rule { body, .. }
        | StatementKind::Predicate { body, .. } => body,
        _ => return,
    };
    lines_of(body, visit);
}

fn lines_of(body: &ConditionBody, visit: &mut impl FnMut(&BodyLine)) {
    for line in &body.lines {
        visit(line);
        let mut inner: Vec<ConditionBody> = Vec::new();
        line.expr().walk(&mut |expr| {
            if let ExprKind::Quantified(_, body) = &*expr.kind {
                inner.push(body.clone());
            }
        });
        for body in &inner {
            body.lines.iter().for_each(&mut *visit);
        }
    }
}
