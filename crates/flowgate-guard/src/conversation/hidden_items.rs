//! Reports to the operator which messages, answers, tools and schemas are hidden from a step at the *base label*, the
//! label from which each turn starts, and why ([`HiddenItem`]). The gateway logs the report, and the Python package
//! returns it. The report has no side effects.

use std::cell::OnceCell;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Event, EventBody, EventId, Message, Tool, TraceEntry};
use serde_json::Value;

use super::Conversation;
use crate::history::ClientProfile;
use crate::requested_format::FORMAT_ROLE;
use crate::view::{CallOutcome, ConversationItem};

/// Something that is hidden from a step at the base label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenItem {
    /// What is hidden.
    pub what: HiddenItemKind,
    /// The reason why it is hidden.
    pub cause: HidingCause,
    /// Whether all of it is hidden.
    pub is_whole: bool,
    /// The part of its label that exceeds the base label, one phrase for each dimension.
    pub carries: Vec<String>,
    /// A tool on offer whose requirement the label exceeds; `None` if there is none.
    pub because_of: Option<Tool>,
    /// Whether the policy has a requirement for that tool. A tool without one accepts only the bottom label.
    pub is_required: bool,
    /// The number of messages or answers that this entry represents.
    pub count: usize,
}

/// The kinds of things that can be hidden.
///
/// The list is exhaustive on purpose: a program that explains what is hidden must explain each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HiddenItemKind {
    /// A system or developer message.
    System,
    /// A user message.
    User,
    /// A message of another role, such as `assistant`: the client sent a chat that this conversation did not hold.
    Past,
    /// The schema of the form that the client demands of the model's text.
    Format,
    /// A tool whose description is hidden.
    Tool(Tool),
    /// An answer of a tool.
    Answer(Tool),
}

