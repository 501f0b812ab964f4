//! What occurs in recorded runs, and which parts of a policy speak of something that does not.
//!
//! A statement over a tool, a role, a field or an argument that never occurs does nothing: it may have been meant for runs that
//! are not at hand, or it may be misspelled. Nobody notices the latter as long as nothing is compared.

mod references;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use references::misspelled_roles;

use crate::policy::{Diagnostic, Policy};
use crate::trace::{Body, Document, EventId, Step, Tool, Trace};

/// The codes of the warnings, which never change their meaning.
pub const CODES: &[&str] = &["unused-argument", "unused-field", "unused-role", "unused-tool"];

/// The roles that messages have.
pub const ROLES: [&str; 8] =
    ["assistant", "developer", "function", "human", "model", "system", "tool", "user"];

/// How many different names are kept of each kind. If there are more, nothing is said of that kind.
const MAX_NAMES: usize = 50_000;

/// The kinds of events that have fields of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// The arguments of calls.
    Call,
    /// The answers of tools.
    Output,
    /// Messages.
    Message,
}

/// What occurs in runs.
#[derive(Debug, Clone, Default)]
pub struct Occurrences {
    events: usize,
    tools: BTreeSet<Tool>,
    roles: BTreeSet<String>,
    /// The keys in events, by the tool of calls and answers.
    keys: BTreeMap<(Holder, Option<Tool>), BTreeSet<String>>,
    names: usize,
}

impl Occurrences {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what occurs in a run.
    pub fn add(&mut self, trace: &Trace) {
        for event in (0..trace.len()).filter_map(|id| trace.event(EventId(id))) {
            self.events += 1;
            match &event.body {
                Body::Message(message) => {
                    if !self.roles.contains(&message.role) && self.has_room() {
                        self.roles.insert(message.role.clone());
                        self.names += 1;
                    }
                    self.keys_of((Holder::Message, None), &event.document, 0);
                }
                Body::Call(call) => {
                    self.tool(&call.tool);
                    self.keys_of((Holder::Call, Some(call.tool.clone())), &event.document, 0);
                }
                Body::Output(_) => {
                    let call = event.call.and_then(|call| trace.event(call));
                    let tool = event.tool().or_else(|| call.and_then(|call| call.tool()));
                    if let Some(tool) = tool {
                        self.tool(tool);
                    }
                    self.keys_of((Holder::Output, tool.cloned()), &event.document, 0);
                }
                // What a server lists may be called, with the parameters that it names.
                Body::Tool(description) => {
                    self.tool(&description.tool);
                    let schema = event.document.key(0, "inputSchema");
                    let properties = schema.and_then(|schema| event.document.key(schema, "properties"));
                    let key = (Holder::Call, Some(description.tool.clone()));
                    match properties {
                        Some(properties) => self.keys_of(key, &event.document, properties),
                        None => drop(self.keys.entry(key).or_default()),
                    }
                }
            }
        }
    }

    /// Takes in what occurs in other runs.
    pub fn merge(&mut self, other: Self) {
        self.events += other.events;
        self.names += other.names;
        self.tools.extend(other.tools);
        self.roles.extend(other.roles);
        for (holder, keys) in other.keys {
            self.keys.entry(holder).or_default().extend(keys);
        }
    }

    /// Whether there are no events at all.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The roles that no message of a known kind of client has, as they may be printed.
    pub fn unknown_roles(&self) -> Vec<String> {
        let unknown = self.roles.iter().filter(|role| !ROLES.contains(&role.as_str()));
        unknown.map(|role| role.chars().take(40).collect::<String>().escape_debug().to_string()).collect()
    }

    /// What a policy speaks of that does not occur, in order of place.
    pub fn warnings(&self, policy: &Policy) -> Vec<Diagnostic> {
        if self.is_empty() || !self.has_room() {
            return Vec::new();
        }
        let mut warnings = references::warnings(self, policy);
        warnings.sort_by_key(|warning| (warning.span.start, warning.span.end));
        warnings.dedup();
        warnings
    }

    fn has_room(&self) -> bool {
        self.names < MAX_NAMES
    }

    fn tool(&mut self, tool: &Tool) {
        if !self.tools.contains(tool) && self.has_room() {
            self.tools.insert(tool.clone());
            self.names += 1;
        }
    }

    /// Notes the keys below a node.
    fn keys_of(&mut self, holder: (Holder, Option<Tool>), document: &Document, below: usize) {
        let end = document.node(below).map_or(below, |node| node.end);
        let known = self.keys.entry(holder).or_default();
        for node in (below + 1..end).filter_map(|node| document.node(node)) {
            if let Step::Key(key) | Step::Capture(key) = &node.step
                && !known.contains(&**key)
                && self.names < MAX_NAMES
            {
                known.insert(key.to_string());
                self.names += 1;
            }
        }
    }
}
