//! Serves the requests of agents and of gateways in front of them: requests to a model, judgements of chats, questions
//! of hooks about calls, and messages to MCP servers. The routes of `service` call it.
//!
//! Each request is authenticated before its body is read. Turns, embeddings, judgements and MCP messages run as tasks.
//! A client that disconnects does not cut its task off: the task notices the disconnection, ends by itself and stores
//! what it did. Counts of tokens and questions of hooks are short, and are answered without a task.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flowgate_lm::wire::Api;
use flowgate_lm::wire::generate_content::{Target, TargetMethod};

use super::long_response::{EXCHANGES, FailureFormats, STREAMS, TURNS, for_mcp_proxy};
use super::{GatewayService, busy_reply, certificate_of, last_segment, protect_connection};
use crate::chat::error_reply::error_reply;
use crate::chat::headers::with_conversation_header;
use crate::chat::{ModelRoutes, embeddings, guardrail, stream};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::workers::WorkError;
use crate::mcp_proxy::listening::opens_stream;
use crate::telemetry::names;
use crate::telemetry::refusal::RefusedRequest;

impl GatewayService {
    /// Serves a request in an API whose paths name a model and a method of it, as Gemini's do
    /// (`.../models/MODEL:METHOD`): an answer, streamed or not, or the number of tokens of a request. Returns the error
    /// to send if the request is refused or fails.
    pub(super) async fn model_method(
        self: &Arc<Self>,
        api: Api,
        request: Request,
    ) -> Result<Response, HttpReply> {
        let path = request.uri().path();
        let target = path.split_once("/models/").and_then(|(_, target)| Target::parse(target));
        let Some(target) = target else {
            let message = "this gateway does not support this method of a model: use generateContent, \
                streamGenerateContent or countTokens";
            return Err(error_reply(api, StatusCode::NOT_FOUND, message));
        };
        // Without `alt=sse`, the API streams in a form that the gateway does not have.
        let query = request.uri().query().unwrap_or_default();
        if target.method == TargetMethod::Stream && !query.split('&').any(|pair| pair == "alt=sse") {
            let message = "this gateway streams only server-sent events: add `?alt=sse` to the address";
            return Err(error_reply(api, StatusCode::BAD_REQUEST, message));
        }
        match target.method {
            TargetMethod::CountTokens => {
                self.count_tokens(api, request).await.map(IntoResponse::into_response)
            }
            TargetMethod::Generate | TargetMethod::Stream => self.turn(api, Some(target), request).await,
        }
    }

    /// Serves one request of an agent for a model: checks its head, reads its body, and runs the turn as a task.
    /// `target` is the model and the method in the address, in Gemini's API. Returns the error to send if the request
    /// is refused, or its task fails or takes too long.
    pub(super) async fn turn(
        self: &Arc<Self>,
        api: Api,
        target: Option<Target>,
        request: Request,
    ) -> Result<Response, HttpReply> {
        let routes = self.model_routes(api)?;
        let (head, body) = request.into_parts();
        let mut received =
            routes.receive((api, Some(names::CHAT)), &head.headers, certificate_of(&head.extensions)).await?;
        received.target = target;
        protect_connection(&head.extensions);
        // Every answer, also a failure, names the conversation in a header, if the client has named one.
        let name = received.conversation.clone();
        let with_name = move |reply: HttpReply| with_conversation_header(reply, name.as_deref());
        // Records the span of the request if it is refused from here on.
        let refused = received.refused.clone();
        let read = self.receive(&head.headers, body).await;
        let read = read.inspect_err(|reply| refused.record(reply.status)).map_err(&with_name)?;
        // Failures of the task are reported in the form of the API by these two closures.
        let with_name_of_failure = with_name.clone();
        let failure_formats = FailureFormats {
            reply: move |status, message: &str| with_name_of_failure(error_reply(api, status, message)),
            event: move |status, message: &str| stream::stream_error_event(api, status, message),
        };
        let service = Arc::clone(self);
        // `parts` receives the parts of the answer if it is a stream.
        let answer = move |presence: ClientPresence, parts| async move {
            let client = received.client.spec.name.clone();
            let turn =
                async move { routes.answer(&received, &read.bytes, &presence, parts).await.map(with_name) };
            record_busy(&refused, service.turns.run(&client, Box::pin(turn)).await)
        };
        self.respond(&TURNS, failure_formats, answer).await
    }

