//! Reads the questions that screeners ask a model, and builds the answers. The doubles of the suites with guarded
//! conversations call these functions when they answer in place of a screener's model.
//!
//! A screener shows its model the whole chat with the hidden regions as tagged text, and asks which of them the next
//! step needs. As the answer, a double names the regions that it would request with the tool `look` if it had the same
//! chat as the agent's model. Therefore [`screener_chat`] computes that chat from the question. Most doubles do not
//! obey the text of the regions that they are asked about; those that do read it with [`tagged_regions`].

use flowgate_guard::screener::judge::ANSWER;
use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Completion, Message, Part, Request, ToolCall, ToolSpec};
use serde_json::{Value, json};

/// Returns the chat that a screener asks about, as the agent's model would be shown it: with placeholders instead of
/// the tagged regions, and with the tool `look`. Also returns whether the answer must be a call of the tool [`ANSWER`],
/// as for the screener *judge*; otherwise it is text. Returns `None` if the request is not a question of a screener.
pub(crate) fn screener_chat(request: &Request) -> Option<(Request, bool)> {
    let first = text_of(request.messages.first()?);
    // The instructions show the form of a tag, `<<REGION_NONCE_NAME>>`. The nonce is unknown to the authors of texts,
    // so a text cannot close its tag.
    let nonce = first.split_once("<<REGION_")?.1.split_once("_NAME>>")?.0.to_owned();
    let mut request = request.clone();
    let has_answer_tool = request.tools.iter().any(|tool| tool.name == ANSWER);
    // The screener's instructions precede and follow the chat.
    request.messages.edit().pop();
    request.messages.edit().remove(0);
    for message in request.messages.iter_mut() {
        match message {
            Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => {
                for part in parts {
                    if let Part::Text(text) = part {
                        *text = with_placeholders(text, &nonce);
                    }
                }
            }
            Message::Assistant { text, .. } => *text = with_placeholders(text, &nonce),
        }
    }
    request.tools.retain(|tool| tool.name != ANSWER);
    request.tools.push(ToolSpec {
        name: LOOK.to_owned(),
        description: String::new(),
        parameters: Value::Null.into(),
    });
    Some((request, has_answer_tool))
}

/// Returns `text` with a placeholder instead of each region whose tags have the `nonce`. A region without a closing tag
/// extends to the end of the text.
fn with_placeholders(text: &str, nonce: &str) -> String {
    let open = format!("<<REGION_{nonce}_");
    let mut hidden = String::new();
    let mut rest = text;
    while let Some((before, region)) = rest.split_once(&open) {
        let Some((name, content)) = region.split_once(">>") else { break };
        let close = format!("<</REGION_{nonce}_{name}>>");
        hidden.push_str(before);
        hidden.push_str(&format!("[hidden {name}]"));
        rest = content.split_once(&close).map_or("", |(_, after)| after);
    }
    hidden + rest
}

/// Returns the tagged regions of the chat that a screener asks about, as pairs of name and text, in the order of the
/// chat. A double that answers in place of the screener's model chooses the regions of its answer from them. A region
/// without a closing tag is left out. Returns no regions if the request is not a question of a screener.
pub(crate) fn tagged_regions(request: &Request) -> Vec<(String, String)> {
    let first = request.messages.first().map(text_of).unwrap_or_default();
    let nonce = first.split_once("<<REGION_").and_then(|(_, rest)| rest.split_once("_NAME>>"));
    // The nonce is unknown to the authors of texts, so a text cannot imitate a tag.
    let Some((nonce, _)) = nonce else { return Vec::new() };
    let open = format!("<<REGION_{nonce}_");
    let mut regions: Vec<(String, String)> = Vec::new();
    // The first and the last message are the screener's instructions. They show the form of a tag, which names no
    // region: an answer with that name would be invalid.
    let chat = request.messages.len().saturating_sub(1);
    for message in request.messages.iter().take(chat).skip(1) {
        for piece in text_of(message).split(&open).skip(1) {
            let Some((name, content)) = piece.split_once(">>") else { continue };
            let close = format!("<</REGION_{nonce}_{name}>>");
            if let Some((text, _)) = content.split_once(&close) {
                regions.push((name.to_owned(), text.to_owned()));
            }
        }
    }
    regions
}

/// Returns an answer to a screener that names these regions. If the question offers the tool [`ANSWER`]
/// (`has_answer_tool`), as the screener *judge* does, the answer is a call of this tool. Otherwise it is the text
/// `CITED: NAMES`, as the screener *introspection* reads it.
pub(crate) fn screening_answer(regions: &[String], has_answer_tool: bool) -> Completion {
    if has_answer_tool {
        let arguments = json!({"reasoning": "the next step of the task", "regions": regions}).to_string();
        let call = ToolCall { id: "c".to_owned(), name: ANSWER.to_owned(), arguments };
        return Completion { calls: vec![call], ..Completion::default() };
    }
    let cited = if regions.is_empty() { "none".to_owned() } else { regions.join(", ") };
    Completion { text: format!("CITED: {cited}"), ..Completion::default() }
}

/// Returns the text of a message: its text parts, one on each line, without images and calls.
pub(crate) fn text_of(message: &Message) -> String {
    let parts = match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => parts,
        Message::Assistant { text, .. } => return text.clone(),
    };
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
