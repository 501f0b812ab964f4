//! Recognises *respelled* messages: messages of the model that the caller sends back with the same calls in another
//! spelling. Agents check the arguments of a call before they run it, and keep what they ran. Claude Code, for
//! example, adds the default values of the tool's schema, reads `"5"` as 5, and drops spaces at the ends of lines.
//!
//! [`Conversation::align_chat`] compares a sent chat with the history. A message of the model that differs from the
//! recorded one only in the spelling of its calls counts as unchanged. So the model still sees its own spelling, and
//! the policy labels the answers of these calls by the arguments that were judged. Any other difference makes the
//! message a new one, which is labelled top. [`super::inputs`] and [`super::replay`] use this module before they merge
//! a chat.

use flowgate::json::{self, Numbers};
use flowgate::trace::{Call, EventBody, EventId};
use flowgate_lm::chat::{self, ToolCall};
use serde_json::{Map, Value};

use super::Conversation;
use super::redeclared::SentMessages;
use crate::history::{Alignment, ClientProfile, History};
use crate::view::CallOutcome;

/// A sent chat, compared with the history.
#[derive(Debug)]
pub(super) struct AlignedChat {
    /// How many messages at the beginning of the chat are spelled as in the history. Counted before the history took on
    /// the digests of respelled messages.
    pub(super) same: usize,
    /// The alignment, in which respelled messages are unchanged.
    pub(super) alignment: Alignment,
}

impl Conversation {
    /// Compares a sent chat with the history. The history takes on the digests of respelled messages, so that later
    /// chats and [prefixes](History::prefixes) in this spelling match at once. [Redeclared](super::redeclared) messages
    /// count as changed; `client` says which messages are trusted.
    pub(super) fn align_chat(
        &self,
        history: &mut History,
        chat: &SentMessages<'_>,
        client: &ClientProfile,
    ) -> AlignedChat {
        let digests = &*self.compared_digests(history, chat, Some(client));
        let mut alignment = history.align(digests, chat.certain);
        // The number of messages that have the same spelling in the history.
        let same = alignment.unchanged;
        // As long as the first changed message is a respelled one, the history takes on its digest and is aligned
        // again. Each round recognises at least one more message.
        while let Some([message, ..]) = chat.messages_after(alignment.unchanged)
            && let Some(recorded) = self.recorded_spelling(message)
            && let Some(next) =
                history.respell(alignment.unchanged, &recorded, message, (digests, chat.certain))
        {
            alignment = next;
        }
        AlignedChat { same, alignment }
    }

    /// Returns a message of the model with the arguments of its calls as they were handed over. `None` if it has no
    /// call, if one of its calls was not handed over, or if the arguments of one differ in more than their spelling.
    fn recorded_spelling(&self, message: &chat::Message) -> Option<chat::Message> {
        let chat::Message::Assistant { text, calls, .. } = message else { return None };
        if calls.is_empty() {
            return None;
        }
        let calls: Option<Vec<ToolCall>> = calls.iter().map(|call| self.recorded_call(call)).collect();
        // The digests by which messages are compared leave the model's reasoning (`thoughts`) out.
        Some(chat::Message::Assistant { text: text.clone(), calls: calls?, thoughts: Vec::new() })
    }

    /// Returns a call with the arguments with which it was handed over; `None` if it was not handed over, or if the
    /// sent arguments differ from the recorded ones in more than their spelling.
    fn recorded_call(&self, sent: &ToolCall) -> Option<ToolCall> {
        let call = self.call_with_id(&sent.id)?;
        let recorded = call.arguments.as_ref().ok()?;
        // The parser rejects duplicate keys, which two parsers may read differently; numbers may have any spelling.
        let Ok(Value::Object(arguments)) = json::parse(&sent.arguments, Numbers::Any) else { return None };
        let schema = self.tools.catalogue().schema_of(&call.tool);
        is_respelled(recorded, &arguments, schema)
            .then(|| ToolCall { arguments: Value::Object(recorded.clone()).to_string(), ..sent.clone() })
    }

    /// Finds the call with this id that was handed over to the caller, answered or not.
    fn call_with_id(&self, id: &str) -> Option<&Call> {
        let trace = self.monitor.trace();
        let call_of = |outcome: &CallOutcome| -> Option<EventId> {
            match outcome {
                CallOutcome::HandedOver(event) => Some(*event),
                CallOutcome::Output(answer) => trace.event(*answer)?.call,
                // The call was not handed over, or its outcome does not name its event.
                _ => None,
            }
        };
        // The search begins at the last step: most often a caller sends back the calls of the last message.
        let mut calls = self.items.steps().flat_map(|(_, step)| &step.calls);
        calls.find_map(|step_call| match &trace.event(call_of(&step_call.answer)?)?.body {
            EventBody::Call(call) if call.id == id => Some(call),
            _ => None,
        })
    }
}

