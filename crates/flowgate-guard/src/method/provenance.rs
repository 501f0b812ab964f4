//! Implements the method *provenance*: the model first writes a draft with everything in view. If the calls of the
//! draft need less than everything, the step is rewritten from a smaller view.
//!
//! The label of the smaller view is the join of the label of the current level and of the labels of the regions from
//! which the arguments of the calls come. The [influence method of the same name](crate::influence::provenance)
//! determines these regions. An argument that can be left to a slot counts only if a slot with the value of the draft
//! would be refused. That is the case if only an endorsement permits the slot, and the value does not have the endorsed
//! form or is too confidential: in the smaller view, the model could not write such a value, and no person would be
//! asked about it. A draft without calls is accepted. The choice of the label can reveal up to log2(number of labels)
//! bits of hidden text, which are counted.
//!
//! A step *acts* when a call of it that the policy does not declare harmless is released to run. Such a step raises the
//! label of the rest of the turn, so that later steps see what it did. If all such calls of a step are refused, the
//! step has done nothing that later steps must see.

use flowgate::label::Label;
use flowgate::monitor::{Attribution, CallDependency, Monitor};
use flowgate::trace::{Call, EventId, Trace, TraceEntry};

use super::StepMethod;
use super::draft::{Draft, DraftCall, DraftJudge, DraftVerdict};
use crate::influence::provenance::ProvenanceMethod;
use crate::influence::{AttributionSession, InfluenceMethod};
use crate::slot;

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
        // Later steps of the turn are shown what a step that acted was shown and did.
        true
    }
}

/// Judges drafts by the influence method *provenance*.
#[derive(Debug)]
struct DraftProvenance {
    /// The state of the influence method over this conversation.
    session: Box<dyn AttributionSession>,
    /// The number of events of the trace that were passed to `session`.
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

    /// Returns the label at which the step has to be generated: the join of the label of the current level and of the
    /// labels of the regions from which the arguments of the calls come. An argument that can be left to a slot counts
    /// only if a slot with the value of the draft would be refused.
    fn needed_label(&mut self, draft: &Draft<'_>) -> Label {
        self.observe_new_events(draft.monitor.trace());
        let mut needed = draft.level;
        let mut with_slots = Vec::new();
        for call in &draft.calls {
            let arguments = self.attributed_arguments(call, draft);
            let (slots, others): (Vec<_>, Vec<_>) =
                arguments.into_iter().partition(|argument| call.slots.contains(&argument.name));
            needed = others.iter().fold(needed, |needed, argument| needed.join(&argument.label));
            with_slots.push(CallWithSlots { call, slots });
        }
        // An argument that would be refused as a slot raises the label of the step. The slots of a step at the raised
        // label carry this label as well, so the other slots are judged again. Each round but the last raises the
        // label, so the loop ends.
        loop {
            let unfit = with_slots.iter().map(|call| call.label_of_unfit_slots(draft.monitor, &needed));
            let raised = unfit.fold(needed, |raised, label| raised.join(&label));
            if raised == needed {
                return needed;
            }
            needed = raised;
        }
    }

    /// Returns the arguments of a call, each with what its value depends on.
    fn attributed_arguments(&mut self, call: &DraftCall, draft: &Draft<'_>) -> Vec<AttributedArgument> {
        let trace = draft.monitor.trace();
        // The call is not added to the trace, so it needs no id.
        let call_of_draft = Call::from_json(String::new(), call.tool.clone(), &call.arguments);
        let attribution = self.session.attribute(trace, &TraceEntry::from(call_of_draft));
        let attributed = attribution.arguments.into_iter().map(|(name, source)| {
            let label = source_label(&source, trace, &draft.label);
            AttributedArgument { name, source, label }
        });
        attributed.collect()
    }
}

/// An argument of a call of a draft.
#[derive(Debug)]
struct AttributedArgument {
    name: String,
    /// What the value depends on.
    source: CallDependency,
    /// The label of `source`.
    label: Label,
}

/// A call of a draft with its arguments that can be slots.
#[derive(Debug)]
struct CallWithSlots<'d> {
    call: &'d DraftCall,
    slots: Vec<AttributedArgument>,
}

impl CallWithSlots<'_> {
    /// Returns the join of the labels of the arguments that would be refused as slots of a step at the label `view`:
    /// only an endorsement permits such a slot, and the value of the draft does not satisfy it.
    fn label_of_unfit_slots(&self, monitor: &Monitor, view: &Label) -> Label {
        // Only an argument whose source is hidden from the step is left to a slot. The step writes the others itself.
        let open: Vec<_> = self.slots.iter().filter(|argument| !argument.label.flows_to(view)).collect();
        if !open.iter().any(|argument| self.call.endorsed.contains(&argument.name)) {
            return Label::BOTTOM;
        }
        // The call is not added to the trace, so its id does not matter.
        let id = format!("draft{}", self.call.index);
        let call = Call::from_json(id, self.call.tool.clone(), &self.call.arguments);
        let values = call.arguments.clone().unwrap_or_default();
        // The number of hidden regions (0) is only for records, and this judgement is not recorded.
        let mut attribution = Attribution::view("provenance", *view, 0);
        attribution.arguments =
            open.iter().map(|argument| (argument.name.clone(), argument.slot_dependency(view))).collect();
        let judgement = monitor.would_judge(TraceEntry::from(call), attribution);
        let is_unfit = |argument: &&&AttributedArgument| {
            self.call.endorsed.contains(&argument.name)
                // The content of a slot that the draft itself has left open is not known yet.
                && !values.get(&argument.name).is_some_and(slot::has_slot)
                // For a reason about this argument, the conversation would refuse the call without asking a person.
                && judgement.reasons.iter().any(|reason| reason.is_about_argument(&argument.name))
        };
        open.iter().filter(is_unfit).fold(Label::BOTTOM, |joined, argument| joined.join(&argument.label))
    }
}

impl AttributedArgument {
    /// Returns what this argument depends on if a step at the label `view` leaves it to a slot, and the slot is filled
    /// with the value of the draft.
    fn slot_dependency(&self, view: &Label) -> CallDependency {
        match &self.source {
            CallDependency::Regions(regions) => {
                CallDependency::Slot { view: *view, regions: regions.clone() }
            }
            // Anything that the draft was shown could fill it.
            _ => CallDependency::Slot { view: view.join(&self.label), regions: Vec::new() },
        }
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
