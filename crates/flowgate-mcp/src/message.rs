//! Parses and serializes JSON-RPC messages. Parsing is strict: a text that two parsers could read differently is
//! rejected.
//!
//! The proxy's handlers for messages of the client (`client`) and of the server (`server`) parse every message with
//! [`read`]. Messages that the proxy generates itself are serialized with [`request`], [`notification`], [`result`] and
//! [`error`].

use flowgate::json::{self, Numbers};
use serde_json::{Map, Value, json};

/// The maximum length of a serialized ID, in bytes.
const MAX_ID: usize = 256;

/// A request ID, as its sender serialized it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestId(String);

impl RequestId {
    /// Returns the ID in a value, as its JSON text; `None` if the value is neither a string nor an integer, or if its
    /// text is longer than `MAX_ID` bytes.
    pub(super) fn from_value(value: &Value) -> Option<Self> {
        let is_id = value.is_string() || value.is_i64() || value.is_u64();
        let printed = value.to_string();
        (is_id && printed.len() <= MAX_ID).then_some(Self(printed))
    }

    /// Returns a generated ID, `flowgate-WORD-COUNT`, or `flowgate-COUNT` for an empty word. The word distinguishes
    /// the IDs of several proxies, and the number those of one.
    pub(super) fn generated(word: &str, count: u64) -> Self {
        Self::from_name(&format!("{GENERATED_PREFIX}{word}{}{count}", if word.is_empty() { "" } else { "-" }))
    }

    /// Returns the ID that consists of this text, a JSON string.
    pub(super) fn from_name(name: &str) -> Self {
        Self(Value::from(name).to_string())
    }

    /// Returns whether the ID has the form of a generated one.
    pub(super) fn is_generated(&self) -> bool {
        // The ID is kept as its JSON text, so a string begins with a quotation mark.
        self.0.starts_with('"') && self.0.get(1..).is_some_and(|rest| rest.starts_with(GENERATED_PREFIX))
    }

    /// Returns the ID as a JSON value.
    pub(super) fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// The beginning of every generated ID.
const GENERATED_PREFIX: &str = "flowgate-";

/// A parsed message.
#[derive(Debug, PartialEq)]
pub(super) enum McpMessage {
    /// A request.
    Request { id: RequestId, method: String, params: Map<String, Value> },
    /// A notification.
    Notice { method: String, params: Map<String, Value> },
    /// An answer to a request: the result, or the error.
    Answer { id: RequestId, answer: Result<Value, Value> },
}

/// A rejected message.
#[derive(Debug, PartialEq)]
pub(super) struct MessageError {
    /// The reason, and advice.
    pub(super) why: String,
    /// The IDs that a lenient parser would find in the message.
    pub(super) ids: Vec<RequestId>,
}

/// Parses a message strictly. Also returns its text for forwarding, as one line. `numbers` says whether numbers that
/// parsers round differently are refused.
///
/// # Errors
/// If two parsers could read the message differently, or if it is not a message of JSON-RPC.
pub(super) fn read(bytes: &[u8], numbers: Numbers) -> Result<(McpMessage, String), MessageError> {
    let refuse = |why: &str| MessageError { why: why.to_owned(), ids: find_ids(bytes) };
    let text = std::str::from_utf8(bytes)
        .map_err(|_| refuse("the message is not valid UTF-8; encode it in UTF-8"))?
        .trim();
    let value = json::parse(text, numbers).map_err(|error| {
        refuse(&format!(
            "the message is not JSON that all parsers read alike: {error}; send valid JSON with each key once \
             and without integers beyond 9007199254740991"
        ))
    })?;
    let object = match value {
        Value::Object(object) => object,
        Value::Array(_) => return Err(refuse("batches are not supported; send one message at a time")),
        _ => return Err(refuse("the message is not a JSON object; send a message of JSON-RPC")),
    };
    let message = classify(&object).map_err(refuse)?;
    // Some readers treat a lone carriage return as the end of a line.
    let line = match text.contains(['\r', '\n']) {
        true => Value::Object(object).to_string(),
        false => text.to_owned(),
    };
    Ok((message, line))
}

/// Determines which kind of message an object is: a request (a method and an id), a notification (a method) or an
/// answer (an id, and a result or an error).
///
/// # Errors
/// With the reason, if the object lacks a field of its kind, or has a field that its kind does not have.
fn classify(object: &Map<String, Value>) -> Result<McpMessage, &'static str> {
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err("the `jsonrpc` of the message is not `2.0`; write `\"jsonrpc\": \"2.0\"`");
    }
    let fields = ["jsonrpc", "id", "method", "params", "result", "error"];
    if !object.keys().all(|key| fields.contains(&key.as_str())) {
        return Err(
            "the message has a field other than `jsonrpc`, `id`, `method`, `params`, `result` and `error`; leave it out",
        );
    }
    let id = object.get("id").map(|id| {
        RequestId::from_value(id).ok_or(
            "the `id` of the message is neither an integer nor a string of at most 254 bytes; use such an `id`",
        )
    });
    let id = id.transpose()?;
    let method = object
        .get("method")
        .map(|name| {
            name.as_str().ok_or(
                "the `method` of the message is not a string; write the name of the method as a string",
            )
        })
        .transpose()?;
    let params = match object.get("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err("the `params` of the message are not a JSON object; send them as one"),
    };
    let (result, error) = (object.get("result"), object.get("error"));
    match (method, id, result, error) {
        (Some(method), Some(id), None, None) => {
            Ok(McpMessage::Request { id, method: method.to_owned(), params })
        }
        (Some(method), None, None, None) => Ok(McpMessage::Notice { method: method.to_owned(), params }),
        (None, Some(id), Some(result), None) if !object.contains_key("params") => {
            Ok(McpMessage::Answer { id, answer: Ok(result.clone()) })
        }
        (None, Some(id), None, Some(error)) if !object.contains_key("params") => {
            Ok(McpMessage::Answer { id, answer: Err(error.clone()) })
        }
        _ => Err(
            "the message is neither a request, a notification nor a response of JSON-RPC; write either `method`, or \
            `id` with one of `result` and `error`",
        ),
    }
}

