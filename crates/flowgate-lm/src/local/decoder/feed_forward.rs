//! Evaluates the feed-forward part of a layer, which maps the vector of each token separately. [`super::DecoderLayer`]
//! uses it after attention.

use candle_core::{Result, Tensor};
use candle_nn::ops;

use super::super::config::{Activation, DecoderConfig};
use super::super::load_error::LoadError;
use super::super::weights::{LayerRole, TensorRole, Weights};
use super::linear::{Linear, Projections};

/// An input projection, an activation and an output projection. With two input projections, the first one is a gate: it
/// is activated and multiplied with the second one.
#[derive(Debug)]
pub(super) struct FeedForward {
    /// One or two projections into a wider space.
    inputs: Projections,
    /// The projection back to the width of the layer.
    down: Linear,
    activation: Activation,
}

impl FeedForward {
    /// Reads the weights of the feed-forward part of one layer: a matrix `up` into a wider space, and a matrix `down`
    /// back to the width of the layer. Gated models also have a matrix `gate`, whose activated output is multiplied
    /// with that of `up`. Models with fused weights store `gate` and `up` as one matrix. Fails if a tensor is missing
    /// or has another shape.
    pub(super) fn load(
        weights: &Weights,
        config: &DecoderConfig,
        layer: usize,
    ) -> std::result::Result<Self, LoadError> {
        let role = |role| TensorRole::OfLayer(layer, role);
        let bias = |name| config.feed_forward_bias.then(|| role(name));
        let (inner, width) = (config.inner_width, config.width);
        let part = |name, bias_name| Linear::load(weights, role(name), bias(bias_name), inner, width);
        let inputs = if config.is_fused {
            let all = Linear::load(weights, role(LayerRole::GateUp), None, 2 * inner, width)?;
            // The rows of `gate` come first, then those of `up`.
            Projections::Fused(all, vec![inner, inner])
        } else if config.is_gated {
            Projections::Separate(vec![
                part(LayerRole::Gate, LayerRole::GateBias)?,
                part(LayerRole::Up, LayerRole::UpBias)?,
            ])
        } else {
            Projections::Separate(vec![part(LayerRole::Up, LayerRole::UpBias)?])
        };
        let down = Linear::load(weights, role(LayerRole::Down), bias(LayerRole::DownBias), width, inner)?;
        Ok(Self { inputs, down, activation: config.activation })
    }

    /// Maps each vector in the last dimension of `x`, the vectors of the tokens. The result has the same shape. A gated
    /// model has the two input projections `gate` and `up`, any other model only `up`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inputs = self.inputs.forward(x)?;
        let activate = |tensor: &Tensor| match self.activation {
            Activation::Silu => ops::silu(tensor),
            Activation::Gelu => tensor.gelu_erf(),
            Activation::GeluTanh => tensor.gelu(),
            Activation::Relu => tensor.relu(),
        };
        let inner = match inputs.as_slice() {
            [gate, up] => (activate(gate)? * up)?,
            [up] => activate(up)?,
            _ => {
                return Err(candle_core::Error::Msg(
                    "a feed-forward layer has neither one nor two input weights; this is a defect of Flowgate; please report it".to_owned(),
                ));
            }
        };
        self.down.forward(&inner)
    }
}
