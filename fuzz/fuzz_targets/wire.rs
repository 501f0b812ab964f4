//! Arbitrary input in each of the wire formats is decoded or rejected, however it is divided. A decoded
//! message that is encoded in any of the formats decodes to the same message. A field that no table lists is refused by its
//! name.

#![no_main]

mod bytes;
mod fixed;
mod json;

use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Choices;
use flowgate_lm::chat::{Completion, Message, OutputFormat, Part, Request, ToolCall};
use flowgate_lm::json::Json;
use flowgate_lm::sse::{EventSplitter, SseEvent};
use flowgate_lm::wire::{
    AnswerStorage, Api, FieldOutcome, ONLY_FUNCTIONS, ResponseHead, listed, messages::MAX_TOKENS,
};
use flowgate_lm::{Delta, Error};
use json::edit;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind {
        b'?' => each(request, &serde_json::from_slice(rest).unwrap_or_default()),
        b'=' => each(response, &serde_json::from_slice(rest).unwrap_or_default()),
        b'~' => Api::ALL.iter().for_each(|api| stream(*api, rest)),
        b'!' => unknown_field(&mut Choices::new(rest)),
        _ => {
            let mut choices = Choices::new(rest);
            let mut body =
                choices.of(&GOOD).map_or(Value::Null, |good| serde_json::from_str(good).expect("good"));
            while !choices.are_spent() {
                edit(&mut body, &mut choices);
            }
            each(request, &body);
            each(response, &body);
            events(body.as_array().unwrap_or(&vec![body.clone()]));
        }
    }
});

/// The inputs to mutate: a request, an answer and the events of a stream in each format.
const GOOD: [Option<&str>; 13] = [
    None,
    Some(include_str!("good/chat-request.json")),
    Some(include_str!("good/chat-response.json")),
    Some(include_str!("good/chat-events.json")),
    Some(include_str!("good/responses-request.json")),
    Some(include_str!("good/responses-response.json")),
    Some(include_str!("good/responses-events.json")),
    Some(include_str!("good/messages-request.json")),
    Some(include_str!("good/messages-response.json")),
    Some(include_str!("good/messages-events.json")),
    Some(include_str!("good/generate-content-request.json")),
    Some(include_str!("good/generate-content-response.json")),
    Some(include_str!("good/generate-content-events.json")),
];

/// The requests that the decoders accept, and the fields whose values they do not read: schemas, arguments, outputs.
const REQUESTS: [(Api, &str, &[&str]); 4] = [
    (Api::ChatCompletions, include_str!("good/chat-request.json"), &["parameters", "schema"]),
    (Api::Responses, include_str!("good/responses-request.json"), &["parameters", "schema"]),
    (Api::Messages, include_str!("good/messages-request.json"), &["input_schema", "schema", "input"]),
    (
        Api::GenerateContent,
        include_str!("good/generate-content-request.json"),
        &["parameters", "parametersJsonSchema", "responseSchema", "args", "response"],
    ),
];

/// A field that no table lists is refused by its name, wherever the decoder reads an object.
fn unknown_field(choices: &mut Choices<'_>) {
    const UNKNOWN: &str = "zz_unknown";
    let (api, body, opaque) = choices.of(&REQUESTS);
    let mut body: Value = serde_json::from_str(body).expect("good");
    assert!(api.decode_request(&Json::from(&body)).is_ok(), "{api:?}: the good request is refused");
    let dropped: Vec<&str> =
        listed(api).into_iter().filter(|row| row.outcome == FieldOutcome::Dropped).map(|row| row.field).collect();
    let mut objects = Vec::new();
    collect_objects(&body, "", &|key| opaque.contains(&key) || dropped.contains(&key), &mut objects);
    let nth = choices.below(objects.len());
    let place = body.pointer_mut(&objects[nth]).and_then(Value::as_object_mut).expect("an object");
    // Null counts as absent.
    place.insert(UNKNOWN.to_owned(), choices.of(&[json!(true), json!(0), json!(""), json!([]), json!({})].each_ref()).clone());
    match api.decode_request(&Json::from(&body)) {
        Ok(_) => panic!("{api:?}: an unknown field is accepted at {:?}: {body}", objects[nth]),
        Err(error) => {
            is_one_line(&error);
            let text = error.to_string();
            assert!(text.contains(UNKNOWN) && text.contains("is not known"), "{api:?} {:?}: {text}", objects[nth]);
        }
    }
}