/// Returns at most 100 IDs from a text that cannot be parsed strictly: the text of one message, or of a list of
/// messages. The caller ends the requests with these IDs, which would otherwise wait forever, and uses the IDs for
/// nothing else. In a text that is not JSON, the ID is guessed: a wrong guess ends another request, and the request
/// that the message belongs to keeps waiting.
pub(super) fn find_ids(bytes: &[u8]) -> Vec<RequestId> {
    let id = |value: &Value| value.get("id").and_then(RequestId::from_value);
    match serde_json::from_slice(bytes) {
        Ok(Value::Array(items)) => items.iter().filter_map(id).take(100).collect(),
        Ok(value) => id(&value).into_iter().collect(),
        // The text is not JSON, or only its beginning was read. The first `id` near its beginning is most likely that
        // of the message.
        Err(_) => {
            let head = String::from_utf8_lossy(bytes.get(..1024).unwrap_or(bytes)).into_owned();
            // JSON allows white space before and after the colon. A string `"id"` without a colon is not a key.
            let mut keys = head.match_indices("\"id\"").filter_map(|(at, key)| {
                head.get(at + key.len()..)?.trim_start().strip_prefix(':').map(str::trim_start)
            });
            let rest = keys.next().unwrap_or_default();
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            values.next().and_then(Result::ok).as_ref().and_then(RequestId::from_value).into_iter().collect()
        }
    }
}

/// Serializes a request.
pub(super) fn request(id: &RequestId, method: &str, params: &Map<String, Value>) -> String {
    json!({"jsonrpc": "2.0", "id": id.value(), "method": method, "params": params}).to_string()
}

/// Serializes a notification. Empty parameters are omitted.
pub(super) fn notification(method: &str, params: &Map<String, Value>) -> String {
    match params.is_empty() {
        true => json!({"jsonrpc": "2.0", "method": method}).to_string(),
        false => json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string(),
    }
}

/// Serializes the answer with this result to the request `id`.
pub(super) fn result(id: &RequestId, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.value(), "result": result}).to_string()
}

