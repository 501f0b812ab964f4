//! Normalises vectors, by their root mean square or by mean and variance, as the configuration states. Layers, heads
//! and the end of the decoder use this module.

use candle_core::{Result, Tensor};
use candle_nn::ops;

use super::super::config::{DecoderConfig, NormKind};
use super::super::load_error::LoadError;
use super::super::weights::{TensorRole, Weights};
use super::Kernels;

/// A normalisation of the last dimension.
#[derive(Debug)]
pub(super) struct Norm {
    /// The learned factor of each entry.
    weight: Tensor,
    /// The learned summand of each entry; present if the normalisation subtracts the mean.
    bias: Option<Tensor>,
    epsilon: f32,
}

impl Norm {
    /// Reads the tensors `weight` and `bias` of a normalisation of vectors of this width. A normalisation by the root
    /// mean square has no bias, so `bias` is not read then. Fails if a tensor is missing or has another shape.
    pub(super) fn load(
        weights: &Weights,
        config: &DecoderConfig,
        weight: TensorRole,
        bias: TensorRole,
        width: usize,
    ) -> std::result::Result<Self, LoadError> {
        #[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
        let epsilon = config.epsilon as f32;
        let bias = match config.norm {
            NormKind::Rms => None,
            NormKind::Layer => Some(weights.tensor(bias, &[width])?),
        };
        Ok(Self { weight: weights.tensor(weight, &[width])?, bias, epsilon })
    }

    /// Normalises the vectors in the last dimension. `kernels` selects the implementation: fused ones are faster, but
    /// have no gradient.
    pub(super) fn forward(&self, x: &Tensor, kernels: Kernels) -> Result<Tensor> {
        let x = x.contiguous()?;
        match (kernels, &self.bias) {
            (Kernels::Fused, None) => ops::rms_norm(&x, &self.weight, self.epsilon),
            (Kernels::Fused, Some(bias)) => ops::layer_norm(&x, &self.weight, bias, self.epsilon),
            (Kernels::Differentiable, None) => ops::rms_norm_slow(&x, &self.weight, self.epsilon),
            (Kernels::Differentiable, Some(bias)) => {
                ops::layer_norm_slow(&x, &self.weight, bias, self.epsilon)
            }
        }
    }
}
