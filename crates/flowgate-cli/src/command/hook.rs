//! Runs `flowgate hook`: judges the tool calls, tool outputs and prompts of a coding agent. The agent starts the
//! command for each of these events, and follows its answer.
//!
//! The command does not see what the model is shown, so everything that happened in the session counts as an influence
//! on a call. Agents continue without a hook that fails, so the command refuses every event that it cannot judge within
//! the time limit.
//!
//! * `transcript`, `session`: read the transcript of Claude Code and replay it in a monitor.
//! * `harness`, `session_log`, `logged`: read the events of other agents, record and replay them.
//! * `gateway`: asks the gateway that the agent uses whether it has judged the call too and let it pass.
//! * `answer`: defines the answer, and formats it for Claude Code; `harness` formats it for the other agents.
//!
//! With `--watch`, the answer is only recorded, and nothing is stopped. With `--traces`, the session is recorded as a
//! trace.

mod answer;
mod gateway;
mod harness;
mod logged;
mod session;
mod session_log;
mod transcript;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use flowgate::json::{self, Numbers};
use flowgate::monitor::{Attribution, Monitor, Outcome};
use flowgate::trace::{Call, Output as ToolOutput, TraceEntry};
use flowgate_audit::watch::{WatchLog, WatchedSubject, WatchedVerdict};
use serde_json::{Map, Value};

use crate::args::{Harness, HookArgs};
use crate::display_mode::{Color, ProgressMode};
use crate::input::InputError;
use crate::output::Console;
use crate::policy_file::load_policy;
use crate::state_folder::state_folder;
use crate::trace_folder::TraceFolder;
use answer::HookAnswer;
use gateway::{AgentCall, GatewayReport};
use harness::EventError;
use logged::LogSettings;
use transcript::PendingEvent;
use transcript::Transcript;

/// The largest object that is read from the standard input, in bytes.
const MAX_INPUT: u64 = 64 << 20;
/// The exit code of a failure that the agent reports, but that blocks nothing.
const NOT_BLOCKED: u8 = 1;
/// How long the hook waits for a transcript that lacks its last entries.
const TRANSCRIPT_DELAY: Duration = Duration::from_secs(1);
/// The time between two attempts to read a transcript that lacks entries.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The kinds of events that are judged, by their names in Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookEvent {
    PreToolUse,
    PostToolUse,
    UserPromptSubmit,
}

impl HookEvent {
    /// Returns the name of this kind of event in a watch log.
    fn subject(self) -> WatchedSubject {
        match self {
            Self::PreToolUse => WatchedSubject::Call,
            Self::PostToolUse => WatchedSubject::Output,
            Self::UserPromptSubmit => WatchedSubject::Prompt,
        }
    }
}

/// The messages of the thread that judges to the thread that prints the answer.
enum WorkerMessage {
    /// The kind of the event, which determines the form of a refusal, and the tool of the event; `None` if the event
    /// has no tool, or if the name of its tool is ambiguous.
    Event(HookEvent, Option<String>),
    /// The answer.
    Answer(HookAnswer),
    /// The trace of the session could not be recorded, for this reason. An answer follows.
    NoTrace(String),
    /// The reason why there is no answer, and the exit code.
    Nothing(String, u8),
}

