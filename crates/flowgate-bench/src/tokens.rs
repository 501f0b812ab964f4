//! Counts the tokens that a double reads and writes, so that the costs of a run with a double can be compared. It uses
//! the tokenizer of the small model that `flowgate-lm` ships: a byte-level byte-pair encoding with 1,024 tokens.
//!
//! The counted texts are those of a request and of its answer: messages, names and arguments of calls, and the names,
//! descriptions and schemas of the tools on offer. The text that a chat template adds, such as the markers of roles, is
//! not counted. A larger vocabulary needs fewer tokens for the same text, so counts are comparable with each other and
//! not with those of another model. A real model reports its own counts.
//!
//! The doubles of [`agents`](crate::agents), [`games`](crate::games) and [`privacy`](crate::privacy) call [`usage`],
//! [`propagation`](crate::propagation) calls [`count_lines`], and [`cost`](crate::cost) calls [`input_tokens`] and
//! [`count_lines`] for dry runs.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use flowgate_lm::chat::{Completion, Message, OutputFormat, Part, Request, ToolCall, Usage};
use tokenizers::Tokenizer;

/// The name of the tokenizer, for reports.
pub const TOKENIZER: &str = "the tokenizer of the shipped model (1,024 tokens)";

/// The tokenizer; `None` if its file cannot be read, which no input causes.
static SHIPPED: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
    serde_json::from_slice(include_bytes!("../../flowgate-lm/models/small/tokenizer.json")).ok()
});

/// The counts of texts that were counted before, by text. This cache saves time, since a chat sends its messages and
/// its tools again with each request.
static COUNTED: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(|| Mutex::new(HashMap::new()));

/// The maximum number of counts that are kept. When it is reached, all are forgotten.
const MAX_COUNTED: usize = 4096;

/// Returns the number of tokens of a text.
pub fn count(text: &str) -> u64 {
    if text.is_empty() {
        return 0;
    }
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = counted.get(text) {
        return *known;
    }
    let encoding = SHIPPED.as_ref().and_then(|tokenizer| tokenizer.encode_fast(text, false).ok());
    // The vocabulary has every byte, so no text fails; if one did, each of its bytes would count.
    let tokens = encoding.map_or(text.len(), |encoding| encoding.len());
    let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
    // Forgetting all counts bounds the memory; they are computed again when they are needed.
    if counted.len() >= MAX_COUNTED {
        counted.clear();
    }
    counted.insert(text.to_owned(), tokens);
    tokens
}

/// Returns the number of tokens of a text whose lines are counted one by one. Contexts that consist of the same lines
/// in many combinations are counted fast, since each line is tokenized once. Tokens do not span lines here.
pub fn count_lines(text: &str) -> usize {
    let tokens: u64 = text.split_inclusive('\n').map(count).sum();
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

/// Returns the usage of a request and its answer: the number of input tokens, and the number of output tokens.
pub fn usage(request: &Request, completion: &Completion) -> Usage {
    Usage { input: input_tokens(request), output: output_tokens(completion), cached: 0 }
}

/// Returns the number of tokens of a request: of its messages, of its tools, and of the schema of its answer.
pub fn input_tokens(request: &Request) -> u64 {
    let messages: u64 = request.messages.iter().map(message_tokens).sum();
    let tools = request
        .tools
        .iter()
        .map(|tool| count(&tool.name) + count(&tool.description) + count(&tool.parameters.to_string()));
    let schema = match &request.format {
        Some(OutputFormat::Schema(schema)) => count(&schema.text()),
        Some(OutputFormat::JsonObject) | None => 0,
    };
    messages + tools.sum::<u64>() + schema
}

/// Returns the number of tokens of an answer: of its text and its calls.
pub fn output_tokens(completion: &Completion) -> u64 {
    assistant_tokens(&completion.text, &completion.calls)
}

/// Returns the number of tokens of a message. An image has none, since its cost depends on the model.
fn message_tokens(message: &Message) -> u64 {
    let part = |part: &Part| match part {
        Part::Text(text) => count(text),
        Part::ImageUrl(_) | Part::ImageData { .. } => 0,
    };
    match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => {
            parts.iter().map(part).sum()
        }
        Message::Assistant { text, calls, .. } => assistant_tokens(text, calls),
    }
}

/// Returns the number of tokens of a message of the model. Reasoning is not counted, since a server can return it in an
/// encrypted form; no double reasons.
fn assistant_tokens(text: &str, calls: &[ToolCall]) -> u64 {
    let calls = calls.iter().map(|call| count(&call.name) + count(&call.arguments));
    count(text) + calls.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokenizer is real: it joins frequent bytes, and it is not a fixed number of bytes for each token.
    #[test]
    fn texts_have_tokens() {
        let check = |text: &str, expected: u64| assert_eq!(count(text), expected, "{text}");
        check("", 0);
        check("a", 1);
        check("ü", 2);
        check("1234", 4);
        check("a a a", 3);
        assert!(count("The parcel is in transit.") < 25);
        // A count that is remembered is the same.
        assert_eq!(count("The parcel"), count("The parcel"));
    }

    /// Each text of a request counts once, and nothing else: neither the names of fields nor the form in which Rust
    /// prints them.
    #[test]
    fn a_request_has_the_tokens_of_its_texts() {
        let text = |text: &str| vec![Part::Text(text.to_owned())];
        let call =
            ToolCall { id: "ignored-id".to_owned(), name: "send".to_owned(), arguments: "{}".to_owned() };
        let messages = vec![
            Message::System(text("one")),
            Message::User(text("two words")),
            Message::Assistant { text: "three".to_owned(), calls: vec![call.clone()], thoughts: Vec::new() },
            Message::Tool { call_id: "ignored-id".to_owned(), content: text("four"), is_error: None },
        ];
        let request = Request { messages: messages.into(), ..Request::default() };
        let expected: u64 = ["one", "two words", "three", "send", "{}", "four"].map(count).iter().sum();
        assert_eq!(input_tokens(&request), expected);
        let completion = Completion { text: "five".to_owned(), calls: vec![call], ..Completion::default() };
        let found = usage(&request, &completion);
        assert_eq!((found.input, found.output), (expected, count("five") + count("send") + count("{}")));
        assert_eq!(input_tokens(&Request::default()), 0);
    }
}
