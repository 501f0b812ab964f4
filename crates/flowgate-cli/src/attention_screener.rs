//! Saves and loads a trained screener that reads the attention of a local model. `flowgate screen train` saves it, and
//! `flowgate run --screener` loads it.
//!
//! A screener chooses which hidden regions the next step needs. This one is a small neural network that computes the
//! choice from the attention of a model. Its folder has the weights of the network (`classifier.safetensors`) and a
//! description (`screener.json`, [`SavedScreener`]).

use std::path::{Path, PathBuf};
#[cfg(feature = "run")]
use std::sync::Arc;

#[cfg(feature = "run")]
use flowgate_guard::screener::attention::{AttentionReader, AttentionScreener};
#[cfg(feature = "run")]
use flowgate_lm::ChatModel;
use flowgate_lm::local::classifier::DependencyClassifier;
use flowgate_lm::local::{LocalModel, Processor};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::input::{InputError, describe_io_error};
use crate::local_model::{self, IdentifiedModel};

const DESCRIPTION: &str = "screener.json";
const WEIGHTS: &str = "classifier.safetensors";
/// The largest description that is read, in bytes.
const MAX_DESCRIPTION: usize = 64 << 10;

/// What `screener.json` says about a screener: the model that it was trained with, its threshold, and its training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SavedScreener {
    /// The model whose attention the network reads, as `--local` named it.
    pub(crate) model: PathBuf,
    /// The name of this model in reports.
    pub(crate) model_name: String,
    /// The digest of the files of this model, in hexadecimal. The features depend on the weights, so the network decides only
    /// with a model that has these files.
    pub(crate) model_sha256: String,
    /// The probability from which a region counts as needed.
    pub(crate) threshold: f64,
    /// The seed of the training.
    pub(crate) seed: u64,
    /// The number of generated cases in each of three sets: those that trained the network, those that chose the
    /// threshold, and those whose figures were reported. If the network was trained on recorded runs, the maximum number
    /// of calls drawn from each suite.
    pub(crate) cases: u16,
    /// The suite of recorded runs that was left out of the training, and whose figures were reported. `None` if the
    /// network was trained on generated cases.
    pub(crate) suite: Option<String>,
}

/// Writes a screener to an existing folder, and replaces a screener that is there: `network` becomes the file of its
/// weights, and `screener` its description. The description is written last: if the first writing to a folder is cut off,
/// the folder has no description, and nothing is loaded from it.
pub(crate) fn save(
    folder: &Path,
    screener: &SavedScreener,
    network: &DependencyClassifier,
) -> Result<(), InputError> {
    network.save(&folder.join(WEIGHTS)).map_err(|error| InputError(error.to_string()))?;
    let path = folder.join(DESCRIPTION);
    let description = json!({
        "model": screener.model.to_string_lossy(),
        "model_name": screener.model_name,
        "model_sha256": screener.model_sha256,
        "threshold": screener.threshold,
        "seed": screener.seed,
        "cases": screener.cases,
        "suite": screener.suite,
    });
    std::fs::write(&path, format!("{description:#}\n")).map_err(|error| {
        InputError(format!(
            "{}: the description of the screener cannot be written: {error}; check the folder and the disk",
            path.display()
        ))
    })
}

/// Loads a screener from its folder, and the local model whose attention it reads. The result answers like a chat model
/// that is asked which regions the next step needs. `writer` writes the preliminary message whose attention is read, and
/// `processor` evaluates the local model.
///
/// # Errors
/// If a file or the model cannot be read, or the files of the model are not those with which the screener was trained.
#[cfg(feature = "run")]
pub(crate) fn load(
    folder: &Path,
    processor: Processor,
    writer: Arc<dyn ChatModel>,
) -> Result<Arc<dyn ChatModel>, InputError> {
    let TrainedScreener { model, network, threshold, .. } = load_parts(folder, processor)?;
    Ok(Arc::new(AttentionScreener {
        writer,
        reader: AttentionReader { model: Arc::new(model), classifier: Arc::new(network), threshold },
    }))
}

/// The parts of a trained screener.
pub(crate) struct TrainedScreener {
    /// The model whose attention is read.
    pub(crate) model: LocalModel,
    /// The name of this model in reports.
    pub(crate) name: String,
    /// The network that decides from the attention.
    pub(crate) network: DependencyClassifier,
    /// The SHA-256 of the file with the weights of the network, in hexadecimal.
    pub(crate) network_sha256: String,
    /// The probability from which a region counts as needed.
    pub(crate) threshold: f64,
}

