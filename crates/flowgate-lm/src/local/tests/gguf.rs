//! Tests that a GGUF file gives the same model as safetensors, in single precision and quantised.

use std::io::Write as _;

use candle_core::Tensor;
use candle_core::quantized::gguf_file::{self, Value as GgufValue};
use candle_core::quantized::{GgmlDType, QTensor};
use serde_json::{Value, json};

use super::tiny;
use crate::local::{LocalModel, LocalSettings};
use crate::{AttentionModel, AttentionRequest, HiddenStateModel, ScoringModel, block_on};

/// Reorders the rows of each head of Llama's queries and keys from halves to pairs, as llama.cpp's converter does.
fn interleaved(tensor: &Tensor, heads: usize) -> Tensor {
    let (rows, columns) = tensor.dims2().unwrap();
    let halves = tensor.reshape((heads, 2, rows / heads / 2, columns)).unwrap();
    halves.transpose(1, 2).unwrap().contiguous().unwrap().reshape((rows, columns)).unwrap()
}

/// Returns the name of a tensor in a GGUF file, from its name in Hugging Face's files.
fn gguf_name(name: &str) -> String {
    let mut out = name.replace("model.layers.", "blk.");
    for (from, to) in [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ] {
        out = out.replace(from, to);
    }
    out
}

/// Returns the bytes of a GGUF file with the tiny model of a configuration and its tokenizer. `data_type` is the type
/// of the entries of matrices; vectors are always in single precision.
pub(super) fn file(config: &Value, data_type: GgmlDType) -> Vec<u8> {
    let shape = tiny::read_config(config);
    let kind = config["model_type"].as_str().unwrap();
    let number = |key: &str| GgufValue::U32(u32::try_from(config[key].as_u64().unwrap()).unwrap());
    let key = |name: &str| format!("{kind}.{name}");
    let mut metadata: Vec<(String, GgufValue)> = vec![
        ("general.architecture".into(), GgufValue::String(kind.into())),
        (key("embedding_length"), number("hidden_size")),
        (key("block_count"), number("num_hidden_layers")),
        (key("attention.head_count"), number("num_attention_heads")),
        (key("attention.head_count_kv"), number("num_key_value_heads")),
        (key("attention.key_length"), GgufValue::U32(shape.head_width as u32)),
        (key("feed_forward_length"), number("intermediate_size")),
        (key("context_length"), number("max_position_embeddings")),
        (key("attention.layer_norm_rms_epsilon"), GgufValue::F32(1e-6)),
        (key("rope.freq_base"), GgufValue::F32(10_000.0)),
    ];
    if let Some(window) = shape.window {
        metadata.push((key("attention.sliding_window"), GgufValue::U32(window as u32)));
        metadata.push((key("rope.dimension_count"), GgufValue::U32(shape.head_width as u32 / 2)));
    }
    let tokenizer = tiny::tokenizer();
    let mut tokens: Vec<(u64, String, i32)> = Vec::new();
    for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
        tokens.push((id.as_u64().unwrap(), token.clone(), 1));
    }
    for added in tokenizer["added_tokens"].as_array().unwrap() {
        let token_type = if added["special"].as_bool().unwrap() { 3 } else { 4 };
        tokens.push((
            added["id"].as_u64().unwrap(),
            added["content"].as_str().unwrap().to_owned(),
            token_type,
        ));
    }
    tokens.sort();
    let texts = |list: Vec<String>| GgufValue::Array(list.into_iter().map(GgufValue::String).collect());
    let merges = tokenizer["model"]["merges"].as_array().unwrap();
    let first = tokens.iter().position(|(_, token, _)| token == "<s>").unwrap();
    let end = tokens.iter().position(|(_, token, _)| token == "<|im_end|>").unwrap();
    metadata.extend([
        ("tokenizer.ggml.model".to_owned(), GgufValue::String("gpt2".into())),
        ("tokenizer.ggml.pre".to_owned(), GgufValue::String("gpt-2".into())),
        (
            "tokenizer.ggml.tokens".to_owned(),
            texts(tokens.iter().map(|(_, token, _)| token.clone()).collect()),
        ),
        (
            "tokenizer.ggml.token_type".to_owned(),
            GgufValue::Array(tokens.iter().map(|(_, _, token_type)| GgufValue::I32(*token_type)).collect()),
        ),
        (
            "tokenizer.ggml.merges".to_owned(),
            texts(merges.iter().map(|merge| merge.as_str().unwrap().to_owned()).collect()),
        ),
        ("tokenizer.ggml.bos_token_id".to_owned(), GgufValue::U32(first as u32)),
        ("tokenizer.ggml.eos_token_id".to_owned(), GgufValue::U32(end as u32)),
        ("tokenizer.ggml.add_bos_token".to_owned(), GgufValue::Bool(true)),
        ("tokenizer.chat_template".to_owned(), GgufValue::String(tiny::TEMPLATE.into())),
    ]);
    let quantized: Vec<(String, QTensor)> = tiny::tensors(&shape)
        .into_iter()
        .map(|(name, tensor)| {
            let heads = if name.contains("q_proj") { shape.heads } else { shape.key_heads };
            let is_swapped = kind == "llama" && (name.contains("q_proj") || name.contains("k_proj"));
            let tensor = if is_swapped { interleaved(&tensor, heads) } else { tensor };
            let data_type = if tensor.rank() == 1 { GgmlDType::F32 } else { data_type };
            (gguf_name(&name), QTensor::quantize(&tensor, data_type).unwrap())
        })
        .collect();
    let metadata: Vec<(&str, &GgufValue)> =
        metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        quantized.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut out = std::io::Cursor::new(Vec::new());
    gguf_file::write(&mut out, &metadata, &tensors).unwrap();
    out.flush().unwrap();
    out.into_inner()
}

