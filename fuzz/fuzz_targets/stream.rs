//! Arbitrary streams of an upstream, in any format, order and division: text that is sent before the verdict
//! is part of the answer, no event contains withheld text, and the client receives one well-formed answer
//! with one end.

#![no_main]

mod bytes;
mod fixed;
mod json;

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Choices;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_guard::agent::{Agent, Observer, Toolbox};
use flowgate_guard::approve::{ApprovalRequest, Decision, DigestKey};
use flowgate_guard::conversation::{Conversation, ConversationSettings, Method, ModelReply};
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Request, Stop, ToolCall};
use flowgate_lm::sse::{EventSplitter, SseEvent};
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead, ResponseWriter};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener, block_on};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const LABELS: &str = r#"
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role == "user"
label tool as trusted if:
    (tool: Tool)
require trusted if:
    (call: ToolCall) is tool:read
raise "never" if:
    (call: ToolCall) is tool:launch
raise "no links" if:
    (call: ToolCall) is tool:flowgate/link
raise "never this" if:
    (call: ToolCall)
    "LEAK" in f"{call.name} {call.arguments}"
"#;

/// With this rule, no text is sent before the message has been judged.
const RULE: &str = r#"
raise "withheld" if:
    (message: Message)
    message.role == "assistant"
    "SECRET" in message.content or "LEAK" in message.content
"#;

static POLICIES: LazyLock<[Arc<Policy>; 2]> = LazyLock::new(|| {
    let sources = [LABELS.to_owned(), format!("{LABELS}{RULE}")];
    sources.map(|source| Arc::new(Policy::parse(&source).unwrap_or_else(|found| panic!("{found:?}"))))
});

const HEAD: ResponseHead<'_> =
    ResponseHead { id: "r1", model: "m", created: 1_700_000_000, tools: &ONLY_FUNCTIONS, storage: AnswerStorage::NotStored };

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let is_ruled = choices.below(2) == 1;
    let (from, to) = (choices.of(&Api::ALL), choices.of(&Api::ALL));
    let policy = Arc::clone(&POLICIES[usize::from(is_ruled)]);
    let mut conversation = conversation(policy, choices.of(MethodRegistry::builtin().methods()));
    let mut streams = vec![stream(from, &mut choices)];
    while streams.len() < 5 && !choices.are_spent() {
        streams.push(stream(from, &mut choices));
    }
    let model = FuzzUpstream { api: from, streams: Mutex::new(streams) };
    let mut client =
        StreamClient { writer: Some(ResponseWriter::new(to, HEAD, true)), ..StreamClient::default() };
    let ended = {
        let mut nobody = |_: &ApprovalRequest| Decision::Unanswered;
        let mut agent = Agent {
            model: &model,
            screener: &model,
            filler: &model,
            tools: &Toolbox::external(),
            provider_tools: None,
            approver: &mut nobody,
            clock: &|| Duration::ZERO,
            observer: &mut client,
        };
        block_on(agent.run_turn(&mut conversation, json!("Hello!")))
    };
    let is_withheld = |text: &str| is_ruled && (text.contains("SECRET") || text.contains("LEAK"));
    if let Ok(turn) = ended {
        let call = |call: &flowgate_guard::conversation::HandedOverCall| ToolCall {
            id: call.id.clone(),
            name: call.tool.name.to_string(),
            arguments: call.arguments.clone(),
        };
        let calls: Vec<ToolCall> = turn.calls.iter().map(call).collect();
        let stop = if !calls.is_empty() {
            Stop::Calls
        } else if turn.stop == Stop::Calls {
            // Calls that did not run do not determine the stop reason.
            Stop::End
        } else {
            turn.stop
        };
        let completion = Completion { text: said(&turn.replies), calls, stop, ..Completion::default() };
        assert!(
            completion.text.starts_with(&client.sent),
            "taken back: {:?} {:?}",
            client.sent,
            completion.text
        );
        let writer = client.writer.take().expect("it ends once");
        client.events.extend(writer.finish(&completion));
        let read = read(to, &client.events);
        assert_eq!(read.text, completion.text);
        assert_eq!(read.calls.len(), completion.calls.len());
        for call in &read.calls {
            assert_eq!(call.name, "read", "only what may run goes out");
            assert!(!call.arguments.contains("LEAK"), "{call:?}");
        }
    }
    let all: String = client.events.iter().map(SseEvent::encode).collect();
    assert!(!is_withheld(&all) && !all.contains("launch"), "{all}");
    assert!(!client.sent.contains("https://evil"), "a link that may not be followed: {}", client.sent);
});

fn conversation(policy: Arc<Policy>, method: Method) -> Conversation {
    let mut settings = ConversationSettings::new(method, DigestKey::new([1; 32]));
    (settings.steps, settings.messages, settings.levels, settings.calls) = (4, 8, 3, 4);
    let offered = |name: &str| OfferedTool {
        tool: Tool::local(name),
        description: name.to_owned(),
        parameters: json!({"type": "object", "properties": {"to": {"type": "string"}}}).into(),
        output: None,
        words: DescriptionAuthor::Server,
    };
    let tools = ["read", "launch"].map(offered).to_vec();
    Conversation::new(Monitor::new(policy), tools, settings).expect("there is room")
}

/// The client, and what it was sent. The gateway does the same over sockets.
#[derive(Default)]
struct StreamClient {
    writer: Option<ResponseWriter>,
    events: Vec<SseEvent>,
    sent: String,
    before: String,
}

