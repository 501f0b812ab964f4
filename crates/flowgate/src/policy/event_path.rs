//! Determines which part of an event an expression of a statement denotes, and to which tools the statement restricts
//! the event. The comparisons of policies with recorded runs (`occurrence`) and with schemas (`tool_schemas`) create
//! [`StatementPaths`] for each statement, to check the keys that the statement reads.

use std::collections::{HashMap, HashSet};

use super::diagnostic::Span;
use super::pattern::ToolPattern;
use super::roles::Constants;
use super::syntax::{BodyLine, Comparison, ConditionBody, Expr, ExprKind, Name, Statement, StatementKind};

/// The kinds of events whose fields are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    /// The calls of tools.
    Call,
    /// The answers of tools.
    Output,
    /// Messages.
    Message,
}

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventStep {
    /// The value of a key.
    Key(String),
    /// An item of a list.
    Item,
    /// Some value directly or further below, whose step is not known: that of a variable over the values in a list, or
    /// of a computed index.
    Within,
}

impl EventStep {
    /// Returns the key, if the step is one.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Item | Self::Within => None,
        }
    }
}

/// An event, or a part of one.
#[derive(Debug, Clone)]
pub(crate) struct EventPath {
    /// The variable over events at which the path begins.
    pub(crate) variable: String,
    pub(crate) kind: EventKind,
    pub(crate) steps: Vec<EventStep>,
}

impl EventPath {
    /// Returns the steps after `arguments` if the path is within the arguments of a call; `None` otherwise. A policy
    /// reads the arguments as `call.arguments` or, as in OpenAI's format, as `call.function.arguments`.
    pub(crate) fn below_arguments(&self) -> Option<&[EventStep]> {
        let steps = match self.steps.as_slice() {
            [EventStep::Key(first), rest @ ..] if first == "function" => rest,
            steps => steps,
        };
        match steps {
            [EventStep::Key(first), rest @ ..] if self.kind == EventKind::Call && first == "arguments" => {
                Some(rest)
            }
            _ => None,
        }
    }
}

/// An expression that reads a key of an event.
#[derive(Debug, Clone)]
pub(crate) struct KeyRead {
    /// The path, which ends with the key.
    pub(crate) path: EventPath,
    /// The location of the key.
    pub(crate) span: Span,
    /// Whether it only asks whether the key is present.
    pub(crate) is_presence_test: bool,
}

/// The maximum length of a chain of definitions (`a := call.arguments`, `b := a.to`) that is resolved; a name at the
/// end of a longer chain has no path.
const MAX_DEFINITION_DEPTH: usize = 4;

/// The paths that the names in a statement denote, and the tools to which the statement restricts its variables.
#[derive(Debug)]
pub(crate) struct StatementPaths<'p> {
    /// The constants of the policy, which can name groups of tools.
    constants: &'p Constants<'p>,
    /// The paths, by the names that denote them.
    paths: HashMap<String, EventPath>,
    /// The tool patterns, by the variables that they restrict.
    patterns: HashMap<String, Vec<ToolPattern>>,
}

impl<'p> StatementPaths<'p> {
    /// Resolves the names in a statement to the parts of events that they denote, and collects the tool patterns to
    /// which it restricts its variables.
    pub(crate) fn new(statement: &Statement, constants: &'p Constants<'p>) -> Self {
        let mut resolved = Self { constants, paths: HashMap::new(), patterns: HashMap::new() };
        // First the names: parameters, variables and definitions.
        if let StatementKind::Predicate { parameters, .. } = &statement.kind {
            for (name, ty) in parameters {
                if let Some(ty) = ty {
                    resolved.declare_variable(name, ty);
                }
            }
        }
        // A definition may refer to a name that a later line defines, so each pass resolves one more link.
        for _ in 0..MAX_DEFINITION_DEPTH {
            statement.walk(&mut |expr| resolved.record_names(expr));
            each_line(statement, &mut |line| {
                if let BodyLine::Let(name, value) = line
                    && let Some(path) = resolved.path_of(value)
                {
                    resolved.paths.insert(name.text.clone(), path);
                }
            });
        }
        // Then the tool patterns, in the conditions of the statement and in its blocks.
        if let Some(body) = body_of(statement) {
            resolved.record_restrictions(body, &|_| true);
        }
        statement.walk(&mut |expr| {
            if let ExprKind::Quantified(_, body) = &*expr.kind {
                let declared = variables_in(body);
                // The conditions of a block hold only within it, so they restrict the variables that it declares, not
                // the variables of the statement around it.
                resolved.record_restrictions(body, &|variable| declared.contains(variable));
            }
        });
        resolved
    }

