//! Defines the roles of tensors in the decoder ([`TensorRole`]), and maps each role to the name of the tensor in
//! Hugging Face's files and in GGUF files. `weights.rs` looks tensors up by these names, so that the decoder needs only
//! roles.

use super::super::config::Architecture;

/// The role of a tensor in the decoder. Layers are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorRole {
    Embedding,
    /// The learned vectors of positions.
    Positions,
    /// The matrix that maps embeddings to the width of the layers.
    ProjectIn,
    /// The matrix that maps hidden states to the width of the embeddings.
    ProjectOut,
    /// The normalisation after the last layer.
    FinalNorm,
    FinalNormBias,
    /// The matrix from hidden states to logits.
    Output,
    /// Divisors of the frequencies of rotary positions, for all texts. Only GGUF files have such tensors.
    RotaryDivisors,
    /// Divisors of the frequencies of rotary positions, for short contexts only.
    RotaryDivisorsShort,
    /// Divisors of the frequencies of rotary positions, for long contexts only.
    RotaryDivisorsLong,
    /// A tensor of the layer with this index.
    OfLayer(usize, LayerRole),
}

/// The role of a tensor in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerRole {
    AttentionNorm,
    AttentionNormBias,
    Query,
    QueryBias,
    Key,
    KeyBias,
    Value,
    ValueBias,
    /// The matrices of queries, keys and values as one.
    QueryKeyValue,
    AttentionOutput,
    AttentionOutputBias,
    QueryNorm,
    KeyNorm,
    Convolution,
    FeedForwardNorm,
    FeedForwardNormBias,
    Gate,
    GateBias,
    Up,
    UpBias,
    /// The matrices of gate and input as one.
    GateUp,
    Down,
    DownBias,
}

impl TensorRole {
    /// Returns the name of the tensor in safetensors files, in Hugging Face's form; `None` if models of this
    /// architecture have no such tensor.
    pub(crate) fn hugging_face_name(self, architecture: Architecture) -> Option<String> {
        let is_opt = architecture == Architecture::Opt;
        let root = if is_opt { "model.decoder" } else { "model" };
        let name = match self {
            Self::Embedding => format!("{root}.embed_tokens.weight"),
            Self::Positions => format!("{root}.embed_positions.weight"),
            Self::ProjectIn => format!("{root}.project_in.weight"),
            Self::ProjectOut => format!("{root}.project_out.weight"),
            Self::FinalNorm if is_opt => format!("{root}.final_layer_norm.weight"),
            Self::FinalNormBias if is_opt => format!("{root}.final_layer_norm.bias"),
            Self::FinalNorm => format!("{root}.norm.weight"),
            Self::Output => "lm_head.weight".to_owned(),
            Self::OfLayer(layer, role) => {
                let part = if is_opt { opt_part(role) } else { llama_part(role) }?;
                format!("{root}.layers.{layer}.{part}")
            }
            Self::FinalNormBias
            | Self::RotaryDivisors
            | Self::RotaryDivisorsShort
            | Self::RotaryDivisorsLong => {
                return None;
            }
        };
        Some(name)
    }

    /// Returns the name of the tensor in a GGUF file; `None` if the supported GGUF files have no such tensor.
    pub(crate) fn gguf_name(self) -> Option<String> {
        let name = match self {
            Self::Embedding => "token_embd.weight",
            Self::FinalNorm => "output_norm.weight",
            Self::Output => "output.weight",
            Self::RotaryDivisors => "rope_freqs.weight",
            Self::RotaryDivisorsShort => "rope_factors_short.weight",
            Self::RotaryDivisorsLong => "rope_factors_long.weight",
            Self::OfLayer(layer, role) => return Some(format!("blk.{layer}.{}", gguf_part(role)?)),
            Self::Positions | Self::ProjectIn | Self::ProjectOut | Self::FinalNormBias => return None,
        };
        Some(name.to_owned())
    }
}

