//! Reads the events of coding agents whose transcripts `flowgate hook` does not read, and formats its answers to them.
//! One file per agent: [`codex`], [`copilot`], [`cursor`], [`gemini`], [`opencode`]. [`super::logged`] judges the
//! events.
//!
//! Such an agent (*harness*) runs a hook with a JSON object on the standard input. Each agent has its own names of
//! events and fields, and its own form of an answer. The rest of the command knows only [`HarnessEvent`] and
//! [`HookAnswer`].

mod codex;
mod copilot;
mod cursor;
mod gemini;
mod opencode;

use flowgate::trace::Tool;
use serde_json::{Map, Value, json};

use super::HookEvent;
use super::answer::HookAnswer;
use crate::args::Harness;

/// An event of a session.
#[derive(Debug, PartialEq)]
pub(super) struct HarnessEvent {
    /// The id of the session.
    pub(super) session: String,
    pub(super) kind: HarnessEventKind,
    /// How the agent's requests to the model spell the call of this event, for the question to the gateway.
    pub(super) requested: RequestedCall,
}

/// How the call of an event is spelled in the requests that the agent sends to the model through the gateway. The
/// gateway knows the call in this form, which can differ from that of the event.
#[derive(Debug, PartialEq)]
pub(super) enum RequestedCall {
    /// The model makes the call itself, by one of these names of the tool. If the list is empty, the tool has the same
    /// name as in policies.
    OfModel(Vec<String>),
    /// A program (tool script) that the model has written makes the call; `None` if it is not known how a program
    /// writes the arguments of this event.
    OfProgram(Option<ProgramCall>),
}

/// A call in a tool script of the model, in the form that the script has for it.
#[derive(Debug, PartialEq)]
pub(super) struct ProgramCall {
    pub(super) tool: String,
    /// Those arguments of the call that the event states.
    pub(super) arguments: Map<String, Value>,
    /// Whether the program can give further arguments, which the event does not state.
    pub(super) has_more: bool,
}

impl ProgramCall {
    /// Returns the question whether the gateway has handed over a program that makes this call, as the body of a
    /// request.
    pub(super) fn question(&self) -> Value {
        let stated = if self.has_more { "some" } else { "all" };
        json!({"tool": self.tool, "arguments": self.arguments, "in_program": stated})
    }
}

/// The kind of an event: what has happened in the session, or is about to happen.
#[derive(Debug, PartialEq)]
pub(super) enum HarnessEventKind {
    /// A session starts; `is_resumed` says whether it continues an earlier one.
    Start { is_resumed: bool },
    /// The model is about to receive a prompt, with the role that its text has in policies.
    Prompt { role: &'static str, text: String },
    /// A tool is about to run.
    Call(ToolUse),
    /// The model is about to receive the output of a tool; `is_error` is `None` if the agent does not state it.
    Output { tool_use: ToolUse, response: Value, is_error: Option<bool> },
}

/// A use of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolUse {
    /// The agent's id of the call, if it states one.
    pub(super) id: Option<String>,
    pub(super) tool: Tool,
    pub(super) arguments: Value,
}

/// The reason why an input is not a [`HarnessEvent`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventError {
    /// The hook is configured for an event that needs no judgement.
    NotJudged(String),
    /// A field is missing or has another type, or a name is ambiguous.
    Invalid(String),
}