/// Adds the paths of the objects that are read: those that are not below a field for which `is_opaque`.
fn collect_objects(value: &Value, path: &str, is_opaque: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.push(path.to_owned());
            for (key, field) in fields.iter().filter(|(key, _)| !is_opaque(key)) {
                collect_objects(field, &format!("{path}/{key}"), is_opaque, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_objects(item, &format!("{path}/{index}"), is_opaque, found);
            }
        }
        _ => {}
    }
}

fn each(read: fn(Api, &Value), body: &Value) {
    Api::ALL.iter().for_each(|api| read(*api, body));
}

fn events(bodies: &[Value]) {
    let events: String = bodies.iter().map(|body| SseEvent::new("", body.to_string()).encode()).collect();
    Api::ALL.iter().for_each(|api| stream(*api, format!("~{events}").as_bytes()));
}

const HEAD: ResponseHead<'_> =
    ResponseHead { id: "r1", model: "m", created: 1_700_000_000, tools: &ONLY_FUNCTIONS, storage: AnswerStorage::NotStored };

fn is_one_line(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.contains(char::is_control) && text.len() < 500, "{text:?}");
}

fn request(api: Api, body: &Value) {
    let asked = match api.decode_request(&Json::from(body)) {
        Ok(asked) => asked,
        Err(error) => return is_one_line(&error),
    };
    for to in Api::ALL {
        let sent = to.encode_request(&asked.request, &asked.model, asked.stream);
        let again = to
            .decode_request(&Json::from(&sent))
            .unwrap_or_else(|error| panic!("{api:?} {to:?} {error}: {sent}"));
        // In Gemini's format, the address states both.
        if to != Api::GenerateContent {
            assert_eq!((&again.model, again.stream), (&asked.model, asked.stream));
        }
        let [read, meant] = [again.request, asked.request.clone()].map(|request| carried(to, request));
        assert_eq!(read, meant, "{api:?} {to:?}: {sent}");
    }
}