/// Runs `flowgate hook`: judges the event on the standard input on a separate thread, and prints the answer. If the
/// thread has no answer within the time limit, prints a refusal. Returns the exit code: 0 if the event is answered, 1
/// if the agent is only to report a problem, and 2 if it is to block an event whose kind is not known.
///
/// # Errors
/// If there is no verdict, and the kind of the event, which determines the form of a refusal, is not known. The exit
/// code is then 2 as well.
pub(crate) fn run(options: &HookArgs, output: &mut Console) -> Result<u8, InputError> {
    let deadline = Instant::now() + Duration::from_secs(options.seconds.into());
    // The thread sends at most three messages, so it never waits for room.
    let (sender, receiver) = sync_channel(4);
    let worker_options = options.clone();
    // Judging runs on a separate thread, so that this thread can refuse the event if the other one panics or takes too
    // long.
    let worker =
        std::thread::Builder::new().name("hook".to_owned()).spawn(move || work(&worker_options, &sender));
    if let Err(error) = worker {
        let problem = format!("the system can start no thread: {error}; end other programs and try again");
        // In watch mode, a failure blocks no event.
        if options.watch.is_some() {
            output.error(&problem);
            return Ok(NOT_BLOCKED);
        }
        return Err(InputError(problem));
    }
    // The kind of the event and the name of its tool, once the thread has sent them.
    let mut event = None;
    // The exit code if the event is answered. It is not 0 if the trace cannot be recorded: that blocks nothing, but the
    // agent reports it.
    let mut answered = 0;
    loop {
        let why = match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(WorkerMessage::Event(received_event, tool)) => {
                event = Some((received_event, tool));
                continue;
            }
            Ok(WorkerMessage::NoTrace(why)) => {
                output.error(&why);
                answered = NOT_BLOCKED;
                continue;
            }
            Ok(WorkerMessage::Answer(answer)) => {
                return Ok(print_or_record(options, event, &answer, options.allow, output).max(answered));
            }
            Ok(WorkerMessage::Nothing(why, code)) => {
                output.error(&why);
                // In watch mode, a failure blocks no event.
                return Ok(if options.watch.is_some() { NOT_BLOCKED } else { code });
            }
            Err(RecvTimeoutError::Timeout) => {
                format!("there was no verdict within {} seconds, the limit of `--seconds`; raise it", options.seconds)
            }
            Err(RecvTimeoutError::Disconnected) => {
                "the thread that judges ended without a verdict; this is a defect of Flowgate; please report it".to_owned()
            }
        };
        let Some((kind, tool)) = event else {
            if options.watch.is_none() {
                return Err(InputError(why));
            }
            output.error(&why);
            return Ok(NOT_BLOCKED);
        };
        let answer = HookAnswer::from_failure(kind, &why);
        // `false`: a failure never allows a call explicitly.
        return Ok(print_or_record(options, Some((kind, tool)), &answer, false, output));
    }
}

/// Prints the answer or, if the hook only watches, appends it to the watch log. `event` is the kind of the event and
/// the name of its tool; `None` for an event that is not judged. With `allow`, the answer to a permitted call says
/// `allow`; without it, the agent's own permissions decide. Returns the exit code: 0, or 1 if the answer cannot be
/// recorded.
fn print_or_record(
    options: &HookArgs,
    event: Option<(HookEvent, Option<String>)>,
    answer: &HookAnswer,
    allow: bool,
    output: &mut Console,
) -> u8 {
    let Some(path) = &options.watch else {
        if let Some(line) = options.harness.print(answer, allow) {
            output.line(&line);
        }
        return 0;
    };
    // An event that is not judged has no verdict to record.
    let Some((kind, tool)) = event else { return 0 };
    let (outcome, reason) = answer.outcome();
    let verdict = WatchedVerdict { subject: kind.subject(), tool, outcome, reason };
    match WatchLog::new(path).append(&[verdict]) {
        Ok(()) => 0,
        Err(why) => {
            output.error(&why);
            NOT_BLOCKED
        }
    }
}

/// Reads and judges the event. Sends the waiting thread first the kind of the event, which determines the form of a
/// refusal if there is no verdict, and then the answer. Sending fails only if that thread has given up waiting, so
/// errors of `send` are ignored.
fn work(options: &HookArgs, worker_sender: &SyncSender<WorkerMessage>) {
    let hook_input = match read_input() {
        Ok(hook_input) => hook_input,
        Err(why) => {
            // With the code 2, the agent blocks the event: it may be one that must be judged.
            let _ = worker_sender.send(WorkerMessage::Nothing(why, 2));
            return;
        }
    };
    if options.harness != Harness::ClaudeCode {
        return work_by_log(options, &hook_input, worker_sender);
    }
    let event = match event_of(&hook_input) {
        Ok(event) => event,
        Err((why, code)) => {
            let _ = worker_sender.send(WorkerMessage::Nothing(why, code));
            return;
        }
    };
    let tool_name = hook_input.get("tool_name").and_then(Value::as_str);
    let tool = tool_name.and_then(transcript::unambiguous_tool).map(|tool| tool.to_string());
    let _ = worker_sender.send(WorkerMessage::Event(event, tool));
    let reported = match (event, tool_name, hook_input.get("tool_input")) {
        (HookEvent::PreToolUse, Some(tool), Some(arguments)) => {
            let id = hook_input.get("tool_use_id").and_then(Value::as_str);
            gateway::ask(options, AgentCall::OfModel { id, names: &[tool.to_owned()], arguments })
        }
        // The gateway is asked about calls only. A call without a name or arguments is denied without asking it.
        _ => GatewayReport::Unused,
    };
    let judged = judge(options, event, &hook_input, &reported).map(|(answer, monitor)| {
        // If the event states no id of the session, the path of the transcript is used as the id.
        let session =
            ["session_id", "transcript_path"].into_iter().find_map(|key| hook_input.get(key)?.as_str());
        record_trace(options, session.unwrap_or_default(), &monitor, worker_sender);
        answer
    });
    let answer = judged.unwrap_or_else(|why| HookAnswer::from_failure(event, &why));
    let answer = match never_asks(options) {
        Some(why) => answer.deny_question(why),
        None => answer,
    };
    let answer = reported.stricter(answer);
    // The tool has run, so a blocked output is replaced before the model receives it.
    let answer = if event == HookEvent::PostToolUse {
        answer.with_replacement(hook_input.get("tool_response"))
    } else {
        answer
    };
    let _ = worker_sender.send(WorkerMessage::Answer(answer));
}

