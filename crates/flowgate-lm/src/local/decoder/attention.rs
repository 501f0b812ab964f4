//! Evaluates the self-attention of a layer, in which each token reads the values of the tokens before it and its own.
//! In models with a convolution (Flowgate's own), nearby inputs are mixed first. [`super::DecoderLayer`] uses this
//! module.

use candle_core::{D, Result, Tensor};
use candle_nn::ops;

use super::super::config::DecoderConfig;
use super::super::load_error::LoadError;
use super::super::weights::{LayerRole, TensorRole, Weights};
use super::blocked::BlockedTokens;
use super::cache::LayerCache;
use super::linear::{Linear, Projections};
use super::norm::Norm;
use super::probe::{Kernels, Probe};
use super::rotary::Angles;

/// The attention of one layer.
#[derive(Debug)]
pub(super) struct SelfAttention {
    /// The projections to queries, keys and values.
    projections: Projections,
    /// The projection of the attended values to the width of the layer.
    output: Linear,
    /// The normalisations of each head's queries and keys, if the model has them.
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    /// If the model has a convolution, the weights of the inputs of the `n` tokens before, of shape (n, width). The
    /// first row belongs to the token directly before.
    convolution: Option<Tensor>,
    heads: usize,
    key_heads: usize,
    head_width: usize,
}

/// The context of one evaluation of a layer.
pub(super) struct LayerRun<'a, 'p> {
    /// The angles of the tokens' positions, which all layers share.
    pub(super) angles: Option<&'a Angles>,
    /// The mask of attention, which all layers share.
    pub(super) mask: Option<&'a Tensor>,
    /// The cache of this layer for the tokens before, if there are any.
    pub(super) before: Option<LayerCache>,
    pub(super) probe: &'a mut Probe<'p>,
    /// The index of the layer.
    pub(super) layer: usize,
}

impl SelfAttention {
    /// Reads the weights of the attention of one layer. Models with fused weights store the matrices of queries, keys
    /// and values as one, without biases. Fails if a tensor is missing or has another shape.
    pub(super) fn load(
        weights: &Weights,
        config: &DecoderConfig,
        layer: usize,
    ) -> std::result::Result<Self, LoadError> {
        let role = |role| TensorRole::OfLayer(layer, role);
        let bias = |name| config.attention_bias.then(|| role(name));
        let (queries, keys, width) = (config.query_width(), config.key_width(), config.width);
        // Values have the same width as keys.
        let projections = if config.is_fused {
            let widths = vec![queries, keys, keys];
            let all =
                Linear::load(weights, role(LayerRole::QueryKeyValue), None, widths.iter().sum(), width)?;
            Projections::Fused(all, widths)
        } else {
            let part =
                |name, bias_name, rows| Linear::load(weights, role(name), bias(bias_name), rows, width);
            Projections::Separate(vec![
                part(LayerRole::Query, LayerRole::QueryBias, queries)?,
                part(LayerRole::Key, LayerRole::KeyBias, keys)?,
                part(LayerRole::Value, LayerRole::ValueBias, keys)?,
            ])
        };
        // Queries and keys have RMS norms only. These have no bias, so the role that is passed for the bias is not
        // read.
        let norm = |name| {
            let load = || Norm::load(weights, config, role(name), role(name), config.head_width);
            config.query_key_norm.then(load).transpose()
        };
        let convolution = match config.convolution {
            0 => None,
            taps => Some(weights.tensor(role(LayerRole::Convolution), &[taps, width])?),
        };
        Ok(Self {
            projections,
            output: Linear::load(
                weights,
                role(LayerRole::AttentionOutput),
                bias(LayerRole::AttentionOutputBias),
                width,
                queries,
            )?,
            query_norm: norm(LayerRole::QueryNorm)?,
            key_norm: norm(LayerRole::KeyNorm)?,
            convolution,
            heads: config.heads,
            key_heads: config.key_heads,
            head_width: config.head_width,
        })
    }

