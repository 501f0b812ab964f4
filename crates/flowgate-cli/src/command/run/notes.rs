//! What a policy hides at the start of a chat, and the statement that would show it.

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{Body, Entry, Message};
use flowgate_guard::conversation::{Conversation, Method};

use super::parses;
use super::shell::Shell;
use crate::visible;

/// Says what a policy hides.
pub(super) struct Notes<'a> {
    pub(super) policy: &'a Policy,
    /// The text of the policy.
    pub(super) source: &'a str,
    pub(super) method: Method,
}

impl Notes<'_> {
    /// Names the tools that are not on offer because of what their servers say of them.
    pub(super) fn hidden_tools(&self, conversation: &Conversation, shell: &Shell) {
        if self.method == Method::Everything {
            return;
        }
        let lowest = visible::line(&conversation.monitor().describe(conversation.base()).join(", "));
        let mut hidden: Vec<(String, Vec<String>)> = Vec::new();
        for event in conversation.monitor().trace().events() {
            let Body::Tool(tool) = &event.body else { continue };
            if event.label.flows_to(conversation.base()) {
                continue;
            }
            let server = tool.tool.server.as_deref().unwrap_or_default();
            let name = visible::line(&tool.tool.name);
            match hidden.iter_mut().find(|(known, _)| known == server) {
                Some((_, names)) => names.push(name),
                None => hidden.push((server.to_owned(), vec![name])),
            }
        }
        for (server, names) in hidden {
            let head = "label tool as LABEL if:";
            let statement = self.statement(
                conversation,
                head,
                &format!("(tool: Tool)\n      tool.server == \"{server}\""),
            );
            shell.note(&format!(
                "not on offer at {lowest}, since the policy does not vouch for what `{server}` says of its tools: {}; to offer \
                 them, add\n{statement}",
                names.join(", ")
            ));
        }
    }

    /// The statement to add if a message of this role is not shown to the lowest steps.
    pub(super) fn hidden_message(
        &self,
        mut scratch: Monitor,
        role: &str,
        content: &str,
        conversation: &Conversation,
    ) -> Option<String> {
        if self.method == Method::Everything {
            return None;
        }
        let message = Message { role: role.to_owned(), content: content.into() };
        let (event, _) = scratch.push(Entry::from(Body::Message(message))).ok()?;
        let label = scratch.trace().event(event)?.label.join(&scratch.trace().existence(event));
        if label.flows_to(conversation.base()) {
            return None;
        }
        let condition = format!("(message: Message)\n      message.role == \"{role}\"");
        Some(self.statement(conversation, "label message as LABEL if:", &condition))
    }

    /// A statement that gives the label of the lowest steps, or the lowest of all where that cannot be written down.
    fn statement(&self, conversation: &Conversation, head: &str, conditions: &str) -> String {
        let words = conversation.monitor().describe(conversation.base()).join(", ");
        let bottoms: Vec<String> = self
            .policy
            .space()
            .dimensions()
            .iter()
            .map(|dimension| format!("{}.bottom", dimension.name))
            .collect();
        let spelled = |label: &str| format!("  {}\n      {conditions}", head.replace("LABEL", label));
        let candidates = [spelled(&words), spelled("bottom"), spelled(&bottoms.join(", "))];
        let plain = |statement: &String| {
            // The indentation of what is printed is no part of the policy.
            let text: Vec<&str> =
                statement.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
            parses(self.source, &text.join("\n"))
        };
        let [first, ..] = &candidates;
        candidates.iter().find(|statement| plain(statement)).unwrap_or(first).clone()
    }
}
