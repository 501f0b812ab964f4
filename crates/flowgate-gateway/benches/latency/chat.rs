//! A double of an agent's chat, which the clients of the benchmark send: every request contains the whole chat and one
//! more message of the user.

use std::fmt::Write as _;

use serde_json::Value;

/// The system message, which the configuration pins.
pub(crate) const SYSTEM: &str =
    "You are the assistant of a small firm. Answer shortly, and say what you have done.";
/// The tools on offer; the policy has statements about some of them.
pub(crate) const TOOLS: [&str; 10] = [
    "read_mail",
    "send_mail",
    "search_web",
    "read_page",
    "read_file",
    "write_file",
    "pay",
    "get_balance",
    "list_contacts",
    "post_note",
];

/// A chat of one client, which grows with each message and answer.
#[derive(Debug)]
pub(crate) struct BenchChat {
    /// The name of the chat, which is unique.
    pub(crate) name: String,
    /// The JSON text of the messages so far.
    messages: String,
    /// The number of messages and answers so far, without the initial ones.
    pub(crate) length: usize,
}

impl BenchChat {
    /// Begins a chat with a message of about `context` bytes, which is different in each chat, so that nothing of it is
    /// in a cache.
    pub(crate) fn new(name: String, context: usize) -> Self {
        let mut messages = String::with_capacity(4096 + context);
        let _ = write!(messages, r#"{{"role":"system","content":"{SYSTEM}"}}"#);
        if context > 0 {
            let _ = write!(messages, r#",{{"role":"user","content":""#);
            let end = messages.len() + context;
            let mut line = 0;
            while messages.len() < end {
                line += 1;
                let _ =
                    write!(messages, "Line {line} of {name} says what was agreed for order {}. ", line * 37);
            }
            messages.push_str(r#""},{"role":"assistant","content":"Read."}"#);
        }
        Self { name, messages, length: 0 }
    }

    /// Appends a message of the user; returns the body of the request.
    pub(crate) fn ask(&mut self, stream: bool) -> String {
        let (name, length) = (&self.name, self.length);
        let _ = write!(
            self.messages,
            r#",{{"role":"user","content":"In {name}, point {length}: please note that the delivery for order {} moves to week {}, tell me which of the notes speak of it, and keep the answer short; I read it on the way."}}"#,
            length * 37,
            length % 52,
        );
        self.length += 1;
        format!(
            r#"{{"model":"double","stream":{stream},"messages":[{}],"tools":[{}]}}"#,
            self.messages,
            tools()
        )
    }

    /// Appends the answer to the last request; returns an error if it is not the expected answer.
    pub(crate) fn push_answer(&mut self, stream: bool, body: &[u8]) -> Result<(), String> {
        let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let text = if stream { parse_streamed(body)? } else { parse_whole(body)? };
        if !text.starts_with("Noted as item") || !text.ends_with("with the others.") {
            return Err(format!("the answer is {text:?}"));
        }
        let _ = write!(self.messages, r#",{{"role":"assistant","content":{}}}"#, Value::String(text));
        self.length += 1;
        Ok(())
    }
}

/// Returns the text of an answer that is one JSON object.
fn parse_whole(body: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
    let text = value.pointer("/choices/0/message/content").and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| body.to_owned())
}

/// Returns the text of an answer that is a stream of events, which must be complete.
fn parse_streamed(body: &str) -> Result<String, String> {
    let mut text = String::new();
    for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if data == "[DONE]" {
            return Ok(text);
        }
        let value: Value = serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))?;
        text.push_str(value.pointer("/choices/0/delta/content").and_then(Value::as_str).unwrap_or_default());
    }
    Err(format!("the stream has no end: {body}"))
}

/// Returns the JSON text of the tools on offer, without brackets.
fn tools() -> String {
    let tool = |name: &&str| {
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":"Does {name} for the user.","parameters":{{"type":"object","properties":{{"to":{{"type":"string"}},"body":{{"type":"string"}}}}}}}}}}"#
        )
    };
    TOOLS.iter().map(tool).collect::<Vec<_>>().join(",")
}