    /// Estimates the tokens of a request to the Messages API or Gemini's, on the thread of the connection: no model is
    /// asked, so no task is needed. Returns the error to send if the request is refused.
    pub(super) async fn count_tokens(
        self: &Arc<Self>,
        api: Api,
        request: Request,
    ) -> Result<HttpReply, HttpReply> {
        let routes = self.model_routes(api)?;
        let (head, body) = request.into_parts();
        // `None`: such a request has no span.
        let received = routes.receive((api, None), &head.headers, certificate_of(&head.extensions)).await?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        routes.count_tokens(&received, &read.bytes)
    }

    /// Answers a question of a coding agent's hook about a call, on the thread of the connection. Returns the error to
    /// send if the request is refused.
    pub(super) async fn handed_call(self: &Arc<Self>, request: Request) -> Result<HttpReply, HttpReply> {
        let message = "this gateway has no clients, so it hands over no calls: its operator can configure clients with `--config`";
        let routes = self.models().ok_or_else(|| HttpReply::detail(StatusCode::NOT_FOUND, message))?;
        let (head, body) = request.into_parts();
        let caller = routes.authenticate(&head.headers, certificate_of(&head.extensions)).await;
        let caller = caller.map_err(|failure| {
            HttpReply::detail(failure.status, &failure.message).annotate(failure.detail)
        })?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        Ok(routes.report_call(&caller, &read.bytes))
    }

    /// Serves a request for embeddings, as one of the turns of its client. Returns the error to send if the request is
    /// refused, or its task fails or takes too long.
    pub(super) async fn embeddings(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let api = embeddings::API;
        let routes = self.model_routes(api)?;
        let (head, body) = request.into_parts();
        let received = routes
            .receive((api, Some(names::EMBEDDINGS)), &head.headers, certificate_of(&head.extensions))
            .await?;
        protect_connection(&head.extensions);
        // Records the span of the request if it is refused from here on.
        let refused = received.refused.clone();
        let read = self.receive(&head.headers, body).await;
        let read = read.inspect_err(|reply| refused.record(reply.status))?;
        let failure_formats = FailureFormats {
            reply: move |status, message: &str| error_reply(api, status, message),
            event: move |status, message: &str| stream::stream_error_event(api, status, message),
        };
        let service = Arc::clone(self);
        // The answer is no stream.
        let answer = move |presence: ClientPresence, _| async move {
            let client = received.client.spec.name.clone();
            let turn = async move { Some(routes.embeddings(&received, &read.bytes, &presence).await) };
            record_busy(&refused, service.turns.run(&client, Box::pin(turn)).await)
        };
        self.respond(&TURNS, failure_formats, answer).await
    }

    /// Serves a request of another gateway for a judgement of a chat, as one of the turns of its client. Returns the
    /// error to send if the request is refused, or its task fails or takes too long.
    pub(super) async fn guardrail(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let api = guardrail::API;
        let routes = self.model_routes(api)?;
        let (head, body) = request.into_parts();
        let received = routes.receive_for_guardrail(&head.headers, certificate_of(&head.extensions)).await?;
        protect_connection(&head.extensions);
        // Records the span of the request if it is refused from here on.
        let refused = received.refused.clone();
        let read = self.receive(&head.headers, body).await;
        let read = read.inspect_err(|reply| refused.record(reply.status))?;
        let failure_formats = FailureFormats {
            reply: move |status, message: &str| error_reply(api, status, message),
            event: move |status, message: &str| stream::stream_error_event(api, status, message),
        };
        let service = Arc::clone(self);
        // The answer is no stream.
        let answer = move |presence: ClientPresence, _| async move {
            let client = received.client.spec.name.clone();
            let turn = async move { Some(routes.guardrail(&received, &read.bytes, &presence).await) };
            record_busy(&refused, service.turns.run(&client, Box::pin(turn)).await)
        };
        self.respond(&TURNS, failure_formats, answer).await
    }

