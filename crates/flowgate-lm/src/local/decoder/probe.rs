//! Defines [`Probe`], the options of one evaluation of the decoder. A caller selects intermediate values (the hidden
//! states of a layer, the attention matrices) and receives them in the probe, as `inside.rs` and `jacobian.rs` do. The
//! probe also chooses between fast operations and those that have a gradient ([`Kernels`]), which these two files and
//! `train.rs` need, and it blocks regions of the text, which `generate.rs` needs.

use candle_core::Tensor;

use super::blocked::BlockedTokens;

/// Which implementation of an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kernels {
    /// One pass over memory. It has no gradient: candle cuts its graph of gradients there without an error.
    #[default]
    Fused,
    /// Several operations that have a gradient.
    Differentiable,
}

/// The options of one evaluation, and the intermediate values that the caller selects and then receives.
#[derive(Debug, Default)]
pub(crate) struct Probe<'a> {
    pub(crate) kernels: Kernels,
    /// The regions of the text that no token outside them reads, if there are any. All evaluations of parts of the same
    /// text must have the same regions.
    pub(crate) blocked: Option<&'a BlockedTokens>,
    /// A tensor of zeros for each layer, which is added to the attention of the layer. The gradient with respect to
    /// these zeros equals the gradient with respect to the attention.
    pub(crate) added_to_attention: Option<&'a [Tensor]>,
    /// A tensor of zeros that is added to the input of the first layer, of shape (1, time, width). The gradient with
    /// respect to these zeros equals the gradient with respect to the embeddings.
    pub(crate) added_to_embedding: Option<&'a Tensor>,
    /// Collects the attention of each layer, of shape (batch, heads, time, total time); `None` collects nothing.
    pub(crate) attention: Option<Vec<Tensor>>,
    /// The layer whose hidden states are collected, if any; 0 is the embedding.
    pub(crate) hidden_layer: Option<usize>,
    /// The hidden states of that layer, after it was evaluated.
    pub(crate) hidden: Option<Tensor>,
    /// How many hidden states were received: the index of the next layer, where 0 is the embedding.
    pub(crate) seen: usize,
}

impl<'a> Probe<'a> {
    /// Creates a probe that selects nothing and blocks these regions, if there are any.
    pub(crate) fn blocking(blocked: Option<&'a BlockedTokens>) -> Self {
        Self { blocked, ..Self::default() }
    }

    /// Receives the hidden states `x` of the next layer, and stores them if the caller has selected this layer. The
    /// decoder calls this once for each layer in order, beginning with layer 0, the embedding.
    pub(super) fn see_hidden(&mut self, x: &Tensor) {
        if self.hidden_layer == Some(self.seen) {
            self.hidden = Some(x.clone());
        }
        self.seen += 1;
    }

    /// Receives the attention of the next layer, and stores it if attention is selected.
    pub(super) fn see_attention(&mut self, attention: &Tensor) {
        if let Some(all) = &mut self.attention {
            all.push(attention.clone());
        }
    }
}
