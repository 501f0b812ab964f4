//! Serves the requests of agents: turns of a model, and messages to MCP servers.
//!
//! Each request is authenticated before its body is read, and runs as a task that outlives its connection.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use flowgate_lm::wire::Api;

use super::long_response::{EXCHANGES, FailureFormats, STREAMS, TURNS, for_mcp_proxy};
use super::{GatewayService, busy_reply, certificate_of, last_segment, protect_connection};
use crate::chat::error_reply::error_reply;
use crate::chat::headers::with_conversation_header;
use crate::chat::{ModelRoutes, stream};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::mcp_proxy::listening::opens_stream;

impl GatewayService {
    /// Serves one turn of an agent.
    pub(super) async fn turn(self: &Arc<Self>, api: Api, request: Request) -> Result<Response, HttpReply> {
        let routes = Arc::clone(self.chat(api)?);
        let (head, body) = request.into_parts();
        let received = routes.receive(api, &head.headers, certificate_of(&head.extensions)).await?;
        protect_connection(&head.extensions);
        // Every answer names the conversation that the client has named.
        let name = received.conversation.clone();
        let named = move |reply: HttpReply| with_conversation_header(reply, name.as_deref());
        let read = self.receive(&head.headers, body).await.map_err(&named)?;
        // For failures of the task, which the closures below report in the form of the API.
        let refused = named.clone();
        let broken = FailureFormats {
            reply: move |status, message: &str| refused(error_reply(api, status, message)),
            event: move |status, message: &str| stream::stream_error_event(api, status, message),
        };
        let service = Arc::clone(self);
        let answer = move |presence: ClientPresence, parts| async move {
            let client = received.client.spec.name.clone();
            let turn =
                async move { routes.answer(&received, &read.bytes, &presence, parts).await.map(named) };
            service.turns.run(&client, Box::pin(turn)).await
        };
        self.respond(&TURNS, broken, answer).await
    }

    /// Estimates the tokens of a request to the Messages API.
    pub(super) async fn count_tokens(self: &Arc<Self>, request: Request) -> Result<HttpReply, HttpReply> {
        let routes = self.chat(Api::Messages)?;
        let (head, body) = request.into_parts();
        let received = routes.receive(Api::Messages, &head.headers, certificate_of(&head.extensions)).await?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        routes.count_tokens(&received, &read.bytes)
    }

    /// Serves one message of an agent to an MCP server.
    pub(super) async fn exchange(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let routes = Arc::clone(self.servers()?);
        let (head, body) = request.into_parts();
        let mut received = routes
            .receive_for(last_segment(&head.uri), &head.headers, certificate_of(&head.extensions))
            .await?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        let listens = opens_stream(&read.bytes);
        if listens {
            received.switch_place(&routes)?;
        }
        let service = Arc::clone(self);
        let answer = move |presence: ClientPresence, parts| async move {
            let tasks = if listens { &service.streams } else { &service.exchanges };
            let client = received.client_name().to_owned();
            let exchange = async move { routes.exchange(&received, &read.bytes, &presence, parts).await };
            tasks.run(&client, exchange).await
        };
        self.respond(if listens { &STREAMS } else { &EXCHANGES }, for_mcp_proxy(), answer).await
    }

    /// Streams the unsolicited messages of a server.
    pub(super) async fn listen(self: &Arc<Self>, request: Request) -> Result<Response, HttpReply> {
        let routes = Arc::clone(self.servers()?);
        let received = routes
            .receive_listener(
                last_segment(request.uri()),
                request.headers(),
                certificate_of(request.extensions()),
            )
            .await?;
        protect_connection(request.extensions());
        let service = Arc::clone(self);
        let listen = move |presence: ClientPresence, parts| async move {
            let client = received.client_name().to_owned();
            let listen = async move { routes.listen(&received, &presence, parts).await };
            service.streams.run(&client, listen).await
        };
        self.respond(&STREAMS, for_mcp_proxy(), listen).await
    }

    /// Ends the connection of an agent to an MCP server.
    pub(super) async fn end_connection(self: &Arc<Self>, request: Request) -> Result<HttpReply, HttpReply> {
        let routes = Arc::clone(self.servers()?);
        let received = routes
            .receive_for(last_segment(request.uri()), request.headers(), certificate_of(request.extensions()))
            .await?;
        protect_connection(request.extensions());
        let client = received.client_name().to_owned();
        let end = async move { routes.end_connection(&received).await };
        self.exchanges.run(&client, end).await.map_err(|_| busy_reply())
    }

    fn servers(&self) -> Result<&Arc<ModelRoutes>, HttpReply> {
        let message = "this gateway has no MCP servers: its operator can configure them with `--config`";
        self.models.as_ref().ok_or_else(|| HttpReply::detail(StatusCode::NOT_FOUND, message))
    }
}
