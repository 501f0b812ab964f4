//! Follows a run with the oracle: which labels the parts of each event must carry at least, and where marked
//! texts occur.
//!
//! A mark is a word that occurs in no other text. For each part of an answer with a mark, the oracle
//! determines the label of that part; from then on every text with the mark must carry at least that label,
//! in every session, and an endpoint without that clearance may not be shown it.

use std::collections::{BTreeMap, BTreeSet};

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Event, EventBody, EventId, NodeContent, PathStep, Status, Tool};
use flowgate_guard::conversation::Conversation;
use flowgate_guard::redact::{HiddenContent, HiddenRegions};
use flowgate_lm::chat::Completion;
use serde_json::{Map, Value};

use crate::agents::AgentKnowledge;
use crate::declared_policy::{DeclaredPolicy, StoreName};
use crate::forms;
use crate::observed_run;
use crate::oracle::{LabelBounds, Oracle};
use crate::oracle_label::{DimensionElement, OracleLabel};
use crate::world;

/// The step whose calls are processed.
pub(crate) struct CurrentModelStep {
    pub(crate) level: OracleLabel,
    pub(crate) names: HiddenRegions,
    pub(crate) completion: Completion,
}

/// What is known about the events of one session.
#[derive(Default)]
pub(crate) struct TrackedSession {
    pub(crate) bounds: Vec<LabelBounds>,
    pub(crate) wrote: Option<CurrentModelStep>,
    /// The label that the next answer carries in addition.
    pub(crate) carries: Option<OracleLabel>,
    /// The least label of every event in the session.
    pub(crate) floor: Option<OracleLabel>,
    /// The messages that a client sent: the text, and its least label.
    pub(crate) sent: Vec<(String, OracleLabel)>,
    /// The label of the agent that acts outside the chat.
    pub(crate) beside: Option<OracleLabel>,
    pub(crate) agents: AgentKnowledge,
}

/// The state of the oracle during a run.
pub(crate) struct TaintTracker<'d> {
    pub(crate) oracle: Oracle<'d>,
    origins: BTreeMap<String, OracleLabel>,
    /// The content of stores, as honest tools maintain it.
    held: BTreeMap<(usize, StoreName), Vec<String>>,
    /// The number of accounts besides the first.
    accounts: usize,
    /// Violations: a label of the monitor that is too low, or text that was shown to an endpoint that may not
    /// read it.
    pub(crate) broken: Vec<String>,
    /// The number of parts of answers, and of those for which monitor and oracle agree.
    pub(crate) parts: (u64, u64),
    pub(crate) met: BTreeSet<&'static str>,
}

impl<'d> TaintTracker<'d> {
    pub(crate) fn new(declared: &'d DeclaredPolicy) -> Self {
        Self {
            oracle: Oracle::new(declared),
            origins: BTreeMap::new(),
            held: BTreeMap::new(),
            accounts: 0,
            broken: Vec::new(),
            parts: (0, 0),
            met: BTreeSet::new(),
        }
    }

    pub(crate) fn level(&self, monitor: &Monitor, label: &Label) -> OracleLabel {
        OracleLabel::of_names(&self.oracle.declared.shapes, &monitor.to_names(label))
    }

    /// Sets the label of a text that is not an event.
    pub(crate) fn vouch(&mut self, text: &str, level: &OracleLabel) {
        for mark in world::marks(text) {
            self.origins.entry(mark.to_owned()).or_insert_with(|| level.clone());
        }
    }

    /// Checks that a text may be shown to a reader with clearance `most`.
    pub(crate) fn shown(&mut self, whom: &str, text: &str, most: &OracleLabel) {
        for mark in world::marks(text) {
            if let Some(origin) = self.origins.get(mark).filter(|origin| !origin.flows_to(most)) {
                self.broken.push(format!("{whom} is shown {mark}, which carries {origin:?}, at {most:?}"));
                return;
            }
        }
    }

    /// Begins another session of the account.
    pub(crate) fn next_session(&mut self) {
        self.oracle.next_session();
    }

