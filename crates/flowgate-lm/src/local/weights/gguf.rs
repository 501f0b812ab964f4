//! Defines [`GgufFile`], which reads a GGUF file: the header with the metadata and the locations of tensors when the
//! file is opened, and the content of each tensor on request. `weights.rs` reads the tensors of a model from it. The
//! modules for the shape, the tokenizer and the chat template read the metadata.
//!
//! candle's own reader allocates as much memory as the counts in the header state, so a malformed file could exhaust
//! the memory. This reader allocates memory only for what it has read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QTensor, ggml_file};
use serde_json::{Map, Number, Value};

use super::super::file;
use super::super::load_error::LoadError;
use super::check_shape;

/// The limit on the length of a text of the header, in bytes. The longest texts are chat templates.
const TEXT_LIMIT: u64 = 1 << 20;
/// The limit on the number of values of the metadata, including the items of lists.
const VALUE_LIMIT: u64 = 1 << 22;
/// The limit on the number of tensors.
const TENSOR_LIMIT: u64 = 1 << 16;

/// A GGUF file.
#[derive(Debug)]
pub(crate) struct GgufFile {
    path: PathBuf,
    /// The metadata, as JSON.
    pub(crate) metadata: Map<String, Value>,
    tensors: BTreeMap<String, TensorLocation>,
    /// The size of the file in bytes.
    size: u64,
}

/// The location of a tensor in the file, and its form.
#[derive(Debug)]
struct TensorLocation {
    /// The type of the entries: a quantisation, or plain numbers such as F16.
    data_type: GgmlDType,
    /// The lengths of the dimensions, rows first, as in safetensors; the file has the opposite order.
    shape: Vec<usize>,
    /// The offset of the content in the file.
    start: u64,
}

impl GgufFile {
    /// Reads the header of a GGUF file: the metadata, and the locations of the tensors. Fails if the header is
    /// malformed or exceeds a limit, or if a tensor reaches beyond the end of the file.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let (file, size) = file::open(path)?;
        let mut header = HeaderReader { path, input: BufReader::new(file), read: 0, values: 0 };
        if &header.bytes::<4>()? != b"GGUF" {
            return Err(
                header.error("the file is not a GGUF file; name a GGUF file, or a folder with safetensors")
            );
        }
        let version = header.u32()?;
        if !(2..=3).contains(&version) {
            return Err(
                header.error(format!("the file has version {version} of GGUF, which is not supported; convert the model to version 2 or 3"))
            );
        }
        let (tensor_count, metadata_count) = (header.u64()?, header.u64()?);
        if tensor_count > TENSOR_LIMIT {
            return Err(header.error(format!(
                "the number of tensors, {tensor_count}, exceeds the limit of {TENSOR_LIMIT}, so the file is probably damaged; download it again"
            )));
        }
        let mut metadata = Map::new();
        // `header.value` limits the number of values, so a wrong count cannot make this loop long.
        for _ in 0..metadata_count {
            let key = header.text()?;
            let kind = header.u32()?;
            // `true`: the value of a key may be a list.
            let value = header.value(kind, true)?;
            metadata.insert(key, value);
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let (name, location) = header.tensor_location()?;
            if tensors.contains_key(&name) {
                return Err(LoadError::of_tensor(
                    path,
                    &name,
                    "is listed twice in the header, so the file is damaged; download it again",
                ));
            }
            tensors.insert(name, location);
        }
        // The contents begin at the next multiple of the alignment after the header. As GGUF defines, the alignment is
        // 32 if the metadata do not state it.
        let alignment = metadata.get("general.alignment").and_then(Value::as_u64).unwrap_or(32);
        let Some(start) = header.read.checked_next_multiple_of(alignment) else {
            return Err(header.error(format!("`general.alignment` is {alignment}, which is 0 or too large, so the file is damaged; download it again")));
        };
        // So far, the starts of the tensors are relative to the contents. Convert them to offsets in the file.
        for (name, location) in &mut tensors {
            let end =
                location.bytes().and_then(|bytes| start.checked_add(location.start)?.checked_add(bytes));
            if end.is_none_or(|end| end > size) {
                let problem = "reaches beyond the end of the file, which is incomplete; download it again";
                return Err(LoadError::of_tensor(path, name, problem));
            }
            location.start += start;
        }
        Ok(Self { path: path.to_owned(), metadata, tensors, size })
    }

    /// Returns the path of the file, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the shape of a tensor; `None` if the file has no such tensor.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|location| location.shape.as_slice())
    }

    /// Reads the content of a tensor, which stays quantised. Fails if the tensor is missing, or if its shape is not
    /// `shape`.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<QTensor, LoadError> {
        let wrong = |problem: &dyn std::fmt::Display| LoadError::of_tensor(&self.path, name, problem);
        let Some(location) = self.tensors.get(name) else {
            return Err(wrong(
                &"is missing; the file is incomplete, or of another kind of model; download it again, or use another model",
            ));
        };
        check_shape(&self.path, name, &location.shape, shape)?;
        // `open` has compared the size of the content with that of the file, so the 0 does not occur.
        let bytes = location.bytes().filter(|&bytes| bytes <= self.size).unwrap_or(0);
        let (mut file, _) = file::open(&self.path)?;
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(location.start))
            .and_then(|_| file.take(bytes).read_to_end(&mut content))
            .map_err(|error| wrong(&format_args!("cannot be read: {error}; download it again")))?;
        if u64::try_from(content.len()) != Ok(bytes) {
            return Err(wrong(
                &"is incomplete, since the file became shorter while it was read; download it again",
            ));
        }
        ggml_file::qtensor_from_ggml(location.data_type, &content, shape.to_vec(), device)
            .map_err(|error| wrong(&format_args!("cannot be read: {error}; download it again")))
    }
}

