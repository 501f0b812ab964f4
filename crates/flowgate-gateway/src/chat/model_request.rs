//! Reads the headers of a request for a model: authenticates the client and checks its limits before any of the body is
//! read. The HTTP service calls it, and hands the result ([`ModelRouteRequest`]) to the module that answers the
//! request: `answer`, `embeddings`, `count_tokens` or `guardrail`.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use flowgate_lm::chat::Source;
use flowgate_lm::wire::Api;
use flowgate_lm::wire::generate_content::Target;
use opentelemetry::trace::SpanContext;

use super::ModelRoutes;
use super::authentication::Caller;
use super::client_limits::ClientLimit;
use super::clients::{ClientRequestPlace, ClientState};
use super::error_reply::error_reply;
use super::headers::{conversation_of, declared_default_source, passed_betas, with_conversation_header};
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::telemetry::names;
use crate::telemetry::refusal::RefusedRequest;
use crate::tls::client_certificate::ClientCertificate;
use crate::virtual_keys::valid_key::ValidKey;
use crate::visibility::{EXPLAIN_HEADER, EXPLAIN_VALUE};

/// A client's request whose body has not been read.
#[derive(Debug)]
pub(crate) struct ModelRouteRequest {
    pub(crate) api: Api,
    /// The model and the method in the address, in Gemini's API; the HTTP service sets it.
    pub(crate) target: Option<Target>,
    pub(crate) client: Arc<ClientState>,
    /// The virtual key with which the client has authenticated itself, if it has.
    pub(crate) virtual_key: Option<Arc<ValidKey>>,
    /// The key for the upstream, if the client sends its own.
    pub(crate) key: Option<String>,
    /// The name of the conversation in the gateway, if the client names one.
    pub(crate) conversation: Option<String>,
    /// Whether the client asks for an explanation of what is hidden from the model.
    pub(super) explains: bool,
    /// The provenance of the parts of user messages that have no mark of their own, if the client declares one.
    pub(crate) default_source: Option<Source>,
    /// The features of the Messages API that the client asks for, as far as they are passed on.
    pub(crate) betas: Vec<&'static str>,
    /// The span of the client to which the request belongs, if the client names one and spans are recorded.
    pub(super) trace_parent: Option<SpanContext>,
    /// Records the span of the request if it is refused before its turn begins.
    pub(crate) refused: RefusedRequest,
    /// Counts the request among the client's parallel requests until it is answered.
    _at_work: ClientRequestPlace,
}

impl ModelRoutes {
    /// Reads the headers of a request: authenticates the client, counts the request against the client's limits, and
    /// parses the gateway's own headers. `api` is the API of the route, in whose form errors are sent. `operation` is
    /// the name of the request's span; `None` if requests of this route have no span.
    ///
    /// # Errors
    /// The reply to send if any of this fails.
    pub(crate) async fn receive(
        &self,
        (api, operation): (Api, Option<&'static str>),
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<ModelRouteRequest, HttpReply> {
        let caller = self
            .authenticate_for_model(headers, certificate)
            .await
            .map_err(|failure| error_reply(api, failure.status, &failure.message).annotate(failure.detail))?;
        // From here on, a refusal has a span. Requests of unauthenticated clients have none, since anybody can send
        // them.
        let trace_parent = self.telemetry.read_parent(headers);
        let refused = operation.map(|operation| {
            let client = &caller.client.spec.name;
            RefusedRequest::new(&self.telemetry, operation, client, trace_parent.clone())
        });
        let refused = refused.unwrap_or_default();
        let received = self.admit(api, headers, caller, (trace_parent, refused.clone())).await;
        received.inspect_err(|reply| refused.record(reply.status))
    }

    /// Reads the headers of a request of another gateway that asks for a judgement, as [`Self::receive`] does. The
    /// client needs no upstream, but its configuration must have `guardrail = true`.
    ///
    /// # Errors
    /// The reply to send if the client may not ask for judgements, or as for [`Self::receive`].
    pub(crate) async fn receive_for_guardrail(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<ModelRouteRequest, HttpReply> {
        // The form of the errors that this function returns.
        let api = Api::ChatCompletions;
        let refuse = |failure: RequestError| {
            error_reply(api, failure.status, &failure.message).annotate(failure.detail)
        };
        let caller = self.authenticate(headers, certificate).await.map_err(refuse)?;
        if !caller.client.spec.guardrail {
            let message = "this client may not ask for judgements of chats: to permit it, the operator of this gateway writes `guardrail = true` in the section of the client";
            return Err(error_reply(api, StatusCode::FORBIDDEN, message));
        }
        let trace_parent = self.telemetry.read_parent(headers);
        let client = &caller.client.spec.name;
        let refused = RefusedRequest::new(&self.telemetry, names::GUARDRAIL, client, trace_parent.clone());
        let received = self.admit(api, headers, caller, (trace_parent, refused.clone())).await;
        received.inspect_err(|reply| refused.record(reply.status))
    }

    /// Counts an authenticated request against the quotas, the budgets and the limit on parallel requests of its
    /// client, and parses the gateway's own headers. The returned request keeps `trace_parent`, the client's span, and
    /// `refused`, with which a later refusal is recorded.
    ///
    /// # Errors
    /// The reply to send if a limit is reached or a header is invalid.
    async fn admit(
        &self,
        api: Api,
        headers: &HeaderMap,
        caller: Caller,
        (trace_parent, refused): (Option<SpanContext>, RefusedRequest),
    ) -> Result<ModelRouteRequest, HttpReply> {
        // The name of the conversation in the gateway, with the scope of the virtual key.
        let named = conversation_of(headers).map(|named| named.map(|name| caller.conversation(&name)));
        let Caller { client, virtual_key, provider_key: key } = caller;
        let limits = (&*client, virtual_key.as_deref());
        // Every refusal repeats a valid name. An invalid name is refused only after the limits were checked, so that
        // such requests count too.
        let name = named.as_ref().ok().and_then(Option::as_deref);
        let refuse =
            |status, message: &str| with_conversation_header(error_reply(api, status, message), name);
        if let Err(refusal) = self.take_request(limits, name).await {
            return Err(refusal.add_to(refuse(refusal.status, &refusal.message)));
        }
        if let Err(refusal) = self.check_budget(limits, name).await {
            return Err(refusal.add_to(refuse(refusal.status, &refusal.message)));
        }
        let Some(at_work) = ClientRequestPlace::acquire(&client) else {
            self.log_client_limit(&client, name, ClientLimit::Parallel);
            let message =
                "this client has reached its limit of open requests: wait until one of them is answered";
            return Err(refuse(StatusCode::TOO_MANY_REQUESTS, message).mark_logged());
        };
        let default_source =
            declared_default_source(headers).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
        let conversation = named.map_err(|why| error_reply(api, StatusCode::BAD_REQUEST, &why))?;
        // Whether the client asks, by a header, for an explanation of what is hidden from the model.
        let explains =
            headers.get_all(EXPLAIN_HEADER).iter().any(|value| value.as_bytes() == EXPLAIN_VALUE.as_bytes());
        let betas = passed_betas(headers);
        Ok(ModelRouteRequest {
            api,
            target: None,
            client,
            virtual_key,
            key,
            conversation,
            default_source,
            betas,
            explains,
            trace_parent,
            refused,
            _at_work: at_work,
        })
    }
}
