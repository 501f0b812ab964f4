//! Defines [`KeyValueCache`], the cache of a decoder: the keys and values of earlier tokens in each layer, which later
//! tokens read by attention. With the cache of a text, the decoder evaluates only the tokens that follow the text.
//! `evaluation.rs` keeps the caches of recent prompts, and `score.rs` those of prefixes, in order to continue the same
//! text many times.

use candle_core::{Result, Tensor};

/// The keys and values of the first tokens of a text, for each layer. The cache is never changed: an evaluation returns
/// a new one with more tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyValueCache {
    /// The caches of the layers, in order; none if there are no tokens.
    layers: Vec<LayerCache>,
    /// The number of tokens.
    length: usize,
}

/// The keys and values of one layer, of shape (batch, heads, time, head width).
#[derive(Debug, Clone)]
pub(super) struct LayerCache {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
    /// The inputs of the layer for earlier tokens, of shape (batch, time, width), if the model has a convolution, which
    /// reads them.
    pub(super) inputs: Option<Tensor>,
}

impl KeyValueCache {
    /// Creates the cache of `length` tokens from the caches of all layers, in order.
    pub(super) fn new(layers: Vec<LayerCache>, length: usize) -> Self {
        Self { layers, length }
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the cache of the first `length` tokens, or of all tokens if there are fewer. The result is the same as
    /// if only these tokens had been evaluated, because their keys and values do not depend on later tokens.
    pub(crate) fn truncated(&self, length: usize) -> Result<Self> {
        if length >= self.length {
            return Ok(self.clone());
        }
        if length == 0 {
            return Ok(Self::default());
        }
        // Time is dimension 2 of keys and values, and dimension 1 of inputs.
        let layer = |layer: &LayerCache| {
            Ok(LayerCache {
                keys: layer.keys.narrow(2, 0, length)?,
                values: layer.values.narrow(2, 0, length)?,
                inputs: layer.inputs.as_ref().map(|inputs| inputs.narrow(1, 0, length)).transpose()?,
            })
        };
        Ok(Self { layers: self.layers.iter().map(layer).collect::<Result<_>>()?, length })
    }

    /// Returns the cache of a batch (texts that are evaluated together, one in each row) that has the rows of all
    /// `caches`, one cache after another. All caches must have the same number of tokens. A single cache is returned
    /// unchanged. If `caches` is empty, the result has no tokens.
    pub(crate) fn stacked(caches: &[Self]) -> Result<Self> {
        let [first, rest @ ..] = caches else { return Ok(Self::default()) };
        if rest.is_empty() || first.length == 0 {
            return Ok(first.clone());
        }
        // Rows are dimension 0 of all tensors.
        let stack = |tensors: Vec<&Tensor>| Tensor::cat(&tensors, 0);
        let mut stacked_layers = Vec::with_capacity(first.layers.len());
        for (index, first_layer) in first.layers.iter().enumerate() {
            // This layer of all caches.
            let layers: Vec<&LayerCache> =
                caches.iter().filter_map(|cache| cache.layers.get(index)).collect();
            let inputs: Vec<&Tensor> = layers.iter().filter_map(|layer| layer.inputs.as_ref()).collect();
            stacked_layers.push(LayerCache {
                keys: stack(layers.iter().map(|layer| &layer.keys).collect())?,
                values: stack(layers.iter().map(|layer| &layer.values).collect())?,
                inputs: if first_layer.inputs.is_some() { Some(stack(inputs)?) } else { None },
            });
        }
        Ok(Self { layers: stacked_layers, length: first.length })
    }

    /// Returns the cache of the rows of the batch with the indices `rows`. When the other rows of a batch are finished,
    /// the evaluation continues with this smaller cache.
    pub(crate) fn rows(&self, rows: &Tensor) -> Result<Self> {
        // The rows of the batch are dimension 0 of all three tensors.
        let layer = |layer: &LayerCache| {
            Ok(LayerCache {
                keys: layer.keys.index_select(rows, 0)?,
                values: layer.values.index_select(rows, 0)?,
                inputs: layer.inputs.as_ref().map(|inputs| inputs.index_select(rows, 0)).transpose()?,
            })
        };
        Ok(Self { layers: self.layers.iter().map(layer).collect::<Result<_>>()?, length: self.length })
    }

    /// Returns the cache of the layer `index` for `batch` rows. The cache of a prefix that all rows continue has a
    /// single row, which is repeated for each of them, without a copy. `None` if the cache has no tokens.
    pub(super) fn layer(&self, index: usize, batch: usize) -> Result<Option<LayerCache>> {
        let Some(layer) = self.layers.get(index) else { return Ok(None) };
        if layer.keys.dim(0)? == batch {
            return Ok(Some(layer.clone()));
        }
        let expand = |tensor: &Tensor| {
            let mut shape = tensor.dims().to_vec();
            if let Some(first) = shape.first_mut() {
                *first = batch;
            }
            tensor.broadcast_as(shape)
        };
        Ok(Some(LayerCache {
            keys: expand(&layer.keys)?,
            values: expand(&layer.values)?,
            inputs: layer.inputs.as_ref().map(expand).transpose()?,
        }))
    }
}
