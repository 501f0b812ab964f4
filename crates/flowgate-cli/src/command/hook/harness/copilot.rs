//! Reads the events of Copilot CLI and formats answers to it, for [`super::Harness`].
//!
//! Copilot has two names for each event. The hook must be configured with the names that Copilot shares with VS Code,
//! such as `PreToolUse`. Under the other names, such as `preToolUse`, the input of the hook does not say which event it
//! is. Copilot states no ids of calls. It ignores the answers to a prompt and to the output of a failed tool. The
//! events and answers have the forms of the hooks reference of Copilot.

use flowgate::monitor::Outcome;
use flowgate::trace::Tool;
use serde_json::{Value, json};

use super::super::HookEvent;
use super::super::answer::{HookAnswer, question_text, reason_text};
use super::{EventError, Fields, HarnessEvent, HarnessEventKind, RequestedCall, ToolUse};

/// The events that the hook judges, for error messages.
const JUDGED: &str = "SessionStart, UserPromptSubmit, PreToolUse, PostToolUse and PostToolUseFailure";

/// The tools whose names differ between the events and the requests of Copilot CLI 1.0.102: for each tool, its name in
/// events and its possible names in requests. The model and the operating system determine which of these a request
/// has.
const RENAMED: [(&str, &[&str]); 11] = [
    ("Agent", &["task"]),
    ("AskUserQuestion", &["ask_user"]),
    ("Bash", &["bash", "powershell"]),
    ("Edit", &["edit", "apply_patch", "str_replace_editor"]),
    ("Glob", &["glob"]),
    ("Grep", &["grep", "rg"]),
    ("Read", &["view"]),
    ("TodoWrite", &["update_todo"]),
    ("WebFetch", &["web_fetch"]),
    ("WebSearch", &["web_search"]),
    ("Write", &["create"]),
];

/// Parses an event of Copilot CLI.
///
/// # Errors
/// If the hook does not judge events of this kind, or a field is missing or has another form.
pub(super) fn parse(fields: &Fields<'_>) -> Result<HarnessEvent, EventError> {
    // An event in Copilot's other format, whose fields are in camel case, does not state its name.
    if !fields.input.contains_key("hook_event_name") && fields.input.contains_key("sessionId") {
        return Err(EventError::Invalid(format!(
            "this event of Copilot CLI does not state its name; configure the hook for {JUDGED}, spelled exactly like this"
        )));
    }
    let session = fields.text("session_id")?.to_owned();
    let kind = match fields.text("hook_event_name")? {
        "SessionStart" => {
            HarnessEventKind::Start { is_resumed: !matches!(fields.text("source")?, "startup" | "new") }
        }
        "UserPromptSubmit" => {
            HarnessEventKind::Prompt { role: "user", text: fields.text("prompt")?.to_owned() }
        }
        "PreToolUse" => HarnessEventKind::Call(tool_use(fields)?),
        "PostToolUse" => {
            let result = fields.value("tool_result")?;
            // The part that the model receives.
            let response = result.get("text_result_for_llm").unwrap_or(result).clone();
            HarnessEventKind::Output { tool_use: tool_use(fields)?, response, is_error: Some(false) }
        }
        "PostToolUseFailure" => HarnessEventKind::Output {
            tool_use: tool_use(fields)?,
            response: fields.value("error")?.clone(),
            is_error: Some(true),
        },
        other => return Err(fields.not_judged(other, JUDGED)),
    };
    let names_in_requests = kind.tool().map(names_in_requests).unwrap_or_default();
    Ok(HarnessEvent { session, kind, requested: RequestedCall::OfModel(names_in_requests) })
}

/// Returns the names that the tool of an event may have in Copilot's requests; an empty list if it has the same name
/// there.
fn names_in_requests(tool: &Tool) -> Vec<String> {
    let renamed = RENAMED.iter().find(|(name, _)| *name == &*tool.name);
    renamed.into_iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect()
}

/// Returns the call of an event: its tool and its arguments, without an id. For a tool of an MCP server, Copilot joins
/// the names of the server and the tool to one word. This word is the name of a local tool here, since it does not show
/// where the name of the server ends.
fn tool_use(fields: &Fields<'_>) -> Result<ToolUse, EventError> {
    let tool = Tool::local(fields.text("tool_name")?);
    let arguments = match fields.value("tool_input")? {
        // The argument of a tool for patches is a text, not JSON. The gateway names such a text `input`.
        Value::String(text) => json!({"input": text}),
        arguments => arguments.clone(),
    };
    Ok(ToolUse { id: None, tool, arguments })
}

/// Returns the line to print for Copilot CLI. `None` if there is no objection, so that Copilot's own permissions
/// decide, and for a blocked prompt, since Copilot ignores the answer to it.
pub(super) fn print(answer: &HookAnswer) -> Option<String> {
    let line = match answer {
        HookAnswer::Nothing | HookAnswer::Call(Outcome::Permit, ..) => return None,
        HookAnswer::Call(Outcome::Confirm, why, evidence) => {
            let question = question_text(why, evidence);
            json!({"permissionDecision": "ask", "permissionDecisionReason": question})
        }
        HookAnswer::Call(Outcome::Deny, why, _) => {
            json!({"permissionDecision": "deny", "permissionDecisionReason": reason_text(why)})
        }
        // The reason replaces the output that the model receives.
        HookAnswer::Stop(HookEvent::PostToolUse, why, _) => {
            json!({"modifiedResult": {"resultType": "success", "textResultForLlm": reason_text(why)}})
        }
        HookAnswer::Stop(..) => return None,
    };
    Some(line.to_string())
}
