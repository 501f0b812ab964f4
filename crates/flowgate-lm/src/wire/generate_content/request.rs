//! Encodes requests of Gemini's API, as `RemoteModel` sends them to a server: the system instruction, the contents, the
//! tools and the settings. The header of [`super`] describes how the format differs from the others. The encoders of
//! answers ([`super::response`], [`super::stream`]) share the encoding of texts and calls.

use serde_json::{Map, Value, json};

use super::super::output_format::described_schema;
use super::super::{arguments_object, put};
use crate::chat::{
    Effort, Message, OutputFormat, Part, Reasoning, ReasoningPart, Request, Sampling, Seal, ThinkingDisplay,
    ThinkingMode, ToolCall, ToolChoice, ToolSpec,
};

/// The value that is sent as the signature of a call without one: another model wrote the call, or its reasoning is not
/// sent. Google defines this value for such calls, and servers that require a signature accept it.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns whether Google's servers refuse a message with calls if its first call has no signature. They do so for
/// models since Gemini 3. The version is read from the name of the model; a name without a version, such as
/// `gemini-flash-latest`, counts as a newer one. The result is false for a name that does not begin with `gemini-`,
/// or with this after `models/`.
fn requires_signatures(model: &str) -> bool {
    let name = model.strip_prefix("models/").unwrap_or(model);
    name.starts_with("gemini-") && !name.starts_with("gemini-1") && !name.starts_with("gemini-2")
}

/// Encodes the body of a request to the model with the name `model`. The address of the request, not the body, names
/// the model and says whether the answer is streamed; the body depends on `model` only in its reasoning and signatures.
/// System messages at the beginning that contain only texts are sent in the field `systemInstruction`, and all later
/// messages as contents.
#[must_use]
pub fn encode_request(request: &Request, model: &str) -> Value {
    let is_text = |part: &Part| matches!(part, Part::Text(_));
    let is_system_text =
        |message: &&Message| matches!(message, Message::System(parts) if parts.iter().all(is_text));
    let leading = request.messages.iter().take_while(is_system_text).count();
    let (system, rest) = request.messages.split_at(leading);
    let mut body = json!({"contents": contents(rest, model)});
    // The parts of the leading system messages. `is_system_text` has selected them, so `else` is never reached.
    let system: Vec<Value> = system
        .iter()
        .flat_map(|message| if let Message::System(parts) = message { parts.as_slice() } else { &[] })
        .map(encode_part)
        .collect();
    if !system.is_empty() {
        put(&mut body, "systemInstruction", json!({"parts": system}));
    }
    if !request.tools.is_empty() {
        let functions: Vec<Value> = request.tools.iter().map(encode_tool).collect();
        put(&mut body, "tools", json!([{"functionDeclarations": functions}]));
    }
    let choice = match &request.choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(json!({"mode": "ANY"})),
        ToolChoice::None => Some(json!({"mode": "NONE"})),
        ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
    };
    if let Some(choice) = choice {
        put(&mut body, "toolConfig", json!({"functionCallingConfig": choice}));
    }
    let config = generation_config(&request.sampling, request.format.as_ref());
    if !config.is_empty() {
        put(&mut body, "generationConfig", config);
    }
    body
}

