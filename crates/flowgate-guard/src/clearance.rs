//! Who else reads: the endpoints that are shown text, and the most that each may be shown.
//!
//! A model is run by somebody. The policy says what that somebody may read, by a requirement of the tool
//! `flowgate/model`, `flowgate/screener` or `flowgate/filler`, in the dimensions in which it matters:
//!
//! ```text
//! require internal if:
//!     (call: ToolCall) is tool:flowgate/model
//! ```
//!
//! What does not flow there is never sent there, whatever the method: the model is shown placeholders, a region that a
//! screener may not see counts as needed, and a slot is not filled by who may not read it. A policy that says nothing of
//! the model means the agent's own, which may be shown everything; one that says nothing of the others means that they
//! are run by the same people as the model.

use flowgate::label::Label;
use flowgate::monitor::Monitor;

/// The most that each endpoint may be shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clearance {
    pub(crate) model: Label,
    pub(crate) screener: Label,
    pub(crate) filler: Label,
}

impl Clearance {
    /// What the policy says of them.
    pub(crate) fn of(monitor: &Monitor) -> Self {
        let model = monitor.clearance("model").unwrap_or_else(|| monitor.policy().space().top());
        let other = |endpoint: &str| monitor.clearance(endpoint).unwrap_or(model);
        Self { model, screener: other("screener"), filler: other("filler") }
    }
}
