//! Reports what the lowest steps of a conversation are not shown, and why, for the operator. The report has no side
//! effects.

use std::cell::OnceCell;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Entry, Event, EventId, Message, Tool};
use serde_json::Value;

use super::Conversation;
use crate::history::Client;
use crate::view::{Answer, Item};

/// Something that is hidden from the lowest steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concealed {
    /// What is hidden.
    pub what: Subject,
    /// The reason why it is hidden.
    pub cause: Cause,
    /// Whether all of it is hidden.
    pub is_whole: bool,
    /// The part of its label that exceeds the base label, one phrase for each dimension.
    pub carries: Vec<String>,
    /// A tool on offer whose requirement the label exceeds.
    pub because_of: Option<Tool>,
    /// Whether the policy has a requirement for that tool. A tool without one accepts only the bottom label.
    pub is_required: bool,
    /// The number of messages or answers that this entry stands for.
    pub count: usize,
}

/// The kinds of things that can be hidden.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A system or developer message.
    System,
    /// A user message.
    User,
    /// A message of another role, which only a conversation itself writes.
    Past,
    /// A tool whose description is hidden.
    Tool(Tool),
    /// An answer of a tool.
    Answer(Tool),
}

/// The reason why something is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A system message that the operator has not pinned.
    NotPinned,
    /// A user message of a client that is not declared interactive: no person types it.
    NotInteractive,
    /// Text in a hole of a pinned message.
    Hole,
    /// No statement of the policy labels it.
    Unlabelled,
    /// The policy gives it a label above the base label.
    Labelled,
    /// It quotes text that this client was shown with a label.
    Repeated,
    /// It is part of a chat whose beginning is not known.
    Unknown,
}

impl Conversation {
    /// Returns what the lowest steps of this turn are not shown: of the tools on offer, and of the items of the chat
    /// from `from` on. Entries with the same subject and cause are merged. `client` is the client that sends the
    /// chat.
    pub fn concealed(&self, client: &Client, from: usize) -> Vec<Concealed> {
        let mut found: Vec<Concealed> = Vec::new();
        let mut add = |concealed: Concealed| {
            let is_same = |known: &Concealed| known.what == concealed.what && known.cause == concealed.cause;
            match found.iter_mut().find(|known| is_same(known)) {
                Some(known) => known.count += 1,
                None => found.push(concealed),
            }
        };
        let mut probe = Probe::new(self);
        for item in self.items.iter().skip(from) {
            match item {
                Item::Said(id) | Item::Sent(id) => {
                    self.message_concealed(client, *id, &mut probe).into_iter().for_each(&mut add);
                }
                Item::Step(step) => step.calls.iter().for_each(|made| {
                    self.answer_concealed(&made.answer, &probe).into_iter().for_each(&mut add);
                }),
            }
        }
        for (tool, label) in self.catalogue.labels(&self.monitor) {
            if !label.flows_to(&self.base) {
                let is_labelled = self.monitor.labels_description(tool);
                let cause = if is_labelled { Cause::Labelled } else { Cause::Unlabelled };
                add(self.hidden(Subject::Tool(tool.clone()), cause, true, &label, &probe));
            }
        }
        found
    }

    /// The number of items in the chat.
    pub fn length(&self) -> usize {
        self.items.len()
    }

    fn hidden(
        &self,
        what: Subject,
        cause: Cause,
        is_whole: bool,
        label: &Label,
        probe: &Probe<'_>,
    ) -> Concealed {
        let because_of = probe.bound_by(label);
        let is_required = because_of.as_ref().is_none_or(|tool| self.monitor.requires_of(tool));
        let carries = self.monitor.excess(label, &self.base);
        Concealed { what, cause, is_whole, carries, because_of, is_required, count: 1 }
    }