/// Encodes the parameters of the generation and the demanded form of the text as the field `generationConfig`, which is
/// empty if the request leaves all to the server. The parameters `single_call` and `verbosity` are not sent: the format
/// has no fields for them.
fn generation_config(sampling: &Sampling, format: Option<&OutputFormat>) -> Map<String, Value> {
    let thinking = thinking_config(&sampling.reasoning);
    let schema = match format {
        Some(OutputFormat::Schema(schema)) => Some(described_schema(schema)),
        Some(OutputFormat::JsonObject) | None => None,
    };
    let fields = [
        ("maxOutputTokens", sampling.max_tokens.map(Value::from)),
        ("temperature", sampling.temperature.map(Value::from)),
        ("topP", sampling.top_p.map(Value::from)),
        ("seed", sampling.seed.map(Value::from)),
        ("stopSequences", Some(&sampling.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ("responseMimeType", format.map(|_| Value::from("application/json"))),
        ("responseJsonSchema", schema),
        ("thinkingConfig", Some(thinking).filter(|thinking| !thinking.is_empty()).map(Value::Object)),
    ];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Encodes the parameters of reasoning as the field `thinkingConfig`. Servers accept a level or a budget of tokens, not
/// both: if the request states an effort, a level is sent, otherwise a budget. There is no level without reasoning, so
/// the effort `none` is sent as a budget of 0 tokens. The highest level is `HIGH`, so the efforts above `high` are sent
/// as `HIGH`. The budget -1 lets the model decide.
fn thinking_config(reasoning: &Reasoning) -> Map<String, Value> {
    let Reasoning { effort, thinking, display, summary, .. } = reasoning;
    let level = |level: &str| ("thinkingLevel".to_owned(), Value::from(level));
    let budget = |budget: Value| ("thinkingBudget".to_owned(), budget);
    let amount = match (effort, thinking) {
        (Some(Effort::None), _) | (None, Some(ThinkingMode::Disabled)) => Some(budget(json!(0))),
        (Some(Effort::Minimal), _) => Some(level("MINIMAL")),
        (Some(Effort::Low), _) => Some(level("LOW")),
        (Some(Effort::Medium), _) => Some(level("MEDIUM")),
        (Some(Effort::High | Effort::Xhigh | Effort::Max), _) => Some(level("HIGH")),
        (None, Some(ThinkingMode::Adaptive)) => Some(budget(json!(-1))),
        (None, Some(ThinkingMode::Enabled(tokens))) => Some(budget(json!(tokens))),
        (None, None) => None,
    };
    // Whether the answer is to contain readable reasoning. A client of the Responses API asks for it by a summary.
    let is_shown = display.map(|display| display == ThinkingDisplay::Summarized);
    let is_shown = is_shown.or_else(|| summary.map(|_| true));
    let shown = is_shown.map(|is_shown| ("includeThoughts".to_owned(), Value::from(is_shown)));
    amount.into_iter().chain(shown).collect()
}

/// Encodes `messages`, which are all messages but those in the field `systemInstruction`, as contents for the model
/// with the name `model`. Consecutive tool outputs form one content. A system message is sent as a content of the user.
/// Reasoning is sent only to the model that wrote it.
fn contents(messages: &[Message], model: &str) -> Vec<Value> {
    let mut encoded: Vec<Value> = Vec::new();
    // The parts of the tool outputs since the last message of another kind. They become one content before the next
    // such message.
    let mut outputs: Vec<Value> = Vec::new();
    // The calls so far, from which an output gets the name of its tool.
    let mut calls_so_far: Vec<&ToolCall> = Vec::new();
    for message in messages {
        if !matches!(message, Message::Tool { .. }) && !outputs.is_empty() {
            encoded.push(json!({"role": "user", "parts": std::mem::take(&mut outputs)}));
        }
        match message {
            Message::System(parts) | Message::User(parts) => {
                encoded.push(json!({"role": "user", "parts": encode_parts(parts)}));
            }
            Message::Assistant { text, calls, thoughts } => {
                encoded.push(json!({"role": "model", "parts": model_parts(text, calls, thoughts, model)}));
                calls_so_far.extend(calls);
            }
            Message::Tool { call_id, content, is_error } => {
                // The format requires the name of the tool, which the call has. If several calls have this id, the
                // output belongs to the last one; if none has it, the name `unknown` is sent.
                let call = calls_so_far.iter().rev().find(|call| call.id == *call_id);
                let name = call.map_or("unknown", |call| call.name.as_str());
                let response = output_object(content, *is_error == Some(true));
                let output = json!({"id": call_id, "name": name, "response": response});
                outputs.push(json!({"functionResponse": output}));
                // Images and PDFs of the output are sent as parts after it.
                let is_file = |part: &&Part| !matches!(part, Part::Text(_));
                outputs.extend(content.iter().filter(is_file).map(encode_part));
            }
        }
    }
    if !outputs.is_empty() {
        encoded.push(json!({"role": "user", "parts": outputs}));
    }
    encoded
}

/// Encodes the parts of a message of the model, at least one: the reasoning that `model` can read, the text and the
/// calls.
fn model_parts(text: &str, calls: &[ToolCall], thoughts: &[ReasoningPart], model: &str) -> Vec<Value> {
    let readable: Vec<&ReasoningPart> =
        thoughts.iter().filter(|thought| thought.is_readable_by(model)).collect();
    let mut parts: Vec<Value> = readable.iter().filter_map(|thought| signed_thought(thought)).collect();
    parts.extend(text_part(text, &readable));
    parts.extend(calls.iter().enumerate().map(|(index, call)| call_part(call, index, &readable)));
    // A model that requires a signature on the first call receives a placeholder if there is none.
    let first_call = parts.iter_mut().find(|part| part.get("functionCall").is_some());
    if let Some(first_call) = first_call.filter(|_| requires_signatures(model))
        && first_call.get("thoughtSignature").is_none()
    {
        put(first_call, "thoughtSignature", NO_SIGNATURE);
    }
    // Servers accept no content without parts.
    if parts.is_empty() {
        parts.push(json!({"text": ""}));
    }
    parts
}

/// Encodes a part of the reasoning as the server sent it, with its signature. `None` if the part has no signature of
/// its own: a part without a seal cannot be sent back, and the signature of a text or a call is sent with the text or
/// call.
fn signed_thought(thought: &ReasoningPart) -> Option<Value> {
    let Seal::Signature(signature) = &thought.seal else { return None };
    Some(json!({"text": thought.texts.concat(), "thought": true, "thoughtSignature": signature}))
}

/// Returns the signature that the model's server gave to the call with the index `of_call` in its message or, if
/// `of_call` is `None`, to the text of the message. `None` if the server gave none. `thoughts` are the parts of the
/// reasoning of the message, in which such signatures are recorded ([`Seal::Part`]).
fn signature<'t>(thoughts: &[&'t ReasoningPart], of_call: Option<usize>) -> Option<&'t str> {
    thoughts.iter().find_map(|thought| match &thought.seal {
        Seal::Part { signature, call } if *call == of_call => Some(signature.as_str()),
        _ => None,
    })
}

