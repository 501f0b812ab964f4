//! Tests of properties that all formats share, for example that an encoded answer is decoded to the same answer.

use std::ops::ControlFlow;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Delta;
use crate::chat::{
    Effort, OutputFormat, OutputSchema, Reasoning, ReasoningPart, ReasoningSummary, Sampling, Seal, Source,
    ThinkingDisplay, ThinkingMode, ToolCall, ToolChoice, ToolSpec, Usage, Verbosity,
};

/// The text and the calls that a listener has received.
#[derive(Debug, Default, PartialEq)]
struct CollectedDeltas {
    text: String,
    calls: Vec<ToolCall>,
}

impl CollectedDeltas {
    fn push(&mut self, delta: Delta<'_>) -> ControlFlow<()> {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Reasoning(text) => assert!(!text.is_empty()),
            Delta::Call { index, id, name } => {
                assert_eq!(index, self.calls.len(), "calls begin in order");
                let call = ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: String::new() };
                self.calls.push(call);
            }
            Delta::Arguments { index, json } => self.calls[index].arguments.push_str(json),
            Delta::Restart => *self = Self::default(),
        }
        ControlFlow::Continue(())
    }
}

/// Decodes a stream, and checks that the listener received the text and the calls of the decoded answer.
fn read(api: Api, events: &[sse::SseEvent]) -> Result<Completion, Error> {
    let mut heard = CollectedDeltas::default();
    let mut decoder = api.decoder();
    for event in events {
        decoder.feed(event, &mut |delta: Delta<'_>| heard.push(delta))?;
    }
    let completion = decoder.finish()?;
    assert_eq!((&heard.text, &heard.calls), (&completion.text, &completion.calls));
    Ok(completion)
}

/// Summarises a stream: the stop reason, text, usage and calls, or the error.
pub(super) fn streamed(api: Api, events: &[sse::SseEvent]) -> String {
    match read(api, events) {
        Ok(answer) => {
            let mut shown = format!("{:?} {:?}", answer.stop, answer.text);
            if answer.usage != Usage::default() {
                shown += &format!(" {}+{}", answer.usage.input, answer.usage.output);
            }
            for call in &answer.calls {
                shown += &format!(" {}={}{}", call.id, call.name, call.arguments);
            }
            shown
        }
        Err(error) => error.to_string(),
    }
}

/// Generates a text, which may be empty.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ -~]{1,60}", "[a-zü€😀\n\r\"\\\\]{1,40}"]
}

/// Generates a name.
fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z_]{0,8}"
}

/// Generates a JSON object that does not change when it is serialised and parsed.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(word(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    });
    prop::collection::hash_map(word(), value, 0..4).prop_map(|map| map.into_iter().collect())
}

/// Generates a call, whose id contains `index`.
fn call(index: usize) -> impl Strategy<Value = ToolCall> {
    (word(), object()).prop_map(move |(name, object)| ToolCall {
        id: format!("c{index}"),
        name,
        arguments: object.to_string(),
    })
}

/// Generates no call, one call, or three calls.
fn calls() -> impl Strategy<Value = Vec<ToolCall>> {
    prop_oneof![
        Just(Vec::new()),
        call(0).prop_map(|call| vec![call]),
        (call(0), call(1), call(2)).prop_map(|(a, b, c)| vec![a, b, c]),
    ]
}

/// Generates reasoning with the seals of all formats.
fn thoughts() -> impl Strategy<Value = Vec<ReasoningPart>> {
    let seal = prop_oneof![
        Just(Seal::None),
        text().prop_map(Seal::Signature),
        text().prop_map(Seal::Redacted),
        (word(), prop::option::of(word())).prop_map(|(id, encrypted)| Seal::Item { id, encrypted }),
    ];
    let thought = (prop::collection::vec("[ -~ü]{1,40}", 0..3), seal)
        .prop_map(|(texts, seal)| ReasoningPart { texts, seal, author: String::new() });
    prop::collection::vec(thought, 0..3)
}

