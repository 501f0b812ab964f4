//! Reads the events of Codex CLI and formats answers to it, for [`super::Harness`].
//!
//! Of the answers before a tool runs, Codex only follows `deny`: it runs the call after `ask`, after `allow`, and after
//! an answer that it cannot read. So where the policy would ask a person, the hook denies the call and states the
//! reason. Codex also runs the hook for each call that a program of the model (tool script) makes; the name and the
//! arguments of such a call in the event differ from those in the program. The events and answers have the forms of the
//! schemas in `codex-rs/hooks` of Codex.

use serde_json::{Map, Value, json};

use flowgate::monitor::Outcome;
use flowgate::trace::Tool;

use super::super::HookEvent;
use super::super::answer::{HookAnswer, reason_text};
use super::super::transcript::unambiguous_tool;
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, ProgramCall, RequestedCall, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "SessionStart, UserPromptSubmit, PreToolUse and PostToolUse";
/// The beginning of the ids that Codex gives to the calls of a program. The ids of other calls come from the model's
/// server.
const ID_IN_PROGRAM: &str = "exec-";

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
    let requested = match &kind {
        HarnessEventKind::Call(ToolUse { id: Some(id), arguments, .. }) if id.starts_with(ID_IN_PROGRAM) => {
            RequestedCall::OfProgram(program_call(fields.text("tool_name")?, arguments))
        }
        // The gateway finds the call by its id, so no name is needed.
        _ => RequestedCall::OfModel(Vec::new()),
    };
    Ok(HarnessEvent { session, kind, requested })
}

/// Converts a call that a program makes from the form of the event to the form of the program, since the gateway has
/// read the program. `name` and `input` are the name of the tool and its arguments in the event. Returns `None` if the
/// arguments are not those that Codex 0.171.0 states.
fn program_call(name: &str, input: &Value) -> Option<ProgramCall> {
    let input = input.as_object()?;
    // The text of the command or the patch. In events, it is the only argument of the two tools below.
    let command = || input.get("command").filter(|_| input.len() == 1).filter(|command| command.is_string());
    let (tool, arguments, has_more) = match name {
        // A program can also give the folder, the shell and other arguments, which the event does not state.
        "Bash" => ("exec_command", Map::from_iter([("cmd".to_owned(), command()?.clone())]), true),
        // In programs, the argument is a text, not JSON. The gateway names such a text `input`.
        "apply_patch" => ("apply_patch", Map::from_iter([("input".to_owned(), command()?.clone())]), false),
        // Other tools, such as `view_image` and those of MCP servers, have the same name and arguments in programs.
        name => (name, input.clone(), false),
    };
    Some(ProgramCall { tool: tool.to_owned(), arguments, has_more })
}

/// Returns the call of an event: its id if there is one, its tool and its arguments.
///
/// # Errors
/// If a field is missing, or the name of the tool does not determine which part of it is the name of a server, or the
/// server is called `flowgate`.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let name = fields.text("tool_name")?;
    let tool: Option<Tool> = unambiguous_tool(name);
    let tool = tool.ok_or_else(|| {
        EventError::Invalid(format!(
            "the tool name `{name}` does not determine which server and which tool it names, or the server has the \
             reserved name `flowgate`; in Codex, give the server another name, without `__`"
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
