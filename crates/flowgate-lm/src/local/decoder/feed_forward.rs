//! The part of a layer that maps each token by itself.

use candle_core::{Result, Tensor};
use candle_nn::ops;

use super::super::config::{Activation, DecoderConfig};
use super::super::load_error::LoadError;
use super::super::weights::{LayerRole, TensorRole, Weights};
use super::linear::{Linear, Projections};

/// Two projections with a function between them, and a gate if there are two inputs.
#[derive(Debug)]
pub(super) struct FeedForward {
    inputs: Projections,
    down: Linear,
    activation: Activation,
}

impl FeedForward {
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
            _ => return Err(candle_core::Error::Msg("a feed-forward part has one or two inputs".to_owned())),
        };
        self.down.forward(&inner)
    }
}
