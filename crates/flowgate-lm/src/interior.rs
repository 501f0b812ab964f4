//! Defines the traits of models that expose intermediate values of their evaluation: [`HiddenStateModel`] and
//! [`AttentionModel`]. Local models implement them. Hidden states serve as embeddings of texts, and label propagation
//! searches them for the nearest neighbours of a token's context. Attention serves to estimate which regions of a
//! prompt an output depends on.
//!
//! The position of a token is a range of bytes of the text in the request, so that a caller can find the region that
//! the token belongs to.
//!
//! The terms for the attention are those of *RTBAS: Defending LLM Agents Against Prompt Injection and Privacy Leakage*,
//! called RTBAS in this file.

use std::ops::Range;

use crate::{Error, Prefix};

/// A model that exposes its hidden states.
pub trait HiddenStateModel: Send + Sync {
    /// Returns the number of layers, `n`. [`hidden_states`](Self::hidden_states) accepts the layers 0 to `n`, where 0
    /// means the input of the first layer.
    fn layer_count(&self) -> usize;

    /// Returns the output of `layer` for each token of `text`, one vector per token. The output of the last layer,
    /// [`layer_count`](Self::layer_count), is returned after the final normalisation, as the output matrix reads it.
    ///
    /// # Errors
    /// If the model has no such layer, or the text is too long for it.
    fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error>;
}

/// The hidden states of one layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HiddenStates {
    /// The byte range of each token in the text; empty for a token that the model adds, such as one that marks the
    /// beginning.
    pub tokens: Vec<Range<usize>>,
    /// The vector of each token, in the same order.
    pub vectors: Vec<Vec<f32>>,
}

/// A model that exposes its attention, and how much its output depends on it.
pub trait AttentionModel: Send + Sync {
    /// Returns the attention that each token of the continuation pays to each token before it, and the gradient of the
    /// loss with respect to that attention.
    ///
    /// # Errors
    /// If the texts are too long for the model, the continuation is empty, or a token spans the end of the prompt.
    fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error>;
}

/// A request for the attention that the tokens of a continuation pay to the tokens before them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionRequest<'a> {
    /// The beginning of the prompt, as [`ScoringModel::prefix`](crate::ScoringModel::prefix) returned it.
    pub prefix: Option<&'a Prefix>,
    /// The rest of the prompt, after the prefix.
    pub prompt: &'a str,
    /// The text whose tokens pay the attention.
    pub continuation: &'a str,
    /// The loss whose gradients are computed.
    pub loss: AttentionLoss,
}

/// The loss whose gradients with respect to the attention are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AttentionLoss {
    /// The negative log-probability of the continuation: the sum over its tokens (RTBAS, section 3.3). Where the model
    /// is sure of a token, the gradient is near 0.
    #[default]
    NegativeLogProbability,
    /// The sum of the margins of the tokens. The margin of a token is the logit of the likeliest other token minus the
    /// logit of the token itself. The gradient does not vanish where the model is sure.
    Margin,
}

/// The attention of the tokens of a continuation to the tokens before them.
///
/// Row `o` is the step that generates token `o` of the continuation; column `i` is a token of the prompt, or, from
/// `prompt_tokens.len()`, of the continuation. A row has as many columns as there are tokens before its token.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    prompt_tokens: Vec<Range<usize>>,
    continuation_tokens: Vec<Range<usize>>,
    layers: usize,
    heads: usize,
    /// In the order layer, head, row, column; rows are padded with 0 to the length of the last one.
    weights: Vec<f32>,
    /// The gradients of the loss with respect to `weights`, in the same order.
    gradients: Vec<f32>,
}

impl Attention {
    /// Creates the attention of `layers` layers with `heads` heads each.
    ///
    /// The tokens are byte ranges: `prompt_tokens` in the prefix and the prompt, `continuation_tokens` in the
    /// continuation. `weights` is the attention, and `gradients` are those of the loss with respect to it. Both have
    /// the order layer, head, row, column. A row belongs to a token of the continuation. A column belongs to a token
    /// that a row can attend to: any token but the last one. An entry is 0 if its column is not before the token of its
    /// row.
    ///
    /// `None` if the length of `weights` or `gradients` does not match the numbers of layers, heads, rows and columns.
    #[must_use]
    pub fn new(
        prompt_tokens: Vec<Range<usize>>,
        continuation_tokens: Vec<Range<usize>>,
        (layers, heads): (usize, usize),
        weights: Vec<f32>,
        gradients: Vec<f32>,
    ) -> Option<Self> {
        let attention = Self { prompt_tokens, continuation_tokens, layers, heads, weights, gradients };
        let matrices = layers.checked_mul(heads)?;
        let expected = matrices.checked_mul(attention.rows())?.checked_mul(attention.columns())?;
        let is_consistent = attention.weights.len() == expected && attention.gradients.len() == expected;
        is_consistent.then_some(attention)
    }

