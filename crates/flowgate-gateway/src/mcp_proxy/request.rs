//! Reads the headers of one request of a client for an MCP server: authenticates the client, checks its limits and
//! finds the server and the conversation. `http::service` calls it before it reads a body. A request to end an MCP
//! session has no body, and is carried out here.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use opentelemetry::trace::SpanContext;

use super::headers::{McpHeaders, is_from_web_page};
use super::pending_reply::error_reply;
use super::upstream::SESSION;
use crate::chat::ModelRoutes;
use crate::chat::authentication::Caller;
use crate::chat::client_limits::ClientLimit;
use crate::chat::clients::{ClientRequestPlace, ClientState};
use crate::chat::headers::{CONVERSATION, conversation_of};
use crate::config::McpServer;
use crate::http::reply::HttpReply;
use crate::mcp_proxy::stream_place::StreamPlace;
use crate::telemetry::names;
use crate::telemetry::refusal::RefusedRequest;
use crate::tls::client_certificate::ClientCertificate;
use crate::virtual_keys::valid_key::ValidKey;

/// The name of the conversation for requests that name none, of a client that uses no model. All such requests with one
/// key share it, and with it the labels of everything that the client was ever shown.
const UNNAMED: &str = "mcp";
/// The header by which a client asks for features of the gateway.
const FEATURES: &str = "x-mcp-features";
/// The feature by which a client asks for the labels of answers.
const LABELS: &str = "ifc_labels";
/// The error of a client with too many open requests or listening streams.
const TOO_MANY_REQUESTS: &str = "this client has reached its limit of open requests or listening streams: wait until one of them has ended";

/// A request whose body has not been read.
#[derive(Debug)]
pub(crate) struct McpRequest {
    pub(super) client: Arc<ClientState>,
    /// The virtual key or the token with which the client has authenticated itself, if it has.
    pub(super) key: Option<Arc<ValidKey>>,
    pub(super) server: Arc<McpServer>,
    pub(super) conversation: String,
    /// The server's id of the MCP session.
    pub(super) session: Option<String>,
    pub(super) headers: McpHeaders,
    /// Whether the client accepts an event stream.
    pub(super) streams: bool,
    /// Whether the client asks for the labels of answers.
    pub(super) labels: bool,
    pub(super) place: ClientPlace,
    /// The span of the client to which the request belongs, if the client names one and spans are recorded.
    pub(super) trace_parent: Option<SpanContext>,
    /// Records the span of the request if it is refused before its exchange begins.
    pub(crate) refused: RefusedRequest,
}