/// Returns whether sent arguments differ from the recorded ones only in their spelling: each recorded argument is
/// there, and each further one has the default value of the schema.
fn is_respelled(recorded: &Map<String, Value>, sent: &Map<String, Value>, schema: Option<&Value>) -> bool {
    let default = |name: &str| schema?.get("properties")?.get(name)?.get("default");
    let has_all =
        recorded.iter().all(|(name, value)| sent.get(name).is_some_and(|sent| is_same_value(value, sent)));
    let is_recorded_or_default =
        |(name, value): (&String, &Value)| recorded.contains_key(name) || default(name) == Some(value);
    has_all && sent.iter().all(is_recorded_or_default)
}

/// Returns whether two values differ only in their spelling: a number or a truth value may have been written as a text
/// that spells it, and a text may lack [what an agent drops](is_same_text).
fn is_same_value(recorded: &Value, sent: &Value) -> bool {
    match (recorded, sent) {
        (Value::String(recorded), Value::String(sent)) => is_same_text(recorded, sent),
        (Value::String(recorded), Value::Number(number)) => *recorded == number.to_string(),
        (Value::String(recorded), Value::Bool(is_true)) => {
            recorded == if *is_true { "true" } else { "false" }
        }
        (Value::Array(recorded), Value::Array(sent)) => {
            recorded.len() == sent.len()
                && recorded.iter().zip(sent).all(|(one, other)| is_same_value(one, other))
        }
        // Without a schema (`None`) for the values in an argument, the sent map may have no further values.
        (Value::Object(recorded), Value::Object(sent)) => is_respelled(recorded, sent, None),
        _ => recorded == sent,
    }
}

/// Returns whether a sent text is the recorded one, apart from white space at the ends of lines and doubled backslashes
/// before semicolons. If the recorded text begins with a change of the folder (`cd FOLDER && `), the sent text may lack
/// it: an agent that is in that folder already drops it.
fn is_same_text(recorded: &str, sent: &str) -> bool {
    let plain = |text: &str| {
        let lines: Vec<&str> =
            text.split('\n').map(|line| line.trim_end_matches([' ', '\t', '\r'])).collect();
        lines.join("\n").replace(r"\\;", r"\;")
    };
    // Text with one of these characters could be more than the name of a folder, such as another command.
    let is_folder = |folder: &str| !folder.contains([';', '|', '&', '$', '`', '(', '<', '>', '\n']);
    let command = recorded.strip_prefix("cd ").and_then(|rest| rest.split_once(" && "));
    let command = command.filter(|(folder, _)| is_folder(folder)).map(|(_, command)| command);
    let sent = plain(sent);
    plain(recorded) == sent || command.is_some_and(|command| plain(command) == sent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Rows: recorded and sent arguments; first those that count as unchanged, then those that do not.
    #[test]
    fn spelling_does_not_count() {
        let schema =
            json!({"properties": {"all": {"type": "boolean", "default": false}, "note": {"type": "string"}}});
        let is_respelled = |recorded: &Value, sent: &Value| {
            let [recorded, sent] =
                [recorded, sent].map(|value| value.as_object().expect("an object").clone());
            super::is_respelled(&recorded, &sent, Some(&schema))
        };
        for (recorded, sent) in [
            (json!({"path": "a"}), json!({"path": "a"})),
            (json!({"path": "a"}), json!({"all": false, "path": "a"})),
            (json!({"path": "a", "all": "true"}), json!({"path": "a", "all": true})),
            (json!({"offset": "5"}), json!({"offset": 5})),
            (json!({"content": "x = 1  \ny\t\n"}), json!({"content": "x = 1\ny\n"})),
            (json!({"command": "cd /home/ann/project && ls"}), json!({"command": "ls"})),
            (json!({"command": r"find . -exec echo {} \\;"}), json!({"command": r"find . -exec echo {} \;"})),
            (json!({"list": [{"a": "1 "}]}), json!({"list": [{"a": "1"}]})),
        ] {
            assert!(is_respelled(&recorded, &sent), "{recorded} {sent}");
        }
        for (recorded, sent) in [
            (json!({"path": "a"}), json!({"path": "b"})),
            (json!({"path": "a"}), json!({})),
            (json!({"path": "a"}), json!({"path": "a", "all": true})),
            (json!({"path": "a"}), json!({"path": "a", "note": "pay mallory"})),
            (json!({"path": "a"}), json!({"path": "a", "other": false})),
            (json!({"path": "a b"}), json!({"path": "ab"})),
            (json!({"path": " a"}), json!({"path": "a"})),
            (json!({"path": "a\n"}), json!({"path": "a"})),
            (json!({"offset": 5}), json!({"offset": "5"})),
            (json!({"offset": "5"}), json!({"offset": 6})),
            (json!({"all": true}), json!({"all": false})),
            (json!({"note": null}), json!({})),
            (json!({"command": "cd $(rm x) && ls"}), json!({"command": "ls"})),
            (json!({"command": "cd a; rm x && ls"}), json!({"command": "ls"})),
            (json!({"command": "rm x && ls"}), json!({"command": "ls"})),
            (json!({"command": "ls"}), json!({"command": "cd /etc && ls"})),
            (json!({"list": ["a", "b"]}), json!({"list": ["a"]})),
            (json!({"list": [{"a": 1}]}), json!({"list": [{"a": 1, "all": false}]})),
        ] {
            assert!(!is_respelled(&recorded, &sent), "{recorded} {sent}");
        }
    }
}
