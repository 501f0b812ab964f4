//! Defines [`AskedCall`], a call that a person was asked about: under the present policy, or under an earlier one,
//! before the conversation was carried over. `Proxy::judge` and `carry_over` create it; `elicitation` asks the question
//! and handles the decision.

use flowgate::monitor::Question;
use flowgate::trace::{Call, EventBody, TraceEntry};

/// A call that a person was asked about.
#[derive(Debug)]
pub(super) enum AskedCall {
    /// The present policy asks.
    Open(Box<Question>),
    /// An earlier policy asked. Nobody can approve the call any more.
    Earlier(Box<TraceEntry>),
}

impl AskedCall {
    /// Returns the call. The result is never `None`, since people are asked only about calls.
    pub(super) fn call(&self) -> Option<&Call> {
        match self {
            Self::Open(question) => question.call(),
            Self::Earlier(entry) => match &entry.body {
                EventBody::Call(call) => Some(call),
                _ => None,
            },
        }
    }

    /// Returns the question, if the present policy asks it.
    pub(super) fn open(&self) -> Option<&Question> {
        match self {
            Self::Open(question) => Some(question),
            Self::Earlier(_) => None,
        }
    }
}