/// The reason why something is hidden.
///
/// The list is exhaustive on purpose: a program that explains what is hidden must explain each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HidingCause {
    /// A system message that the operator has not pinned.
    NotPinned,
    /// A user message of a client that is not declared interactive: no person types it.
    NotInteractive,
    /// Text in a hole of a pinned message: a part that the operator has left open.
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
    /// Reports what is hidden from a step at the base label of this turn. Examines the items of the chat from index
    /// `from` on, the schema of the form that the client demands, and the tools on offer. Entries for the same kind
    /// of thing with the same cause are merged and counted. `client` is the client that sends the chat.
    pub fn hidden_items(&self, client: &ClientProfile, from: usize) -> Vec<HiddenItem> {
        let mut report: Vec<HiddenItem> = Vec::new();
        let mut add = |item: HiddenItem| {
            let is_same = |other: &HiddenItem| other.what == item.what && other.cause == item.cause;
            match report.iter_mut().find(|other| is_same(other)) {
                Some(other) => other.count += 1,
                None => report.push(item),
            }
        };
        let mut probe = PolicyProbe::new(self);
        for item in self.items.iter().skip(from) {
            match item {
                ConversationItem::Message(id) | ConversationItem::ClientMessage(id) => {
                    self.hidden_message(client, *id, &mut probe).into_iter().for_each(&mut add);
                }
                ConversationItem::Step(step) => step.calls.iter().for_each(|step_call| {
                    self.hidden_answer(&step_call.answer, &probe).into_iter().for_each(&mut add);
                }),
            }
        }
        if let Some(event) = self.format.as_ref().and_then(|format| format.event) {
            self.hidden_message(client, event, &mut probe).into_iter().for_each(&mut add);
        }
        for (tool, label) in self.tools.catalogue().description_labels(&self.monitor) {
            if !label.flows_to(self.labels.base()) {
                let is_labelled = self.monitor.labels_description(tool);
                let cause = if is_labelled { HidingCause::Labelled } else { HidingCause::Unlabelled };
                // A description is hidden as a whole (`true`).
                add(self.describe_hidden(HiddenItemKind::Tool(tool.clone()), cause, true, &label, &probe));
            }
        }
        report
    }

    /// Returns the number of items in the chat: messages, and steps with their calls.
    pub fn item_count(&self) -> usize {
        self.items.len()
    }

    /// Returns the entry of the report for one hidden thing with this label. Finds the first tool on offer whose
    /// requirement the label exceeds, by `probe`, and the dimensions in which the label exceeds the base label. `what`
    /// is the thing, `cause` says why it is hidden, and `is_whole` is whether all of it is hidden, and not only a part.
    fn describe_hidden(
        &self,
        what: HiddenItemKind,
        cause: HidingCause,
        is_whole: bool,
        label: &Label,
        probe: &PolicyProbe<'_>,
    ) -> HiddenItem {
        let because_of = probe.first_exceeded_tool(label);
        // Without such a tool, there is no missing requirement to report.
        let is_required = because_of.as_ref().is_none_or(|tool| self.monitor.has_requirement(tool));
        let carries = self.monitor.describe_excess(label, self.labels.base());
        HiddenItem { what, cause, is_whole, carries, because_of, is_required, count: 1 }
    }

    /// Returns the entry of the report for a message that is hidden from a step at the base label; `None` if the
    /// message is visible there. The cause is the policy's label for such a message, or else the configuration of the
    /// client. The configuration states which messages are pinned (expected verbatim, except for text in holes), and
    /// whether a person types the others. `probe` returns the label that the policy alone gives.
    fn hidden_message(
        &self,
        client: &ClientProfile,
        id: EventId,
        probe: &mut PolicyProbe<'_>,
    ) -> Option<HiddenItem> {
        let event =
            self.monitor.trace().event(id).filter(|event| !event.label.flows_to(self.labels.base()))?;
        let EventBody::Message(message) = &event.body else { return None };
        let what = match message.role.as_str() {
            "system" | "developer" => HiddenItemKind::System,
            "user" => HiddenItemKind::User,
            FORMAT_ROLE => HiddenItemKind::Format,
            _ => HiddenItemKind::Past,
        };
        let is_whole = self.is_fully_hidden(event);
        let text = message.content.as_str().unwrap_or_default();
        let is_pinned = client.pinned.iter().any(|form| form.holes(text).is_some());
        let by_policy = probe.policy_label(message);
        let policy_hides = !by_policy.flows_to(self.labels.base());
        let top = self.monitor.policy().space().top();
        // The first branch that holds names the cause: the policy, then the configuration of the client. If neither
        // hides the message, it belongs to a chat whose beginning is unknown, or quotes labelled text.
        let cause = match what {
            HiddenItemKind::Past => HidingCause::Unknown,
            HiddenItemKind::Format if by_policy == top => HidingCause::Unlabelled,
            HiddenItemKind::Format if policy_hides => HidingCause::Labelled,
            HiddenItemKind::Format => HidingCause::Repeated,
            _ if policy_hides && self.monitor.labels_messages() => HidingCause::Labelled,
            _ if policy_hides => HidingCause::Unlabelled,
            HiddenItemKind::System if is_whole && !is_pinned && !client.trusts_system => {
                HidingCause::NotPinned
            }
            HiddenItemKind::User if is_whole && !is_pinned && !client.is_interactive => {
                HidingCause::NotInteractive
            }
            // The operator trusts the text of the message, so only a quotation can have raised its label.
            HiddenItemKind::System if !is_pinned && client.trusts_system => HidingCause::Repeated,
            // The text in the holes of a pinned message is hidden.
            HiddenItemKind::System => HidingCause::Hole,
            _ if !client.is_interactive => HidingCause::Hole,
            // The others are user messages of an interactive client, whose own words are trusted. If such a
            // message is hidden as a whole and has the label top, the report assumes that the beginning of its chat is
            // unknown; otherwise, that it quotes labelled text.
            _ if is_whole && event.label == top => HidingCause::Unknown,
            _ => HidingCause::Repeated,
        };
        Some(self.describe_hidden(what, cause, is_whole, &event.label, probe))
    }

    /// Returns the entry of the report for a tool's answer, if the answer is hidden from a step at the base label;
    /// `None` if the call has no such answer. `probe` finds the tool whose requirement hides it.
    fn hidden_answer(&self, answer: &CallOutcome, probe: &PolicyProbe<'_>) -> Option<HiddenItem> {
        let (tool, label, is_whole) = match answer {
            CallOutcome::Output(id) => {
                let event = self.monitor.trace().event(*id)?;
                let call = event.call.and_then(|call| self.monitor.trace().event(call))?;
                (call.tool()?, event.label, self.is_fully_hidden(event))
            }
            // A refusal is written by the guard, and is no answer of a tool.
            _ => return None,
        };
        if label.flows_to(self.labels.base()) {
            return None;
        }
        // With a `default`, an answer that no statement labels counts as labelled: the policy chose its label.
        let cause = match self.monitor.labels_outputs(tool) {
            false if !self.monitor.policy().has_default_label() => HidingCause::Unlabelled,
            _ => HidingCause::Labelled,
        };
        Some(self.describe_hidden(HiddenItemKind::Answer(tool.clone()), cause, is_whole, &label, probe))
    }

    /// Returns whether the whole content of an event is hidden from a step at the base label.
    fn is_fully_hidden(&self, event: &Event) -> bool {
        let document = &event.document;
        let is_hidden =
            |node: usize| document.node(node).is_some_and(|node| !node.label.flows_to(self.labels.base()));
        // Node 0 is the root of the event's value.
        let content = document.key(0, "content").unwrap_or(0);
        // A list of parts is shown in part if any part is visible.
        let mut parts = document.children(content).peekable();
        is_hidden(0) || is_hidden(content) || parts.peek().is_some() && parts.all(is_hidden)
    }
}

