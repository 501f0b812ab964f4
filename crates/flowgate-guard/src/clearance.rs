//! Determines the clearance of each endpoint that receives text, the greatest label that it may read
//! ([`EndpointClearances`]). A [conversation](crate::conversation) determines the clearances once, when it is
//! created.
//!
//! A model is operated by some party. The policy sets the clearance of that party with a requirement of the tool
//! `flowgate/model`, `flowgate/screener` or `flowgate/filler`, in the dimensions that matter:
//!
//! ```text
//! require internal if:
//!     (call: ToolCall) is tool:flowgate/model
//! ```
//!
//! Text that does not flow to the clearance of an endpoint is never sent to it, whichever method chooses the labels
//! of the steps. The model is shown placeholders instead. A region that the screener may not read counts as needed, and
//! a slot is not filled by a filler that may not read its regions. Without a statement for the model, the model may be
//! shown everything; without one for the screener or the filler, the clearance of the model applies.

use flowgate::label::Label;
use flowgate::monitor::Monitor;

/// The clearance of each endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointClearances {
    pub(crate) model: Label,
    pub(crate) screener: Label,
    pub(crate) filler: Label,
}

impl EndpointClearances {
    /// Reads the clearances from the policy. A model without one may read everything; a screener or a filler without
    /// one has the clearance of the model.
    pub(crate) fn of(monitor: &Monitor) -> Self {
        let model = monitor.clearance("model").unwrap_or_else(|| monitor.policy().space().top());
        let clearance_of = |endpoint: &str| monitor.clearance(endpoint).unwrap_or(model);
        Self { model, screener: clearance_of("screener"), filler: clearance_of("filler") }
    }
}
