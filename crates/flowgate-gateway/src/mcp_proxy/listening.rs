//! Forwards the messages of an MCP server that answer no request, in a *listening stream*. A client opens the stream
//! by `GET` in protocol revisions with sessions, and by `subscriptions/listen` in the revision without sessions.
//! `http::service` calls [`ModelRoutes::listen`] for `GET`; for a subscription, `server_requests` passes each message
//! of the server to this module.
//!
//! Such a stream does not count against the limit on ordinary requests, and does not lock its conversation. The stream
//! ends when the client disconnects, the client's token expires, a freeze stops its server, conversation or client, the
//! server has sent too many messages, or the gateway shuts down. The client may then open another.

use axum::http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::event_stream::EventStream;
use super::exchange::McpExchange;
use super::pending_reply::{PendingReply, error_reply};
use super::proxies::ProxyEvent;
use super::request::McpRequest;
use super::server_requests::{MessageOutcome, TOO_MANY_MESSAGES};
use super::stop_signal::StopSignal;
use super::upstream::{SESSION, ServerAnswerBody};
use crate::chat::ModelRoutes;
use crate::chat::stream::ReplyPart;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::log::Limit;
use flowgate_mcp::{LISTEN_METHOD, SUBSCRIPTION_ID_KEY};

/// The limit on server messages in one stream; [`TOO_MANY_MESSAGES`] states it.
pub(crate) const MAX_UNSOLICITED: usize = 1_000;
/// The limit on requests of the server among these messages.
const MAX_ASKED: usize = 64;

impl ModelRoutes {
    /// Ends all listening streams, since the gateway shuts down.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Sends to `parts` each message of the server that answers no request, until the stream ends. `presence` says
    /// whether the client is still connected. Returns a reply only if the stream could not begin.
    pub(crate) async fn listen(
        &self,
        request: &McpRequest,
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Option<HttpReply> {
        if !request.streams {
            let why = "the messages of a server are sent as a stream, which this request does not accept: \
                send `accept: text/event-stream`";
            return Some(error_reply(StatusCode::NOT_ACCEPTABLE, why));
        }
        if let Some(why) = self.freeze_of_server(request).await {
            return Some(error_reply(StatusCode::FORBIDDEN, &why));
        }
        // There is no message yet, so the headers name only the version of the protocol.
        let mut headers = request.headers.for_message(&Value::Null);
        headers.extend(request.session.iter().map(|session| (SESSION.to_owned(), session.clone())));
        // `true`: the reply is a stream.
        let reply = PendingReply::new(parts, true, &request.conversation);
        let mut exchange = McpExchange::new(self, request, presence, reply);
        // What ends the wait for the server, before and after the stream has begun.
        let mut stop =
            exchange.add_stream_check(StopSignal { client: presence.clone(), ..StopSignal::default() });
        // `None`: this is a new stream, not the rest of an earlier one.
        let answer = match request.server.upstream.listen(None, &headers, &mut stop).await {
            Ok(answer) => answer,
            Err(why) => return Some(error_reply(StatusCode::BAD_GATEWAY, why)),
        };
        let mut events = match answer.body {
            ServerAnswerBody::Stream(events) => events,
            ServerAnswerBody::SessionUnknown => {
                let why = "the server no longer has this MCP session: begin a new one with `initialize`";
                return Some(error_reply(StatusCode::NOT_FOUND, why));
            }
            ServerAnswerBody::Nothing | ServerAnswerBody::Message(_) | ServerAnswerBody::StreamNotOffered => {
                let why = "this server sends no messages without a request: send requests by POST";
                let reply = error_reply(StatusCode::METHOD_NOT_ALLOWED, why);
                return Some(reply.header(header::ALLOW, "POST, DELETE"));
            }
        };
        exchange.reply.begin().await;
        // Replaces the earlier check by one that also sends comments to the client: the reply has begun only now.
        let mut stop = exchange.add_stream_check(stop);
        if let Err(failure) = exchange.forward_messages(&mut events, &mut stop).await
            && !presence.is_disconnected()
        {
            self.remark(&format!("{}: {}", request.client.spec.name, failure.message));
        }
        None
    }
}

/// Returns whether a message opens a listening stream (`subscriptions/listen`). Parses the message, because JSON can
/// write the method with escapes.
pub(crate) fn opens_stream(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct MethodOnly {
        method: String,
    }
    serde_json::from_slice::<MethodOnly>(body).is_ok_and(|message| message.method == LISTEN_METHOD)
}

impl McpExchange<'_> {
    /// Handles a server's message in the stream of the subscription `id`: hands it to the proxy if it is a notification
    /// of this subscription, and drops it otherwise. `text` is the unparsed `message`. Returns the resulting actions
    /// and, if the stream must end, the reason: there were too many messages, or a freeze stops the server. Only
    /// messages that change the conversation are stored.
    pub(super) async fn handle_stream_message(
        &mut self,
        id: &Value,
        message: &Value,
        text: &str,
    ) -> Result<MessageOutcome, RequestError> {
        self.received += 1;
        if self.received > MAX_UNSOLICITED {
            return Ok((Vec::new(), Some(TOO_MANY_MESSAGES.into())));
        }
        if let Some(why) = self.routes.freeze_of_server(self.request).await {
            return Ok((Vec::new(), Some(format!("the stream of the MCP server is stopped: {why}").into())));
        }
        let subscription = message.pointer("/params/_meta").and_then(|meta| meta.get(SUBSCRIPTION_ID_KEY));
        let is_of_subscription = subscription == Some(id) && message.get("id").is_none();
        let actions = match is_of_subscription {
            false => Vec::new(),
            true => match self.handle_stateless_message(text).await? {
                Some(actions) => actions,
                // The message changes the conversation, so it is an input that is stored.
                None => self.apply_event(ProxyEvent::Server(text.to_owned())).await?,
            },
        };
        Ok((actions, None))
    }

