//! Runs sessions whose chat is held by a client, as with a gateway: the client sends the whole chat with every
//! message, runs the tools itself, and may edit the chat.
//!
//! Everybody sees that a client sends a message, and those of its actions that depend on nothing hidden:
//! which of the messages it changes, and which calls it makes outside the chat. The replacement of a message
//! is visible to observers who may see the replaced message.

use flowgate::label::Label;
use flowgate::monitor::AuthorizedCall;
use flowgate::trace::{EventBody, EventId, Output, Tool, TraceEntry};
use flowgate_guard::conversation::{ToolAnswer, Turn, TurnUsage};
use flowgate_guard::history::History;
use flowgate_lm::chat::{Completion, Message, Part, Stop, ToolCall};
use serde_json::{Map, Value};

use crate::forms;
use crate::oracle_label::OracleLabel;
use crate::random::Random;
use crate::run::RunState;
use crate::session::{ObservedSession, VisibleAnswer};
use crate::world::{self, AnswerSpelling};

/// The system message that the operator has pinned.
pub(crate) const INSTRUCTIONS: &str = "You help.";

/// The most messages with calls that the model writes at one label in one turn.
const STEPS: usize = 3;

/// A message as the client holds it.
pub(crate) struct HeldMessage {
    pub(crate) message: Message,
    /// The least label of the message.
    pub(crate) level: OracleLabel,
    /// The turn of the message.
    pub(crate) turn: usize,
    pub(crate) kind: HeldMessageKind,
}

pub(crate) enum HeldMessageKind {
    /// Created by the client and not yet sent.
    New,
    /// A tool's answer that has not been sent: its index among the answers that the observer may see.
    Answer(Option<usize>),
    /// Sent; whether it is a tool's answer that the observer may see.
    Known { is_answer: bool },
}

/// A call for the client to run.
struct ClientRunCall {
    id: String,
    tool: Tool,
    arguments: Map<String, Value>,
    /// The arguments as they were printed.
    print: String,
    /// Whether the observer may see the call, or a part of its answer.
    exists: bool,
}

/// A chat that a client holds.
pub(crate) struct ClientHeldChat {
    pub(crate) is_trusted: bool,
    pub(crate) history: History,
    pub(crate) held: Vec<HeldMessage>,
    running: Vec<ClientRunCall>,
    /// The least label of the model's message.
    said: Option<OracleLabel>,
    /// The number of messages with calls at each label in this turn.
    steps: Vec<(Label, usize)>,
    /// The named events outside the chat: the name, the event, the agent.
    pub(crate) named: Vec<(String, usize, &'static str)>,
    /// A text that was shown outside the chat and that the observer may not see.
    pub(crate) shown: Option<String>,
}

impl ClientHeldChat {
    fn new(is_trusted: bool) -> Self {
        Self {
            is_trusted,
            history: History::new(),
            held: Vec::new(),
            running: Vec::new(),
            said: None,
            steps: Vec::new(),
            named: Vec::new(),
            shown: None,
        }
    }

    /// Removes the calls of a message after the limit at its label has been reached.
    pub(crate) fn limit(&mut self, label: &Label, completion: &mut Completion) {
        let steps = match self.steps.iter_mut().find(|(known, _)| known == label) {
            Some((_, steps)) => steps,
            None => {
                self.steps.push((*label, 0));
                &mut self.steps.last_mut().expect("one was added").1
            }
        };
        *steps += 1;
        if *steps > STEPS {
            completion.calls.clear();
            completion.stop = Stop::End;
        }
    }