/// Returns the end of the name of a layer's tensor in Hugging Face's form, after `layers.N.`, for all architectures
/// except OPT. `None` if layers have no such tensor.
fn llama_part(role: LayerRole) -> Option<&'static str> {
    Some(match role {
        LayerRole::AttentionNorm => "input_layernorm.weight",
        LayerRole::Query => "self_attn.q_proj.weight",
        LayerRole::QueryBias => "self_attn.q_proj.bias",
        LayerRole::Key => "self_attn.k_proj.weight",
        LayerRole::KeyBias => "self_attn.k_proj.bias",
        LayerRole::Value => "self_attn.v_proj.weight",
        LayerRole::ValueBias => "self_attn.v_proj.bias",
        LayerRole::QueryKeyValue => "self_attn.qkv_proj.weight",
        LayerRole::AttentionOutput => "self_attn.o_proj.weight",
        LayerRole::AttentionOutputBias => "self_attn.o_proj.bias",
        LayerRole::QueryNorm => "self_attn.q_norm.weight",
        LayerRole::KeyNorm => "self_attn.k_norm.weight",
        LayerRole::Convolution => "self_attn.convolution.weight",
        LayerRole::FeedForwardNorm => "post_attention_layernorm.weight",
        LayerRole::Gate => "mlp.gate_proj.weight",
        LayerRole::GateBias => "mlp.gate_proj.bias",
        LayerRole::Up => "mlp.up_proj.weight",
        LayerRole::UpBias => "mlp.up_proj.bias",
        LayerRole::GateUp => "mlp.gate_up_proj.weight",
        LayerRole::Down => "mlp.down_proj.weight",
        LayerRole::DownBias => "mlp.down_proj.bias",
        LayerRole::AttentionNormBias | LayerRole::FeedForwardNormBias => return None,
    })
}

/// Returns the end of the name of a layer's tensor in Hugging Face's form, after `layers.N.`, for OPT. `None` if layers
/// have no such tensor. OPT names the tensors of queries, keys and values as Llama does.
fn opt_part(role: LayerRole) -> Option<&'static str> {
    Some(match role {
        LayerRole::AttentionNorm => "self_attn_layer_norm.weight",
        LayerRole::AttentionNormBias => "self_attn_layer_norm.bias",
        LayerRole::AttentionOutput => "self_attn.out_proj.weight",
        LayerRole::AttentionOutputBias => "self_attn.out_proj.bias",
        LayerRole::FeedForwardNorm => "final_layer_norm.weight",
        LayerRole::FeedForwardNormBias => "final_layer_norm.bias",
        LayerRole::Up => "fc1.weight",
        LayerRole::UpBias => "fc1.bias",
        LayerRole::Down => "fc2.weight",
        LayerRole::DownBias => "fc2.bias",
        LayerRole::Query
        | LayerRole::QueryBias
        | LayerRole::Key
        | LayerRole::KeyBias
        | LayerRole::Value
        | LayerRole::ValueBias => return llama_part(role),
        _ => return None,
    })
}

/// Returns the end of the name of a layer's tensor in a GGUF file, after `blk.N.`. `None` if layers have no such
/// tensor.
fn gguf_part(role: LayerRole) -> Option<&'static str> {
    Some(match role {
        LayerRole::AttentionNorm => "attn_norm.weight",
        LayerRole::Query => "attn_q.weight",
        LayerRole::QueryBias => "attn_q.bias",
        LayerRole::Key => "attn_k.weight",
        LayerRole::KeyBias => "attn_k.bias",
        LayerRole::Value => "attn_v.weight",
        LayerRole::ValueBias => "attn_v.bias",
        LayerRole::QueryKeyValue => "attn_qkv.weight",
        LayerRole::AttentionOutput => "attn_output.weight",
        LayerRole::AttentionOutputBias => "attn_output.bias",
        LayerRole::QueryNorm => "attn_q_norm.weight",
        LayerRole::KeyNorm => "attn_k_norm.weight",
        LayerRole::FeedForwardNorm => "ffn_norm.weight",
        LayerRole::Gate => "ffn_gate.weight",
        // Phi-3 has gate and input in one matrix under the name of the input.
        LayerRole::Up | LayerRole::GateUp => "ffn_up.weight",
        LayerRole::Down => "ffn_down.weight",
        _ => return None,
    })
}
