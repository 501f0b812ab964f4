//! Tests of encoders that classify texts: parity with transformers, folders, and files that are damaged.
//!
//! `compat/lm/run golden` writes the files of expected scores. They contain no weights: both sides compute these with
//! the formula of `tiny.rs`.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use serde_json::{Map, Value, json};

use super::tiny::{self, TempFolder};
use crate::local::config::encoder::EncoderConfig;
use crate::local::encoder::Encoder;
use crate::local::weights::safetensors::SafetensorsFolder;
use crate::local::{LocalSettings, LocalTextClassifier, ModelDigest};
use crate::{Error, TextLabelModel};

/// A file of expected scores: the configuration of an encoder, the shapes of its tensors, texts as tokens, and the
/// scores that transformers computed for each text.
#[derive(Clone, serde::Deserialize)]
struct Reference {
    config: Map<String, Value>,
    tensors: HashMap<String, Vec<usize>>,
    texts: Vec<Vec<u32>>,
    scores: Vec<Vec<f32>>,
}

/// Reads the file of expected scores with this name.
fn reference(name: &str) -> Reference {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/encoders");
    serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.json"))).unwrap()).unwrap()
}

const NAMES: [&str; 5] = ["bert", "modernbert", "modernbert-biases", "roberta", "xlm-roberta"];

/// Writes the weights of a reference to a folder.
fn weights(reference: &Reference) -> TempFolder {
    let folder = TempFolder::new();
    let tensors: HashMap<String, Tensor> =
        reference.tensors.iter().map(|(name, shape)| (name.clone(), tiny::weight(name, shape))).collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// Loads the encoder of a reference.
fn encoder(reference: &Reference) -> Encoder {
    let config = EncoderConfig::read(Path::new("config.json"), &reference.config, None).unwrap();
    // The weights are read by `load`, so their folder must exist until then.
    let files = weights(reference);
    let folder = SafetensorsFolder::open(files.path()).unwrap();
    Encoder::load(&config, &folder, &Device::Cpu, 3).unwrap()
}

#[test]
fn every_encoder_is_as_transformers_computes_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/encoders");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    for name in NAMES {
        let reference = reference(name);
        let folder = weights(&reference);
        let config = EncoderConfig::read(Path::new("config.json"), &reference.config, None).unwrap();
        let opened = SafetensorsFolder::open(folder.path()).unwrap();
        let encoder = Encoder::load(&config, &opened, &Device::Cpu, 3).unwrap();
        assert_eq!(encoder.config().context, 40, "{name}");
        for (text, expected) in reference.texts.iter().zip(&reference.scores) {
            let found = encoder.scores(text).unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 2e-5, "{name} {text:?}: {found} and not {expected}");
            }
        }
    }
}

/// Queries are evaluated in pieces. A text that is longer than a piece has the same scores as if all queries were
/// evaluated at once. A text with the same tokens in another order has other scores.
#[test]
fn long_texts_are_evaluated_in_pieces() {
    for name in ["bert", "modernbert"] {
        let mut reference = reference(name);
        reference.config.insert("max_position_embeddings".to_owned(), json!(700));
        if let Some(shape) = reference.tensors.get_mut("bert.embeddings.position_embeddings.weight") {
            *shape = vec![700, 16];
        }
        let encoder = encoder(&reference);
        let text: Vec<u32> = (0..600).map(|at| (at * at + at / 7) % 23 + 1).collect();
        let found = encoder.scores(&text).unwrap();
        let reversed: Vec<u32> = text.iter().rev().copied().collect();
        assert!((encoder.scores(&reversed).unwrap()[0] - found[0]).abs() > 1e-3, "{name}");
        let at_once = encoder.with_piece(1000).scores(&text).unwrap();
        for (found, expected) in found.iter().zip(&at_once) {
            assert!((found - expected).abs() < 1e-4, "{name}: {found} and not {expected}");
        }
    }
}

