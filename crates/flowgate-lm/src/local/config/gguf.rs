//! Reads the shape of a decoder from the metadata of a GGUF file. GGUF is llama.cpp's format, with metadata, vocabulary
//! and weights in one file. [`LocalModel`](super::super::LocalModel) uses this module for paths that end in `.gguf`.

use serde_json::Value;

use super::super::load_error::LoadError;
use super::super::weights::gguf::GgufFile;
use super::fields::Fields;
use super::{
    Activation, Architecture, DecoderConfig, MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, NormKind,
    Positions, RotaryConfig, RotaryScaling,
};

/// Reads the shape of the decoder. `context` is the maximum number of tokens that the caller wants to read; `None`
/// selects the length of text that the model was trained for. Fails if a field is missing, out of range or not
/// supported.
///
/// A file may store divisors of the rotary frequencies as a tensor. These are not part of the shape:
/// `decoder/rotary.rs` reads them with the weights.
pub(crate) fn read(file: &GgufFile, context: Option<usize>) -> Result<DecoderConfig, LoadError> {
    let fields = Fields { file: file.path(), map: &file.metadata };
    let kind = fields.text("general.architecture")?.unwrap_or_default();
    let architecture = match kind {
        "llama" => Architecture::Llama,
        "qwen3" => Architecture::Qwen3,
        "phi3" => Architecture::Phi3,
        _ => {
            return Err(fields.error(format_args!(
                "`general.architecture` is `{kind}`, which is not supported in GGUF files; use a model with llama, qwen3 or phi3"
            )));
        }
    };
    let key = |name: &str| format!("{kind}.{name}");
    let size = |name: &str, most: usize| fields.size(&key(name), most);
    let optional = |name: &str, most: usize| fields.optional_size(&key(name), most);
    let width = size("embedding_length", MAX_WIDTH)?;
    let heads = size("attention.head_count", MAX_WIDTH)?;
    let key_heads = optional("attention.head_count_kv", MAX_WIDTH)?.unwrap_or(heads);
    let head_width = optional("attention.key_length", MAX_WIDTH)?.unwrap_or(width / heads);
    if !heads.is_multiple_of(key_heads) {
        return Err(fields.error(format_args!(
            "`{kind}.attention.head_count` ({heads}) is not a multiple of `{kind}.attention.head_count_kv` ({key_heads}); download or convert the model again"
        )));
    }
    if head_width < 2 {
        return Err(fields.error(format_args!(
            "each head has {head_width} dimensions (`{kind}.attention.key_length`, or `embedding_length` divided by `head_count`), but needs at least 2; download or convert the model again"
        )));
    }
    let rotated = optional("rope.dimension_count", MAX_WIDTH)?.unwrap_or(head_width);
    if rotated > head_width || !rotated.is_multiple_of(2) {
        return Err(fields.error(format_args!(
            "`{kind}.rope.dimension_count` ({rotated}) must be even, and at most the width of a head, {head_width}; download or convert the model again"
        )));
    }
    // A model that was stretched to longer texts also states the length of its training, which is the default.
    let longest = size("context_length", MAX_CONTEXT)?;
    let original = optional("rope.scaling.original_context_length", MAX_CONTEXT)?;
    // The scaling `longrope` is stored as tensors of divisors, which are not read here.
    let scaling = match fields.text(&key("rope.scaling.type"))? {
        None | Some("none" | "longrope") => RotaryScaling::None,
        Some("linear") => RotaryScaling::Linear(fields.number(&key("rope.scaling.factor"), 1.0)?),
        Some(other) => {
            return Err(fields.error(format_args!(
                "`{kind}.rope.scaling.type` is `{other}`, which is not supported; use a model with none, linear or longrope"
            )));
        }
    };
    let vocabulary = match file.shape("token_embd.weight") {
        Some(&[rows, _]) if (1..=MAX_VOCABULARY).contains(&rows) => rows,
        Some(&[rows, _]) if rows > MAX_VOCABULARY => {
            return Err(fields.error(format_args!(
                "tensor `token_embd.weight` has {rows} rows, one for each token, and a model may have at most {MAX_VOCABULARY} tokens; use another model"
            )));
        }
        _ => {
            return Err(fields.error(
                "tensor `token_embd.weight` is missing, empty or not a matrix, so the file is damaged or incomplete; download it again",
            ));
        }
    };
    let context = context.unwrap_or_else(|| original.unwrap_or(longest)).min(longest);
    // A file without an output matrix uses the embedding.
    let is_tied = file.shape("output.weight").is_none();
    Ok(DecoderConfig {
        architecture,
        vocabulary,
        embedding_width: width,
        width,
        layers: size("block_count", MAX_LAYERS)?,
        heads,
        key_heads,
        head_width,
        inner_width: size("feed_forward_length", MAX_WIDTH)?,
        context,
        norm: NormKind::Rms,
        epsilon: fields.number(&key("attention.layer_norm_rms_epsilon"), 1e-6)?,
        norm_first: true,
        final_norm: true,
        positions: Positions::Rotary(RotaryConfig {
            base: fields.number(&key("rope.freq_base"), 10_000.0)?,
            width: rotated,
            scaling,
            // The conversion to GGUF reorders the rows of Llama's queries and keys so that pairs are adjacent.
            is_interleaved: architecture == Architecture::Llama,
        }),
        activation: Activation::Silu,
        is_gated: true,
        attention_bias: file.shape("blk.0.attn_q.bias").is_some(),
        feed_forward_bias: false,
        query_key_norm: architecture == Architecture::Qwen3,
        is_fused: architecture == Architecture::Phi3,
        is_tied,
        // Only Phi-3 has a window. In the other two architectures, a token attends to all earlier ones.
        window: optional("attention.sliding_window", MAX_CONTEXT)?
            .filter(|_| architecture == Architecture::Phi3),
        embedding_scale: 1.0,
        convolution: 0,
    })
}

/// Returns the factor by which rotated vectors are multiplied (`magnitude` of `RotaryScaling::Factors`), as the
/// metadata state it; 1 if the metadata state no positive, finite number.
pub(crate) fn magnitude(file: &GgufFile) -> f64 {
    let value = file.metadata.get("phi3.rope.scaling.attn_factor").and_then(Value::as_f64);
    value.filter(|magnitude| magnitude.is_finite() && *magnitude > 0.0).unwrap_or(1.0)
}
