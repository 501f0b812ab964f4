//! Creates the models of one turn: the model that the client requests, the small model that screens and fills slots,
//! and the models whose servers run tools of the provider. Each of them has the client's fallbacks, except for the
//! model of a tool whose calls must not run twice. `turn` creates [`TurnModels`].

use std::sync::Arc;

use axum::http::StatusCode;
use flowgate_lm::chat::ProviderToolUse;
use flowgate_lm::{Error, RemoteModel};

use super::fallback_model::{FallbackModel, UpstreamChoice};
use super::turn_request::TurnRequest;
use super::turn_trace::ModelCalls;
use crate::config::UpstreamConfig;
use crate::http::request_error::RequestError;
use crate::log::LogEvent;

/// Creates the models of one turn.
pub(super) struct TurnModels<'t> {
    turn: TurnRequest<'t>,
    upstream: &'t UpstreamConfig,
    /// The requested model on the client's upstream, with the key that is sent to it.
    remote: RemoteModel,
    /// Is called with the name of a model that failed, and its error, before the next model is asked.
    on_failure: &'t (dyn Fn(&str, &Error) + Sync),
}

/// What a model is asked for in a turn.
#[derive(Clone, Copy)]
enum ModelUse<'a> {
    /// The next message of the conversation.
    Answer,
    /// The questions of screeners, and texts of slots.
    Screening,
    /// The output of this tool of the provider.
    ProviderTool(&'a ProviderToolUse),
}

impl ModelUse<'_> {
    /// Whether a request may be sent to a second server after the first one failed: not if the failed request may have
    /// had an effect.
    fn is_repeatable(self) -> bool {
        match self {
            Self::Answer | Self::Screening => true,
            Self::ProviderTool(used) => used.tool.is_repeatable(),
        }
    }
}

impl<'t> TurnModels<'t> {
    /// Creates the models for a turn on the client's upstream. `on_failure` is called with the name and the error of
    /// each model that fails before the next one is asked.
    ///
    /// # Errors
    /// If the client's key for the upstream has characters that a header cannot contain.
    pub(super) fn new(
        turn: TurnRequest<'t>,
        upstream: &'t UpstreamConfig,
        on_failure: &'t (dyn Fn(&str, &Error) + Sync),
    ) -> Result<Self, RequestError> {
        let mut remote = upstream.remote.with_model(&turn.decoded.model).betas(turn.betas);
        if let Some(key) = turn.key {
            remote = remote
                .key(key)
                .map_err(|error| RequestError::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
        }
        Ok(Self { turn, upstream, remote, on_failure })
    }

    /// Returns the requested model, whose answers may cite the documents of the request. `calls` records each request
    /// to it.
    pub(super) fn requested(&self, calls: &'t ModelCalls<'t>) -> FallbackModel<'t> {
        self.with_fallbacks(self.remote.clone(), &self.turn.decoded.model, ModelUse::Answer, calls)
    }

    /// Returns the client's small model, or the requested one if it has none. `calls` records each request to it.
    pub(super) fn small(&self, calls: &'t ModelCalls<'t>) -> FallbackModel<'t> {
        let name = self.turn.client.spec.small_model.as_deref().unwrap_or(&self.turn.decoded.model);
        self.with_fallbacks(self.remote.with_model(name), name, ModelUse::Screening, calls)
    }

    /// Returns a model for each tool of the provider that the request declares, in the same order. `calls` records each
    /// request to them.
    pub(super) fn provider_tools(&self, calls: &'t ModelCalls<'t>) -> Vec<FallbackModel<'t>> {
        let decoded = self.turn.decoded;
        let models = decoded.provider_tools.iter().map(|tool| {
            self.with_fallbacks(self.remote.clone(), &decoded.model, ModelUse::ProviderTool(tool), calls)
        });
        models.collect()
    }

    /// Returns the model `first`, with the models of the client's fallbacks. The model of a fallback has the name
    /// `model`, unless the configuration names another one for it. A fallback whose upstream does not have the model is
    /// left out. `model_use` says for what the turn uses the models, and `calls` records the requests to them.
    ///
    /// A tool of the provider whose calls may have effects, such as an MCP server, has no fallbacks: its call must not
    /// run twice, and the client's token for the server is for the provider of the client's own upstream alone.
    fn with_fallbacks(
        &self,
        first: RemoteModel,
        model: &str,
        model_use: ModelUse<'_>,
        calls: &'t ModelCalls<'t>,
    ) -> FallbackModel<'t> {
        // Prepares a model for its use.
        let adapt = |remote: RemoteModel| match model_use {
            ModelUse::Answer => remote.citing(Arc::clone(&self.turn.decoded.citable)),
            ModelUse::Screening => remote,
            ModelUse::ProviderTool(tool) => remote.for_provider_tool(tool.clone()),
        };
        let fallbacks = self.turn.client.spec.fallback.iter().filter(|_| model_use.is_repeatable());
        let others = fallbacks.filter_map(|further| {
            let remote = further.upstream.remote.with_model(further.model_for(model)?);
            Some(UpstreamChoice { remote: adapt(remote.betas(self.turn.betas)), upstream: &further.upstream })
        });
        let first = UpstreamChoice { remote: adapt(first), upstream: self.upstream };
        FallbackModel::new(first, others.collect(), self.on_failure, self.turn.spending, calls)
    }
}

impl TurnRequest<'_> {
    /// Logs that a model failed and that the next upstream is asked.
    pub(super) fn log_failed_model(&self, model: &str, error: &Error) {
        let sentence =
            format!("the model {model} failed, so the next upstream of `fallback` is asked: {error}");
        let fields = vec![("conversation", self.name.into())];
        self.log.write(LogEvent::Upstream, &self.client.spec.name, fields, &sentence);
    }
}
