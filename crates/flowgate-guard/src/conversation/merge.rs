//! Merges the chat that a caller sends into a conversation. A caller such as an agent sends its whole chat with every
//! request, and may have changed it.
//!
//! The sent chat has been compared with the history of the session already, and the merge processes its messages in
//! order. A known message stays as it is. A new one is labelled by its source and by the quotations that it contains,
//! and `memorized_texts` records its text in the client's memory. [`super::apply`] calls this module with the client's
//! memory or, in a replay, with the recorded quotations.

use std::collections::VecDeque;

use flowgate::label::Label;
use flowgate::monitor::{Floors, PushError};
use flowgate::trace::{Event, EventBody, TraceEntry};
use flowgate_lm::chat::{self, Part, Source, Sources};
use serde_json::{Value, json};

use super::memorized_texts::{CLIENT, LabelledBlock};
use super::{Conversation, ConversationPhase};
use crate::history::lookup::QuotationLookup;
use crate::history::{Alignment, History, HistoryMessage, MergeSummary, QuotationSpan};
use crate::view::{CallOutcome, ConversationItem, ModelStep};

/// The origin of a message of the chat.
enum MessageOrigin {
    /// The message of the session at this index.
    Known(usize),
    /// The sent message at this index, with the label of the messages that it replaces, if any.
    New(usize, Option<Label>),
}