    /// Returns the tool patterns to which the statement restricts the event of a variable; none if any tool is
    /// possible.
    pub(crate) fn patterns_of(&self, variable: &str) -> &[ToolPattern] {
        self.patterns.get(variable).map_or(&[], Vec::as_slice)
    }

    /// Returns the path of an expression, if it is an event or a part of one; `None` for any other value.
    pub(crate) fn path_of(&self, expr: &Expr) -> Option<EventPath> {
        let (object, step) = match &*expr.kind {
            ExprKind::Name(name) => return self.paths.get(name).cloned(),
            ExprKind::Typed(name, _) => return self.paths.get(&name.text).cloned(),
            ExprKind::Member(object, name) => (object, EventStep::Key(name.text.clone())),
            ExprKind::Index(object, index) => match &*index.kind {
                ExprKind::Str(key) => (object, EventStep::Key(key.clone())),
                ExprKind::Int(_) | ExprKind::Negate(_) => (object, EventStep::Item),
                // A computed index may be a key or the position of an item; `Within` covers both.
                _ => (object, EventStep::Within),
            },
            ExprKind::Each(object) => (object, EventStep::Item),
            _ => return None,
        };
        let mut path = self.path_of(object)?;
        path.steps.push(step);
        Some(path)
    }

    /// Visits the expressions of the statement that read a key of an event.
    pub(crate) fn each_key_read(&self, statement: &Statement, visit: &mut impl FnMut(KeyRead)) {
        // In `x.method()`, the expression `x.method` names a method, not a key.
        let mut methods: HashSet<Span> = HashSet::new();
        statement.walk(&mut |expr| {
            if let ExprKind::Call(callee, ..) = &*expr.kind {
                methods.insert(callee.span.clone());
            }
        });
        statement.walk(&mut |expr| {
            if !methods.contains(&expr.span)
                && let Some(read) = self.key_read(expr)
            {
                visit(read);
            }
        });
    }

    /// Returns the key that an expression reads, if it has one of these forms: `x.key`, `x["key"]`, `x.get("key")`, or
    /// a test whether the key is present, `"key" in call.arguments`. `None` for any other expression, and if `x` is not
    /// a part of an event.
    fn key_read(&self, expr: &Expr) -> Option<KeyRead> {
        // Returns the read of the key `key` in the value of `object`; `None` if `key` is not a text, or if `object` is
        // not a part of an event.
        let below = |object: &Expr, key: &Expr, is_presence_test| {
            let ExprKind::Str(name) = &*key.kind else { return None };
            let mut path = self.path_of(object)?;
            path.steps.push(EventStep::Key(name.clone()));
            Some(KeyRead { path, span: key.span.clone(), is_presence_test })
        };
        match &*expr.kind {
            // `x.get("key")`.
            ExprKind::Call(callee, arguments, _) => match &*callee.kind {
                ExprKind::Member(object, method) if method.text == "get" => {
                    below(object, arguments.first()?, false)
                }
                _ => None,
            },
            // `"key" in call.arguments` tests for a key, since arguments are always a map. Of any other value, `in` may
            // test for an item of a list or a part of a text.
            ExprKind::Compare(key, rest) => {
                let [(Comparison::In | Comparison::NotIn, map)] = rest.as_slice() else { return None };
                let path = self.path_of(map).filter(|path| path.kind == EventKind::Call)?;
                let is_arguments = path.steps.last().is_some_and(|step| step.key() == Some("arguments"));
                if is_arguments { below(map, key, true) } else { None }
            }
            ExprKind::Member(_, name) => {
                Some(KeyRead { path: self.path_of(expr)?, span: name.span.clone(), is_presence_test: false })
            }
            ExprKind::Index(object, key) => below(object, key, false),
            _ => None,
        }
    }

