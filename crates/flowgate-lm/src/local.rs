//! Evaluates models in this process: [`LocalModel`], from a folder or a GGUF file. The command line loads such a model
//! for agents and measurements.
//!
//! A folder has the files of a model as Hugging Face distributes them: `config.json`, `model.safetensors` or shards
//! with an index, `tokenizer.json`, and for chats a template (`chat_template.jinja` or `tokenizer_config.json`). A GGUF
//! file contains the same in one file. The families Llama, Qwen3, Phi-3 and OPT, and Flowgate's own small models are
//! supported.
//!
//! | file | purpose |
//! |---|---|
//! | `config.rs` | reads the shape of a decoder from `config.json` or GGUF metadata |
//! | `weights.rs` | reads the tensors of the decoder from safetensors or GGUF files |
//! | `decoder.rs` | computes hidden states and logits from tokens, with a cache |
//! | `tokenizer.rs` | converts texts to tokens and back, and locates each token in its text |
//! | `evaluation.rs` | evaluates long texts in pieces of bounded size |
//! | `score.rs`, `inside.rs`, `jacobian.rs`, `generate.rs`, `continuation.rs` | implement the traits of models: scores; hidden states and attention; bounds of information; chats; continuations |
//! | `train.rs` | trains small models |
//! | `classifier.rs` | decides from attention which regions an output depends on |
//! | `text_labels.rs`, `encoder.rs` | classify texts |
//! | `template.rs` | renders a chat as a prompt |
//! | `blocking.rs` | locates blocked texts in that prompt |
//! | `tool_calls.rs` | finds the calls in a generated text |
//! | `sampler.rs` | chooses the next token |
//! | `file.rs` | reads files of bounded size |
//! | `digest.rs` | identifies a model by what its files contain |
//! | `load_error.rs` | defines the error of a model that cannot be loaded |
//!
//! A model does all its work in one poll of its future: an asynchronous caller must poll the future on a thread that
//! may block. Results do not depend on earlier requests: a chat may reuse the evaluation of an earlier prompt, but this
//! evaluation equals, bit for bit, what the chat would compute itself.
//!
//! ```no_run
//! use flowgate_lm::local::{LocalModel, LocalSettings};
//! use flowgate_lm::{AttentionLoss, AttentionModel, AttentionRequest, ScoreRequest, ScoringModel, block_on};
//!
//! let model = LocalModel::load("models/Qwen3-0.6B".as_ref(), &LocalSettings::default())?;
//! // Two prompts that begin with the same documents, which are evaluated once.
//! let documents = block_on(model.prefix(None, "Anna's room is 12. Ben's room is 7.\n"))?;
//! let request = |prompt| ScoreRequest { prefix: Some(&documents), prompt, continuation: " 12", bound: None };
//! let scores = block_on(model.score_batch(&[request("Anna's room:"), request("Ben's room:")]))?;
//! assert!(scores[0].logprob() > scores[1].logprob());
//! // Which tokens of the prompt the answer depends on.
//! let attention = model.attention(&AttentionRequest {
//!     prefix: Some(&documents),
//!     prompt: "Anna's room:",
//!     continuation: " 12",
//!     loss: AttentionLoss::Margin,
//! })?;
//! println!("{:?} {:?}", attention.prompt_tokens(), attention.saliency());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocking;
pub mod classifier;
mod config;
mod continuation;
mod decoder;
mod digest;
mod encoder;
mod evaluation;
mod file;
mod generate;
mod inside;
mod jacobian;
mod load_error;
mod sampler;
mod score;
mod template;
#[cfg(test)]
mod tests;
mod text_labels;
mod tokenizer;
mod tool_calls;
pub mod train;
mod weights;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use self::config::{DecoderConfig, gguf, hugging_face};
use self::decoder::Decoder;
use self::evaluation::RecentPrompts;
use self::template::ChatTemplate;
use self::tokenizer::TextTokenizer;
use self::weights::gguf::GgufFile;
use self::weights::safetensors::SafetensorsFolder;
use self::weights::{WeightSource, Weights};

pub use digest::ModelDigest;
pub use load_error::LoadError;
pub use text_labels::LocalTextClassifier;

/// Where and how a local model is evaluated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalSettings {
    /// The processor.
    pub processor: Processor,
    /// The most tokens of a text, generated ones included. `None` selects the length of text that the model was trained
    /// for.
    pub context: Option<usize>,
}

/// The processor that evaluates a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processor {
    /// The cores of this machine. `RAYON_NUM_THREADS` limits them: for a small model, one thread is fastest.
    #[default]
    Cpu,
    /// An Nvidia GPU by its number, with the feature `cuda`.
    Cuda(usize),
}