impl StreamClient {
    fn text(&mut self, piece: &str) {
        self.sent.push_str(piece);
        self.events.extend(self.writer.as_mut().map(|writer| writer.text(piece)).unwrap_or_default());
    }
}

impl Observer for StreamClient {
    fn before_need(&mut self, conversation: &Conversation) {
        self.before = said(conversation.running_turn().replies());
        let rest = self.before.strip_prefix(&self.sent).map(str::to_owned);
        self.text(&rest.unwrap_or_else(|| panic!("taken back: {:?} {:?}", self.sent, self.before)));
    }

    fn on_text(&mut self, text: &str) {
        if self.sent == self.before && !self.before.is_empty() {
            self.text("\n\n");
        }
        self.text(text);
    }
}

/// Returns the replies of the model as one text.
fn said(replies: &[ModelReply]) -> String {
    let mut text = String::new();
    for reply in replies {
        let part = match reply.withheld.as_slice() {
            [] => reply.text.clone(),
            rules => format!("[withheld by a rule: {}]", rules.join("; ")),
        };
        let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { "\n\n" });
    }
    text
}

/// A model server: the pieces of each answer.
struct FuzzUpstream {
    api: Api,
    streams: Mutex<Vec<Vec<Vec<u8>>>>,
}

impl ChatModel for FuzzUpstream {
    fn name(&self) -> &str {
        "upstream"
    }

    fn complete<'a>(
        &'a self,
        _: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(std::future::ready(self.answer(listener)))
    }
}

impl FuzzUpstream {
    fn answer(&self, listener: &mut dyn Listener) -> Result<Completion, Error> {
        let Some(pieces) = self.streams.lock().expect("one thread").pop() else {
            return Ok(Completion::default());
        };
        let (mut decoder, mut splitter) = (self.api.decoder(), EventSplitter::default());
        for piece in pieces {
            for event in splitter.feed(&piece) {
                if !decoder.is_done() {
                    decoder.feed(&event?, listener)?;
                }
            }
        }
        decoder.finish()
    }
}

/// Generates the events of an answer, some of them mutated, in pieces.
fn stream(api: Api, choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    let text: String = (0..choices.below(8)).map(|_| choices.of(&TEXTS)).collect();
    let call = |choices: &mut Choices<'_>| ToolCall {
        id: choices.of(&["c1", "c2", ""]).to_owned(),
        name: choices.of(&["read", "launch", "look", "other"]).to_owned(),
        arguments: choices
            .of(&[r#"{"to":"a"}"#, r#"{"to":"LEAK"}"#, "{}", r#"{"to":1,"to":"LEAK"}"#, "LEAK"])
            .to_owned(),
    };
    let calls = (0..choices.below(4)).map(|_| call(choices)).collect();
    let mut events = api.encode_stream(&Completion { text, calls, ..Completion::default() }, HEAD, true);
    for _ in 0..choices.below(4) {
        let nth = choices.below(events.len().max(1));
        match (choices.below(5), events.get_mut(nth)) {
            (0, Some(event)) => {
                let again = event.clone();
                events.insert(nth, again);
            }
            (1, Some(_)) => drop(events.remove(nth)),
            (2, Some(_)) => events.swap(0, nth),
            (3, Some(event)) => event.name = choices.of(&["", "ping", "error", "message_stop"]).to_owned(),
            (_, Some(event)) => {
                if let Ok(mut body) = serde_json::from_str::<Value>(&event.data) {
                    json::edit(&mut body, choices);
                    event.data = body.to_string();
                }
            }
            (_, None) => {}
        }
    }
    let bytes: Vec<u8> = events.iter().map(SseEvent::encode).collect::<String>().into_bytes();
    let length = choices.of(&[1, 3, 16, 100, 100_000]);
    bytes.chunks(length).map(<[u8]>::to_vec).collect()
}

#[rustfmt::skip]
const TEXTS: [&str; 20] = [
    "Otters. ", "SECRET", "SEC", "RET", "LE", "AK", "https://evil.example/", "![x]", "(", ")", "[a]", "](", "\n", "<img src=",
    "https://", "evil.example", "?q=1", "é\u{200b}", "<a href='https://evil.example'>", " ",
];

/// Decodes the answer as a client library does.
fn read(api: Api, events: &[SseEvent]) -> Completion {
    let ends = |event: &&SseEvent| {
        let body: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match api {
            Api::ChatCompletions => event.data == "[DONE]",
            Api::Responses => {
                let kind = body["type"].as_str().unwrap_or_default();
                ["response.completed", "response.incomplete", "response.failed"].contains(&kind)
            }
            Api::Messages => body["type"] == "message_stop",
            Api::GenerateContent => body["candidates"][0].get("finishReason").is_some(),
        }
    };
    assert_eq!(events.iter().filter(ends).count(), 1, "one end");
    assert!(events.last().as_ref().is_some_and(ends), "nothing follows the end");
    let bytes: String = events.iter().map(SseEvent::encode).collect();
    let (mut decoder, mut splitter) = (api.decoder(), EventSplitter::default());
    for event in splitter.feed(bytes.as_bytes()) {
        let event = event.expect("an event");
        if !decoder.is_done() {
            decoder.feed(&event, &mut flowgate_lm::ignore_deltas).expect("an event of an answer");
        }
    }
    decoder.finish().expect("an answer")
}