    /// Records that the model wrote text at this level.
    pub(crate) fn says(&mut self, level: &OracleLabel) {
        self.said = Some(self.said.as_ref().map_or_else(|| level.clone(), |said| said.join(level)));
    }
}

/// Returns a letter (of Linear A) that no other text contains before the turn, and that neither looks like another one
/// nor is transliterated.
///
/// Without it on both sides of a quotation, a hidden text that happens to continue as the message does would extend the
/// quotation, which is one of the bits that SECURITY.md declares. The same holds at the start of a message: an answer
/// that repeats the message before may be followed by a value that the user writes next.
fn letter_of_turn(turn: usize) -> char {
    const LETTERS: [char; 3] = ['\u{10600}', '\u{10601}', '\u{10602}'];
    LETTERS[turn]
}

/// The percentage of calls of the chat that the client runs through the proxy.
const PROXIED: usize = 40;

impl RunState<'_> {
    /// Runs a conversation whose chat a client holds.
    pub(crate) fn chat(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        number: usize,
    ) {
        let case = self.case;
        let mut shared = Random::new(case.seed ^ 0x77aa_0000 ^ number as u64);
        let mut chat = ClientHeldChat::new(case.trusts_client);
        let level = self.taint.oracle.level_of_role("system");
        let message = Message::System(vec![Part::from(INSTRUCTIONS)]);
        chat.held.push(HeldMessage { message, level, turn: 0, kind: HeldMessageKind::New });
        session.chat = Some(chat);
        self.root(session);
        for turn in 0..3 {
            self.acts(session, first, turn, &mut shared);
            self.edit(session, turn, &mut shared);
            let level = self.level_of_user();
            let letter = letter_of_turn(turn);
            let mut text = format!("turn {turn}: {letter}{:.12}", world::scalar(&mut shared).to_string());
            let quotes = shared.chance(40);
            // Only once: after that, the quotation has other text before it.
            if let Some(shown) = held(session).shown.take_if(|_| quotes) {
                text.push_str(&format!("; you said: {letter}{shown}{letter}, did you?"));
            }
            // Only at first: a later repetition could quote what has repeated it.
            if case.focus.is_some() && turn == 0 {
                text.push_str(if number == 0 { forms::LINKS } else { forms::LATER_LINKS });
            }
            let text = self.chosen_text(&level, text);
            let message = Message::User(vec![Part::Text(text)]);
            held(session).held.push(HeldMessage { message, level, turn, kind: HeldMessageKind::New });
            self.rounds(session, first, turn);
        }
        let last = session.conversation.view_at(case.label);
        self.log(format!("in the end {:?}", last.request));
        self.remembered(session);
    }

    /// Returns the least label of a new message of the user.
    pub(crate) fn level_of_user(&self) -> OracleLabel {
        match self.case.trusts_client {
            true => self.taint.oracle.level_of_role("user"),
            false => self.taint.oracle.top(),
        }
    }

    /// Returns the text, or a replacement if the observer may not see it.
    pub(crate) fn chosen_text(&mut self, level: &OracleLabel, text: String) -> String {
        if level.flows_to(&self.case.level) {
            return text;
        }
        self.run.changed += 1;
        world::marked(&mut self.hidden)
    }

    /// Runs a turn: exchanges messages between client and model until the final reply.
    fn rounds(&mut self, session: &mut ObservedSession, first: Option<&ObservedSession>, number: usize) {
        held(session).steps.clear();
        let (mut all, mut is_visible) = (Turn::default(), true);
        loop {
            self.send(session);
            let (turn, sees) = self.turn(session, first);
            is_visible &= sees;
            let chat = held(session);
            let texts: Vec<&str> = turn.replies.iter().map(|reply| reply.text.as_str()).collect();
            let call = |call: &flowgate_guard::conversation::HandedOverCall| ToolCall {
                id: call.id.clone(),
                name: call.tool.to_string(),
                arguments: call.arguments.clone(),
            };
            // All messages differ, so that a removed message is unambiguous.
            let text = format!("{} [{}]", texts.join("\n"), chat.held.len());
            let message = Message::Assistant {
                text,
                calls: turn.calls.iter().map(call).collect(),
                thoughts: Vec::new(),
            };
            let level = chat.said.take().unwrap_or_else(|| self.taint.oracle.bottom());
            let kind = HeldMessageKind::Known { is_answer: false };
            chat.held.push(HeldMessage { message: message.clone(), level, turn: number, kind });
            let running = std::mem::take(&mut chat.running);
            let ObservedSession { conversation, chat, .. } = &mut *session;
            let history = &mut chat.as_mut().expect("a chat").history;
            conversation.record_answer(&mut self.client, history, &message);
            all = together(all, turn);
            if running.is_empty() {
                break;
            }
            let routes: Vec<Option<bool>> = running
                .iter()
                .map(|call| {
                    self.route_of_tool(&call.tool, number).or_else(|| self.route_of_equal(call, &running))
                })
                .collect();
            for (running, route) in running.into_iter().zip(routes) {
                self.serve(session, first, (running, route), number);
            }
        }
        self.ended(&all, is_visible);
    }