impl Conversation {
    /// Merges a chat into the conversation, given the alignment of the chat with the history of the session. `memory`
    /// finds quotations of texts that the client was shown. `rest` are the messages after the unchanged ones; `sources`
    /// states where their parts come from.
    ///
    /// The messages of the chat are processed in order. A known message keeps its items and its label. A new one that
    /// replaces others carries at least the join of their labels (its *floor*); a new one that answers a handed-over
    /// call becomes its answer, and any other becomes an event. Finally the next step is due, or another turn begins.
    ///
    /// # Errors
    /// If the session has no room for a message.
    pub(super) fn merge_chat(
        &mut self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        alignment: Alignment,
        (rest, sources): (&[chat::Message], &Sources),
    ) -> Result<MergeSummary, PushError> {
        self.memorize_session(memory, history);
        // Copied now, because the merge appends the new texts of the user to `history.own`.
        let earlier_user_texts = history.own.clone();
        // A caller that sends its whole chat runs the calls itself.
        self.labels.run_calls_elsewhere();
        // The right to run handed-over calls outside the chat ends with the next message of the client.
        self.handed.revoke();
        // Answers to calls of the last message continue the turn; anything else begins a new one.
        let mut is_resumed = self.waits_for_answers() && !self.waits_for_decision();
        // Most chats are only appended to: then no item moves.
        let length = history.messages().len();
        let is_append = alignment.unchanged == length && length > 0;
        // The messages of the session before the merge.
        let old = if is_append { Vec::new() } else { history.messages().to_vec() };
        let removed = old.get(alignment.removed.clone()).unwrap_or_default();
        let floor = removed.iter().fold(Label::BOTTOM, |floor, message| floor.join(&message.label));
        let mut summary = MergeSummary { removed: removed.len(), ..MergeSummary::default() };
        // If this session has no message yet, a chat with messages of a model or a tool was held in another session,
        // whose labels are unknown here. All messages before the last one of a model or a tool are labelled top. That
        // last one is labelled top in any case, because this session did not write it.
        let is_generated = |message: &chat::Message| {
            matches!(message, chat::Message::Assistant { .. } | chat::Message::Tool { .. })
        };
        let unknown_until = match length == 0 {
            true => rest.iter().rposition(is_generated).unwrap_or(0),
            false => 0,
        };
        let top = self.monitor.policy().space().top();
        // New messages of a model, and answers for which no call waits, were written in another session.
        let waits_for_answers = self.waits_for_answers();
        history.has_unknown |= rest.iter().any(|message| match message {
            chat::Message::Assistant { .. } => true,
            chat::Message::Tool { .. } => !waits_for_answers,
            _ => false,
        });
        if memory.is_live() && (history.has_unknown || memory.is_incomplete_for(&texts_of(rest))) {
            self.track_shown_texts(history);
        }

        // The number of items that precede the chat of the client, such as instructions of the operator.
        let before = *history.preceding_items.get_or_insert(self.items.len());
        // If messages are only appended, the known ones stay in the history, and are not processed one by one.
        let untouched = if is_append { length } else { 0 };
        let (mut merged, items_before) = (Vec::new(), self.items.len());
        summary.known += untouched;
        let mut items: Vec<Option<ConversationItem>> = match is_append {
            true => Vec::new(),
            false => self.items.take_all().into_iter().map(Some).collect(),
        };
        // The items of the known message with this index are `start(index)..end(index)`.
        let start = |index: usize| {
            index.checked_sub(1).and_then(|i| old.get(i)).map_or(before, |message| message.until)
        };
        // What was done after the last message that the caller holds belongs to that message.
        let item_count = items.len();
        let end = |index: usize| if index + 1 == old.len() { item_count } else { start(index + 1) };
        self.items.extend(items.get_mut(..before).into_iter().flatten().filter_map(Option::take));

        // The index of the first sent message after the moved ones: it and all later ones are new.
        let appended = alignment.replacements.end + alignment.moved.len();
        let unchanged = (untouched..alignment.unchanged).map(MessageOrigin::Known);
        let order = unchanged
            .chain(alignment.replacements.map(|index| MessageOrigin::New(index, Some(floor))))
            .chain(alignment.moved.map(MessageOrigin::Known))
            .chain(
                (appended..alignment.unchanged + rest.len())
                    .map(|index| MessageOrigin::New(index, (index < unknown_until).then_some(top))),
            );
        // The messages in the order of the sent chat: unchanged, replacements of removed ones, moved, new.
        let order: Vec<MessageOrigin> = order.collect();
        let message_at = |origin: &MessageOrigin| match origin {
            MessageOrigin::New(index, _) => {
                index.checked_sub(alignment.unchanged).and_then(|at| rest.get(at))
            }
            MessageOrigin::Known(_) => None,
        };
        // Quotations are searched in runs of consecutive new messages, since a quotation may continue in the next
        // message: the spans in the parts of the current run, and the index after its last message.
        let (mut spans, mut searched): (VecDeque<Vec<QuotationSpan>>, usize) = (VecDeque::new(), 0);
        for (position, origin) in order.iter().enumerate() {
            if position >= searched {
                let run = order.iter().skip(position).map(message_at).map_while(|message| parts_of(message?));
                let run: Vec<&[Part]> = run.collect();
                searched = position + run.len().max(1);
                let parts: Vec<&Part> = run.into_iter().flatten().collect();
                spans = memory.find_quotations(&history.tail, &parts, history.shown.0.as_ref()).into();
                parts.iter().for_each(|part| {
                    if let Part::Text(text) = part {
                        history.extend_tail(text);
                    }
                });
            }
            match *origin {
                MessageOrigin::Known(index) => {
                    let range = items.get_mut(start(index)..end(index));
                    self.items.extend(range.into_iter().flatten().filter_map(Option::take));
                    merged.extend(old.get(index).map(|message| message.with_end(self.items.len())));
                    summary.known += 1;
                }
                MessageOrigin::New(index, floor) => {
                    let Some(message) = message_at(origin) else { continue };
                    let is_answer = matches!(message, chat::Message::Tool { .. });
                    let label = match self.add_answer(memory, history, message, floor, &mut summary)? {
                        Some(label) => label,
                        None => {
                            is_resumed &= is_answer;
                            let at = index.saturating_sub(alignment.unchanged);
                            let new = NewMessage {
                                message,
                                floor: floor.unwrap_or(Label::BOTTOM),
                                is_unknown: index < unknown_until,
                                source: &|part| sources.of(at, part),
                            };
                            self.add_new_message(memory, history, new, &mut spans, &mut summary)?
                        }
                    };
                    merged.push(HistoryMessage::new(message, label, self.items.len()));
                    self.memorize_events(memory, history);
                }
            }
        }
        match is_append {
            true => history.append_messages(items_before, merged),
            false => history.replace_messages(merged),
        }
        memory.add_joined_user_texts(&earlier_user_texts);
        // The texts of all items up to here are in the memory.
        history.memorized.1 = self.items.len();
        self.memorize_session(memory, history);
        if is_resumed && !self.labels.is_ended() {
            self.phase = ConversationPhase::Generate;
        } else {
            self.begin_turn();
        }
        Ok(summary)
    }

