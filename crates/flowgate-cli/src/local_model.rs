//! Loads the model that an option such as `--local` names: from a folder, from a GGUF file, or the one that ships with
//! Flowgate. `screen`, `lm tune`, some measurements of `bench`, and the screener of a chat use it.

use std::path::Path;

use flowgate_lm::local::{LocalModel, LocalSettings};

use crate::input::InputError;

/// The value of an option that selects the model that ships.
pub(crate) const EMBEDDED: &str = "embedded";

/// Loads the model in the folder or GGUF file `path`, or the one that ships with Flowgate if `path` is [`EMBEDDED`].
/// Returns it with its name for reports.
pub(crate) fn load(path: &Path) -> Result<(LocalModel, String), InputError> {
    if path == Path::new(EMBEDDED) {
        let model = LocalModel::embedded().map_err(|error| InputError(error.to_string()))?;
        return Ok((model, LocalModel::embedded_name()));
    }
    let model = LocalModel::load(path, &LocalSettings::default());
    let model = model.map_err(|error| InputError(format!("the model {}: {error}", path.display())))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((model, name))
}