/// Serializes an error, the answer to the request `id`; without an ID if the request is unknown. `data` are the
/// details for programs.
pub(super) fn error(id: Option<&RequestId>, code: i64, message: &str, data: Option<&Value>) -> String {
    let mut error = json!({"code": code, "message": message});
    if let (Some(error), Some(data)) = (error.as_object_mut(), data) {
        error.insert("data".to_owned(), data.clone());
    }
    json!({"jsonrpc": "2.0", "id": id.map(RequestId::value), "error": error}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a message, and compares its kind and fields, or the error, with `expected`.
    fn check(text: &str, expected: &str) {
        let shown = match read(text.as_bytes(), Numbers::Exact) {
            Ok((McpMessage::Request { id, method, .. }, line)) => format!("request {} {method} {line}", id.0),
            Ok((McpMessage::Notice { method, .. }, _)) => format!("notice {method}"),
            Ok((McpMessage::Answer { id, answer }, _)) => format!("answer {} {}", id.0, answer.is_ok()),
            Err(error) => format!("{} {:?}", error.why, error.ids),
        };
        assert_eq!(shown, expected, "{text}");
    }

    /// `check` takes the beginning of a message that was cut off, and the IDs that are found in it.
    #[test]
    fn the_id_of_a_truncated_message_is_found_in_every_spelling() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> = find_ids(text.as_bytes()).into_iter().map(|id| id.0).collect();
            assert_eq!(found, expected, "{text}");
        };
        for id in [r#""id":7,"#, r#""id" :7,"#, r#""id": 7,"#, "\"id\"\t:\r\n 7 ,", r#""id":7}"#] {
            check(&format!(r#"{{"jsonrpc":"2.0",{id}"result":{{"te"#), &["7"]);
        }
        check(r#"{"method":"id","id" : "x","params":{"te"#, &["\"x\""]);
        check(r#"{"tags":["id"],"id":3,"result":{"te"#, &["3"]);
        for none in
            [r#"{"jsonrpc":"2.0","result":{"te"#, r#"{"id" "#, r#"{"id" :"#, r#"{"id": nul"#, r#"["id","a"#]
        {
            check(none, &[]);
        }
    }

    #[test]
    fn messages_are_read_in_one_way_or_not_at_all() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        check(&format!(" {ping}\r\n"), &format!("request 1 ping {ping}"));
        check("{\"jsonrpc\":\"2.0\",\r\"id\":1,\"method\":\"ping\"}", &format!("request 1 ping {ping}"));
        check(r#"{"jsonrpc":"2.0","method":"a"}"#, "notice a");
        check(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#, "answer \"x\" true");
        check(r#"{"jsonrpc":"2.0","id":"x","error":{}}"#, "answer \"x\" false");
        check(
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            r#"the message is not JSON that all parsers read alike: duplicate key at line 1 column 28; send valid JSON with each key once and without integers beyond 9007199254740991 [RequestId("2")]"#,
        );
        check(
            &format!("[{ping}]"),
            r#"batches are not supported; send one message at a time [RequestId("1")]"#,
        );
        check("3", "the message is not a JSON object; send a message of JSON-RPC []");
        check(
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            "the `id` of the message is neither an integer nor a string of at most 254 bytes; use such an `id` []",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
            r#"the message is neither a request, a notification nor a response of JSON-RPC; write either `method`, or `id` with one of `result` and `error` [RequestId("1")]"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","note":1}"#,
            r#"the message has a field other than `jsonrpc`, `id`, `method`, `params`, `result` and `error`; leave it out [RequestId("1")]"#,
        );
        check(
            r#"{"id":1,"method":"ping"}"#,
            r#"the `jsonrpc` of the message is not `2.0`; write `"jsonrpc": "2.0"` [RequestId("1")]"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":7,"result":{"te"#,
            r#"the message is not JSON that all parsers read alike: EOF while parsing a string at line 1 column 37; send valid JSON with each key once and without integers beyond 9007199254740991 [RequestId("7")]"#,
        );
    }
}
