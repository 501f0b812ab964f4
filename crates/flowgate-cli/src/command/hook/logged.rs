//! Judges the events of coding agents other than Claude Code: records them in the file of their session, replays the
//! file in a monitor, and judges the new event with the labels of all earlier ones. [`super::work_by_log`] calls it.
//!
//! An agent adds texts to the context without an event, such as its instructions and the content of `AGENTS.md`. One
//! empty message of the role [`CONTEXT`], which the policy labels, takes the place of these texts. If the output of a
//! call has not arrived, for example because the tool failed, the model may still have read it. It then counts as an
//! output without content, which has the label that the policy gives to any output of that tool. A session whose start
//! was not recorded is labelled top.

use std::path::{Path, PathBuf};

use flowgate::monitor::{Attribution, Monitor, Outcome};
use flowgate::trace::{Call, Message, Output, TraceEntry};
use serde_json::Value;

use super::answer::{HookAnswer, content};
use super::gateway::{AgentCall, GatewayReport};
use super::harness::{HarnessEvent, HarnessEventKind, RequestedCall, ToolUse};
use super::session_log::{LoggedEvent, SessionLog, delete_old};
use super::{HookEvent, session};
use crate::args::Harness;

/// The role of what an agent adds to the context without a hook.
const CONTEXT: &str = "attachment/context";

/// The options of the command line that [`judge`] needs.
pub(super) struct LogSettings<'a> {
    /// The folder with the files of all sessions.
    pub(super) folder: PathBuf,
    /// The largest size of a file, in bytes.
    pub(super) limit: u64,
    /// The reason why no person can be asked; `None` if one can.
    pub(super) never_asks: Option<&'static str>,
    /// Asks the gateway about a call, if the agent uses one.
    pub(super) ask_gateway: &'a dyn Fn(AgentCall<'_>) -> GatewayReport,
    /// Whether the hook only watches (`--watch`): a denied call then runs all the same.
    pub(super) is_watching: bool,
}

/// Judges an event and records it in the file of its session. `monitor` is new: the recorded events are replayed in it
/// first. In watch mode, a call is added to the monitor's trace, since the call runs whatever the verdict is. Returns
/// [`HookAnswer::Nothing`] for the start of a session. The calls of a session are numbered from 0, without the denied
/// ones.
///
/// # Errors
/// If the file of the session cannot be read or written. The caller turns the error into a refusal.
pub(super) fn judge(
    monitor: &mut Monitor,
    harness: Harness,
    event: HarnessEvent,
    settings: &LogSettings<'_>,
) -> Result<HookAnswer, String> {
    let mut log = SessionLog::open(&settings.folder, harness, &event.session, settings.limit)?;
    if let HarnessEventKind::Start { is_resumed } = event.kind {
        return start(&mut log, is_resumed, &settings.folder, harness).map(|()| HookAnswer::Nothing);
    }
    if log.events.is_empty() {
        // The hook was configured in the middle of the session, or not for its start.
        log.append(LoggedEvent::Unknown)?;
    }
    match event.kind {
        // The start has been handled already.
        HarnessEventKind::Start { .. } => Ok(HookAnswer::Nothing),
        HarnessEventKind::Prompt { role, text } => {
            replay(monitor, &log, None);
            log.append(LoggedEvent::Message { role: role.to_owned(), text: text.clone() })?;
            let entry = TraceEntry::from(Message::new(role, Value::String(text)));
            let objections = session::objections(monitor, entry)?;
            Ok(HookAnswer::from_objections(HookEvent::UserPromptSubmit, objections))
        }
        HarnessEventKind::Call(tool_use) => {
            judge_call(monitor, &mut log, tool_use, &event.requested, settings)
        }
        HarnessEventKind::Output { tool_use, response, is_error } => {
            let number = match log.call_of(&tool_use) {
                Some(number) => number,
                None => {
                    // The hook received no event for this call, but the tool has run: the call is recorded now.
                    let number = log.calls().len();
                    log.append(LoggedEvent::Call(tool_use))?;
                    number
                }
            };
            replay(monitor, &log, Some(number));
            let content = content(response);
            log.append(LoggedEvent::Output { call: number, content: content.clone(), is_error })?;
            let objections = session::objections(monitor, output(number, content, is_error))?;
            Ok(HookAnswer::from_objections(HookEvent::PostToolUse, objections))
        }
    }
}

