//! Defines the shape of a decoder, [`DecoderConfig`]: its sizes, such as the number and width of its layers, and the
//! variants of its operations. One decoder with such a shape covers all supported architectures.
//!
//! The submodule `hugging_face` reads the shape of a decoder from `config.json`, and `gguf` from the metadata of a GGUF
//! file. `encoder` defines and reads the shape of an encoder, `rotary` that of rotary positions, and `fields` reads
//! single fields.
//!
//! These modules check that the sizes are in range and fit each other, so that the decoder divides and multiplies them
//! without further checks. `../weights.rs` compares the tensors with the sizes before it allocates memory for them.

pub(crate) mod encoder;
mod fields;
pub(crate) mod gguf;
pub(crate) mod hugging_face;
mod rotary;

pub(crate) use rotary::{RotaryConfig, RotaryScaling};

/// The most tokens of a vocabulary.
pub(crate) const MAX_VOCABULARY: usize = 1 << 22;
/// The largest width of a layer, and the most heads.
pub(crate) const MAX_WIDTH: usize = 1 << 17;
/// The most layers.
pub(crate) const MAX_LAYERS: usize = 1 << 10;
/// The most tokens of a text.
pub(crate) const MAX_CONTEXT: usize = 1 << 22;

/// The family of a model, which determines the names of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    Qwen3,
    Phi3,
    Opt,
    /// Flowgate's own: as Qwen3, with a short convolution before attention.
    Flowgate,
}

/// The shape of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecoderConfig {
    pub(crate) architecture: Architecture,
    /// The number of tokens: rows of the embedding.
    pub(crate) vocabulary: usize,
    /// The width of the embeddings. In OPT-350m, it differs from the width of the layers.
    pub(crate) embedding_width: usize,
    /// The width of the layers: the length of a token's vector between them.
    pub(crate) width: usize,
    /// The number of layers.
    pub(crate) layers: usize,
    /// The number of heads of queries.
    pub(crate) heads: usize,
    /// The number of heads of keys and values; each serves `heads / key_heads` heads of queries.
    pub(crate) key_heads: usize,
    /// The length of the vectors of one head.
    pub(crate) head_width: usize,
    /// The width between the two projections of the feed-forward part.
    pub(crate) inner_width: usize,
    /// The most tokens that the model can read.
    pub(crate) context: usize,
    pub(crate) norm: NormKind,
    /// The constant that a normalisation adds to avoid a division by 0.
    pub(crate) epsilon: f64,
    /// Whether attention and the feed-forward part normalise their input; otherwise, the sum of their input and output
    /// is normalised.
    pub(crate) norm_first: bool,
    /// Whether the last layer is followed by a normalisation.
    pub(crate) final_norm: bool,
    pub(crate) positions: Positions,
    pub(crate) activation: Activation,
    /// Whether the feed-forward part has a gate: a second projection with which the first is multiplied.
    pub(crate) is_gated: bool,
    pub(crate) attention_bias: bool,
    pub(crate) feed_forward_bias: bool,
    /// Whether queries and keys are normalised, head by head.
    pub(crate) query_key_norm: bool,
    /// Whether queries, keys and values are computed by one matrix, and gate and input by another.
    pub(crate) is_fused: bool,
    /// Whether the output matrix is the same as the embedding.
    pub(crate) is_tied: bool,
    /// How many tokens a token attends to, itself included, if that is limited.
    pub(crate) window: Option<usize>,
    /// The factor by which embeddings are multiplied.
    pub(crate) embedding_scale: f64,
    /// How many earlier tokens the convolution before attention reads; 0 without a convolution.
    pub(crate) convolution: usize,
}

impl DecoderConfig {
    /// Returns the length of the queries of all heads together.
    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_width
    }

    /// Returns the length of the keys, and also of the values, of all heads together.
    pub(crate) fn key_width(&self) -> usize {
        self.key_heads * self.head_width
    }
}

/// The kind of normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// By the root mean square.
    Rms,
    /// By mean and variance, with a bias.
    Layer,
}

/// How a model represents the position of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Positions {
    /// A rotation of queries and keys.
    Rotary(RotaryConfig),
    /// A learned vector for each position: a table with `rows` rows, in which row `offset` is the first position.
    Learned { offset: usize, rows: usize },
}

/// The function between the projections of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    Gelu,
    /// GELU in the approximation by the hyperbolic tangent.
    GeluTanh,
    Relu,
}
