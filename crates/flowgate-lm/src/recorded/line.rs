//! Encodes a recorded answer as one line of JSON ([`write()`]) and decodes such a line ([`read`]). Also computes the
//! [`key`] of a request, by which `recorded.rs` finds the answer to an equal request again. `recorded.rs` calls this
//! module, and reads and writes the file itself.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::chat::{Completion, Message, OutputFormat, Part, Request, Stop, ToolCall, ToolChoice, Usage};

/// Returns the key of a request to the model with the name `model`: the SHA-256 of the name and the request, in
/// hexadecimal. The key does not depend on the order of the fields in the schemas of the request.
pub(super) fn key(model: &str, request: &Request) -> String {
    let text = sort_keys(&json!([model, canonical(request)])).to_string();
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the parts of a request on which its key depends, apart from the model's name: JSON in which the keys of all
/// objects are sorted.
pub(super) fn text(request: &Request) -> String {
    sort_keys(&canonical(request)).to_string()
}

/// Returns the parts of a request on which the key of its recorded answer depends, as JSON. The reasoning of earlier
/// messages (which is not recorded) and the parameters `reasoning`, `verbosity` and `single_call` are left out:
/// requests that differ only in these parts get the same recorded answer.
fn canonical(request: &Request) -> Value {
    let messages: Vec<Value> = request.messages.iter().map(message).collect();
    let tools = request.tools.iter().map(|tool| json!([tool.name, tool.description, tool.parameters]));
    let choice = match &request.choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::Any => json!("any"),
        ToolChoice::None => json!("none"),
        // A list with the name differs from the other choices even if a tool is called `auto`.
        ToolChoice::Tool(name) => json!([name]),
    };
    let sampling = &request.sampling;
    let mut canonical = json!({
        "messages": messages,
        "tools": tools.collect::<Vec<_>>(),
        "choice": choice,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": sampling.stop,
    });
    // A request that demands no form of the text has no such field, so that answers which were recorded before the
    // field existed are still found.
    if let (Some(format), Some(fields)) = (&request.format, canonical.as_object_mut()) {
        fields.insert("format".to_owned(), output_format(format));
    }
    canonical
}

/// Returns the form that a request demands of the text, as JSON that is hashed for the key.
fn output_format(format: &OutputFormat) -> Value {
    match format {
        OutputFormat::JsonObject => json!("json"),
        OutputFormat::Schema(schema) => {
            json!([schema.name, schema.description, schema.schema, schema.strict])
        }
    }
}

/// Returns a message as JSON that is hashed for the key. Leaves out the reasoning of the message, which is not
/// recorded. A tool output that does not say whether the tool failed counts as a success.
fn message(message: &Message) -> Value {
    match message {
        Message::System(content) => json!({"system": parts(content)}),
        Message::User(content) => json!({"user": parts(content)}),
        Message::Assistant { text, calls, .. } => json!({"assistant": text, "calls": calls_json(calls)}),
        Message::Tool { call_id, content, is_error } => {
            json!({"tool": call_id, "content": parts(content), "is_error": *is_error == Some(true)})
        }
    }
}

/// Returns the parts of a message as JSON that is hashed for the key. An image counts by its URL or its data, not by
/// what it shows.
fn parts(parts: &[Part]) -> Value {
    let part = |part: &Part| match part {
        Part::Text(text) => json!({"text": text}),
        Part::ImageUrl(url) => json!({"image": url}),
        Part::ImageData { media_type, data } => json!({"image": [media_type, data]}),
    };
    parts.iter().map(part).collect()
}

/// Returns calls in the form that is hashed for a key and written into a line.
fn calls_json(calls: &[ToolCall]) -> Value {
    calls.iter().map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments})).collect()
}

