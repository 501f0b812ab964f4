//! Holds the items of a conversation (messages, and steps with the outcomes of their calls) from which views are built,
//! and a cache of the last view.
//!
//! A view is built item by item. Most steps are shown what the step before was shown, and one or two more messages. The
//! beginning of the last view is therefore reused while it cannot have changed: the next view has the same label and
//! the same tools. The labels of messages and answers are fixed once they are in the trace. The items themselves can
//! change, so every change goes through [`ConversationItems`], which drops the cache if the cached view shows the
//! changed item. The reused view must equal a newly built one ([`ViewBuilder::build`](super::ViewBuilder::build));
//! debug builds compare the two.

use std::ops::Deref;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate_lm::chat::{Messages, Request, ToolSpec};

use super::{ConversationItem, ModelStep, View};
use crate::redact::HiddenRegions;

/// The items of a conversation, in order.
#[derive(Debug, Default)]
pub(crate) struct ConversationItems {
    all: Vec<ConversationItem>,
    /// The indices of the steps. Each answer that a caller sends is looked up in the steps; with this list, the search
    /// does not visit the messages, of which there can be any number.
    steps: Vec<usize>,
    /// The last view, while it is valid.
    cached: Option<CachedView>,
}

/// The last view, and the items that it was built from.
#[derive(Debug)]
struct CachedView {
    view: View,
    /// The number of items that the view was built from.
    items: usize,
    summary: ViewSummary,
}

/// What the builder of a longer view needs to know about the messages that it reuses.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ViewSummary {
    /// The number of calls in the messages.
    pub(crate) calls: usize,
    /// What the messages contribute to the label of the view.
    pub(crate) shown: Label,
}

/// The known beginning of a view.
#[derive(Debug, Default)]
pub(crate) struct ViewPrefix {
    /// The messages for the first items.
    pub(crate) messages: Messages,
    /// The regions hidden in these messages.
    pub(crate) names: HiddenRegions,
    /// The number of calls in these messages, and what the messages contribute to the label of the view.
    pub(crate) summary: ViewSummary,
    /// The number of items that these messages represent.
    pub(crate) items: usize,
    /// The tools on offer in the view. A longer view may reuse them only if both views hide something or neither does,
    /// because `look` and slots are offered only in a view that hides something.
    pub(crate) tools: Option<Vec<ToolSpec>>,
}

impl ConversationItems {
    /// Appends an item. This is the only change to the list that keeps the cache.
    pub(crate) fn push(&mut self, item: ConversationItem) {
        if matches!(item, ConversationItem::Step(_)) {
            self.steps.push(self.all.len());
        }
        self.all.push(item);
    }

    /// Returns the steps with their indices, the last first.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (usize, &ModelStep)> {
        self.steps.iter().rev().filter_map(|at| match self.all.get(*at) {
            Some(ConversationItem::Step(step)) => Some((*at, step)),
            _ => None,
        })
    }

    /// Returns the last item for modification.
    pub(crate) fn last_mut(&mut self) -> Option<&mut ConversationItem> {
        self.get_mut(self.all.len().checked_sub(1)?)
    }

    /// Returns an item for modification. Drops the cached view if it shows the item.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut ConversationItem> {
        if self.cached.as_ref().is_some_and(|cached| index < cached.items) {
            self.drop_cached_view();
        }
        self.all.get_mut(index)
    }

    /// Removes all items, and returns them in order.
    pub(crate) fn take_all(&mut self) -> Vec<ConversationItem> {
        self.drop_cached_view();
        self.steps.clear();
        std::mem::take(&mut self.all)
    }

    /// Drops the cache, because another input of views has changed.
    pub(crate) fn drop_cached_view(&mut self) {
        self.cached = None;
    }

    /// Takes the cached view, as the beginning of the next one. The result is empty if no view is cached, if the cached
    /// view has another bound or shows more items than there are, or if a caller still holds the request of the cached
    /// view: its messages would then have to be copied.
    pub(crate) fn take_prefix(&mut self, bound: &Label) -> ViewPrefix {
        let reusable =
            self.cached.take().filter(|cached| cached.view.bound == *bound && cached.items <= self.all.len());
        let Some(CachedView { view: View { request, names, .. }, items, summary }) = reusable else {
            return ViewPrefix::default();
        };
        match Arc::try_unwrap(request) {
            Ok(Request { messages, tools, .. }) => {
                ViewPrefix { messages, names, summary, items, tools: Some(tools) }
            }
            Err(_) => ViewPrefix::default(),
        }
    }

    /// Caches a view of all items, built with all tools on offer.
    pub(crate) fn cache_view(&mut self, view: View, summary: ViewSummary) {
        self.cached = Some(CachedView { view, items: self.all.len(), summary });
    }
}

