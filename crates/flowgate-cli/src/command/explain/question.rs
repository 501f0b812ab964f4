//! Runs `flowgate explain --question`: shows a question of a running gateway, and the reasons of its verdict with the
//! lines of the policy and the regions that influenced the call. The reasons come from the stored conversation.
//!
//! The gateway sends only those parts of the question and of the conversation that the clearance of the person covers.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::args::GatewayArgs;
use crate::escaping;
use crate::gateway_client::{GatewayClient, GatewayError, encode, question_path};
use crate::input::InputError;
use crate::output::Console;
use crate::question_text::{self, text};

/// The most answers of the gateway that are read for one conversation.
const MAX_PAGES: usize = 200;
/// The most characters of a region that are shown.
const MAX_REGION: usize = 400;

/// The parts of a stored conversation that the explanation needs: the texts and sources of its events, and its
/// verdicts.
#[derive(Debug, Default)]
struct StoredConversation {
    /// The texts of regions, by the number of the event and the path.
    texts: HashMap<(u64, String), String>,
    /// The kind and the source of each event, in words, by the number of the event.
    sources: HashMap<u64, String>,
    verdicts: Vec<Value>,
    /// Whether the policy has changed since the conversation began; the gateway then shows no verdict of the earlier
    /// policy.
    is_carried_over: bool,
}

/// Runs `flowgate explain --question`: prints the question `id`, and the reasons of its verdict. With `content`, also
/// prints the texts of the regions. Always returns 1, the exit code for a call that needs confirmation.
///
/// # Errors
/// If the gateway cannot be asked, or there is no such question.
pub(in crate::command) fn run(
    id: &str,
    options: &GatewayArgs,
    content: bool,
    output: &mut Console,
) -> Result<u8, InputError> {
    let gateway = GatewayClient::new(options, output)?;
    let question = gateway.get(&question_path(id)).map_err(failed)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    question_text::print(&question, u64::try_from(since.as_millis()).unwrap_or(u64::MAX), output);
    output.line("");
    let (client, name) = (text(&question, "client"), text(&question, "conversation"));
    let stored = match read(&gateway, client, name) {
        Ok(stored) => stored,
        // The conversation is not stored yet, or cannot be replayed: the gateway's message says which.
        Err(GatewayError::Refused(sentence)) => {
            output.note(&format!("the reasons of the verdict cannot be shown: {sentence}"));
            return Ok(1);
        }
        Err(error) => return Err(failed(error)),
    };
    match verdict_of(&question, &stored) {
        Some(verdict) => print(verdict, &stored, content, output),
        None if stored.is_carried_over => output.note(
            "the policy or the settings of the client have changed since the conversation began, so the gateway shows no \
             verdict of the earlier policy: the audit log has it",
        ),
        None => output.note(
            "the stored conversation has no verdict on this call yet: the turn of a question is stored when it ends",
        ),
    }
    Ok(1)
}

/// Returns an error of the gateway as an error of the command, which ends with the exit code 2.
fn failed(error: GatewayError) -> InputError {
    match error {
        GatewayError::Refused(why) | GatewayError::Failed(why) => InputError(why),
    }
}