/// Returns the value with the keys of all objects sorted: the key of a request must not depend on the order in which a
/// client writes the fields of a schema. The recursion is bounded, because the JSON parser limits the depth of schemas.
fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sort_keys).collect(),
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            entries
                .into_iter()
                .map(|(key, value)| (key.clone(), sort_keys(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

/// The reasons why a model stopped, with their names in a line.
const STOPS: [(Stop, &str); 4] =
    [(Stop::End, "end"), (Stop::Calls, "calls"), (Stop::Length, "length"), (Stop::Refused, "refused")];

/// Encodes an answer, without its reasoning, as a line of the file, with the line break. `key` is the key of the
/// request. `model`, the name of the model, is written only for people who read the file: [`read`] ignores it.
pub(super) fn write(key: &str, model: &str, completion: &Completion) -> String {
    let stop = STOPS.iter().find(|(stop, _)| *stop == completion.stop).map(|(_, name)| *name);
    let answer = json!({
        "text": completion.text,
        "calls": calls_json(&completion.calls),
        "stop": stop,
        "input": completion.usage.input,
        "output": completion.usage.output,
    });
    format!("{}\n", json!({"key": key, "model": model, "answer": answer}))
}

/// Decodes the key and the answer of a line. The error describes the problem, for `AnswerFileError::Damaged`.
pub(super) fn read(line: &str) -> Result<(String, Completion), &'static str> {
    let value: Value = serde_json::from_str(line).map_err(|_| "the line is not valid JSON")?;
    let key = value.get("key").and_then(Value::as_str).ok_or("the line has no string in the field `key`")?;
    let answer = value
        .get("answer")
        .and_then(completion)
        .ok_or("the field `answer` of the line is missing or is not an answer of a model")?;
    Ok((key.to_owned(), answer))
}

/// Decodes the field `answer` of a line, which [`write()`] encoded; `None` if a field is missing or has an unexpected
/// value. The answer has no reasoning and no number of cached tokens, since these are not recorded.
fn completion(answer: &Value) -> Option<Completion> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let count = |key: &str| answer.get(key).and_then(Value::as_u64);
    let call = |call: &Value| {
        Some(ToolCall {
            id: text(call, "id")?,
            name: text(call, "name")?,
            arguments: text(call, "arguments")?,
        })
    };
    let calls = answer.get("calls")?.as_array()?.iter().map(call);
    let stop = answer.get("stop")?.as_str()?;
    Some(Completion {
        text: text(answer, "text")?,
        calls: calls.collect::<Option<_>>()?,
        stop: STOPS.iter().find(|(_, name)| *name == stop).map(|(stop, _)| *stop)?,
        usage: Usage { input: count("input")?, output: count("output")?, cached: 0 },
        thoughts: Vec::new(),
        citations: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::{OutputSchema, Sampling, ToolSpec};

    proptest! {
        #[test]
        fn what_is_written_is_read(
            texts in prop::collection::vec("\\PC{0,20}|[\r\n\"\\\\]{0,5}", 5),
            stop in 0_usize..4,
            input in any::<u64>(),
        ) {
            let [text, id, name, arguments, key] = <[String; 5]>::try_from(texts).unwrap();
            let stop = STOPS[stop].0;
            let usage = Usage { input, output: 1, cached: 0 };
            let completion = Completion { text, calls: vec![ToolCall { id, name, arguments }], stop, usage, ..Completion::default() };
            let line = write(&key, "m", &completion);
            prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            prop_assert_eq!(read(line.trim_end()), Ok((key, completion)));
        }

        #[test]
        fn no_line_panics(line in "\\PC{0,40}|\\{\"key\":\"k\",\"answer\":[\\[\\]{}\":,a-z0-9]{0,40}\\}") {
            let _ = read(&line);
        }
    }

    #[test]
    fn keys_tell_requests_apart() {
        let tool = |parameters: &str| ToolSpec {
            name: "f".to_owned(),
            description: String::new(),
            parameters: serde_json::from_str::<Value>(parameters).unwrap().into(),
        };
        let with = |tool| Request { tools: vec![tool], ..Request::default() };
        let said = |message| Request { messages: vec![message].into(), ..Request::default() };
        let one = || vec![Part::from("a")];
        let requests = [
            Request::default(),
            with(tool(r#"{"a":1,"b":2}"#)),
            with(tool(r#"{"a":1}"#)),
            said(Message::User(one())),
            said(Message::System(one())),
            said(Message::Assistant { text: "a".to_owned(), calls: Vec::new(), thoughts: Vec::new() }),
            said(Message::Tool { call_id: "a".to_owned(), content: one(), is_error: Some(false) }),
            said(Message::Tool { call_id: "a".to_owned(), content: one(), is_error: Some(true) }),
            said(Message::User(vec![Part::ImageUrl("a".to_owned())])),
            Request { choice: ToolChoice::Any, ..Request::default() },
            Request { choice: ToolChoice::Tool("any".to_owned()), ..Request::default() },
            Request { sampling: Sampling { seed: Some(1), ..Sampling::default() }, ..Request::default() },
            Request { format: Some(OutputFormat::JsonObject), ..Request::default() },
            Request {
                format: Some(OutputFormat::Schema(OutputSchema {
                    name: "n".to_owned(),
                    description: String::new(),
                    schema: json!({"type": "object"}).into(),
                    strict: None,
                })),
                ..Request::default()
            },
        ];
        let mut keys: Vec<String> = requests.iter().map(|request| key("m", request)).collect();
        keys.push(key("n", &Request::default()));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let other_order = with(tool(r#"{"b":2,"a":1}"#));
        assert_eq!(key("m", &other_order), key("m", requests.get(1).unwrap()));
        // The texts without the model tell the same requests apart.
        let mut texts: Vec<String> = requests.iter().map(text).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), requests.len());
        assert_eq!(text(&other_order), text(requests.get(1).unwrap()));
        // Keys must stay stable, or existing files become useless.
        assert_eq!(
            key("m", &Request::default()),
            "ba8ab54ac68868dd75da787930249297f45603a5eba7ea9c78982d508b28489b"
        );
    }
}