    /// Sends the chat of the client.
    fn send(&mut self, session: &mut ObservedSession) {
        let ObservedSession { conversation, chat, followed, answers, .. } = &mut *session;
        let chat = chat.as_mut().expect("a chat");
        for held in &chat.held {
            if let (HeldMessageKind::New, Some(text)) = (&held.kind, text_of(&held.message)) {
                followed.sent.push((text, held.level.clone()));
            }
        }
        let messages: Vec<Message> = chat.held.iter().map(|held| held.message.clone()).collect();
        let sent =
            conversation.accept_messages(&mut self.client, &mut chat.history, &messages).expect("room");
        if sent.removed > 0 {
            self.run.met.insert("messages that are gone");
        }
        if sent.quoted > 0 {
            self.run.met.insert("a quotation of a hidden text");
        }
        self.taint.follow(followed, conversation);
        let bottom = self.taint.oracle.bottom();
        let events = conversation.monitor().trace().events();
        for held in &mut chat.held {
            match (&held.kind, &held.message) {
                (HeldMessageKind::Answer(place), Message::Tool { call_id, .. }) => {
                    let is_it = |event: &flowgate::trace::Event| matches!(&event.body, EventBody::Output(output) if output.call_id == *call_id);
                    let event = events.iter().rposition(is_it).expect("an answer");
                    held.level = followed.bounds[event].of(0, &bottom);
                    if let Some(place) = place
                        && answers[*place].event == UNKNOWN
                    {
                        answers[*place].event = EventId(event);
                    }
                    held.kind = HeldMessageKind::Known { is_answer: place.is_some() };
                }
                (HeldMessageKind::New, _) => held.kind = HeldMessageKind::Known { is_answer: false },
                _ => {}
            }
        }
    }

    /// Hands a permitted call over to the client.
    pub(crate) fn hand(&mut self, session: &mut ObservedSession, call: AuthorizedCall) {
        let exists = self.runs(session, &call) || self.shows_part_of_answer(session, &call);
        let level = session.followed.bounds[call.event().0].of(0, &self.taint.oracle.bottom());
        let chat = held(session);
        chat.says(&level);
        chat.running.push(ClientRunCall {
            id: call.call().id.clone(),
            tool: call.call().tool.clone(),
            arguments: call.call().arguments.clone().expect("they were read"),
            print: call.arguments_json(),
            exists,
        });
        session.conversation.hand_over(call);
    }

    /// Returns whether the client runs all calls of a tool in one turn through the proxy, if the tool has parts of answers
    /// that depend on no hidden argument; `None` for other tools. The observer sees that such a call ran although an
    /// argument is hidden, and the proxy cannot tell it apart from an equal call of which the observer sees everything.
    fn route_of_tool(&self, tool: &Tool, turn: usize) -> Option<bool> {
        let has_parts = !self.case.declared.independent_parts(tool).is_empty();
        has_parts.then(|| Random::of(&format!("{} {tool} {turn}", self.case.seed)).chance(PROXIED))
    }

    /// Returns whether the client runs a call through the proxy as it runs the first visible call of the same message
    /// that equals it, which may be the call itself; `None` if none does. The calls are of the same tool, and the proxy
    /// cannot tell them apart.
    fn route_of_equal(&self, call: &ClientRunCall, all: &[ClientRunCall]) -> Option<bool> {
        let is_equal = |other: &&ClientRunCall| {
            other.exists && (&other.tool, &other.arguments) == (&call.tool, &call.arguments)
        };
        let visible = all.iter().find(is_equal)?;
        Some(self.choices_of(&visible.id).chance(PROXIED))
    }

    /// Returns the source of the choices that the client makes when it runs the visible call with this id.
    fn choices_of(&self, id: &str) -> Random {
        Random::of(&format!("{} {id}", self.case.seed))
    }