/// Reads a stored conversation: the kind and source of each event, the text of each of its fields, and the verdicts.
/// The gateway sends it in pages; at most [`MAX_PAGES`] of them are read.
fn read(gateway: &GatewayClient, client: &str, name: &str) -> Result<StoredConversation, GatewayError> {
    let (mut stored, mut from) = (StoredConversation::default(), 0);
    for _ in 0..MAX_PAGES {
        let path =
            format!("/ui/api/conversation?client={}&name={}&from={from}", encode(client), encode(name));
        let page = gateway.get(&path)?;
        for event in list(&page, "events") {
            let number = event.get("number").and_then(Value::as_u64).unwrap_or_default();
            stored.sources.insert(number, format!("{} of {}", text(event, "kind"), text(event, "source")));
            for field in list(event, "fields") {
                stored.texts.insert((number, text(field, "path").to_owned()), text(field, "text").to_owned());
            }
        }
        stored.is_carried_over |= page.get("is_carried_over").and_then(Value::as_bool) == Some(true);
        stored.verdicts.extend(list(&page, "verdicts").iter().cloned());
        // The last page has no `next`. A `next` that is not greater than `from` would repeat pages forever.
        match page.get("next").and_then(Value::as_u64).filter(|next| *next > from) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(stored)
}

/// Returns the verdict on the call of a question: the last one of the stored conversation that asks a person about the
/// same tool and arguments. `None` if the turn of the question is not stored yet.
fn verdict_of<'s>(question: &Value, stored: &'s StoredConversation) -> Option<&'s Value> {
    let call = question.get("call")?;
    let arguments = call.get("arguments")?;
    let is_of_question = |verdict: &&Value| {
        let judged: Option<Value> = serde_json::from_str(text(verdict, "arguments")).ok();
        text(verdict, "outcome") == "asked"
            && text(verdict, "tool") == text(call, "tool")
            && judged.as_ref() == Some(arguments)
    };
    stored.verdicts.iter().rfind(is_of_question)
}

/// Prints the reasons of a verdict, each with the regions that it names. With `content`, the texts of the regions are
/// printed too.
fn print(verdict: &Value, stored: &StoredConversation, content: bool, output: &mut Console) {
    let title = output.paint("1", "the verdict, as the stored conversation has it");
    output.line(&title);
    for reason in list(verdict, "reasons") {
        let line = reason.get("line").and_then(Value::as_u64);
        let place = line.map(|line| format!(" (line {line} of the policy)")).unwrap_or_default();
        let message = format!("the policy {}: {}", text(reason, "action"), text(reason, "message"));
        output.line(&format!("  - {}{place}", escaping::line(&message)));
        for region in list(reason, "regions") {
            let number = region.get("event").and_then(Value::as_u64).unwrap_or_default();
            let path = text(region, "path");
            let source = stored.sources.get(&number).map_or("event", String::as_str);
            let label: Vec<&str> = list(region, "label").iter().filter_map(Value::as_str).collect();
            let said = format!("#{number} {source}, {path} ({})", label.join(", "));
            output.line(&format!("      from {}", escaping::line(&said)));
            let text_of_region = stored.texts.get(&(number, path.to_owned())).filter(|_| content);
            if let Some(text_of_region) = text_of_region {
                output.line(&format!("        │ {}", escaping::excerpt(text_of_region, MAX_REGION)));
            }
        }
    }
}

/// Returns the items of the list in a field of a JSON object; none if the field is absent or no list.
fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_verdict_on_the_same_call_is_found() {
        let verdict = |tool: &str, outcome: &str, arguments: &str, label: &str| json!({"tool": tool, "outcome": outcome, "arguments": arguments, "label": [label]});
        let stored = StoredConversation {
            verdicts: vec![
                verdict("send", "asked", r#"{"to":"eve"}"#, "first"),
                verdict("send", "asked", r#"{"to":"eve"}"#, "second"),
                verdict("send", "permitted", r#"{"to":"eve"}"#, "third"),
                verdict("send", "asked", r#"{"to":"bob"}"#, "fourth"),
                verdict("pay", "asked", "{\"to\": cut", "fifth"),
            ],
            ..StoredConversation::default()
        };
        let check = |tool: &str, arguments: Value, expected: Option<&str>| {
            let question = json!({"call": {"tool": tool, "arguments": arguments}});
            let found = verdict_of(&question, &stored).and_then(|verdict| verdict["label"][0].as_str());
            assert_eq!(found, expected, "{question}");
        };
        check("send", json!({"to": "eve"}), Some("second"));
        check("send", json!({"to": "bob"}), Some("fourth"));
        check("pay", json!({"to": "eve"}), None);
        check("send", json!("[hidden]"), None);
    }
}
