//! Asks the gateway that a coding agent uses as its base URL whether the gateway has handed over a call, that is, has
//! judged it and returned it to the agent to be run. [`super`] and [`super::logged`] call it.
//!
//! The gateway knows what the model was shown, and the hook knows what has happened in the session. A call runs only if
//! both permit it: the hook asks the gateway about every call, and denies a call that the gateway has not handed over,
//! or about which it does not answer. If both enforce the same policy, the hook judges the call at the label at which
//! the gateway has judged it, not at the label of everything in the session.

use flowgate::monitor::{Attribution, Monitor, Outcome};
use flowgate_audit::policy_digest;
use serde_json::{Value, json};

use super::answer::HookAnswer;
use super::harness::ProgramCall;
use crate::args::{Harness, HookArgs};
use crate::display_mode::{Color, ProgressMode};
use crate::gateway_client::GatewayClient;
use crate::output::Console;

/// The route of the gateway that answers.
const ROUTE: &str = "/api/v1/handed-calls";

/// A call, as the agent states it.
#[derive(Debug, Clone, Copy)]
pub(super) enum AgentCall<'a> {
    /// A call that the model makes itself.
    OfModel {
        /// The id of the call; `None` if the agent states none.
        id: Option<&'a str>,
        /// The names by which the model may have called the tool: the gateway knows the call by one of them.
        names: &'a [String],
        arguments: &'a Value,
    },
    /// A call that a program of the model makes, as the program has it; `None` if that is not known.
    OfProgram(Option<&'a ProgramCall>),
}

/// What the gateway says about a call.
pub(super) enum GatewayReport {
    /// The agent uses no gateway.
    Unused,
    /// The call does not run, for this reason.
    Refused(String),
    /// The gateway has handed over the call.
    HandedOver {
        /// The labels at which the gateway has judged the calls that can be this one. Empty if the gateway does not
        /// know them all.
        labels: Vec<StatedLabel>,
    },
}

/// A label at which the gateway has judged a call.
#[derive(Debug, PartialEq)]
pub(super) struct StatedLabel {
    /// The digest of the gateway's policy.
    policy: String,
    /// The label, as names.
    names: Value,
}

impl GatewayReport {
    /// Returns what the call depends on, for a hook whose policy is that of `monitor`. If the gateway enforces the same
    /// policy, the call has the label at which the gateway has judged it, since the gateway knows what the model was
    /// shown. If it can be one of several calls, it has the join of their labels, which is not lower than its own.
    /// Otherwise the call depends on everything in the session.
    pub(super) fn attribution(&self, monitor: &mut Monitor) -> Attribution {
        let Self::HandedOver { labels } = self else { return Attribution::everything() };
        let policy = policy_digest(monitor.policy());
        if labels.iter().any(|label| label.policy != policy) {
            return Attribution::everything();
        }
        let labels = labels.iter().map(|label| monitor.from_names(&label.names));
        match labels.reduce(|one, other| one.join(&other)) {
            // `0`: the gateway does not say how many regions it has hidden.
            Some(label) => Attribution::view("gateway", label, 0),
            None => Attribution::everything(),
        }
    }

    /// Returns the stricter one of the hook's own answer to the call and the gateway's.
    pub(super) fn stricter(self, own: HookAnswer) -> HookAnswer {
        match self {
            Self::Refused(why) if own.outcome().0 != Outcome::Deny => {
                HookAnswer::Call(Outcome::Deny, why, Vec::new())
            }
            _ => own,
        }
    }
}

/// Asks the gateway about a call, if the agent uses one (`--gateway`).
pub(super) fn ask(options: &HookArgs, call: AgentCall<'_>) -> GatewayReport {
    let Some(address) = &options.gateway else { return GatewayReport::Unused };
    match ask_at(address, options, call) {
        Ok(labels) => GatewayReport::HandedOver { labels },
        Err(why) => GatewayReport::Refused(why),
    }
}

