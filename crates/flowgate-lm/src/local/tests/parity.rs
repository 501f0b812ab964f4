//! Compares logits, hidden states, attention and gradients with those that transformers computed.
//!
//! `compat/lm/run golden` writes the files of expected values. They contain no weights: both sides compute these with
//! the formula of `tiny.rs`.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::tiny;
use crate::AttentionLoss;
use crate::local::decoder::{Decoder, KeyValueCache, Probe, token_row};
use crate::local::inside::attention_and_gradients;

/// A file of expected values: the configuration of a decoder, the shapes of its tensors, the tokens of a text, and what
/// transformers computed for the text.
#[derive(serde::Deserialize)]
struct Reference {
    config: Map<String, Value>,
    tensors: HashMap<String, Vec<usize>>,
    tokens: Vec<u32>,
    /// The number of tokens before those whose attention is shown.
    prompt: usize,
    logits: Vec<Vec<f32>>,
    /// The hidden states of the last token, by layer.
    hidden: Vec<Vec<f32>>,
    /// The attention, by layer, head, row and column.
    attention: Vec<Vec<Vec<Vec<f32>>>>,
    gradients: Vec<Vec<Vec<Vec<f32>>>>,
}

/// Fails if an entry of `found` differs from the expected one by `tolerance` or more, relative to the entry if it is
/// above 1.
fn assert_near(found: &[f32], expected: impl Iterator<Item = f32>, tolerance: f32, what: &str) {
    let expected: Vec<f32> = expected.collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let tolerance = tolerance * expected.abs().max(1.0);
        assert!((found - expected).abs() < tolerance, "{what}: {found} and not {expected}");
    }
}

/// Compares the decoder of a reference with the expected values: the hidden states of each layer, the logits, and the
/// attention of the tokens after the prompt with its gradients.
fn check(name: &str, reference: &Reference) {
    let config =
        crate::local::config::hugging_face::read(Path::new("config.json"), &reference.config, None).unwrap();
    let tensors =
        reference.tensors.iter().map(|(name, shape)| (name.clone(), tiny::weight(name, shape))).collect();
    let decoder = Decoder::load(config.clone(), &tiny::memory_weights(&config, tensors)).unwrap();
    let inputs = &reference.tokens[..reference.tokens.len() - 1];
    let row = token_row(inputs, decoder.device()).unwrap();
    for (layer, expected) in reference.hidden.iter().enumerate() {
        let mut probe = Probe { hidden_layer: Some(layer), ..Probe::default() };
        let (hidden, _) = decoder.forward(&row, &KeyValueCache::default(), &mut probe).unwrap();
        let seen: Vec<Vec<f32>> = probe.hidden.unwrap().squeeze(0).unwrap().to_vec2().unwrap();
        assert_near(
            seen.last().unwrap(),
            expected.iter().copied(),
            5e-5,
            &format!("{name}: hidden states of layer {layer}"),
        );
        let logits: Vec<f32> = decoder.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert_near(&logits, reference.logits.iter().flatten().copied(), 1e-4, &format!("{name}: logits"));
    }
    // The prompt is evaluated into the cache first, as in `AttentionModel`.
    let (before, steps) = inputs.split_at(reference.prompt - 1);
    let before = token_row(before, decoder.device()).unwrap();
    let (_, cache) = decoder.forward(&before, &KeyValueCache::default(), &mut Probe::default()).unwrap();
    let targets = &reference.tokens[reference.prompt..];
    let (weights, gradients) =
        attention_and_gradients(&decoder, steps, targets, &cache, AttentionLoss::NegativeLogProbability)
            .unwrap();
    let flat =
        |all: &[Vec<Vec<Vec<f32>>>]| all.iter().flatten().flatten().flatten().copied().collect::<Vec<f32>>();
    let expected = flat(&reference.attention);
    assert_near(&weights, expected.iter().copied(), 1e-5, &format!("{name}: attention"));
    // transformers also has a gradient at the positions that a token cannot read, where the attention is 0.
    let expected = flat(&reference.gradients);
    assert_near(&gradients, expected.iter().copied(), 2e-4, &format!("{name}: gradients"));
    assert!(gradients.iter().any(|gradient| gradient.abs() > 0.1), "{name}: there are gradients");
}

#[test]
fn every_architecture_is_as_transformers_computes_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/local");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        check(&name, &serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap());
        names.push(name);
    }
    names.sort_unstable();
    let expected =
        ["llama", "llama-biases", "llama-scaled", "opt", "opt-projections", "phi3", "phi3-long", "qwen3"];
    assert_eq!(names, expected);
}