    /// Records that a variable denotes a whole event, if its type is a kind of event whose fields are known; other
    /// variables have no path.
    fn declare_variable(&mut self, name: &Name, ty: &Name) {
        let kind = match ty.text.as_str() {
            "ToolCall" => EventKind::Call,
            "ToolOutput" => EventKind::Output,
            "Message" => EventKind::Message,
            _ => return,
        };
        let path = EventPath { variable: name.text.clone(), kind, steps: Vec::new() };
        self.paths.insert(name.text.clone(), path);
    }

    /// Records what an expression states about names: that a variable is an event, or what it ranges over. The variable
    /// of a comprehension ranges over the items of a list. The variable of `(x: T) in VALUE` may be any value within
    /// `VALUE`, which can be a map.
    fn record_names(&mut self, expr: &Expr) {
        match &*expr.kind {
            ExprKind::Typed(name, ty) => self.declare_variable(name, ty),
            ExprKind::Comprehension { name, list, .. } => self.declare_item(name, list, EventStep::Item),
            ExprKind::Compare(first, rest) => {
                // A variable with the type of an event denotes a whole event, which the arm for `Typed` records.
                if let (ExprKind::Typed(name, ty), [(Comparison::In, list)]) = (&*first.kind, rest.as_slice())
                    && !matches!(ty.text.as_str(), "ToolCall" | "ToolOutput" | "Message")
                {
                    self.declare_item(name, list, EventStep::Within);
                }
            }
            _ => {}
        }
    }

    /// Records that a name denotes a value in a list, and `step` is the step from the list to it. Records nothing if
    /// the list is not a part of an event.
    fn declare_item(&mut self, name: &Name, list: &Expr, step: EventStep) {
        if let Some(mut path) = self.path_of(list) {
            path.steps.push(step);
            self.paths.insert(name.text.clone(), path);
        }
    }

    /// Records the tool patterns to which the lines of a body restrict variables, for the variables that `is_declared`
    /// accepts. If several lines restrict a variable, its tool must match a pattern of each line. All these patterns
    /// are nevertheless collected in one list. A tool that matches one pattern of the list counts as possible, so the
    /// list may admit more tools than the lines do. A pattern restricts nothing in a negation, or in an `or` whose
    /// parts do not all restrict the same variable.
    fn record_restrictions(&mut self, body: &ConditionBody, is_declared: &dyn Fn(&str) -> bool) {
        for line in &body.lines {
            let BodyLine::Condition(condition) = line else { continue };
            for (variable, patterns) in self.restrictions(condition) {
                if !is_declared(&variable) {
                    continue;
                }
                let recorded = self.patterns.entry(variable).or_default();
                for pattern in patterns {
                    if !recorded.iter().any(|other| other.to_string() == pattern.to_string()) {
                        recorded.push(pattern);
                    }
                }
            }
        }
    }

