//! Writes and reads the folder of a training.
//!
//! | file | content |
//! |---|---|
//! | `config.json`, `tokenizer.json`, `model.safetensors` | the model, as `LocalModel::load` reads it |
//! | `training.json` | the settings, and the loss of each step |
//! | `training.safetensors` | the state of the optimiser |
//!
//! Each file is replaced as a whole. `training.json` is written last, with digests of the two files of tensors, so that
//! a folder whose saving was interrupted is rejected when it is read.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use candle_core::{Device, Tensor, Var};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::super::file;
use super::super::load_error::LoadError;
use super::super::weights::safetensors::SafetensorsFolder;
use super::optimizer::Optimizer;
use super::{Trainer, TrainingSettings};

/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";
/// The file of the optimiser's state.
const OPTIMIZER: &str = "training.safetensors";
/// The file of the settings and the progress.
const STATE: &str = "training.json";
/// The limit on the size of a file of tensors. Those of small models have megabytes.
const FILE_LIMIT: u64 = 4 << 30;

/// The progress of a training.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The loss of each step so far.
    pub(super) losses: Vec<f32>,
}

/// The content of `training.json`.
#[derive(Serialize, Deserialize)]
struct SavedState {
    settings: TrainingSettings,
    progress: Progress,
    /// The number of steps of the optimiser.
    optimizer_steps: usize,
    /// The digest of the file of the weights.
    weights_sha256: String,
    /// The digest of the file of the optimiser's state.
    optimizer_sha256: String,
}

/// The content of a training's folder.
pub(super) struct SavedTraining {
    pub(super) settings: TrainingSettings,
    /// The content of `config.json`.
    pub(super) config: Map<String, Value>,
    /// The content of `tokenizer.json`.
    pub(super) tokenizer: Value,
    /// The weights by name.
    pub(super) variables: BTreeMap<String, Var>,
    pub(super) optimizer: Optimizer,
    pub(super) progress: Progress,
}

/// Writes the folder of a training, and creates it if it does not exist. `training.json` is written last, with digests
/// of the tensors, so that [`read`] notices an interrupted saving.
pub(super) fn write(folder: &Path, trainer: &Trainer) -> Result<(), LoadError> {
    let failed = |error: &dyn std::fmt::Display| {
        LoadError::new(folder, format!("the training cannot be saved: {error}"))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    // Writes a file under another name, and renames it when it is complete.
    let replace = |name: &str, write: &dyn Fn(&Path) -> Result<(), String>| {
        let part = folder.join(format!("{name}.part"));
        write(&part).map_err(|error| failed(&error))?;
        std::fs::rename(&part, folder.join(name)).map_err(|error| failed(&error))
    };
    let json = |value: Value| {
        move |path: &Path| std::fs::write(path, value.to_string()).map_err(|error| error.to_string())
    };
    let tensors = |tensors: HashMap<String, Tensor>| {
        move |path: &Path| candle_core::safetensors::save(&tensors, path).map_err(|error| error.to_string())
    };
    let variables = trainer.variables.iter();
    let variables = variables.map(|(name, variable)| (name.clone(), variable.as_tensor().clone())).collect();
    // The format needs at least one tensor, but before the first step the optimiser has none. A tensor with an empty
    // name is therefore added.
    let mut moments: HashMap<String, Tensor> = trainer.optimizer.moments.clone().into_iter().collect();
    let one = Tensor::ones(1, candle_core::DType::F32, &Device::Cpu).map_err(|error| failed(&error))?;
    moments.insert(String::new(), one);
    replace("config.json", &json(Value::Object(trainer.config.clone())))?;
    replace("tokenizer.json", &json(trainer.tokenizer_json.clone()))?;
    replace(WEIGHTS, &tensors(variables))?;
    replace(OPTIMIZER, &tensors(moments))?;
    let state = SavedState {
        settings: trainer.settings.clone(),
        progress: Progress { losses: trainer.progress.losses.clone() },
        optimizer_steps: trainer.optimizer.steps,
        weights_sha256: digest(&folder.join(WEIGHTS))?,
        optimizer_sha256: digest(&folder.join(OPTIMIZER))?,
    };
    let state = serde_json::to_value(state).map_err(|error| failed(&error))?;
    replace(STATE, &json(state))
}

/// Reads the folder of a training. Fails if its files do not belong to the same state.
pub(super) fn read(folder: &Path) -> Result<SavedTraining, LoadError> {
    let state: SavedState = file::read_json(&folder.join(STATE))?;
    let weights = SafetensorsFolder::of_file(folder.join(WEIGHTS))?;
    let moments = SafetensorsFolder::of_file(folder.join(OPTIMIZER))?;
    for (name, expected) in [(WEIGHTS, &state.weights_sha256), (OPTIMIZER, &state.optimizer_sha256)] {
        if digest(&folder.join(name))? != *expected {
            let problem = "the file does not belong to `training.json`; the training was interrupted while it was saved: \
                restore a copy of the folder, or begin again";
            return Err(LoadError::new(&folder.join(name), problem));
        }
    }
    let variable = |(name, tensor): (String, Tensor)| {
        let variable =
            Var::from_tensor(&tensor).map_err(|error| LoadError::new(folder, error.to_string()))?;
        Ok((name, variable))
    };
    let variables = weights.all()?.into_iter().map(variable).collect::<Result<_, LoadError>>()?;
    let mut moments: BTreeMap<String, Tensor> = moments.all()?.into_iter().collect();
    // The tensor that `write` adds, since the format needs one.
    moments.remove("");
    Ok(SavedTraining {
        settings: state.settings,
        config: file::read_json(&folder.join("config.json"))?,
        tokenizer: file::read_json(&folder.join("tokenizer.json"))?,
        variables,
        optimizer: Optimizer { steps: state.optimizer_steps, moments },
        progress: state.progress,
    })
}

/// Returns the SHA-256 of a file, as hexadecimal digits.
fn digest(path: &Path) -> Result<String, LoadError> {
    let digest = Sha256::digest(file::read(path, FILE_LIMIT)?);
    let mut text = String::new();
    for byte in digest {
        // Writing to a `String` does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
