//! Runs `flowgate hook`: judges the tool calls of Claude Code, which runs its hooks before and after each tool.
//!
//! Claude Code starts the command for each call, and the command does not see the model. It only has the transcript:
//! all of it counts as an influence on the call. Claude Code ignores a hook that fails, so every failure here is
//! answered with `deny`, within the time limit.

mod answer;
mod session;
mod transcript;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use flowgate::json::{self, Numbers};
use flowgate::monitor::{Attribution, Monitor, Outcome};
use flowgate::trace::{Call, Output as ToolOutput, TraceEntry};
use serde_json::{Map, Value};

use crate::args::HookArgs;
use crate::display_mode::{Color, ProgressMode};
use crate::input::InputError;
use crate::output::Console;
use crate::policy_file::load_policy;
use answer::HookAnswer;
use transcript::PendingEvent;
use transcript::Transcript;

/// The largest object that is read from the standard input.
const MAX_INPUT: u64 = 64 << 20;
/// The time to wait for a transcript that lacks its last entries.
const TRANSCRIPT_DELAY: Duration = Duration::from_secs(1);
/// The time between two attempts to read it.
const AGAIN: Duration = Duration::from_millis(50);

/// The events of Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookEvent {
    PreToolUse,
    PostToolUse,
    UserPromptSubmit,
}

/// The messages of the worker.
enum WorkerMessage {
    /// The event, which determines the form of a refusal.
    Event(HookEvent),
    /// The answer.
    Answer(HookAnswer),
    /// The reason why there is no answer, and the exit code.
    Nothing(String, u8),
}

/// Runs the command: judges on a thread, and answers within the time limit even if that thread does not. Returns the
/// exit code.
pub(crate) fn run(options: &HookArgs, output: &mut Console) -> Result<u8, InputError> {
    let deadline = Instant::now() + Duration::from_secs(options.seconds.into());
    let (sender, receiver) = sync_channel(4);
    let worker_options = options.clone();
    // A separate thread: a time-out or a panic there must not look like a permission.
    let worker =
        std::thread::Builder::new().name("hook".to_owned()).spawn(move || work(&worker_options, &sender));
    worker.map_err(|error| InputError(format!("no thread can be started: {error}")))?;
    let mut event = None;
    loop {
        let why = match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(WorkerMessage::Event(asked)) => {
                event = Some(asked);
                continue;
            }
            Ok(WorkerMessage::Answer(answer)) => {
                if let Some(line) = answer.print(options.allow) {
                    output.line(&line);
                }
                return Ok(0);
            }
            Ok(WorkerMessage::Nothing(why, code)) => {
                output.error(&why);
                return Ok(code);
            }
            Err(RecvTimeoutError::Timeout) => {
                format!("there was no verdict within {} seconds, the limit of `--seconds`", options.seconds)
            }
            Err(RecvTimeoutError::Disconnected) => {
                "the thread that judges ended without a verdict; this is a defect of Flowgate".to_owned()
            }
        };
        let Some(event) = event else { return Err(InputError(why)) };
        if let Some(line) = HookAnswer::from_failure(event, &why).print(false) {
            output.line(&line);
        }
        return Ok(0);
    }
}

/// Reads and judges the event, and sends first the kind of event and then the answer to the waiting thread, which needs
/// the kind to answer if there is no verdict.
fn work(options: &HookArgs, worker_sender: &SyncSender<WorkerMessage>) {
    let asked = match read_input() {
        Ok(asked) => asked,
        Err(why) => {
            let _ = worker_sender.send(WorkerMessage::Nothing(why, 2));
            return;
        }
    };
    let named = asked.get("hook_event_name").and_then(Value::as_str).unwrap_or_default();
    let event = match named {
        "PreToolUse" => HookEvent::PreToolUse,
        "PostToolUse" => HookEvent::PostToolUse,
        "UserPromptSubmit" => HookEvent::UserPromptSubmit,
        _ => {
            // Code 2 would block the event each time.
            let why = "the hook is configured for an event that it does not judge; configure it for \
                PreToolUse, PostToolUse and UserPromptSubmit";
            let code = if asked.contains_key("hook_event_name") { 1 } else { 2 };
            let _ = worker_sender.send(WorkerMessage::Nothing(why.to_owned(), code));
            return;
        }
    };
    let _ = worker_sender.send(WorkerMessage::Event(event));
    let answer = judge(options, event, &asked).unwrap_or_else(|why| HookAnswer::from_failure(event, &why));
    let answer = if event == HookEvent::PostToolUse {
        answer.with_replacement(asked.get("tool_response"))
    } else {
        answer
    };
    let _ = worker_sender.send(WorkerMessage::Answer(answer));
}

