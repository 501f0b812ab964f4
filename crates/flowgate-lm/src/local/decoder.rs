//! Defines [`Decoder`], the neural network of a language model. It computes a vector for each token of a text (the
//! hidden state), and from this vector a number for each possible next token (the logits), which determine its
//! probability. `evaluation.rs`, `score.rs`, `inside.rs`, `jacobian.rs` and `train.rs` evaluate texts with it.
//!
//! One decoder covers all architectures; [`DecoderConfig`] says how they differ. The operations of a layer are in
//! `attention.rs`, `feed_forward.rs`, `linear.rs` (matrices), `norm.rs` and `rotary.rs` (positions). A
//! [`KeyValueCache`] (`cache.rs`) holds the keys and values of earlier tokens, which later tokens read. An evaluation
//! returns a new cache instead of changing the earlier one, so that many continuations share the cache of their prefix.
//! A [`Probe`] (`probe.rs`) selects the intermediate values that the caller receives. [`BlockedTokens`] (`blocked.rs`)
//! are regions that no token outside them reads.

mod attention;
mod blocked;
mod cache;
mod feed_forward;
mod linear;
mod norm;
mod probe;
mod rotary;

use candle_core::{DType, Device, Result, Tensor};

use self::attention::SelfAttention;
use self::feed_forward::FeedForward;
use self::linear::Linear;
use self::norm::Norm;
use self::rotary::RotaryTable;
use super::config::{DecoderConfig, Positions};
use super::load_error::LoadError;
use super::weights::{LayerRole, TensorRole, WeightSource, Weights};

pub(crate) use blocked::BlockedTokens;
pub(crate) use cache::KeyValueCache;
pub(crate) use probe::{Kernels, Probe};

/// A decoder with its weights.
#[derive(Debug)]
pub(crate) struct Decoder {
    config: DecoderConfig,
    device: Device,
    /// Whether the matrices are quantised.
    is_quantized: bool,
    /// The vector of each token, as a row.
    embedding: Tensor,
    /// The learned vectors of positions, if the model has them.
    positions: Option<Tensor>,
    /// Maps embeddings to the width of the layers, if the widths differ.
    project_in: Option<Linear>,
    /// Maps hidden states to the width of the embeddings, if the widths differ.
    project_out: Option<Linear>,
    /// The rotation of positions, if the model has it.
    rotary: Option<RotaryTable>,
    layers: Vec<DecoderLayer>,
    /// The normalisation after the last layer, if the model has one.
    norm: Option<Norm>,
    /// Maps hidden states to logits.
    output: Linear,
}

/// One layer: attention and a feed-forward part, each with a normalisation.
#[derive(Debug)]
struct DecoderLayer {
    attention_norm: Norm,
    attention: SelfAttention,
    feed_forward_norm: Norm,
    feed_forward: FeedForward,
}

