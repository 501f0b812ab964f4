//! Writes and reads the folder of a training, for [`Trainer`]. The folder contains these files:
//!
//! | file | content |
//! |---|---|
//! | `config.json`, `tokenizer.json`, `model.safetensors` | the model, as `LocalModel::load` reads it |
//! | `training.json` | the settings, and the loss of each step |
//! | `training.safetensors` | the state of the optimiser |
//!
//! Each file is replaced as a whole. `training.json` is written last, and contains digests of the two files of tensors.
//! If the program is interrupted while it saves, the digests do not fit the files, and [`read`] rejects the folder.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use candle_core::{DType, Device, Tensor, Var};
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
/// The limit on the size of a file of tensors. The files of small models have a few megabytes.
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

/// A model with which a training begins.
pub(super) struct TrainedModel {
    /// The content of `config.json`.
    pub(super) config: Map<String, Value>,
    /// The content of `tokenizer.json`.
    pub(super) tokenizer: Value,
    /// The weights by name, in single precision.
    pub(super) variables: BTreeMap<String, Var>,
}

/// Writes files into a folder. Each file is first written under a temporary name, and renamed when it is complete.
struct FolderWriter<'a>(&'a Path);

impl<'a> FolderWriter<'a> {
    /// Creates the folder if it does not exist.
    fn new(folder: &'a Path) -> Result<Self, LoadError> {
        std::fs::create_dir_all(folder).map_err(|error| Self(folder).failed(&error))?;
        Ok(Self(folder))
    }

    /// Returns the error that the model cannot be saved to this folder, for the reason `error`.
    fn failed(&self, error: &dyn std::fmt::Display) -> LoadError {
        LoadError::of_saving(self.0, error)
    }

    /// Replaces the file `name` of the folder as a whole, so that an interrupted saving never leaves a partial file:
    /// `write` writes the new content to a temporary file in the folder, which is then renamed to `name`.
    fn replace(&self, name: &str, write: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), LoadError> {
        let part = self.0.join(format!("{name}.part"));
        write(&part).map_err(|error| self.failed(&error))?;
        std::fs::rename(&part, self.0.join(name)).map_err(|error| self.failed(&error))
    }

    /// Writes a value to the file `name`, as JSON on one line.
    fn json(&self, name: &str, value: &Value) -> Result<(), LoadError> {
        self.replace(name, |path| std::fs::write(path, value.to_string()).map_err(|error| error.to_string()))
    }

    /// Writes tensors with their names to the file `name`, in the format safetensors.
    fn tensors(&self, name: &str, tensors: &HashMap<String, Tensor>) -> Result<(), LoadError> {
        self.replace(name, |path| {
            candle_core::safetensors::save(tensors, path).map_err(|error| error.to_string())
        })
    }

    /// Writes the files of the model: `config.json`, `tokenizer.json`, and the weights in the precision `precision`.
    fn model(&self, trainer: &Trainer, precision: DType) -> Result<(), LoadError> {
        let converted = trainer.variables.iter().map(|(name, variable)| {
            let tensor = variable.as_tensor().detach().to_dtype(precision);
            Ok((name.clone(), tensor.map_err(|error| self.failed(&error))?))
        });
        let weights = converted.collect::<Result<_, LoadError>>()?;
        self.json("config.json", &Value::Object(trainer.config.clone()))?;
        self.json("tokenizer.json", &trainer.tokenizer_json)?;
        self.tensors(WEIGHTS, &weights)
    }
}

/// Writes the model of a training, with its weights in half precision, but not the state that continuing the training
/// would need.
pub(super) fn export(folder: &Path, trainer: &Trainer) -> Result<(), LoadError> {
    FolderWriter::new(folder)?.model(trainer, DType::F16)
}

/// Writes the folder of a training, and creates it if it does not exist. `training.json` is written last, with digests
/// of the tensors, so that [`read`] notices an interrupted saving.
pub(super) fn write(folder: &Path, trainer: &Trainer) -> Result<(), LoadError> {
    let writer = FolderWriter::new(folder)?;
    // A file must have at least one tensor, but before the first step the optimiser has none. A tensor with an empty
    // name is therefore added.
    let mut moments: HashMap<String, Tensor> = trainer.optimizer.moments.clone().into_iter().collect();
    let one = Tensor::ones(1, DType::F32, &Device::Cpu).map_err(|error| writer.failed(&error))?;
    moments.insert(String::new(), one);
    writer.model(trainer, DType::F32)?;
    writer.tensors(OPTIMIZER, &moments)?;
    let state = SavedState {
        settings: trainer.settings.clone(),
        progress: Progress { losses: trainer.progress.losses.clone() },
        optimizer_steps: trainer.optimizer.steps,
        weights_sha256: digest(&folder.join(WEIGHTS))?,
        optimizer_sha256: digest(&folder.join(OPTIMIZER))?,
    };
    writer.json(STATE, &serde_json::to_value(state).map_err(|error| writer.failed(&error))?)
}

/// Reads the folder of a training. Fails if a file is missing or malformed, or if the files were not saved at the same
/// step.
pub(super) fn read(folder: &Path) -> Result<SavedTraining, LoadError> {
    let state: SavedState = file::read_json(&folder.join(STATE))?;
    let weights = SafetensorsFolder::of_file(folder.join(WEIGHTS))?;
    let optimizer_file = SafetensorsFolder::of_file(folder.join(OPTIMIZER))?;
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
    let mut moments: BTreeMap<String, Tensor> = optimizer_file.all()?.into_iter().collect();
    // `write` has added this tensor, since a file must have at least one.
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

/// Reads a model with which a new training begins. The weights of an exported model have half precision, and are
/// converted to single precision.
pub(super) fn read_model(folder: &Path) -> Result<TrainedModel, LoadError> {
    let variable = |(name, tensor): (String, Tensor)| {
        let failed = |error: candle_core::Error| LoadError::new(folder, error.to_string());
        let tensor = tensor.to_dtype(DType::F32).map_err(failed)?;
        Ok((name, Var::from_tensor(&tensor).map_err(failed)?))
    };
    let weights = SafetensorsFolder::of_file(folder.join(WEIGHTS))?;
    Ok(TrainedModel {
        config: file::read_json(&folder.join("config.json"))?,
        tokenizer: file::read_json(&folder.join("tokenizer.json"))?,
        variables: weights.all()?.into_iter().map(variable).collect::<Result<_, LoadError>>()?,
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