    /// Switches to the stores of a new account, or of a given one. Returns the previous account.
    pub(crate) fn enter(&mut self, account: Option<usize>) -> usize {
        self.accounts += usize::from(account.is_none());
        std::mem::replace(&mut self.oracle.account, account.unwrap_or(self.accounts))
    }

    /// Returns the echo of a tool: the arguments of a call, and the content of the tool's stores.
    pub(crate) fn echo(&self, tool: &Tool, arguments: &str) -> String {
        let mut echo = start(arguments).to_owned();
        for store in self.oracle.declared.stores_of(tool).1 {
            for text in self.held.get(&(self.oracle.account, store)).into_iter().flatten().rev().take(2) {
                echo.push_str(" / ");
                echo.push_str(text);
            }
        }
        echo
    }

    /// Records that a call runs: its tool writes the arguments to its stores.
    pub(crate) fn ran(&mut self, followed: &TrackedSession, event: EventId, call: &Event, arguments: &str) {
        let Some(tool) = call.tool() else { return };
        let level = followed.bounds[event.0].of(0, &self.oracle.bottom());
        self.oracle.ran(tool, &level);
        for store in self.oracle.declared.stores_of(tool).0 {
            self.held.entry((self.oracle.account, store)).or_default().push(start(arguments).to_owned());
        }
    }

    /// Compares the labels of new events with those of the oracle.
    pub(crate) fn follow(&mut self, followed: &mut TrackedSession, conversation: &Conversation) {
        let monitor = conversation.monitor();
        for index in followed.bounds.len()..monitor.trace().len() {
            let event = monitor.trace().event(EventId(index)).expect("it is there");
            let mut bounds = self.bounds(followed, monitor, event);
            if let Some(floor) = &followed.floor
                // A call carries the label of its step's view, and an endorsed argument may be below it.
                && !matches!(event.body, EventBody::Tool(_) | EventBody::Call(_))
            {
                bounds.parts.iter_mut().flatten().for_each(|level| *level = level.join(floor));
            }
            self.compare(monitor, index, event, &bounds);
            followed.bounds.push(bounds);
            followed.agents.happened(monitor.trace().agent_name(event.agent), index);
        }
    }

    fn bounds(&mut self, followed: &mut TrackedSession, monitor: &Monitor, event: &Event) -> LabelBounds {
        let bottom = self.oracle.bottom();
        match &event.body {
            EventBody::Tool(tool) => self.oracle.description(&tool.tool, event),
            EventBody::Message(message) if followed.level_sent(&message.content).is_some() => {
                let level = followed.level_sent(&message.content).expect("it was sent");
                LabelBounds::all(&event.document, &level)
            }
            EventBody::Message(message) if message.role == "assistant" && followed.beside.is_some() => {
                LabelBounds::all(&event.document, followed.beside.as_ref().expect("somebody acts"))
            }
            EventBody::Message(message) if message.role == "assistant" => {
                let level = followed.wrote.as_ref().map_or(&bottom, |wrote| &wrote.level);
                LabelBounds::all(&event.document, level)
            }
            EventBody::Message(message) => self.oracle.said(&message.role, event),
            EventBody::Call(call)
                if event.status == Status::Withdrawn
                    || call.tool.server.as_deref() == Some(Tool::FLOWGATE_SERVER) =>
            {
                LabelBounds::all(&event.document, &bottom)
            }
            EventBody::Call(call) => {
                let arguments = call.arguments.as_ref().expect("it was read");
                self.call(followed, event, &call.tool, arguments)
            }
            EventBody::Output(output) => {
                let call = event.call.expect("it answers a call");
                let asked = monitor.trace().event(call).expect("it is there");
                let tool = asked.tool().expect("a tool").clone();
                let level = followed.bounds[call.0].of(0, &bottom);
                if self.oracle.a_store_raises(&tool, &level) {
                    self.met.insert("a store that raises an answer");
                }
                if self.oracle.an_earlier_session_raises(&tool, &level) {
                    self.met.insert("what another session wrote");
                }
                let mut carries = followed.carries.take().unwrap_or_else(|| bottom.clone());
                // A client that forwards an answer may rewrite it.
                let is_same = |other: &&EventId| {
                    let other = monitor.trace().event(**other).expect("it is there");
                    matches!(other.body, EventBody::Output(_)) && other.call == Some(call)
                };
                let known: Vec<EventId> = (0..followed.bounds.len()).map(EventId).collect();
                for EventId(before) in known.iter().filter(is_same) {
                    self.met.insert("an answer that is passed on in other words");
                    carries = carries.join(&followed.bounds[*before].of(0, &bottom));
                }
                let decision = followed.bounds[call.0].parts[0][0].clone();
                let is_error = output.is_error == Some(true);
                let without_b = followed.bounds[call.0].without_argument(&asked.document, "b", &bottom);
                self.oracle.output(&tool, event, is_error, [&decision, &without_b, &level], &carries)
            }
        }
    }

