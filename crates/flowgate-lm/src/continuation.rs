//! Defines [`ContinuationModel`], the trait of models that continue a plain text. A model without a chat template
//! answers a question in this way: the prompt ends where the answer begins. Local models implement the trait.
//! `flowgate_guard::propagation` uses it for models without a chat template.

use crate::{BoxFuture, Error};

/// A model that continues a plain text.
pub trait ContinuationModel: Send + Sync {
    /// Returns the most probable continuation of a prompt, chosen token by token.
    ///
    /// # Errors
    /// If the prompt is empty or too long for the model, or the evaluation fails.
    fn continue_text<'a>(
        &'a self,
        prompt: &'a str,
        end: ContinuationEnd<'a>,
    ) -> BoxFuture<'a, Result<String, Error>>;
}

/// Where a continuation ends: at the limit on tokens or before the stop text, whichever is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContinuationEnd<'a> {
    /// The most tokens.
    pub tokens: usize,
    /// The text before which the continuation ends, such as a line break. The stop text is not part of the
    /// continuation.
    pub stop: &'a str,
}
