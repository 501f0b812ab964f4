//! Tests that the digest of a model depends on each of its files, and on nothing else.

use std::path::Path;

use candle_core::Device;
use serde_json::json;

use super::tiny::{self, TempFolder};
use crate::local::{LocalModel, ModelDigest};

fn digest(path: &Path) -> String {
    ModelDigest::of_files(path).unwrap().as_hex().to_owned()
}

/// A copy of a folder of a model, in a folder with another name.
fn copied(from: &TempFolder) -> TempFolder {
    let copy = TempFolder::new();
    for entry in std::fs::read_dir(from.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn every_file_of_a_model_counts_and_its_folder_does_not() {
    let (_, config) = tiny::configurations().remove(0);
    let folder = tiny::folder(&config);
    let of_model = digest(folder.path());
    assert_eq!(of_model.len(), 64);
    assert_eq!(digest(copied(&folder).path()), of_model, "the name of the folder does not count");
    let changed = |file: &str, content: &[u8]| {
        let copy = copied(&folder);
        copy.write(file, content);
        digest(copy.path())
    };
    // A file that is no part of the model.
    assert_eq!(changed("README.md", b"a model"), of_model);
    // One bit of the last weight, with the same size of the file.
    let mut weights = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    let mut found = vec![of_model, changed("model.safetensors", &weights)];
    for file in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    ] {
        found.push(changed(file, b"{}"));
    }
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), count, "each change gives another digest");
}

/// The digest contains all shards of the weights that the index names.
#[test]
fn every_shard_counts() {
    let (_, config) = tiny::configurations().remove(0);
    let folder = tiny::folder(&config);
    let extra = [("extra".to_owned(), tiny::weight("extra", &[2, 2]))].into();
    let shard = folder.path().join("extra.safetensors");
    candle_core::safetensors::save(&extra, &shard).unwrap();
    let names: Vec<String> =
        candle_core::safetensors::load(folder.path().join("model.safetensors"), &candle_core::Device::Cpu)
            .unwrap()
            .into_keys()
            .collect();
    let map: serde_json::Map<String, serde_json::Value> = names
        .into_iter()
        .map(|name| (name, json!("model.safetensors")))
        .chain([("extra".to_owned(), json!("extra.safetensors"))])
        .collect();
    folder.write("model.safetensors.index.json", json!({ "weight_map": map }).to_string());
    let of_both = digest(folder.path());
    let mut changed = std::fs::read(&shard).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    folder.write("extra.safetensors", changed);
    assert_ne!(digest(folder.path()), of_both);
}

/// The digest contains the tokenizer next to a GGUF file, since it takes precedence over the one in the file.
#[test]
fn a_gguf_file_counts_with_the_tokenizer_beside_it() {
    let folder = TempFolder::new();
    folder.write("model.gguf", "weights");
    let file = folder.path().join("model.gguf");
    let alone = digest(&file);
    folder.write("tokenizer.json", "{}");
    let with_tokenizer = digest(&file);
    folder.write("model.gguf", "weightS");
    assert!(alone != with_tokenizer && digest(&file) != with_tokenizer);
}

#[test]
fn the_digest_of_the_model_that_ships_is_that_of_its_folder() {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/small");
    assert_eq!(ModelDigest::of_files(&small).unwrap(), ModelDigest::embedded());
    assert_eq!(ModelDigest::embedded().short().len(), 16);
    assert!(ModelDigest::embedded().as_hex().starts_with(ModelDigest::embedded().short()));
}

#[test]
fn what_is_no_model_is_an_error() {
    let folder = TempFolder::new();
    folder.write("config.json", "{}");
    let problem = |path: &Path| ModelDigest::of_files(path).unwrap_err().to_string();
    assert!(
        problem(folder.path()).contains("has neither `model.safetensors` nor"),
        "{}",
        problem(folder.path())
    );
    let missing = folder.path().join("no-such.gguf");
    assert!(problem(&missing).contains("no-such.gguf`: the file cannot be read"), "{}", problem(&missing));
}

/// The card of the bundled model states the beginning of the digest of its weights, and the number of their values.
#[test]
fn the_card_is_of_the_weights_that_ship() {
    let card = include_str!("../../../models/small/README.md");
    let name = LocalModel::embedded_name();
    let digits = name.strip_prefix("flowgate-small ").unwrap();
    assert!(card.contains(&format!("`{digits}...` (`model.safetensors`)")), "{name}");
    let tensors = candle_core::safetensors::load_buffer(LocalModel::EMBEDDED_WEIGHTS, &Device::Cpu).unwrap();
    let count: usize = tensors.values().map(|tensor| tensor.elem_count()).sum();
    let (thousands, rest) = (count / 1000, count % 1000);
    assert!(card.contains(&format!("A decoder of {thousands},{rest:03} weights")), "{count}");
}
