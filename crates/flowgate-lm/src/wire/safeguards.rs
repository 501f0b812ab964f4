//! Defines what an answer says about the `safeguards` of its request. Claude Code in auto mode asks with each request
//! of Anthropic's Messages API for a verdict on every call in the answer, and runs a call without a question if the
//! verdict does not flag it. The decoder of a request records that it asks; the encoders of answers add
//! `safeguard_results`.

use serde_json::{Map, Value, json};

use crate::chat::ToolCall;

/// The kind of safeguard that is known: a verdict on each call.
pub(super) const DANGEROUS_TOOL_USE: &str = "dangerous_tool_use";

/// What an answer says about the danger of its calls, if its request asked for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SafeguardAnswer {
    /// The answer says that the gateway does not judge whether calls are dangerous. The client then judges them itself.
    #[default]
    Unsupported,
    /// The answer says that no call is dangerous: a policy that the operator wrote for this purpose has permitted each.
    Permitted,
}

impl SafeguardAnswer {
    /// Returns the `safeguard_results` of an answer with these calls: that calls are not judged, or that none of them
    /// is dangerous.
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
