//! Reads the shape of a decoder from the `config.json` of a model in Hugging Face's form.
//! [`LocalModel`](super::super::LocalModel) uses this module for folders.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::load_error::LoadError;
use super::fields::Fields;
use super::{
    Activation, Architecture, DecoderConfig, MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, NormKind,
    Positions, RotaryConfig,
};

/// Reads the shape of a decoder from `map`, the content of `file`. `context` is the maximum number of tokens that the
/// caller wants to read; `None` selects the length of text that the model was trained for. Fails if a field is missing,
/// out of range or not supported.
pub(crate) fn read(
    file: &Path,
    map: &Map<String, Value>,
    context: Option<usize>,
) -> Result<DecoderConfig, LoadError> {
    let fields = Fields { file, map };
    let kind = fields.text("model_type")?.unwrap_or_default();
    let architecture = match kind {
        "llama" => Architecture::Llama,
        "qwen3" => Architecture::Qwen3,
        "phi3" => Architecture::Phi3,
        "opt" => Architecture::Opt,
        "flowgate" => Architecture::Flowgate,
        _ => {
            return Err(fields.error(format_args!(
                "`model_type` is `{kind}`, which is not supported; use a model of the type llama, qwen3, phi3, opt or flowgate, or to classify texts bert, roberta, xlm-roberta or modernbert"
            )));
        }
    };
    if fields.get("quantization_config").is_some() {
        return Err(fields.error(
            "`quantization_config`: quantised safetensors are not supported; use the model's weights without quantisation, or a GGUF file",
        ));
    }
    let config = if architecture == Architecture::Opt {
        read_opt(fields, context)?
    } else {
        read_rotary(fields, architecture, context)?
    };
    // Heads share keys and values in groups of equal size.
    if !config.heads.is_multiple_of(config.key_heads) {
        return Err(fields.error(format_args!(
            "`num_attention_heads` ({}) must be a multiple of `num_key_value_heads` ({}); use the unchanged file of a supported model",
            config.heads, config.key_heads
        )));
    }
    Ok(config)
}

/// Reads the shape of a model with rotary positions, which all families except OPT have. `context` is the maximum
/// number of tokens that the caller wants to read; `None` selects the length of text that the model was trained for.
fn read_rotary(
    fields: Fields<'_>,
    architecture: Architecture,
    context: Option<usize>,
) -> Result<DecoderConfig, LoadError> {
    let width = fields.size("hidden_size", MAX_WIDTH)?;
    let heads = fields.size("num_attention_heads", MAX_WIDTH)?;
    let head_width = match fields.optional_size("head_dim", MAX_WIDTH)? {
        Some(size) => size,
        None if width.is_multiple_of(heads) => width / heads,
        None => {
            return Err(fields.error(format_args!(
                "`hidden_size` ({width}) must be a multiple of `num_attention_heads` ({heads}) where `head_dim` is missing; use the unchanged file of a supported model"
            )));
        }
    };
    // A model that was stretched to longer texts also states the length of its training, which is the default.
    let longest = fields.size("max_position_embeddings", MAX_CONTEXT)?;
    let original = fields.optional_size("original_max_position_embeddings", MAX_CONTEXT)?;
    let mut context = context.unwrap_or_else(|| original.unwrap_or(longest)).min(longest);
    // Also lowers `context` if the rotation is chosen by the length of the text (`longrope`).
    let positions = Positions::Rotary(RotaryConfig::read(fields, head_width, &mut context)?);
    // A sliding window limits how many earlier tokens a token attends to. The files of Qwen3 state its size even for
    // models that do not use it. A Qwen3 model that uses the window has it in some layers only; this decoder does not
    // support that, since it has one window for all layers.
    let slides = architecture != Architecture::Qwen3 || fields.flag("use_sliding_window", false)?;
    let window = fields.optional_size("sliding_window", MAX_CONTEXT)?.filter(|_| slides);
    if window.is_some() && architecture == Architecture::Qwen3 {
        return Err(fields.error("`use_sliding_window` is not supported for qwen3; use a model without it"));
    }
    // Some fields exist only in Flowgate's own models.
    let is_own = architecture == Architecture::Flowgate;
    let activation = activation(fields, fields.text("hidden_act")?.unwrap_or("silu"))?;
    Ok(DecoderConfig {
        architecture,
        vocabulary: fields.size("vocab_size", MAX_VOCABULARY)?,
        embedding_width: width,
        width,
        layers: fields.size("num_hidden_layers", MAX_LAYERS)?,
        heads,
        key_heads: fields.optional_size("num_key_value_heads", MAX_WIDTH)?.unwrap_or(heads),
        head_width,
        inner_width: fields.size("intermediate_size", MAX_WIDTH)?,
        context,
        norm: NormKind::Rms,
        epsilon: fields.number("rms_norm_eps", 1e-6)?,
        norm_first: true,
        final_norm: true,
        positions,
        activation,
        is_gated: true,
        attention_bias: fields.flag("attention_bias", false)?,
        feed_forward_bias: fields.flag("mlp_bias", false)?,
        query_key_norm: is_own || architecture == Architecture::Qwen3,
        is_fused: architecture == Architecture::Phi3,
        is_tied: fields.flag("tie_word_embeddings", is_own)?,
        window,
        embedding_scale: if is_own { fields.number("embedding_scale", 1.0)? } else { 1.0 },
        convolution: if is_own { fields.optional_size("convolution", 16)?.unwrap_or(0) } else { 0 },
    })
}