    /// Evaluates the hidden states of tokens, of shape (batch, time, width). Returns the output of attention, which the
    /// layer adds to its input, and the cache of this layer with these tokens. Takes the earlier cache out of `run`.
    pub(super) fn forward(&self, x: &Tensor, run: &mut LayerRun<'_, '_>) -> Result<(Tensor, LayerCache)> {
        let kernels = run.probe.kernels;
        // `run` belongs to this layer alone, and nothing else reads its cache.
        let before = run.before.take();
        let (x, inputs) = self.convolve(x, before.as_ref(), run.probe.blocked)?;
        let (batch, time, _) = x.dims3()?;
        let projected = self.projections.forward(&x)?;
        let [queries, keys, values] = projected.as_slice() else {
            return Err(candle_core::Error::Msg(
                "the attention of a layer does not have three projections; this is a defect of Flowgate; please report it"
                    .to_owned(),
            ));
        };
        // From (batch, time, heads * head width) to (batch, heads, time, head width).
        let divide = |tensor: &Tensor, heads: usize| {
            tensor.reshape((batch, time, heads, self.head_width))?.transpose(1, 2)
        };
        // Normalises the vectors of heads if the model has such norms, and rotates them if it has rotary positions.
        let normalize_and_rotate = |tensor: Tensor, norm: Option<&Norm>| {
            let tensor = match norm {
                Some(norm) => norm.forward(&tensor, kernels)?,
                None => tensor,
            };
            match run.angles {
                Some(angles) => angles.rotate(&tensor, kernels),
                None => Ok(tensor),
            }
        };
        let queries = normalize_and_rotate(divide(queries, self.heads)?, self.query_norm.as_ref())?;
        let keys = normalize_and_rotate(divide(keys, self.key_heads)?, self.key_norm.as_ref())?;
        let values = divide(values, self.key_heads)?;
        // The keys and values of earlier tokens come first.
        let (keys, values) = match &before {
            Some(before) => {
                (Tensor::cat(&[&before.keys, &keys], 2)?, Tensor::cat(&[&before.values, &values], 2)?)
            }
            None => (keys, values),
        };
        let (keys, values) = (keys.contiguous()?, values.contiguous()?);
        let attention = self.weights(&queries, &keys, run)?;
        let total = keys.dim(2)?;
        // The heads that share values become the rows of one matrix product.
        let grouped = attention.reshape((batch, self.key_heads, (), total))?;
        let attended = grouped
            .matmul(&values)?
            .reshape((batch, self.heads, time, self.head_width))?
            .transpose(1, 2)?
            .reshape((batch, time, self.heads * self.head_width))?;
        Ok((self.output.forward(&attended)?, LayerCache { keys, values, inputs }))
    }

    /// Returns the attention, of shape (batch, heads, time, total time): the share with which each new token reads each
    /// token so far, as the softmax of the scaled and masked scores. For a caller that needs gradients, the probe adds
    /// a tensor of zeros to the attention: the gradient with respect to these zeros equals that with respect to the
    /// attention.
    fn weights(&self, queries: &Tensor, keys: &Tensor, run: &mut LayerRun<'_, '_>) -> Result<Tensor> {
        let (batch, _, time, _) = queries.dims4()?;
        let total = keys.dim(2)?;
        #[expect(clippy::cast_precision_loss, reason = "widths are small")]
        let scale = 1.0 / (self.head_width as f64).sqrt();
        // The heads that share keys become the rows of one matrix product.
        let grouped = queries.contiguous()?.reshape((batch, self.key_heads, (), self.head_width))?;
        let scores = (grouped.matmul(&keys.transpose(2, 3)?)? * scale)?;
        let mut scores = scores.reshape((batch, self.heads, time, total))?;
        if let Some(mask) = run.mask {
            scores = scores.broadcast_add(mask)?;
        }
        // The fused kernel has no gradient.
        let mut attention = match run.probe.kernels {
            Kernels::Fused => ops::softmax_last_dim(&scores)?,
            Kernels::Differentiable => ops::softmax(&scores, D::Minus1)?,
        };
        if let Some(added) = run.probe.added_to_attention.and_then(|added| added.get(run.layer)) {
            attention = (attention + added)?;
        }
        run.probe.see_attention(&attention);
        Ok(attention)
    }

    /// Applies the convolution of Flowgate's own models: adds to the input of each token a weighted sum of the inputs
    /// of the few tokens (`taps`) before it. `before` is the cache of the earlier tokens. If a token must not read one
    /// of the tokens before it, because that one is blocked, the blocked input counts as 0. Returns the sums, and all
    /// inputs so far for the cache, since later tokens need them. In a model without a convolution, returns the inputs
    /// unchanged, and `None`.
    fn convolve(
        &self,
        x: &Tensor,
        before: Option<&LayerCache>,
        blocked: Option<&BlockedTokens>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let Some(weights) = &self.convolution else { return Ok((x.clone(), None)) };
        let taps = weights.dim(0)?;
        let (batch, time, width) = x.dims3()?;
        let inputs = match before.and_then(|before| before.inputs.as_ref()) {
            Some(earlier) => Tensor::cat(&[earlier, x], 1)?,
            None => x.clone(),
        };
        // Before the first token of the text, the inputs are zeros.
        let padding = Tensor::zeros((batch, taps, width), x.dtype(), x.device())?;
        let padded = Tensor::cat(&[&padding, &inputs], 1)?;
        // The index of the first new token.
        let first = padded.dim(1)? - time;
        let mut sum = x.clone();
        for tap in 0..taps {
            let mut earlier = padded.narrow(1, first - tap - 1, time)?;
            if let Some(blocked) = blocked {
                // The position of the first new token: its index without the padding. Tap 0 reads the token before.
                let readable = blocked.readable_at((first - taps, time), tap + 1, x.device())?;
                let readable = readable.broadcast_as(earlier.shape())?.contiguous()?;
                // Blocked inputs are replaced by 0 and not multiplied by 0: a product would keep their sign (-0).
                earlier = readable.where_cond(&earlier.contiguous()?, &earlier.zeros_like()?)?;
            }
            sum = (sum + earlier.broadcast_mul(&weights.narrow(0, tap, 1)?)?)?;
        }
        Ok((sum, Some(inputs)))
    }
}
