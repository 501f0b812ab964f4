//! Walks the statements of a policy, and reports each tool, argument and field that a statement names and no schema
//! contains. [`ToolSchemas::diagnostics`] calls [`diagnostics`]. `value_check` also uses [`ToolMatcher`], which finds
//! the listed tools that an expression is about.

use std::collections::BTreeSet;

use super::schema::SchemaSet;
use super::{ToolSchema, ToolSchemas, help_for, is_beyond_lists, listed, quoted};
use crate::policy::event_path::{EventKind, EventPath, EventStep, KeyRead, StatementPaths};
use crate::policy::pattern::ToolPattern;
use crate::policy::roles::{Constants, constants};
use crate::policy::syntax::{
    Expr, ExprKind, Independence, Name, PolicyFile, Statement, StatementKind, ToolRef,
};
use crate::policy::{Diagnostic, Severity, Span};
use crate::trace::Tool;

/// Returns the diagnostics about the tools, arguments and fields that a policy names.
pub(super) fn diagnostics(schemas: &ToolSchemas, file: &PolicyFile) -> Vec<Diagnostic> {
    let (tools, constants) = (ToolMatcher::new(schemas, file), constants(&file.statements));
    let mut checker = NameChecker { tools, constants: &constants, found: Vec::new() };
    for statement in &file.statements {
        checker.check_statement(statement);
    }
    checker.found
}

/// Finds the listed tools that an expression is about.
pub(super) struct ToolMatcher<'s> {
    schemas: &'s ToolSchemas,
    /// Whether the policy can be about no other tools than the listed ones.
    is_complete: bool,
}

/// The tools that an expression is about.
pub(super) struct MatchedTools<'s> {
    pub(super) tools: Vec<&'s ToolSchema>,
    /// Whether the statement restricts its event to these tools by a pattern.
    is_restricted: bool,
}

impl<'s> ToolMatcher<'s> {
    /// Creates a matcher for the tools in `schemas` that the policy `file` can be about.
    pub(super) fn new(schemas: &'s ToolSchemas, file: &PolicyFile) -> Self {
        Self { schemas, is_complete: schemas.is_complete_for(file) }
    }

    /// Returns the tools that a pattern matches; `None` if it may match tools that are not listed, or matches none.
    pub(super) fn of_pattern(&self, pattern: &ToolPattern) -> Option<MatchedTools<'s>> {
        let tools = self.schemas.matching(pattern, self.is_complete)?;
        (!tools.is_empty()).then_some(MatchedTools { tools, is_restricted: true })
    }

    /// Returns the tools that the event of a variable can be about: the tools that its patterns match, or all if it has
    /// no pattern. `None` if it can be about tools that are not listed, or about none; nothing can then be reported.
    pub(super) fn of_variable(&self, paths: &StatementPaths<'_>, variable: &str) -> Option<MatchedTools<'s>> {
        let patterns = paths.patterns_of(variable);
        if patterns.is_empty() {
            // Unless the lists are complete, the event can be about a tool that is not listed.
            let tools: Vec<_> = self.schemas.tools.iter().filter(|_| self.is_complete).collect();
            return (!tools.is_empty()).then_some(MatchedTools { tools, is_restricted: false });
        }
        let mut tools: Vec<&ToolSchema> = Vec::new();
        for pattern in patterns {
            tools.extend(self.schemas.matching(pattern, self.is_complete)?);
        }
        (!tools.is_empty()).then_some(MatchedTools { tools, is_restricted: true })
    }
}

