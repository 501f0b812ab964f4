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
use crate::args::{Harness, HookArgs};
use crate::display_mode::{Color, ProgressMode};
use crate::gateway_client::GatewayClient;
use crate::output::Console;

/// The route of the gateway that answers.
const ROUTE: &str = "/api/v1/handed-calls";

/// A call, as the agent states it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentCall<'a> {
    /// The id of the call; `None` if the agent states none.
    pub(super) id: Option<&'a str>,
    /// The names by which the model may have called the tool: the gateway knows the call by one of them.
    pub(super) names: &'a [String],
    pub(super) arguments: &'a Value,
}

/// What the gateway says about a call.
pub(super) enum GatewayReport {
    /// The agent uses no gateway.
    Unused,
    /// The call does not run, for this reason.
    Refused(String),
    /// The gateway has handed over the call.
    HandedOver {
        /// The digest of the gateway's policy, and the label at which it has judged the call, as names. `None` if the
        /// gateway does not state them.
        judged: Option<(String, Value)>,
    },
}

impl GatewayReport {
    /// Returns what the call depends on, for a hook whose policy is that of `monitor`. If the gateway enforces the same
    /// policy, the call has the label at which the gateway has judged it, since the gateway knows what the model was
    /// shown. Otherwise the call depends on everything in the session.
    pub(super) fn attribution(&self, monitor: &mut Monitor) -> Attribution {
        match self {
            Self::HandedOver { judged: Some((policy, names)) }
                if *policy == policy_digest(monitor.policy()) =>
            {
                // `0`: the gateway does not say how many regions it has hidden.
                Attribution::view("gateway", monitor.from_names(names), 0)
            }
            _ => Attribution::everything(),
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
        Ok(judged) => GatewayReport::HandedOver { judged },
        Err(why) => GatewayReport::Refused(why),
    }
}

/// Asks the gateway at `address` about a call. Returns the digest of the gateway's policy and the label of the call, if
/// the gateway states them.
///
/// # Errors
/// If the gateway has not handed over the call, or does not answer: the reason why the call does not run.
fn ask_at(address: &str, options: &HookArgs, call: AgentCall<'_>) -> Result<Option<(String, Value)>, String> {
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
    if call.id.is_none() && !must_be_equal {
        return Err(
            "the event states no id of the call, so the gateway cannot be asked about it; use a version of Codex \
             whose hooks state `tool_use_id`"
                .to_owned(),
        );
    }
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let failed = |why| format!("the gateway cannot be asked about this call, so the call is denied: {why}");
    let gateway = GatewayClient::for_hook(address, options, &mut output).map_err(|error| failed(error.0))?;
    let mut found: Result<Option<(String, Value)>, String> = Err(UNKNOWN.to_owned());
    for name in call.names {
        let asked = json!({"id": call.id, "tool": name, "arguments": call.arguments});
        let report = gateway.post(ROUTE, &asked).map_err(|error| failed(error.into_sentence()))?;
        found = match (found, read_report(&report, must_be_equal)) {
            // Several handed-over calls can be the call of this event. Their label counts only if all of them have the
            // same one.
            (Ok(label), Ok(other)) => Ok(label.filter(|label| other.as_ref() == Some(label))),
            (Ok(label), Err(_)) => Ok(label),
            (Err(_), found) => found,
        };
    }
    found
}

/// Why a call does not run that the gateway does not know.
const UNKNOWN: &str = "the gateway has not handed over this call: the agent has asked a model without the gateway, or the \
    gateway was restarted; make the call again";

/// Reads what the gateway says about a call. `must_be_equal` says whether the tool and the arguments must be those of the
/// call that the gateway has handed over. Returns the digest of the gateway's policy and the label of the call, if the
/// gateway states them.
///
/// # Errors
/// If the gateway has not handed over the call: the reason why the call does not run.
fn read_report(report: &Value, must_be_equal: bool) -> Result<Option<(String, Value)>, String> {
    // A field that is missing counts as false.
    let says = |key: &str| report.get(key).and_then(Value::as_bool) == Some(true);
    if !says("handed_over") {
        return Err(UNKNOWN.to_owned());
    }
    if must_be_equal && !says("is_equal") {
        return Err(
            "the gateway has handed over another call under this id, with another tool or other arguments; make the \
            call again"
                .to_owned(),
        );
    }
    let label = report.get("label");
    let policy = label.and_then(|label| label.get("policy")).and_then(Value::as_str);
    let names = label.and_then(|label| label.get("names")).filter(|names| names.is_object());
    Ok(policy.zip(names).map(|(policy, names)| (policy.to_owned(), names.clone())))
}