    fn message_concealed(&self, client: &Client, id: EventId, probe: &mut Probe<'_>) -> Option<Concealed> {
        let event = self.monitor.trace().event(id).filter(|event| !event.label.flows_to(&self.base))?;
        let Body::Message(message) = &event.body else { return None };
        let what = match message.role.as_str() {
            "system" | "developer" => Subject::System,
            "user" => Subject::User,
            _ => Subject::Past,
        };
        let is_whole = self.is_whole(event);
        let text = message.content.as_str().unwrap_or_default();
        let is_pinned = client.pinned.iter().any(|form| form.holes(text).is_some());
        let by_policy = probe.label(message);
        let cause = match what {
            Subject::Past => Cause::Unknown,
            _ if !by_policy.flows_to(&self.base) && self.monitor.labels_messages() => Cause::Labelled,
            _ if !by_policy.flows_to(&self.base) => Cause::Unlabelled,
            Subject::System if is_whole && !is_pinned => Cause::NotPinned,
            Subject::User if is_whole && !is_pinned && !client.is_interactive => Cause::NotInteractive,
            Subject::System => Cause::Hole,
            _ if !client.is_interactive => Cause::Hole,
            _ if is_whole && event.label == self.monitor.policy().space().top() => Cause::Unknown,
            _ => Cause::Repeated,
        };
        Some(self.hidden(what, cause, is_whole, &event.label, probe))
    }

    fn answer_concealed(&self, answer: &Answer, probe: &Probe<'_>) -> Option<Concealed> {
        let (tool, label, is_whole) = match answer {
            Answer::Output(id) => {
                let event = self.monitor.trace().event(*id)?;
                let call = event.call.and_then(|call| self.monitor.trace().event(call))?;
                (call.tool()?, event.label, self.is_whole(event))
            }
            // A refusal is written by the guard, and is no answer of a tool.
            _ => return None,
        };
        if label.flows_to(&self.base) {
            return None;
        }
        let cause = match self.monitor.labels_answers(tool) {
            false if !self.monitor.policy().has_permissive_default() => Cause::Unlabelled,
            _ => Cause::Labelled,
        };
        Some(self.hidden(Subject::Answer(tool.clone()), cause, is_whole, &label, probe))
    }

    /// Whether the whole content of an event is hidden.
    fn is_whole(&self, event: &Event) -> bool {
        let document = &event.document;
        let is_hidden =
            |node: usize| document.node(node).is_some_and(|node| !node.label.flows_to(&self.base));
        let content = document.key(0, "content").unwrap_or(0);
        // A list of parts is shown in part if any part is visible.
        let mut parts = document.children(content).peekable();
        is_hidden(0) || is_hidden(content) || parts.peek().is_some() && parts.all(is_hidden)
    }
}

/// The maximum number of messages that one report labels again.
const MOST_PROBED: usize = 32;

/// Queries to the policy for one report, with cached results.
struct Probe<'c> {
    conversation: &'c Conversation,
    /// Roles, and the label that the policy alone gives a message of each role, regardless of the client.
    known: Vec<(String, Label)>,
    /// The number of messages that may still be labelled; after that, the last result for the role is reused.
    left: usize,
    /// The greatest label that each tool on offer accepts.
    bounds: OnceCell<Vec<(&'c Tool, Label)>>,
}

impl<'c> Probe<'c> {
    fn new(conversation: &'c Conversation) -> Self {
        Self { conversation, known: Vec::new(), left: MOST_PROBED, bounds: OnceCell::new() }
    }

    /// Returns the first tool on offer that does not accept a label. The strictest tools determine the base label.
    fn bound_by(&self, label: &Label) -> Option<Tool> {
        let Conversation { monitor, catalogue, .. } = self.conversation;
        let bounds = self
            .bounds
            .get_or_init(|| catalogue.tools().map(|tool| (tool, monitor.strictest([tool]))).collect());
        let found = bounds.iter().find(|(_, most)| !label.flows_to(most));
        found.map(|(tool, _)| (*tool).clone())
    }

    fn label(&mut self, message: &Message) -> Label {
        let known = self.known.iter().find(|(role, _)| *role == message.role);
        if let Some((_, label)) = known.filter(|_| self.left == 0) {
            return *label;
        }
        self.left = self.left.saturating_sub(1);
        let mut fresh = Monitor::new(self.conversation.monitor.shared_policy());
        let probed = Message { role: message.role.clone(), content: short(&message.content) };
        let pushed = fresh.push(Entry::from(Body::Message(probed)));
        let label = pushed.ok().and_then(|(id, _)| fresh.trace().event(id).map(|event| event.label));
        let label = label.unwrap_or_else(|| fresh.policy().space().top());
        self.known.retain(|(role, _)| *role != message.role);
        self.known.push((message.role.clone(), label));
        label
    }
}

/// Truncates a content to what suffices to label it.
fn short(content: &Value) -> Value {
    match content {
        Value::String(text) => Value::String(text.chars().take(1000).collect()),
        _ => Value::from(""),
    }
}