/// Asks the gateway at `address` about a call. Returns the labels of the calls that can be this one; none if the gateway
/// does not know them all.
///
/// # Errors
/// If the gateway has not handed over the call, or does not answer: the reason why the call does not run.
fn ask_at(address: &str, options: &HookArgs, call: AgentCall<'_>) -> Result<Vec<StatedLabel>, String> {
    let must_be_equal = match options.harness {
        // Codex names tools differently in its hooks and in its requests, so only the ids of calls can be compared.
        Harness::Codex => false,
        Harness::ClaudeCode | Harness::Copilot | Harness::Gemini | Harness::OpenCode => true,
        Harness::Cursor => {
            return Err(
                "`--gateway` is for Claude Code, Codex, Copilot CLI, Gemini CLI and OpenCode; leave it out"
                    .to_owned(),
            );
        }
    };
    // The questions, and why the call does not run if the gateway knows no such call.
    let (questions, unknown) = match call {
        AgentCall::OfModel { id: None, .. } if !must_be_equal => {
            return Err(
                "the event states no id of the call, so the gateway cannot be asked about it; use a version of Codex \
                 whose hooks state `tool_use_id`"
                    .to_owned(),
            );
        }
        AgentCall::OfModel { id, names, arguments } => {
            let question = |name| json!({"id": id, "tool": name, "arguments": arguments});
            (names.iter().map(question).collect(), UNKNOWN)
        }
        AgentCall::OfProgram(Some(call)) => (vec![call.question()], UNKNOWN_IN_PROGRAM),
        AgentCall::OfProgram(None) => return Err(NOT_OF_PROGRAMS.to_owned()),
    };
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let failed = |why| format!("the gateway cannot be asked about this call, so the call is denied: {why}");
    let gateway = GatewayClient::for_hook(address, options, &mut output).map_err(|error| failed(error.0))?;
    let mut found: Result<Vec<StatedLabel>, String> = Err(unknown.to_owned());
    for asked in questions {
        let report = gateway.post(ROUTE, &asked).map_err(|error| failed(error.into_sentence()))?;
        found = match (found, read_report(&report, must_be_equal, unknown)) {
            // Several handed-over calls can be the call of this event. If the label of one is not known, neither is the
            // join.
            (Ok(labels), Ok(more)) if labels.is_empty() || more.is_empty() => Ok(Vec::new()),
            (Ok(labels), Ok(more)) => Ok(labels.into_iter().chain(more).collect()),
            (Ok(labels), Err(_)) => Ok(labels),
            (Err(_), found) => found,
        };
    }
    found
}

/// Why a call does not run that the gateway does not know.
const UNKNOWN: &str = "the gateway has not handed over this call: the agent has asked a model without the gateway, or the \
    gateway was restarted; make the call again";

/// Why a call of a program does not run that the gateway does not know.
const UNKNOWN_IN_PROGRAM: &str = "the gateway has not handed over this call: it knows no program that makes it; write out \
    each call with its arguments, without `try`, assignments and values that other calls return";

/// Why a call of a program does not run if it is not known how the program has written it.
const NOT_OF_PROGRAMS: &str = "the gateway cannot be asked about this call of a program, since the event has other \
    arguments than those of Codex 0.171.0; use that version";

/// Reads what the gateway says about a call. `must_be_equal` says whether the tool and the arguments must be those of the
/// call that the gateway has handed over. Returns the labels of the calls that can be this one; none if the gateway does
/// not know them all.
///
/// # Errors
/// If the gateway has not handed over the call: the reason why the call does not run, which is `unknown` if the gateway
/// knows no such call.
fn read_report(report: &Value, must_be_equal: bool, unknown: &str) -> Result<Vec<StatedLabel>, String> {
    // A field that is missing counts as false.
    let says = |key: &str| report.get(key).and_then(Value::as_bool) == Some(true);
    if !says("handed_over") {
        return Err(unknown.to_owned());
    }
    if must_be_equal && !says("is_equal") {
        return Err(
            "the gateway has handed over another call under this id, with another tool or other arguments; make the \
            call again"
                .to_owned(),
        );
    }
    let labels = report.get("labels").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let read = labels.iter().map(StatedLabel::read).collect::<Option<_>>();
    Ok(read.unwrap_or_default())
}

impl StatedLabel {
    /// Returns the label that the gateway states; `None` if it has another form.
    fn read(label: &Value) -> Option<Self> {
        let policy = label.get("policy")?.as_str()?.to_owned();
        let names = label.get("names").filter(|names| names.is_object())?.clone();
        Some(Self { policy, names })
    }
}
