//! Records the texts of a conversation in the client's memory, so that later quotations of them are labelled: what tools
//! returned, what the model wrote, and what the client sent. [`super::merge`] records new messages of the chat, and a
//! driver calls [`Conversation::memorize`] after each turn.

use flowgate::label::Label;
use flowgate::trace::{Event, EventBody, NodeContent, PathStep};
use serde_json::Value;

use super::Conversation;
use crate::history::lookup::QuotationLookup;
use crate::history::pieces::Pieces;
use crate::history::{ClientProfile, History, SessionTexts};
use crate::view::{CallOutcome, ConversationItem};

/// The name of the model as the author of texts in the memory.
const MODEL: &str = "model";
/// The name of the client as the author of texts in the memory: texts that it sends and that the user did not write.
pub(super) const CLIENT: &str = "client";

/// A block of a message; its label, and the label that it has apart from quotations.
pub(super) type LabelledBlock = (Value, (Label, Label));

impl Conversation {
    /// Records in the client's memory the texts that were added to this session since the last call, so that quotations
    /// of them are labelled in all sessions of the client. Must be called after a failed turn, too.
    pub fn memorize(&self, client: &mut ClientProfile, history: &mut History) {
        self.memorize_session(&mut QuotationLookup::live(client), history);
    }

    /// Adds to `memory` the texts that this session has received since the last call: those of the new events, and then
    /// those that the model wrote in the new steps. In a replay, `memory` holds recorded answers and takes nothing.
    /// `history.memorized.1` is the number of items whose texts were added before.
    pub(super) fn memorize_session(&self, memory: &mut QuotationLookup<'_>, history: &mut History) {
        self.memorize_events(memory, history);
        for item in self.items.iter().skip(history.memorized.1) {
            texts_of_item(item, &mut |text, label| self.memorize_text(memory, history, MODEL, text, label));
        }
        history.memorized.1 = self.items.len();
    }

    /// Records the texts of the events that were added to the trace since the last call.
    pub(super) fn memorize_events(&self, memory: &mut QuotationLookup<'_>, history: &mut History) {
        let events = self.monitor.trace().events();
        // The ends of earlier texts, with which new texts are joined: a text may arrive in pieces.
        let mut pieces = std::mem::take(&mut history.pieces.0);
        // `memorized.0` is the number of events that were recorded before.
        for event in events.iter().skip(history.memorized.0) {
            let source = self.source_of(event);
            texts_of_event(event, (&mut pieces, &source), &mut |text, label| {
                self.memorize_text(memory, history, &source, text, label);
            });
        }
        history.memorized.0 = events.len();
        history.pieces.0 = pieces;
    }

    /// Records the labelled texts of a new message, so that later quotations of them are labelled:
    ///
    /// * in the memory of this session (`history.shown`), if it has one: every labelled text;
    /// * in the memory of the client (`memory`): text that is labelled apart from its quotations, and that is of a role
    ///   that clients write (`is_client_role`) or of a session without a memory.
    ///
    /// Text of a client's role whose origin is unknown (`is_unknown`) is not recorded, because it would taint the same
    /// words of other authors. `pieces` are the blocks of the message, each with its label and the label that it has
    /// apart from quotations.
    pub(super) fn memorize_new_message(
        &self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        (is_client_role, is_unknown): (bool, bool),
        pieces: &[LabelledBlock],
    ) {
        if !memory.is_live() || is_client_role && is_unknown {
            return;
        }
        for (block, (label, own_label)) in pieces {
            if *label == Label::BOTTOM {
                continue;
            }
            // The text of a text block; the data or the address of an image.
            let texts = [block.get("text"), block.get("data"), block.pointer("/image_url/url")];
            for text in texts.into_iter().flatten().filter_map(Value::as_str) {
                let names = self.monitor.to_names(label);
                if let Some(shown) = &mut history.shown.0 {
                    shown.add_text(text, &names);
                }
                // A quotation is attributed to its original author.
                if *own_label != Label::BOTTOM && (is_client_role || history.shown.0.is_none()) {
                    memory.add(CLIENT, text, &names);
                }
            }
        }
    }