/// Returns the kind of an event of Claude Code.
///
/// # Errors
/// If the hook does not judge events of this kind, or the event has no name. The error is the reason, with the exit
/// code.
fn event_of(hook_input: &Map<String, Value>) -> Result<HookEvent, (String, u8)> {
    let event_name = hook_input.get("hook_event_name").and_then(Value::as_str).unwrap_or_default();
    match event_name {
        "PreToolUse" => Ok(HookEvent::PreToolUse),
        "PostToolUse" => Ok(HookEvent::PostToolUse),
        "UserPromptSubmit" => Ok(HookEvent::UserPromptSubmit),
        _ if hook_input.contains_key("hook_event_name") => {
            let why = format!(
                "the hook is configured for the event `{event_name}` of Claude Code, which it does not judge; \
                configure it for PreToolUse, PostToolUse and UserPromptSubmit"
            );
            // The code 1 only reports the problem; 2 would block every event of this kind.
            Err((why, 1))
        }
        _ => {
            let why = "the string `hook_event_name` is missing in the input from Claude Code; see \
                `flowgate hook --help`";
            // An event without a name may be one that must be judged, so it is blocked.
            Err((why.to_owned(), 2))
        }
    }
}

/// Judges the event of an agent other than Claude Code, whose transcript is not read: the hook records the events of
/// such an agent in a file, and judges by this file. `hook_input` is the JSON object that the agent passed on the
/// standard input. Sends the waiting thread the kind of the event and then the answer, as [`work`] does.
fn work_by_log(
    options: &HookArgs,
    hook_input: &Map<String, Value>,
    worker_sender: &SyncSender<WorkerMessage>,
) {
    let event = match options.harness.parse(hook_input) {
        Ok(event) => event,
        Err(error) => {
            let (why, code) = match error {
                // The code 2 blocks an event, 1 only reports a problem.
                EventError::NotJudged(why) => (why, 1),
                EventError::Invalid(why) => (why, 2),
            };
            let _ = worker_sender.send(WorkerMessage::Nothing(why, code));
            return;
        }
    };
    let kind = event.kind.hook_event();
    if let Some(kind) = kind {
        let _ = worker_sender.send(WorkerMessage::Event(kind, event.kind.tool().map(ToString::to_string)));
    }
    let session = event.session.clone();
    let judged = new_monitor(options).and_then(|mut monitor| {
        // The option is in MiB.
        let limit = u64::from(options.max_transcript) << 20;
        let settings = LogSettings {
            folder: session_folder(options)?,
            limit,
            never_asks: never_asks(options),
            ask_gateway: &|call| gateway::ask(options, call),
            is_watching: options.watch.is_some(),
        };
        let answer = logged::judge(&mut monitor, options.harness, event, &settings)?;
        record_trace(options, &session, &monitor, worker_sender);
        Ok(answer)
    });
    let message = match (judged, kind) {
        (Ok(answer), _) => WorkerMessage::Answer(answer),
        (Err(why), Some(kind)) => WorkerMessage::Answer(HookAnswer::from_failure(kind, &why)),
        // The start of a session cannot be refused. At the next event, nothing is recorded of the session, so what came
        // before counts as unknown.
        (Err(why), None) => WorkerMessage::Nothing(why, 1),
    };
    let _ = worker_sender.send(message);
}

/// Writes the session so far, which is the trace of `monitor`, to its file in the folder of `--traces`. `session` is
/// the id of the session, from which the file gets its name. Does nothing without this option, or if nothing has
/// happened. A trace that cannot be written stops nothing: the main thread reports it.
fn record_trace(
    options: &HookArgs,
    session: &str,
    monitor: &Monitor,
    worker_sender: &SyncSender<WorkerMessage>,
) {
    let Some(folder) = options.traces.as_deref().filter(|_| !monitor.trace().is_empty()) else { return };
    let name = format!("{}-{}", options.harness.file_name(), session_log::file_name(session));
    if let Err(why) = TraceFolder::open(folder).and_then(|folder| folder.replace(&name, monitor)) {
        let _ = worker_sender.send(WorkerMessage::NoTrace(why));
    }
}