/// Judges a call and records it, or its denial, in the file of its session. `requested` is how the agent's requests to
/// the model spell the call.
fn judge_call(
    monitor: &mut Monitor,
    log: &mut SessionLog,
    tool_use: ToolUse,
    requested: &RequestedCall,
    settings: &LogSettings<'_>,
) -> Result<HookAnswer, String> {
    replay(monitor, log, None);
    let call = trace_call(&tool_use, log.calls().len());
    let own_name = [tool_use.tool.to_string()];
    let reported = (settings.ask_gateway)(match requested {
        RequestedCall::OfModel(names) => AgentCall::OfModel {
            id: tool_use.id.as_deref(),
            names: if names.is_empty() { &own_name } else { names },
            arguments: &tool_use.arguments,
        },
        RequestedCall::OfProgram(call) => AgentCall::OfProgram(call.as_ref()),
    });
    let attribution = reported.attribution(monitor);
    let judged = monitor.judge_entry(TraceEntry::from(call.clone()), attribution.clone());
    let mut answer = HookAnswer::from_verdict(&judged, monitor);
    // Drops the permit, if there is one: the monitor withdraws the judged call, so `record` can add it below.
    drop(judged);
    if settings.is_watching {
        monitor.record(TraceEntry::from(call), &attribution);
    }
    // If no person can be asked, a question is a denial.
    if let Some(why) = settings.never_asks {
        answer = answer.deny_question(why);
    }
    let answer = reported.stricter(answer);
    log.append(logged_call(&answer, tool_use, settings.is_watching))?;
    Ok(answer)
}

/// Handles the start of a session. If its file is new, records the start in it, and deletes old files of the agent
/// `harness` in `folder`. If the file is new although the session continues an earlier one (`is_resumed`), the earlier
/// one was not recorded: records instead that its past is unknown. If the file has events already, does nothing.
fn start(log: &mut SessionLog, is_resumed: bool, folder: &Path, harness: Harness) -> Result<(), String> {
    if log.events.is_empty() {
        log.append(if is_resumed { LoggedEvent::Unknown } else { LoggedEvent::Start })?;
        delete_old(folder, harness);
    }
    Ok(())
}

/// Returns the event to record for a judged call: a denial, or a call that may run. A call about which a person is
/// asked may run. If the hook only watches, a denied call runs as well.
fn logged_call(answer: &HookAnswer, tool_use: ToolUse, is_watching: bool) -> LoggedEvent {
    match answer {
        HookAnswer::Call(Outcome::Deny, why, _) if !is_watching => LoggedEvent::Denied { why: why.clone() },
        _ => LoggedEvent::Call(tool_use),
    }
}

/// Replays the recorded events of a session in `monitor`. A call without a recorded output gets one without content,
/// since the model may have read its output. The exception is the call with the number `answered`, whose output is the
/// event that the caller judges next.
fn replay(monitor: &mut Monitor, log: &SessionLog, answered: Option<usize>) {
    // The number of the next call.
    let mut calls = 0;
    for event in &log.events {
        match event {
            // An empty message in place of the texts that the agent adds to the context itself: the policy labels it by
            // its role.
            LoggedEvent::Start => push(monitor, message(CONTEXT, "")),
            LoggedEvent::Message { role, text } => push(monitor, message(role, text)),
            LoggedEvent::Call(tool_use) => {
                monitor.record(TraceEntry::from(trace_call(tool_use, calls)), &Attribution::everything());
                calls += 1;
            }
            // The call did not run, and the model received the reason.
            LoggedEvent::Denied { why } => push(monitor, message("assistant", why)),
            LoggedEvent::Output { call, content, is_error } => {
                push(monitor, output(*call, content.clone(), *is_error));
            }
            LoggedEvent::Unknown => session::push_unknown(monitor),
        }
    }
    for (number, (_, is_answered)) in log.calls().into_iter().enumerate() {
        if !is_answered && answered != Some(number) {
            push(monitor, output(number, Value::Null, None));
        }
    }
}

/// Adds an entry to the trace of the monitor, without its findings: only the new event is judged.
fn push(monitor: &mut Monitor, entry: TraceEntry) {
    // Fails if the trace is full: the event that is judged is then refused for the same reason.
    let _ = monitor.push(entry);
}

/// Returns a message as an entry of the trace.
fn message(role: &str, text: &str) -> TraceEntry {
    TraceEntry::from(Message::new(role, Value::String(text.to_owned())))
}

/// Returns a use of a tool as a call of the trace. The id of the call is `number`, its number in the session, since
/// some agents state no ids.
fn trace_call(tool_use: &ToolUse, number: usize) -> Call {
    // `Call::from_json` parses the printed arguments, so that it finds numbers that two parsers could read differently.
    Call::from_json(number.to_string(), tool_use.tool.clone(), &tool_use.arguments.to_string())
}

/// Returns the output of the call with this number as an entry of the trace. `is_error` says whether the call failed;
/// `None` if that is not known.
fn output(call: usize, content: Value, is_error: Option<bool>) -> TraceEntry {
    // `tool: None`: the call with this id says which tool it is.
    TraceEntry::from(Output { call_id: call.to_string(), tool: None, content, structured: None, is_error })
}
