//! Histories that a caller sends, taken into a conversation.

use flowgate::label::Label;
use flowgate::monitor::{Floors, PushError};
use flowgate::trace::{Body, Content, Entry};
use flowgate_lm::chat::{self, Part};
use serde_json::{Value, json};

use super::{Conversation, Phase};
use crate::history::memory::Memory;
use crate::history::{Alignment, Chat, Client, History, Known, Recollected, Sent};
use crate::journal::Input;
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
        Ok(self.sent_chat(client, history, &Chat::of(messages))?.unwrap_or_default())
    }

    /// The same for a chat that has been compared with others. Nothing happens if the history does not [have its
    /// beginning](History::has_beginning), and then nothing is returned.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn sent_chat(
        &mut self,
        client: &mut Client,
        history: &mut History,
        chat: &Chat<'_>,
    ) -> Result<Option<Sent>, PushError> {
        let found = history.align(chat.digests());
        let Some(rest) = chat.after(found.kept) else { return Ok(None) };
        let (kept, mut memory) = (found.kept, Memory::live(client));
        let done = self.take_in(&mut memory, history, found, rest);
        let seen = memory.answers();
        self.put(|| Input::Sent { kept, rest: rest.to_vec(), seen });
        done.map(Some)
    }

    /// The same as when a chat was taken in first, of which this many messages stood where they stood.
    pub(crate) fn sent_again(
        &mut self,
        client: &mut Client,
        history: &mut History,
        kept: usize,
        rest: &[chat::Message],
        seen: &[Recollected],
    ) -> Result<Sent, PushError> {
        let found = history.align(&history.digests_with(kept, rest));
        let mut memory = Memory::again(client, seen);
        self.take_in(&mut memory, history, found, rest)
    }

    /// Takes in a chat that compares so with what is known, and whose messages are these after those that stand where they
    /// stood.
    fn take_in(
        &mut self,
        memory: &mut Memory<'_>,
        history: &mut History,
        found: Alignment,
        rest: &[chat::Message],
    ) -> Result<Sent, PushError> {
        self.tell_memory(memory, history);
        self.delivered.clear();
        // Answers to calls of the last message go on with the turn; everything else begins one.
        let mut is_resumed = self.waits_for_answers() && !self.waits_for_decision();
        // Most chats only go on: then everything stays where it is.
        let length = history.known().len();
        let goes_on = found.kept == length && length > 0;
        let known = if goes_on { Vec::new() } else { history.known().to_vec() };
        let gone = known.get(found.gone.clone()).unwrap_or_default();
        let floor = gone.iter().fold(Label::BOTTOM, |floor, known| floor.join(&known.label));
        let mut sent = Sent { gone: gone.len(), ..Sent::default() };
        let mut budget = BUDGET;
        // Nobody knows what a chat replaces that was held elsewhere: of its beginning, up to the last message that only a
        // conversation writes, nothing is anybody's.
        let is_made = |message: &chat::Message| {
            matches!(message, chat::Message::Assistant { .. } | chat::Message::Tool { .. })
        };
        let held_elsewhere = match length == 0 {
            true => rest.iter().rposition(is_made).map_or(0, |last| last + 1),
            false => 0,
        };
        let top = self.monitor.policy().space().top();

        let before = *history.before.get_or_insert(self.items.len());
        let stayed = if goes_on { length } else { 0 };
        let (mut now, until) = (Vec::new(), self.items.len());
        sent.known += stayed;
        let mut items: Vec<Option<Item>> = match goes_on {
            true => Vec::new(),
            false => self.items.take().into_iter().map(Some).collect(),
        };
        let start =
            |index: usize| index.checked_sub(1).and_then(|i| known.get(i)).map_or(before, |k| k.until);
        // What was done after the last message that the caller holds belongs to it.
        let all = items.len();
        let end = |index: usize| if index + 1 == known.len() { all } else { start(index + 1) };
        self.items.extend(items.get_mut(..before).into_iter().flatten().filter_map(Option::take));

        let behind = found.instead.end + found.retained.len();
        let stands = (stayed..found.kept).map(Stands::Known);
        let order = stands
            .chain(found.instead.map(|index| Stands::New(index, Some(floor))))
            .chain(found.retained.map(Stands::Known))
            .chain(
                (behind..found.kept + rest.len())
                    .map(|index| Stands::New(index, (index < held_elsewhere).then_some(top))),
            );
        for stands in order {
            match stands {
                Stands::Known(index) => {
                    let range = items.get_mut(start(index)..end(index));
                    self.items.extend(range.into_iter().flatten().filter_map(Option::take));
                    now.extend(known.get(index).map(|known| known.moved(self.items.len())));
                    sent.known += 1;
                }
                Stands::New(index, floor) => {
                    let Some(message) = index.checked_sub(found.kept).and_then(|at| rest.get(at)) else {
                        continue;
                    };
                    let is_answer = matches!(message, chat::Message::Tool { .. });
                    let label = match self.add_answer(memory, message, floor, &mut sent)? {
                        Some(label) => label,
                        None => {
                            is_resumed &= is_answer;
                            self.add(memory, message, floor.unwrap_or(Label::BOTTOM), &mut sent, &mut budget)?
                        }
                    };
                    now.push(Known::new(message, label, self.items.len()));
                    self.tell_events(memory, history);
                }
            }
        }
        match goes_on {
            true => history.go_on(until, now),
            false => history.set(now),
        }
        history.told.1 = self.items.len();
        self.tell_memory(memory, history);
        if is_resumed && !self.levels.is_empty() {
            // Every answer is a new beginning: how many messages a task takes is the caller's business.
            self.levels.iter_mut().for_each(|level| level.steps = 0);
            self.phase = Phase::Generate;
        } else {
            self.begin();
        }
        Ok(sent)
    }

    /// What the caller was answered in this turn, as it got it: it is known from now on, and what it carries is known in all
    /// sessions of the client.
    pub fn answered_to(&mut self, client: &mut Client, history: &mut History, message: &chat::Message) {
        self.answered_again(history, message);
        self.put(|| Input::AnsweredTo(message.clone()));
        self.tell(client, history);
    }

    pub(crate) fn answered_again(&mut self, history: &mut History, message: &chat::Message) {
        self.deliver(message);
        history.push(Known::new(message, self.said, self.items.len()).written());
    }

    /// Adds the answer of a tool that ran elsewhere, and returns what it carries; nothing if it answers no call.
    fn add_answer(
        &mut self,
        memory: &mut Memory<'_>,
        message: &chat::Message,
        floor: Option<Label>,
        sent: &mut Sent,
    ) -> Result<Option<Label>, PushError> {
        let chat::Message::Tool { call_id, content, is_error } = message else { return Ok(None) };
        let texts = content.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            other => block(other).to_string(),
        });
        let floor_of_answer = floor.unwrap_or(Label::BOTTOM);
        let mut label = self.answered_elsewhere(call_id, content, *is_error, floor_of_answer)?;
        if let (None, Some(floor)) = (label, floor) {
            let text = texts.collect::<Vec<_>>().join("\n");
            label = self.answer_rewritten(call_id, &text, &floor);
            if let Some(label) = &label {
                self.tell_text(memory, &text, label);
            }
        }
        sent.new += usize::from(label.is_some());
        Ok(label)
    }

    /// Adds a message that was not known, and returns what it carries.
    fn add(
        &mut self,
        memory: &mut Memory<'_>,
        message: &chat::Message,
        floor: Label,
        sent: &mut Sent,
        budget: &mut usize,
    ) -> Result<Label, PushError> {
        sent.new += 1;
        let top = self.monitor.policy().space().top();
        let (role, parts, trusted) = match message {
            chat::Message::System(parts) => ("system", parts.clone(), false),
            chat::Message::User(parts) => ("user", parts.clone(), memory.is_interactive()),
            // Nobody but this conversation makes these, and it did not.
            chat::Message::Assistant { text, .. } => ("assistant", vec![Part::Text(text.clone())], false),
            chat::Message::Tool { content, .. } => ("tool", content.clone(), false),
        };
        let may_be_pinned = matches!(message, chat::Message::System(_) | chat::Message::User(_));
        let (mut blocks, mut labels): (Vec<Value>, Vec<Label>) = (Vec::new(), Vec::new());
        for part in &parts {
            let Part::Text(text) = part else {
                // A picture that was seen is known by its address or its bytes.
                let written = match part {
                    Part::ImageUrl(url) => url,
                    Part::ImageData { data, .. } => data,
                    Part::Text(text) => text,
                };
                let mut label = if trusted { floor } else { top };
                for names in memory.spans(written, budget).iter().flat_map(|span| &span.labels) {
                    label = label.join(&self.monitor.from_names(names));
                }
                blocks.push(block(part));
                labels.push(label);
                continue;
            };
            let holes = memory.pinned().iter().find_map(|form| form.holes(text)).filter(|_| may_be_pinned);
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
                for span in memory.spans(piece, budget) {
                    let mut label = if given(*start) { floor } else { top };
                    if is_hole && !span.labels.is_empty() {
                        sent.quoted += 1;
                        for names in &span.labels {
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

    /// Tells the client's memory what has come to stand in this session: to be done also after a turn that has failed.
    pub fn tell(&self, client: &mut Client, history: &mut History) {
        self.tell_memory(&mut Memory::live(client), history);
    }

    fn tell_memory(&self, memory: &mut Memory<'_>, history: &mut History) {
        self.tell_events(memory, history);
        for item in self.items.iter().skip(history.told.1) {
            let Item::Step(step) = item else { continue };
            self.tell_text(memory, &step.text, &step.label);
            for made in &step.calls {
                if let Answer::Told { text, label, .. } | Answer::Rewritten { text, label } = &made.answer {
                    self.tell_text(memory, text, label);
                }
            }
        }
        history.told.1 = self.items.len();
    }

    fn tell_events(&self, memory: &mut Memory<'_>, history: &mut History) {
        let trace = self.monitor.trace();
        for event in trace.events().iter().skip(history.told.0) {
            let document = &event.document;
            for (id, node) in document.nodes().iter().enumerate() {
                // A list or a map is quoted as it was spelled, or as it is printed, keys, numbers and all.
                let label = document.label_of(id);
                match (&node.content, &node.text) {
                    (Content::Scalar(Value::String(text)), _) => self.tell_text(memory, text, &label),
                    (Content::List | Content::Map, Some(text)) => self.tell_text(memory, text, &label),
                    (Content::List | Content::Map, None) if node.parent == 0 && id != 0 => {
                        self.tell_text(memory, &document.to_value(id).to_string(), &label);
                    }
                    _ => {}
                }
            }
        }
        history.told.0 = trace.len();
    }

    /// What a text carries that stands in this session, wherever it stands again.
    fn tell_text(&self, memory: &mut Memory<'_>, text: &str, label: &Label) {
        if *label != Label::BOTTOM {
            memory.add(text, || self.monitor.to_names(label));
        }
    }
}

/// How many letters are compared for one history; one that takes more has been made to, and all of it may have been seen.
const BUDGET: usize = 20_000_000;

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