/// The place of a request in one of the limits of its client on parallel requests and streams.
#[derive(Debug)]
pub(crate) enum ClientPlace {
    /// One of its parallel requests.
    Request(#[expect(dead_code, reason = "given back when it is dropped")] ClientRequestPlace),
    /// One of its parallel streams of server messages that answer no request.
    ListeningStream(#[expect(dead_code, reason = "given back when it is dropped")] StreamPlace),
}

impl McpRequest {
    /// Returns the name of the client in the configuration.
    pub(crate) fn client_name(&self) -> &str {
        &self.client.spec.name
    }

    /// Makes the request count against the limit on listening streams instead of the limit on parallel requests, since
    /// its message, which is read after the headers, opens such a stream. Rejects the request, and logs the limit, if
    /// the client has reached its limit on streams.
    pub(crate) fn switch_place(&mut self, routes: &ModelRoutes) -> Result<(), HttpReply> {
        let Some(place) = StreamPlace::acquire(&self.client.listening) else {
            routes.log_client_limit(&self.client, Some(&self.conversation), ClientLimit::Listening);
            return Err(error_reply(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS).mark_logged());
        };
        self.place = ClientPlace::ListeningStream(place);
        Ok(())
    }
}

impl ModelRoutes {
    /// Authenticates the client of a request to the server with the name `server` and checks its limits, before any of
    /// the body is read. The request counts against the limit on parallel requests. The error is the reply to send.
    pub(crate) async fn receive_for(
        &self,
        server: &str,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<McpRequest, HttpReply> {
        self.receive_with(server, (headers, certificate), ClientLimit::Parallel, |client| {
            ClientRequestPlace::acquire(client).map(ClientPlace::Request)
        })
        .await
    }

    /// Authenticates the client that opens a listening stream of the server with the name `server`, and checks its
    /// limits, as [`Self::receive_for`] does. The request counts against the limit on listening streams. The error is
    /// the reply to send.
    pub(crate) async fn receive_listener(
        &self,
        server: &str,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<McpRequest, HttpReply> {
        self.receive_with(server, (headers, certificate), ClientLimit::Listening, |client| {
            StreamPlace::acquire(&client.listening).map(ClientPlace::ListeningStream)
        })
        .await
    }

    /// Authenticates the client of a request, finds the server with the name `server`, counts the request against
    /// the client's quota, and finds the conversation that the request belongs to. `bound` is the limit on open
    /// requests or on listening streams that applies to this request; `place` takes one of its places, or returns
    /// `None` if all are taken. The limits are checked before the rest of the headers. The error is the reply to
    /// send if any of this fails, or if a web page of another host sent the request.
    async fn receive_with(
        &self,
        server: &str,
        (headers, certificate): (&HeaderMap, Option<&ClientCertificate>),
        bound: ClientLimit,
        place: impl FnOnce(&Arc<ClientState>) -> Option<ClientPlace>,
    ) -> Result<McpRequest, HttpReply> {
        if is_from_web_page(headers) {
            let why = "the header `origin` names a web page of another host, which may not send requests: \
                remove the header";
            return Err(error_reply(StatusCode::FORBIDDEN, why));
        }
        // A key for a model provider is not needed here.
        let caller = self
            .authenticate(headers, certificate)
            .await
            .map_err(|failure| error_reply(failure.status, &failure.message).annotate(failure.detail))?;
        let trace_parent = self.telemetry.read_parent(headers);
        let name = &caller.client.spec.name;
        // Records a span if the request is refused, here or later. An unauthenticated request has no span.
        let refused = RefusedRequest::new(&self.telemetry, names::OTHER, name, trace_parent.clone());
        let traced = (trace_parent, refused.clone());
        let received = self.admit_message(server, headers, caller, (bound, place), traced).await;
        received.inspect_err(|reply| refused.record(reply.status))
    }

    /// Does the part of [`Self::receive_with`] that follows the authentication of `caller`: finds the server, takes the
    /// request from the quota, takes a place in the limit `bound` by `take_place`, and finds the conversation. A
    /// request for a server that the client may not use costs no quota. The returned request keeps `trace_parent`, the
    /// client's span, and `refused`, with which a later refusal is recorded.
    async fn admit_message(
        &self,
        server: &str,
        headers: &HeaderMap,
        caller: Caller,
        (bound, take_place): (ClientLimit, impl FnOnce(&Arc<ClientState>) -> Option<ClientPlace>),
        (trace_parent, refused): (Option<SpanContext>, RefusedRequest),
    ) -> Result<McpRequest, HttpReply> {
        let client = Arc::clone(&caller.client);
        let found = client.spec.server(server).map(Arc::clone);
        // For the page for people, which shows the servers that each client has used, and how often it has asked for
        // one that it may not use.
        self.coverage.note_server(&client.spec.name, found.as_ref().map(|server| server.name.as_str()));
        let server = found.ok_or_else(|| {
            let names: Vec<&str> = client.spec.servers.iter().map(|server| server.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let why = format!(
                "this client may not use an MCP server of this name (it may use: {names}): correct the name in the \
                address, or ask the operator to give the client this server"
            );
            error_reply(StatusCode::NOT_FOUND, &why)
        })?;
        // For the log lines about limits; an invalid name is refused only after the limits are checked.
        let named = conversation_of(headers).ok().flatten().map(|name| caller.conversation(&name));
        let limits = (&*client, caller.virtual_key.as_deref());
        if let Err(refusal) = self.take_request(limits, named.as_deref()).await {
            return Err(refusal.add_to(error_reply(refusal.status, &refusal.message)));
        }
        let Some(place) = take_place(&client) else {
            self.log_client_limit(&client, named.as_deref(), bound);
            return Err(error_reply(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS).mark_logged());
        };
        let bad = |why: String| error_reply(StatusCode::BAD_REQUEST, &why);
        let conversation = match conversation_of(headers).map_err(bad)? {
            Some(name) => caller.conversation(&name),
            // The conversation of a chat is found by a prefix of its messages, which a request to an MCP server lacks.
            None if client.spec.upstream.is_some() => {
                let why = format!(
                    "the request names no conversation, but a client that also uses a model has to name one: send \
                    the header `{CONVERSATION}`"
                );
                return Err(bad(why));
            }
            None => caller.conversation(UNNAMED),
        };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let streams = text("accept").is_some_and(|kinds| kinds.contains("text/event-stream"));
        // Whether the client asks for the labels of answers.
        let labels =
            text(FEATURES).is_some_and(|list| list.split(',').any(|feature| feature.trim() == LABELS));
        let (session, mcp_headers) = (text(SESSION), McpHeaders::read(headers).map_err(bad)?);
        Ok(McpRequest {
            client,
            key: caller.virtual_key,
            server,
            conversation,
            session,
            headers: mcp_headers,
            streams,
            labels,
            place,
            trace_parent,
            refused,
        })
    }

    /// Ends the MCP session of a client at its server, unless a freeze stops the server. The conversation and its
    /// labels remain. The reply has the status 204 even if the server cannot be reached, or the request names no
    /// session.
    pub(crate) async fn end_mcp_session(&self, request: &McpRequest) -> HttpReply {
        if let Some(why) = self.freeze_of_server(request).await {
            return error_reply(StatusCode::FORBIDDEN, &why);
        }
        if let Some(session) = &request.session {
            request.server.upstream.end(session).await;
        }
        HttpReply::empty(StatusCode::NO_CONTENT)
    }
}