/// Loads the parts of a screener from its folder. `processor` evaluates the model.
///
/// # Errors
/// If a file or the model cannot be read, or the files of the model are not those with which the screener was trained.
pub(crate) fn load_parts(folder: &Path, processor: Processor) -> Result<TrainedScreener, InputError> {
    let saved = read(&folder.join(DESCRIPTION))?;
    let weights = folder.join(WEIGHTS);
    let network = DependencyClassifier::load(&weights);
    let network = network.map_err(|error| InputError(error.to_string()))?;
    let network_sha256 = sha256(&weights)?;
    let IdentifiedModel { model, name, digest } = local_model::load_identified(&saved.model, processor)?;
    // The features depend on the weights, so a network that was trained on another model decides nothing. A folder of the
    // same name can have other weights, so the files are compared and not only the name.
    if digest.as_hex() != saved.model_sha256 || name != saved.model_name {
        let again = "train the screener again with `flowgate screen train`";
        let advice = if saved.model == Path::new(local_model::EMBEDDED) {
            again.to_owned()
        } else {
            format!("restore the files in {}, or {again}", saved.model.display())
        };
        return Err(InputError(format!(
            "{}: the screener was trained with the model `{}`, but the model is now `{name}`; {advice}",
            folder.display(),
            saved.model_name
        )));
    }
    Ok(TrainedScreener { model, name, network, network_sha256, threshold: saved.threshold })
}

/// Returns the SHA-256 of a file in hexadecimal.
fn sha256(path: &Path) -> Result<String, InputError> {
    let bytes = std::fs::read(path)
        .map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads the description of a screener (`screener.json`), and checks its fields.
fn read(path: &Path) -> Result<SavedScreener, InputError> {
    let failed = |problem: &str| InputError(format!("{}: {problem}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| {
        failed(&format!(
            "the description of the screener cannot be read: {error}; write it with `flowgate screen train`"
        ))
    })?;
    if bytes.len() > MAX_DESCRIPTION {
        return Err(failed(
            "the file is too large for the description of a screener; run `flowgate screen train` again",
        ));
    }
    let description: Value = serde_json::from_slice(&bytes).map_err(|error| {
        failed(&format!(
            "the file is not valid JSON: {error}; train the screener again with `flowgate screen train`"
        ))
    })?;
    let field = |name: &str| description.get(name);
    let text = |name| {
        let value = field(name).and_then(Value::as_str).map(str::to_owned);
        value.ok_or_else(|| {
            failed(&format!(
                "`{name}` must be a string; train the screener again with `flowgate screen train`"
            ))
        })
    };
    let number = |name| {
        let value = field(name).and_then(Value::as_u64);
        value.ok_or_else(|| {
            failed(&format!(
                "`{name}` must be a whole number; train the screener again with `flowgate screen train`"
            ))
        })
    };
    let threshold = field("threshold").and_then(Value::as_f64).filter(|value| (0.0..=1.0).contains(value));
    Ok(SavedScreener {
        model: text("model")?.into(),
        model_name: text("model_name")?,
        model_sha256: text("model_sha256")?,
        threshold: threshold.ok_or_else(|| {
            failed(
                "`threshold` must be a number from 0 to 1; train the screener again with `flowgate screen train`",
            )
        })?,
        seed: number("seed")?,
        cases: u16::try_from(number("cases")?)
            .map_err(|_| {
                failed(
                    "`cases` must be a whole number from 0 to 65535; train the screener again with `flowgate screen train`",
                )
            })?,
        // Missing in the files of earlier versions, which trained on generated cases.
        suite: field("suite").and_then(Value::as_str).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_descriptions_are_errors() {
        let folder = std::env::temp_dir().join(format!("flowgate-screener-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(DESCRIPTION);
        let check = |text: Option<&str>, expected: &str| {
            match text {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => drop(std::fs::remove_file(&path)),
            }
            let error = read(&path).unwrap_err().0.replace(folder.to_str().unwrap(), "S");
            assert!(error.starts_with(expected), "{error}");
        };
        check(None, "S/screener.json: ");
        check(Some("{}"), "S/screener.json: `model` must be a string");
        check(
            Some(
                r#"{"model": "embedded", "model_name": "m", "model_sha256": "0", "threshold": 2, "seed": 1, "cases": 1}"#,
            ),
            "S/screener.json: `threshold` must be a number from 0 to 1",
        );
        // Written by an earlier version, which did not record the weights: nothing says which weights they were.
        check(
            Some(r#"{"model": "embedded", "model_name": "m", "threshold": 0.5, "seed": 1, "cases": 1}"#),
            "S/screener.json: `model_sha256` must be a string; train the screener again",
        );
        let valid = r#"{"model": "embedded", "model_name": "m", "model_sha256": "0", "threshold": 0.5, "seed": 1, "cases": 1}"#;
        std::fs::write(&path, valid).unwrap();
        assert_eq!(read(&path).unwrap().threshold, 0.5);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
