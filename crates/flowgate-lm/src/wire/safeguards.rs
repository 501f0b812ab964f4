//! Defines [`SafeguardAnswer`]: how the gateway answers a request with the field `safeguards`, which asks whether the
//! calls of the answer are dangerous. The operator configures this for each client.
//!
//! In auto mode, Claude Code sends the field with each request of Anthropic's Messages API. If the answer does not flag
//! a call as dangerous, Claude Code runs the call without asking its user. The decoder of requests records that a
//! request has the field ([`super::ToolForms`]), and the encoders of answers add the field `safeguard_results`.

use serde_json::{Map, Value, json};

use crate::chat::ToolCall;

/// The only supported kind of safeguard: a verdict on each call.
pub(super) const DANGEROUS_TOOL_USE: &str = "dangerous_tool_use";

/// What an answer says about the danger of its calls, if its request asked for verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SafeguardAnswer {
    /// The answer says that the gateway does not judge whether calls are dangerous. The client then judges them itself.
    #[default]
    Unsupported,
    /// The answer says that no call is dangerous: a policy that the operator wrote for this purpose has permitted each.
    Permitted,
}

impl SafeguardAnswer {
    /// Returns the field `safeguard_results` of an answer with these calls. It says either that the gateway does not
    /// judge whether calls are dangerous, or, for each call by its id, that the call is not flagged as dangerous.
    pub(super) fn results(self, calls: &[ToolCall]) -> Value {
        let status = match self {
            Self::Unsupported => json!({"type": "unsupported"}),
            Self::Permitted => {
                let verdict = json!({"type": "evaluated", "outcome": "not_flagged"});
                let verdicts: Map<String, Value> =
                    calls.iter().map(|call| (call.id.clone(), verdict.clone())).collect();
                json!({"type": "available", "tool_uses": verdicts})
            }
        };
        json!([{"type": DANGEROUS_TOOL_USE, "status": status}])
    }
}
