//! Labels the decision and the arguments of a call by what they depend on. [`Monitor::examine`] calls
//! [`Monitor::label_call`] for each call.

use super::attribution::Attribution;
use super::{CallDependency, Monitor};
use crate::label::Label;
use crate::trace::{Document, EventId, NodeId, PathStep, TraceEntry};

impl Monitor {
    /// Returns the document of a call. Its decision and each argument carry the labels of the regions on which they
    /// depend by `attribution`; `seen` is the label of everything that the agent had seen.
    pub(super) fn label_call(&self, entry: &TraceEntry, attribution: &Attribution, seen: &Label) -> Document {
        let join_regions = |start: Label, regions: &[(EventId, NodeId)]| {
            regions.iter().fold(start, |label, (event, node)| {
                let document = self.trace.event(*event).map(|event| &event.document);
                // The label of a region covers everything in it: a field may carry more than the map around it. A
                // region that does not exist counts as everything that the agent had seen.
                let found = document.filter(|document| document.node(*node).is_some());
                label.join(&found.map_or(*seen, |document| document.label_of(*node)))
            })
        };
        let label_of = |dependency: &CallDependency| match dependency {
            // A call with a hidden dependency is denied whatever its label is.
            CallDependency::Everything | CallDependency::Hidden => *seen,
            CallDependency::Regions(regions) => join_regions(Label::BOTTOM, regions),
            CallDependency::View(view) => *view,
            CallDependency::Slot { view, regions } => join_regions(*view, regions),
        };
        // All of the call carries the label of the decision; then each argument gets its own.
        let mut document = Document::new(&entry.body, label_of(&attribution.decision));
        if let Some(arguments) = document.key(0, "arguments") {
            let children: Vec<NodeId> = document.children(arguments).collect();
            for child in children {
                let Some(PathStep::Key(name)) = document.node(child).map(|node| node.step.clone()) else {
                    continue;
                };
                document.set_subtree(child, label_of(attribution.argument(&name)));
            }
        }
        document
    }
}
