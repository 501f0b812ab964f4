//! Reads the events of OpenCode and formats answers to it, for [`super::Harness`].
//!
//! OpenCode has plugins instead of hook commands. The plugin in `examples/hooks/opencode.js` runs `flowgate hook`, and
//! writes the events in the form that this file reads: with the names of OpenCode's own hooks, and with the id of the
//! session at the root of a tree of sub-agents. The plugin can only refuse an event, by an exception; so where the
//! policy would ask a person, the hook denies the call.

use flowgate::monitor::Outcome;
use flowgate::trace::Tool;
use serde_json::json;

use super::super::answer::{HookAnswer, reason_text};
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, RequestedCall, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "session.start, chat.message, tool.execute.before and tool.execute.after";

/// Parses an event from the plugin.
///
/// # Errors
/// If the hook does not judge events of this kind, or a field is missing or has another form.
pub(super) fn parse(fields: &Fields<'_>) -> Result<HarnessEvent, EventError> {
    let session = fields.text("session")?.to_owned();
    let kind = match fields.text("event")? {
        "session.start" => HarnessEventKind::Start { is_resumed: fields.flag("resumed")? },
        "chat.message" => {
            let role = match (fields.flag("from_model")?, fields.flag("has_files")?) {
                // The task of a sub-agent is text of the model.
                (true, _) => "assistant",
                (false, true) => "attachment/file",
                (false, false) => "user",
            };
            HarnessEventKind::Prompt { role, text: fields.text("text")?.to_owned() }
        }
        "tool.execute.before" => HarnessEventKind::Call(tool_use(fields)?),
        "tool.execute.after" => HarnessEventKind::Output {
            tool_use: tool_use(fields)?,
            response: fields.value("output")?.clone(),
            // The event does not say whether the tool failed.
            is_error: None,
        },
        other => return Err(fields.not_judged(other, JUDGED)),
    };
    Ok(HarnessEvent { session, kind, requested: RequestedCall::OfModel(Vec::new()) })
}

/// Returns the call of an event: its id, its tool and its arguments. OpenCode names a tool of an MCP server
/// `SERVER_TOOL`. This is the name of a local tool here, since it does not show where the name of the server ends.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let id = fields.text("call")?.to_owned();
    let tool = Tool::local(fields.text("tool")?);
    Ok(ToolUse { id: Some(id), tool, arguments: fields.value("args")?.clone() })
}

/// Returns the line to print for the plugin; `None` if there is no objection: then OpenCode's own permissions decide.
pub(super) fn print(answer: &HookAnswer) -> Option<String> {
    let why = match answer {
        HookAnswer::Nothing | HookAnswer::Call(Outcome::Permit, ..) => return None,
        HookAnswer::Call(Outcome::Confirm | Outcome::Deny, why, _) | HookAnswer::Stop(_, why, _) => why,
    };
    Some(json!({"decision": "deny", "reason": reason_text(why)}).to_string())
}
