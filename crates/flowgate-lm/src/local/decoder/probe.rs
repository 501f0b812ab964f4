//! Defines [`Probe`], with which a caller of the decoder selects intermediate values (the hidden states of a layer, the
//! attention matrices) and receives them. Only `inside.rs` needs such values; all others select none. A probe also chooses
//! between fast operations and those that have a gradient, which `inside.rs` and `train.rs` need.

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

/// The intermediate values of an evaluation that the caller selects, and then receives.
#[derive(Debug, Default)]
pub(crate) struct Probe<'a> {
    pub(crate) kernels: Kernels,
    /// A tensor of zeros for each layer, which is added to its attention: the gradient of the zeros is that of the
    /// attention.
    pub(crate) added_to_attention: Option<&'a [Tensor]>,
    /// Collects for each layer its attention, of shape (batch, heads, time, total time).
    pub(crate) attention: Option<Vec<Tensor>>,
    /// The layer whose hidden states are collected; 0 is the embedding.
    pub(crate) hidden_layer: Option<usize>,
    /// The hidden states of that layer.
    pub(crate) hidden: Option<Tensor>,
    /// How many layers have been evaluated.
    pub(crate) seen: usize,
}

impl Probe<'_> {
    /// Receives the hidden states of the next layer.
    pub(super) fn see_hidden(&mut self, x: &Tensor) {
        if self.hidden_layer == Some(self.seen) {
            self.hidden = Some(x.clone());
        }
        self.seen += 1;
    }

    /// Receives the attention of the next layer.
    pub(super) fn see_attention(&mut self, attention: &Tensor) {
        if let Some(all) = &mut self.attention {
            all.push(attention.clone());
        }
    }
}
