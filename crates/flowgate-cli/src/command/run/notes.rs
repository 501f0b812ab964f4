//! Finds out at the start of a chat of `flowgate run` which tools and messages the policy hides from the steps at the
//! base label, and which statement would show them. Prints the hidden tools; `run` prints the hidden messages.

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{EventBody, Message, TraceEntry};
use flowgate_guard::conversation::{Conversation, Method};

use super::terminal::ChatTerminal;
use crate::escaping;

/// Reports what a policy hides.
pub(super) struct PolicyNotes<'a> {
    pub(super) policy: &'a Policy,
    pub(super) method: Method,
}

impl PolicyNotes<'_> {
    /// Prints, for each server, the tools that are not offered in steps at the base label because of the labels of
    /// their descriptions, and the statement that would offer them. Prints nothing under the method that shows
    /// everything.
    pub(super) fn report_hidden_tools(&self, conversation: &Conversation, terminal: &ChatTerminal) {
        if self.method == Method::Everything {
            return;
        }
        let base = escaping::line(&conversation.monitor().describe(conversation.base_label()).join(", "));
        // Each server with the names of its hidden tools.
        let mut hidden: Vec<(String, Vec<String>)> = Vec::new();
        for event in conversation.monitor().trace().events() {
            let EventBody::Tool(tool) = &event.body else { continue };
            if event.label.flows_to(conversation.base_label()) {
                continue;
            }
            let server = tool.tool.server.as_deref().unwrap_or_default();
            let name = escaping::line(&tool.tool.name);
            match hidden.iter_mut().find(|(known, _)| known == server) {
                Some((_, names)) => names.push(name),
                None => hidden.push((server.to_owned(), vec![name])),
            }
        }
        for (server, names) in hidden {
            // `statement` replaces `LABEL` by the base label.
            let head = "label tool as LABEL if:";
            let statement = self.statement(
                conversation,
                head,
                &format!("(tool: Tool)\n      tool.server == \"{server}\""),
            );
            terminal.note(&format!(
                "steps at the base label ({base}) do not offer these tools of `{server}`, whose descriptions have labels \
                 that do not flow to it: {}; to offer them, add to the policy\n{statement}",
                names.join(", ")
            ));
        }
    }

    /// Returns the statement that would show messages of the role `role` in steps at the base label. To find out whether
    /// the policy hides a message with this role and `content` from these steps, the message is pushed into `scratch`,
    /// an empty monitor of the policy. Returns `None` if the message is not hidden, if the method shows everything, or
    /// if the monitor rejects the message.
    pub(super) fn suggest_statement(
        &self,
        mut scratch: Monitor,
        role: &str,
        content: &str,
        conversation: &Conversation,
    ) -> Option<String> {
        if self.method == Method::Everything {
            return None;
        }
        let (event, _) = scratch.push(TraceEntry::from(Message::new(role, content))).ok()?;
        // A step is shown the message if it may also know that the message exists.
        let label = scratch.trace().event(event)?.label.join(&scratch.trace().existence_label(event));
        if label.flows_to(conversation.base_label()) {
            return None;
        }
        // `statement` replaces `LABEL` by the base label.
        let condition = format!("(message: Message)\n      message.role == \"{role}\"");
        Some(self.statement(conversation, "label message as LABEL if:", &condition))
    }

    /// Returns a `label` statement with this head and these conditions. `LABEL` in `head` is replaced by the base label
    /// of the conversation, so that a step at this label is shown what the statement labels. If the policy does not
    /// accept the words of that label in a statement, `LABEL` is replaced by the bottom of all dimensions.
    fn statement(&self, conversation: &Conversation, head: &str, conditions: &str) -> String {
        let words = conversation.monitor().describe(conversation.base_label()).join(", ");
        let bottoms: Vec<String> = self
            .policy
            .space()
            .dimensions()
            .iter()
            .map(|dimension| format!("{}.bottom", dimension.name))
            .collect();
        let spelled = |label: &str| format!("  {}\n      {conditions}", head.replace("LABEL", label));
        // The words of the base label, then two spellings of the bottom of all dimensions.
        let candidates = [spelled(&words), spelled("bottom"), spelled(&bottoms.join(", "))];
        let is_valid = |statement: &String| {
            // The indentation for printing is not part of the policy.
            let text: Vec<&str> =
                statement.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
            self.policy.with_statements(&text.join("\n")).is_ok()
        };
        // If the policy accepts none of them, the first one is shown.
        let [first, ..] = &candidates;
        candidates.iter().find(|statement| is_valid(statement)).unwrap_or(first).clone()
    }
}