impl<'s> MatchedTools<'s> {
    /// Returns the schemas of the arguments.
    pub(super) fn inputs(&self) -> SchemaSet<'s> {
        SchemaSet::new(self.tools.iter().map(|tool| tool.input.as_ref()))
    }

    /// Returns the schemas of the part of an event that a path leads into, the arguments or the answer, and the steps
    /// of the path within that part. `None` if the path leads into another part, which no schema describes.
    fn schemas_of<'p>(&self, path: &'p EventPath) -> Option<(SchemaSet<'s>, &'p [EventStep])> {
        if let Some(steps) = path.below_arguments() {
            return Some((self.inputs(), steps));
        }
        let outputs = || SchemaSet::new(self.tools.iter().map(|tool| tool.output.as_ref()));
        match (path.kind, path.steps.as_slice()) {
            (EventKind::Output, [EventStep::Key(first), steps @ ..]) if first == "structured" => {
                Some((outputs(), steps))
            }
            (EventKind::Output, [EventStep::Key(first), steps @ ..]) if first == "content" => {
                // A policy may read the text of an answer with or without the wrapper `{"result": ...}`.
                let is_wrapper = steps.first().and_then(EventStep::key) == Some("result");
                Some((if is_wrapper { outputs() } else { outputs().unwrapped() }, steps))
            }
            _ => None,
        }
    }

    /// Returns the quoted name of the tool, if there is only one.
    pub(super) fn only_tool(&self) -> Option<String> {
        let (first, rest) = self.tools.split_first()?;
        rest.iter().all(|other| other.tool == first.tool).then(|| quoted(&first.tool.to_string()))
    }

    /// Returns the words for several tools: `3 matched tools` if a pattern restricts the statement to them, otherwise
    /// `3 listed tools`.
    pub(super) fn plural(&self) -> String {
        let names: BTreeSet<&Tool> = self.tools.iter().map(|schema| &schema.tool).collect();
        format!("{} {} tools", names.len(), if self.is_restricted { "matched" } else { "listed" })
    }
}

/// Collects the diagnostics about the names in a policy.
struct NameChecker<'s> {
    tools: ToolMatcher<'s>,
    constants: &'s Constants<'s>,
    found: Vec<Diagnostic>,
}

