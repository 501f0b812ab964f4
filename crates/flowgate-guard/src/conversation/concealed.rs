//! What the lowest steps of a conversation are not shown, and why: for whoever runs it. It changes nothing.

use std::cell::OnceCell;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Entry, Event, EventId, Message, Tool};
use serde_json::Value;

use super::Conversation;
use crate::history::Client;
use crate::view::{Answer, Item};

/// Something that the lowest steps are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concealed {
    /// What is hidden.
    pub what: Subject,
    /// Why.
    pub cause: Cause,
    /// Whether all of it is hidden.
    pub is_whole: bool,
    /// What it carries that the lowest steps may not depend on, one phrase for each dimension.
    pub carries: Vec<String>,
    /// A tool on offer that is the reason why they may not.
    pub because_of: Option<Tool>,
    /// Whether the policy says what that tool requires. Of which nothing is said takes only what is at the bottom.
    pub is_required: bool,
    /// How many messages or answers these are.
    pub count: usize,
}

/// What can be hidden.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A message of the system.
    System,
    /// A message of the user.
    User,
    /// A message of another role, which only a conversation itself writes.
    Past,
    /// A tool, since what is said of it is hidden.
    Tool(Tool),
    /// An answer of a tool.
    Answer(Tool),
}

/// Why something is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It is no message that the operator has pinned.
    NotPinned,
    /// No person types what this client sends as the user's.
    NotInteractive,
    /// It fills a hole of a message that is pinned.
    Hole,
    /// No statement of the policy labels it.
    Unlabelled,
    /// The policy gives it a label that the lowest steps may not depend on.
    Labelled,
    /// It repeats what this client was shown with a label.
    Repeated,
    /// It stands in a chat whose beginning is not known.
    Unknown,
}

impl Conversation {
    /// What the lowest steps of this turn are not shown of the tools on offer, and of what stands in the chat from item `from` on.
    /// The same thing is said once. `client` is who sends the chat.
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

    /// How many items stand in the chat.
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
            // That a call was refused is between the model and the guard, and no answer of a tool.
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

    /// Whether nothing of an event's content is shown.
    fn is_whole(&self, event: &Event) -> bool {
        let document = &event.document;
        let is_hidden =
            |node: usize| document.node(node).is_some_and(|node| !node.label.flows_to(&self.base));
        let content = document.key(0, "content").unwrap_or(0);
        // Of a list of parts, one that can be seen is enough.
        let mut parts = document.children(content).peekable();
        is_hidden(0) || is_hidden(content) || parts.peek().is_some() && parts.all(is_hidden)
    }
}

/// How many messages are labelled anew for one report.
const MOST_PROBED: usize = 32;

/// What is asked of the policy for one report.
struct Probe<'c> {
    conversation: &'c Conversation,
    /// Roles, and the label that the policy alone gives a message of each, whoever sends it.
    known: Vec<(String, Label)>,
    /// How many messages may still be labelled; then one of the same role speaks for the others.
    left: usize,
    /// What each tool on offer takes.
    bounds: OnceCell<Vec<(&'c Tool, Label)>>,
}

impl<'c> Probe<'c> {
    fn new(conversation: &'c Conversation) -> Self {
        Self { conversation, known: Vec::new(), left: MOST_PROBED, bounds: OnceCell::new() }
    }

    /// The first tool on offer that does not take a label: the strictest tools bound what the lowest steps may depend on.
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

/// Enough of a content to know what a policy says of messages.
fn short(content: &Value) -> Value {
    match content {
        Value::String(text) => Value::String(text.chars().take(1000).collect()),
        _ => Value::from(""),
    }
}
