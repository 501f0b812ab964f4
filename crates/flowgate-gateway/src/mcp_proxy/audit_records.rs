//! Creates the audit records about calls to MCP servers, other than the records of verdicts: the question that an MCP
//! client asks its user (elicitation), the user's answer, whether the call is then sent to its server, and calls that
//! the chat had permitted and that the client makes through the proxy.
//!
//! `conversation_inputs` calls this module. The records are added to the state of the conversation (`session.events`),
//! and written to the audit log before anything is sent.

use serde_json::{Value, json};

use super::exchange::McpExchange;
use super::pending_reply::is_generated_id;
use super::request::McpRequest;
use crate::approvals::ApprovalReference;
use crate::approvals::question_content::shown_content;
use crate::chat::conversations::ConversationState;
use crate::recorder::{self, AuditEntry};
use flowgate_audit::AuditEvent;
use flowgate_mcp::{ProxyAction, elicited_decision};

impl McpExchange<'_> {
    /// Records in `session.events` that the person at the client is asked a question, if the message `text`, which is
    /// sent to the client, contains a question of the gateway. Such a message is a request of the gateway, or an answer
    /// that requires input.
    pub(super) fn note_question(&self, session: &mut ConversationState, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        // The question has a name: the generated id of a request of the gateway, or the `requestState` of an answer
        // that requires input.
        let in_answer = message.pointer("/result/requestState");
        let name =
            message.get("id").filter(|id| is_generated_id(Some(id))).or(in_answer).and_then(Value::as_str);
        let McpRequest { client, server, conversation, .. } = self.request;
        let question = name.and_then(|name| session.question(&server.name, name));
        let Some(ask) = question.map(|question| session.conversation.approval_request(question)) else {
            return;
        };
        session.events.push(recorder::question_entry(&client.spec, conversation, &ask, shown_content(&ask)));
    }

    /// Records in `session.events` the calls that the chat had permitted and that the client now makes through the
    /// proxy. `actions` are the actions of the proxy: if none of them sends a message to the server, a freeze has
    /// stopped the call, and nothing is recorded.
    pub(super) fn note_forwarded_call(&self, session: &mut ConversationState, actions: &[ProxyAction]) {
        // The tool and the digest of each such call since the last input.
        let taken = session.conversation.drain_taken_calls();
        if !actions.iter().any(|action| matches!(action, ProxyAction::Server(_))) {
            return;
        }
        let McpRequest { client, conversation, .. } = self.request;
        let ran = taken.into_iter().map(|(tool, digest)| AuditEvent::RanBeside {
            conversation: conversation.clone(),
            client: client.spec.name.clone(),
            tenant: client.spec.tenant.clone(),
            tool: tool.to_string(),
            digest,
        });
        session.events.extend(ran.map(AuditEntry::from));
    }

    /// Records whether a call runs after a person has allowed it in the question `asked`. `actions` are what the proxy
    /// does after the decision. If one of them sends a message to the server, the call runs and the approval is used.
    /// Otherwise the approval is void: `session` lists it as void, and no longer as used.
    pub(super) async fn record_approval_outcome(
        &self,
        session: &mut ConversationState,
        asked: &ApprovalReference,
        actions: &[ProxyAction],
    ) {
        let McpRequest { client, conversation, .. } = self.request;
        let (tool, digest) = (asked.tool.clone(), asked.digest.clone());
        if actions.iter().any(|action| matches!(action, ProxyAction::Server(_))) {
            let conversation = conversation.clone();
            return session.events.push(AuditEvent::ApprovalUsed { conversation, tool, digest }.into());
        }
        // The call does not run, so its approval was not used.
        let is_asked = |used: &ApprovalReference| used.id == asked.id;
        if let Some(at) = session.used_approvals.iter().position(is_asked) {
            let asked = session.used_approvals.remove(at);
            session.void_approvals.push(asked);
        }
        // The record names the freeze, if one is the cause. The findings (`reasons`) are in the record of the verdict.
        let stopped = self.routes.approvals.freeze_reason(&client.spec, conversation, &tool).await;
        let cause = stopped.unwrap_or_else(|| "the call was refused when it was judged again".to_owned());
        let (conversation, reasons) = (conversation.clone(), Vec::new());
        session.events.push(AuditEvent::ApprovalVoid { conversation, tool, digest, cause, reasons }.into());
    }

    /// Records the answer of the person at the client, if the message `text` of the client answers a question of the
    /// gateway. The record names the client, since the gateway does not know who the person is. Returns the question if
    /// the person allows the call; `None` if the person does not, or if the message answers no question.
    pub(super) fn note_answer(
        &self,
        session: &mut ConversationState,
        text: &str,
    ) -> Option<ApprovalReference> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        // With `requestState`, the client continues the call and answers in `inputResponses`; otherwise this is the
        // response to a request of the gateway, whose id names the question.
        let (name, action) = match message.pointer("/params/requestState") {
            Some(name) => {
                let responses = message.pointer("/params/inputResponses");
                let action = name.as_str().and_then(|name| responses?.get(name)?.get("action"));
                (Some(name), action)
            }
            None => {
                let name = message.get("id").filter(|id| is_generated_id(Some(id)));
                (name, message.pointer("/result/action"))
            }
        };
        let name = name.and_then(Value::as_str)?;
        let McpRequest { client, server, conversation, .. } = self.request;
        let question = session.question(&server.name, name)?;
        let ask = session.conversation.approval_request(question);
        let decision = elicited_decision(action);
        let decided = AuditEvent::Decided {
            conversation: conversation.clone(),
            digest: ask.digest.clone(),
            who: client.spec.name.clone(),
            role: "in front of the client".to_owned(),
            answer: decision,
        };
        session.events.push(decided.into());
        // The question is not in the database, so its reference has no id. Of its content, the reference has only the
        // tool, which the records about the approval name.
        decision.allows().then(|| {
            ApprovalReference::new(
                String::new(),
                ask.digest,
                &json!({"tool": ask.tool.to_string()}).to_string(),
            )
        })
    }
}