/// Reads the shape of a model of the family OPT, whose positions are not rotary but learned: one vector per position.
/// `context` is the maximum number of tokens that the caller wants to read; `None` selects all positions of the model.
fn read_opt(fields: Fields<'_>, context: Option<usize>) -> Result<DecoderConfig, LoadError> {
    let width = fields.size("hidden_size", MAX_WIDTH)?;
    let heads = fields.size("num_attention_heads", MAX_WIDTH)?;
    if !width.is_multiple_of(heads) {
        return Err(fields.error(format_args!(
            "`hidden_size` ({width}) must be a multiple of `num_attention_heads` ({heads}); use the unchanged file of a supported model"
        )));
    }
    if !fields.flag("layer_norm_elementwise_affine", true)? {
        return Err(fields
            .error("`layer_norm_elementwise_affine` must be true; use a model with learned normalisations"));
    }
    let norm_first = fields.flag("do_layer_norm_before", true)?;
    let has_bias = fields.flag("enable_bias", true)?;
    let longest = fields.size("max_position_embeddings", MAX_CONTEXT)?;
    let activation = activation(fields, fields.text("activation_function")?.unwrap_or("relu"))?;
    Ok(DecoderConfig {
        architecture: Architecture::Opt,
        vocabulary: fields.size("vocab_size", MAX_VOCABULARY)?,
        embedding_width: fields.optional_size("word_embed_proj_dim", MAX_WIDTH)?.unwrap_or(width),
        width,
        layers: fields.size("num_hidden_layers", MAX_LAYERS)?,
        heads,
        key_heads: heads,
        head_width: width / heads,
        inner_width: fields.size("ffn_dim", MAX_WIDTH)?,
        context: context.unwrap_or(longest).min(longest),
        norm: NormKind::Layer,
        // The files of OPT do not state this constant; the value is the default of PyTorch.
        epsilon: 1e-5,
        norm_first,
        // Layers that normalise their results need no normalisation after the last one.
        final_norm: norm_first && !fields.flag("_remove_final_layer_norm", false)?,
        // The table of OPT begins with two rows that belong to no position.
        positions: Positions::Learned { offset: 2, rows: longest + 2 },
        activation,
        is_gated: false,
        attention_bias: has_bias,
        feed_forward_bias: has_bias,
        query_key_norm: false,
        is_fused: false,
        is_tied: fields.flag("tie_word_embeddings", true)?,
        window: None,
        embedding_scale: 1.0,
        convolution: 0,
    })
}

/// Returns the activation (the nonlinear function of the feed-forward part) that has the name `name` in a
/// `config.json`. Fails if the name is unknown.
pub(super) fn activation(fields: Fields<'_>, name: &str) -> Result<Activation, LoadError> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        _ => Err(fields.error(format_args!(
            "the activation `{name}` is not supported; use a model with silu, gelu, gelu_new or relu"
        ))),
    }
}