impl NameChecker<'_> {
    /// Checks the tool patterns of a statement, and the keys that it reads from arguments and answers.
    fn check_statement(&mut self, statement: &Statement) {
        let paths = StatementPaths::new(statement, self.constants);
        // These statements grant something, unless their pattern is ambiguous. `check_pattern` warns about an ambiguous
        // pattern in them.
        let grants = matches!(
            &statement.kind,
            StatementKind::Label { .. }
                | StatementKind::Require { .. }
                | StatementKind::Payload { .. }
                | StatementKind::Consent { .. }
                | StatementKind::Endorse { .. }
        );
        statement.walk(&mut |expr| self.check_pattern(expr, grants));
        let mut reads = Vec::new();
        paths.each_key_read(statement, &mut |read| reads.push(read));
        for read in reads {
            self.check_key_read(&paths, &read);
        }
        if let StatementKind::Label { target, independence: Independence::OfNamed(names), .. } =
            &statement.kind
        {
            self.check_independence(&paths, target, names);
        }
    }

    /// Reports each argument in the clause `independent of arguments.NAME` of a `label` statement that no tool of the
    /// statement has. `target` is the region that the statement labels, in the outputs of these tools; `names` are the
    /// arguments.
    fn check_independence(&mut self, paths: &StatementPaths<'_>, target: &Expr, names: &[Name]) {
        let Some(matched) = root_variable(target).and_then(|root| self.tools.of_variable(paths, root)) else {
            return;
        };
        let inputs = matched.inputs();
        for name in names.iter().filter(|name| inputs.lacks(&name.text)) {
            let missing =
                MissingName { matched: &matched, kind: EventKind::Call, above: &[], name: &name.text };
            self.found.push(missing.diagnostic(Severity::Error, &inputs, &name.span));
        }
    }

    /// Checks a tool pattern: whether it matches a listed tool, and whether this tool has the arguments that the
    /// pattern names. If the statement `grants` something, also checks whether the pattern matches tools of several
    /// servers: the statement then grants nothing.
    fn check_pattern(&mut self, expr: &Expr, grants: bool) {
        let ExprKind::Tool(tool) = &*expr.kind else { return };
        let Ok(pattern) = ToolPattern::new(&tool.name) else { return };
        // Such a pattern is for tools that no list contains, such as Flowgate's own tools.
        if is_beyond_lists(&pattern) {
            return;
        }
        // The pattern may match tools that are not listed, so nothing is known to be wrong.
        let Some(matching) = self.tools.schemas.matching(&pattern, self.tools.is_complete) else { return };
        if matching.is_empty() {
            self.report_unlisted_tool(&pattern, &expr.span);
            return;
        }
        if grants && !pattern.is_qualified() {
            self.check_ambiguity(&pattern, &matching, &expr.span);
        }
        // `is_restricted`: the pattern restricts the statement to these tools.
        self.check_argument_names(tool, &MatchedTools { tools: matching, is_restricted: true });
    }

    /// Reports a pattern that matches no listed tool, with the nearest name.
    fn report_unlisted_tool(&mut self, pattern: &ToolPattern, span: &Span) {
        let server = pattern.server();
        let of_server = |schema: &&ToolSchema| {
            server.is_none_or(|server| schema.tool.server.as_deref().unwrap_or_default() == server)
        };
        let listed = self.tools.schemas.tools.iter().filter(of_server);
        let known: BTreeSet<&str> = listed.map(|schema| &*schema.tool.name).collect();
        // The name without the server. Empty for a pattern that names neither a server nor a single tool.
        let name = pattern.name_on_server().or(pattern.exact_name().map(|name| &**name)).unwrap_or_default();
        let help = help_for(name, &known, "the listed tools are", "no tool is listed");
        // A suggestion replaces the whole pattern, so the server of the pattern is added to the suggested name.
        let help = match server.filter(|server| !server.is_empty()) {
            Some(server) => help.replace("did you mean `", &format!("did you mean `{server}/")),
            None => help,
        };
        let message = format!("no listed tool matches {}", quoted(&pattern.to_string()));
        self.found.push(Diagnostic::error("unlisted-tool", span.clone(), message).help(help));
    }

    /// Warns about a pattern without a server if listed tools of two servers match it: it is ambiguous, so the
    /// statement grants nothing.
    fn check_ambiguity(&mut self, pattern: &ToolPattern, matching: &[&ToolSchema], span: &Span) {
        let servers: BTreeSet<_> = matching.iter().map(|schema| &schema.tool.server).collect();
        if servers.len() < 2 {
            return;
        }
        let names: BTreeSet<String> = matching.iter().map(|schema| schema.tool.to_string()).collect();
        let count = servers.len();
        let pattern = quoted(&pattern.to_string());
        let message = format!(
            "tools of {count} servers match {pattern}, so it is ambiguous which one is meant, and the statement grants nothing"
        );
        let help = format!("write the server too: {}", listed(names.iter().map(String::as_str)));
        self.found.push(Diagnostic::warning("ambiguous-tool", span.clone(), message).help(help));
    }

    /// Checks the arguments that a pattern names: `tool:send({to: "bob"})`.
    fn check_argument_names(&mut self, tool: &ToolRef, matched: &MatchedTools<'_>) {
        if let Some(arguments) = &tool.arguments {
            self.check_entries(arguments, matched, &matched.inputs(), &mut Vec::new());
        }
    }

    /// Checks the names of arguments in a tool pattern, such as `{to: {name: "ann"}}`, against the schemas, level by
    /// level. `shape` is the pattern at a level, `above` the path to it, for messages; `schemas` describe the values
    /// there. `matched` are the tools that the pattern matches.
    fn check_entries(
        &mut self,
        shape: &Expr,
        matched: &MatchedTools<'_>,
        schemas: &SchemaSet<'_>,
        above: &mut Vec<EventStep>,
    ) {
        // Each part of the pattern: the step to it, its own pattern, and the location of its key, if it has one.
        let parts: Vec<(EventStep, &Expr, Option<&Span>)> = match &*shape.kind {
            ExprKind::Dict(entries) => entries
                .iter()
                .filter_map(|(key, value)| match &*key.kind {
                    ExprKind::Str(name) | ExprKind::Name(name) => {
                        Some((EventStep::Key(name.clone()), value, Some(&key.span)))
                    }
                    _ => None,
                })
                .collect(),
            ExprKind::List(items) => items.iter().map(|item| (EventStep::Item, item, None)).collect(),
            _ => return,
        };
        for (step, value, span) in parts {
            // The contents of a missing argument are not checked, since no schema describes them.
            if let (Some(name), Some(span)) = (step.key(), span)
                && schemas.lacks(name)
            {
                let missing = MissingName { matched, kind: EventKind::Call, above: &*above, name };
                self.found.push(missing.diagnostic(Severity::Error, schemas, span));
                continue;
            }
            let below = schemas.step(&step);
            above.push(step);
            self.check_entries(value, matched, &below, above);
            above.pop();
        }
    }

    /// Checks a key that a statement reads from arguments or from an answer: reports it if the schemas of all tools
    /// that the event can be about lack it.
    fn check_key_read(&mut self, paths: &StatementPaths<'_>, read: &KeyRead) {
        let Some(matched) = self.tools.of_variable(paths, &read.path.variable) else { return };
        let Some((schemas, steps)) = matched.schemas_of(&read.path) else { return };
        let Some((EventStep::Key(name), above)) = steps.split_last() else { return };
        let kind = read.path.kind;
        // MCP and model APIs define these fields of blocks of content, so the schema of a tool need not list them.
        if kind == EventKind::Output && matches!(name.as_str(), "text" | "type" | "image_url" | "url") {
            return;
        }
        let schemas = above.iter().fold(schemas, |set, step| set.step(step));
        if !schemas.lacks(name) {
            return;
        }
        // An error if the statement restricts its event to some tools and reads an argument that they lack. Otherwise
        // only a warning: a statement that tests whether the argument is there may deny what a tool does not declare, a
        // statement about all tools may be meant for other agents, too, and an answer may have further fields.
        let severity = match kind {
            EventKind::Call if matched.is_restricted && !read.is_presence_test => Severity::Error,
            _ => Severity::Warning,
        };
        let missing = MissingName { matched: &matched, kind, above, name };
        self.found.push(missing.diagnostic(severity, &schemas, &read.span));
    }
}