/// Returns the part of a request that a format can express.
fn carried(api: Api, mut request: Request) -> Request {
    let mut messages: Vec<Message> = Vec::new();
    let is_text = |part: &Part| matches!(part, Part::Text(_));
    for mut message in std::mem::take(&mut request.messages) {
        match &mut message {
            Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => {
                // A single empty text equals no text.
                if matches!(parts.as_slice(), [Part::Text(text)] if text.is_empty()) {
                    parts.clear();
                }
            }
            Message::Assistant { .. } => {}
        }
        match (api, message, messages.last_mut()) {
            (Api::Messages | Api::GenerateContent, Message::System(parts), None) if parts.is_empty() => {}
            (Api::Messages | Api::GenerateContent, Message::System(parts), Some(Message::System(before)))
                if parts.iter().all(is_text) =>
            {
                before.extend(parts);
            }
            (Api::Messages | Api::GenerateContent, Message::System(parts), before) => {
                let leads = before.is_none() && parts.iter().all(is_text);
                messages.push(if leads { Message::System(parts) } else { Message::User(parts) });
            }
            (Api::Messages, Message::Assistant { text, mut calls, .. }, _) => {
                calls.iter_mut().for_each(with_object);
                messages.push(Message::Assistant { text, calls, thoughts: Vec::new() });
            }
            // Consecutive contents of the model are one message.
            (
                Api::GenerateContent,
                Message::Assistant { text, mut calls, .. },
                Some(Message::Assistant { text: before, calls: calls_before, .. }),
            ) => {
                calls.iter_mut().for_each(with_object);
                before.push_str(&text);
                calls_before.extend(calls);
            }
            (Api::GenerateContent, Message::Assistant { text, mut calls, .. }, _) => {
                calls.iter_mut().for_each(with_object);
                messages.push(Message::Assistant { text, calls, thoughts: Vec::new() });
            }
            // An output is one text, followed by its files.
            (Api::GenerateContent, Message::Tool { call_id, content, is_error }, _) => {
                let is_error = is_error == Some(true);
                messages.push(Message::Tool {
                    call_id,
                    content: one_text(content, is_error),
                    is_error: Some(is_error),
                });
            }
            // Calls belong to the preceding message.
            (
                Api::Responses,
                Message::Assistant { text, calls, .. },
                Some(Message::Assistant { calls: before, .. }),
            ) if text.is_empty() && !calls.is_empty() => {
                before.extend(calls);
            }
            // Without a flag, an answer is not an error in this format.
            (Api::Messages, Message::Tool { call_id, content, is_error }, _) => {
                messages.push(Message::Tool { call_id, content, is_error: Some(is_error == Some(true)) });
            }
            (Api::ChatCompletions | Api::Responses, Message::Tool { call_id, content, .. }, _) => {
                messages.push(Message::Tool { call_id, content, is_error: None });
            }
            (_, message, _) => messages.push(message),
        }
    }
    if api == Api::GenerateContent {
        messages.iter_mut().for_each(with_own_ids);
    }
    request.messages = messages.into();
    // The formats ask for reasoning in different ways; `flowgate-lm` has a property for each.
    request.sampling = request.sampling.without_reasoning();
    if api == Api::Messages {
        request.sampling.max_tokens.get_or_insert(MAX_TOKENS);
    }
    if matches!(api, Api::Responses | Api::Messages) {
        request.sampling.seed = None;
    }
    if api == Api::Responses {
        request.sampling.stop.clear();
    }
    request.format = request.format.and_then(|format| carried_format(api, format));
    request
}

/// Returns the part of a form of the text that a format can express.
fn carried_format(api: Api, format: OutputFormat) -> Option<OutputFormat> {
    let OutputFormat::Schema(mut schema) = format else {
        return (api != Api::Messages).then_some(format);
    };
    match api {
        Api::Messages | Api::GenerateContent => {
            if let (Value::Object(entries), false) =
                (Arc::make_mut(&mut schema.schema), schema.description.is_empty())
            {
                entries.entry("description").or_insert(Value::from(std::mem::take(&mut schema.description)));
            }
            (schema.name, schema.description, schema.strict) = (String::new(), String::new(), None);
        }
        // These formats require a name.
        Api::ChatCompletions | Api::Responses if schema.name.is_empty() => schema.name.push_str("output"),
        _ => {}
    }
    Some(OutputFormat::Schema(schema))
}

/// Removes what Gemini's format chooses itself: ids that are absent, and the alphabet of base64.
fn with_own_ids(message: &mut Message) {
    let (parts, calls): (&mut [Part], &mut [ToolCall]) = match message {
        Message::System(parts) | Message::User(parts) => (parts, &mut []),
        Message::Assistant { calls, .. } => (&mut [], calls),
        Message::Tool { call_id, content, .. } => {
            call_id.clear();
            (content, &mut [])
        }
    };
    calls.iter_mut().for_each(|call| call.id.clear());
    for part in parts {
        if let Part::ImageData { data, .. } = part {
            *data = data.replace('-', "+").replace('_', "/");
        }
    }
}

/// Joins the texts of an output to one, which precedes its files. An error has a text.
fn one_text(content: Vec<Part>, is_error: bool) -> Vec<Part> {
    let (texts, files): (Vec<Part>, Vec<Part>) =
        content.into_iter().partition(|part| matches!(part, Part::Text(_)));
    let texts: Vec<&str> = texts
        .iter()
        .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
        .collect();
    let text = (!texts.is_empty() || is_error).then(|| texts.join("\n"));
    // A single empty text equals no text.
    let text = text.filter(|text| !text.is_empty() || !files.is_empty());
    text.map(Part::Text).into_iter().chain(files).collect()
}