/// Returns the reason why no person can be asked; `None` if one can.
fn never_asks(options: &HookArgs) -> Option<&'static str> {
    options.harness.never_asks().or_else(|| options.no_questions.then_some("no person can be asked"))
}

/// Returns the folder with the files of sessions: that of `--sessions`, or else `hooks` in the [state
/// folder](state_folder()).
fn session_folder(options: &HookArgs) -> Result<PathBuf, String> {
    if let Some(folder) = &options.sessions {
        return Ok(folder.clone());
    }
    let state = state_folder()
        .ok_or("there is no folder for the files of sessions: set HOME, or give `--sessions FOLDER`")?;
    Ok(state.join("hooks"))
}

/// Creates an empty monitor for the policy of the command line, with its parameters and predicates. The error is a
/// message for the agent, because a hook that cannot judge refuses the event.
fn new_monitor(options: &HookArgs) -> Result<Monitor, String> {
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, &mut output).map_err(|error| error.0)?);
    let predicates = options.answering.predicates(&policy, &name).map_err(|error| error.0)?;
    let mut monitor = Monitor::new(policy);
    monitor.set_parameters(&options.parameters.iter().cloned().collect());
    // The empty list: no answers of predicates were recorded before.
    monitor.set_predicates(predicates, Vec::new());
    Ok(monitor)
}

/// Reads the event that the agent passes to the hook: one JSON object of at most [`MAX_INPUT`] bytes on the standard
/// input.
fn read_input() -> Result<Map<String, Value>, String> {
    let mut bytes = Vec::new();
    // Reads one byte more than the limit permits, to notice an input that is too long.
    let read = std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the standard input cannot be read: {error}; see `flowgate hook --help`"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_INPUT {
        return Err(format!(
            "the event on the standard input is longer than {} MiB; split the work into smaller calls",
            MAX_INPUT >> 20
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        "the input from the agent on the standard input is not valid UTF-8; see `flowgate hook --help`"
            .to_owned()
    })?;
    // Any spelling of a number is accepted: `Call::from_json` examines those of the call.
    match json::parse(&text, Numbers::Any) {
        Ok(Value::Object(hook_input)) => Ok(hook_input),
        Ok(_) => Err("the standard input is not a JSON object; see `flowgate hook --help`".to_owned()),
        Err(error) => {
            Err(format!("the standard input is not valid JSON: {error}; see `flowgate hook --help`"))
        }
    }
}

/// Returns the string at `key` of Claude Code's input. The error names the field.
fn required_text<'v>(hook_input: &'v Map<String, Value>, key: &str) -> Result<&'v str, String> {
    hook_input.get(key).and_then(Value::as_str).ok_or_else(|| {
        format!("the string `{key}` is missing in the input from Claude Code; see `flowgate hook --help`")
    })
}

/// Judges an event of Claude Code: replays the transcript so far in a new monitor, then judges the call, the output or
/// the prompt that the event adds. `hook_input` is the JSON object that Claude Code passed on the standard input, and
/// `reported` is what the gateway says about a call. Returns the answer, and the monitor for
/// [`record_trace`]. In watch mode, the call is added to the monitor's trace, since it runs whatever the verdict is.
///
/// # Errors
/// If the policy, the transcript or a field of `hook_input` cannot be read. The caller turns the error into a refusal.
fn judge(
    options: &HookArgs,
    event: HookEvent,
    hook_input: &Map<String, Value>,
    reported: &GatewayReport,
) -> Result<(HookAnswer, Monitor), String> {
    let mut monitor = new_monitor(options)?;
    let agent = hook_input.get("agent_id").and_then(Value::as_str).map(str::to_owned);
    let path = Path::new(required_text(hook_input, "transcript_path")?);
    // Only events of a tool have a call.
    let call = match event {
        HookEvent::UserPromptSubmit => None,
        HookEvent::PreToolUse | HookEvent::PostToolUse => Some(proposed_call(hook_input)?),
    };
    let pending =
        PendingEvent { id: call.as_ref().map(|call| call.id.clone()).unwrap_or_default(), agent, event };
    // The option is in MiB.
    let limit = u64::from(options.max_transcript) << 20;
    let transcript = read_up_to_date(path, limit, &pending)?;
    session::replay(&mut monitor, &transcript, &pending);
    let answer = match (event, call) {
        (HookEvent::PreToolUse, Some(call)) => judge_call(options, &mut monitor, call, reported),
        (_, Some(call)) => judge_output(event, hook_input, &mut monitor, call)?,
        // A prompt.
        (_, None) => {
            let content = Value::String(required_text(hook_input, "prompt")?.to_owned());
            let entry = TraceEntry::user(content);
            HookAnswer::from_objections(event, session::objections(&mut monitor, entry)?)
        }
    };
    Ok((answer, monitor))
}

