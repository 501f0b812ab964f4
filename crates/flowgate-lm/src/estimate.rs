//! Estimates the number of tokens of texts, requests and answers: a quarter of the number of bytes, rounded up. Budgets
//! and usage reports use the estimate if a server does not report the number. The gateway uses it to answer a client
//! that asks how many tokens a request has.

use crate::chat::{Completion, Message, OutputFormat, Part, ReasoningPart, Request, Usage};

/// The average number of bytes of a token, for the estimate.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns the estimated number of tokens of a text of this many bytes, rounded up.
#[must_use]
pub fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(BYTES_PER_TOKEN)
}

/// Returns the estimated token usage of a completed request: the tokens of the request (`input`) and of its answer
/// (`output`).
#[must_use]
pub fn usage(request: &Request, completion: &Completion) -> Usage {
    Usage { input: input(request), output: output(completion), cached: 0 }
}

/// Returns the estimated number of tokens of a request, computed from the size in bytes of its messages, its tools and
/// the schema of its answer.
#[must_use]
pub fn input(request: &Request) -> u64 {
    let messages: usize = request.messages.iter().map(message_bytes).sum();
    let tool = |tool: &crate::chat::ToolSpec| {
        tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
    };
    let schema = match &request.format {
        Some(OutputFormat::Schema(schema)) => schema.text().len(),
        Some(OutputFormat::JsonObject) | None => 0,
    };
    tokens(messages + request.tools.iter().map(tool).sum::<usize>() + schema)
}

/// Returns the estimated number of tokens of a completion, computed from the size of its text, calls and reasoning in
/// bytes.
fn output(completion: &Completion) -> u64 {
    let calls = completion.calls.iter().map(|call| call.name.len() + call.arguments.len());
    let thoughts = completion.thoughts.iter().map(ReasoningPart::size);
    tokens(completion.text.len() + calls.sum::<usize>() + thoughts.sum::<usize>())
}

/// Returns the size of all texts in a message, in bytes. An image counts as the text that is sent for it: its URL, or
/// its data in base64.
fn message_bytes(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::ImageUrl(text) | Part::ImageData { data: text, .. } => text.len(),
    };
    match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => {
            parts.iter().map(part).sum()
        }
        Message::Assistant { text, calls, thoughts } => {
            thoughts.iter().map(ReasoningPart::size).sum::<usize>()
                + text.len()
                + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
    }
}
