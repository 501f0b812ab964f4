//! Defines [`Probe`], with which a caller selects intermediate values of a forward pass of the decoder (the hidden states
//! of a layer, the attention matrices) and receives them.

use candle_core::Tensor;

/// Which implementation of an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kernels {
    /// One pass over memory. These have no gradient: candle cuts its graph at them without an error.
    #[default]
    Fused,
    /// Composed of operations that have a gradient.
    Differentiable,
}

/// What to see of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Probe<'a> {
    pub(crate) kernels: Kernels,
    /// A tensor for each layer, which is added to its attention: zeros, for their gradients.
    pub(crate) added_to_attention: Option<&'a [Tensor]>,
    /// Collects for each layer its attention, of shape (batch, heads, time, total time).
    pub(crate) attention: Option<Vec<Tensor>>,
    /// The layers whose hidden states are collected; 0 is the embedding.
    pub(crate) hidden_layer: Option<usize>,
    /// The hidden states of that layer.
    pub(crate) hidden: Option<Tensor>,
    /// How many layers were seen.
    pub(crate) seen: usize,
}

impl Probe<'_> {
    pub(super) fn see_hidden(&mut self, x: &Tensor) {
        if self.hidden_layer == Some(self.seen) {
            self.hidden = Some(x.clone());
        }
        self.seen += 1;
    }

    pub(super) fn see_attention(&mut self, attention: &Tensor) {
        if let Some(all) = &mut self.attention {
            all.push(attention.clone());
        }
    }
}
