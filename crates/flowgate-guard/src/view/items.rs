//! What stands in a conversation, and what of it was shown last.
//!
//! A view is made item by item, and most steps show what the step before showed and a message or two more. What was shown of the
//! first items is shown again as it is while nothing can have changed it: at the same label, with the same tools. The labels of
//! messages and answers never change once they stand in a trace. Items do, and so nobody changes one but by way of [`Items`], which
//! then forgets what was shown. In doubt a view is made anew, and what it must come to is [`Source::view`](super::Source::view).

use std::ops::Deref;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate_lm::chat::{Messages, Request, ToolSpec};

use super::{Item, Step, View};
use crate::redact::Names;

/// What stands in a conversation, in order.
#[derive(Debug, Default)]
pub(crate) struct Items {
    all: Vec<Item>,
    /// Which of them are steps. A caller can send any number of messages, and each answer among them is looked for in the steps.
    steps: Vec<usize>,
    shown: Option<Shown>,
}

/// The last view, and what it was made from.
#[derive(Debug)]
struct Shown {
    view: View,
    items: usize,
    calls: usize,
}

/// A view as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// What is shown of the first items.
    pub(crate) messages: Messages,
    /// What is hidden in these.
    pub(crate) names: Names,
    /// How many calls stand in these.
    pub(crate) calls: usize,
    /// How many items these are.
    pub(crate) items: usize,
    /// The tools on offer while as little is hidden, or as much.
    pub(crate) tools: Option<Vec<ToolSpec>>,
}

impl Items {
    /// Adds an item behind all others. It is the only way to change the list that leaves what was shown.
    pub(crate) fn push(&mut self, item: Item) {
        if matches!(item, Item::Step(_)) {
            self.steps.push(self.all.len());
        }
        self.all.push(item);
    }

    /// The steps with their places, the last first.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        self.steps.iter().rev().filter_map(|at| match self.all.get(*at) {
            Some(Item::Step(step)) => Some((*at, step)),
            _ => None,
        })
    }

    /// The last item, to be changed.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Item> {
        self.get_mut(self.all.len().checked_sub(1)?)
    }

    /// An item, to be changed.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Item> {
        if self.shown.as_ref().is_some_and(|shown| index < shown.items) {
            self.forget_shown();
        }
        self.all.get_mut(index)
    }

    /// Takes out all items.
    pub(crate) fn take(&mut self) -> Vec<Item> {
        self.forget_shown();
        self.steps.clear();
        std::mem::take(&mut self.all)
    }

    /// Has the next view made anew: something else has changed that it is made from.
    pub(crate) fn forget_shown(&mut self) {
        self.shown = None;
    }

    /// Takes out what was shown last, as far as it is shown at `label`. Nothing of it is, while somebody still holds that view.
    pub(crate) fn begun(&mut self, label: &Label) -> Begun {
        let same =
            self.shown.take().filter(|shown| shown.view.label == *label && shown.items <= self.all.len());
        let Some(Shown { view: View { request, names, .. }, items, calls }) = same else {
            return Begun::default();
        };
        match Arc::try_unwrap(request) {
            Ok(Request { messages, tools, .. }) => {
                Begun { messages, names, calls, items, tools: Some(tools) }
            }
            Err(_) => Begun::default(),
        }
    }

    /// All items were shown like this, with all tools on offer.
    pub(crate) fn show(&mut self, view: View, calls: usize) {
        self.shown = Some(Shown { view, items: self.all.len(), calls });
    }
}

impl Deref for Items {
    type Target = [Item];

    fn deref(&self) -> &[Item] {
        &self.all
    }
}

impl Extend<Item> for Items {
    fn extend<I: IntoIterator<Item = Item>>(&mut self, items: I) {
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
        View { label: Label::BOTTOM, request, names: Names::default() }
    }

    /// What was shown of items is known until one of them may be another.
    #[test]
    fn what_was_shown_is_known_while_it_cannot_have_changed() {
        let check = |change: fn(&mut Items), label: Label, expected: usize| {
            let mut items = Items::default();
            items.extend((0..3).map(|id| Item::Said(EventId(id))));
            items.show(view(3), 0);
            items.push(Item::Said(EventId(3)));
            change(&mut items);
            let begun = items.begun(&label);
            let found = (begun.items, begun.messages.len(), begun.tools.is_some());
            assert_eq!(found, (expected, expected, expected > 0));
            // It is used up.
            assert_eq!(items.begun(&label).items, 0);
        };
        check(|_| {}, Label::BOTTOM, 3);
        check(|items| items.push(Item::Said(EventId(4))), Label::BOTTOM, 3);
        check(|items| assert!(items.last_mut().is_some()), Label::BOTTOM, 3);
        check(|items| assert!(items.get_mut(3).is_some()), Label::BOTTOM, 3);
        check(|items| assert!(items.get_mut(2).is_some()), Label::BOTTOM, 0);
        check(|items| assert!(items.get_mut(0).is_some()), Label::BOTTOM, 0);
        check(Items::forget_shown, Label::BOTTOM, 0);
        check(
            |items| {
                let all = items.take();
                items.extend(all);
            },
            Label::BOTTOM,
            0,
        );
        let policy = flowgate::policy::Policy::parse("lattice secrecy: public < private").unwrap();
        check(|_| {}, policy.space().top(), 0);
    }

    /// Steps are found without a look at anything else, wherever they stand.
    #[test]
    fn steps_are_found_among_any_number_of_messages() {
        let step = |text: &str| {
            let (label, text) = (Label::BOTTOM, text.to_owned());
            Item::Step(Step { label, names: Names::default(), text, calls: Vec::new() })
        };
        let mut items = Items::default();
        items.extend((0..1000).map(|id| Item::Said(EventId(id))));
        items.push(step("one"));
        items.extend((0..1000).map(|id| Item::Said(EventId(id))).chain([step("two")]));
        let found = |items: &Items| -> Vec<(usize, String)> {
            items.steps().map(|(at, step)| (at, step.text.clone())).collect()
        };
        assert_eq!(found(&items), [(2001, "two".to_owned()), (1000, "one".to_owned())]);
        let all = items.take();
        assert_eq!(found(&items), []);
        items.extend(all.into_iter().skip(1000));
        assert_eq!(found(&items), [(1001, "two".to_owned()), (0, "one".to_owned())]);
        assert_eq!(items.steps.len(), 2);
    }

    /// Nobody's view changes while it is held.
    #[test]
    fn a_view_that_somebody_holds_is_left_as_it_is() {
        let mut items = Items::default();
        items.push(Item::Said(EventId(0)));
        let held = view(1);
        items.show(held.clone(), 0);
        assert_eq!(items.begun(&Label::BOTTOM).items, 0);
        assert_eq!(held, view(1));
    }
}
