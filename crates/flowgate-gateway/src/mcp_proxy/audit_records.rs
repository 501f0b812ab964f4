//! Creates the audit records of questions that an MCP client asks the person who uses it (elicitation).
//!
//! `conversation_inputs` adds them to its session, and they are written to the audit log with the turn.

use serde_json::{Value, json};

use super::exchange::McpExchange;
use super::pending_reply::is_generated_id;
use super::request::McpRequest;
use crate::approvals::ApprovalReference;
use crate::approvals::question_content::shown_content;
use crate::chat::conversations::ConversationState;
use crate::recorder::{self, AuditEntry};
use flowgate_audit::{AuditEvent, RecordedDecision};
use flowgate_mcp::ProxyAction;

impl McpExchange<'_> {
    /// Records that the person at the client is asked.
    pub(super) fn note_question(&self, session: &mut ConversationState, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let in_answer = message.pointer("/result/requestState");
        let name =
            message.get("id").filter(|id| is_generated_id(Some(id))).or(in_answer).and_then(Value::as_str);
        let McpRequest { client, server, conversation, .. } = self.request;
        let found = name.and_then(|name| session.question(&server.name, name));
        let Some(ask) = found.map(|question| session.conversation.approval_request(question)) else { return };
        session.events.push(recorder::question_entry(&client.spec, conversation, &ask, shown_content(&ask)));
    }

    /// Records that a call which the chat had permitted goes to its server, unless a freeze has stopped it.
    pub(super) fn note_forwarded_call(&self, session: &mut ConversationState, actions: &[ProxyAction]) {
        let taken = session.conversation.drain_taken_calls();
        if !actions.iter().any(|out| matches!(out, ProxyAction::Server(_))) {
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

    /// Records whether a call that a person has allowed in the question `asked` is among the `actions` that go to its
    /// server.
    pub(super) async fn note_approved(
        &self,
        session: &mut ConversationState,
        asked: &ApprovalReference,
        actions: &[ProxyAction],
    ) {
        let McpRequest { client, conversation, .. } = self.request;
        let (tool, digest) = (asked.tool.clone(), asked.digest.clone());
        if actions.iter().any(|out| matches!(out, ProxyAction::Server(_))) {
            let conversation = conversation.clone();
            return session.events.push(AuditEvent::ApprovalUsed { conversation, tool, digest }.into());
        }
        // The call does not run, so its approval was not used.
        let is_asked = |used: &ApprovalReference| used.id == asked.id;
        if let Some(at) = session.used_approvals.iter().position(is_asked) {
            let asked = session.used_approvals.remove(at);
            session.void_approvals.push(asked);
        }
        let stopped = self.routes.approvals.freeze_reason(&client.spec, conversation, &tool).await;
        let cause = stopped.unwrap_or_else(|| "the call was refused when it was judged again".to_owned());
        let (conversation, reasons) = (conversation.clone(), Vec::new());
        session.events.push(AuditEvent::ApprovalVoid { conversation, tool, digest, cause, reasons }.into());
    }

    /// Records the answer of the person at the client. If it is a yes, returns the question.
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
                (message.get("id").filter(|id| is_generated_id(Some(id))), message.pointer("/result/action"))
            }
        };
        let McpRequest { client, server, conversation, .. } = self.request;
        let found = name.and_then(Value::as_str).and_then(|name| session.question(&server.name, name));
        let ask = found.map(|question| session.conversation.approval_request(question))?;
        let is_yes = action == Some(&json!("accept"));
        let decided = AuditEvent::Decided {
            conversation: conversation.clone(),
            digest: ask.digest.clone(),
            who: client.spec.name.clone(),
            role: "in front of the client".to_owned(),
            answer: if is_yes { RecordedDecision::Allow } else { RecordedDecision::Deny },
        };
        session.events.push(decided.into());
        // The question is not in the store and has no id there.
        is_yes.then(|| {
            ApprovalReference::new(
                String::new(),
                ask.digest,
                &json!({"tool": ask.tool.to_string()}).to_string(),
            )
        })
    }
}