/// Returns the reasoning `thoughts` of an answer as a client of the format reads it: parts that the format cannot
/// express are absent or changed.
fn shown(api: Api, thoughts: &[ReasoningPart]) -> Vec<ReasoningPart> {
    let one = |(index, thought): (usize, &ReasoningPart)| match (api, &thought.seal) {
        (Api::Messages, Seal::Redacted(_)) => {
            ReasoningPart { seal: thought.seal.clone(), ..ReasoningPart::default() }
        }
        (Api::Messages, seal) => {
            let text = match seal {
                Seal::Signature(_) => thought.texts.concat(),
                _ => thought.text(),
            };
            let signature = match seal {
                Seal::Signature(signature) => signature.clone(),
                _ => String::new(),
            };
            let texts = Some(text).filter(|text| !text.is_empty()).into_iter().collect();
            ReasoningPart { texts, seal: Seal::Signature(signature), author: String::new() }
        }
        (_, seal) => {
            let encrypted = match seal {
                Seal::Item { encrypted, .. } => encrypted.clone(),
                _ => None,
            };
            ReasoningPart {
                texts: thought.texts.clone(),
                seal: Seal::Item { id: format!("rs_r1_{index}"), encrypted },
                author: String::new(),
            }
        }
    };
    if api == Api::ChatCompletions {
        return Vec::new();
    }
    if api == Api::GenerateContent {
        // All reasoning is sent as one part.
        let texts: Vec<String> =
            thoughts.iter().map(ReasoningPart::text).filter(|text| !text.is_empty()).collect();
        let one = ReasoningPart { texts: vec![texts.join("\n\n")], ..ReasoningPart::default() };
        return if texts.is_empty() { Vec::new() } else { vec![one] };
    }
    thoughts.iter().enumerate().map(one).collect()
}

/// Each format has its own field for how much of a request the server has read from its cache.
#[test]
fn cached_tokens_are_read() {
    for (api, body) in [
        (
            Api::ChatCompletions,
            json!({
                "choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 111, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10}},
            }),
        ),
        (
            Api::Responses,
            json!({
                "status": "completed",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}],
                "usage": {"input_tokens": 111, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 10}},
            }),
        ),
        (
            Api::Messages,
            json!({
                "content": [{"type": "text", "text": "a"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 1, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 100, "output_tokens": 5},
            }),
        ),
        (
            Api::GenerateContent,
            json!({
                "candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 111, "candidatesTokenCount": 5, "cachedContentTokenCount": 10},
            }),
        ),
    ] {
        let completion = api.decode_response(&body).unwrap();
        assert_eq!(completion.usage, Usage { input: 111, output: 5, cached: 10 }, "{api:?}");
    }
}

/// Generates an answer that every format can express, apart from its reasoning.
fn completion() -> impl Strategy<Value = Completion> {
    let stop = prop::sample::select(vec![Stop::End, Stop::Length, Stop::Refused]);
    let usage = (0_u64..9999, 0_u64..9999);
    (text(), calls(), thoughts(), stop, usage).prop_map(|(text, calls, thoughts, stop, (input, output))| {
        let stop = if stop == Stop::End && !calls.is_empty() { Stop::Calls } else { stop };
        let usage = Usage { input, output, cached: 0 };
        Completion { text, calls, stop, usage, thoughts, ..Completion::default() }
    })
}

/// Generates the parts of a message. A single text is not empty, since not every format distinguishes an empty text
/// from no parts.
fn parts() -> impl Strategy<Value = Vec<Part>> {
    let image = prop_oneof![
        "[A-Za-z0-9+/]{4}".prop_map(|data| Part::ImageData { media_type: "image/png".to_owned(), data }),
        "[A-Za-z0-9+/]{4}"
            .prop_map(|data| Part::ImageData { media_type: "application/pdf".to_owned(), data }),
    ];
    prop_oneof![
        "[ -~ü]{1,30}".prop_map(|text| vec![Part::Text(text)]),
        (text(), image).prop_map(|(text, image)| vec![Part::Text(text), image]),
    ]
}

/// Generates a chat: a system message or none, and up to three turns, in which each call has an output.
fn messages() -> impl Strategy<Value = Vec<Message>> {
    let turn = (parts(), text(), calls(), parts(), any::<bool>().prop_map(Some));
    (prop::option::of("[ -~]{1,20}"), prop::collection::vec(turn, 0..4)).prop_map(|(system, turns)| {
        let mut messages: Vec<Message> =
            system.into_iter().map(|text| Message::System(vec![Part::Text(text)])).collect();
        for (said, text, calls, content, is_error) in turns {
            messages.push(Message::User(said));
            let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
            messages.push(Message::Assistant { text, calls, thoughts: Vec::new() });
            for call_id in ids {
                messages.push(Message::Tool { call_id, content: content.clone(), is_error });
            }
        }
        messages
    })
}

