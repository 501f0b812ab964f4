//! Creates the models of `flowgate run` from its options: the model that writes the steps, the one that fills slots,
//! and the one that screens. The models run on a server; their answers can be recorded in a file, or be taken from such
//! a file in place of the model. Only the screener that reads attention also uses a local model (feature `local`).

use std::path::Path;
use std::sync::Arc;

use flowgate_lm::recorded::{AnswerFileError, RecordingMode};
use flowgate_lm::{ChatModel, RecordedModel, RemoteModel};

use super::file_error;
use crate::args::RunArgs;
use crate::input::InputError;

/// The models of a chat.
pub(super) struct ChatModels {
    /// The model that writes the steps.
    pub(super) model: Arc<dyn ChatModel>,
    /// The model that fills slots: the small model, or the model itself.
    pub(super) small: Arc<dyn ChatModel>,
    /// The model that screens.
    pub(super) screener: Arc<dyn ChatModel>,
}

impl ChatModels {
    /// Returns the models that the options name.
    ///
    /// # Errors
    /// As for `model`, and if the screener cannot be used.
    pub(super) fn of(options: &RunArgs) -> Result<Self, InputError> {
        let small = options.small_model.as_ref().map(|small| model(options, Some(small))).transpose()?;
        let model = model(options, options.model.as_ref())?;
        let small = small.unwrap_or_else(|| Arc::clone(&model));
        let screener = screener(options, &small)?;
        Ok(Self { model, small, screener })
    }
}

/// Returns the model that screens: the small model or, with `--screener`, a screener that reads the attention of a
/// local model after the small model has written a preliminary message. Fails if `--screener` is given with another
/// method than `judge`, or if its folder cannot be loaded.
#[cfg(feature = "local")]
fn screener(options: &RunArgs, small: &Arc<dyn ChatModel>) -> Result<Arc<dyn ChatModel>, InputError> {
    let Some(folder) = &options.screener else { return Ok(Arc::clone(small)) };
    if options.method() != flowgate_guard::conversation::Method::Judge {
        return Err(InputError(
            "--screener needs --method judge: other methods ask no model which regions are needed; use this method, or leave --screener out".to_owned(),
        ));
    }
    crate::attention_screener::load(folder, options.device.processor, Arc::clone(small))
}

/// Returns the model that screens: the small model. Without the feature `local` there is no other.
#[cfg(not(feature = "local"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature `local` it can fail")]
fn screener(_options: &RunArgs, small: &Arc<dyn ChatModel>) -> Result<Arc<dyn ChatModel>, InputError> {
    Ok(Arc::clone(small))
}

/// Returns the model with this name at the address of the options: the remote model, one that also records its answers
/// (`--record`), or one that replays recorded answers without a server (`--replay`).
///
/// # Errors
/// If the address, the key or the file of answers cannot be used, or if the options name no model and `--replay` is not
/// given.
fn model(options: &RunArgs, name: Option<&String>) -> Result<Arc<dyn ChatModel>, InputError> {
    let remote = remote_model(options, name)?;
    if let Some(path) = &options.replay {
        let name = match remote {
            Some(remote) => remote.name().to_owned(),
            // With an empty name, `recorded_name` returns the first model of the file.
            None => recorded_name(path, name.map_or("", String::as_str))?,
        };
        let recorded = RecordedModel::replay(&name, path);
        return Ok(Arc::new(recorded.map_err(|error| recording_error(path, &error))?));
    }
    let Some(remote) = remote else {
        return Err(InputError(
            "the command line names no model: name it with `--model` and its server with `--url`, such as \
            `--url http://localhost:8080/v1`"
                .to_owned(),
        ));
    };
    match &options.record {
        Some(path) => {
            let recorded = RecordedModel::open(remote, path, RecordingMode::Record);
            Ok(Arc::new(recorded.map_err(|error| recording_error(path, &error))?))
        }
        None => Ok(Arc::new(remote)),
    }
}

/// Returns the model with this name at the address of the options; `None` if the name or the address is not given.
fn remote_model(options: &RunArgs, name: Option<&String>) -> Result<Option<RemoteModel>, InputError> {
    let (Some(model), Some(url)) = (name, &options.url) else { return Ok(None) };
    let remote = RemoteModel::new(options.api, url, model)
        .map_err(|error| InputError(format!("--url {url}: {error}")))?
        // Each request repeats the chat so far, so the server can cache what it has read already.
        .prompt_caching(true);
    let Some(variable) = &options.key_from else { return Ok(Some(remote)) };
    let remote = remote.key(key(variable)?.trim()).map_err(|error| InputError(error.to_string()))?;
    Ok(Some(remote))
}

/// Returns the key of a model's server from the environment variable that an option such as `--key-from` names. A value
/// that is not valid UTF-8 counts as not set.
pub(in crate::command) fn key(variable: &str) -> Result<String, InputError> {
    std::env::var(variable).map_err(|_| {
        InputError(format!(
            "the environment variable {variable} is not set; set it to the key of the model server, or name another \
            variable"
        ))
    })
}

/// Finds the model `name` among those whose answers a file contains, and returns its full name there, `NAME at
/// ADDRESS`. With an empty `name`, finds the first model of the file. Fails if the file cannot be read, or contains no
/// answers of such a model.
fn recorded_name(path: &Path, name: &str) -> Result<String, InputError> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error(path, &error))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut names = lines.filter_map(|line| line.get("model")?.as_str().map(str::to_owned));
    // The names in the file have the form `NAME at ADDRESS`.
    let is_meant = |known: &String| name.is_empty() || known.split(" at ").next() == Some(name);
    names.find(is_meant).ok_or_else(|| {
        let whose = if name.is_empty() { String::new() } else { format!(" of {name}") };
        InputError(format!(
            "{}: the file contains no recorded answers{whose}; record some with `--record`",
            path.display()
        ))
    })
}

/// Returns why a file of answers cannot be used. A missing file gets the same message as any other missing file. It is
/// recognised by the text of the error, since the error has no other data.
fn recording_error(path: &Path, error: &AnswerFileError) -> InputError {
    let missing = std::io::ErrorKind::NotFound;
    match error {
        AnswerFileError::Io(why) if *why == missing.to_string() => file_error(path, &missing.into()),
        error => InputError(format!("{}: {error}", path.display())),
    }
}
