//! Owns the counters from which a [conversation](super::Conversation) forms the ids of calls and the nonces of requests
//! to screeners.
//!
//! Invariant: a counter counts only what every reader of the id may know, so an id reveals nothing about hidden text.

use std::collections::HashMap;

use flowgate::label::Label;

/// The counters of a conversation.
#[derive(Debug, Default)]
pub(super) struct UniqueNumbers {
    /// The number of answers of the screener so far, from which the next nonce is formed. The operator of the
    /// screener's model knows this number. A nonce that was formed from the number of items of the chat would show how
    /// many items are hidden.
    screenings: usize,
    /// The number of addresses judged so far. Each is judged as a call that never runs, whose id contains the number.
    addresses: usize,
    /// The number of calls per label.
    calls: HashMap<Label, usize>,
}

impl UniqueNumbers {
    /// Returns the number of answers of the screener so far.
    pub(super) fn screenings(&self) -> usize {
        self.screenings
    }

    /// Counts an answer of the screener.
    pub(super) fn count_screening(&mut self) {
        self.screenings += 1;
    }

    /// Counts a call at this label. Returns its number, from 1 on, which does not depend on calls at other labels.
    pub(super) fn count_call(&mut self, label: &Label) -> usize {
        let count = self.calls.entry(*label).or_default();
        *count += 1;
        *count
    }

    /// Returns the counter of judged addresses, for a caller that judges further ones.
    pub(super) fn addresses_mut(&mut self) -> &mut usize {
        &mut self.addresses
    }
}
