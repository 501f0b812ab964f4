//! Drafts: steps that were shown everything, and are written again from less if that does.
//!
//! What becomes of a draft that is written again is as if it had never been written, but for the label that it chose.
//! So both methods that draft guarantee what screeners do, and count the bits.

use flowgate::label::Label;
use flowgate::monitor::Source as Influencing;
use flowgate::trace::{Body, Call, Entry, EventId, Trace};
use flowgate_lm::chat::Completion;

use super::{Conversation, Method, Phase};
use crate::influence::{self, Influence, Session};
use crate::view::View;

/// Which regions say what, as far as the trace has been read.
#[derive(Debug)]
pub(super) struct Traced {
    session: Box<dyn Session>,
    read: usize,
}

impl Default for Traced {
    fn default() -> Self {
        Self { session: influence::provenance::Provenance.start(), read: 0 }
    }
}

impl Traced {
    fn read(&mut self, trace: &Trace) {
        for id in self.read..trace.events().len() {
            self.session.observe(trace, EventId(id));
        }
        self.read = trace.events().len();
    }
}

impl Conversation {
    /// Decides on what was written after a draft or as one: the step as it stands, if it does not have to be written again.
    pub(super) fn settle(&mut self, view: View, completion: Completion) -> Option<(View, Completion)> {
        let first = self.drafted.take();
        if std::mem::take(&mut self.is_draft) {
            let less = self.less(&view.label, &completion);
            if less != view.label {
                self.drafted =
                    Some((view, completion)).filter(|_| self.settings.method == Method::Provenance);
                self.phase = Phase::Showing(less);
                return None;
            }
            self.monitor.enter(&self.base, &view.label);
            return Some((view, completion));
        }
        match first {
            // From less, the model finds nothing to do where the draft did something: it cannot do without.
            Some(draft) if completion.calls.is_empty() && !draft.1.calls.is_empty() => {
                self.turn.spent.bits += 1;
                self.monitor.enter(&self.base, &draft.0.label);
                Some(draft)
            }
            _ => Some((view, completion)),
        }
    }

    /// The label of which a draft at `label` would have had enough.
    fn less(&mut self, label: &Label, completion: &Completion) -> Label {
        if self.settings.method == Method::CheapestFirst {
            self.turn.spent.bits += 1;
            return if self.would_run(&completion.calls, label) { *label } else { self.base };
        }
        self.turn.spent.bits += self.monitor.policy().space().bits();
        // The last word may stand as it is: it acts on nothing.
        if completion.calls.is_empty() {
            return *label;
        }
        self.traced.read(self.monitor.trace());
        let mut needed = self.levels.last().map_or(self.base, |level| level.label);
        for call in &completion.calls {
            let Some(known) = self.catalogue.find(&self.monitor, label, &call.name) else { continue };
            let (tool, payload) = (known.offered.tool.clone(), known.payload.clone());
            let entry = Entry::from(Body::Call(Call::from_json(String::new(), tool, &call.arguments)));
            let attribution = self.traced.session.attribute(self.monitor.trace(), &entry);
            for (argument, source) in &attribution.arguments {
                // What hidden text may stand in is left to a slot.
                if !payload.contains(argument) {
                    needed = needed.join(&self.reach(source, label));
                }
            }
        }
        // Labels that do not flow to the draft's are of text that it was not shown.
        if needed.flows_to(label) { needed } else { *label }
    }

    fn reach(&self, source: &Influencing, everything: &Label) -> Label {
        let Influencing::Regions(regions) = source else { return *everything };
        let label = |(event, node): &(EventId, usize)| {
            self.monitor.trace().event(*event).map_or(*everything, |event| event.document.label_of(*node))
        };
        regions.iter().fold(Label::BOTTOM, |reach, region| reach.join(&label(region)))
    }
}