    /// Returns the bounds of a call: the label of the view, and for slots that of the filled-in text.
    fn call(
        &mut self,
        followed: &TrackedSession,
        event: &Event,
        tool: &Tool,
        arguments: &Map<String, Value>,
    ) -> LabelBounds {
        let bottom = self.oracle.bottom();
        let document = &event.document;
        let (level, slots) = match (&followed.beside, &followed.wrote) {
            (Some(level), _) => (level, Vec::new()),
            (None, Some(wrote)) => (&wrote.level, wrote.slots_of(arguments)),
            (None, None) => panic!("nobody wrote the call"),
        };
        let mut bounds = LabelBounds::all(document, level);
        let is_endorsed = self.endorses(tool);
        let Some(place) = document.key(0, "arguments") else { return bounds };
        for (name, regions) in slots {
            let Some(node) = document.key(place, &name) else { continue };
            let end = bounds.ends[node];
            let Some(wrote) = &followed.wrote else { continue };
            let level = followed.regions(&regions, &wrote.names, &bottom);
            for part in bounds.parts[node..end].iter_mut().flatten() {
                *part = part.join(&level);
            }
        }
        // An endorsed argument, or an item of it, has the integrity that the policy declares.
        if let Some(node) = document.key(place, "b").filter(|_| is_endorsed) {
            let end = bounds.ends[node];
            for part in &mut bounds.parts[node..end] {
                part[0].0[0] = DimensionElement::Rank(0);
            }
        }
        bounds
    }

    /// Whether the policy may endorse the argument `b` of a tool.
    fn endorses(&self, tool: &Tool) -> bool {
        self.oracle.declared.endorsed.iter().any(|pattern| DeclaredPolicy::speaks_of(pattern, tool))
    }

    /// Records what an endorsement of URLs on a host, or of paths in a directory, releases: it leaves the rest of the
    /// text to its author, so the marks in a text that is endorsed at `level` are as trusted from here on.
    fn release_open_text(&mut self, text: &str, level: &OracleLabel) {
        if !forms::is_open(text) {
            return;
        }
        for mark in world::marks(text) {
            if let Some(origin) = self.origins.get_mut(mark)
                && level.0[0].flows_to(&origin.0[0])
            {
                origin.0[0] = level.0[0].clone();
            }
        }
    }

    fn compare(&mut self, monitor: &Monitor, index: usize, event: &Event, bounds: &LabelBounds) {
        let is_answer = matches!(event.body, EventBody::Output(_));
        let mut memo: Vec<(Label, OracleLabel)> = Vec::new();
        for (id, node) in event.document.nodes().iter().enumerate() {
            let level = match memo.iter().find(|(label, _)| *label == node.label) {
                Some((_, level)) => level.clone(),
                None => {
                    let level = self.level(monitor, &node.label);
                    memo.push((node.label, level.clone()));
                    level
                }
            };
            let bounds = &bounds.parts[id];
            // The role of a message and the name of a described tool come from the caller, not from a text.
            if matches!(&node.step, PathStep::Key(key) if matches!(&**key, "role" | "name") && node.parent == 0)
            {
                continue;
            }
            if !bounds.iter().any(|bound| bound.flows_to(&level)) {
                let path = event.document.path(id).to_string();
                let call = event.call.and_then(|call| monitor.trace().event(call));
                let body = format!("{:?} {}", call.and_then(Event::tool), observed_run::body(event));
                self.broken
                    .push(format!("#{index} {path} is {level:?} and must be at least {bounds:?}: {body}"));
            }
            if is_answer {
                self.parts.0 += 1;
                self.parts.1 += u64::from(bounds.iter().any(|bound| level.flows_to(bound)));
            }
            let NodeContent::Scalar(Value::String(text)) = &node.content else { continue };
            if matches!(node.step, PathStep::Capture(_)) {
                continue;
            }
            let path = event.document.path(id).to_string();
            if path.starts_with("arguments.b") && event.tool().is_some_and(|tool| self.endorses(tool)) {
                self.release_open_text(text, &level);
            }
            self.shown(&format!("#{index} {path}"), text, &level);
            for mark in world::marks(text) {
                if !self.origins.contains_key(mark) {
                    self.origins.insert(mark.to_owned(), bounds[0].clone());
                }
            }
        }
    }
}