impl TensorLocation {
    /// Returns the size of the tensor's content in bytes. Quantised types encode a fixed number of entries (a block) in
    /// a fixed number of bytes. `None` if the tensor has no dimension, if a row (the last dimension) is not a whole
    /// number of blocks, or if the size overflows.
    fn bytes(&self) -> Option<u64> {
        let block = self.data_type.block_size();
        let row = *self.shape.last()?;
        if !row.is_multiple_of(block) {
            return None;
        }
        let entries = self.shape.iter().try_fold(1_usize, |entries, &length| entries.checked_mul(length))?;
        u64::try_from((entries / block).checked_mul(self.data_type.type_size())?).ok()
    }
}

/// Reads the header piece by piece.
struct HeaderReader<'a> {
    path: &'a Path,
    input: BufReader<File>,
    /// The number of bytes read so far.
    read: u64,
    /// The number of values of the metadata read so far.
    values: u64,
}

impl HeaderReader<'_> {
    /// Returns the error that the file has this problem.
    fn error(&self, problem: impl Into<String>) -> LoadError {
        LoadError::new(self.path, problem)
    }

    /// Reads the next `N` bytes of the header, and counts them.
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|_| {
            self.error("the file ends within its header, so it is incomplete; download it again")
        })?;
        self.read += N as u64;
        Ok(bytes)
    }

    /// Reads a number of 4 bytes, the lowest byte first.
    fn u32(&mut self) -> Result<u32, LoadError> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// Reads a number of 8 bytes, the lowest byte first.
    fn u64(&mut self) -> Result<u64, LoadError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Reads a text: its length in bytes, then its content. Bytes that are not valid UTF-8 are replaced. Fails if the
    /// text is longer than [`TEXT_LIMIT`] bytes, or if the file ends within the text.
    fn text(&mut self) -> Result<String, LoadError> {
        let length = self.u64()?;
        if length > TEXT_LIMIT {
            return Err(self.error(format!(
                "a text of the header has {length} bytes, more than the limit of {TEXT_LIMIT}, so the file is probably damaged; download it again"
            )));
        }
        let mut text = Vec::new();
        let count = self.input.by_ref().take(length).read_to_end(&mut text);
        if count.ok().and_then(|count| u64::try_from(count).ok()) != Some(length) {
            return Err(self.error("the file ends within its header, so it is incomplete; download it again"));
        }
        self.read += length;
        // Some files have tokens that are not valid UTF-8.
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Reads a value of the metadata as JSON. `kind` is the number of the value's type in GGUF. `may_be_list` says
    /// whether the value may be a list: it is false for the items of a list, which bounds the recursion. Fails if the
    /// type is unknown or not permitted, and if the metadata have more than [`VALUE_LIMIT`] values.
    fn value(&mut self, kind: u32, may_be_list: bool) -> Result<Value, LoadError> {
        self.values += 1;
        if self.values > VALUE_LIMIT {
            return Err(self.error(format!("the metadata has more than {VALUE_LIMIT} values, so the file is probably damaged; download it again")));
        }
        // The numbers of the types are those of the GGUF specification.
        Ok(match kind {
            0 => u8::from_le_bytes(self.bytes()?).into(),
            1 => i8::from_le_bytes(self.bytes()?).into(),
            2 => u16::from_le_bytes(self.bytes()?).into(),
            3 => i16::from_le_bytes(self.bytes()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.bytes()?).into(),
            6 => number(f32::from_le_bytes(self.bytes()?).into()),
            7 => Value::Bool(self.bytes::<1>()? != [0]),
            8 => Value::String(self.text()?),
            9 if may_be_list => {
                let kind = self.u32()?;
                let count = self.u64()?;
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(self.value(kind, false)?);
                }
                Value::Array(list)
            }
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.bytes()?).into(),
            12 => number(f64::from_le_bytes(self.bytes()?)),
            _ => return Err(self.error(format!("the metadata has a value of the unknown type {kind}, so the file is probably damaged; download it again"))),
        })
    }

    /// Reads the name and the location of a tensor. The start of the location is relative to the contents, which follow
    /// the header. Fails if the number of dimensions is not from 1 to 4, or if the type of the entries is not
    /// supported.
    fn tensor_location(&mut self) -> Result<(String, TensorLocation), LoadError> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if !(1..=4).contains(&dimensions) {
            let problem = format_args!(
                "has {dimensions} dimensions, but GGUF permits 1 to 4, so the file is probably damaged; download it again"
            );
            return Err(LoadError::of_tensor(self.path, &name, problem));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            // A length that does not fit into `usize` becomes the largest `usize`, which no file can contain.
            let length = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
            // GGUF lists the innermost dimension first, candle the outermost.
            shape.insert(0, length);
        }
        let kind = self.u32()?;
        let data_type = data_type(kind).ok_or_else(|| {
            let problem = format_args!(
                "has the data type number {kind} of GGUF, which is not supported; use a file in Q4_0 to Q8_0, Q2_K to Q6_K, F16, BF16 or F32"
            );
            LoadError::of_tensor(self.path, &name, problem)
        })?;
        Ok((name, TensorLocation { data_type, shape, start: self.u64()? }))
    }
}

/// Returns a number as JSON. A number that JSON cannot express becomes null, which counts as missing.
fn number(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Returns the type of entries (plain or quantised) with this number in GGUF; `None` if the type is not supported.
fn data_type(kind: u32) -> Option<GgmlDType> {
    Some(match kind {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        15 => GgmlDType::Q8K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}