    /// Returns the byte range of each token of the prompt in the prefix and the prompt; empty for a token that the
    /// model adds.
    #[must_use]
    pub fn prompt_tokens(&self) -> &[Range<usize>] {
        &self.prompt_tokens
    }

    /// Returns the byte range of each token of the continuation in the continuation.
    #[must_use]
    pub fn continuation_tokens(&self) -> &[Range<usize>] {
        &self.continuation_tokens
    }

    /// Returns the number of layers.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.layers
    }

    /// Returns the number of heads of each layer.
    #[must_use]
    pub fn head_count(&self) -> usize {
        self.heads
    }

    /// Returns the number of rows: tokens of the continuation.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.continuation_tokens.len()
    }

    /// Returns the number of columns: all tokens but the last one.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.prompt_tokens.len().saturating_add(self.rows()).saturating_sub(1)
    }

    /// Returns the attention of one row, which sums to 1; empty if there is no such row.
    #[must_use]
    pub fn weights(&self, layer: usize, head: usize, row: usize) -> &[f32] {
        self.row_of(&self.weights, layer, head, row)
    }

    /// Returns the gradient of the loss with respect to one row of attention; empty if there is no such row.
    #[must_use]
    pub fn gradients(&self, layer: usize, head: usize, row: usize) -> &[f32] {
        self.row_of(&self.gradients, layer, head, row)
    }

    /// Estimates how much the loss of each token of the continuation depends on each token before it: the sum over all
    /// layers and heads of `|attention * gradient|` (RTBAS, section 3.3, equation 2). The outer list has one entry for
    /// each token of the continuation, the inner list has one for each column.
    #[must_use]
    pub fn saliency(&self) -> Vec<Vec<f32>> {
        let mut sums = vec![vec![0.0; self.columns()]; self.rows()];
        for layer in 0..self.layers {
            for head in 0..self.heads {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let pairs = self.weights(layer, head, row).iter().zip(self.gradients(layer, head, row));
                    for (sum, (weight, gradient)) in sums.iter_mut().zip(pairs) {
                        *sum += (weight * gradient).abs();
                    }
                }
            }
        }
        sums
    }

    /// Returns one row of `all`, which is `self.weights` or `self.gradients`; empty if there is no such row.
    fn row_of<'a>(&self, all: &'a [f32], layer: usize, head: usize, row: usize) -> &'a [f32] {
        if layer >= self.layers || head >= self.heads || row >= self.rows() {
            return &[];
        }
        let index = (layer * self.heads + head) * self.rows() + row;
        all.get(index * self.columns()..(index + 1) * self.columns()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_saliency() {
        let weights = vec![1.0, 0.0, 0.25, 0.75, 0.5, 0.0, 1.0, 0.0];
        let gradients = vec![-2.0, 9.0, 4.0, 0.0, 2.0, 9.0, -1.0, 3.0];
        let at = |attention: &Attention| {
            (
                attention.weights(0, 0, 1).to_vec(),
                attention.weights(1, 0, 0).to_vec(),
                attention.gradients(1, 0, 1).to_vec(),
            )
        };
        let spans = |count: usize| (0..count).map(|at| at..at + 1).collect::<Vec<_>>();
        let attention = Attention::new(spans(1), spans(2), (2, 1), weights, gradients).unwrap();
        assert_eq!(at(&attention), (vec![0.25, 0.75], vec![0.5, 0.0], vec![-1.0, 3.0]));
        assert_eq!(attention.saliency(), [[3.0, 0.0], [2.0, 0.0]]);
        assert!(attention.weights(2, 0, 0).is_empty() && attention.weights(0, 1, 0).is_empty());
        assert_eq!(Attention::new(spans(1), spans(1), (1, 1), vec![1.0; 2], vec![1.0; 1]), None);
    }
}