impl Decoder {
    /// Reads the weights of a decoder of this shape. Fails if a tensor is missing or has another shape.
    pub(crate) fn load(config: DecoderConfig, weights: &Weights) -> std::result::Result<Self, LoadError> {
        // The width of the embedding (`outer`) may differ from that of the layers. Matrices then map between the two.
        let (width, outer) = (config.width, config.embedding_width);
        let projection = |role, rows, columns| {
            if width == outer { Ok(None) } else { Linear::load(weights, role, None, rows, columns).map(Some) }
        };
        let positions = match config.positions {
            Positions::Learned { rows, .. } => Some(weights.tensor(TensorRole::Positions, &[rows, width])?),
            Positions::Rotary(_) => None,
        };
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            let norm = |role, bias| {
                Norm::load(
                    weights,
                    &config,
                    TensorRole::OfLayer(layer, role),
                    TensorRole::OfLayer(layer, bias),
                    width,
                )
            };
            layers.push(DecoderLayer {
                attention_norm: norm(LayerRole::AttentionNorm, LayerRole::AttentionNormBias)?,
                attention: SelfAttention::load(weights, &config, layer)?,
                feed_forward_norm: norm(LayerRole::FeedForwardNorm, LayerRole::FeedForwardNormBias)?,
                feed_forward: FeedForward::load(weights, &config, layer)?,
            });
        }
        // A model with tied weights computes logits with the matrix of its embedding.
        let output = if config.is_tied { TensorRole::Embedding } else { TensorRole::Output };
        Ok(Self {
            embedding: weights.tensor(TensorRole::Embedding, &[config.vocabulary, outer])?,
            positions,
            project_in: projection(TensorRole::ProjectIn, width, outer)?,
            project_out: projection(TensorRole::ProjectOut, outer, width)?,
            rotary: match &config.positions {
                Positions::Rotary(rotary) => Some(RotaryTable::load(rotary, weights, &config)?),
                Positions::Learned { .. } => None,
            },
            layers,
            norm: if config.final_norm {
                Some(Norm::load(weights, &config, TensorRole::FinalNorm, TensorRole::FinalNormBias, width)?)
            } else {
                None
            },
            output: Linear::load(weights, output, None, config.vocabulary, outer)?,
            device: weights.device.clone(),
            is_quantized: matches!(weights.source, WeightSource::Gguf(_)),
            config,
        })
    }

    /// Returns the shape of the decoder.
    pub(crate) fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns whether the matrices are quantised. Quantised matrices have no gradient.
    pub(crate) fn is_quantized(&self) -> bool {
        self.is_quantized
    }

    /// Returns the device on which the weights are. Inputs must be on the same device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Evaluates `tokens`, of shape (batch, time), which follow the tokens of `cache`. Returns the normalised hidden
    /// states of the last layer, of shape (batch, time, embedding width), and the cache extended by these tokens. The
    /// probe receives the intermediate values that it selects, and can add a tensor to the embeddings and to the
    /// attention.
    pub(crate) fn forward(
        &self,
        tokens: &Tensor,
        cache: &KeyValueCache,
        probe: &mut Probe<'_>,
    ) -> Result<(Tensor, KeyValueCache)> {
        let (batch, time) = tokens.dims2()?;
        let start = cache.len();
        let mut x = self.embed(tokens, start)?;
        if let Some(added) = probe.added_to_embedding {
            x = (x + added)?;
        }
        let angles =
            self.rotary.as_ref().map(|rotary| rotary.angles(start, time, &self.device)).transpose()?;
        let mask = self.mask(start, time, probe.blocked)?;
        let mut extended = Vec::with_capacity(self.layers.len());
        // The probe counts the embeddings as layer 0.
        probe.see_hidden(&x);
        for (index, layer) in self.layers.iter().enumerate() {
            let mut run = attention::LayerRun {
                angles: angles.as_ref(),
                mask: mask.as_ref(),
                before: cache.layer(index, batch)?,
                probe,
                layer: index,
            };
            let (next, after) = layer.forward(&x, self.config.norm_first, &mut run)?;
            x = next;
            extended.push(after);
            // The states of the last layer are passed at the end, after the final normalisation.
            if index + 1 < self.layers.len() {
                probe.see_hidden(&x);
            }
        }
        if let Some(norm) = &self.norm {
            x = norm.forward(&x, probe.kernels)?;
        }
        // As in transformers, the last hidden state of OPT-350m is the projected one.
        if let Some(project) = &self.project_out {
            x = project.forward(&x)?;
        }
        probe.see_hidden(&x);
        Ok((x, KeyValueCache::new(extended, start + time)))
    }

    /// Returns the logits that follow from hidden states of the last layer. The last dimension of the result has one
    /// entry for each token of the vocabulary.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.output.forward(hidden)
    }

    /// Returns the input of the first layer: the embeddings of the tokens, scaled, projected and with learned positions
    /// as the configuration states. `start` is the position of the first token.
    fn embed(&self, tokens: &Tensor, start: usize) -> Result<Tensor> {
        let (batch, time) = tokens.dims2()?;
        let mut x = self.embedding.index_select(&tokens.flatten_all()?, 0)?.reshape((
            batch,
            time,
            self.config.embedding_width,
        ))?;
        #[expect(clippy::float_cmp, reason = "the scale is exactly 1 if the configuration states no scale")]
        if self.config.embedding_scale != 1.0 {
            x = (x * self.config.embedding_scale)?;
        }
        if let Some(project) = &self.project_in {
            x = project.forward(&x)?;
        }
        if let (Some(table), Positions::Learned { offset, .. }) = (&self.positions, &self.config.positions) {
            x = x.broadcast_add(&table.narrow(0, start + offset, time)?)?;
        }
        Ok(x)
    }

    /// Returns the mask that is added to attention scores, of shape (time, start + time), for `time` new tokens (the
    /// rows) after `start` tokens in the cache. An entry is 0 if the token of its row may attend to the token of its
    /// column: itself or an earlier token, within the window of the model, and not in a blocked region unless both
    /// tokens are in the same one. All other entries are minus infinity. `None` if all entries would be 0: without
    /// blocked regions, a single new token within the window may attend to all tokens before it.
    fn mask(&self, start: usize, time: usize, blocked: Option<&BlockedTokens>) -> Result<Option<Tensor>> {
        let reach = self.config.window.unwrap_or(usize::MAX);
        let total = start + time;
        if time == 1 && total <= reach && blocked.is_none() {
            return Ok(None);
        }
        let row = |row: usize| {
            // The position of the token of this row.
            let own_column = start + row;
            (0..total).map(move |column| {
                let can_attend = column <= own_column
                    && own_column - column < reach
                    && blocked.is_none_or(|blocked| blocked.can_read(own_column, column));
                if can_attend { 0.0 } else { f32::NEG_INFINITY }
            })
        };
        let mask: Vec<f32> = (0..time).flat_map(row).collect();
        Tensor::from_vec(mask, (time, total), &self.device).map(Some)
    }
}

impl DecoderLayer {
    /// Evaluates the layer for `x`, the hidden states of new tokens. `run` has the mask, the angles of the positions, the
    /// cache of earlier tokens and the probe. Attention and then the feed-forward part each add their output to their
    /// input. If `norm_first` is true, each part reads its input normalised; otherwise the sum is normalised. Returns the
    /// hidden states, and the cache of the layer with the new tokens.
    fn forward(
        &self,
        x: &Tensor,
        norm_first: bool,
        run: &mut attention::LayerRun<'_, '_>,
    ) -> Result<(Tensor, cache::LayerCache)> {
        let kernels = run.probe.kernels;
        let (x, after) = if norm_first {
            let (attended, after) = self.attention.forward(&self.attention_norm.forward(x, kernels)?, run)?;
            ((x + attended)?, after)
        } else {
            let (attended, after) = self.attention.forward(x, run)?;
            (self.attention_norm.forward(&(x + attended)?, kernels)?, after)
        };
        let x = if norm_first {
            (&x + self.feed_forward.forward(&self.feed_forward_norm.forward(&x, kernels)?)?)?
        } else {
            self.feed_forward_norm.forward(&(&x + self.feed_forward.forward(&x)?)?, kernels)?
        };
        Ok((x, after))
    }
}

/// Returns a tensor of token ids of the shape (1, count).
pub(crate) fn token_row(tokens: &[u32], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(tokens, (1, tokens.len()), device)?.to_dtype(DType::U32)
}