/// Generates parameters of reasoning.
fn reasoning() -> impl Strategy<Value = Reasoning> {
    let thinking = prop_oneof![
        Just(ThinkingMode::Disabled),
        Just(ThinkingMode::Adaptive),
        any::<u32>().prop_map(ThinkingMode::Enabled)
    ];
    (
        prop::option::of(prop::sample::select(Effort::ALL)),
        prop::option::of(thinking),
        prop::option::of(prop::sample::select(ThinkingDisplay::ALL)),
        prop::option::of(prop::sample::select(ReasoningSummary::ALL)),
        any::<bool>(),
    )
        .prop_map(|(effort, thinking, display, summary, is_returned)| Reasoning {
            effort,
            thinking,
            display,
            summary,
            is_returned,
        })
}

/// Generates a request with parameters that not every format can express; [`carried`] removes these.
fn request() -> impl Strategy<Value = Request> {
    let tool = (word(), text(), object()).prop_map(|(name, description, parameters)| ToolSpec {
        name,
        description,
        parameters: parameters.into(),
    });
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Any),
        Just(ToolChoice::None),
        word().prop_map(ToolChoice::Tool),
    ];
    let sampling = (
        prop::option::of(any::<u32>()),
        prop::option::of(0.0..2.0),
        prop::option::of(0.0..1.0),
        prop::option::of(any::<u64>()),
        prop::collection::vec(word(), 0..3),
        reasoning(),
        prop::option::of(prop::sample::select(Verbosity::ALL)),
        any::<bool>(),
    )
        .prop_map(|(max_tokens, temperature, top_p, seed, stop, reasoning, verbosity, single_call)| {
            Sampling { max_tokens, temperature, top_p, seed, stop, reasoning, verbosity, single_call }
        });
    (messages(), prop::collection::vec(tool, 0..3), choice, sampling, prop::option::of(output_format()))
        .prop_map(|(messages, tools, choice, sampling, format)| Request {
            messages: messages.into(),
            tools,
            choice,
            sampling,
            format,
        })
}

/// Generates a demanded format of the answer's text.
fn output_format() -> impl Strategy<Value = OutputFormat> {
    let schema = prop::sample::select(vec![
        json!({}),
        json!({"type": "object", "properties": {"a": {"type": "string", "description": "Grüße."}}}),
        json!({"description": "Any."}),
    ]);
    let schema = ("[a-z_]{1,8}", text(), schema, prop::option::of(any::<bool>())).prop_map(
        |(name, description, schema, strict)| {
            OutputFormat::Schema(OutputSchema { name, description, schema: schema.into(), strict })
        },
    );
    prop_oneof![Just(OutputFormat::JsonObject), schema]
}

/// Returns the request without what a format cannot express: the request that its decoder reads from its encoded body.
fn carried(api: Api, mut request: Request) -> Request {
    for message in request.messages.iter_mut() {
        let has_errors = matches!(api, Api::Messages | Api::GenerateContent);
        if let (Message::Tool { is_error, .. }, false) = (message, has_errors) {
            *is_error = None;
        }
    }
    if api == Api::Messages {
        request.sampling.max_tokens.get_or_insert(messages::MAX_TOKENS);
    }
    if matches!(api, Api::Responses | Api::Messages) {
        request.sampling.seed = None;
    }
    if api == Api::Responses {
        request.sampling.stop.clear();
    }
    if matches!(api, Api::Messages | Api::GenerateContent) {
        request.format = match request.format {
            Some(OutputFormat::Schema(schema)) => Some(OutputFormat::Schema(OutputSchema {
                name: String::new(),
                description: String::new(),
                schema: output_format::described_schema(&schema).into(),
                strict: None,
            })),
            other => other.filter(|_| api == Api::GenerateContent),
        };
    }
    let sampling = &mut request.sampling;
    let Reasoning { effort, thinking, display, summary, is_returned } = &mut sampling.reasoning;
    if api == Api::Messages {
        *effort = match *effort {
            Some(Effort::None) => None,
            Some(Effort::Minimal) => Some(Effort::Low),
            other => other,
        };
        *display = display.filter(|_| !matches!(thinking, None | Some(ThinkingMode::Disabled)));
        (*summary, *is_returned, sampling.verbosity) = (None, false, None);
    } else if api == Api::GenerateContent {
        (*effort, *thinking) = match (*effort, *thinking) {
            (Some(Effort::None), _) | (None, Some(ThinkingMode::Enabled(0))) => {
                (None, Some(ThinkingMode::Disabled))
            }
            (Some(Effort::Xhigh | Effort::Max), _) => (Some(Effort::High), None),
            (Some(effort), _) => (Some(effort), None),
            (None, thinking) => (None, thinking),
        };
        *display = display.or(summary.map(|_| ThinkingDisplay::Summarized));
        (*summary, *is_returned, sampling.verbosity) = (None, false, None);
    } else {
        (*thinking, *display) = (None, None);
    }
    match api {
        Api::ChatCompletions => (*summary, *is_returned) = (None, false),
        // A request for reasoning also asks the server to return the reasoning.
        Api::Responses => *is_returned |= effort.is_some() || summary.is_some(),
        Api::Messages => {}
        Api::GenerateContent => sampling.single_call = false,
    }
    // Servers reject the limit on calls if there are no tools, and Anthropic's servers also if the choice is that
    // the model calls none.
    let has_calls = api != Api::Messages || request.choice != ToolChoice::None;
    sampling.single_call &= !request.tools.is_empty() && has_calls;
    request
}

