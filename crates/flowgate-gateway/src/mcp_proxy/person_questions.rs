//! Asks people whether a call to an MCP server may run: the person at the client, or people who decide through the
//! routes for people. `conversation_inputs` and `exchange` call it.

use std::time::Duration;

use flowgate_mcp::{ProxyAction, ProxyDecision};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::exchange::McpExchange;
use super::proxies::ProxyEvent;
use super::request::McpRequest;
use crate::approvals::{ApprovalContext, ApprovalOutcome, ApprovalReference};
use crate::chat::ModelRoutes;
use crate::chat::conversations::ConversationState;
use crate::database::{DatabaseError, QuestionOrigin};
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::RequestError;

/// The time limit for a person at the client to answer.
const PERSON_TIMEOUT: Duration = Duration::from_secs(300);

impl ModelRoutes {
    /// Hands the client's answer `message` to a question of the gateway to the exchange that waits for the answer, if
    /// one does. `text` is the unparsed `message`.
    pub(super) fn hand_to_waiter(&self, request: &McpRequest, message: &Value, text: &str) {
        let Some(id) = message.get("id") else { return };
        let key = (request.client.spec.name.clone(), request.conversation.clone(), id.to_string());
        if let Some(waiter) = self.pending.waiters().remove(&key) {
            // The request may have stopped waiting.
            let _ = waiter.send(text.to_owned());
        }
    }
}

impl McpExchange<'_> {
    /// Asks the person at the client the question `text` with the id `question_id`, hands the answer to the proxy, and
    /// returns the resulting actions. The question is sent in the stream of the reply. If the reply cannot be a stream,
    /// or no answer arrives in time, the proxy receives a cancellation, which allows nothing.
    pub(super) async fn ask_at_client(
        &mut self,
        question_id: &Value,
        text: String,
    ) -> Result<Vec<ProxyAction>, RequestError> {
        let answer = match self.reply.streams {
            true => self.await_person(question_id, text).await,
            false => None,
        };
        let cancellation = json!({"jsonrpc": "2.0", "id": question_id, "result": {"action": "cancel"}});
        // The question is closed even if the client has disconnected.
        self.apply_event_for(
            &ClientPresence::default(),
            // If the person agrees, the call runs. Its answer then has labels if the request with the call asked for
            // them.
            ProxyEvent::Client {
                text: answer.unwrap_or_else(|| cancellation.to_string()),
                labels: self.request.labels,
            },
        )
        .await
    }

    /// Sends the question `text` with the id `question_id` to the client, and waits for the answer, which another
    /// request of the client brings. Returns `None` if there is none in time, or the client disconnects.
    async fn await_person(&mut self, question_id: &Value, text: String) -> Option<String> {
        let (client, conversation) = (&self.request.client.spec.name, &self.request.conversation);
        let key = (client.clone(), conversation.clone(), question_id.to_string());
        let (sender, answer) = oneshot::channel();
        self.routes.pending.waiters().insert(key.clone(), sender);
        // `false`: the question is not the answer with which the reply ends.
        self.reply.send(text, false).await;
        let answer = tokio::select! {
            // An answer that arrives in the last moment counts.
            biased;
            answer = answer => answer.ok(),
            () = self.presence.disconnected() => None,
            () = self.reply.parts.closed() => None,
            () = sleep(PERSON_TIMEOUT) => None,
        };
        self.routes.pending.waiters().remove(&key);
        answer
    }

    /// Asks people, through the routes for people, whether a call may run. `question` is the name of the proxy's
    /// question about the call. Returns the decision and, if a person has allowed this one call, the reference to the
    /// stored question, whose approval is then noted as used in `session`. The decision is
    /// [`ProxyDecision::Unanswered`] if the proxy has no such question, or no person decides in time.
    ///
    /// # Errors
    /// If the question cannot be stored or recorded; the call then fails, and none of its effects are stored.
    pub(super) async fn ask_people(
        &self,
        session: &mut ConversationState,
        question: &str,
    ) -> Result<(ProxyDecision, Option<ApprovalReference>), DatabaseError> {
        let McpRequest { client, server, conversation, .. } = self.request;
        let Some(proxy_question) = session.question(&server.name, question) else {
            return Ok((ProxyDecision::Unanswered, None));
        };
        let ask = session.conversation.approval_request(proxy_question);
        // A message to an MCP server has no key for a model provider.
        let context = ApprovalContext {
            client: &client.spec,
            conversation,
            origin: QuestionOrigin::OutsideChat,
            presence: self.presence,
            key: None,
        };
        let answered = self.routes.approvals.ask(context, &ask, &session.used_approvals).await;
        // After a failure, the state with half of the input's effects is dropped from memory, and not stored.
        session.is_abandoned = answered.is_err();
        let ApprovalOutcome { decision, asked } = answered?;
        let decision = ProxyDecision::new(decision, asked.as_ref().map(|asked| asked.id.clone()));
        let allowed =
            asked.filter(|_| matches!(decision, ProxyDecision::AllowOnce | ProxyDecision::AllowByAll));
        // A second call with the same arguments in this message is a new question.
        session.used_approvals.extend(allowed.clone());
        Ok((decision, allowed))
    }
}
