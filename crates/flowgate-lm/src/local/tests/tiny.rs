//! Creates tiny models for the tests of local models: configurations, weights from a formula, a tokenizer, and folders
//! with all files of a model. `compat/lm/tiny.py` computes the same weights for transformers, so that the results can be
//! compared.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{Device, Tensor};
use serde_json::{Map, Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::local::config::{DecoderConfig, hugging_face};
use crate::local::decoder::Decoder;
use crate::local::weights::{WeightSource, Weights};
use crate::local::{LocalModel, LocalSettings};

/// The value of entry `index` of the tensor `name`, from -1 to 1: a hash of the name and the index, computed as in
/// `compat/lm/tiny.py`.
fn entry(name: &str, index: u32) -> f64 {
    let seed =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut x = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9));
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^= x >> 16;
    f64::from(x) / 2_f64.powi(31) - 1.0
}

/// The content of a tensor: normalisations are near 1, biases near 0, and matrices keep the length of vectors.
pub(super) fn weight(name: &str, shape: &[usize]) -> Tensor {
    let is_vector = shape.len() == 1;
    let scale = match (is_vector, name.ends_with("bias")) {
        (true, _) => 0.25,
        (false, _) if name.contains("embed") => 1.0,
        (false, _) => (3.0 / *shape.last().unwrap() as f64).sqrt(),
    };
    let base = if is_vector && !name.ends_with("bias") { 1.0 } else { 0.0 };
    let count = u32::try_from(shape.iter().product::<usize>()).unwrap();
    let values: Vec<f32> = (0..count).map(|index| (base + scale * entry(name, index)) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Reads the shape of a decoder from the content of a `config.json`.
pub(super) fn read_config(config: &Value) -> DecoderConfig {
    hugging_face::read(Path::new("config.json"), config.as_object().unwrap(), None).unwrap()
}

/// The decoder of a configuration, with weights from the formula.
pub(super) fn decoder(config: &Value) -> Decoder {
    let config = read_config(config);
    let weights = memory_weights(&config, tensors(&config));
    Decoder::load(config, &weights).unwrap()
}

/// Returns these tensors as the source of a decoder's weights, so that no file is needed.
pub(super) fn memory_weights(config: &DecoderConfig, tensors: HashMap<String, Tensor>) -> Weights {
    Weights { source: WeightSource::Memory(tensors), architecture: config.architecture, device: Device::Cpu }
}

/// The tensors of a decoder by their names in Hugging Face's files.
pub(super) fn tensors(config: &DecoderConfig) -> HashMap<String, Tensor> {
    shapes(config).into_iter().map(|(name, shape)| (name.clone(), weight(&name, &shape))).collect()
}

/// The names and shapes of all tensors. They are repeated here so that a mistake in the names of the loader is found.
fn shapes(config: &DecoderConfig) -> Vec<(String, Vec<usize>)> {
    use crate::local::config::{Architecture, Positions};
    let (width, inner) = (config.width, config.inner_width);
    let (queries, keys) = (config.heads * config.head_width, config.key_heads * config.head_width);
    let mut all: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: String, shape: &[usize]| all.push((name, shape.to_vec()));
    let is_opt = config.architecture == Architecture::Opt;
    let root = if is_opt { "model.decoder" } else { "model" };
    add(format!("{root}.embed_tokens.weight"), &[config.vocabulary, config.embedding_width]);
    if let Positions::Learned { rows, .. } = config.positions {
        add(format!("{root}.embed_positions.weight"), &[rows, width]);
    }
    if config.embedding_width != width {
        add(format!("{root}.project_in.weight"), &[width, config.embedding_width]);
        add(format!("{root}.project_out.weight"), &[config.embedding_width, width]);
    }
    for layer in 0..config.layers {
        let mut part = |name: &str, shape: &[usize]| add(format!("{root}.layers.{layer}.{name}"), shape);
        let mut linear = |name: &str, rows: usize, columns: usize, bias: bool| {
            part(&format!("{name}.weight"), &[rows, columns]);
            if bias {
                part(&format!("{name}.bias"), &[rows]);
            }
        };
        let bias = config.attention_bias;
        if config.is_fused {
            linear("self_attn.qkv_proj", queries + 2 * keys, width, false);
            linear("mlp.gate_up_proj", 2 * inner, width, false);
        } else {
            linear("self_attn.q_proj", queries, width, bias);
            linear("self_attn.k_proj", keys, width, bias);
            linear("self_attn.v_proj", keys, width, bias);
        }
        linear(if is_opt { "self_attn.out_proj" } else { "self_attn.o_proj" }, width, queries, bias);
        if is_opt {
            linear("fc1", inner, width, config.feed_forward_bias);
            linear("fc2", width, inner, config.feed_forward_bias);
        } else {
            if !config.is_fused {
                linear("mlp.gate_proj", inner, width, config.feed_forward_bias);
                linear("mlp.up_proj", inner, width, config.feed_forward_bias);
            }
            linear("mlp.down_proj", width, inner, config.feed_forward_bias);
        }
        let norms = if is_opt {
            ["self_attn_layer_norm", "final_layer_norm"]
        } else {
            ["input_layernorm", "post_attention_layernorm"]
        };
        for norm in norms {
            part(&format!("{norm}.weight"), &[width]);
            if is_opt {
                part(&format!("{norm}.bias"), &[width]);
            }
        }
        if config.query_key_norm {
            part("self_attn.q_norm.weight", &[config.head_width]);
            part("self_attn.k_norm.weight", &[config.head_width]);
        }
        if config.convolution > 0 {
            part("self_attn.convolution.weight", &[config.convolution, width]);
        }
    }
    if is_opt && config.final_norm {
        add(format!("{root}.final_layer_norm.weight"), &[width]);
        add(format!("{root}.final_layer_norm.bias"), &[width]);
    } else if !is_opt {
        add("model.norm.weight".to_owned(), &[width]);
    }
    if !config.is_tied {
        add("lm_head.weight".to_owned(), &[config.vocabulary, config.embedding_width]);
    }
    all
}

/// The configurations of the tests, by name.
pub(super) fn configurations() -> Vec<(&'static str, Value)> {
    let rotary = |kind: &str, changes: Value| {
        let mut config = json!({
            "model_type": kind, "vocab_size": 288, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        });
        merge(&mut config, changes);
        config
    };
    let opt = |changes: Value| {
        let mut config = json!({
            "model_type": "opt", "vocab_size": 288, "hidden_size": 32, "ffn_dim": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512,
            "word_embed_proj_dim": 32,
        });
        merge(&mut config, changes);
        config
    };
    let llama3 = json!({"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }, "tie_word_embeddings": true});
    vec![
        ("llama", rotary("llama", json!({}))),
        ("llama with scaling", rotary("llama", llama3)),
        ("llama with biases", rotary("llama", json!({"attention_bias": true, "mlp_bias": true}))),
        ("qwen3", rotary("qwen3", json!({"head_dim": 16, "tie_word_embeddings": true}))),
        ("phi3", rotary("phi3", json!({"sliding_window": 5, "partial_rotary_factor": 0.5}))),
        ("opt", opt(json!({}))),
        ("opt with projections", opt(json!({"do_layer_norm_before": false, "word_embed_proj_dim": 16}))),
        ("flowgate", rotary("flowgate", json!({"convolution": 3, "embedding_scale": 5.0}))),
    ]
}

/// Sets the fields of `changes` in a configuration.
pub(super) fn merge(config: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { return };
    config.as_object_mut().unwrap().extend(changes);
}

/// Returns the configuration with this name in [`configurations`].
pub(super) fn configuration(name: &str) -> Value {
    configurations().into_iter().find(|(found, _)| *found == name).unwrap().1
}

/// A tokenizer with the 256 bytes, some pairs, and marks; it begins each text with `<s>`.
pub(super) fn tokenizer() -> Value {
    let mut tokens: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    tokens.sort_unstable();
    let merges = ["t h", "th e", "Ġ t", "Ġ a", "e r", "Ċ Ċ"];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let marks = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"];
    let first = tokens.len();
    let vocabulary: Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), id.into())).collect();
    let added: Vec<Value> = marks
        .iter()
        .enumerate()
        .map(|(index, mark)| {
            json!({"id": first + index, "content": mark, "special": index < 4, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}, "padding": null,
        "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [first], "tokens": ["<s>"]}}},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary, "merges": merges},
    })
}

/// A chat template in the form of ChatML, with tools.
pub(super) const TEMPLATE: &str = "{%- if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}\
{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

/// A folder that is deleted when it is dropped.
pub(in crate::local) struct TempFolder(PathBuf);

impl TempFolder {
    pub(in crate::local) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("flowgate-lm-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(in crate::local) fn path(&self) -> &Path {
        &self.0
    }

    pub(in crate::local) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), content).unwrap();
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A folder with all files of a model.
pub(super) fn folder(config: &Value) -> TempFolder {
    let folder = TempFolder::new();
    folder.write("config.json", config.to_string());
    folder.write("tokenizer.json", tokenizer().to_string());
    folder.write("chat_template.jinja", TEMPLATE);
    folder.write("tokenizer_config.json", r#"{"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}}"#);
    let tensors = tensors(&read_config(config));
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// The model of a configuration, loaded from a folder.
pub(super) fn model(config: &Value) -> LocalModel {
    let folder = folder(config);
    LocalModel::load(folder.path(), &LocalSettings::default()).unwrap()
}
