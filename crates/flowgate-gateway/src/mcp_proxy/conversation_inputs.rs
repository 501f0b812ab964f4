//! Hands an input to the proxy of a server: a message of the client or the server, or the outcome of a sent message.
//! `exchange`, `server_requests` and `listening` call [`McpExchange::apply_event`].
//!
//! The conversation is locked from an input until its effects are stored; only then is anything sent.

use axum::http::StatusCode;
use flowgate_mcp::ProxyAction;

use super::exchange::McpExchange;
use super::proxies::{ProxyEvent, ServerProxyEvent};
use super::request::McpRequest;
use crate::approvals::ApprovalReference;
use crate::chat::conversations::ConversationState;
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::RequestError;
use crate::recorder::{self, AuditEntry};

impl McpExchange<'_> {
    /// Hands an input to the proxy, asks pending questions, and stores the outcome before anything is sent.
    pub(super) async fn apply_event(&mut self, what: ProxyEvent) -> Result<Vec<ProxyAction>, RequestError> {
        // A server's message is processed even if the client has disconnected.
        let presence = match what {
            ProxyEvent::Client { .. } => self.presence.clone(),
            _ => ClientPresence::default(),
        };
        self.apply_event_for(&presence, what).await
    }

    /// Hands an input to the proxy as [`Self::apply_event`] does, and gives up if the client of `presence` disconnects
    /// before the conversation is locked.
    pub(super) async fn apply_event_for(
        &mut self,
        presence: &ClientPresence,
        what: ProxyEvent,
    ) -> Result<Vec<ProxyAction>, RequestError> {
        let McpRequest { client, conversation, .. } = self.request;
        let routes = self.routes;
        let handle = routes.sessions.find_by_name(client, conversation);
        let mut locked = routes.sessions.lock(client, &handle, presence).await?;
        let outcome = match locked.get() {
            Some(session) => {
                let judged = self.judge(session, what).await;
                // Nothing of a failed input is sent, so nothing of it is persisted: no approval is used.
                session.is_abandoned |= judged.is_err() && session.has_unpersisted_changes();
                judged
            }
            None => Err(RequestError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request failed because of a bug in the gateway: its conversation was not loaded",
            )),
        };
        let events = outcome.as_ref().map(|(_, events)| events.as_slice()).unwrap_or_default();
        let recorded = match routes.recorder.record(events) {
            Ok(()) => routes.sessions.persist(client, &handle, &mut locked).await,
            Err(error) => Err(routes.sessions.evict_unpersisted(&handle, &mut locked, error).await),
        };
        if recorded.is_err() {
            routes.record_taken_back(events);
        }
        drop(locked);
        outcome.and_then(|(actions, _)| recorded.map(|()| actions))
    }

    /// Hands an input to the proxy, and asks pending questions. Returns also the audit records.
    async fn judge(
        &mut self,
        session: &mut ConversationState,
        what: ProxyEvent,
    ) -> Result<(Vec<ProxyAction>, Vec<AuditEntry>), RequestError> {
        let McpRequest { client, conversation, .. } = self.request;
        let routes = self.routes;
        if !routes.sessions.has_room(session, (&client.spec.name, conversation)) {
            let why = "the conversation has reached the size limit of this gateway: begin a new one";
            return Err(RequestError::new(StatusCode::BAD_REQUEST, why));
        }
        // A failed call is noted even where a freeze stops everything else.
        if !matches!(what, ProxyEvent::Failed { .. }) {
            routes.approvals.check_frozen(&client.spec, conversation).await?;
        }
        routes.sessions.catch_up(client, session).await?;
        routes.approvals.withdraw_frozen(&client.spec, conversation, &mut session.conversation).await?;
        self.pin(session, &what).await?;
        let mut actions = self.apply_event_to_session(session, what).await;
        self.note_tools(session, &mut actions).await?;
        while let Some(at) = actions.iter().position(|action| matches!(action, ProxyAction::Ask(_))) {
            let ProxyAction::Ask(question) = actions.remove(at) else { continue };
            let (answer, allowed) = self.ask_people(session, &question).await?;
            // While the question was open, consents and approvals may have been withdrawn, and others may have written to stores.
            routes.approvals.withdraw_frozen(&client.spec, conversation, &mut session.conversation).await?;
            routes.sessions.recall_external_state(client, session).await?;
            let decided = ProxyEvent::Decided { question, answer };
            let mut further_actions = self.apply_event_to_session(session, decided).await;
            if let Some(asked) = allowed {
                self.withhold_frozen(session, &mut further_actions).await;
                self.note_approved(session, &asked, &further_actions).await;
            }
            actions.extend(further_actions);
        }
        self.withhold_frozen(session, &mut actions).await;
        self.note_forwarded_call(session, &actions);
        let events = std::mem::take(&mut session.events);
        Ok((actions, events))
    }

    /// Hands an input to the proxy; withholds what a freeze has stopped of a call that the person at the client
    /// has allowed.
    async fn apply_event_to_session(
        &mut self,
        session: &mut ConversationState,
        what: ProxyEvent,
    ) -> Vec<ProxyAction> {
        let accepted = self.note_answer_in(session, &what);
        let mut actions = self.hand_to_proxy(session, what);
        if let Some(asked) = accepted {
            self.withhold_frozen(session, &mut actions).await;
            self.note_approved(session, &asked, &actions).await;
        }
        actions
    }

    /// Records the answer of the person at the client, if the input has one. If it is a yes, returns the question.
    fn note_answer_in(
        &self,
        session: &mut ConversationState,
        what: &ProxyEvent,
    ) -> Option<ApprovalReference> {
        match what {
            ProxyEvent::Client { text, .. } => self.note_answer(session, text),
            _ => None,
        }
    }

    /// Hands an input to the proxy, and records the verdicts and the questions to the client.
    pub(super) fn hand_to_proxy(
        &mut self,
        session: &mut ConversationState,
        what: ProxyEvent,
    ) -> Vec<ProxyAction> {
        let spec = &self.request.client.spec;
        let put = ServerProxyEvent { server: self.request.server.name.clone(), what };
        let (actions, judged) = session.handle_proxy_event(spec, put);
        self.verdicts.count(&judged);
        let events =
            judged.into_iter().map(|call| recorder::judged_entry(spec, &self.request.conversation, call));
        session.events.extend(events);
        for out in &actions {
            if let ProxyAction::Client(text) = out {
                self.note_question(session, text);
            }
        }
        actions
    }
}