    /// Appends the answer that the caller received to the history, and lets the calls in it run outside the chat.
    pub(super) fn append_answer(&mut self, history: &mut History, message: &chat::Message) {
        self.handed.deliver(message, self.ids_of_answer(history));
        let label = self.label_of_answer(history);
        self.turn.resumed = None;
        // `into_written` marks the message as one that the model wrote in this session.
        history.push_message(HistoryMessage::new(message, label, self.items.len()).into_written());
    }

    /// Returns the ids of the calls that were handed over for the answer that the caller received, in order.
    fn ids_of_answer(&self, history: &History) -> Vec<String> {
        let calls = self.steps_of_answer(history).flat_map(|step| &step.calls);
        let handed_over = calls.filter_map(|step_call| match &step_call.answer {
            CallOutcome::HandedOver(event) => self.monitor.trace().event(*event),
            _ => None,
        });
        let id = |event: &Event| match &event.body {
            EventBody::Call(call) => Some(call.id.clone()),
            _ => None,
        };
        handed_over.filter_map(id).collect()
    }

    /// Returns the steps of the answer that the caller received.
    fn steps_of_answer(&self, history: &History) -> impl Iterator<Item = &ModelStep> {
        // The index after the last item that a message of the history represents.
        let history_end = history.messages().last().map_or(0, |message| message.until);
        // After a resumption, the answer begins with the step that a person's decision continued (`resumed`). The
        // history can already end after this step: a message that asked the caller to wait, or with which the caller
        // asked to continue, then represents the step.
        let first = self.turn.resumed.map_or(history_end, |resumed| resumed.min(history_end));
        self.items.iter().skip(first).filter_map(|item| match item {
            ConversationItem::Step(step) => Some(step),
            _ => None,
        })
    }

    /// Returns the label of the answer that the caller received: the join of the labels of the turn's output and of the
    /// verdicts on its calls. The verdicts count because a call is in the answer only if it was permitted.
    fn label_of_answer(&self, history: &History) -> Label {
        let steps = self.steps_of_answer(history);
        let decided = steps.flat_map(|step| &step.calls).map(|step_call| match &step_call.answer {
            CallOutcome::HandedOver(event) => {
                self.monitor.trace().event(*event).map_or(Label::BOTTOM, |call| call.decided)
            }
            CallOutcome::Refused { label, .. } => *label,
            _ => Label::BOTTOM,
        });
        decided.fold(*self.labels.output(), |label, decided| label.join(&decided))
    }