/// A name that the schemas of some tools do not have.
struct MissingName<'m> {
    matched: &'m MatchedTools<'m>,
    kind: EventKind,
    /// The steps from the arguments or the answer to the value that lacks the name.
    above: &'m [EventStep],
    name: &'m str,
}

impl MissingName<'_> {
    /// Returns the error or warning that the tools lack the name, with the nearest name in `schemas` as help.
    fn diagnostic(&self, severity: Severity, schemas: &SchemaSet<'_>, span: &Span) -> Diagnostic {
        let is_argument = self.kind == EventKind::Call && self.above.is_empty();
        let (code, what) = match is_argument {
            true => ("unlisted-argument", "argument"),
            false => ("unlisted-field", "field"),
        };
        let holder = match (self.kind, self.above) {
            // The message has named the tool, which has the argument itself.
            (EventKind::Call, []) => String::new(),
            (EventKind::Call, above) => format!(" in its argument {}", quoted(&path_text(above))),
            (_, []) => " in its answer".to_owned(),
            (_, above) => format!(" in {} of its answer", quoted(&path_text(above))),
        };
        let name = quoted(self.name);
        let message = match self.matched.only_tool() {
            Some(tool) => format!("the tool {tool} has no {what} {name}{holder}"),
            None => format!("none of the {} has the {what} {name}{holder}", self.matched.plural()),
        };
        let help = help_for(
            self.name,
            &schemas.names(),
            &format!("the {what}s are"),
            &format!("there are no {what}s"),
        );
        let diagnostic = match severity {
            Severity::Error => Diagnostic::error(code, span.clone(), message),
            Severity::Warning => Diagnostic::warning(code, span.clone(), message),
        };
        diagnostic.help(help)
    }
}

/// Returns the variable with which the path of a region begins. For `capture(PATH, ...)`, this is the variable of the
/// path in it. `None` if the expression is no path.
fn root_variable(target: &Expr) -> Option<&str> {
    match &*target.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Member(object, _) | ExprKind::Each(object) | ExprKind::Index(object, _) => {
            root_variable(object)
        }
        ExprKind::Call(_, arguments, _) => root_variable(arguments.first()?),
        _ => None,
    }
}

/// Returns the text of a path: `items[*].price`.
pub(super) fn path_text(steps: &[EventStep]) -> String {
    let mut text = String::new();
    for step in steps {
        match step.key() {
            Some(key) if text.is_empty() => text.push_str(key),
            Some(key) => text.extend([".", key]),
            None => text.push_str("[*]"),
        }
    }
    text
}
