//! A double of an agent that keeps the chat and runs its own tools, as a client of the gateway does.

use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Method, Turn};
use flowgate_guard::history::{ClientProfile, History, SentChat};
use flowgate_lm::chat::{Message, Part, ToolCall};

use crate::script::{POLICY, ScriptedConversation};

pub(crate) const LOOK: &str = r#"look {"regions": ["h1"]}"#;
pub(crate) const SEND: &str = r#"send {"to": "bob", "body": "hello"}"#;

/// An agent that keeps the chat and runs its own tools.
pub(crate) struct ExternalAgent {
    pub(crate) run: ScriptedConversation,
    pub(crate) client: ClientProfile,
    pub(crate) history: History,
    pub(crate) chat: Vec<Message>,
}

impl ExternalAgent {
    pub(crate) fn new() -> Self {
        Self::under(POLICY)
    }

    pub(crate) fn under(policy: &str) -> Self {
        let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
        run.hands_over = true;
        let client = ClientProfile { is_interactive: true, ..ClientProfile::default() };
        Self { run, client, history: History::new(), chat: Vec::new() }
    }

    pub(crate) fn says(&mut self, text: &str, script: &[&str]) -> Turn {
        self.chat.push(Message::User(vec![Part::Text(text.to_owned())]));
        self.send(script)
    }

    /// Answers a call and sends the chat.
    pub(crate) fn answers(&mut self, id: &str, text: &str, script: &[&str]) -> Turn {
        self.answer(id, text);
        self.send(script)
    }

    pub(crate) fn answer(&mut self, id: &str, text: &str) {
        let content = vec![Part::Text(text.to_owned())];
        self.chat.push(Message::Tool { call_id: id.to_owned(), content, is_error: Some(false) });
    }

    pub(crate) fn send(&mut self, script: &[&str]) -> Turn {
        self.run.conversation.accept_messages(&mut self.client, &mut self.history, &self.chat).unwrap();
        self.go(script)
    }

    /// Sends the chat after a person has decided.
    pub(crate) fn resume(&mut self, decision: Decision, script: &[&str]) -> Turn {
        self.run.decision = decision;
        if self.run.conversation.try_resume(&mut self.history, &SentChat::of(&self.chat)) {
            self.run.conversation.accept_decision(decision);
            self.go(script)
        } else {
            self.send(script)
        }
    }

    pub(crate) fn go(&mut self, script: &[&str]) -> Turn {
        let turn = self.run.go(script);
        let text: Vec<&str> = turn.replies.iter().map(|reply| reply.text.as_str()).collect();
        let call = |call: &flowgate_guard::conversation::HandedOverCall| {
            let (id, name, arguments) = (call.id.clone(), call.tool.name.to_string(), call.arguments.clone());
            ToolCall { id, name, arguments }
        };
        let calls = turn.calls.iter().map(call).collect();
        let message = Message::Assistant { text: text.join("\n"), calls, thoughts: Vec::new() };
        self.run.conversation.record_answer(&mut self.client, &mut self.history, &message);
        self.run.check_again(&self.client, &self.history);
        self.chat.push(message);
        turn
    }
}
