//! Implements the method *provenance*: the model first writes a draft with everything in view. If the calls of the
//! draft need less than everything, the step is rewritten from a smaller view.
//!
//! The label of the smaller view is the join of the label of the current level and of the labels of the regions from
//! which the arguments of the calls come. The [influence method of the same name](crate::influence::provenance)
//! determines these regions. Arguments that can be left to a slot do not count, and a draft without calls is accepted.
//! The choice of the label can reveal up to log2(number of labels) bits of hidden text, which are counted.

use flowgate::label::Label;
use flowgate::monitor::CallDependency;
use flowgate::trace::{Call, EventId, Trace, TraceEntry};

use super::StepMethod;
use super::draft::{Draft, DraftJudge, DraftVerdict};
use crate::influence::provenance::ProvenanceMethod;
use crate::influence::{AttributionSession, InfluenceMethod};

/// The method *provenance*.
#[derive(Debug, Clone, Copy)]
pub struct Provenance;

impl StepMethod for Provenance {
    fn name(&self) -> &'static str {
        "provenance"
    }

    fn doc(&self) -> &'static str {
        "everything for a draft; for the step, the regions from which the draft takes its values"
    }

    fn shows_everything(&self) -> bool {
        // The draft is shown everything, its rewrite less.
        true
    }

    fn has_slots(&self) -> bool {
        true
    }

    fn start_drafts(&self) -> Option<Box<dyn DraftJudge>> {
        Some(Box::new(DraftProvenance { session: ProvenanceMethod.start(), read: 0 }))
    }

    fn raises_level(&self) -> bool {
        // Later steps of the turn are shown what this one was shown and did.
        true
    }
}

/// Judges drafts by the influence method *provenance*.
#[derive(Debug)]
struct DraftProvenance {
    /// The state of the influence method over this conversation.
    session: Box<dyn AttributionSession>,
    /// The number of events of the trace that `session` has observed.
    read: usize,
}

impl DraftProvenance {
    /// Passes the events since the last draft to the influence method.
    fn observe_new_events(&mut self, trace: &Trace) {
        for id in self.read..trace.events().len() {
            self.session.observe(trace, EventId(id));
        }
        self.read = trace.events().len();
    }

    /// Returns the join of the label of the current level and of the labels of the regions from which the arguments of
    /// the calls come, apart from arguments that can be slots.
    fn needed_label(&mut self, draft: &Draft<'_>) -> Label {
        let trace = draft.monitor.trace();
        self.observe_new_events(trace);
        let mut needed = draft.level;
        for call in &draft.calls {
            // The call is not added to the trace, so it needs no id.
            let call_of_draft = Call::from_json(String::new(), call.tool.clone(), &call.arguments);
            let entry = TraceEntry::from(call_of_draft);
            for (argument, source) in &self.session.attribute(trace, &entry).arguments {
                if !call.slots.contains(argument) {
                    needed = needed.join(&source_label(source, trace, &draft.label));
                }
            }
        }
        needed
    }
}

impl DraftJudge for DraftProvenance {
    /// Accepts a draft without calls. Otherwise the step is generated at the label of what the draft took its values
    /// from; if this label does not flow to the draft's label, the draft is accepted. The choice may be any label, so
    /// it reveals as many bits as a label has.
    fn judge(&mut self, draft: &Draft<'_>) -> DraftVerdict {
        let bits = draft.monitor.policy().space().bits();
        // A message without calls may be accepted: it acts on nothing.
        if !draft.has_calls {
            return DraftVerdict { label: draft.label, bits };
        }
        let needed = self.needed_label(draft);
        // A label that does not flow to the draft's label belongs to text that the draft was not shown.
        let label = if needed.flows_to(&draft.label) { needed } else { draft.label };
        DraftVerdict { label, bits }
    }

    fn keeps_drafts(&self) -> bool {
        // The rewrite may not see enough to make the calls of the draft.
        true
    }
}

/// Returns the join of the labels of the regions that an argument depends on. If it depends on more than regions,
/// returns `everything`, the label of all that the model was shown.
fn source_label(source: &CallDependency, trace: &Trace, everything: &Label) -> Label {
    let CallDependency::Regions(regions) = source else { return *everything };
    // A region of an event that is not in the trace could be anything that the model was shown.
    let label = |(event, node): &(EventId, usize)| {
        trace.event(*event).map_or(*everything, |event| event.document.label_of(*node))
    };
    regions.iter().fold(Label::BOTTOM, |reach, region| reach.join(&label(region)))
}
