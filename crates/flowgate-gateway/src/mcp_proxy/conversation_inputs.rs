//! Hands an input to the proxy of a server (a state machine of `flowgate_mcp`), asks people, and stores the effects. An
//! input is a message of the client or the server, or the outcome of a sent message. `exchange`, `server_requests` and
//! `listening` call [`McpExchange::apply_event`].
//!
//! The conversation is locked from the input until its effects are stored; only then does the caller send anything.

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
    /// Hands the input `event` to the proxy (a message of the client or the server, or the outcome of a sent message),
    /// asks people the questions that the proxy raises, and stores the outcome. Returns the actions for the caller to
    /// perform.
    ///
    /// # Errors
    /// If the input is refused, or its outcome cannot be recorded or stored. Nothing of it may then be sent.
    pub(super) async fn apply_event(&mut self, event: ProxyEvent) -> Result<Vec<ProxyAction>, RequestError> {
        // A server's message is processed even if the client has disconnected.
        let presence = match event {
            ProxyEvent::Client { .. } => self.presence.clone(),
            // A client that never disconnects.
            _ => ClientPresence::default(),
        };
        self.apply_event_for(&presence, event).await
    }

    /// Does the work of [`Self::apply_event`]. In order: locks the conversation, has the input judged, writes the audit
    /// records, and stores the outcome. Waits for the lock only as long as the client of `presence` is connected; a
    /// caller whose input must be processed in any case passes the default, a client that never disconnects.
    ///
    /// # Errors
    /// If the client of `presence` disconnects before the conversation is locked, the input is refused, or its
    /// outcome cannot be recorded or stored. Nothing of it may then be sent.
    pub(super) async fn apply_event_for(
        &mut self,
        presence: &ClientPresence,
        event: ProxyEvent,
    ) -> Result<Vec<ProxyAction>, RequestError> {
        let McpRequest { client, conversation, .. } = self.request;
        let routes = self.routes;
        let handle = routes.sessions.find_by_name(client, conversation);
        let mut locked = routes.sessions.lock(client, &handle, presence).await?;
        // A reload refuses only new requests: other inputs belong to a request that has begun.
        if matches!(event, ProxyEvent::Client { .. }) {
            client.check_replaced()?;
        }
        let outcome = match locked.get() {
            Some(session) => {
                let judged = self.judge(session, event).await;
                // Nothing of a failed input is sent, so none of its effects are persisted, and no approval is used:
                // `persist` drops an abandoned conversation from memory, and the next request loads the stored state.
                session.is_abandoned |= judged.is_err() && session.has_unpersisted_changes();
                judged
            }
            None => Err(RequestError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request failed because of a bug in the gateway (its conversation was not loaded): report it",
            )),
        };
        // The audit records of the input; a failed input has none.
        let events = outcome.as_ref().map(|(_, events)| events.as_slice()).unwrap_or_default();
        let watched = locked.get().map(ConversationState::take_watched).unwrap_or_default();
        let recorded = match routes.recorder.record(events) {
            Ok(()) => routes.sessions.persist(client, &handle, &mut locked).await,
            Err(error) => Err(routes.sessions.evict_unpersisted(&handle, &mut locked, error).await),
        };
        match &recorded {
            Ok(()) => {
                routes.record_watched(&client.spec, &watched);
                self.verdicts.count_watched(&watched);
                self.trace.add_watched(&watched);
            }
            // The audit log may already say that approved calls ran, but they do not: adds records that say so.
            Err(_) => routes.record_taken_back(events),
        }
        drop(locked);
        let (actions, _) = outcome?;
        recorded?;
        Ok(actions)
    }

    /// Judges an input of the locked conversation `session`: checks whether the conversation may receive it, updates
    /// the state that other requests may have changed, hands the input to the proxy, and asks people the questions that
    /// the proxy raises, until none is left. Returns the actions that no freeze stops, and the audit records.
    ///
    /// # Errors
    /// If the conversation has reached its size limit, a freeze stops it or its client, its virtual key is no longer
    /// valid, another request has approved other tools of the server at the same time, or the database or the audit log
    /// fails.
    async fn judge(
        &mut self,
        session: &mut ConversationState,
        event: ProxyEvent,
    ) -> Result<(Vec<ProxyAction>, Vec<AuditEntry>), RequestError> {
        let McpRequest { client, conversation, .. } = self.request;
        let routes = self.routes;
        if !routes.sessions.has_room(session, (&client.spec.name, conversation)) {
            let why = "the conversation has reached the size limit of this gateway: begin a new one";
            return Err(RequestError::new(StatusCode::BAD_REQUEST, why));
        }
        // Parameters of the policy that the caller's key or token sets, and the watcher of a client in watch mode.
        session.add_caller_parameters(self.request.key.as_deref());
        session.begin_watching(&client.spec);
        // The failure of a sent call is processed even under a freeze, since the proxy waits for its outcome.
        if !matches!(event, ProxyEvent::Failed { .. }) {
            routes.approvals.check_frozen(&client.spec, conversation).await?;
        }
        // Other requests may have changed the texts that the client was shown, and the labels of stores.
        routes.sessions.catch_up(client, session).await?;
        let withdraws_from = (&mut session.conversation, &mut session.removed_grants);
        routes.approvals.withdraw_frozen(&client.spec, conversation, withdraws_from).await?;
        // `pin` gives the proxy the approved tools before it filters a list of tools; `note_tools` asks people about
        // the other tools of the list.
        self.pin(session, &event).await?;
        let mut actions = self.apply_event_to_session(session, event).await;
        self.note_tools(session, &mut actions).await?;
        // Each answered question leads to further actions, which can ask further questions.
        while let Some(at) = actions.iter().position(|action| matches!(action, ProxyAction::Ask(_))) {
            let ProxyAction::Ask(question) = actions.remove(at) else { continue };
            self.trace.add_question();
            // `allowed` is the question if a person has allowed the call.
            let (decision, allowed) = self.ask_people(session, &question).await?;
            // While the question was open, consents and approvals may have been withdrawn, and other conversations may
            // have written to external state.
            let withdraws_from = (&mut session.conversation, &mut session.removed_grants);
            routes.approvals.withdraw_frozen(&client.spec, conversation, withdraws_from).await?;
            routes.sessions.recall_external_state(client, session).await?;
            let decided = ProxyEvent::Decided { question, decision };
            let mut further_actions = self.apply_event_to_session(session, decided).await;
            if let Some(asked) = allowed {
                self.withhold_frozen(session, &mut further_actions).await;
                self.record_approval_outcome(session, &asked, &further_actions).await;
            }
            actions.extend(further_actions);
        }
        self.withhold_frozen(session, &mut actions).await;
        self.note_forwarded_call(session, &actions);
        let events = std::mem::take(&mut session.events);
        Ok((actions, events))
    }

    /// Hands an input to the proxy, and returns the resulting actions. If the input is the answer by which the person
    /// at the client allows a call, also checks whether a freeze stops this call, removes a stopped call from the
    /// actions, and records whether the approval is used.
    async fn apply_event_to_session(
        &mut self,
        session: &mut ConversationState,
        event: ProxyEvent,
    ) -> Vec<ProxyAction> {
        let accepted = self.note_answer_in(session, &event);
        let mut actions = self.hand_to_proxy(session, event);
        if let Some(asked) = accepted {
            self.withhold_frozen(session, &mut actions).await;
            self.record_approval_outcome(session, &asked, &actions).await;
        }
        actions
    }

    /// Records the answer of the person at the client, as [`Self::note_answer`] does, if the input is a message of the
    /// client. Returns the answered question if the answer is a yes, and otherwise `None`.
    fn note_answer_in(
        &self,
        session: &mut ConversationState,
        event: &ProxyEvent,
    ) -> Option<ApprovalReference> {
        match event {
            ProxyEvent::Client { text, .. } => self.note_answer(session, text),
            _ => None,
        }
    }

    /// Passes an input to the proxy of the server of this request, and returns the resulting actions. Adds the
    /// verdicts, and the questions that the actions ask the person at the client, to the records for the audit log
    /// (`session.events`).
    pub(super) fn hand_to_proxy(
        &mut self,
        session: &mut ConversationState,
        event: ProxyEvent,
    ) -> Vec<ProxyAction> {
        let spec = &self.request.client.spec;
        let server_event = ServerProxyEvent::new(self.request.server.name.clone(), event);
        let (actions, judged) = session.handle_proxy_event(spec, server_event);
        // In watch mode, the verdicts of the watch are counted instead, once they are recorded.
        if spec.watch.is_none() {
            self.verdicts.count(&judged, &spec.policy);
            self.trace.add_judged(&judged);
        }
        self.verdicts.tools.extend(judged.iter().map(|call| call.tool.clone()));
        let events =
            judged.into_iter().map(|call| recorder::judged_entry(spec, &self.request.conversation, call));
        session.events.extend(events);
        for action in &actions {
            if let ProxyAction::Client(text) = action {
                self.note_question(session, text);
            }
        }
        actions
    }
}