/// Judges a call before its tool runs. In watch mode, also adds the call to the trace of `monitor`. The hook does not
/// see what the model was shown, so the call depends on everything, unless the gateway knows (`reported`).
fn judge_call(options: &HookArgs, monitor: &mut Monitor, call: Call, reported: &GatewayReport) -> HookAnswer {
    let attribution = reported.attribution(monitor);
    let verdict = monitor.judge_entry(TraceEntry::from(call.clone()), attribution.clone());
    let answer = HookAnswer::from_verdict(&verdict, monitor);
    // Drops the permit, if there is one: the monitor withdraws the judged call, so `record` can add it below.
    drop(verdict);
    if options.watch.is_some() {
        monitor.record(TraceEntry::from(call), &attribution);
    }
    answer
}

/// Examines the output of `call` after its tool has run, and before the model receives the output. `event` is the kind
/// of the event, for the answer.
///
/// # Errors
/// If the monitor does not accept the output.
fn judge_output(
    event: HookEvent,
    hook_input: &Map<String, Value>,
    monitor: &mut Monitor,
    call: Call,
) -> Result<HookAnswer, String> {
    let response = hook_input.get("tool_response").cloned().unwrap_or_default();
    let output = ToolOutput {
        call_id: call.id.clone(),
        // The call with this id says which tool it is.
        tool: None,
        content: answer::content(response),
        structured: None,
        // Claude Code runs this hook only after a tool that succeeded.
        is_error: Some(false),
    };
    // The transcript may not have the call yet, and its output needs one.
    if !session::has_call(monitor, &call.id) {
        monitor.record(TraceEntry::from(call), &Attribution::everything());
    }
    Ok(HookAnswer::from_objections(event, session::objections(monitor, TraceEntry::from(output))?))
}

/// Returns the call that an event of Claude Code is about: one that is proposed or, after a tool has run, one that has
/// run.
///
/// # Errors
/// If a field is missing, or the name of the tool is ambiguous.
fn proposed_call(hook_input: &Map<String, Value>) -> Result<Call, String> {
    let name = required_text(hook_input, "tool_name")?;
    let tool = transcript::unambiguous_tool(name).ok_or_else(|| {
        format!(
            "the tool name `{name}` does not determine which server and which tool it names, or the server has the \
            reserved name `flowgate`; in Claude Code, give the server another name, without `__`"
        )
    })?;
    // An input without an id gets one that no call of the transcript has.
    let id = hook_input.get("tool_use_id").and_then(Value::as_str).unwrap_or("(proposed)");
    let input = hook_input
        .get("tool_input")
        .ok_or("`tool_input` is missing in the input from Claude Code; see `flowgate hook --help`")?;
    // `Call::from_json` parses the printed input, so that it finds numbers that two parsers could read differently.
    Ok(Call::from_json(id, tool, &input.to_string()))
}

/// Reads the transcript again and again until it has the entries that the pending event requires: Claude Code may write
/// them a little later than it starts the hook. After [`TRANSCRIPT_DELAY`], returns what the transcript has. `limit` is
/// the largest size of the transcripts, in bytes.
///
/// # Errors
/// If the transcript still cannot be read after this time, or still lacks the sub-agent that makes the call.
fn read_up_to_date(path: &Path, limit: u64, pending: &PendingEvent) -> Result<Transcript, String> {
    let deadline = Instant::now() + TRANSCRIPT_DELAY;
    loop {
        // Before the first prompt of a session, the transcript need not exist.
        let read = Transcript::read(path, limit, pending.event == HookEvent::UserPromptSubmit);
        let is_late = Instant::now() >= deadline;
        match read {
            Ok(transcript) if is_late || transcript.has_pending(pending) => {
                return match &pending.agent {
                    Some(agent) if !transcript.has_agent(agent) => Err(
                        "Claude Code has not written the transcript of the sub-agent that makes this call; make the call again"
                            .to_owned(),
                    ),
                    _ => Ok(transcript),
                };
            }
            Err(why) if is_late => return Err(why),
            // Claude Code may be writing: the last line can be incomplete.
            _ => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// Returns the value of the field `permissionDecision` in an answer to Claude Code, for the outcome of a call.
pub(super) fn decision(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Permit => "allow",
        Outcome::Confirm => "ask",
        Outcome::Deny => "deny",
    }
}