    /// Returns the variables whose tool a condition restricts, each with a list of patterns. If the condition holds, at
    /// least one pattern of the list matches the tool of the variable's event.
    fn restrictions(&self, condition: &Expr) -> Vec<(String, Vec<ToolPattern>)> {
        match &*condition.kind {
            ExprKind::And(parts) => parts.iter().flat_map(|part| self.restrictions(part)).collect(),
            ExprKind::Or(parts) => self.shared_restriction(parts).into_iter().collect(),
            ExprKind::Compare(first, rest) => {
                // Each operand of the chain is compared with the next one.
                let left = std::iter::once(first).chain(rest.iter().map(|(_, expr)| expr));
                left.zip(rest)
                    .filter_map(|(left, (how, right))| self.restriction(left, *how, right))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the variable that each of the `parts` of an `or` restricts, with the patterns of all parts. `None` if a
    /// part restricts another variable, several or none: the `or` can then hold for any tool.
    fn shared_restriction(&self, parts: &[Expr]) -> Option<(String, Vec<ToolPattern>)> {
        let mut variable: Option<String> = None;
        let mut patterns = Vec::new();
        for part in parts {
            let mut restricted = self.restrictions(part);
            let (name, found) = restricted.pop()?;
            let is_other = variable.as_ref().is_some_and(|known| *known != name);
            if !restricted.is_empty() || is_other {
                return None;
            }
            variable = Some(name);
            patterns.extend(found);
        }
        Some((variable?, patterns))
    }

    /// Returns the variable that `left is tool:PATTERN` restricts, with the patterns. `None` for another comparison, or
    /// if `left` is not an event itself.
    fn restriction(&self, left: &Expr, how: Comparison, right: &Expr) -> Option<(String, Vec<ToolPattern>)> {
        if how != Comparison::Is {
            return None;
        }
        let variable = match &*left.kind {
            ExprKind::Typed(name, _) => name.text.clone(),
            _ => self.path_of(left).filter(|path| path.steps.is_empty())?.variable,
        };
        Some((variable, self.tools_of(right, MAX_DEFINITION_DEPTH)?))
    }

    /// Returns the tool patterns that an expression denotes. It can be a pattern, a group of patterns, or the name of
    /// either, which is resolved through at most `depth` constants. `None` if the expression or an item of a group
    /// denotes no tools, if a pattern is not valid, or if the chain of constants is longer.
    fn tools_of(&self, expr: &Expr, depth: usize) -> Option<Vec<ToolPattern>> {
        match &*expr.kind {
            ExprKind::Tool(tool) => Some(vec![ToolPattern::new(&tool.name).ok()?]),
            ExprKind::Name(name) => self.tools_of(self.constants.get(name.as_str())?, depth.checked_sub(1)?),
            ExprKind::List(items) => {
                let members: Option<Vec<_>> = items.iter().map(|item| self.tools_of(item, depth)).collect();
                members.map(|members| members.concat())
            }
            _ => None,
        }
    }
}

/// Returns the names of the variables that a body declares with a type, `(x: T)`.
fn variables_in(body: &ConditionBody) -> HashSet<String> {
    let mut names = HashSet::new();
    for line in &body.lines {
        line.expr().walk(&mut |expr| {
            if let ExprKind::Typed(name, _) = &*expr.kind {
                names.insert(name.text.clone());
            }
        });
    }
    names
}

/// Returns the body of a statement, its conditions; `None` if statements of its kind have none, such as `lattice`.
fn body_of(statement: &Statement) -> Option<&ConditionBody> {
    match &statement.kind {
        StatementKind::Label { body, .. }
        | StatementKind::Require { body, .. }
        | StatementKind::Payload { body, .. }
        | StatementKind::Consent { body, .. }
        | StatementKind::Endorse { body, .. }
        | StatementKind::Role { body, .. }
        | StatementKind::Rule { body, .. }
        | StatementKind::Predicate { body, .. } => Some(body),
        _ => None,
    }
}

/// Visits the lines of a statement's body, and of the blocks in it.
fn each_line(statement: &Statement, visit: &mut impl FnMut(&BodyLine)) {
    let Some(body) = body_of(statement) else { return };
    for line in &body.lines {
        visit(line);
        line.expr().walk(&mut |expr| {
            if let ExprKind::Quantified(_, body) = &*expr.kind {
                body.lines.iter().for_each(&mut *visit);
            }
        });
    }
}
