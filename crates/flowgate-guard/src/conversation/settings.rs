//! Defines the settings that a program passes to a new [conversation](super::Conversation). These are the method that
//! chooses the labels of steps, the limits on steps, calls and questions, the sampling parameters of the model, and the
//! key of digests. Such a digest identifies a call in questions and records.

use std::time::Duration;

use flowgate_lm::chat::Sampling;

use crate::approve::DigestKey;
use crate::method::Method;

/// The limits and the method of a conversation.
#[derive(Debug, Clone)]
pub struct ConversationSettings {
    /// The method that chooses the labels of steps.
    pub method: Method,
    /// The sampling parameters of the model.
    pub sampling: Sampling,
    /// The maximum number of messages that a model may write on one level of a turn. If the caller runs the calls, the
    /// count begins again after each call, except after a call whose refusal the model may see.
    pub steps: usize,
    /// The maximum number of messages that a model may write in one turn, over all levels. This limit is observable
    /// on lower levels, because higher levels consume it, too.
    pub messages: usize,
    /// The maximum number of levels on top of each other.
    pub levels: usize,
    /// The maximum number of calls in one message; the others are refused.
    pub calls: usize,
    /// How long a question to a person stays open.
    pub expires: Duration,
    /// The key for digests of calls: random bytes that the caller provides.
    pub key: DigestKey,
    /// How the steps at the base label, from which each turn starts, are labelled.
    pub step_labels: StepLabelling,
    /// Whether it can be a secret that [context was added](crate::conversation::Conversation::add_context), such as a
    /// memory that was retrieved. The labels of steps are then fixed, because a floating label would reveal that no
    /// context was added. Under a method that shows everything, labels float nevertheless, because such a method keeps
    /// no such secret.
    pub hides_context: bool,
}

/// How the steps at the base label, from which each turn starts, are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StepLabelling {
    /// A step carries the join of what it was shown and of the decisions that led to it.
    #[default]
    Floating,
    /// Every step carries the bound of what it could have been shown: the strictest requirement on offer.
    Fixed,
}

impl ConversationSettings {
    /// Returns the default settings for a conversation with this method, and with this key of digests.
    pub fn new(method: Method, key: DigestKey) -> Self {
        let sampling = Sampling::default();
        Self {
            method,
            sampling,
            steps: 30,
            messages: 200,
            levels: 8,
            calls: 64,
            expires: Duration::from_secs(600),
            key,
            step_labels: StepLabelling::default(),
            hides_context: false,
        }
    }
}