/// Encodes the text of a message of the model, with the signature of the text if the model's server gave one; `None` if
/// there is neither a text nor a signature. `thoughts` are the parts of the reasoning, which contain the signatures.
pub(super) fn text_part(text: &str, thoughts: &[&ReasoningPart]) -> Option<Value> {
    let signature = signature(thoughts, None);
    if text.is_empty() && signature.is_none() {
        return None;
    }
    let mut part = json!({"text": text});
    if let Some(signature) = signature {
        put(&mut part, "thoughtSignature", signature);
    }
    Some(part)
}

/// Encodes a call, with its signature if the model's server gave one. `index` is the index of the call in its message.
/// `thoughts` are the parts of the reasoning of the message, which contain the signatures.
pub(super) fn call_part(call: &ToolCall, index: usize, thoughts: &[&ReasoningPart]) -> Value {
    let arguments = arguments_object(&call.arguments);
    let mut part = json!({"functionCall": {"id": call.id, "name": call.name, "args": arguments}});
    if let Some(signature) = signature(thoughts, Some(index)) {
        put(&mut part, "thoughtSignature", signature);
    }
    part
}

/// Encodes the texts of a tool's output as an object: with the field `error` if the tool failed (`is_error`), otherwise
/// with the field `output`, or empty if there are no texts. [`contents`] encodes the images and PDFs of the output.
fn output_object(content: &[Part], is_error: bool) -> Value {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
        .collect();
    match (texts.is_empty(), is_error) {
        (true, false) => json!({}),
        (_, false) => json!({"output": texts.join("\n")}),
        (_, true) => json!({"error": texts.join("\n")}),
    }
}

/// Encodes the parts of a message of the user. A message without parts gets an empty text, since servers accept no
/// content without parts.
fn encode_parts(parts: &[Part]) -> Vec<Value> {
    if parts.is_empty() { vec![json!({"text": ""})] } else { parts.iter().map(encode_part).collect() }
}

/// Encodes a text, an image or a PDF. A [`Part`] with a PDF is image data with the media type `application/pdf`.
fn encode_part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::ImageUrl(url) => json!({"fileData": {"fileUri": url}}),
        Part::ImageData { media_type, data } => json!({"inlineData": {"mimeType": media_type, "data": data}}),
    }
}

/// Encodes a tool; an empty description is not sent.
fn encode_tool(tool: &ToolSpec) -> Value {
    let mut body = json!({"name": tool.name});
    if !tool.description.is_empty() {
        put(&mut body, "description", tool.description.as_str());
    }
    put(&mut body, "parametersJsonSchema", (*tool.parameters).clone());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(messages: Vec<Message>, model: &str) -> Value {
        encode_request(&Request { messages: messages.into(), ..Request::default() }, model)
    }

    #[test]
    fn system_messages() {
        let part = |text: &str| vec![Part::from(text)];
        let check = |messages: Vec<Message>, expected: Value| {
            let body = encoded(messages, "m");
            assert_eq!(json!([body.get("systemInstruction"), body.get("contents")]), expected);
        };
        let (a, b) = (Message::System(part("a")), Message::System(part("b")));
        let both = json!({"parts": [{"text": "a"}, {"text": "b"}]});
        check(vec![a.clone(), b.clone()], json!([both, []]));
        let user = |text: &str| json!({"role": "user", "parts": [{"text": text}]});
        let said = Message::User(part("u"));
        check(vec![a, said, b], json!([{"parts": [{"text": "a"}]}, [user("u"), user("b")]]));
    }

    /// The first call of a message has the signature that the server gave it, or says that there is none.
    #[test]
    fn first_calls_have_signatures() {
        let call =
            |id: &str| ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let check = |model: &str, author: &str, expected: [Value; 2]| {
            let seal = Seal::Part { signature: "s".to_owned(), call: Some(0) };
            let thoughts =
                vec![ReasoningPart { seal, author: author.to_owned(), ..ReasoningPart::default() }];
            let calls = vec![call("a"), call("b")];
            let body = encoded(vec![Message::Assistant { text: "t".to_owned(), calls, thoughts }], model);
            let found = [1, 2].map(|part| body["contents"][0]["parts"][part]["thoughtSignature"].clone());
            assert_eq!(found, expected, "{model} {author}: {body}");
        };
        let none = Value::Null;
        for model in ["gemini-3-pro", "gemini-2.5-flash", "m"] {
            check(model, model, [json!("s"), none.clone()]);
        }
        for model in ["gemini-3-pro", "models/gemini-flash-latest"] {
            check(model, "other", [json!(NO_SIGNATURE), none.clone()]);
        }
        for model in ["gemini-2.5-flash", "m"] {
            check(model, "other", [none.clone(), none.clone()]);
        }
    }
}
