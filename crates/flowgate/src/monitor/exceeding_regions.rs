//! Finds the regions that are named in the reason of a denial or of a question: the regions on which the call depends
//! and whose labels exceed a requirement. [`super::requirement`] calls [`Monitor::exceeding_regions`] for each reason.
//!
//! The search is bounded. Text that the reader of the reason may not see influences neither which events are searched
//! nor which regions are named.

use super::{CallDependency, Monitor};
use crate::label::{DimensionSet, Label};
use crate::trace::{EventBody, EventId, NodeContent, NodeId, Region};

/// The maximum number of regions that a reason names.
const MAX_REGIONS: usize = 5;

/// The number of latest events that are searched for exceeding regions.
const MAX_RECENT_EVENTS: usize = 64;

/// The number of latest events in a view that are searched for exceeding regions.
const MAX_VIEW_EVENTS: usize = 1_000;

impl Monitor {
    /// Returns at most [`MAX_REGIONS`] regions that exceed `bound` in the dimensions `over`, each with the description
    /// of its label, one text for each of these dimensions. `dependency` states what the call `event`, or one of its
    /// arguments, depends on. If `dependency` names regions, only these are searched. Otherwise the search covers what
    /// the agent of the call had seen, the latest event first.
    pub(super) fn exceeding_regions(
        &self,
        event: EventId,
        dependency: &CallDependency,
        bound: &Label,
        over: DimensionSet,
    ) -> Vec<(Region, Vec<String>)> {
        let space = self.policy.space();
        let candidates = self.candidate_regions(event, dependency, bound, over);
        let label = |event: EventId, node: NodeId| {
            let node = self.trace.event(event).and_then(|event| event.document.node(node));
            node.map_or(Label::BOTTOM, |node| node.label)
        };
        // The greatest label of a region that the recipient of the reason may see.
        let visible = match dependency {
            CallDependency::View(view) => *view,
            CallDependency::Slot { view, regions } => {
                regions.iter().fold(*view, |visible, (event, node)| visible.join(&label(*event, *node)))
            }
            // These name no label of a view. The regions that they name are ones that the model was shown, and
            // `Hidden` has no candidates.
            CallDependency::Everything | CallDependency::Regions(_) | CallDependency::Hidden => space.top(),
        };
        // The candidates that exceed the bound.
        let offending = candidates.into_iter().filter(|(event, node)| {
            !space.exceeded_dimensions(&label(*event, *node), bound, over).is_empty()
        });
        offending
            .take(MAX_REGIONS)
            .map(|(event, node)| {
                let mut region = self.region(event, node);
                // The position of a part of a text depends on everything before it in the text.
                region.span = region.span.filter(|_| self.enclosing_text_flows_to(event, node, &visible));
                (region, space.describe(&label(event, node), over, &self.name_table))
            })
            .collect()
    }

    /// Returns the regions in which the search for exceeding regions looks, in its order. Regions that `dependency`
    /// names are not compared with `bound`; of all other regions, only some that exceed it are returned.
    fn candidate_regions(
        &self,
        event: EventId,
        dependency: &CallDependency,
        bound: &Label,
        over: DimensionSet,
    ) -> Vec<(EventId, NodeId)> {
        let mut candidates: Vec<(EventId, NodeId)> = Vec::new();
        match dependency {
            CallDependency::Regions(regions) | CallDependency::Slot { regions, .. } => {
                candidates.clone_from(regions)
            }
            // The model cannot have written such a call, and which regions are hidden must not be named.
            CallDependency::Hidden => {}
            CallDependency::View(view) => {
                // What the view hides must not affect the result: neither how far back is searched, nor which
                // regions are named.
                let exists = |earlier: &EventId| self.trace.existence_label(*earlier).flows_to(view);
                let is_seen = |earlier: &EventId| self.trace.sees(event, *earlier);
                let earlier = (0..event.0).rev().map(EventId).filter(exists).filter(is_seen);
                for earlier in earlier.take(MAX_VIEW_EVENTS) {
                    candidates.extend(
                        self.exceeding_origins(earlier, bound, over, |node| {
                            self.is_shown(earlier, node, view)
                        }),
                    );
                    if candidates.len() >= MAX_REGIONS {
                        break;
                    }
                }
            }
            CallDependency::Everything => {
                // The latest events, and then those that first raised the label: a bounded search in a trace
                // of any length.
                let recent = (event.0.saturating_sub(MAX_RECENT_EVENTS)..event.0).rev().map(EventId);
                let raising = self.trace.context_raising_events().iter().rev().copied();
                let earlier = raising.filter(|earlier| earlier.0 + MAX_RECENT_EVENTS < event.0);
                for earlier in recent.chain(earlier).filter(|earlier| self.trace.sees(event, *earlier)) {
                    candidates.extend(self.exceeding_origins(earlier, bound, over, |_| true));
                    if candidates.len() >= MAX_REGIONS {
                        break;
                    }
                }
            }
        }
        candidates
    }