    /// Adds a message with the answer of a tool that ran elsewhere, as the outcome of the tool's call, and returns the
    /// label of the answer. Returns `None` if the message answers no call: the caller then adds it like any other
    /// message. `floor` is the join of the labels of the messages that this one replaces; `None` if it replaces none. A
    /// message that replaces others can also replace an earlier answer to its call. Counts an added message as new in
    /// `summary`.
    ///
    /// # Errors
    /// If the session has no room for the answer.
    fn add_answer(
        &mut self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        message: &chat::Message,
        floor: Option<Label>,
        summary: &mut MergeSummary,
    ) -> Result<Option<Label>, PushError> {
        let chat::Message::Tool { call_id, content, is_error } = message else { return Ok(None) };
        let texts = content.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            other => to_content_block(other).to_string(),
        });
        let floor_of_answer = floor.unwrap_or(Label::BOTTOM);
        let mut label = self.record_external_answer(call_id, content, *is_error, floor_of_answer)?;
        // No call waits for this answer, but the message replaces others: it may rewrite the answer of its call.
        if let (None, Some(floor)) = (label, floor) {
            let text = texts.collect::<Vec<_>>().join("\n");
            label = self.rewrite_answer(call_id, &text, &floor);
            if let Some(label) = &label {
                self.memorize_text(memory, history, CLIENT, &text, label);
            }
        }
        summary.new += usize::from(label.is_some());
        Ok(label)
    }

    /// Adds a message that was not known, as an event, and returns its label. Its text is cut into pieces at the bounds
    /// of quotations, and at the holes of a form that the operator has pinned: each piece has its own label. The first
    /// elements of `spans` are the quotations in the parts of this message; they are taken out of `spans`.
    ///
    /// # Errors
    /// If the session has no room for the message.
    fn add_new_message(
        &mut self,
        memory: &mut QuotationLookup<'_>,
        history: &mut History,
        new: NewMessage<'_>,
        spans: &mut VecDeque<Vec<QuotationSpan>>,
        summary: &mut MergeSummary,
    ) -> Result<Label, PushError> {
        let NewMessage { message, floor, is_unknown, source } = new;
        summary.new += 1;
        let top = self.monitor.policy().space().top();
        let (role, parts) = match message {
            chat::Message::System(parts) => ("system", parts.clone()),
            chat::Message::User(parts) => ("user", parts.clone()),
            // Only a conversation writes these messages, and this one did not.
            chat::Message::Assistant { text, .. } => ("assistant", vec![Part::Text(text.clone())]),
            chat::Message::Tool { content, .. } => ("tool", content.clone()),
        };
        let (is_user, is_client_role) = (role == "user", parts_of(message).is_some());
        let trusts_system = role == "system" && memory.trusts_system();
        // `is_unmarked`: whether a text is distrusted only because no source is declared for it.
        let (mut pieces, mut is_unmarked): (Vec<LabelledBlock>, bool) = (Vec::new(), false);
        for (number, part) in parts.iter().enumerate() {
            let source = if is_user { source(number) } else { None };
            let trusted = trusts_system || is_user && memory.trusts(source);
            let quotations = if is_client_role { spans.pop_front().unwrap_or_default() } else { Vec::new() };
            let Part::Text(text) = part else {
                // `own_label` is the label apart from quotations.
                let own_label = if trusted { floor } else { top };
                let mut label = own_label;
                for names in quotations.iter().flat_map(|span| &span.labels) {
                    label = label.join(&self.monitor.from_names(names));
                }
                pieces.push((to_content_block(part), (label, own_label)));
                continue;
            };
            // A part that is declared as anything but typed comes from others, even if it has the words of a form.
            let may_be_pinned = is_client_role && matches!(source, None | Some(Source::Typed));
            let holes = memory.pinned().iter().find_map(|form| form.holes(text)).filter(|_| may_be_pinned);
            is_unmarked |=
                is_user && !trusted && source.is_none() && holes.is_none() && floor == Label::BOTTOM;
            // The offsets at which pieces begin and end.
            let mut cuts: Vec<usize> = holes.iter().flatten().flat_map(|h| [h.start, h.end]).collect();
            cuts.extend(quotations.iter().flat_map(|span| [span.range.start, span.range.end]));
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
                // Whether the operator wrote the piece, in a form that is pinned. Only the holes of such a form can
                // contain text of others.
                let is_of_form = holes.as_ref().is_some_and(|holes| !holes.iter().any(|h| h.contains(start)));
                let own_label = if trusted || is_of_form { floor } else { top };
                let mut label = own_label;
                let quotation =
                    quotations.iter().find(|span| span.range.contains(start)).filter(|_| !is_of_form);
                for names in quotation.iter().flat_map(|span| &span.labels) {
                    label = label.join(&self.monitor.from_names(names));
                }
                summary.quoted += usize::from(quotation.is_some_and(|span| !span.labels.is_empty()));
                let piece = text.get(*start..*end).unwrap_or_default();
                match pieces.last_mut() {
                    // This piece is joined to the last one of the same part if both have the same label apart from
                    // quotations, and either the same label, or quotations have raised both. The placeholders of hidden
                    // pieces must not show of how many quoted texts the hidden text consists, and where each begins.
                    Some((last_piece, (last_label, last_own_label)))
                        if *start > 0
                            && *last_own_label == own_label
                            && (*last_label == label || (*last_label != own_label && label != own_label)) =>
                    {
                        *last_label = last_label.join(&label);
                        append_text(last_piece, piece);
                    }
                    _ => pieces.push((json!({"type": "text", "text": piece}), (label, own_label))),
                }
                if is_user && trusted && label == Label::BOTTOM {
                    memory.add_user_text(piece);
                    history.extend_own(piece);
                }
            }
        }
        self.memorize_new_message(memory, history, (is_client_role, is_unknown || is_unmarked), &pieces);
        let labelled = pieces.into_iter().map(|(block, (label, _))| (block, label));
        let (blocks, labels): (Vec<Value>, Vec<Label>) = labelled.unzip();
        let has_one_label = labels.iter().all(|label| Some(label) == labels.first());
        let content = match parts.as_slice() {
            [Part::Text(text)] if has_one_label => Value::String(text.clone()),
            _ => Value::Array(blocks),
        };
        let floors = if has_one_label {
            // A message without parts has no piece.
            let label_of_empty = if trusts_system || is_user && memory.trusts(None) { floor } else { top };
            Floors::from(labels.first().copied().unwrap_or(label_of_empty))
        } else {
            // The message as a whole carries a lower bound of the labels of its pieces; each block carries its own.
            let whole = labels.iter().copied().reduce(|a, b| self.lower_bound(&a, &b)).unwrap_or(floor);
            Floors { whole, blocks: labels.into_iter().enumerate().collect() }
        };
        let message = flowgate::trace::Message::new(role, content);
        let (event, findings) = self.monitor.push_with_floors(TraceEntry::from(message), &floors)?;
        self.turn.rule_messages.extend(super::blocking_messages(findings));
        self.items.push(ConversationItem::ClientMessage(event));
        if is_client_role && (is_unknown || is_unmarked) {
            history.unknown.insert(event.0);
        }
        // The event has already been recorded in the memory.
        history.memorized.0 = self.monitor.trace().len();
        Ok(self.monitor.trace().event(event).map_or(top, |event| event.label))
    }

    /// Returns the greatest label that flows to both labels.
    fn lower_bound(&self, a: &Label, b: &Label) -> Label {
        self.monitor.policy().space().greatest_below(a, b)
    }
}