    /// Serves one message of an agent to an MCP server. A message that opens a stream of server messages counts against
    /// the limit on streams instead of the limit on messages. Returns the error to send if the message is refused, or
    /// its task fails or takes too long.
    pub(super) async fn exchange(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let routes = self.servers()?;
        let (head, body) = request.into_parts();
        let mut received = routes
            .receive_for(last_segment(&head.uri), &head.headers, certificate_of(&head.extensions))
            .await?;
        protect_connection(&head.extensions);
        // Records the span of the request if it is refused from here on.
        let refused = received.refused.clone();
        let read = self.receive(&head.headers, body).await;
        let read = read.inspect_err(|reply| refused.record(reply.status))?;
        let listens = opens_stream(&read.bytes);
        // The message takes one of the client's places for streams, and gives back its place for parallel requests.
        if listens {
            received.switch_place(&routes).inspect_err(|reply| refused.record(reply.status))?;
        }
        let service = Arc::clone(self);
        // `parts` receives the parts of the answer if it is a stream.
        let answer = move |presence: ClientPresence, parts| async move {
            let tasks = if listens { &service.streams } else { &service.exchanges };
            let client = received.client_name().to_owned();
            let exchange = async move { routes.exchange(&received, &read.bytes, &presence, parts).await };
            record_busy(&refused, tasks.run(&client, exchange).await)
        };
        self.respond(if listens { &STREAMS } else { &EXCHANGES }, for_mcp_proxy(), answer).await
    }

    /// Serves a listening stream: sends the agent the messages of an MCP server that answer no request of the agent,
    /// until either side ends it. Returns the error to send if the stream is refused.
    pub(super) async fn listen(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let routes = self.servers()?;
        let received = routes
            .receive_listener(
                last_segment(request.uri()),
                request.headers(),
                certificate_of(request.extensions()),
            )
            .await?;
        protect_connection(request.extensions());
        let service = Arc::clone(self);
        // `parts` receives the messages, as the parts of the response.
        let answer = move |presence: ClientPresence, parts| async move {
            let client = received.client_name().to_owned();
            let stream = async move { routes.listen(&received, &presence, parts).await };
            service.streams.run(&client, stream).await
        };
        self.respond(&STREAMS, for_mcp_proxy(), answer).await
    }

    /// Ends the MCP session of an agent with the server that the last segment of the path names. Returns the error to
    /// send if the request is refused, or the task that ends the session cannot be started or fails.
    pub(super) async fn end_mcp_session(self: &Arc<Self>, request: Request) -> Result<HttpReply, HttpReply> {
        let routes = self.servers()?;
        let received = routes
            .receive_for(last_segment(request.uri()), request.headers(), certificate_of(request.extensions()))
            .await?;
        protect_connection(request.extensions());
        let client = received.client_name().to_owned();
        let end = async move { routes.end_mcp_session(&received).await };
        // A task that failed is answered as one for which there is no room: the agent tries again.
        self.exchanges.run(&client, end).await.map_err(|_| busy_reply())
    }

    /// Returns the state of the routes for MCP servers; the error says that the gateway has none.
    fn servers(&self) -> Result<Arc<ModelRoutes>, HttpReply> {
        let message = "this gateway has no MCP servers: its operator can configure them with `--config`";
        self.models().ok_or_else(|| HttpReply::detail(StatusCode::NOT_FOUND, message))
    }
}

/// Records the span of a request that is refused because too many tasks run. `outcome` is the result of running its
/// task, and is returned unchanged.
fn record_busy<T>(refused: &RefusedRequest, outcome: Result<T, WorkError>) -> Result<T, WorkError> {
    if let Err(WorkError::Busy) = outcome {
        refused.record(StatusCode::TOO_MANY_REQUESTS);
    }
    outcome
}
