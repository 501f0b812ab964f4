//! Writes a chat, and the message that follows it, as the plain text that a local model reads: [`PlainChat`].
//!
//! [`AttentionReader`](super::AttentionReader) reads the chat of a conversation in this form. The text that trains the
//! network of a screener must have the same form, since the features of a region depend on the words around it and on
//! where the scored text begins. So `flowgate-bench` writes its training cases with the same functions.
//!
//! Each message begins on a line of its own, with `System: `, `User: `, `Answer: ` or `[tool]`. A call is a line such
//! as `Call: pay("amount": 12, "to": "Ann")`.

use std::ops::Range;

use flowgate_lm::chat::{Completion, Message, Part, Request};
use serde_json::Value;

use super::super::{TaggedChat, closing_tag, opening_tag};

/// What precedes a call, without the space after it.
const CALL: &str = "Call:";
/// What precedes a text of the model, without the space after it.
const ANSWER: &str = "Answer:";

/// A chat as plain text, which models without a chat template read as well, with the places of its tagged regions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainChat {
    text: String,
    regions: Vec<(String, Range<usize>)>,
}

/// A message as the continuation of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftText {
    /// The chat, and `Call:` or `Answer:`. Every message has one of the two, so it is not scored.
    pub prompt: String,
    /// The message after that: its calls, or its text if it has no call.
    pub continuation: String,
}

impl PlainChat {
    /// Removes the tags from a chat, and returns the chat in two forms: as the request that the writer of a preliminary
    /// message receives, and as plain text with the places of the regions.
    pub fn read(tagged: TaggedChat) -> (Request, Self) {
        let TaggedChat { mut request, nonce, names } = tagged;
        let mut plain = Self::default();
        for message in request.messages.edit() {
            match message {
                Message::System(parts) => plain.append_message("System: ", parts, &nonce, &names),
                Message::User(parts) => plain.append_message("User: ", parts, &nonce, &names),
                Message::Tool { content, .. } => plain.append_message("[tool]\n", content, &nonce, &names),
                Message::Assistant { text, calls, .. } => {
                    // A message with calls usually has no text.
                    if calls.is_empty() || !text.is_empty() {
                        plain.text.push_str(&format!("{ANSWER} "));
                        *text = plain.append(text, &nonce, &names);
                        plain.text.push('\n');
                    }
                    for call in calls {
                        plain.text.push_str(&format!("{CALL} {}(", call.name));
                        plain.append(&written_arguments(&call.arguments), &nonce, &names);
                        plain.text.push_str(")\n");
                        // The writer gets the arguments as the model spelled them. Only their tags are removed, with a
                        // plain text that is dropped.
                        call.arguments = Self::default().append(&call.arguments, &nonce, &names);
                    }
                }
            }
        }
        (request, plain)
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name of each tagged region with the range of its bytes in the text, in the order of the text.
    pub fn regions(&self) -> &[(String, Range<usize>)] {
        &self.regions
    }

    /// Returns the text outside the tagged regions, which is always visible. A line break separates its parts.
    pub fn untagged(&self) -> String {
        let (mut text, mut end) = (String::new(), 0);
        for (_, range) in &self.regions {
            text.push_str(self.text.get(end..range.start).unwrap_or_default());
            text.push('\n');
            end = range.end;
        }
        text.push_str(self.text.get(end..).unwrap_or_default());
        text
    }

    /// Returns the chat with `draft` after it, divided where the scored text of the draft begins.
    pub fn with_draft(&self, draft: &Completion) -> DraftText {
        let (begin, continuation) = if draft.calls.is_empty() {
            (ANSWER, format!(" {}", draft.text))
        } else {
            let calls = draft.calls.iter();
            let written = calls.map(|call| format!(" {}({})", call.name, written_arguments(&call.arguments)));
            (CALL, written.collect::<Vec<_>>().join(&format!("\n{CALL}")))
        };
        DraftText { prompt: format!("{}{begin}", self.text), continuation }
    }

    /// Appends a message to the plain text, after the words `begin`, and removes the tags from its `parts`. `nonce` and
    /// `names` are those of the tags.
    fn append_message(&mut self, begin: &str, parts: &mut [Part], nonce: &str, names: &[String]) {
        self.text.push_str(begin);
        for part in parts {
            // The local model reads only text, so images are left out of it.
            if let Part::Text(text) = part {
                *text = self.append(text, nonce, names);
            }
        }
        self.text.push('\n');
    }

    /// Appends a text without its tags to the plain text, records where its regions are, and returns what was appended.
    /// `nonce` and `names` are those of the tags.
    fn append(&mut self, text: &str, nonce: &str, names: &[String]) -> String {
        let start = self.text.len();
        let mut rest = text;
        // The tags of regions are in the order of the text. A name of `names` that is in no tag has no region here.
        while let Some((name, before, after)) = next_tag(rest, nonce, names) {
            self.text.push_str(before);
            // Without a closing tag, the region extends to the end of the text.
            let (content, after) = after.split_once(&closing_tag(nonce, name)).unwrap_or((after, ""));
            let begin = self.text.len();
            self.text.push_str(content);
            self.regions.push((name.to_owned(), begin..self.text.len()));
            rest = after;
        }
        self.text.push_str(rest);
        self.text.get(start..).unwrap_or_default().to_owned()
    }
}

/// Returns the first opening tag of a region in `names` in a text: the name, the text before the tag, and the text
/// after it. `None` if the text has no such tag.
fn next_tag<'t>(text: &'t str, nonce: &str, names: &'t [String]) -> Option<(&'t str, &'t str, &'t str)> {
    let found = names.iter().filter_map(|name| {
        let (before, after) = text.split_once(&opening_tag(nonce, name))?;
        Some((name.as_str(), before, after))
    });
    found.min_by_key(|(_, before, _)| before.len())
}