impl Harness {
    /// Returns the name of the agent in sentences.
    fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Cursor => "Cursor",
            Self::Copilot => "Copilot CLI",
            Self::OpenCode => "OpenCode",
        }
    }

    /// Returns the name of the agent in the names of files.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
            Self::Copilot => "copilot",
            Self::OpenCode => "opencode",
        }
    }

    /// Parses the event that the agent passed on the standard input, with the agent's own names of events and fields.
    ///
    /// # Errors
    /// If the event is not judged, or a field is missing or invalid. Always for Claude Code: the caller reads its
    /// transcript instead.
    pub(super) fn parse(self, input: &Map<String, Value>) -> Result<HarnessEvent, EventError> {
        let fields = Fields { input, harness: self };
        match self {
            Self::ClaudeCode => {
                Err(EventError::Invalid("events of Claude Code are judged by its transcript, not by their fields; this is a defect of Flowgate; please report it".to_owned()))
            }
            Self::Codex => codex::parse(&fields),
            Self::Gemini => gemini::parse(&fields),
            Self::Cursor => cursor::parse(&fields),
            Self::Copilot => copilot::parse(&fields),
            Self::OpenCode => opencode::parse(&fields),
        }
    }

    /// Returns the line to print on the standard output; `None` if nothing is printed, because the agent's own
    /// permissions decide or because the agent ignores such an answer. Cursor always gets a line. With `allow`, the
    /// line for a permitted call allows it in place of the agent's own permissions, if the agent has an answer for
    /// this: Claude Code and Cursor do.
    pub(super) fn print(self, answer: &HookAnswer, allow: bool) -> Option<String> {
        match self {
            Self::ClaudeCode => answer.print(allow),
            Self::Codex => codex::print(answer),
            Self::Gemini => gemini::print(answer),
            Self::Cursor => Some(cursor::print(answer, allow)),
            Self::Copilot => copilot::print(answer),
            Self::OpenCode => opencode::print(answer),
        }
    }

    /// Returns the reason why a hook cannot make this agent ask the user; `None` if it can.
    pub(super) fn never_asks(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode | Self::Gemini | Self::Copilot => None,
            Self::Codex => Some("Codex cannot ask a person"),
            Self::Cursor => Some("Cursor cannot ask a person"),
            Self::OpenCode => Some("OpenCode cannot ask a person"),
        }
    }
}

impl HarnessEventKind {
    /// Returns the tool that is about to run, or has run; `None` for other events.
    pub(super) fn tool(&self) -> Option<&Tool> {
        match self {
            Self::Call(tool_use) | Self::Output { tool_use, .. } => Some(&tool_use.tool),
            Self::Start { .. } | Self::Prompt { .. } => None,
        }
    }

    /// Returns how the event is judged: as a prompt, a call or an output. `None` for the start of a session, which is
    /// not judged.
    pub(super) fn hook_event(&self) -> Option<HookEvent> {
        match self {
            Self::Start { .. } => None,
            Self::Prompt { .. } => Some(HookEvent::UserPromptSubmit),
            Self::Call(_) => Some(HookEvent::PreToolUse),
            Self::Output { .. } => Some(HookEvent::PostToolUse),
        }
    }
}

/// The fields of an event, with errors that name the agent.
struct Fields<'a> {
    input: &'a Map<String, Value>,
    harness: Harness,
}

impl Fields<'_> {
    /// Returns the string at `key`, which must exist.
    fn text(&self, key: &str) -> Result<&str, EventError> {
        let text = self.input.get(key).and_then(Value::as_str);
        text.ok_or_else(|| self.missing("the string", key))
    }

    /// Returns the value at `key`, which must exist.
    fn value(&self, key: &str) -> Result<&Value, EventError> {
        self.input.get(key).ok_or_else(|| self.missing("the field", key))
    }

    /// Returns the Boolean value at `key`, which must exist.
    fn flag(&self, key: &str) -> Result<bool, EventError> {
        let flag = self.input.get(key).and_then(Value::as_bool);
        flag.ok_or_else(|| self.missing("the Boolean value", key))
    }

    /// Returns the error for a missing field; `what` says which type it must have.
    fn missing(&self, what: &str, key: &str) -> EventError {
        EventError::Invalid(format!(
            "{what} `{key}` is missing in the input from {}; see `flowgate hook --help`",
            self.harness.name()
        ))
    }

    /// Returns the error for an event that the hook does not judge; `judged` lists those that it judges.
    fn not_judged(&self, event: &str, judged: &str) -> EventError {
        let name = self.harness.name();
        EventError::NotJudged(format!(
            "the hook is configured for the event `{event}` of {name}, which it does not judge; configure it for {judged}"
        ))
    }
}