/// Reads the event of Claude Code from the standard input.
fn read_input() -> Result<Map<String, Value>, String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the standard input cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_INPUT {
        return Err(format!("the standard input is longer than {} MiB", MAX_INPUT >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|_| "standard input is not valid UTF-8".to_owned())?;
    match json::parse(&text, Numbers::Any) {
        Ok(Value::Object(asked)) => Ok(asked),
        Ok(_) => Err("the standard input is not a JSON object; see `flowgate hook --help`".to_owned()),
        Err(error) => Err(format!("standard input is not valid JSON: {error}; see `flowgate hook --help`")),
    }
}

fn required_text<'v>(asked: &'v Map<String, Value>, key: &str) -> Result<&'v str, String> {
    asked
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("the string `{key}` is missing in the input from Claude Code"))
}

/// Judges an event of Claude Code: replays the transcript so far in a new monitor, then judges or labels what the event
/// adds. `asked` is the JSON object that Claude Code passed on the standard input.
///
/// # Errors
/// If the policy, the transcript or a field of `asked` cannot be read. The caller turns the error into a refusal.
fn judge(options: &HookArgs, event: HookEvent, asked: &Map<String, Value>) -> Result<HookAnswer, String> {
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, &mut output).map_err(|error| error.0)?);
    let predicates = options.answering.predicates(&policy, &name).map_err(|error| error.0)?;
    let mut monitor = Monitor::new(policy);
    monitor.set_parameters(&options.parameters.iter().cloned().collect());
    monitor.set_predicates(predicates, Vec::new());

    let agent = asked.get("agent_id").and_then(Value::as_str).map(str::to_owned);
    let path = Path::new(required_text(asked, "transcript_path")?);
    let call = match event {
        HookEvent::UserPromptSubmit => None,
        HookEvent::PreToolUse | HookEvent::PostToolUse => Some(proposed_call(asked)?),
    };
    let pending =
        PendingEvent { id: call.as_ref().map(|call| call.id.clone()).unwrap_or_default(), agent, event };
    let limit = u64::from(options.max_transcript) << 20;
    let transcript = read_up_to_date(path, limit, &pending)?;
    session::replay(&mut monitor, &transcript, &pending);
    Ok(match (event, call) {
        (HookEvent::PreToolUse, Some(call)) => HookAnswer::from_judgement(
            monitor.judge_entry(TraceEntry::from(call), Attribution::everything()).judgement(),
        ),
        (_, Some(call)) => {
            let response = asked.get("tool_response").cloned().unwrap_or_default();
            let output = ToolOutput {
                call_id: call.id.clone(),
                tool: None,
                content: answer::content(response),
                structured: None,
                is_error: Some(false),
            };
            if !session::has_call(&monitor, &call.id) {
                monitor.record(TraceEntry::from(call), &Attribution::everything());
            }
            HookAnswer::from_objections(event, session::objections(&mut monitor, TraceEntry::from(output))?)
        }
        (_, None) => {
            let content = Value::String(required_text(asked, "prompt")?.to_owned());
            let entry = TraceEntry::user(content);
            HookAnswer::from_objections(event, session::objections(&mut monitor, entry)?)
        }
    })
}

/// Returns the tool call that Claude Code's hook input proposes.
fn proposed_call(hook_input: &Map<String, Value>) -> Result<Call, String> {
    let name = required_text(hook_input, "tool_name")?;
    let tool = transcript::unambiguous_tool(name).ok_or_else(|| {
        format!(
            "the tool name `{name}` does not split into a server and a tool in exactly one way; in Claude \
            Code, rename the server to a name without `__` that is not `flowgate`"
        )
    })?;
    let id = hook_input.get("tool_use_id").and_then(Value::as_str).unwrap_or("(proposed)");
    let input =
        hook_input.get("tool_input").ok_or("`tool_input` is missing in the input from Claude Code")?;
    // `Call::from_json` parses the printed input, so that it finds numbers that two parsers could read differently.
    Ok(Call::from_json(id, tool, &input.to_string()))
}

/// Reads the transcript, once it has the entries that it must have, or after a time limit.
fn read_up_to_date(path: &Path, limit: u64, pending: &PendingEvent) -> Result<Transcript, String> {
    let deadline = Instant::now() + TRANSCRIPT_DELAY;
    loop {
        let read = Transcript::read(path, limit, pending.event == HookEvent::UserPromptSubmit);
        let is_late = Instant::now() >= deadline;
        match read {
            Ok(transcript) if is_late || transcript.has_pending(pending) => {
                return match &pending.agent {
                    Some(agent) if !transcript.has_agent(agent) => Err(
                        "Claude Code has not written the transcript of the sub-agent that makes this call"
                            .to_owned(),
                    ),
                    _ => Ok(transcript),
                };
            }
            Err(why) if is_late => return Err(why),
            // The last line may be incomplete.
            _ => std::thread::sleep(AGAIN),
        }
    }
}

/// Returns the decision on a call, in Claude Code's terms.
pub(super) fn decision(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Permit => "allow",
        Outcome::Confirm => "ask",
        Outcome::Deny => "deny",
    }
}
