//! Asks the gateway that a coding agent uses as its base URL whether it has handed over a call, for [`super`] and
//! [`super::logged`].
//!
//! The gateway knows what the model was shown, and the hook what it has seen of the session. A call runs only if both
//! permit it: the hook asks the gateway about every call that it would not deny itself, and denies it if the gateway has not
//! handed it over, or does not answer.

use flowgate::monitor::Outcome;
use serde_json::{Value, json};

use super::answer::HookAnswer;
use crate::args::{Harness, HookArgs};
use crate::display_mode::{Color, ProgressMode};
use crate::gateway_client::{GatewayClient, GatewayError};
use crate::output::Console;

/// The route of the gateway that answers.
const ROUTE: &str = "/api/v1/handed-calls";

/// A call, by the names that the agent uses for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentCall<'a> {
    /// The id of the call; `None` if the agent states none.
    pub(super) id: Option<&'a str>,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
}

/// Returns the stricter one of the hook's own answer to a call and the gateway's, if the agent uses a gateway
/// (`--gateway`).
pub(super) fn stricter(options: &HookArgs, call: AgentCall<'_>, own: HookAnswer) -> HookAnswer {
    let Some(address) = &options.gateway else { return own };
    if own.outcome().0 == Outcome::Deny {
        return own;
    }
    match refusal(address, options, call) {
        None => own,
        Some(why) => HookAnswer::Call(Outcome::Deny, why, Vec::new()),
    }
}

/// Asks the gateway at `address` about a call. Returns why it does not run; `None` if the gateway has handed it over.
fn refusal(address: &str, options: &HookArgs, call: AgentCall<'_>) -> Option<String> {
    let must_be_equal = match options.harness {
        // Codex calls tools by other names in its hooks than in its requests, so its calls have only their ids in
        // common.
        Harness::Codex => false,
        Harness::ClaudeCode | Harness::Gemini | Harness::OpenCode => true,
        Harness::Cursor | Harness::Copilot => {
            return Some(
                "`--gateway` is for Claude Code, Codex, Gemini CLI and OpenCode; leave it out".to_owned(),
            );
        }
    };
    if call.id.is_none() && !must_be_equal {
        return Some(
            "the event states no id of the call, so the gateway cannot be asked about it".to_owned(),
        );
    }
    let mut output = Console::standard(Color::Never, ProgressMode::Never);
    let asked = json!({"id": call.id, "tool": call.tool, "arguments": call.arguments});
    let answer = GatewayClient::for_hook(address, options, &mut output)
        .map_err(|error| error.0)
        .and_then(|gateway| gateway.post(ROUTE, &asked).map_err(GatewayError::into_sentence));
    let report = match answer {
        Ok(report) => report,
        Err(why) => {
            return Some(format!(
                "the gateway cannot be asked about this call, so the call is denied: {why}"
            ));
        }
    };
    // A field that is missing counts as false.
    let says = |key: &str| report.get(key).and_then(Value::as_bool) == Some(true);
    if !says("handed_over") {
        return Some(
            "the gateway has not handed over this call: the agent has asked a model without the gateway, or the gateway \
             was restarted; make the call again"
                .to_owned(),
        );
    }
    (must_be_equal && !says("is_equal")).then(|| {
        "the gateway has handed over another call under this id, with another tool or other arguments"
            .to_owned()
    })
}
