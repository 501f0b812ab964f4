//! Defines [`ModelDigest`], which identifies a local model by the content of its files. Two folders with the same name
//! can have different weights, so everything that depends on the weights (recorded answers, manifests of measurements,
//! a trained screener) is stored with this digest. The command line computes it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::file;
use super::load_error::LoadError;
use super::weights::safetensors::SafetensorsFolder;
use super::{LocalModel, is_gguf};

/// The files besides the weights on which the answers of a model depend. A folder may lack some of them, which the
/// digest then leaves out; [`LocalModel::load`] fails if a file that it needs is missing.
const DESCRIPTIONS: [&str; 5] = [
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// How many hexadecimal digits of the digest are part of a name.
const SHORT: usize = 16;

/// How many bytes of a file are in memory at once.
const BUFFER: usize = 1 << 20;

/// The SHA-256 of the files of a model: configuration, tokenizer, chat template and weights, with their names and
/// sizes.
///
/// Models with equal digests are the same model. The digest depends neither on the name of the folder nor on its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDigest(String);

impl ModelDigest {
    /// Computes the digest of the model in a folder, or in a GGUF file, that [`LocalModel::load`] reads. Reads every
    /// file as a stream, so that hardly any memory is needed.
    ///
    /// # Errors
    /// If a file cannot be read, or the weights of a folder are missing or malformed.
    pub fn of_files(path: &Path) -> Result<Self, LoadError> {
        let files = if is_gguf(path) { gguf_files(path) } else { folder_files(path)? };
        let mut hash = ContentHash::default();
        for path in files {
            hash.add_file(&path)?;
        }
        Ok(hash.finish())
    }

    /// Returns the digest of the model that ships with Flowgate. It equals the digest of a folder with the same files.
    #[must_use]
    pub fn embedded() -> Self {
        let mut hash = ContentHash::default();
        for (name, content) in [
            ("config.json", LocalModel::EMBEDDED_CONFIG),
            ("tokenizer.json", LocalModel::EMBEDDED_TOKENIZER),
            ("model.safetensors", LocalModel::EMBEDDED_WEIGHTS),
        ] {
            hash.begin(name, content.len() as u64);
            hash.0.update(content);
        }
        hash.finish()
    }

    /// Returns the digest in hexadecimal, 64 digits.
    #[must_use]
    pub fn as_hex(&self) -> &str {
        &self.0
    }

    /// Returns the first 16 digits, which the names of models in reports contain.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..SHORT).unwrap_or(&self.0)
    }
}

/// Returns the files of a model in a folder, in a fixed order: the descriptions that exist, then the weights.
fn folder_files(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    // `try_exists` fails if the folder cannot be searched. The attempt to read the file then returns this error.
    let exists = |path: &PathBuf| path.try_exists().unwrap_or(true);
    let mut files: Vec<PathBuf> = DESCRIPTIONS.iter().map(|name| folder.join(name)).filter(exists).collect();
    files.extend_from_slice(SafetensorsFolder::open(folder)?.files());
    Ok(files)
}

/// Returns the files of a model in a GGUF file: the `tokenizer.json` in the same folder, if there is one, which takes
/// precedence over the tokenizer in the GGUF file, and the GGUF file itself.
fn gguf_files(path: &Path) -> Vec<PathBuf> {
    let tokenizer = path.with_file_name("tokenizer.json");
    // If `try_exists` fails, the attempt to read the file returns the error.
    let has_tokenizer = tokenizer.try_exists().unwrap_or(true);
    has_tokenizer.then_some(tokenizer).into_iter().chain([path.to_owned()]).collect()
}

/// The hash of several files. The name and the size of each file are hashed before its content, so that no two lists of
/// files give the same bytes.
#[derive(Default)]
struct ContentHash(Sha256);

impl ContentHash {
    /// Begins a file with this name and this number of bytes.
    fn begin(&mut self, name: &str, size: u64) {
        self.0.update((name.len() as u64).to_be_bytes());
        self.0.update(name);
        self.0.update(size.to_be_bytes());
    }

    /// Adds a file. The file is read up to the size that it has when it is opened, so that the reading ends even if the
    /// file grows.
    fn add_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let (file, size) = file::open(path)?;
        self.begin(&path.file_name().unwrap_or_default().to_string_lossy(), size);
        self.add_content(file, size).map_err(|error| {
            LoadError::new(path, format!("the file cannot be read: {error}; download it again"))
        })
    }

    /// Adds at most `limit` bytes of a file to the hash, one piece at a time, so that large files need little memory.
    fn add_content(&mut self, file: File, limit: u64) -> std::io::Result<()> {
        let mut reader = BufReader::with_capacity(BUFFER, file.take(limit));
        loop {
            let piece = match reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            let length = piece.len();
            if length == 0 {
                return Ok(());
            }
            self.0.update(piece);
            reader.consume(length);
        }
    }

    /// Returns the digest of what was added.
    fn finish(self) -> ModelDigest {
        ModelDigest(self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
