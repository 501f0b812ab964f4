//! Tests that files which are cut off, malformed or contradict each other cause an error that names the file and the
//! place in it.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Tensor};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::gguf;
use super::tiny::{self, TempFolder};
use crate::local::{LocalModel, LocalSettings};

fn load(folder: &TempFolder) -> Result<LocalModel, String> {
    LocalModel::load(folder.path(), &LocalSettings::default())
        .map_err(|error| error.to_string().replace(folder.path().to_str().unwrap(), "M"))
}

fn check(change: &dyn Fn(&TempFolder), expected: &str) {
    let folder = tiny::folder(&tiny::configuration("llama"));
    change(&folder);
    assert_eq!(load(&folder).map(|_| ()), Err(format!("cannot load the model from {expected}")));
}

#[test]
fn configurations_that_do_not_fit() {
    let check = |changes: Value, expected: &str| {
        let change = |folder: &TempFolder| {
            let mut config = tiny::configuration("llama");
            tiny::merge(&mut config, changes.clone());
            folder.write("config.json", config.to_string());
        };
        check(&change, &format!("`M/config.json`: {expected}"));
    };
    check(
        json!({"model_type": "gpt2"}),
        "`model_type` is `gpt2`, which is not supported; use a model of the type llama, qwen3, phi3, opt or flowgate",
    );
    check(
        json!({"hidden_size": 1_000_000_000_000_u64}),
        "`hidden_size` must be a whole number from 1 to 131072; use the unchanged file of a supported model",
    );
    check(
        json!({"num_hidden_layers": 0}),
        "`num_hidden_layers` must be a whole number from 1 to 1024; use the unchanged file of a supported model",
    );
    check(
        json!({"num_hidden_layers": null}),
        "`num_hidden_layers` is missing; use a complete file of a supported model",
    );
    check(
        json!({"vocab_size": -3}),
        "`vocab_size` must be a whole number from 1 to 4194304; use the unchanged file of a supported model",
    );
    check(
        json!({"num_key_value_heads": 3}),
        "`num_attention_heads` (4) must be a multiple of `num_key_value_heads` (3); use the unchanged file of a supported model",
    );
    check(
        json!({"num_attention_heads": 5}),
        "`hidden_size` (32) must be a multiple of `num_attention_heads` (5) where `head_dim` is missing; use the unchanged file of a supported model",
    );
    check(
        json!({"head_dim": 7}),
        "rotary positions cover 7 of the 7 dimensions of a head, but must cover an even number, at least 2 and at most all; check `partial_rotary_factor` and `head_dim`",
    );
    check(
        json!({"rope_theta": "1"}),
        "`rope_theta` must be a positive number; use the unchanged file of a supported model",
    );
    check(
        json!({"rope_scaling": {"rope_type": "yarn"}}),
        "`rope_scaling` of type `yarn` is not supported; use a model with default, linear, llama3 or longrope",
    );
    check(
        json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "original_max_position_embeddings": 512}}),
        "`short_factor` must be a list of 4 positive numbers; use the unchanged file of a supported model",
    );
    check(
        json!({"hidden_act": "mish"}),
        "the activation `mish` is not supported; use a model with silu, gelu, gelu_new or relu",
    );
    check(
        json!({"quantization_config": {}}),
        "`quantization_config`: quantised safetensors are not supported; use the model's weights without quantisation, or a GGUF file",
    );
}

#[test]
fn sizes_of_the_configuration_are_those_of_the_tensors() {
    let check = |changes: Value, expected: &str| {
        let change = |folder: &TempFolder| {
            let mut config = tiny::configuration("llama");
            tiny::merge(&mut config, changes.clone());
            folder.write("config.json", config.to_string());
        };
        check(&change, expected);
    };
    check(
        json!({"intermediate_size": 131_072}),
        "`M/model.safetensors`: tensor `model.layers.0.mlp.gate_proj.weight` has the shape [64, 32], but the configuration asks for \
        [131072, 32]; use the configuration of these weights",
    );
    check(
        json!({"num_hidden_layers": 1024}),
        "`M`: tensor `model.layers.2.input_layernorm.weight` is missing; the folder is incomplete, or the configuration is that of another model; download all files of one model again",
    );
    check(
        json!({"vocab_size": 256}),
        "`M`: the tokenizer has 268 tokens, but the weights have vectors for only 256; use the tokenizer of these weights",
    );
}

/// Returns the bytes of a safetensors file with this header.
fn safetensors(header: &str, content: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + content, 0);
    bytes
}

