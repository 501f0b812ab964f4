//! Histories that a caller sends, taken into a conversation.

use std::ops::Range;

use flowgate::label::Label;
use flowgate::monitor::{Floors, PushError};
use flowgate::trace::{Body, Content, Entry};
use flowgate_lm::chat::{self, Part};
use serde_json::{Value, json};

use super::{Conversation, Phase};
use crate::history::{Client, History, Known, Sent};
use crate::view::{Answer, Item};

/// Where a message of the chat comes from.
enum Stands {
    /// It was known, and is this one.
    Known(usize),
    /// It is this one of what was sent. It stands in place of what carried this, if it does.
    New(usize, Option<Label>),
}

impl Conversation {
    /// The chat as a caller holds it now, new messages and all: the model may answer it. Whatever the caller has changed
    /// carries what stood there before.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn sent(
        &mut self,
        client: &mut Client,
        history: &mut History,
        messages: &[chat::Message],
    ) -> Result<Sent, PushError> {
        self.tell(client, history);
        // Answers to calls of the last message go on with the turn; everything else begins one.
        let mut is_resumed = self.waits_for_answers();
        let found = history.align(messages);
        let known = history.known().to_vec();
        let gone = known.get(found.gone.clone()).unwrap_or_default();
        let floor = gone.iter().fold(Label::BOTTOM, |floor, known| floor.join(&known.label));
        let mut sent = Sent { gone: gone.len(), ..Sent::default() };

        let mut items: Vec<Option<Item>> = std::mem::take(&mut self.items).into_iter().map(Some).collect();
        let before = *history.before.get_or_insert(items.len());
        let start =
            |index: usize| index.checked_sub(1).and_then(|i| known.get(i)).map_or(before, |k| k.until);
        // What was done after the last message that the caller holds belongs to it.
        let end = |index: usize| if index + 1 == known.len() { items.len() } else { start(index + 1) };
        let ranges: Vec<Range<usize>> = (0..known.len()).map(|index| start(index)..end(index)).collect();
        self.items.extend(items.get_mut(..before).into_iter().flatten().filter_map(Option::take));

        let behind = found.instead.end + found.retained.len();
        let stands = (0..found.kept).map(Stands::Known);
        let order = stands
            .chain(found.instead.map(|index| Stands::New(index, Some(floor))))
            .chain(found.retained.map(Stands::Known))
            .chain((behind..messages.len()).map(|index| Stands::New(index, None)));
        let mut now: Vec<Known> = Vec::new();
        for stands in order {
            match stands {
                Stands::Known(index) => {
                    let range = ranges.get(index).cloned().unwrap_or_default();
                    self.items.extend(items.get_mut(range).into_iter().flatten().filter_map(Option::take));
                    now.extend(known.get(index).map(|known| known.moved(self.items.len())));
                    sent.known += 1;
                }
                Stands::New(index, floor) => {
                    let Some(message) = messages.get(index) else { continue };
                    let is_answer = matches!(message, chat::Message::Tool { .. });
                    let label = match self.add_answer(message, floor, &mut sent)? {
                        Some(label) => label,
                        None => {
                            is_resumed &= is_answer;
                            self.add(client, message, floor.unwrap_or(Label::BOTTOM), &mut sent)?
                        }
                    };
                    now.push(Known::new(message, label, self.items.len()));
                }
            }
        }
        history.set(now);
        history.told.1 = self.items.len();
        self.tell(client, history);
        if is_resumed && !self.levels.is_empty() {
            self.phase = Phase::Generate;
        } else {
            self.begin();
        }
        Ok(sent)
    }

    /// What the caller was answered in this turn, as it got it: it is known from now on, and what it carries is known in all
    /// sessions of the client.
    pub fn answered_to(&self, client: &mut Client, history: &mut History, message: &chat::Message) {
        history.push(Known::new(message, self.said, self.items.len()));
        self.tell(client, history);
    }

    /// Adds the answer of a tool that ran elsewhere, and returns what it carries; nothing if it answers no call.
    fn add_answer(
        &mut self,
        message: &chat::Message,
        floor: Option<Label>,
        sent: &mut Sent,
    ) -> Result<Option<Label>, PushError> {
        let chat::Message::Tool { call_id, content, is_error } = message else { return Ok(None) };
        let texts = content.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            other => block(other).to_string(),
        });
        let mut label = self.answered_elsewhere(call_id, content, *is_error)?;
        if let (None, Some(floor)) = (label, floor) {
            label = self.answer_rewritten(call_id, &texts.collect::<Vec<_>>().join("\n"), &floor);
        }
        sent.new += usize::from(label.is_some());
        Ok(label)
    }

    /// Adds a message that was not known, and returns what it carries.
    fn add(
        &mut self,
        client: &Client,
        message: &chat::Message,
        floor: Label,
        sent: &mut Sent,
    ) -> Result<Label, PushError> {
        sent.new += 1;
        let top = self.monitor.policy().space().top();
        let (role, parts, trusted) = match message {
            chat::Message::System(parts) => ("system", parts.clone(), false),
            chat::Message::User(parts) => ("user", parts.clone(), client.is_interactive),
            // Nobody but this conversation makes these, and it did not.
            chat::Message::Assistant { text, .. } => ("assistant", vec![Part::Text(text.clone())], false),
            chat::Message::Tool { content, .. } => ("tool", content.clone(), false),
        };
        let may_be_pinned = matches!(message, chat::Message::System(_) | chat::Message::User(_));
        let (mut blocks, mut labels): (Vec<Value>, Vec<Label>) = (Vec::new(), Vec::new());
        for part in &parts {
            let Part::Text(text) = part else {
                blocks.push(block(part));
                labels.push(if trusted { floor } else { top });
                continue;
            };
            let holes = client.pinned.iter().find_map(|form| form.holes(text)).filter(|_| may_be_pinned);
            // Of a form that the operator knows, only what fills it can be somebody else's.
            let given = |at: usize| match &holes {
                Some(holes) => trusted || !holes.iter().any(|hole| hole.contains(&at)),
                None => trusted,
            };
            let mut cuts: Vec<usize> = holes.iter().flatten().flat_map(|h| [h.start, h.end]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
                let piece = text.get(*start..*end).unwrap_or_default();
                let is_hole = holes.as_ref().is_none_or(|holes| holes.iter().any(|h| h.contains(start)));
                for span in client.seen.spans(piece) {
                    let mut label = if given(*start) { floor } else { top };
                    if is_hole && !span.labels.is_empty() {
                        sent.quoted += 1;
                        for names in span.labels {
                            label = label.join(&self.monitor.from_names(names));
                        }
                    }
                    let text = piece.get(span.range).unwrap_or_default();
                    blocks.push(json!({"type": "text", "text": text}));
                    labels.push(label);
                }
            }
        }
        let same = labels.iter().all(|label| Some(label) == labels.first());
        let content = match parts.as_slice() {
            [Part::Text(text)] if same => Value::String(text.clone()),
            _ => Value::Array(blocks),
        };
        let floors = if same {
            Floors::from(labels.first().copied().unwrap_or(if trusted { floor } else { top }))
        } else {
            let all = labels.iter().copied().reduce(|a, b| self.lower(&a, &b)).unwrap_or(floor);
            Floors { whole: all, blocks: labels.into_iter().enumerate().collect() }
        };
        let message = flowgate::trace::Message { role: role.to_owned(), content };
        let (event, findings) = self.monitor.push_raised(Entry::from(Body::Message(message)), &floors)?;
        self.found.extend(super::stops(findings));
        self.items.push(Item::Sent(event));
        Ok(self.monitor.trace().event(event).map_or(top, |event| event.label))
    }

    fn lower(&self, a: &Label, b: &Label) -> Label {
        self.monitor.policy().space().greatest_below(a, b)
    }

    /// Tells the client's memory what has come to stand in this session.
    fn tell(&self, client: &mut Client, history: &mut History) {
        let (events, items) = history.told;
        let trace = self.monitor.trace();
        for event in trace.events().iter().skip(events) {
            for node in event.document.nodes() {
                if let Content::Scalar(Value::String(text)) = &node.content
                    && node.label != Label::BOTTOM
                {
                    client.seen.add(text, &self.monitor.to_names(&node.label));
                }
            }
        }
        for item in self.items.iter().skip(items) {
            let Item::Step(step) = item else { continue };
            if step.label != Label::BOTTOM {
                client.seen.add(&step.text, &self.monitor.to_names(&step.label));
            }
            for made in &step.calls {
                if let Answer::Told { text, label, .. } = &made.answer {
                    client.seen.add(text, &self.monitor.to_names(label));
                }
            }
        }
        history.told = (trace.len(), self.items.len());
    }
}

/// A part that is no text, as a block of a content.
pub(super) fn block(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::ImageUrl(url) => json!({"type": "image_url", "image_url": {"url": url}}),
        Part::ImageData { media_type, data } => {
            json!({"type": "image", "mimeType": media_type, "data": data})
        }
    }
}
