//! The tools, roles, fields and arguments that a policy names, and which of them do not occur.

use std::collections::HashMap;

use super::{Holder, Occurrences, ROLES};
use crate::policy::diagnostic::nearest;
use crate::policy::pattern::ToolPattern;
use crate::policy::syntax::{
    Body, BodyLine, Comparison, Expr, ExprKind, Name, Statement, StatementKind, ToolName, ToolRef,
};
use crate::policy::{Diagnostic, Policy, Span};

/// The warnings of all statements.
pub(super) fn warnings(occurrences: &Occurrences, policy: &Policy) -> Vec<Diagnostic> {
    let file = policy.syntax();
    let mut found = Vec::new();
    for statement in &file.statements {
        let mut reader =
            Reader { occurrences, ways: HashMap::new(), patterns: HashMap::new(), found: &mut found };
        reader.statement(statement);
    }
    found
}

/// The role that a literal was meant to be, if it is none and near one.
pub(crate) fn misspelled_roles(statements: &[Statement]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for statement in statements {
        each_expression(statement, &mut |expr| {
            for (literal, span) in role_literals(expr) {
                let near = nearest(literal, ROLES).filter(|_| !ROLES.contains(&literal));
                if let Some(near) = near {
                    let message = format!("`{literal}` is no role that messages have");
                    let warning = Diagnostic::warning("unknown-role", span.clone(), message);
                    found.push(warning.help(format!("did you mean `{near}`?")));
                }
            }
        });
    }
    found
}

/// The roles that a comparison names: `m.role == "user"`, `m.role in ["system", "user"]`.
fn role_literals(expr: &Expr) -> Vec<(&str, &Span)> {
    let ExprKind::Compare(first, rest) = &*expr.kind else { return Vec::new() };
    let is_role = |expr: &Expr| matches!(&*expr.kind, ExprKind::Member(_, name) if name.text == "role");
    let mut literals = Vec::new();
    for (_, second) in rest.iter().take(1) {
        let literal = match (is_role(first), is_role(second)) {
            (true, false) => second,
            (false, true) => first,
            _ => continue,
        };
        let items = match &*literal.kind {
            ExprKind::List(items) => items.iter().collect(),
            _ => vec![literal],
        };
        literals.extend(items.into_iter().filter_map(|item| match &*item.kind {
            ExprKind::Str(text) => Some((text.as_str(), &item.span)),
            _ => None,
        }));
    }
    literals
}

/// Visits all expressions of a statement.
fn each_expression(statement: &Statement, visit: &mut impl FnMut(&Expr)) {
    let body_of = |body: &Body, visit: &mut dyn FnMut(&Expr)| {
        body.lines.iter().for_each(|line| line.expr().walk(&mut |expr| visit(expr)));
    };
    match &statement.kind {
        StatementKind::Label { target, label, body } | StatementKind::Endorse { target, label, body, .. } => {
            target.walk(visit);
            label.iter().for_each(|expr| expr.walk(visit));
            body_of(body, visit);
        }
        StatementKind::Consent { label, target, body } => {
            target.walk(visit);
            label.iter().for_each(|expr| expr.walk(visit));
            body_of(body, visit);
        }
        StatementKind::Require { label, target, body, .. } => {
            target.iter().for_each(|expr| expr.walk(visit));
            label.iter().for_each(|expr| expr.walk(visit));
            body_of(body, visit);
        }
        StatementKind::Payload { target, body } => {
            target.walk(visit);
            body_of(body, visit);
        }
        StatementKind::Rule { message, body, .. } => {
            message.walk(visit);
            body_of(body, visit);
        }
        StatementKind::Predicate { body, .. } => body_of(body, visit),
        StatementKind::Store { written, read, .. } => {
            written.iter().chain(read).for_each(|expr| expr.walk(visit));
        }
        StatementKind::Constant { .. }
        | StatementKind::Lattice { .. }
        | StatementKind::Default { .. }
        | StatementKind::Extern { .. }
        | StatementKind::Import { .. } => {}
    }
}

/// What a name stands for: an event, or a part of one.
#[derive(Debug, Clone)]
struct Way {
    /// The variable over events that it begins at.
    variable: String,
    holder: Holder,
    /// The keys on the way; `None` is an item.
    steps: Vec<Option<String>>,
}