/// Generates arbitrary JSON, mostly with field names and words that the formats use.
fn anything() -> impl Strategy<Value = Value> {
    let known = vec![
        "type",
        "role",
        "content",
        "messages",
        "input",
        "output",
        "tools",
        "tool_calls",
        "function",
        "choices",
        "message",
        "delta",
        "index",
        "error",
        "code",
        "usage",
        "text",
        "id",
        "name",
        "arguments",
        "model",
        "status",
        "item",
        "response",
        "finish_reason",
        "stop_reason",
        "content_block",
        "max_tokens",
        "system",
        "source",
        "contents",
        "parts",
        "candidates",
        "finishReason",
        "functionCall",
        "functionResponse",
        "inlineData",
        "generationConfig",
    ];
    let words = vec![
        "assistant",
        "user",
        "system",
        "tool",
        "text",
        "tool_use",
        "tool_result",
        "function",
        "function_call",
        "message",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "text_delta",
        "response.completed",
        "response.output_item.added",
        "completed",
        "stop",
        "end_turn",
        "STOP",
        "model",
        "image_url",
        "data:;base64,",
        "",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(0)),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        let key = prop_oneof![4 => prop::sample::select(known.clone()).prop_map(str::to_owned), 1 => text()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

const HEAD: ResponseHead<'_> = ResponseHead {
    id: "r1",
    model: "m",
    created: 1_700_000_000,
    tools: &ONLY_FUNCTIONS,
    storage: AnswerStorage::NotStored,
};

proptest! {
    /// An encoded answer, streamed or not, is decoded to the same answer.
    #[test]
    fn an_answer_survives(completion in completion()) {
        for api in Api::ALL {
            let body = api.encode_response(&completion, HEAD);
            let body: Value = serde_json::from_str(&body.to_string()).unwrap();
            let expected = Completion { thoughts: shown(api, &completion.thoughts), ..completion.clone() };
            prop_assert_eq!(&api.decode_response(&body).unwrap(), &expected, "{:?}: {}", api, body);
            let events = api.encode_stream(&completion, HEAD, true);
            prop_assert_eq!(&read(api, &events).unwrap(), &expected, "{:?}: {:?}", api, events);
        }
    }

    /// A decoder that misses one event must notice the loss where the format repeats the content (in the Responses API).
    /// In every format, it must not report another stop reason if the last event is missing as well.
    #[test]
    fn a_stream_without_one_of_its_events_is_never_another_answer(completion in completion(), lost in any::<prop::sample::Index>()) {
        for api in Api::ALL {
            let mut events = api.encode_stream(&completion, HEAD, true);
            events.remove(lost.index(events.len()));
            // The other formats send nothing twice, so that a lost piece of text cannot be detected.
            if api == Api::Responses && let Ok(read) = read(api, &events) {
                let expected = Completion { thoughts: shown(api, &completion.thoughts), ..completion.clone() };
                prop_assert_eq!(&read, &expected);
            }
            events.pop();
            if let Ok(read) = read(api, &events) {
                prop_assert_eq!(read.stop, completion.stop, "the end was lost: {:?}", events);
            }
        }
    }

    /// An encoded request is decoded to the same request, apart from what the format cannot express.
    #[test]
    fn a_request_survives(request in request(), stream in any::<bool>()) {
        for api in Api::ALL {
            let body = api.encode_request(&request, "m", stream);
            let body: Value = serde_json::from_str(&body.to_string()).unwrap();
            let asked = api.decode_request(&Json::from(&body)).unwrap();
            let mut expected = carried(api, request.clone());
            // Numbers are parsed from text here, which may change their last digit.
            for (read, sent) in [
                (asked.request.sampling.temperature, &mut expected.sampling.temperature),
                (asked.request.sampling.top_p, &mut expected.sampling.top_p),
            ] {
                prop_assert!(read.unwrap_or(0.0) - sent.unwrap_or(0.0) < 1e-12);
                *sent = read;
            }
            prop_assert_eq!(&asked.request, &expected, "{:?}: {}", api, body);
            // In Gemini's format, the address states both.
            let (model, stream) = if api == Api::GenerateContent { ("", false) } else { ("m", stream) };
            prop_assert_eq!((asked.model.as_str(), asked.stream), (model, stream));
            let is_lost = match api {
                Api::ChatCompletions | Api::GenerateContent => false,
                Api::Responses => !request.sampling.stop.is_empty(),
                Api::Messages => request.format == Some(OutputFormat::JsonObject),
            };
            prop_assert_eq!(api.unsupported_feature(&request).is_some(), is_lost);
        }
    }

    /// A chat that is serialised by extending the stored text of an earlier request equals one that is serialised as a
    /// whole.
    #[test]
    fn an_extended_chat_is_serialized_like_a_new_one(
        request in request(),
        steps in prop::collection::vec((messages(), 0..4_u8, any::<bool>()), 1..4),
    ) {
        let mut request = request;
        for (more, change, stream) in steps {
            request.messages.extend(more);
            match change {
                0 => drop(request.messages.edit().pop()),
                1 => request.messages.reverse(),
                2 => drop(request.tools.pop()),
                _ => {}
            }
            let model = if change == 3 { "m" } else { "m\"n" };
            let sent = chat_completions::SentRequest { request: &request, model, stream, limit: chat_completions::LIMIT };
            let (mut text, end) = sent.body().unwrap();
            prop_assert_eq!(&text, &serde_json::to_vec(&sent).unwrap());
            text.truncate(end);
            request.messages.store_serialized_prefix(crate::chat::SerializedPrefix { text, messages: request.messages.len() });
        }
    }

    /// No decoder panics, whatever JSON it receives.
    #[test]
    fn nothing_panics(values in prop::collection::vec(anything(), 1..5)) {
        for api in Api::ALL {
            let mut decoder = api.decoder();
            for value in &values {
                let _ = api.decode_request(&Json::from(value));
                let _ = api.decode_response(value);
                let _ = decoder.feed(&sse::SseEvent::new("", value.to_string()), &mut crate::ignore_deltas);
            }
            let _ = decoder.finish();
        }
    }

    /// No decoder panics on a valid answer in which a part was replaced.
    #[test]
    fn broken_answers_do_not_panic(completion in completion(), at in any::<prop::sample::Index>(), with in anything()) {
        // Replaces the text from a random position to the next comma.
        for api in Api::ALL {
            let body = api.encode_response(&completion, HEAD).to_string();
            let at = at.index(body.len());
            if let Some((before, after)) = body.split_at_checked(at)
                && let Some((_, after)) = after.split_once(',')
                && let Ok(broken) = serde_json::from_str(&format!("{before}{with},{after}"))
            {
                let _ = api.decode_response(&broken);
            }
        }
    }
}

/// A listener that cancels receives nothing more.
#[test]
fn a_listener_stops_a_stream() {
    let completion = Completion { text: "a".repeat(100), ..Completion::default() };
    for api in Api::ALL {
        let mut decoder = api.decoder();
        let mut heard = 0;
        let mut listener = |_: Delta<'_>| {
            heard += 1;
            if heard == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let events = api.encode_stream(&completion, HEAD, false);
        let ended = events.iter().find_map(|event| decoder.feed(event, &mut listener).err());
        assert_eq!(ended, Some(Error::Cancelled), "{api:?}");
        assert_eq!(heard, 2, "{api:?}");
    }
}

/// An answer that becomes longer than [`MAX_ANSWER`] is an error, although each of its events is short enough.
#[test]
fn answers_are_bounded() {
    let piece = Completion { text: "a".repeat(1 << 20), ..Completion::default() };
    let events = Api::ChatCompletions.encode_stream(&piece, HEAD, false);
    let mut decoder = Api::ChatCompletions.decoder();
    let pieces = events.iter().filter(|event| event.data.contains("aaa"));
    let ended = pieces.cycle().find_map(|event| decoder.feed(event, &mut crate::ignore_deltas).err());
    assert_eq!(ended, Some(Error::TooLong(MAX_ANSWER)));
}

/// In formats whose arguments are an object, arguments that are not a JSON object are wrapped in one.
#[test]
fn broken_arguments_become_an_object() {
    let call = |arguments: &str| {
        let call = ToolCall { id: "c".to_owned(), name: "f".to_owned(), arguments: arguments.to_owned() };
        let completion = Completion { calls: vec![call], stop: Stop::Calls, ..Completion::default() };
        let whole = Api::Messages.decode_response(&Api::Messages.encode_response(&completion, HEAD)).unwrap();
        let stream = read(Api::Messages, &Api::Messages.encode_stream(&completion, HEAD, true)).unwrap();
        (whole.calls[0].arguments.clone(), stream.calls[0].arguments.clone())
    };
    let both = |text: &str| (text.to_owned(), text.to_owned());
    assert_eq!(call("{\"a\":"), both(r#"{"unparsed":"{\"a\":"}"#));
    assert_eq!(call("[1]"), both(r#"{"unparsed":"[1]"}"#));
    assert_eq!(call(""), both("{}"));
    assert_eq!(call(r#"{ "a": 1 }"#), (r#"{"a":1}"#.to_owned(), r#"{ "a": 1 }"#.to_owned()));
    let broken = ToolCall { id: "c".to_owned(), name: "f".to_owned(), arguments: "[1]".to_owned() };
    let completion = Completion { calls: vec![broken], stop: Stop::Calls, ..Completion::default() };
    let events = Api::GenerateContent.encode_stream(&completion, HEAD, true);
    assert_eq!(streamed(Api::GenerateContent, &events), r#"Calls "" c=f{"unparsed":"[1]"}"#);
}

/// A client may declare the source of each part of the user's messages, and none of it is sent to a model.
#[test]
fn parts_declare_their_sources() {
    let request = |api: Api, message: &str| match api {
        Api::ChatCompletions => format!(r#"{{"model":"m","messages":[{message}]}}"#),
        Api::Responses => format!(r#"{{"model":"m","input":[{message}]}}"#),
        Api::Messages => format!(r#"{{"model":"m","max_tokens":1,"messages":[{message}]}}"#),
        Api::GenerateContent => format!(r#"{{"contents":[{message}]}}"#),
    };
    let check = |content: &str, of_message: &str, expected: Result<&[Option<&str>], &str>| {
        for api in Api::ALL {
            let content = match api {
                Api::Responses => content.replace(r#""type":"text""#, r#""type":"input_text""#),
                Api::GenerateContent => {
                    content.replace(r#""type":"text","#, "").replace(r#""hello""#, r#"[{"text":"hello"}]"#)
                }
                _ => content.to_owned(),
            };
            let key = if api == Api::GenerateContent { "parts" } else { "content" };
            let body = request(api, &format!(r#"{{"role":"user","{key}":{content}{of_message}}}"#));
            let read = api.decode_request(&Json::from(&serde_json::from_str(&body).unwrap()));
            match (read, expected) {
                (Ok(asked), Ok(expected)) => {
                    let of = |part| asked.sources.of(0, part).map(Source::name);
                    let found: Vec<Option<&str>> = (0..expected.len()).map(of).collect();
                    assert_eq!(found, expected, "{body}");
                    let sent = api.encode_request(&asked.request, "m", false).to_string();
                    assert!(!sent.contains("flowgate") && !sent.contains("typed"), "{sent}");
                }
                (Err(error), Err(problem)) => assert!(error.to_string().contains(problem), "{error}"),
                (read, expected) => panic!("{body}: {read:?} {expected:?}"),
            }
        }
    };
    let typed = r#","flowgate":{"source":"typed"}"#;
    check(r#""hello""#, "", Ok(&[None]));
    check(r#""hello""#, typed, Ok(&[Some("typed")]));
    let two = r#"[{"type":"text","text":"a","flowgate":{"source":"file"}},{"type":"text","text":"b"}]"#;
    check(two, "", Ok(&[Some("file"), None]));
    check(two, typed, Ok(&[Some("file"), Some("typed")]));
    check(r#""hello""#, r#","flowgate":{"source":"me"}"#, Err("flowgate.source` is not `typed`, `file`"));
    check(r#""hello""#, r#","flowgate":{"sauce":"typed"}"#, Err("flowgate.sauce` is not known"));
    check(r#""hello""#, r#","flowgate":{}"#, Err("flowgate.source` is missing"));
    check(r#""hello""#, r#","flowgate":"typed""#, Err("flowgate` is not an object"));
}