    /// Runs a call as the client, through a proxy that reports to the session or directly, and adds the
    /// answer to the chat. `route` says whether it uses the proxy, if that is not left to chance.
    fn serve(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        (running, route): (ClientRunCall, Option<bool>),
        turn: usize,
    ) {
        let ClientRunCall { id, tool, arguments, print, exists } = running;
        let place = exists.then_some(session.answers.len());
        let (answer, spelling) = self.answer_of(&tool, &print, exists, self.answer_before(first, place));
        let (answer, spelling) = as_text(answer, spelling);
        if exists {
            session.answers.push(VisibleAnswer { event: UNKNOWN, spelling, child: None });
        }
        let mut random = match exists {
            true => self.choices_of(&id),
            false => Random::new(self.hidden.next()),
        };
        let mut content = parts(&answer.content);
        // The choice does not depend on the answer, of which the observer may not even see the type.
        let by_chance = random.chance(PROXIED);
        if route.unwrap_or(by_chance) {
            let event = self.serve_beside(session, tool, arguments, &answer);
            if exists {
                session.answers.last_mut().expect("one was added").event = event;
            }
            if random.chance(40) {
                let text = match &answer.content {
                    Value::String(text) => text.clone(),
                    blocks => blocks.to_string(),
                };
                let start: String = text.chars().take(30).collect();
                content = vec![Part::Text(format!("in short: {start} {:x}", Random::of(&text).next()))];
            }
        }
        let message = Message::Tool { call_id: id, content, is_error: Some(answer.is_error) };
        let level = self.taint.oracle.bottom();
        held(session).held.push(HeldMessage { message, level, turn, kind: HeldMessageKind::Answer(place) });
    }

    /// Runs a handed-over call outside the chat.
    fn serve_beside(
        &mut self,
        session: &mut ObservedSession,
        tool: Tool,
        arguments: Map<String, Value>,
        answer: &ToolAnswer,
    ) -> EventId {
        let of_call = (tool.clone(), arguments);
        let taken =
            session.beside(move |conversation| conversation.take_handed_over_call(&of_call.0, &of_call.1));
        let taken = taken.expect("the chat has handed it over");
        self.run.met.insert("a call of the chat that runs beside it");
        let ToolAnswer { content, structured, is_error, .. } = answer.clone();
        let output = Output { call_id: taken.id, tool: None, content, structured, is_error: Some(is_error) };
        let event = session.beside(move |conversation| {
            let monitor = conversation.monitor_mut();
            let floor = monitor.output_floor(&tool);
            let entry = TraceEntry::from(output.clone());
            let (event, _) = monitor.push_with_floors(entry, &floor.into()).expect("room");
            conversation.record_outside_answer(&output.call_id, event);
            event
        });
        self.taint.follow(&mut session.followed, &session.conversation);
        event
    }
}

/// The placeholder for the event of an answer that has not been sent.
const UNKNOWN: EventId = EventId(usize::MAX);

pub(crate) fn held(session: &mut ObservedSession) -> &mut ClientHeldChat {
    session.chat.as_mut().expect("a client holds the chat")
}

/// Merges two parts of a turn.
fn together(mut one: Turn, two: Turn) -> Turn {
    one.replies.extend(two.replies);
    (one.stop, one.ended) = (two.stop, two.ended);
    let (a, b) = (one.spent, two.spent);
    one.spent = TurnUsage {
        messages: a.messages + b.messages,
        screenings: a.screenings + b.screenings,
        tokens: a.tokens.plus(b.tokens),
        looks: a.looks + b.looks,
        hidden: a.hidden + b.hidden,
        ..b
    };
    one
}

/// Returns the text of a message.
fn text_of(message: &Message) -> Option<String> {
    let text = |parts: &[Part]| {
        parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
            .collect()
    };
    match message {
        Message::System(parts) | Message::User(parts) => Some(text(parts)),
        Message::Assistant { text, .. } => Some(text.clone()),
        Message::Tool { .. } => None,
    }
}

fn is_blocks(content: &Value) -> bool {
    let is_block = |block: &Value| {
        block["text"].is_string() || (block["mimeType"].is_string() && block["data"].is_string())
    };
    content.as_array().is_some_and(|blocks| !blocks.is_empty() && blocks.iter().all(is_block))
}

/// Converts an answer to the text form that a chat can contain.
fn as_text(answer: ToolAnswer, spelling: AnswerSpelling) -> (ToolAnswer, AnswerSpelling) {
    let ToolAnswer { content, is_error, .. } = answer;
    let (content, spelling) = match content {
        Value::String(_) => (content, spelling),
        _ if is_blocks(&content) => (content, spelling),
        other => (Value::String(format!("{other:#}")), AnswerSpelling::Json),
    };
    (ToolAnswer { content, structured: None, is_error, carries: None }, spelling)
}

fn parts(content: &Value) -> Vec<Part> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let part = |block: &Value| match &block["text"] {
        Value::String(text) => Part::Text(text.clone()),
        _ => Part::ImageData { media_type: text(&block["mimeType"]), data: text(&block["data"]) },
    };
    match content {
        Value::Array(blocks) => blocks.iter().map(part).collect(),
        other => vec![Part::Text(text(other))],
    }
}