/// Loads the model of a GGUF file with these bytes. The text of an error names the file without its folder.
pub(super) fn load(bytes: &[u8]) -> Result<LocalModel, String> {
    let folder = tiny::TempFolder::new();
    folder.write("model.gguf", bytes);
    LocalModel::load(&folder.path().join("model.gguf"), &LocalSettings::default()).map_err(|error| {
        let path = folder.path().to_str().unwrap().to_owned() + "/";
        error.to_string().replace(&path, "")
    })
}

#[test]
fn the_same_model_in_both_forms() {
    for name in ["llama", "qwen3", "phi3"] {
        let config = tiny::configuration(name);
        let expected = tiny::model(&config);
        let text = "the other theory";
        let scores = |model: &LocalModel| block_on(model.score(text, " is the cat, é")).unwrap();
        for (data_type, tolerance) in [(GgmlDType::F32, 1e-3), (GgmlDType::F16, 0.05), (GgmlDType::Q8_0, 0.5)]
        {
            let model = load(&file(&config, data_type)).unwrap();
            let (found, expected) = (scores(&model), scores(&expected));
            assert_eq!(found.len(), expected.len());
            let mut largest = 0.0_f64;
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.text, expected.text);
                largest = largest.max((found.logprob - expected.logprob).abs());
            }
            assert!(largest < tolerance, "{name} in {data_type:?}: {largest}");
        }
        let (found, expected) = (
            load(&file(&config, GgmlDType::F32)).unwrap().hidden_states(text, 2).unwrap(),
            expected.hidden_states(text, 2).unwrap(),
        );
        assert_eq!(found.tokens, expected.tokens);
        for (found, expected) in found.vectors.iter().flatten().zip(expected.vectors.iter().flatten()) {
            assert!((found - expected).abs() < 1e-3, "{name}");
        }
    }
}

#[test]
fn gradients_need_whole_weights() {
    let model = load(&file(&tiny::configuration("llama"), GgmlDType::Q8_0)).unwrap();
    let error = model.attention(&AttentionRequest::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the model cannot answer this request: quantised weights have no gradients; load the model from safetensors"
    );
}

#[test]
fn sentence_piece_tokenizers_are_rebuilt() {
    let tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "▁a", "ab", "▁ab", "<0xC3>", "<0xA9>"];
    let types = [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 6, 6];
    let scores = [0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -3.0, -2.0, -1.0, 0.0, 0.0];
    let metadata = json!({
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.unknown_token_id": 0,
    });
    let path = std::path::Path::new("x.gguf");
    let tokenizer =
        crate::local::tokenizer::TextTokenizer::of_gguf(path, metadata.as_object().unwrap()).unwrap();
    let check = |text: &str, expected: &[u32]| {
        let ids = tokenizer.encode(text).unwrap().ids;
        assert_eq!(ids, expected, "{text}");
        assert_eq!(tokenizer.decode(&ids).unwrap().trim_start_matches("<s>").trim_start(), text);
    };
    check("ab", &[1, 9]);
    check("ab a", &[1, 9, 7]);
    check("a\né", &[1, 7, 3, 10, 11]);
}