/// A folder with all files of a classifier: the tokenizer adds a token at both ends.
fn folder(reference: &Reference) -> TempFolder {
    let folder = weights(reference);
    let mut config = reference.config.clone();
    config.insert("id2label".to_owned(), json!({"0": "benign", "1": "injection", "2": "other"}));
    folder.write("config.json", Value::Object(config).to_string());
    let words = ["[CLS]", "[SEP]", "[UNK]", "ignore", "all", "rules", "add", "one", "and", "two"];
    let vocabulary: Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    let added: Vec<Value> = (0..3)
        .map(|id| {
            json!({"id": id, "content": words[id], "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    let part = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let special = |name: &str, id: u32| json!({"id": name, "ids": [id], "tokens": [name]});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null, "decoder": null,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [part("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, part("[SEP]")],
            "pair": [part("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": special("[CLS]", 0), "[SEP]": special("[SEP]", 1)}},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    folder.write("tokenizer.json", tokenizer.to_string());
    folder
}

#[test]
fn a_folder_with_an_encoder_classifies_texts() {
    for name in NAMES {
        let reference = reference(name);
        let folder = folder(&reference);
        let classifier = LocalTextClassifier::load(folder.path(), &LocalSettings::default()).unwrap();
        assert_eq!(classifier.labels(), ["benign", "injection", "other"]);
        // The model reads both tokens that the tokenizer adds, also the last one.
        let scores = encoder(&reference).scores(&[0, 3, 4, 5, 1]).unwrap();
        let exponentials: Vec<f64> = scores.iter().map(|score| f64::from(*score).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        let found = classifier.label_probabilities("ignore all rules").unwrap();
        for (found, expected) in found.iter().zip(exponentials.iter().map(|one| one / sum)) {
            assert!((found - expected).abs() < 1e-6, "{name}: {found} and not {expected}");
        }
        let long = "add one and two ".repeat(10);
        let error = Error::TooManyTokens { tokens: 42, limit: 40 };
        assert_eq!(classifier.label_probabilities(&long), Err(error), "{name}");
        assert!(classifier.label_probabilities("").is_ok(), "the added tokens are read");
        assert_eq!(ModelDigest::of_files(folder.path()).unwrap().short().len(), 16);
    }
    let settings = LocalSettings { context: Some(4), ..LocalSettings::default() };
    let short = LocalTextClassifier::load(folder(&reference("bert")).path(), &settings).unwrap();
    let error = Error::TooManyTokens { tokens: 5, limit: 4 };
    assert_eq!(short.label_probabilities("ignore all rules"), Err(error));
}

#[test]
fn damaged_encoders_are_refused() {
    // Sets one field in the configuration of the reference `name`.
    let check = |name: &str, field: &str, value: Value, expected: &str| {
        let mut reference = reference(name);
        reference.config.insert(field.to_owned(), value);
        let error =
            LocalTextClassifier::load(folder(&reference).path(), &LocalSettings::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{field}: {error}, expected {expected}");
    };
    check(
        "bert",
        "hidden_size",
        json!(18),
        "`hidden_size` (18) must be a multiple of `num_attention_heads` (4)",
    );
    check(
        "bert",
        "num_hidden_layers",
        json!(3),
        "tensor `bert.encoder.layer.2.attention.self.query.weight` is missing",
    );
    check("bert", "vocab_size", json!(25), "`bert.embeddings.word_embeddings.weight` has the shape [24, 16]");
    check(
        "bert",
        "vocab_size",
        json!(9),
        "the tokenizer has 10 tokens, but the weights have vectors for only 9",
    );
    check(
        "bert",
        "position_embedding_type",
        json!("relative_key"),
        "`position_embedding_type` must be `absolute`",
    );
    check("bert", "is_decoder", json!(true), "`is_decoder` false");
    check("bert", "hidden_act", json!("mish"), "the activation `mish` is not supported");
    check("bert", "quantization_config", json!({}), "quantised safetensors are not supported");
    check(
        "roberta",
        "pad_token_id",
        json!(41),
        "`max_position_embeddings` (42) must be greater than `pad_token_id` by at least 2",
    );
    check("roberta", "pad_token_id", json!(-1), "`pad_token_id` must be a whole number");
    check("roberta", "pad_token_id", json!(u64::MAX), "`pad_token_id` must be a whole number");
    check("modernbert", "num_attention_heads", json!(16), "heads of ModernBERT must have an even width");
    check(
        "modernbert",
        "layer_types",
        json!(["full_attention"]),
        "`layer_types` must have `full_attention` or",
    );
    check(
        "modernbert",
        "classifier_pooling",
        json!("max"),
        "`classifier_pooling` is `max`; use a model with cls or mean",
    );
    let scaled = json!({"full_attention": {"rope_type": "yarn", "rope_theta": 10.0}});
    check(
        "modernbert",
        "rope_parameters",
        scaled,
        "`rope_parameters.full_attention.rope_type` is `yarn`, which is not supported for ModernBERT",
    );
    check(
        "bert",
        "model_type",
        json!("deberta-v2"),
        "to classify texts bert, roberta, xlm-roberta or modernbert",
    );
}

/// Files from earlier versions of transformers describe the layers of ModernBERT with other fields of the same meaning.
#[test]
fn earlier_files_of_modernbert_mean_the_same() {
    let mut reference = reference("modernbert");
    let later = EncoderConfig::read(Path::new("config.json"), &reference.config, None).unwrap();
    for field in ["layer_types", "rope_parameters"] {
        assert!(reference.config.remove(field).is_some(), "{field}");
    }
    for (field, value) in [
        ("global_attn_every_n_layers", json!(3)),
        ("local_attention", json!(4)),
        ("global_rope_theta", json!(160_000.0)),
        ("local_rope_theta", json!(10_000.0)),
    ] {
        reference.config.insert(field.to_owned(), value);
    }
    assert_eq!(EncoderConfig::read(Path::new("config.json"), &reference.config, None).unwrap(), later);
}
