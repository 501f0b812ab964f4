//! Reads the events of Gemini CLI and formats answers to it, for [`super::Harness`].
//!
//! Gemini CLI states no ids of calls, so an output is assigned to the oldest call of the same tool with the same
//! arguments that has no output yet. The events and answers have the forms of the hooks reference of Gemini CLI.

use flowgate::monitor::Outcome;
use flowgate::trace::Tool;
use serde_json::{Value, json};

use super::super::HookEvent;
use super::super::answer::{HookAnswer, question_text, reason_text};
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, RequestedCall, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "SessionStart, BeforeAgent, BeforeTool and AfterTool";
/// The line that Gemini CLI adds to a prompt before the content of files that the user names with `@`.
const FILES_MARK: &str = "--- Content from referenced files ---";

/// Parses an event of Gemini CLI.
///
/// # Errors
/// If the hook does not judge events of this kind, or a field is missing or has another form.
pub(super) fn parse(fields: &Fields<'_>) -> Result<HarnessEvent, EventError> {
    let session = fields.text("session_id")?.to_owned();
    let kind = match fields.text("hook_event_name")? {
        "SessionStart" => HarnessEventKind::Start { is_resumed: fields.text("source")? == "resume" },
        "BeforeAgent" => {
            let text = fields.text("prompt")?.to_owned();
            // Gemini CLI adds the content of named files to the prompt, so not all of it is the user's
            // own text.
            let role = if text.contains(FILES_MARK) { "attachment/file" } else { "user" };
            HarnessEventKind::Prompt { role, text }
        }
        "BeforeTool" => HarnessEventKind::Call(tool_use(fields)?),
        "AfterTool" => {
            let result = fields.value("tool_response")?;
            let is_error = result.get("error").is_some_and(|error| !error.is_null());
            // The part that the model receives.
            let response = result.get("llmContent").unwrap_or(result).clone();
            HarnessEventKind::Output { tool_use: tool_use(fields)?, response, is_error: Some(is_error) }
        }
        other => return Err(fields.not_judged(other, JUDGED)),
    };
    // Requests and events have the same name of a tool. Policies can have another one: `SERVER/NAME` for a tool of a
    // server.
    let name = fields.input.get("tool_name").and_then(Value::as_str);
    let names_in_requests = name.map(str::to_owned).into_iter().collect();
    Ok(HarnessEvent { session, kind, requested: RequestedCall::OfModel(names_in_requests) })
}

/// Returns the call of an event: its tool, of a server or of Gemini CLI itself, and its arguments. It has no id.
///
/// # Errors
/// If a field is missing, only one of the names of the server and of its tool is stated, or the server is called
/// `flowgate`.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let name = fields.text("tool_name")?;
    let context = fields.input.get("mcp_context");
    let of_server = |key: &str| context.and_then(|context| context.get(key)).and_then(Value::as_str);
    let tool = match (of_server("server_name"), of_server("tool_name")) {
        (Some(Tool::FLOWGATE_SERVER), _) => {
            let message = "a server must not be called `flowgate`: rename it in Gemini CLI";
            return Err(EventError::Invalid(message.to_owned()));
        }
        (Some(server), Some(tool)) => Tool::of(server, tool),
        (None, None) => Tool::local(name),
        _ => {
            return Err(EventError::Invalid(
                "`mcp_context` from Gemini CLI has only one of `server_name` and `tool_name`, but both are needed; \
                update Gemini CLI"
                    .to_owned(),
            ));
        }
    };
    Ok(ToolUse { id: None, tool, arguments: fields.value("tool_input")?.clone() })
}

/// Returns the line to print for Gemini CLI; `None` if there is no objection: then its own permissions decide.
pub(super) fn print(answer: &HookAnswer) -> Option<String> {
    let line = match answer {
        HookAnswer::Nothing | HookAnswer::Call(Outcome::Permit, ..) => return None,
        // The person is shown the `systemMessage`.
        HookAnswer::Call(Outcome::Confirm, why, evidence) => {
            let question = question_text(why, evidence);
            json!({"decision": "ask", "reason": reason_text(why), "systemMessage": question})
        }
        HookAnswer::Call(Outcome::Deny, why, _) => json!({"decision": "deny", "reason": reason_text(why)}),
        // The reason replaces the output that the model receives.
        HookAnswer::Stop(HookEvent::PostToolUse, why, _) => {
            json!({"decision": "deny", "reason": reason_text(why)})
        }
        // A blocked prompt.
        HookAnswer::Stop(_, why, _) => json!({"decision": "deny", "reason": reason_text(why)}),
    };
    Some(line.to_string())
}