impl Deref for ConversationItems {
    type Target = [ConversationItem];

    fn deref(&self) -> &[ConversationItem] {
        &self.all
    }
}

impl Extend<ConversationItem> for ConversationItems {
    fn extend<I: IntoIterator<Item = ConversationItem>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

#[cfg(test)]
mod tests {
    use flowgate::trace::EventId;
    use flowgate_lm::chat::Message;

    use super::*;

    fn view(messages: usize) -> View {
        let messages = (0..messages).map(|_| Message::User(Vec::new())).collect();
        let request = Arc::new(Request { messages, ..Request::default() });
        View { label: Label::BOTTOM, bound: Label::BOTTOM, request, names: HiddenRegions::default() }
    }

    /// The cache is valid until an item in it may have changed.
    #[test]
    fn the_view_cache_is_valid_until_an_item_changes() {
        let check = |change: fn(&mut ConversationItems), label: Label, expected: usize| {
            let mut items = ConversationItems::default();
            items.extend((0..3).map(|id| ConversationItem::Message(EventId(id))));
            items.cache_view(view(3), ViewSummary::default());
            items.push(ConversationItem::Message(EventId(3)));
            change(&mut items);
            let begun = items.take_prefix(&label);
            let found = (begun.items, begun.messages.len(), begun.tools.is_some());
            assert_eq!(found, (expected, expected, expected > 0));
            // The cache is used up.
            assert_eq!(items.take_prefix(&label).items, 0);
        };
        check(|_| {}, Label::BOTTOM, 3);
        check(|items| items.push(ConversationItem::Message(EventId(4))), Label::BOTTOM, 3);
        check(|items| assert!(items.last_mut().is_some()), Label::BOTTOM, 3);
        check(|items| assert!(items.get_mut(3).is_some()), Label::BOTTOM, 3);
        check(|items| assert!(items.get_mut(2).is_some()), Label::BOTTOM, 0);
        check(|items| assert!(items.get_mut(0).is_some()), Label::BOTTOM, 0);
        check(ConversationItems::drop_cached_view, Label::BOTTOM, 0);
        check(
            |items| {
                let all = items.take_all();
                items.extend(all);
            },
            Label::BOTTOM,
            0,
        );
        let policy = flowgate::policy::Policy::parse("lattice secrecy: public < private").unwrap();
        check(|_| {}, policy.space().top(), 0);
    }

    /// Steps are found without a scan of the other items.
    #[test]
    fn steps_are_found_among_any_number_of_messages() {
        let step = |text: &str| {
            let (label, text) = (Label::BOTTOM, text.to_owned());
            ConversationItem::Step(ModelStep {
                label,
                bound: label,
                names: HiddenRegions::default(),
                text,
                calls: Vec::new(),
                thoughts: Vec::new(),
            })
        };
        let mut items = ConversationItems::default();
        items.extend((0..1000).map(|id| ConversationItem::Message(EventId(id))));
        items.push(step("one"));
        items.extend((0..1000).map(|id| ConversationItem::Message(EventId(id))).chain([step("two")]));
        let found = |items: &ConversationItems| -> Vec<(usize, String)> {
            items.steps().map(|(at, step)| (at, step.text.clone())).collect()
        };
        assert_eq!(found(&items), [(2001, "two".to_owned()), (1000, "one".to_owned())]);
        let all = items.take_all();
        assert_eq!(found(&items), []);
        items.extend(all.into_iter().skip(1000));
        assert_eq!(found(&items), [(1001, "two".to_owned()), (0, "one".to_owned())]);
        assert_eq!(items.steps.len(), 2);
    }

    /// A view that a caller holds does not change.
    #[test]
    fn a_view_that_somebody_holds_is_left_as_it_is() {
        let mut items = ConversationItems::default();
        items.push(ConversationItem::Message(EventId(0)));
        let held = view(1);
        items.cache_view(held.clone(), ViewSummary::default());
        assert_eq!(items.take_prefix(&Label::BOTTOM).items, 0);
        assert_eq!(held, view(1));
    }
}
