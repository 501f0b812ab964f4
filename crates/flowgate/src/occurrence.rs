//! Collects the names that occur in recorded runs (tools, roles, fields, arguments), and warns about the parts of a
//! policy that refer to other names. `flowgate check` and `flowgate replay` print the warnings.
//!
//! A statement about a tool, a role, a field or an argument that never occurs has no effect. Either the statement is
//! meant for other runs than the recorded ones, or a name in it is misspelled. The compiler cannot detect such a
//! mistake, since it does not know which names the events contain.

mod name_check;

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::event_path::EventKind;
pub use crate::policy::roles::ROLES;
use crate::policy::{Diagnostic, Policy};
use crate::trace::{Document, EventBody, EventId, PathStep, Tool, Trace};

/// The codes of the warnings; their meaning is stable.
pub const CODES: &[&str] = &["unused-argument", "unused-field", "unused-role", "unused-tool"];

/// The most different names that are recorded, of all kinds together. At this number, no warnings are given.
const MAX_NAMES: usize = 50_000;

/// The names that occur in runs.
#[derive(Debug, Clone, Default)]
pub struct Occurrences {
    events: usize,
    tools: BTreeSet<Tool>,
    roles: BTreeSet<String>,
    /// The keys in events, by the kind of event and, for calls and outputs, by the tool.
    keys: BTreeMap<(EventKind, Option<Tool>), BTreeSet<String>>,
    /// The number of recorded names.
    names: usize,
}

impl Occurrences {
    /// Creates an empty set of names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the names in the trace of a run: roles, tools, and the keys of each kind of event. A description of a tool
    /// adds the tool and its parameters. Beyond `MAX_NAMES`, new names are ignored.
    pub fn add(&mut self, trace: &Trace) {
        for event in (0..trace.len()).filter_map(|id| trace.event(EventId(id))) {
            self.events += 1;
            match &event.body {
                EventBody::Message(message) => {
                    if !self.roles.contains(&message.role) && self.has_room() {
                        self.roles.insert(message.role.clone());
                        self.names += 1;
                    }
                    // Node 0 is the root, so all keys of the event are added.
                    self.add_keys((EventKind::Message, None), &event.document, 0);
                }
                EventBody::Call(call) => {
                    self.add_tool(&call.tool);
                    self.add_keys((EventKind::Call, Some(call.tool.clone())), &event.document, 0);
                }
                EventBody::Output(_) => {
                    let call = event.call.and_then(|call| trace.event(call));
                    let tool = call.and_then(|call| call.tool());
                    if let Some(tool) = tool {
                        self.add_tool(tool);
                    }
                    self.add_keys((EventKind::Output, tool.cloned()), &event.document, 0);
                }
                // A tool that a server lists may be called, with the parameters that its schema names.
                EventBody::Tool(description) => {
                    self.add_tool(&description.tool);
                    let schema = event.document.key(0, "inputSchema");
                    let properties = schema.and_then(|schema| event.document.key(schema, "properties"));
                    let key = (EventKind::Call, Some(description.tool.clone()));
                    match properties {
                        Some(properties) => self.add_keys(key, &event.document, properties),
                        // The entry records that the tool is known, though it has no parameters.
                        None => drop(self.keys.entry(key).or_default()),
                    }
                }
            }
        }
    }

    /// Adds the names that `other` has recorded. A name that both have recorded counts twice in the number of names, so
    /// this number becomes an upper bound.
    pub fn merge(&mut self, other: Self) {
        self.events += other.events;
        self.names += other.names;
        self.tools.extend(other.tools);
        self.roles.extend(other.roles);
        for (holder, keys) in other.keys {
            self.keys.entry(holder).or_default().extend(keys);
        }
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Returns the recorded roles that are none of the usual [`ROLES`], shortened to 40 characters and escaped for
    /// printing.
    pub fn unknown_roles(&self) -> Vec<String> {
        let unknown = self.roles.iter().filter(|role| !ROLES.contains(&role.as_str()));
        unknown.map(|role| role.chars().take(40).collect::<String>().escape_debug().to_string()).collect()
    }

    /// Returns a warning for each name in a policy that does not occur in the recorded traces, in order of position.
    /// Returns none if no traces were added, or if the record is full, since it then may lack names.
    pub fn warnings(&self, policy: &Policy) -> Vec<Diagnostic> {
        if self.is_empty() || !self.has_room() {
            return Vec::new();
        }
        let mut warnings = name_check::warnings(self, policy);
        warnings.sort_by_key(|warning| (warning.span.start, warning.span.end));
        warnings.dedup();
        warnings
    }

    /// Returns whether another name can be recorded. Otherwise the record may lack names.
    fn has_room(&self) -> bool {
        self.names < MAX_NAMES
    }

    /// Adds a tool, unless it was added before or there are `MAX_NAMES` names already.
    fn add_tool(&mut self, tool: &Tool) {
        if !self.tools.contains(tool) && self.has_room() {
            self.tools.insert(tool.clone());
            self.names += 1;
        }
    }

    /// Records that events of the kind and tool `holder` have the keys in the subtree of the node `below`. The names of
    /// captured parts count as keys. Once `MAX_NAMES` names are recorded, adds none.
    fn add_keys(&mut self, holder: (EventKind, Option<Tool>), document: &Document, below: usize) {
        let end = document.node(below).map_or(below, |node| node.end);
        let known = self.keys.entry(holder).or_default();
        for node in (below + 1..end).filter_map(|node| document.node(node)) {
            if let PathStep::Key(key) | PathStep::Capture(key) = &node.step
                && !known.contains(&**key)
                && self.names < MAX_NAMES
            {
                known.insert(key.to_string());
                self.names += 1;
            }
        }
    }
}
