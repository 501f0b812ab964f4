//! Passes facts from the observer of a conversation to the approver of the same conversation: where each event comes
//! from, and when the model begins another message. `observer` notes them; `approver` and `question_card` read them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use flowgate::trace::EventId;

/// Facts about a conversation that its observer has noted. The observer and the approver share it.
#[derive(Debug, Default)]
pub(super) struct ObservedChat {
    /// The description of each event's source: `the answer of web/fetch`.
    sources: Mutex<HashMap<EventId, String>>,
    /// The number of messages that the model was asked for.
    messages: AtomicUsize,
}

impl ObservedChat {
    /// Notes where an event comes from.
    pub(super) fn add_source(&self, event: EventId, source: String) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(event, source);
    }

    /// Returns where an event comes from, if that was noted.
    pub(super) fn source(&self, event: EventId) -> Option<String> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).get(&event).cloned()
    }

    /// Notes that the model is asked for a message.
    pub(super) fn begin_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the model's last message, which differs for each message of the conversation.
    pub(super) fn message(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }
}
