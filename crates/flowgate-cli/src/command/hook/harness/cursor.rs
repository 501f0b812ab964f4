//! Reads the events of Cursor and formats answers to it, for [`super::Harness`].
//!
//! `preToolUse` runs before every tool. Cursor permits the answer `ask` there but does not ask the user, so where the
//! policy would ask a person, the hook denies the call. An answer must be a JSON object: with `failClosed`, Cursor
//! refuses a call without one. Cursor replaces only the outputs of tools of MCP servers; it names these tools
//! `MCP:TOOL`, without the server. The events and answers have the forms of the hooks reference of Cursor.

use flowgate::json::{self, Numbers};
use flowgate::monitor::Outcome;
use flowgate::trace::Tool;
use serde_json::{Value, json};

use super::super::HookEvent;
use super::super::answer::{HookAnswer, reason_text};
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, RequestedCall, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "sessionStart, beforeSubmitPrompt, preToolUse, postToolUse and postToolUseFailure";
/// The beginning of the name of a tool of an MCP server, and the name of the server in policies.
const MCP: &str = "MCP";

/// Parses an event of Cursor.
///
/// # Errors
/// If the hook does not judge events of this kind, or a field is missing or has another form.
pub(super) fn parse(fields: &Fields<'_>) -> Result<HarnessEvent, EventError> {
    let session = fields.text("conversation_id")?.to_owned();
    let kind = match fields.text("hook_event_name")? {
        // Cursor runs this hook only for new conversations.
        "sessionStart" => HarnessEventKind::Start { is_resumed: false },
        "beforeSubmitPrompt" => {
            // Attached files are part of what the model receives, except rules, which the agent adds to any prompt.
            let is_rule = |attachment: &Value| attachment.get("type").is_some_and(|kind| kind == "rule");
            let has_files = match fields.input.get("attachments") {
                None | Some(Value::Null) => false,
                Some(Value::Array(attachments)) => !attachments.iter().all(is_rule),
                Some(_) => true,
            };
            let role = if has_files { "attachment/file" } else { "user" };
            HarnessEventKind::Prompt { role, text: fields.text("prompt")?.to_owned() }
        }
        "preToolUse" => HarnessEventKind::Call(tool_use(fields)?),
        "postToolUse" => HarnessEventKind::Output {
            tool_use: tool_use(fields)?,
            response: decoded(fields.value("tool_output")?),
            is_error: Some(false),
        },
        "postToolUseFailure" => HarnessEventKind::Output {
            tool_use: tool_use(fields)?,
            response: fields.value("error_message")?.clone(),
            is_error: Some(true),
        },
        other => return Err(fields.not_judged(other, JUDGED)),
    };
    Ok(HarnessEvent { session, kind, requested: RequestedCall::OfModel(Vec::new()) })
}

/// Returns the call of an event: its id if there is one, its tool and its arguments. Cursor names a tool of any MCP
/// server `MCP:TOOL`, without the name of the server, so policies have all these tools under one server `MCP`. Any
/// other name is that of a tool of Cursor itself.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let name = fields.text("tool_name")?;
    let tool = match name.split_once(':') {
        Some((MCP, "")) => {
            return Err(EventError::Invalid(format!(
                "the tool name `{name}` from Cursor names no tool after `MCP:`; give the tool a name on its server"
            )));
        }
        Some((MCP, tool)) => Tool::of(MCP, tool),
        _ => Tool::local(name),
    };
    let id = fields.input.get("tool_use_id").and_then(Value::as_str).map(str::to_owned);
    Ok(ToolUse { id, tool, arguments: decoded(fields.value("tool_input")?) })
}

/// Returns the value of a field that may be JSON in a string, such as the arguments of tools of MCP servers; a string
/// that is not JSON stays as it is.
fn decoded(value: &Value) -> Value {
    let parsed = value.as_str().and_then(|text| json::parse(text, Numbers::Any).ok());
    parsed.unwrap_or_else(|| value.clone())
}

/// Returns the line to print for Cursor. It is `{}` if there is no objection, so that Cursor's own permissions decide;
/// with `allow`, a permitted call is allowed explicitly. A question is a denial, because Cursor does not ask.
pub(super) fn print(answer: &HookAnswer, allow: bool) -> String {
    let line = match answer {
        HookAnswer::Call(Outcome::Permit, ..) if allow => json!({"permission": "allow"}),
        HookAnswer::Nothing | HookAnswer::Call(Outcome::Permit, ..) => json!({}),
        HookAnswer::Call(Outcome::Confirm | Outcome::Deny, why, _) => {
            let reason = reason_text(why);
            json!({"permission": "deny", "user_message": reason, "agent_message": reason})
        }
        // The reason replaces the output. Cursor ignores the replacement if the tool is not one of an MCP server.
        HookAnswer::Stop(HookEvent::PostToolUse, why, _) => {
            json!({"updated_mcp_tool_output": {"content": [{"type": "text", "text": reason_text(why)}]}})
        }
        HookAnswer::Stop(_, why, _) => json!({"continue": false, "user_message": reason_text(why)}),
    };
    line.to_string()
}
