//! Defines [`BlockingModel`], the trait of chat models that can block parts of a chat: nothing that the model reads
//! elsewhere or writes depends on them. This is *cross-channel attention blocking* (AgentSecBench, section 3.2, where
//! the attention from one channel to another is a block of the matrix that no prompt can force to zero). Local models
//! implement it; a server offers nothing of the kind. The security games compare it with defences that change texts.

use std::ops::Range;

use crate::chat::{Completion, Request};
use crate::{BoxFuture, Error, Listener};

/// A part of a chat that is blocked.
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
    /// Generates the next message like [`ChatModel::complete`](crate::ChatModel::complete), where no token outside a
    /// blocked text reads a token inside it: neither the generated tokens, nor the rest of the chat, nor another
    /// blocked text. The message therefore depends on a blocked text by the number of its tokens only, since it
    /// shifts the positions of what follows.
    ///
    /// # Errors
    /// As `complete`, and if a blocked text is not in the chat, two of them overlap, or the place of one in the
    /// model's prompt cannot be determined.
    fn complete_blocking<'a>(
        &'a self,
        request: &'a Request,
        blocked: &'a [BlockedText],
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>>;
}