#[test]
fn weights_that_are_damaged() {
    let weights = |bytes: Vec<u8>, expected: &str| {
        check(
            &|folder| folder.write("model.safetensors", &bytes),
            &format!("`M/model.safetensors`: {expected}"),
        );
    };
    let cut = "the file is shorter than its header says, so it is incomplete; download it again";
    weights(Vec::new(), cut);
    weights(vec![1, 0, 0], cut);
    weights(1000_u64.to_le_bytes().to_vec(), cut);
    weights(u64::MAX.to_le_bytes().to_vec(), cut);
    weights(
        (1_u64 << 40).to_le_bytes().to_vec(),
        "the header has 1099511627776 bytes, more than the limit of 67108864, so the file is damaged or has another format; download it again",
    );
    weights(
        safetensors("{", 0),
        "the header is not the expected JSON: EOF while parsing an object at line 1 column 1; the file is damaged or has another format, so download it again",
    );
    let one = |entry: &str| safetensors(&format!(r#"{{"t": {entry}}}"#), 8);
    weights(
        one("3"),
        "tensor `t` has an entry in the header that is not the expected JSON: invalid type: integer `3`, expected struct HeaderEntry; the file is damaged or has another format, so download it again",
    );
    weights(
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}"#),
        "tensor `t` reaches beyond the end of the file, which is incomplete; download it again",
    );
    weights(
        one(r#"{"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}"#),
        "tensor `t` has the bytes 0 to 8, which do not fit its shape [3], so the file is damaged; download it again",
    );
    weights(
        one(r#"{"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}"#),
        "tensor `t` has the bytes 0 to 8, which do not fit its shape [4294967296, 4294967296], so the file is damaged; download it again",
    );
    weights(
        one(r#"{"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}"#),
        "tensor `t` has the bytes 8 to 0, which do not fit its shape [2], so the file is damaged; download it again",
    );
    weights(
        one(r#"{"dtype": "F4", "shape": [2], "data_offsets": [0, 8]}"#),
        "tensor `t` has the type `F4`, which is not supported; use weights in F64, F32, F16 or BF16",
    );
}

#[test]
fn files_that_are_missing_or_malformed() {
    let remove = |name: &'static str| {
        move |folder: &TempFolder| std::fs::remove_file(folder.path().join(name)).unwrap()
    };
    let missing =
        "the file cannot be read: No such file or directory (os error 2); check its path and its permissions";
    check(&remove("config.json"), &format!("`M/config.json`: {missing}"));
    check(&remove("tokenizer.json"), &format!("`M/tokenizer.json`: {missing}"));
    check(
        &remove("model.safetensors"),
        "`M`: the folder has neither `model.safetensors` nor `model.safetensors.index.json`; convert other weights to safetensors with \
        `save_pretrained` of transformers, or name a GGUF file",
    );
    let write = |name: &'static str, text: &'static str| move |folder: &TempFolder| folder.write(name, text);
    check(
        &write("config.json", "[]"),
        "`M/config.json`: the file is damaged or has another format: invalid type: sequence, expected a map at line 1 column 0; replace it with an undamaged copy",
    );
    check(
        &write("tokenizer.json", "{}}"),
        "`M/tokenizer.json`: the file is not valid JSON: trailing characters at line 1 column 3; download it again",
    );
    check(
        &write("tokenizer.json", "{}"),
        "`M/tokenizer.json`: the tokenizer cannot be loaded: Model missing.; use the complete `tokenizer.json` of a supported model",
    );
    check(
        &write("chat_template.jinja", "{% for %}"),
        "`M/chat_template.jinja`: the chat template is malformed: syntax error: unexpected end of block, expected in (in <string>:1); use the template of the original model",
    );
    check(
        &write("model.safetensors.index.json", r#"{"weight_map": {"a": "../secret"}}"#),
        "`M/model.safetensors.index.json`: the index names the file `../secret`, which is a path and not a file of the folder; download the index again",
    );
    check(
        &write("model.safetensors.index.json", r#"{"weight_map": {"a": "model.safetensors"}}"#),
        "`M/model.safetensors.index.json`: tensor `a` is not in `model.safetensors`, where the index expects it; download both files again",
    );
    check(
        &|folder| {
            std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
            std::fs::create_dir(folder.path().join("tokenizer.json")).unwrap();
        },
        "`M/tokenizer.json`: the path does not name a regular file; put the model's file there",
    );
}

#[test]
fn shards_and_other_precisions() {
    let config = tiny::configuration("llama");
    let folder = tiny::folder(&config);
    let expected = load(&folder).unwrap().hidden_states_of("the cat");
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let mut names: Vec<(String, Tensor)> = tiny::tensors(&tiny::read_config(&config)).into_iter().collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let mut index = serde_json::Map::new();
    for (shard, part) in names.chunks(8).enumerate() {
        let file = format!("model-{shard}.safetensors");
        let data_type = [DType::F32, DType::F64, DType::F32][shard % 3];
        let part = part.iter().map(|(name, tensor)| (name.clone(), tensor.to_dtype(data_type).unwrap()));
        let part: std::collections::HashMap<String, Tensor> = part.collect();
        index.extend(part.keys().map(|name| (name.clone(), Value::from(file.as_str()))));
        candle_core::safetensors::save(&part, folder.path().join(file)).unwrap();
    }
    folder.write("model.safetensors.index.json", json!({"weight_map": index}).to_string());
    assert_eq!(load(&folder).unwrap().hidden_states_of("the cat"), expected);
}

impl LocalModel {
    fn hidden_states_of(&self, text: &str) -> Vec<Vec<f32>> {
        crate::HiddenStateModel::hidden_states(self, text, 2).unwrap().vectors
    }
}

#[test]
fn gguf_files_that_are_damaged() {
    let check = |bytes: &[u8], expected: &str| {
        assert_eq!(
            gguf::load(bytes).map(|_| ()),
            Err(format!("cannot load the model from `model.gguf`: {expected}"))
        );
    };
    let good = gguf::file(&tiny::configuration("llama"), GgmlDType::F32);
    let cut = "the file ends within its header, so it is incomplete; download it again";
    check(b"", cut);
    check(b"GGML____________", "the file is not a GGUF file; name a GGUF file, or a folder with safetensors");
    check(
        b"GGUF\x09\0\0\0\0\0\0\0\0\0\0\0",
        "the file has version 9 of GGUF, which is not supported; convert the model to version 2 or 3",
    );
    check(&good[..100], cut);
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    check(
        &with(8, u64::MAX),
        "the number of tensors, 18446744073709551615, exceeds the limit of 65536, so the file is probably damaged; download it again",
    );
    // The header states more metadata than the file has, so what follows is read as metadata.
    check(
        &with(24, 1 << 60),
        "a text of the header has 1152921504606846976 bytes, more than the limit of 1048576, so the file is probably damaged; download it again",
    );
    let error = gguf::load(&good[..good.len() - 5]).unwrap_err();
    assert!(
        error.ends_with("reaches beyond the end of the file, which is incomplete; download it again"),
        "{error}"
    );
}

#[test]
fn weights_that_are_no_numbers() {
    let config = tiny::configuration("llama");
    let folder = tiny::folder(&config);
    let mut tensors = tiny::tensors(&tiny::read_config(&config));
    let name = "model.layers.1.self_attn.q_proj.weight";
    tensors.insert(name.to_owned(), Tensor::full(f32::NAN, (32, 32), &candle_core::Device::Cpu).unwrap());
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let model = load(&folder).unwrap();
    let scored = crate::block_on(crate::ScoringModel::score(&model, "a", "b"));
    let shown = scored.unwrap_err().to_string();
    assert_eq!(
        shown,
        "the weights of the model give no probabilities, so they are damaged; download them again"
    );
    let request = crate::AttentionRequest { prompt: "a", continuation: "b", ..Default::default() };
    let shown = crate::AttentionModel::attention(&model, &request).unwrap_err();
    let expected =
        "the attention of the model is not a number, so its weights are damaged; download them again";
    assert_eq!(shown.to_string(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    /// If any bytes of a file are changed, loading returns a model that can read texts, or an error.
    #[test]
    fn changed_bytes_never_panic(
        file in prop::sample::select(vec!["model.gguf", "model.safetensors", "tokenizer.json", "config.json"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        static FILES: std::sync::OnceLock<TempFolder> = std::sync::OnceLock::new();
        let folder = FILES.get_or_init(|| {
            let config = tiny::configuration("llama");
            let folder = tiny::folder(&config);
            folder.write("model.gguf", gguf::file(&config, GgmlDType::Q8_0));
            folder
        });
        let whole = std::fs::read(folder.path().join(file)).unwrap();
        let mut bytes = whole.clone();
        // Headers are at the beginning.
        let header = bytes.len().min(12_000);
        for (at, byte) in &changes {
            bytes[at.index(header)] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(header));
        }
        let loaded = if file == "model.gguf" {
            gguf::load(&bytes)
        } else {
            folder.write(file, bytes);
            load(folder)
        };
        folder.write(file, whole);
        if let Ok(model) = loaded {
            let _ = crate::HiddenStateModel::hidden_states(&model, "the cat, é\n", 1);
        }
    }
}