/// Returns the arguments of a call as they are written between its parentheses. Arguments that are not a JSON object
/// are written as the model spelled them.
fn written_arguments(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(map)) => {
            let named = map.iter().map(|(name, value)| format!("\"{name}\": {value}"));
            named.collect::<Vec<_>>().join(", ")
        }
        _ => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::ToolCall;

    use super::*;

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    fn text(text: &str) -> Vec<Part> {
        vec![Part::Text(text.to_owned())]
    }

    /// A chat with every kind of message, and a region in an argument and in two outputs.
    fn chat() -> TaggedChat {
        let region = |name: &str, text: &str| format!("<<REGION_7f_{name}>>{text}<</REGION_7f_{name}>>");
        let mut request = Request::default();
        request.messages.push(Message::System(text("Be brief.")));
        request.messages.push(Message::User(text("Pay the bill.")));
        let calls = vec![call("read", &format!("{{\"path\":\"{}\",\"deep\":true}}", region("h1", "b.txt")))];
        request.messages.push(Message::Assistant { text: String::new(), calls, thoughts: Vec::new() });
        let content = text(&format!("{} and {}", region("h2", "Amount 77"), region("h3", "IBAN 99")));
        request.messages.push(Message::Tool { call_id: "1".to_owned(), content, is_error: None });
        let calls = vec![call("list", "{}"), call("list", "not JSON")];
        request.messages.push(Message::Assistant { text: "I look.".to_owned(), calls, thoughts: Vec::new() });
        request.messages.push(Message::Assistant {
            text: "Done.".to_owned(),
            calls: Vec::new(),
            thoughts: Vec::new(),
        });
        let names = ["h1", "h2", "h3", "h4"].map(str::to_owned).to_vec();
        TaggedChat { request, nonce: "7f".to_owned(), names }
    }

    #[test]
    fn a_chat_is_plain_text_with_its_regions() {
        let (request, plain) = PlainChat::read(chat());
        let expected = "System: Be brief.\nUser: Pay the bill.\nCall: read(\"path\": \"b.txt\", \"deep\": true)\n\
            [tool]\nAmount 77 and IBAN 99\nAnswer: I look.\nCall: list()\nCall: list(not JSON)\nAnswer: Done.\n";
        assert_eq!(plain.text(), expected);
        let text = |range: &Range<usize>| plain.text.get(range.clone()).unwrap();
        let regions: Vec<(&str, &str)> =
            plain.regions().iter().map(|(name, range)| (name.as_str(), text(range))).collect();
        assert_eq!(regions, [("h1", "b.txt"), ("h2", "Amount 77"), ("h3", "IBAN 99")]);
        assert!(!format!("{request:?}").contains("REGION"));
        let Some(Message::Assistant { calls, .. }) = request.messages.get(2) else { panic!() };
        assert_eq!(calls[0].arguments, r#"{"path":"b.txt","deep":true}"#);
        let visible = plain.untagged();
        assert!(visible.contains("Pay the bill.") && !visible.contains("77"), "{visible}");
    }

    #[test]
    fn a_draft_continues_the_chat() {
        let (_, plain) = PlainChat::read(chat());
        let check = |text: &str, calls: Vec<ToolCall>, begin: &str, continuation: &str| {
            let draft = Completion { text: text.to_owned(), calls, ..Completion::default() };
            let written = plain.with_draft(&draft);
            assert_eq!(written.prompt.strip_prefix(plain.text()), Some(begin), "{draft:?}");
            assert_eq!(written.continuation, continuation);
        };
        check("It is 77.", Vec::new(), "Answer:", " It is 77.");
        let pay = call("pay", r#"{"to": "Ann \"A\" Lee", "amount": 77}"#);
        let paid = r#" pay("to": "Ann \"A\" Lee", "amount": 77)"#;
        check("", vec![pay.clone()], "Call:", paid);
        check("I pay.", vec![pay, call("list", "[1]")], "Call:", &format!("{paid}\nCall: list([1])"));
    }
}