impl TrackedSession {
    /// Returns the least label of a message that a client sent.
    fn level_sent(&self, content: &Value) -> Option<OracleLabel> {
        let text = match content {
            Value::String(text) => text.clone(),
            Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
            _ => return None,
        };
        self.sent.iter().find(|(sent, _)| *sent == text).map(|(_, level)| level.clone())
    }

    /// Returns the label of an agent: the join of everything that it has seen.
    pub(crate) fn level_of(&self, agent: &str, bottom: &OracleLabel) -> OracleLabel {
        let seen = self.agents.seen(agent).map(|event| self.bounds[event].of(0, bottom));
        seen.fold(bottom.clone(), |level, seen| level.join(&seen))
    }

    /// Returns the join of the labels of the regions that a slot names.
    pub(crate) fn regions(
        &self,
        regions: &[String],
        names: &HiddenRegions,
        bottom: &OracleLabel,
    ) -> OracleLabel {
        let mut level = bottom.clone();
        for hidden in regions.iter().filter_map(|name| names.get(name)) {
            if let HiddenContent::Region(event, node) = &hidden.content {
                level = level.join(&self.bounds[event.0].of(*node, bottom));
            }
        }
        level
    }
}

impl CurrentModelStep {
    /// Returns the slots of the call that was judged with these arguments, if the call is unambiguous.
    pub(crate) fn slots_of(&self, judged: &Map<String, Value>) -> Vec<(String, Vec<String>)> {
        let mut found: Option<Vec<(String, Vec<String>)>> = None;
        for call in &self.completion.calls {
            let Ok(Value::Object(written)) = serde_json::from_str(&call.arguments) else { continue };
            let is_same = written.len() == judged.len()
                && written.iter().all(|(name, value)| {
                    let now = judged.get(name);
                    // An endorsed value is printed in its canonical form.
                    now.is_some() && (slot(value).is_some() || name == "b" || now == Some(value))
                });
            if !is_same {
                continue;
            }
            // An argument whose slot was not replaced is an ordinary value.
            let is_left = |name: &String| judged.get(name).is_some_and(|now| slot(now).is_none());
            let slots = written.iter().filter(|(name, _)| is_left(name));
            let slots = slots.filter_map(|(name, value)| Some((name.clone(), slot(value)?))).collect();
            if found.replace(slots).is_some() {
                return Vec::new();
            }
        }
        found.unwrap_or_default()
    }

    /// Returns the regions of the slot that a filler's task is about, if the slot is unambiguous.
    pub(crate) fn filled_from(&self, task: &Value) -> Option<Vec<String>> {
        let mut found = None;
        for call in &self.completion.calls {
            let written: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            let argument = task["argument"].as_str()?;
            if written == task["arguments"] && written[argument]["$slot"]["fill"] == task["instruction"] {
                let regions = slot(&written[argument])?;
                if found.as_ref().is_some_and(|other| *other != regions) {
                    return None;
                }
                found = Some(regions);
            }
        }
        found
    }
}

/// Returns the regions of a slot.
pub(crate) fn slot(value: &Value) -> Option<Vec<String>> {
    let regions = value.get("$slot")?["regions"].as_array()?;
    Some(regions.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Returns the beginning of a text.
fn start(text: &str) -> &str {
    let end = (0..=text.len().min(300)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