/// A model that is evaluated in this process.
///
/// It implements [`ScoringModel`](crate::ScoringModel), [`ContinuationModel`](crate::ContinuationModel),
/// [`HiddenStateModel`](crate::HiddenStateModel), [`AttentionModel`](crate::AttentionModel) and
/// [`JacobianModel`](crate::JacobianModel). It also implements [`ChatModel`](crate::ChatModel) and
/// [`BlockingModel`](crate::BlockingModel), whose requests fail if the model has no chat template.
pub struct LocalModel {
    name: String,
    decoder: Decoder,
    tokenizer: TextTokenizer,
    /// The chat template, if the model has one.
    template: Option<ChatTemplate>,
    /// The tokens that end a message.
    ends: Vec<u32>,
    /// The evaluations of recent prompts of chats.
    recent: Mutex<RecentPrompts>,
    /// Distinguishes the prefixes that this model has evaluated from those of other models.
    identity: Arc<()>,
}

impl fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LocalModel {
    /// Loads the model of a folder, or of a GGUF file. The name of the folder or file becomes the name of the model.
    /// This name does not identify the weights, but a [`ModelDigest`] does: a caller can add the digest to the name
    /// ([`with_name`](Self::with_name)).
    ///
    /// The files need not be trusted: malformed files are an error, and the memory that they take is bounded by their
    /// size. The chat template, however, is a program: it always ends, but it may build long texts. Use only templates
    /// from authors that you trust.
    ///
    /// # Errors
    /// If a file is missing, cut off or malformed, a tensor does not have the shape that the configuration states, or
    /// the kind of model is not supported. The error names the file, and the tensor or field.
    pub fn load(path: &Path, settings: &LocalSettings) -> Result<Self, LoadError> {
        let device = device(path, settings.processor)?;
        if is_gguf(path) {
            Self::load_gguf(path, device, settings)
        } else {
            let has_output = true;
            Self::load_folder(path, device, settings, has_output)
        }
    }

    /// Loads the model of a folder in Hugging Face's form. `has_output` says whether the folder has the output matrix,
    /// which computes logits: the folder of a classifier (`text_labels.rs`) has none, and only the hidden states of its
    /// decoder are used. A missing `generation_config.json` is no error.
    fn load_folder(
        folder: &Path,
        device: Device,
        settings: &LocalSettings,
        has_output: bool,
    ) -> Result<Self, LoadError> {
        let config_file = folder.join("config.json");
        let map: Map<String, Value> = file::read_json(&config_file)?;
        let mut config = hugging_face::read(&config_file, &map, settings.context)?;
        // Without an output matrix, the decoder is loaded like one whose output is the embedding (tied), which needs
        // none.
        config.is_tied |= !has_output;
        let tokenizer = TextTokenizer::read(&folder.join("tokenizer.json"))?;
        let template = ChatTemplate::read(folder)?;
        let generation: Option<Map<String, Value>> =
            file::read_optional_json(&folder.join("generation_config.json"))?;
        // The tokens after which a message is complete. Models for chats list further ones in `generation_config.json`.
        let mut ends = token_list(map.get("eos_token_id"));
        ends.extend(token_list(generation.as_ref().and_then(|map| map.get("eos_token_id"))));
        let source = WeightSource::Safetensors(SafetensorsFolder::open(folder)?);
        Self::assemble(folder, config, source, device, tokenizer, template, ends)
    }

    /// The configuration of the model that ships with Flowgate.
    const EMBEDDED_CONFIG: &[u8] = include_bytes!("../models/small/config.json");
    /// The tokenizer of the model that ships with Flowgate.
    const EMBEDDED_TOKENIZER: &[u8] = include_bytes!("../models/small/tokenizer.json");
    /// The file of the weights of the model that ships with Flowgate, in half precision.
    const EMBEDDED_WEIGHTS: &[u8] = include_bytes!("../models/small/model.safetensors");

    /// Returns the name of the model that ships with Flowgate for reports: `flowgate-small`, and the first eight digits of
    /// the SHA-256 of its weights.
    #[must_use]
    pub fn embedded_name() -> String {
        let digest = Sha256::digest(Self::EMBEDDED_WEIGHTS);
        let digits: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("flowgate-small {digits}")
    }

    /// Returns the small model that ships with Flowgate: its name is `flowgate-small`. It was trained on generated
    /// texts to copy values from what it reads, and can do nothing else; its card is `models/small/README.md`.
    ///
    /// # Errors
    /// If a file of the model is damaged.
    pub fn embedded() -> Result<Self, LoadError> {
        Self::embedded_on(Processor::Cpu)
    }