/// The maximum number of messages that one report labels again.
const MAX_PROBED: usize = 32;

/// Queries to the policy for one report, with cached results.
struct PolicyProbe<'c> {
    conversation: &'c Conversation,
    /// Roles, each with the label that the policy alone gave to the last labelled message of the role.
    label_of_role: Vec<(String, Label)>,
    /// The number of messages that may still be labelled; after that, the last result for the role is reused.
    remaining_probes: usize,
    /// The greatest label that each tool on offer accepts.
    bounds: OnceCell<Vec<(&'c Tool, Label)>>,
}

impl<'c> PolicyProbe<'c> {
    /// Creates a probe without cached results.
    fn new(conversation: &'c Conversation) -> Self {
        Self {
            conversation,
            label_of_role: Vec::new(),
            remaining_probes: MAX_PROBED,
            bounds: OnceCell::new(),
        }
    }

    /// Returns the first tool on offer whose requirement a label exceeds. Such tools cause texts with the label to be
    /// hidden, since the strictest requirement determines the base label. `None` if the label flows to the
    /// requirement of each tool.
    fn first_exceeded_tool(&self, label: &Label) -> Option<Tool> {
        let Conversation { monitor, tools, .. } = self.conversation;
        let bounds = self.bounds.get_or_init(|| {
            tools.catalogue().tools().map(|tool| (tool, monitor.strictest_requirement([tool]))).collect()
        });
        let exceeded = bounds.iter().find(|(_, bound)| !label.flows_to(bound));
        exceeded.map(|(tool, _)| (*tool).clone())
    }

    /// Returns the label that the policy alone gives to a message of this role and text, as if the message were the
    /// only one of a session, and of no particular client. After [`MAX_PROBED`] messages, the policy labels a message
    /// only if it is the first one of its role; any other message gets the label of the last one of its role. If the
    /// policy cannot label it, its label is top.
    fn policy_label(&mut self, message: &Message) -> Label {
        // Once no more messages may be labelled, the last label of the role is reused.
        let cached = self.label_of_role.iter().find(|(role, _)| *role == message.role);
        if let Some((_, label)) = cached.filter(|_| self.remaining_probes == 0) {
            return *label;
        }
        self.remaining_probes = self.remaining_probes.saturating_sub(1);
        let mut fresh = Monitor::new(self.conversation.monitor.shared_policy());
        let probed = Message { role: message.role.clone(), content: truncated(&message.content) };
        let pushed = fresh.push(TraceEntry::from(probed));
        let label = pushed.ok().and_then(|(id, _)| fresh.trace().event(id).map(|event| event.label));
        let label = label.unwrap_or_else(|| fresh.policy().space().top());
        self.label_of_role.retain(|(role, _)| *role != message.role);
        self.label_of_role.push((message.role.clone(), label));
        label
    }
}

/// Truncates the content of a message, since the report needs its label only approximately: text to its first 1000
/// characters, anything else to nothing.
fn truncated(content: &Value) -> Value {
    match content {
        Value::String(text) => Value::String(text.chars().take(1000).collect()),
        _ => Value::from(""),
    }
}
