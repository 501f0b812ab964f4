//! Reads the sections `[upstreams.*]`, the servers of models, and the entries of `fallback`, which name further
//! upstreams of a client. `config` calls it for the upstreams, and `client` for the entries of `fallback`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use flowgate_lm::RemoteModel;
use flowgate_lm::remote::RetryPolicy;
use flowgate_lm::wire::{Api, DecodeOptions};

use super::dropped_parts::dropped_parts;
use super::file::{FallbackSpec, UpstreamSpec};
use super::{ConfigReader, find_named};

/// The time for which an idle connection to an upstream is kept open; servers close theirs after five seconds or later.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A model provider, or a server of local models.
#[derive(Debug)]
pub struct UpstreamConfig {
    /// Its name.
    pub name: String,
    /// The server, with the key that the gateway holds for it, if any.
    pub remote: RemoteModel,
    /// Whether clients bring their own keys for it.
    pub pass_key: bool,
    /// The models that may be requested; any, if the list is empty.
    pub models: Vec<String>,
    /// The fields and tools that clients may send although the gateway does not understand them: it drops them.
    pub dropped: DecodeOptions,
    /// The wire format of the server.
    pub api: Api,
    /// The host and the port of the server; `None` if its address has no host.
    pub address: Option<(String, u16)>,
}

impl UpstreamConfig {
    /// Returns the name of the provider whose wire format the server has, as the conventions of OpenTelemetry spell it.
    pub(crate) fn provider(&self) -> &'static str {
        self.api.form().provider
    }
}

/// An upstream that is asked if the one before it cannot answer.
#[derive(Debug, Clone)]
pub struct FallbackUpstream {
    /// The upstream.
    pub upstream: Arc<UpstreamConfig>,
    /// The name of its model; the requested name, if none is set.
    pub model: Option<String>,
}

impl FallbackUpstream {
    /// Returns the model that is asked in place of `requested`; `None` if the upstream does not have it.
    pub(crate) fn model_for<'a>(&'a self, requested: &'a str) -> Option<&'a str> {
        let name = self.model.as_deref().unwrap_or(requested);
        let models = &self.upstream.models;
        (models.is_empty() || models.iter().any(|model| model == name)).then_some(name)
    }
}

impl ConfigReader<'_> {
    /// Checks the section of the upstream `name`, and creates the client of the model's server.
    ///
    /// # Errors
    /// The first problem of the section, as a message for the operator.
    pub(super) fn upstream(&self, name: &str, spec: UpstreamSpec) -> Result<UpstreamConfig, String> {
        let api = spec.api.0;
        // The name of the model is empty: each request names its own.
        let remote = RemoteModel::new(api, &spec.url, "").map_err(|error| format!("url: {error}"))?;
        // One retry is enough: the client libraries that agents use retry by themselves. `first` is the delay before
        // the retry; if the server requests a delay above `longest`, there is no retry.
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(2));
        let remote = remote
            .retries(RetryPolicy { times: 1, first, longest })
            .keep_connections(IDLE_CONNECTION_TIMEOUT)
            .prompt_caching(prompt_caching(api, spec.prompt_caching)?);
        let mut remote = remote.authorities(&self.authorities(&spec.url, spec.ca_file.as_deref())?);
        let key = self.key(spec.key_from.as_deref(), spec.key_file.as_deref())?;
        // With `pass-key`, the key of each client is passed on instead.
        match (&key, spec.pass_key) {
            (Some(_), true) => {
                return Err(
                    "the section has both a key and `pass-key`: remove the key if clients send their own, or `pass-key` otherwise"
                        .to_owned(),
                );
            }
            (Some(key), false) => remote = remote.key(key).map_err(|error| error.to_string())?,
            (None, _) => {}
        }
        let dropped = dropped_parts(spec.dropped_fields, spec.dropped_tools)?;
        let (name, models, address) = (name.to_owned(), spec.models, address_of(&spec.url));
        Ok(UpstreamConfig { name, remote, pass_key: spec.pass_key, models, dropped, api, address })
    }
}

/// Returns whether requests to an upstream with the format `api` get marks that ask the server to cache the beginning
/// of the request. `wanted` is the setting `prompt-caching` of the section.
///
/// # Errors
/// If the setting is true, and the format has no such marks.
fn prompt_caching(api: Api, wanted: bool) -> Result<bool, String> {
    if wanted && api != Api::Messages {
        return Err(format!(
            "prompt-caching: servers of the API `{}` cache without being asked: remove the field",
            api.form().name
        ));
    }
    Ok(wanted)
}

/// Returns the host and the port of a URL; without a port, the default port of its scheme. `None` if the URL has no
/// host.
fn address_of(url: &str) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some((uri.host()?.to_owned(), uri.port_u16().unwrap_or(default)))
}

/// Reads an entry of `fallback`. `first` is the upstream of the client, and `upstreams` are the configured ones.
///
/// # Errors
/// If there is no such upstream, or it cannot take the place of the first one.
pub(super) fn fallback_upstream(
    spec: FallbackSpec,
    first: Option<&UpstreamConfig>,
    upstreams: &BTreeMap<String, Arc<UpstreamConfig>>,
) -> Result<FallbackUpstream, String> {
    let upstream = find_named("upstream", &spec.upstream, upstreams)?;
    let Some(first) = first else {
        return Err("the section has no upstream that can be replaced: write upstream = \"NAME\"".to_owned());
    };
    let name = &upstream.name;
    if *name == first.name {
        return Err(format!(
            "`{name}` is the client's own upstream, which cannot replace itself: name another one"
        ));
    }
    if upstream.pass_key {
        return Err(format!(
            "`{name}` has `pass-key`, so it would receive the key that the client has for `{}`: in [upstreams.{name}], \
             replace `pass-key` by `key-from` or `key-file`",
            first.name
        ));
    }
    // A model that the entry names must be one that its upstream may be asked for.
    let further = FallbackUpstream { upstream, model: spec.model };
    match &further.model {
        Some(model) if further.model_for(model).is_none() => Err(format!(
            "`{0}` does not have the model `{model}`: name one of `models` in [upstreams.{0}]",
            spec.upstream
        )),
        _ => Ok(further),
    }
}