/// Converts arguments for a format that requires an object.
fn with_object(call: &mut ToolCall) {
    let object = match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if call.arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({"unparsed": call.arguments}),
    };
    call.arguments = object.to_string();
}

fn response(api: Api, body: &Value) {
    match api.decode_response(body) {
        Ok(completion) => survives(&completion, body.to_string().len()),
        Err(error) => is_one_line(&error),
    }
}

/// An answer is bounded by the length of its input, and round-trips through every format.
fn survives(completion: &Completion, bytes: usize) {
    let held = |call: &ToolCall| call.id.len() + call.name.len() + call.arguments.len();
    let held: usize = completion.text.len() + completion.calls.iter().map(held).sum::<usize>();
    // Numbers may be printed longer than they were in the input.
    assert!(held <= 8 * bytes, "{held} of {bytes}");
    for to in Api::ALL {
        let mut meant = Completion { thoughts: Vec::new(), ..completion.clone() };
        if matches!(to, Api::Messages | Api::GenerateContent) {
            meant.calls.iter_mut().for_each(with_object);
        }
        let body = to.encode_response(completion, HEAD);
        // Each format shows reasoning in its own way.
        let decoded = to.decode_response(&body).map(|decoded| Completion { thoughts: Vec::new(), ..decoded });
        assert_eq!(decoded.as_ref(), Ok(&meant), "{to:?}: {body}");
        let events: String = to.encode_stream(completion, HEAD, true).iter().map(SseEvent::encode).collect();
        let mut read =
            read(to, [events.as_bytes()]).unwrap_or_else(|error| panic!("{to:?} {error}: {events}"));
        read.thoughts.clear();
        if to == Api::Messages {
            // In streams the arguments are the text of the model.
            read.calls.iter_mut().for_each(with_object);
        }
        assert_eq!(read, meant, "{to:?}: {events}");
    }
}

/// The result for a stream does not depend on its division; the first byte selects the division.
fn stream(api: Api, bytes: &[u8]) {
    let Some((&cuts, bytes)) = bytes.split_first() else { return };
    let whole = read(api, [bytes]);
    assert_eq!(read(api, pieces(bytes, cuts)), whole, "{api:?} {cuts}");
    match whole {
        Ok(completion) => survives(&completion, bytes.len()),
        Err(error) => is_one_line(&error),
    }
}

fn pieces(bytes: &[u8], cuts: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut random) = (bytes, u32::from(cuts));
    std::iter::from_fn(move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (1 + (random >> 24) as usize % 24).min(rest.len());
        let (piece, tail) = rest.split_at(length);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Decodes a stream until it is complete. The listener receives the same answer.
fn read<'a>(api: Api, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Completion, Error> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut hear = |delta: Delta<'_>| {
        match delta {
            Delta::Text(piece) => text.push_str(piece),
            Delta::Reasoning(_) => {}
            Delta::Call { index, id, name } => {
                assert_eq!(index, calls.len());
                calls.push(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: String::new() });
            }
            Delta::Arguments { index, json } => calls[index].arguments.push_str(json),
            Delta::Restart => panic!("there is one attempt"),
        }
        ControlFlow::Continue(())
    };
    let mut decoder = api.decoder();
    let mut splitter = EventSplitter::default();
    for piece in pieces {
        for event in splitter.feed(piece) {
            // Events after the end of the answer are ignored.
            if !decoder.is_done() {
                decoder.feed(&event?, &mut hear)?;
            }
        }
    }
    let completion = decoder.finish()?;
    assert_eq!((&text, &calls), (&completion.text, &completion.calls));
    Ok(completion)
}
