//! Defines [`SafetensorsFolder`], which reads safetensors files, one or several shards, tensor by tensor. `weights.rs`
//! reads the tensors of a decoder with it, `encoder.rs` those of an encoder, and `text_labels.rs` the matrix of the
//! labels. `train/checkpoint.rs` and `classifier.rs` read the tensors that they have saved. `digest.rs` lists the
//! files.
//!
//! A file has a length (8 bytes), a header in JSON of that length, and the contents. Each tensor is read from its
//! location in the file when it is requested. The file is neither mapped (which would be unsafe) nor read as a whole,
//! so that hardly more memory is needed than for the tensors.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde::Deserialize;

use super::super::file;
use super::super::load_error::LoadError;
use super::check_shape;

/// The limit on the size of the header of a file, in bytes.
const HEADER_LIMIT: u64 = 64 << 20;

/// The safetensors files of a folder.
#[derive(Debug)]
pub(crate) struct SafetensorsFolder {
    /// The folder, or the file if only one was opened; for errors.
    folder: PathBuf,
    /// The files.
    shards: Vec<PathBuf>,
    /// The tensors by name.
    tensors: HashMap<String, TensorLocation>,
}

/// The location of a tensor in the files, its type and its shape.
#[derive(Debug)]
struct TensorLocation {
    /// The index of the file in `shards`.
    shard: usize,
    data_type: DType,
    shape: Vec<usize>,
    /// The offset of the content in the file.
    start: u64,
    /// The size of the content in bytes.
    bytes: u64,
}

/// The index of a model in several shards.
#[derive(Deserialize)]
struct ShardIndex {
    /// The name of the file of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// The entry of a tensor in the header.
#[derive(Deserialize)]
struct HeaderEntry {
    dtype: String,
    shape: Vec<usize>,
    /// The beginning and the end of the content, relative to the end of the header.
    data_offsets: (u64, u64),
}

impl SafetensorsFolder {
    /// Reads the headers of the shards (files) that `model.safetensors.index.json` names. Without this index, reads the
    /// header of `model.safetensors`. Fails if neither file exists, if a header is malformed, or if the index names a
    /// file outside the folder or a tensor that is not in its shard.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoadError> {
        let single = folder.join("model.safetensors");
        let index_file = folder.join("model.safetensors.index.json");
        let mut opened = Self { folder: folder.to_owned(), shards: Vec::new(), tensors: HashMap::new() };
        let Some(index) = file::read_optional_json::<ShardIndex>(&index_file)? else {
            // `try_exists` fails if the folder cannot be searched. The attempt to read the file then returns this
            // error.
            if !single.try_exists().unwrap_or(true) {
                return Err(LoadError::new(
                    folder,
                    "the folder has neither `model.safetensors` nor `model.safetensors.index.json`; convert other weights to safetensors with `save_pretrained` of transformers, or name a GGUF file",
                ));
            }
            opened.read_header(single)?;
            return Ok(opened);
        };
        // The names of the shards, each once.
        let mut names: Vec<&String> = index.weight_map.values().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            // A path with several components could lead out of the folder.
            let is_plain =
                matches!(Path::new(name).components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
            if !is_plain {
                return Err(LoadError::new(
                    &index_file,
                    format!(
                        "the index names the file `{name}`, which is a path and not a file of the folder; download the index again"
                    ),
                ));
            }
            opened.read_header(folder.join(name))?;
        }
        for (tensor, name) in &index.weight_map {
            let location = opened.tensors.get(tensor);
            let shard = location.and_then(|location| opened.shards.get(location.shard));
            if shard != Some(&folder.join(name)) {
                let problem =
                    format_args!("is not in `{name}`, where the index expects it; download both files again");
                return Err(LoadError::of_tensor(&index_file, tensor, problem));
            }
        }
        Ok(opened)
    }

    /// Reads the header of a single file, which need not be in the folder of a model. Fails if the header is malformed.
    pub(crate) fn of_file(path: PathBuf) -> Result<Self, LoadError> {
        // Errors about a missing tensor name the file instead of a folder.
        let mut opened = Self { folder: path.clone(), shards: Vec::new(), tensors: HashMap::new() };
        opened.read_header(path)?;
        Ok(opened)
    }

    /// Reads all tensors with their names, in the order of the names. Each tensor is read in the shape that its file
    /// states, since there is no configuration to compare the shape with.
    pub(crate) fn all(&self) -> Result<Vec<(String, Tensor)>, LoadError> {
        let mut names: Vec<&String> = self.tensors.keys().collect();
        names.sort_unstable();
        let read = |name: &String| {
            let shape = self.tensors.get(name).map(|location| location.shape.clone()).unwrap_or_default();
            Ok((name.clone(), self.tensor(name, &shape, &Device::Cpu)?))
        };
        names.into_iter().map(read).collect()
    }

