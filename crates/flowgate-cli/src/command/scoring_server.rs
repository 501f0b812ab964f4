//! Opens the model on a server that scores texts, which options such as `--model` and `--url` name. `bench propagation`,
//! `lm tune` and `replay` use it.

use flowgate_lm::RemoteModel;
use flowgate_lm::wire::Api;

use crate::args::ScoringServerArgs;
use crate::input::InputError;

/// Returns the model that the options name, with which the caller scores texts ([`RemoteModel::scorer`]); `None` if they
/// name none.
///
/// # Errors
/// If the address or the key cannot be used.
pub(crate) fn open(options: &ScoringServerArgs) -> Result<Option<RemoteModel>, InputError> {
    let (Some(model), Some(url)) = (&options.model, &options.url) else { return Ok(None) };
    let remote = RemoteModel::new(Api::ChatCompletions, url, model);
    let mut remote = remote.map_err(|error| InputError(format!("--url {url}: {error}")))?;
    if let Some(variable) = &options.key_from {
        let key = crate::command::run::models::key(variable)?;
        remote = remote.key(key.trim()).map_err(|error| InputError(error.to_string()))?;
    }
    Ok(Some(remote))
}
