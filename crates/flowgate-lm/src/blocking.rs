//! Defines [`BlockingModel`], the trait of chat models that can block texts of a chat: no token outside a blocked text
//! attends to a token inside it. What the model writes then depends on the text only by its number of tokens.
//!
//! This is *cross-channel attention blocking* (AgentSecBench, section 3.2), which no prompt can achieve. Local models
//! implement the trait; the servers of remote models have no such option. The security games compare attention blocking
//! with defences that change texts.

use std::ops::Range;

use crate::chat::{Completion, Request};
use crate::{BoxFuture, Error, Listener};

/// A blocked text: a range of one part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedText {
    /// The index of the message.
    pub message: usize,
    /// The index of the part of the message. The text of a message of the model is its part 0.
    pub part: usize,
    /// The range of bytes in the text of the part.
    pub span: Range<usize>,
}

/// A chat model that can block parts of a chat.
pub trait BlockingModel: Send + Sync {
    /// Generates the next message like [`ChatModel::complete`](crate::ChatModel::complete), but no token outside a
    /// blocked text attends to a token inside it: neither a generated token, nor one of the rest of the chat, nor one
    /// of another blocked text. The message can still depend on the number of tokens of a blocked text, because this
    /// number shifts the positions of all later tokens.
    ///
    /// # Errors
    /// If `complete` fails, if a blocked text is not in the chat, if two blocked texts overlap, or if the place of a
    /// blocked text in the model's prompt cannot be determined.
    fn complete_blocking<'a>(
        &'a self,
        request: &'a Request,
        blocked: &'a [BlockedText],
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>>;
}
