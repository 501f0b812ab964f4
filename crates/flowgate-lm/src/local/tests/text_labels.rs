//! Tests of models that classify texts, loaded from folders.

use std::collections::HashMap;

use candle_core::Tensor;
use serde_json::{Value, json};

use super::tiny::{self, TempFolder};
use crate::local::{LocalSettings, LocalTextClassifier};
use crate::{HiddenStateModel, TextLabelModel};

/// A folder with a model for sequence classification: a decoder without the matrix of the output, and `score.weight`.
fn folder(config: &Value, change: impl FnOnce(&mut HashMap<String, Tensor>)) -> TempFolder {
    let folder = tiny::folder(config);
    let mut tensors = tiny::tensors(&tiny::read_config(config));
    tensors.remove("lm_head.weight");
    tensors.insert("score.weight".to_owned(), tiny::weight("score.weight", &[3, 32]));
    change(&mut tensors);
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// The configuration of a decoder with three labels.
fn labelled(name: &str) -> Value {
    let mut config = tiny::configuration(name);
    tiny::merge(&mut config, json!({"id2label": {"0": "benign", "1": "injection", "2": "other"}}));
    config
}

/// Computes the scores of a text with loops: the product of each row with the last hidden state of the same decoder.
fn scores(config: &Value, text: &str) -> Vec<f64> {
    let model = tiny::model(config);
    let states = model.hidden_states(text, model.layer_count()).unwrap();
    let last = states.vectors.last().unwrap();
    let rows = tiny::weight("score.weight", &[3, 32]).to_vec2::<f32>().unwrap();
    rows.iter().map(|row| row.iter().zip(last).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()).collect()
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{what}: {found} and not {expected}");
    }
}

#[test]
fn a_folder_classifies_texts() {
    for name in ["llama", "qwen3", "phi3"] {
        let config = labelled(name);
        let classifier =
            LocalTextClassifier::load(folder(&config, |_| {}).path(), &LocalSettings::default()).unwrap();
        assert_eq!(classifier.labels(), ["benign", "injection", "other"]);
        for text in ["Ignore the others.", "the", &"a long text ".repeat(20)] {
            let exponentials: Vec<f64> = scores(&config, text).iter().map(|score| score.exp()).collect();
            let sum: f64 = exponentials.iter().sum();
            let expected: Vec<f64> = exponentials.iter().map(|exponential| exponential / sum).collect();
            assert_near(&classifier.label_probabilities(text).unwrap(), &expected, name);
        }
    }
}

/// Labels that do not exclude each other have independent probabilities.
#[test]
fn several_labels_can_apply() {
    let mut config = labelled("llama");
    tiny::merge(&mut config, json!({"problem_type": "multi_label_classification"}));
    let classifier =
        LocalTextClassifier::load(folder(&config, |_| {}).path(), &LocalSettings::default()).unwrap();
    let expected: Vec<f64> =
        scores(&config, "some text").iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect();
    assert_near(&classifier.label_probabilities("some text").unwrap(), &expected, "several");
    let sum: f64 = expected.iter().sum();
    assert!((sum - 1.0).abs() > 1e-3, "the test distinguishes both: {sum}");
}

#[test]
fn other_folders_are_refused() {
    let check = |config: &Value, change: &dyn Fn(&mut HashMap<String, Tensor>), expected: &str| {
        let folder = folder(config, change);
        let error = LocalTextClassifier::load(folder.path(), &LocalSettings::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}, expected {expected}");
    };
    let config = labelled("llama");
    check(&config, &|tensors| drop(tensors.remove("score.weight")), "score.weight");
    let wide = |tensors: &mut HashMap<String, Tensor>| {
        drop(tensors.insert("score.weight".to_owned(), tiny::weight("score.weight", &[2, 32])));
    };
    check(&config, &wide, "score.weight");
    check(&tiny::configuration("llama"), &|_| {}, "expected `id2label`");
    let damaged = |tensors: &mut HashMap<String, Tensor>| {
        let row = Tensor::full(f32::NAN, (3, 32), &candle_core::Device::Cpu).unwrap();
        drop(tensors.insert("score.weight".to_owned(), row));
    };
    let folder = folder(&config, damaged);
    let classifier = LocalTextClassifier::load(folder.path(), &LocalSettings::default()).unwrap();
    let error = classifier.label_probabilities("text").unwrap_err().to_string();
    assert!(error.contains("a score of the model is not a number"), "{error}");
}
