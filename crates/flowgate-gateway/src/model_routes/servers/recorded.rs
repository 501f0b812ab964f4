//! Audit records of questions to the person at a client.
//!
//! `exchange` writes them into the session, and they are recorded with its turn.

use serde_json::{Value, json};

use super::exchange::{Exchange, Request, is_own};
use crate::approvals::{Asked, content};
use crate::audit::{Answer, Event};
use crate::mcp::Out;
use crate::model_routes::sessions::Session;
use crate::recorder::{self, Note};

impl Exchange<'_> {
    /// Records that the person at the client is asked.
    pub(super) fn note_question(&self, session: &mut Session, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let in_answer = message.pointer("/result/requestState");
        let name = message.get("id").filter(|id| is_own(Some(id))).or(in_answer).and_then(Value::as_str);
        let Request { client, server, conversation, .. } = self.request;
        let found = name.and_then(|name| session.question(&server.name, name));
        let Some(ask) = found.map(|question| session.conversation.ask(question)) else { return };
        session.events.push(recorder::asked(&client.spec, conversation, &ask, content(&ask)));
    }

    /// Records that a call which the chat had permitted goes to its server, unless a freeze has stopped it.
    pub(super) fn note_ran(&self, session: &mut Session, said: &[Out]) {
        let taken = session.conversation.taken();
        if !said.iter().any(|out| matches!(out, Out::Server(_))) {
            return;
        }
        let Request { client, conversation, .. } = self.request;
        let ran = taken.into_iter().map(|(tool, digest)| Event::RanBeside {
            conversation: conversation.clone(),
            client: client.spec.name.clone(),
            tenant: client.spec.tenant.clone(),
            tool: tool.to_string(),
            digest,
        });
        session.events.extend(ran.map(Note::from));
    }

    /// Records whether a call that a person has allowed goes to its server.
    pub(super) fn note_approved(&self, session: &mut Session, asked: &Asked, said: &[Out]) {
        let Request { client, conversation, .. } = self.request;
        let (tool, digest) = (asked.tool.clone(), asked.digest.clone());
        if said.iter().any(|out| matches!(out, Out::Server(_))) {
            let conversation = conversation.clone();
            return session.events.push(Event::ApprovalUsed { conversation, tool, digest }.into());
        }
        let is_it = |used: &Asked| used.id == asked.id;
        if let Some(at) = session.used.iter().position(is_it) {
            let asked = session.used.remove(at);
            session.void.push(asked);
        }
        let stopped = self.routes.approvals.stops(&client.spec, conversation, &tool);
        let cause = stopped.unwrap_or_else(|| "the call was refused when it was judged again".to_owned());
        let (conversation, reasons) = (conversation.clone(), Vec::new());
        session.events.push(Event::ApprovalVoid { conversation, tool, digest, cause, reasons }.into());
    }

    /// Records the answer of the person at the client. If it is a yes, returns the question.
    pub(super) fn note_answer(&self, session: &mut Session, text: &str) -> Option<Asked> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let (name, action) = match message.pointer("/params/requestState") {
            Some(name) => {
                let said = message.pointer("/params/inputResponses");
                let action = name.as_str().and_then(|name| said?.get(name)?.get("action"));
                (Some(name), action)
            }
            None => (message.get("id").filter(|id| is_own(Some(id))), message.pointer("/result/action")),
        };
        let Request { client, server, conversation, .. } = self.request;
        let found = name.and_then(Value::as_str).and_then(|name| session.question(&server.name, name));
        let ask = found.map(|question| session.conversation.ask(question))?;
        let is_yes = action == Some(&json!("accept"));
        let decided = Event::Decided {
            conversation: conversation.clone(),
            digest: ask.digest.clone(),
            who: client.spec.name.clone(),
            role: "in front of the client".to_owned(),
            answer: if is_yes { Answer::Allow } else { Answer::Deny },
        };
        session.events.push(decided.into());
        // The question is not in the store and has no id there.
        is_yes.then(|| Asked { id: String::new(), digest: ask.digest, tool: ask.tool.to_string() })
    }
}
