//! Reads the events of Codex CLI and formats answers to it, for [`super::Harness`].
//!
//! Of the answers before a tool runs, Codex only follows `deny`: it runs the call after `ask`, after `allow`, and after
//! an answer that it cannot read. So where the policy would ask a person, the hook denies the call and states the
//! reason. The events and answers have the forms of the schemas in `codex-rs/hooks` of Codex.

use serde_json::json;

use flowgate::monitor::Outcome;
use flowgate::trace::Tool;
use serde_json::Value;

use super::super::HookEvent;
use super::super::answer::{HookAnswer, reason_text};
use super::super::transcript::unambiguous_tool;
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "SessionStart, UserPromptSubmit, PreToolUse and PostToolUse";

/// Parses an event of Codex.
///
/// # Errors
/// If the hook does not judge events of this kind, or a field is missing or has another form.
pub(super) fn parse(fields: &Fields<'_>) -> Result<HarnessEvent, EventError> {
    let session = fields.text("session_id")?.to_owned();
    // The prompt of a sub-agent is text of the model.
    let is_subagent = fields.input.get("agent_id").is_some_and(|id| !id.is_null());
    let kind = match fields.text("hook_event_name")? {
        "SessionStart" => HarnessEventKind::Start { is_resumed: fields.text("source")? == "resume" },
        "UserPromptSubmit" => HarnessEventKind::Prompt {
            role: if is_subagent { "assistant" } else { "user" },
            text: fields.text("prompt")?.to_owned(),
        },
        "PreToolUse" => HarnessEventKind::Call(tool_use(fields)?),
        "PostToolUse" => HarnessEventKind::Output {
            tool_use: tool_use(fields)?,
            response: fields.value("tool_response")?.clone(),
            // The event does not say whether the tool failed.
            is_error: None,
        },
        other => return Err(fields.not_judged(other, JUDGED)),
    };
    Ok(HarnessEvent { session, kind, names_in_requests: Vec::new() })
}

/// Returns the call of an event: its id if there is one, its tool and its arguments.
///
/// # Errors
/// If a field is missing, or the name of the tool does not determine which part of it is the name of a server.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let name = fields.text("tool_name")?;
    let tool: Option<Tool> = unambiguous_tool(name);
    let tool = tool.ok_or_else(|| {
        EventError::Invalid(format!(
            "the tool name `{name}` does not split into a server and a tool in exactly one way; in Codex, rename the \
             server to a name without `__` that is not `flowgate`"
        ))
    })?;
    let id = fields.input.get("tool_use_id").and_then(Value::as_str).map(str::to_owned);
    Ok(ToolUse { id, tool, arguments: fields.value("tool_input")?.clone() })
}

/// Returns the line to print for Codex; `None` if there is no objection: then Codex's own permissions decide. A
/// question becomes a denial, since Codex runs the call after any other answer.
pub(super) fn print(answer: &HookAnswer) -> Option<String> {
    let line = match answer {
        HookAnswer::Nothing | HookAnswer::Call(Outcome::Permit, ..) => return None,
        HookAnswer::Call(Outcome::Confirm | Outcome::Deny, why, _) => json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason_text(why),
        }}),
        // The reason replaces the output that the model receives.
        HookAnswer::Stop(HookEvent::PostToolUse, why, _) => {
            json!({"decision": "block", "reason": reason_text(why)})
        }
        // A blocked prompt.
        HookAnswer::Stop(_, why, _) => json!({"decision": "block", "reason": reason_text(why)}),
    };
    Some(line.to_string())
}