    /// Returns the folder, or the file if only one was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns the paths of the files: the shards in the order of their names, or the only file.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.shards
    }

    /// Returns whether one of the files has a tensor with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads a tensor, and converts it to single precision. Fails if the tensor is missing, if its shape is not
    /// `shape`, or if it cannot be read.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor, LoadError> {
        let located =
            self.tensors.get(name).and_then(|location| Some((location, self.shards.get(location.shard)?)));
        let Some((location, shard)) = located else {
            let problem = "is missing; the folder is incomplete, or the configuration is that of another model; download all files of one model again";
            return Err(LoadError::of_tensor(&self.folder, name, problem));
        };
        check_shape(shard, name, &location.shape, shape)?;
        let failed = |error: &dyn std::fmt::Display| {
            LoadError::of_tensor(shard, name, format_args!("cannot be read: {error}; download it again"))
        };
        // Only the content of this tensor is read.
        let (mut file, _) = file::open(shard)?;
        file.seek(SeekFrom::Start(location.start)).map_err(|error| failed(&error))?;
        let mut content = Vec::new();
        file.take(location.bytes).read_to_end(&mut content).map_err(|error| failed(&error))?;
        if u64::try_from(content.len()) != Ok(location.bytes) {
            return Err(LoadError::of_tensor(
                shard,
                name,
                "is incomplete, since the file became shorter while it was read; download it again",
            ));
        }
        Tensor::from_raw_buffer(&content, location.data_type, shape, &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32)?.to_device(device))
            .map_err(|error| failed(&error))
    }

    /// Reads the header of a file, and adds the file and its tensors. The header is a length of 8 bytes, followed by as
    /// many bytes of JSON. Fails if the header is malformed or longer than [`HEADER_LIMIT`], if a tensor reaches beyond
    /// the end of the file, or if a tensor is already in another file.
    fn read_header(&mut self, path: PathBuf) -> Result<(), LoadError> {
        let (mut file, size) = file::open(&path)?;
        let cut = || {
            LoadError::new(
                &path,
                "the file is shorter than its header says, so it is incomplete; download it again",
            )
        };
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| cut())?;
        let length = u64::from_le_bytes(length);
        // The contents of the tensors begin after the header.
        let start = length.checked_add(8).ok_or_else(cut)?;
        if length > HEADER_LIMIT {
            return Err(LoadError::new(
                &path,
                format!(
                    "the header has {length} bytes, more than the limit of {HEADER_LIMIT}, so the file is damaged or has another format; download it again"
                ),
            ));
        }
        if start > size {
            return Err(cut());
        }
        let mut header = Vec::new();
        file.take(length).read_to_end(&mut header).map_err(|error| {
            LoadError::new(&path, format!("the file cannot be read: {error}; download it again"))
        })?;
        let header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&header).map_err(|error| {
                LoadError::new(&path, format!("the header is not the expected JSON: {error}; the file is damaged or has another format, so download it again"))
            })?;
        // The index that this file gets in `self.shards`.
        let shard = self.shards.len();
        for (name, entry) in header {
            if name == "__metadata__" {
                continue;
            }
            let location = location(shard, &path, &name, entry, start, size)?;
            if self.tensors.insert(name.clone(), location).is_some() {
                return Err(LoadError::of_tensor(
                    &path,
                    &name,
                    "is also in another file of the model; download the model again",
                ));
            }
        }
        self.shards.push(path);
        Ok(())
    }
}

/// Returns where the content of a tensor is, from `entry`, the entry of the tensor `name` in the header of the file
/// `path`. `shard` is the index of the file among the files of the model, `start` the offset at which the contents of
/// all tensors of the file begin, and `size` the size of the file in bytes. Fails if the type of the tensor is unknown,
/// if its content does not have as many bytes as its shape needs, or if the content reaches beyond the end of the file.
fn location(
    shard: usize,
    path: &Path,
    name: &str,
    entry: serde_json::Value,
    start: u64,
    size: u64,
) -> Result<TensorLocation, LoadError> {
    let wrong = |problem: &dyn std::fmt::Display| LoadError::of_tensor(path, name, problem);
    let entry: HeaderEntry = serde_json::from_value(entry)
        .map_err(|error| wrong(&format_args!("has an entry in the header that is not the expected JSON: {error}; the file is damaged or has another format, so download it again")))?;
    let data_type = match entry.dtype.as_str() {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        // Some files have tensors of these types, which the decoder never reads.
        "I64" => DType::I64,
        "U8" | "BOOL" => DType::U8,
        other => {
            return Err(wrong(&format_args!(
                "has the type `{other}`, which is not supported; use weights in F64, F32, F16 or BF16"
            )));
        }
    };
    // The offsets count from the beginning of the contents.
    let (from, to) = entry.data_offsets;
    let width = u64::try_from(data_type.size_in_bytes()).unwrap_or(u64::MAX);
    // The number of bytes that the shape needs; `None` if it overflows.
    let needed =
        entry.shape.iter().try_fold(width, |bytes, &length| bytes.checked_mul(u64::try_from(length).ok()?));
    // The number of bytes that the entry states; `None` if the end is before the start.
    let stated = to.checked_sub(from);
    if stated.is_none() || stated != needed {
        return Err(wrong(&format_args!(
            "has the bytes {from} to {to}, which do not fit its shape {:?}, so the file is damaged; download it again",
            entry.shape
        )));
    }
    let end = start.checked_add(to).filter(|&end| end <= size);
    match (start.checked_add(from), end) {
        (Some(start), Some(_)) => {
            Ok(TensorLocation { shard, data_type, shape: entry.shape, start, bytes: to - from })
        }
        _ => Err(wrong(&"reaches beyond the end of the file, which is incomplete; download it again")),
    }
}
