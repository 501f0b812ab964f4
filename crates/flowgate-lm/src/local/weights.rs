//! Defines [`Weights`], which provides the decoder with its tensors from the files of a model. The decoder requests a
//! tensor by its role, such as the query matrix of a layer. `names.rs` maps roles to the names of tensors;
//! `safetensors.rs` and `gguf.rs` read the files.
//!
//! Before the content of a tensor is read, its shape is compared with the shape that the configuration needs, so that
//! memory is bounded by the size of the files.

pub(crate) mod gguf;
mod names;
pub(crate) mod safetensors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::QMatMul;
use candle_core::{Device, Tensor};

use self::gguf::GgufFile;
use self::safetensors::SafetensorsFolder;
use super::config::Architecture;
use super::load_error::LoadError;

pub(crate) use names::{LayerRole, TensorRole};

/// The source of the tensors of a model.
#[derive(Debug)]
pub(crate) enum WeightSource {
    Safetensors(SafetensorsFolder),
    Gguf(GgufFile),
    /// Tensors in memory, by their names in Hugging Face's form: those that are being trained, and those of tests.
    Memory(HashMap<String, Tensor>),
}

/// The tensors of a model, by role.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) source: WeightSource,
    /// Determines the names of tensors in Hugging Face's form.
    pub(crate) architecture: Architecture,
    /// The processor whose memory the tensors are loaded into.
    pub(crate) device: Device,
}

/// A matrix that maps vectors of `columns` entries to vectors of `rows` entries.
#[derive(Debug, Clone)]
pub(crate) enum Matrix {
    /// In single precision, rows first.
    Dense(Tensor),
    /// Quantised as in its GGUF file.
    Quantized(Arc<QMatMul>),
}

impl Weights {
    /// Returns the tensor of this role in single precision; a quantised tensor is converted. Fails if the tensor is
    /// missing, or if its shape is not `shape`.
    pub(crate) fn tensor(&self, role: TensorRole, shape: &[usize]) -> Result<Tensor, LoadError> {
        let name = self.name(role)?;
        match &self.source {
            WeightSource::Safetensors(folder) => folder.tensor(&name, shape, &self.device),
            WeightSource::Gguf(file) => {
                let quantized = file.tensor(&name, shape, &self.device)?;
                quantized.dequantize(&self.device).map_err(|error| {
                    LoadError::of_tensor(
                        file.path(),
                        &name,
                        format_args!("cannot be converted: {error}; download it again"),
                    )
                })
            }
            WeightSource::Memory(tensors) => {
                // There is no file, so errors name the memory instead.
                let file = PathBuf::from("memory");
                let tensor =
                    tensors.get(&name).ok_or_else(|| LoadError::of_tensor(&file, &name, "is missing"))?;
                check_shape(&file, &name, tensor.dims(), shape)?;
                Ok(tensor.clone())
            }
        }
    }

    /// Returns the matrix of this role. The matrix of a GGUF file stays quantised, so that it takes no more memory than
    /// in the file. Fails if the matrix is missing or does not have this number of rows and columns.
    pub(crate) fn matrix(&self, role: TensorRole, rows: usize, columns: usize) -> Result<Matrix, LoadError> {
        let WeightSource::Gguf(file) = &self.source else {
            return self.tensor(role, &[rows, columns]).map(Matrix::Dense);
        };
        let name = self.name(role)?;
        let quantized = file.tensor(&name, &[rows, columns], &self.device)?;
        QMatMul::from_arc(Arc::new(quantized)).map(|matrix| Matrix::Quantized(Arc::new(matrix))).map_err(
            |error| {
                LoadError::of_tensor(
                    file.path(),
                    &name,
                    format_args!("cannot be converted: {error}; download it again"),
                )
            },
        )
    }

    /// Returns whether the source has a tensor of this role; false if the format of the source has no name for the
    /// role.
    pub(crate) fn has(&self, role: TensorRole) -> bool {
        self.name(role).is_ok_and(|name| match &self.source {
            WeightSource::Safetensors(folder) => folder.has(&name),
            WeightSource::Gguf(file) => file.shape(&name).is_some(),
            WeightSource::Memory(tensors) => tensors.contains_key(&name),
        })
    }

    /// Returns the name that the tensor of this role has in the files of the model. Fails if files of this kind have no
    /// tensor of this role.
    fn name(&self, role: TensorRole) -> Result<String, LoadError> {
        let (name, path) = match &self.source {
            WeightSource::Gguf(file) => (role.gguf_name(), file.path()),
            WeightSource::Safetensors(folder) => (role.hugging_face_name(self.architecture), folder.path()),
            WeightSource::Memory(_) => (role.hugging_face_name(self.architecture), Path::new("memory")),
        };
        name.ok_or_else(|| {
            // The error uses the name of the tensor in the other kind of file, since this kind has none.
            let other = role.hugging_face_name(self.architecture).or_else(|| role.gguf_name());
            LoadError::new(
                path,
                format!(
                    "supported files of this format have no tensor `{}`, which the model needs; use the safetensors files of the model",
                    other.unwrap_or_default()
                ),
            )
        })
    }
}

/// Fails if `shape`, the shape of a tensor in its file, differs from `expected`, the shape that the configuration
/// needs. `file` and `name` are for the error.
fn check_shape(file: &Path, name: &str, shape: &[usize], expected: &[usize]) -> Result<(), LoadError> {
    if shape == expected {
        return Ok(());
    }
    let problem = format!(
        "has the shape {shape:?}, but the configuration asks for {expected:?}; use the configuration of these weights"
    );
    Err(LoadError::of_tensor(file, name, problem))
}
