//! Provenance: a call depends on the regions whose values reappear in its arguments.
//!
//! Each value is looked for in what the agent has seen: as it stands, or by the number, date or time that it says.
//! Where several regions say it, the lowest is taken. A value that is found nowhere was derived from something, so it
//! depends on everything.
//!
//! The method sees data, not control. Which tool was chosen, and that one was called at all, does not show in the
//! arguments: it *assumes* that both follow from what the user and the operator said. A call that an injection asked for
//! and that uses only values which a trusted region says as well is therefore attributed to the trusted region. So the
//! method is an estimate, good for asking fewer questions about an honest model, until the call is generated again
//! from a context in which the other regions are hidden.

use flowgate::monitor::{Attribution, Source};
use flowgate::trace::{Body, Entry, EventId, Trace};

use super::index::{Found, Index, seen};
use super::{Influence, Session};

/// The method *provenance*.
#[derive(Debug, Clone, Copy)]
pub struct Provenance;

impl Influence for Provenance {
    fn name(&self) -> &'static str {
        "provenance"
    }

    fn doc(&self) -> &'static str {
        "the regions whose values reappear in the arguments; assumes that the choice of the tool is the user's; an estimate"
    }

    fn start(&self) -> Box<dyn Session> {
        Box::<State>::default()
    }
}

#[derive(Debug, Default)]
struct State {
    index: Index,
}

impl Session for State {
    fn observe(&mut self, trace: &Trace, event: EventId) {
        self.index.add(trace, event);
    }

    fn attribute(&mut self, trace: &Trace, entry: &Entry) -> Attribution {
        let (Body::Call(call), Ok(place)) = (&entry.body, trace.place(entry)) else {
            return Attribution { method: "provenance", ..Attribution::everything() };
        };
        let usable = seen(trace, &place);
        let arguments = call.arguments.iter().flatten().map(|(name, value)| {
            let source = match self.index.find(trace, value, &usable) {
                Found::Nowhere => Source::Regions(Vec::new()),
                Found::In(regions) => Source::Regions(regions),
                Found::Derived => Source::Everything,
            };
            (name.clone(), source)
        });
        let instructions =
            self.index.instructions.iter().copied().filter(|(event, node)| usable(*event, *node));
        Attribution {
            method: "provenance",
            decision: Source::Regions(instructions.collect()),
            arguments: arguments.collect(),
            hidden: 0,
        }
    }
}
