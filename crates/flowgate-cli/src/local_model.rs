//! Loads the model that an option such as `--local` names: from a folder, from a GGUF file, or the one that ships with
//! Flowgate. `screen`, `lm`, `replay`, some measurements of `bench`, and the screener of a chat use it.

use std::path::Path;

use flowgate_lm::local::{LoadError, LocalModel, LocalSettings, LocalTextClassifier, ModelDigest, Processor};

use crate::input::InputError;

/// The value of an option that selects the model that ships.
pub(crate) const EMBEDDED: &str = "embedded";

/// A model with what identifies it.
pub(crate) struct IdentifiedModel {
    pub(crate) model: LocalModel,
    /// The name for reports, which contains the beginning of a digest.
    pub(crate) name: String,
    /// The digest of the model's files.
    pub(crate) digest: ModelDigest,
}

/// Loads the model in the folder or GGUF file `path`, or the one that ships with Flowgate if `path` is [`EMBEDDED`].
/// Returns it with its name for reports. `processor` evaluates it.
pub(crate) fn load(path: &Path, processor: Processor) -> Result<(LocalModel, String), InputError> {
    let IdentifiedModel { model, name, .. } = load_identified(path, processor)?;
    Ok((model, name))
}

/// Loads a model like [`load`], and returns it with its name and the digest of its files. Fails if the files cannot be
/// read, or are not those of a supported model.
pub(crate) fn load_identified(path: &Path, processor: Processor) -> Result<IdentifiedModel, InputError> {
    if path == Path::new(EMBEDDED) {
        let model = LocalModel::embedded_on(processor).map_err(|error| InputError(error.to_string()))?;
        return Ok(IdentifiedModel {
            model,
            name: LocalModel::embedded_name(),
            digest: ModelDigest::embedded(),
        });
    }
    from_files(path, processor).map_err(|error| InputError(format!("the model {}: {error}", path.display())))
}

/// Loads the classifier of texts in a folder, and returns it with its name for reports: that of the folder with the
/// beginning of the digest of its files. Fails if the files cannot be read, or are not those of a classifier.
pub(crate) fn load_classifier(
    folder: &Path,
    processor: Processor,
) -> Result<(LocalTextClassifier, String), InputError> {
    let failed = |error: LoadError| InputError(format!("--classifier {}: {error}", folder.display()));
    let settings = LocalSettings { processor, ..LocalSettings::default() };
    let model = LocalTextClassifier::load(folder, &settings).map_err(failed)?;
    let digest = ModelDigest::of_files(folder).map_err(failed)?;
    let file_name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();
    Ok((model, format!("{file_name} {}", digest.short())))
}

/// Loads the model in the folder or GGUF file `path`. Its name is that of the folder or file with the beginning of the
/// digest of its files, such as `Qwen3-0.6B 3fa9c0127be4d581`: other weights in a folder of the same name have another
/// name, in reports and as the key of recorded answers.
pub(crate) fn from_files(path: &Path, processor: Processor) -> Result<IdentifiedModel, LoadError> {
    let model = LocalModel::load(path, &LocalSettings { processor, ..LocalSettings::default() })?;
    let digest = ModelDigest::of_files(path)?;
    let file_name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = format!("{file_name} {}", digest.short());
    Ok(IdentifiedModel { model: model.with_name(&name), name, digest })
}