/// A sent message that is not in the history of the session.
#[derive(Clone, Copy)]
struct NewMessage<'a> {
    message: &'a chat::Message,
    /// A lower bound on its label.
    floor: Label,
    /// Whether the lower bound is due only to the unknown beginning of the chat.
    is_unknown: bool,
    /// The source of each part, as far as the caller declares it.
    source: &'a dyn Fn(usize) -> Option<Source>,
}

/// Returns the parts of a system or user message; `None` for the other messages, which clients do not write.
fn parts_of(message: &chat::Message) -> Option<&[Part]> {
    match message {
        chat::Message::System(parts) | chat::Message::User(parts) => Some(parts),
        _ => None,
    }
}

/// Returns the texts in the parts of system and user messages; other messages are skipped.
fn texts_of(messages: &[chat::Message]) -> Vec<&str> {
    let parts = messages.iter().filter_map(parts_of).flatten();
    parts.filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None }).collect()
}

/// Appends `piece` to the text of a content block. A block without a text stays as it is.
fn append_text(block: &mut Value, piece: &str) {
    if let Some(Value::String(text)) = block.get_mut("text") {
        text.push_str(piece);
    }
}

/// Converts a part of a message to the JSON content block in which an event stores it.
pub(super) fn to_content_block(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::ImageUrl(url) => json!({"type": "image_url", "image_url": {"url": url}}),
        Part::ImageData { media_type, data } => {
            json!({"type": "image", "mimeType": media_type, "data": data})
        }
    }
}