    /// Records the label of a text of this session, so that it applies to quotations of the text. A text with the
    /// lowest label needs no record, and a replay records none. `source` is the author of the text, as the memory names
    /// authors.
    pub(super) fn memorize_text(
        &self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        source: &str,
        text: &str,
        label: &Label,
    ) {
        if *label == Label::BOTTOM || !memory.is_live() {
            return;
        }
        let names = self.monitor.to_names(label);
        // `shown` is set if new messages are also compared with the labelled texts of this session.
        if let Some(shown) = &mut history.shown.0 {
            shown.add_text(text, &names);
        }
        memory.add(source, text, &names);
    }

    /// Returns the author of an event, as the memory names authors: a server, a tool without a server, the model, or
    /// the role of a message. An answer whose tool is unknown is attributed to the client.
    fn source_of(&self, event: &Event) -> String {
        let call = event.call.and_then(|call| self.monitor.trace().event(call));
        let tool = match &event.body {
            EventBody::Output(output) => call.and_then(Event::tool).or(output.tool.as_ref()),
            EventBody::Tool(description) => Some(&description.tool),
            EventBody::Call(_) => return MODEL.to_owned(),
            EventBody::Message(message) => return format!("role {}", message.role),
        };
        match tool.map(|tool| (tool.server.as_deref(), &tool.name)) {
            Some((Some(server), _)) => format!("server {server}"),
            Some((None, name)) => format!("tool {name}"),
            None => CLIENT.to_owned(),
        }
    }

    /// Starts a memory of this session: from now on, new messages are compared with all labelled texts of this session,
    /// including those that the client's memory has no room for. Does nothing if the session has one already.
    pub(super) fn track_shown_texts(&self, history: &mut History) {
        if history.shown.0.is_some() {
            return;
        }
        let mut shown = SessionTexts::default();
        let mut show = |text: &str, label: &Label| {
            if *label != Label::BOTTOM {
                shown.add_text(text, &self.monitor.to_names(label));
            }
        };
        let mut pieces = Pieces::default();
        for (number, event) in self.monitor.trace().events().iter().enumerate() {
            // Messages that are labelled only because their source is unknown are not remembered.
            if !history.unknown.contains(&number) {
                texts_of_event(event, (&mut pieces, &self.source_of(event)), &mut show);
            }
        }
        self.items.iter().for_each(|item| texts_of_item(item, &mut show));
        history.shown.0 = Some(shown);
    }
}

/// Calls `visit` with each text of an event and its label. A client may join texts that it received separately. For a
/// tool's answer, `visit` is therefore also called with joined texts: each text with the one before it, and the first
/// one with the last text of the author's earlier answers. `source` is the author of the event, and `pieces` has the
/// ends of the earlier texts of each author.
fn texts_of_event(
    event: &Event,
    (pieces, source): (&mut Pieces, &str),
    visit: &mut impl FnMut(&str, &Label),
) {
    let document = &event.document;
    // Only tools return what they read in pieces.
    let is_answer = matches!(event.body, EventBody::Output(_));
    for (id, node) in document.nodes().iter().enumerate() {
        let label = document.label_of(id);
        match (&node.content, &node.text) {
            (NodeContent::Scalar(Value::String(text)), _) => {
                visit(text, &label);
                // A captured part is in the string that it was captured from.
                if is_answer
                    && label != Label::BOTTOM
                    && !matches!(node.step, PathStep::Capture(_))
                    && let Some((joined, label)) = pieces.join(source, text, &label)
                {
                    visit(&joined, &label);
                }
            }
            // A client can quote a list or a map with its keys and numbers: as its author spelled it, or as it is
            // printed.
            (NodeContent::List | NodeContent::Map, Some(text)) => visit(text, &label),
            // A value that was never spelled as text is printed once as a whole, as a child of the root, and not again
            // for each list or map in it.
            (NodeContent::List | NodeContent::Map, None) if node.parent == 0 && id != 0 => {
                visit(&document.to_value(id).to_string(), &label);
            }
            _ => {}
        }
    }
}

/// Calls `visit` with those texts of a step that are in no event, each with its label: what the model wrote, and the
/// refusals and rewritten answers that the model received.
fn texts_of_item(item: &ConversationItem, visit: &mut impl FnMut(&str, &Label)) {
    let ConversationItem::Step(step) = item else { return };
    visit(&step.text, &step.label);
    for text in step.thoughts.iter().flat_map(|thought| &thought.texts) {
        visit(text, &step.label);
    }
    for step_call in &step.calls {
        if let CallOutcome::Refused { text, label, .. } | CallOutcome::Rewritten { text, label } =
            &step_call.answer
        {
            visit(text, label);
        }
    }
}