    /// Returns whether a view at `view` shows a region: the labels of the region and of all regions that contain it
    /// flow to `view`. False if the event or the region does not exist.
    fn is_shown(&self, event: EventId, node: NodeId, view: &Label) -> bool {
        let Some(document) = self.trace.event(event).map(|event| &event.document) else { return false };
        // The region and all regions that contain it, up to the root, which is its own parent. `take` below bounds
        // their number by that of all nodes.
        let ancestors = std::iter::successors(Some(node), |id| {
            document.node(*id).map(|node| node.parent).filter(|parent| parent != id)
        });
        ancestors
            .take(document.nodes().len())
            .all(|id| document.node(id).is_some_and(|node| node.label.flows_to(view)))
    }

    /// Returns whether the region itself and all regions that contain it, except the whole event, flow to `label`
    /// with all their parts. Only then may the caller show the position of the region to a reader at `label`, since
    /// the position depends on everything before the region in its text.
    fn enclosing_text_flows_to(&self, event: EventId, node: NodeId, label: &Label) -> bool {
        let Some(document) = self.trace.event(event).map(|event| &event.document) else { return false };
        let ancestors = std::iter::successors(Some(node), |id| {
            document.node(*id).map(|node| node.parent).filter(|parent| parent != id)
        });
        // Node 0 is the whole event.
        let mut texts =
            ancestors.take(document.nodes().len()).filter(|id| *id != 0).map(|id| document.label_of(id));
        texts.all(|text| text.flows_to(label))
    }

    /// Returns the regions of an event's content that exceed `bound` in the dimensions `over` and for which `is_shown`
    /// holds: these can have brought the excess into the call. They are at most [`MAX_REGIONS`] texts and other
    /// scalars, or the content as a whole if it exceeds the bound and no scalar does. Empty for a message of the model,
    /// which only repeats the labels of other events.
    fn exceeding_origins(
        &self,
        id: EventId,
        bound: &Label,
        over: DimensionSet,
        is_shown: impl Fn(NodeId) -> bool,
    ) -> Vec<(EventId, NodeId)> {
        let space = self.policy.space();
        let Some(event) = self.trace.event(id) else { return Vec::new() };
        let is_model = match &event.body {
            EventBody::Message(message) => matches!(message.role.as_str(), "assistant" | "model"),
            _ => false,
        };
        let content = event.document.key(0, "content");
        let Some(content) = content.filter(|_| !is_model) else { return Vec::new() };
        let end = event.document.node(content).map_or(content, |node| node.end);
        let exceeds = |id: &NodeId| {
            let node = event.document.node(*id);
            node.is_some_and(|node| !space.exceeded_dimensions(&node.label, bound, over).is_empty())
                && is_shown(*id)
        };
        let is_scalar = |id: &NodeId| {
            event.document.node(*id).is_some_and(|node| matches!(node.content, NodeContent::Scalar(_)))
        };
        let exceeding_scalars: Vec<NodeId> =
            (content..end).filter(is_scalar).filter(exceeds).take(MAX_REGIONS).collect();
        // The content as a whole, only if no scalar in it exceeds the bound.
        let structure = Some(content).filter(|id| exceeding_scalars.is_empty() && exceeds(id));
        exceeding_scalars.into_iter().chain(structure).map(|node| (id, node)).collect()
    }
}
