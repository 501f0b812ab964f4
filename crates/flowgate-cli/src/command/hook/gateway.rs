//! Asks the gateway that a coding agent uses as its base URL whether the gateway has handed over a call, that is, has
//! judged it and returned it to the agent to be run. [`super`] and [`super::logged`] call it.
//!
//! The gateway knows what the model was shown, and the hook knows what has happened in the session. A call runs only if
//! both permit it: the hook asks the gateway about every call, and denies a call that the gateway has not handed over,
//! or about which the gateway does not answer. If both enforce the same policy, the hook judges the call at the label
//! at which the gateway has judged it, not at the label of everything in the session.

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

/// A call about which the gateway is asked, as the agent states it.
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
    /// A call by a program (tool script) that the model has written, in the form that the program has for it; `None` if
    /// this form is not known.
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
    /// Returns what the call depends on, for judging it in `monitor`. If the gateway enforces the policy of `monitor`,
    /// the call has the label at which the gateway has judged it, since the gateway knows what the model was shown. If
    /// several calls that the gateway has handed over can be this one, the label is the join of their labels. With
    /// another policy, or if the label is not known, the call depends on everything in the session.
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

    /// Returns the stricter one of two answers to the call: `own`, that of the hook, and that of the gateway.
    pub(super) fn stricter(self, own: HookAnswer) -> HookAnswer {
        match self {
            Self::Refused(why) if own.outcome().0 != Outcome::Deny => {
                HookAnswer::Call(Outcome::Deny, why, Vec::new())
            }
            _ => own,
        }
    }
}

/// Asks the gateway about a call, if the agent uses a gateway (`--gateway`).
pub(super) fn ask(options: &HookArgs, call: AgentCall<'_>) -> GatewayReport {
    let Some(address) = &options.gateway else { return GatewayReport::Unused };
    match ask_at(address, options, call) {
        Ok(labels) => GatewayReport::HandedOver { labels },
        Err(why) => GatewayReport::Refused(why),
    }
}

/// Asks the gateway at `address` about a call. Several calls that it has handed over can be this one, for example equal
/// calls of several conversations. Returns the labels at which it has judged them; an empty list if it does not know
/// the label of each.
///
/// # Errors
/// If the gateway has not handed over the call, or does not answer. The error is the reason why the call does not run.
fn ask_at(address: &str, options: &HookArgs, call: AgentCall<'_>) -> Result<Vec<StatedLabel>, String> {
    // Whether the tool and the arguments must be equal to those that the gateway has handed over.
    let must_be_equal = match options.harness {
        // Codex names tools differently in its hooks and in its requests, so only the ids of calls can be compared.
        Harness::Codex => false,
        Harness::ClaudeCode | Harness::Copilot | Harness::Gemini | Harness::OpenCode => true,
        Harness::Cursor => {
            return Err(
                "`--gateway` works with Claude Code, Codex, Copilot CLI, Gemini CLI and OpenCode, not with Cursor; leave it out"
                    .to_owned(),
            );
        }
    };
    let (questions, unknown) = questions_about(call, must_be_equal)?;
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let failed = |why| format!("the gateway cannot be asked about this call, so the call is denied: {why}");
    let gateway = GatewayClient::for_hook(address, options, &mut output).map_err(|error| failed(error.0))?;
    // Until the gateway says otherwise, it has not handed over the call.
    let mut found: Result<Vec<StatedLabel>, String> = Err(unknown.to_owned());
    for question in questions {
        let report = gateway.post(ROUTE, &question).map_err(|error| failed(error.into_sentence()))?;
        found = match (found, read_report(&report, must_be_equal, unknown)) {
            // Several handed-over calls can be this call. If the label of one of them is not known, their join is not
            // known either.
            (Ok(labels), Ok(more)) if labels.is_empty() || more.is_empty() => Ok(Vec::new()),
            (Ok(labels), Ok(more)) => Ok(labels.into_iter().chain(more).collect()),
            (Ok(labels), Err(_)) => Ok(labels),
            (Err(_), found) => found,
        };
    }
    found
}

/// Returns the questions to the gateway about a call, one for each name that the tool may have in requests; and the
/// reason why the call does not run if the gateway knows no such call. `must_be_equal` is false if only the ids of
/// calls can be compared.
///
/// # Errors
/// If the gateway cannot be asked about this call.
fn questions_about(call: AgentCall<'_>, must_be_equal: bool) -> Result<(Vec<Value>, &'static str), String> {
    match call {
        AgentCall::OfModel { id: None, .. } if !must_be_equal => Err(
            "the event states no id of the call, so the gateway cannot be asked about it; use a version of Codex \
             whose hooks state `tool_use_id`"
                .to_owned(),
        ),
        AgentCall::OfModel { id, names, arguments } => {
            let question = |name| json!({"id": id, "tool": name, "arguments": arguments});
            Ok((names.iter().map(question).collect(), UNKNOWN))
        }
        AgentCall::OfProgram(Some(call)) => Ok((vec![call.question()], UNKNOWN_IN_PROGRAM)),
        AgentCall::OfProgram(None) => Err(NOT_OF_PROGRAMS.to_owned()),
    }
}

/// The reason why a call that the gateway does not know does not run.
const UNKNOWN: &str = "the gateway has not handed over this call: the agent has asked a model without the gateway, or the \
    gateway was restarted; make the call again";

/// The reason why a call does not run that a program makes and the gateway does not know.
const UNKNOWN_IN_PROGRAM: &str = "the gateway has not handed over this call: it knows no program that makes it; write out \
    each call with its arguments, without `try`, assignments and values that other calls return";

/// The reason why a call of a program does not run if it is not known how the program has written the call.
const NOT_OF_PROGRAMS: &str = "the gateway cannot be asked about this call of a program, since the event does not have \
    the arguments that events of Codex 0.171.0 have; use that version of Codex";

/// Reads `report`, the gateway's answer to one question about a call. With `must_be_equal`, the tool and the arguments
/// must be those of the call that the gateway has handed over. Returns the labels of the calls that can be this one; an
/// empty list if the gateway does not know the label of each.
///
/// # Errors
/// If the gateway has not handed over the call. The error is the reason why the call does not run; it is `unknown` if
/// the gateway knows no such call.
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
    /// Returns the label that the gateway states; `None` if `label` does not have the form of such a statement.
    fn read(label: &Value) -> Option<Self> {
        let policy = label.get("policy")?.as_str()?.to_owned();
        let names = label.get("names").filter(|names| names.is_object())?.clone();
        Some(Self { policy, names })
    }
}