struct Reader<'a> {
    occurrences: &'a Occurrences,
    /// What the names of the statement stand for.
    ways: HashMap<String, Way>,
    /// The tools that variables are said to be of.
    patterns: HashMap<String, Vec<ToolPattern>>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Predicate { parameters, .. } => {
                for (name, ty) in parameters {
                    if let Some(ty) = ty {
                        self.declare(name, ty);
                    }
                }
            }
            StatementKind::Store { written, read, .. } => {
                written.iter().chain(read).for_each(|expr| self.tools(expr));
                return;
            }
            _ => {}
        }
        // Names may be used above the line that gives them a meaning, and one may lead to another.
        for _ in 0..4 {
            each_expression(statement, &mut |expr| self.name(expr));
            each_line(statement, &mut |line| {
                if let BodyLine::Let(name, value) = line
                    && let Some(way) = self.way(value)
                {
                    self.ways.insert(name.text.clone(), way);
                }
            });
        }
        let mut methods: Vec<Span> = Vec::new();
        each_expression(statement, &mut |expr| {
            if let ExprKind::Call(callee, ..) = &*expr.kind {
                methods.push(callee.span.clone());
            }
        });
        each_expression(statement, &mut |expr| {
            self.tools(expr);
            self.roles(expr);
            if !methods.contains(&expr.span) {
                self.fields(expr);
            }
        });
    }

    fn declare(&mut self, name: &Name, ty: &Name) {
        let holder = match ty.text.as_str() {
            "ToolCall" => Holder::Call,
            "ToolOutput" => Holder::Output,
            "Message" => Holder::Message,
            _ => return,
        };
        let way = Way { variable: name.text.clone(), holder, steps: Vec::new() };
        self.ways.insert(name.text.clone(), way);
    }

    /// Notes what an expression says of names: their types, their tools, and what they range over.
    fn name(&mut self, expr: &Expr) {
        match &*expr.kind {
            ExprKind::Typed(name, ty) => self.declare(name, ty),
            ExprKind::Comprehension { name, list, .. } => self.item(name, list),
            ExprKind::Compare(first, rest) => {
                if let (ExprKind::Typed(name, ty), [(Comparison::In, list)]) = (&*first.kind, rest.as_slice())
                    && !matches!(ty.text.as_str(), "ToolCall" | "ToolOutput" | "Message")
                {
                    self.item(name, list);
                }
                let variable = match &*first.kind {
                    ExprKind::Typed(name, _) => Some(name.text.clone()),
                    _ => self.way(first).filter(|way| way.steps.is_empty()).map(|way| way.variable),
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

    fn item(&mut self, name: &Name, list: &Expr) {
        if let Some(mut way) = self.way(list) {
            way.steps.push(None);
            self.ways.insert(name.text.clone(), way);
        }
    }

    /// What an expression stands for, if it is a part of an event.
    fn way(&self, expr: &Expr) -> Option<Way> {
        let (object, step) = match &*expr.kind {
            ExprKind::Name(name) => return self.ways.get(name).cloned(),
            ExprKind::Typed(name, _) => return self.ways.get(&name.text).cloned(),
            ExprKind::Member(object, name) => (object, Some(name.text.clone())),
            ExprKind::Index(object, index) => match &*index.kind {
                ExprKind::Str(key) => (object, Some(key.clone())),
                _ => (object, None),
            },
            ExprKind::Each(object) => (object, None),
            _ => return None,
        };
        let mut way = self.way(object)?;
        way.steps.push(step);
        Some(way)
    }

    fn tools(&mut self, expr: &Expr) {
        let ExprKind::Tool(tool) = &*expr.kind else { return };
        let Ok(pattern) = ToolPattern::new(&tool.name) else { return };
        // The endpoints that the guard itself asks are no tools of an agent.
        let is_own = matches!(&tool.name, ToolName::Glob(name) if name.starts_with("flowgate/"));
        if is_own {
            return;
        }
        if self.occurrences.tools.iter().any(|known| pattern.matches(known)) {
            self.shape(tool, &pattern);
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

    /// The arguments that a pattern names: `tool:send({to: "bob"})`.
    fn shape(&mut self, tool: &ToolRef, pattern: &ToolPattern) {
        let Some(ExprKind::Dict(entries)) = tool.arguments.as_ref().map(|arguments| &*arguments.kind) else {
            return;
        };
        for (key, _) in entries {
            let (ExprKind::Str(name) | ExprKind::Name(name)) = &*key.kind else { continue };
            let known = self.keys(Holder::Call, std::slice::from_ref(pattern));
            self.key("unused-argument", name, &key.span, known);
        }
    }

    fn roles(&mut self, expr: &Expr) {
        let literals = role_literals(expr);
        let occurs = |role: &str| self.occurrences.roles.contains(role) || role == "tool";
        // Of a list, that some of the usual roles do not occur means nothing.
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

    /// The last key of a way into an event.
    fn fields(&mut self, expr: &Expr) {
        // `x.get("key")` asks for a key as well.
        if let ExprKind::Call(callee, arguments, _) = &*expr.kind
            && let ExprKind::Member(object, method) = &*callee.kind
            && method.text == "get"
            && let Some(key) = arguments.first()
            && let ExprKind::Str(name) = &*key.kind
            && let Some(mut way) = self.way(object)
        {
            way.steps.push(Some(name.clone()));
            self.field(&way, &key.span);
            return;
        }
        let span = match &*expr.kind {
            ExprKind::Member(_, name) => &name.span,
            ExprKind::Index(_, key) if matches!(&*key.kind, ExprKind::Str(_)) => &key.span,
            _ => return,
        };
        if let Some(way) = self.way(expr) {
            self.field(&way, span);
        }
    }

    fn field(&mut self, way: &Way, span: &Span) {
        let mut steps = way.steps.iter().map(Option::as_deref);
        let mut first = steps.next().flatten();
        if first == Some("function") {
            first = steps.next().flatten();
        }
        let code = match (way.holder, first) {
            (Holder::Call, Some("arguments")) if steps.len() == 1 => "unused-argument",
            (Holder::Call, Some("arguments"))
            | (Holder::Output, Some("content" | "structured"))
            | (Holder::Message, Some("content")) => "unused-field",
            _ => return,
        };
        let Some(Some(name)) = way.steps.last() else { return };
        if steps.next().is_none() {
            return;
        }
        // Blocks of content have fields of their own.
        if way.holder != Holder::Call && matches!(name.as_str(), "text" | "type" | "image_url" | "url") {
            return;
        }
        let none = Vec::new();
        let known = self.keys(way.holder, self.patterns.get(&way.variable).unwrap_or(&none));
        self.key(code, name, span, known);
    }

    /// The keys in events of the tools; nothing if there are no such events.
    fn keys(&self, holder: Holder, patterns: &[ToolPattern]) -> Option<Vec<&'a str>> {
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

    fn key(&mut self, code: &'static str, name: &str, span: &Span, known: Option<Vec<&str>>) {
        // Where there is no such event, what is said of the tool is enough.
        let Some(known) = known else { return };
        if known.contains(&name) {
            return;
        }
        let near = nearest(name, known).map(str::to_owned);
        let what = if code == "unused-argument" { "argument" } else { "field" };
        let message = format!("the {what} `{name}` does not occur in the traces");
        self.report(code, span, &message, near.as_deref());
    }

    fn report(&mut self, code: &'static str, span: &Span, message: &str, near: Option<&str>) {
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "if it is not misspelled, the traces lack what this speaks of".to_owned(),
        };
        self.found.push(Diagnostic::warning(code, span.clone(), message).help(help));
    }
}

/// Visits the lines of a statement's body, and of blocks in it.
fn each_line(statement: &Statement, visit: &mut impl FnMut(&BodyLine)) {
    let body = match &statement.kind {
        StatementKind::Label { body, .. }
        | StatementKind::Require { body, .. }
        | StatementKind::Payload { body, .. }
        | StatementKind::Consent { body, .. }
        | StatementKind::Endorse { body, .. }
        | StatementKind::Rule { body, .. }
        | StatementKind::Predicate { body, .. } => body,
        _ => return,
    };
    lines_of(body, visit);
}

fn lines_of(body: &Body, visit: &mut impl FnMut(&BodyLine)) {
    for line in &body.lines {
        visit(line);
        let mut inner: Vec<Body> = Vec::new();
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