    /// Forwards the messages in `events`, the stream of the server, to the client. Returns when the stream ends or
    /// breaks off, a freeze stops the server, the client disconnects (or `stop` ends the wait for another reason), or
    /// the server has sent too many messages or requests; in the last case, logs the limit.
    ///
    /// # Errors
    /// If a message cannot be processed or stored.
    async fn forward_messages(
        &mut self,
        events: &mut EventStream,
        stop: &mut StopSignal<'_>,
    ) -> Result<(), RequestError> {
        let mut request_count = 0;
        for _ in 0..MAX_UNSOLICITED {
            let Ok(Some(event)) = events.next(stop).await else { return Ok(()) };
            if self.routes.freeze_of_server(self.request).await.is_some() {
                return Ok(());
            }
            // The memory is reserved until the message has been handled. A message for which there is no memory is
            // dropped; the log reports it.
            let Ok(_share) = self.reserve_memory(&event) else { continue };
            let actions = match self.handle_stateless_message(&event).await? {
                Some(actions) => actions,
                // The message changes the conversation, so it is an input that is stored.
                None => {
                    let message: Value = serde_json::from_str(&event).unwrap_or_default();
                    request_count += usize::from(message.get("id").is_some());
                    if request_count > MAX_ASKED {
                        break;
                    }
                    // No request is open, so no id of an answer is expected. A message that has a problem leads to no
                    // action.
                    self.handle_server_message(&Value::Null, event).await?.0
                }
            };
            self.perform_actions(actions).await?;
            if stop.is_over().await || self.reply.is_lost {
                return Ok(());
            }
        }
        let McpRequest { client, server, conversation, .. } = self.request;
        let advice = format!("check why the MCP server `{}` sends so many messages", server.name);
        let reached_limit = if request_count > MAX_ASKED { MAX_ASKED } else { MAX_UNSOLICITED };
        self.routes.log.limit(&Limit {
            what: "messages of one stream of a server",
            effect: "the stream was ended; its client may ask for another",
            setting: None,
            advice: Some(&advice),
            most: u64::try_from(reached_limit).unwrap_or(u64::MAX),
            client: &client.spec.name,
            conversation: Some(conversation),
        });
        Ok(())
    }

    /// Handles a server's message if it does not change the conversation, such as a notification that does not raise
    /// the client's label, and returns the resulting actions; such a message need not be stored. Returns `None` if the
    /// message changes the conversation: the caller must process it as an input. If the conversation is not loaded, the
    /// message is dropped, and the list of actions is empty.
    async fn handle_stateless_message(
        &self,
        text: &str,
    ) -> Result<Option<Vec<flowgate_mcp::ProxyAction>>, RequestError> {
        let McpRequest { client, server, conversation, .. } = self.request;
        let sessions = &self.routes.sessions;
        let handle = sessions.find_by_name(client, conversation);
        let mut locked = sessions.lock(client, &handle, self.presence).await?;
        let actions = locked.get().map(|session| {
            // Nothing is labelled here, so the labels of stores are not needed.
            session.handle_stateless_message(&client.spec, &server.name, text)
        });
        // There was no input, so this only releases the lease of the conversation.
        sessions.persist(client, &handle, &mut locked).await?;
        Ok(actions.unwrap_or_else(|| Some(Vec::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_request_is_recognized_in_every_spelling() {
        let check =
            |body: &str, expected: bool| assert_eq!(opens_stream(body.as_bytes()), expected, "{body}");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#, true);
        check(r#"{"method":"subscriptions\/listen"}"#, true);
        check(r#"{"params":[{"a":"b"}],"method":"\u0073ubscriptions/listen"}"#, true);
        check(r#"{"method":"tools/call","params":{"method":"subscriptions/listen"}}"#, false);
        // Bodies that the strict parser rejects.
        check(r#"{"method":"subscriptions/listen","method":"tools/call"}"#, false);
        check(r#"[{"method":"subscriptions/listen"}]"#, false);
        check("no JSON", false);
    }
}