    /// Returns the model of [`embedded`](Self::embedded), which `processor` evaluates.
    ///
    /// # Errors
    /// If a file of the model is damaged, or the processor cannot be used.
    pub fn embedded_on(processor: Processor) -> Result<Self, LoadError> {
        let name = Path::new("flowgate-small");
        let device = device(name, processor)?;
        let failed = |error: &dyn fmt::Display| LoadError::new(name, error.to_string());
        let map: Map<String, Value> =
            serde_json::from_slice(Self::EMBEDDED_CONFIG).map_err(|error| failed(&error))?;
        let config = hugging_face::read(name, &map, None)?;
        let tokenizer = serde_json::from_slice(Self::EMBEDDED_TOKENIZER).map_err(|error| failed(&error))?;
        let tokenizer = TextTokenizer::from_json(name, tokenizer)?;
        let weights = Self::EMBEDDED_WEIGHTS;
        let tensors =
            candle_core::safetensors::load_buffer(weights, &device).map_err(|error| failed(&error))?;
        // The decoder computes in single precision.
        let converted =
            tensors.into_iter().map(|(tensor, values)| Ok((tensor, values.to_dtype(DType::F32)?)));
        let tensors = converted.collect::<candle_core::Result<_>>().map_err(|error| failed(&error))?;
        // The model cannot answer chats, so it has neither a chat template nor tokens that end a message.
        Self::assemble(name, config, WeightSource::Memory(tensors), device, tokenizer, None, Vec::new())
    }

    /// Loads the model of a GGUF file. A `tokenizer.json` in the same folder takes precedence over the file's
    /// tokenizer.
    fn load_gguf(path: &Path, device: Device, settings: &LocalSettings) -> Result<Self, LoadError> {
        let file = GgufFile::open(path)?;
        let config = gguf::read(&file, settings.context)?;
        let tokenizer_file = path.with_file_name("tokenizer.json");
        // `try_exists` fails if the folder cannot be searched. The attempt to read the file then returns this error.
        let tokenizer = if tokenizer_file.try_exists().unwrap_or(true) {
            TextTokenizer::read(&tokenizer_file)?
        } else {
            TextTokenizer::of_gguf(path, &file.metadata)?
        };
        let template = ChatTemplate::of_gguf(path, &file.metadata)?;
        // The tokens after which a message is complete: the end of a text, and the end of a turn.
        let ends = ["eos_token_id", "eot_token_id"]
            .iter()
            .flat_map(|key| token_list(file.metadata.get(&format!("tokenizer.ggml.{key}"))))
            .collect();
        Self::assemble(path, config, WeightSource::Gguf(file), device, tokenizer, template, ends)
    }

    /// Loads the decoder with its weights from `source`, and combines the parts into a model. `ends` are the tokens
    /// that end a message, to which the end token of the template is added. The last component of `path` becomes the
    /// name of the model, and errors name the whole path. Fails if the tokenizer has more tokens than the embedding has
    /// rows, or if the weights of the decoder cannot be loaded.
    fn assemble(
        path: &Path,
        config: DecoderConfig,
        source: WeightSource,
        device: Device,
        tokenizer: TextTokenizer,
        template: Option<ChatTemplate>,
        mut ends: Vec<u32>,
    ) -> Result<Self, LoadError> {
        if tokenizer.token_count() > config.vocabulary {
            let (tokens, rows) = (tokenizer.token_count(), config.vocabulary);
            return Err(LoadError::new(
                path,
                format!(
                    "the tokenizer has {tokens} tokens, but the weights have vectors for only {rows}; use the tokenizer of these weights"
                ),
            ));
        }
        ends.extend(template.as_ref().and_then(ChatTemplate::end_token).and_then(|end| tokenizer.token(end)));
        let weights = Weights { source, architecture: config.architecture, device };
        let decoder = Decoder::load(config, &weights)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self {
            name,
            decoder,
            tokenizer,
            template,
            ends,
            recent: Mutex::default(),
            identity: Arc::default(),
        })
    }

    /// Sets the name of the model, which reports show.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns whether the model has a chat template, without which it does not answer chats.
    #[must_use]
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// Returns the most tokens of a text that the model reads, generated ones included.
    #[must_use]
    pub fn context(&self) -> usize {
        self.decoder.config().context
    }

    /// Returns the number of tokens of a text, including those that the tokenizer adds.
    ///
    /// # Errors
    /// If the tokenizer fails on the text.
    pub fn count_tokens(&self, text: &str) -> Result<usize, crate::Error> {
        Ok(self.tokenizer.encode(text)?.ids.len())
    }
}

/// Returns whether a path names a GGUF file, by the end of its name; any other path is the folder of a model.
fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Returns the device on which the library candle evaluates a model: the CPU, or a GPU by its number. Fails if the GPU
/// cannot be used. `path` is the model that the error names.
fn device(path: &Path, processor: Processor) -> Result<Device, LoadError> {
    match processor {
        Processor::Cpu => Ok(Device::Cpu),
        Processor::Cuda(number) if !cfg!(feature = "cuda") => Err(LoadError::new(
            path,
            format!(
                "GPU {number} cannot be used, since the program was built without the feature `cuda` of flowgate-lm; build it with this feature, or choose the CPU"
            ),
        )),
        Processor::Cuda(number) => Device::new_cuda(number)
            .map_err(|error| format!("GPU {number} cannot be used: {error}; choose another processor"))
            .map_err(|problem| LoadError::new(path, problem)),
    }
}

/// Reads a field of a configuration that names tokens by their ids: one id or a list of ids. The result is empty if the
/// field is absent. Ids that are not valid are left out.
fn token_list(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
