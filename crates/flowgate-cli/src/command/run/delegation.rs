//! Runs the agents to which a chat of `flowgate run` delegates tasks. For the model of the chat, an agent is a tool
//! `agents/NAME` with the argument `task`. Also reads the agents from the configuration (its member `agents`).
//!
//! Each task runs in a separate conversation, with the same policy, the same stores and the same person who decides.
//! The text of the task has at least the label of the call that delegates it. The answer has the join of the labels of
//! everything that the agent read, joined with the policy's label for the tool.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use flowgate::json::{self, Numbers};
use flowgate::monitor::{AuthorizedCall, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_guard::agent::{Agent, Toolbox};
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, ConversationSettings, Method, ToolAnswer, Turn};
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::{ChatModel, block_on};
use serde_json::{Value, json};

use super::approver::TerminalApprover;
use super::cancellable_model::CancellableModel;
use super::observed_chat::ObservedChat;
use super::observer::{ChatObserver, SharedChatState};
use super::question_card::CardWriter;
use super::terminal::ChatTerminal;
use crate::escaping;

/// The server name of agents; no MCP server may have this name if there are agents.
pub(super) const SERVER: &str = "agents";

/// Advice about the form of the configuration, for error messages.
const FORM: &str =
    r#"write {"agents": {"NAME": {"description": "...", "instructions": "...", "servers": ["..."]}}}"#;

/// An agent to which tasks are delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentSpec {
    /// The name of the agent; the chat's model calls the tool `agents/NAME`.
    pub(super) name: String,
    /// The description that the chat's model reads.
    description: String,
    /// The system message of its conversations.
    instructions: Option<String>,
    /// The servers whose tools it may call; `None` means all.
    servers: Option<Vec<String>>,
}

/// Reads the member `agents` of the configuration in `text`; returns no agent if it has no such member. `servers` are
/// the names of the servers in the same configuration.
///
/// # Errors
/// If the text is not JSON, `agents` is not an object, an entry is malformed, or a server has the reserved name
/// [`SERVER`]; the message has advice.
pub(super) fn read_agents(text: &str, servers: &[String]) -> Result<Vec<AgentSpec>, String> {
    let value =
        json::parse(text, Numbers::Any).map_err(|error| format!("the file is not valid JSON: {error}"))?;
    let Some(agents) = value.get("agents") else { return Ok(Vec::new()) };
    let agents = agents.as_object().ok_or_else(|| format!("`agents` is not an object; {FORM}"))?;
    if servers.iter().any(|server| server == SERVER) {
        return Err(format!(
            "a server has the name `{SERVER}`, which is reserved: policies name the agents of this file \
            `{SERVER}/NAME`; rename the server"
        ));
    }
    agents.iter().map(|(name, entry)| read_agent(name, entry, servers)).collect()
}

/// Reads the entry of the agent `name`. `servers` are the names of the servers in the same file; an entry without
/// `servers` lets the agent use all of them. Fails if policies cannot use the name, a field has another type than
/// expected, there is no `description`, or `servers` of the entry names a server that the file does not have.
fn read_agent(name: &str, entry: &Value, servers: &[String]) -> Result<AgentSpec, String> {
    let at = |problem: String| format!("the agent `{}`: {problem}", escaping::excerpt(name, 40));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 50 || !name.chars().all(is_plain) {
        return Err(at(
            "policies cannot use this name; use up to 50 letters, digits, `-`, `_` and `.`".to_owned()
        ));
    }
    // Returns the text in the field `key`; `None` if the field is absent or null.
    let text = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(at(format!("its `{key}` is not a string; put it in quotation marks"))),
    };
    let description = text("description")?;
    let description = description.ok_or_else(|| {
        at(format!("it has no `description`, from which the model learns what the agent is for; {FORM}"))
    })?;
    let wrong = || at("its `servers` is not a list of names; write [\"one\", \"two\"]".to_owned());
    let server_names = match entry.get("servers") {
        None | Some(Value::Null) => None,
        Some(Value::Array(items)) => {
            let names = items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong));
            Some(names.collect::<Result<Vec<String>, String>>()?)
        }
        Some(_) => return Err(wrong()),
    };
    if let Some(unknown) = server_names.iter().flatten().find(|server| !servers.contains(server)) {
        return Err(at(format!(
            "there is no server `{}` in `mcpServers`; add it there",
            escaping::excerpt(unknown, 40)
        )));
    }
    Ok(AgentSpec {
        name: name.to_owned(),
        description,
        instructions: text("instructions")?,
        servers: server_names,
    })
}

impl AgentSpec {
    /// Returns the agent's description as a tool for the model.
    pub(super) fn to_offered_tool(&self) -> OfferedTool {
        OfferedTool {
            tool: Tool::of(SERVER, &self.name),
            description: self.description.clone(),
            parameters: json!({
                "type": "object",
                "properties": {"task": {
                    "type": "string",
                    "description": "The task, with all information that it needs. The agent sees nothing else of this chat.",
                }},
                "required": ["task"],
            })
            .into(),
            // The answers of an agent have no schema. The operator wrote the agent's description in the configuration.
            output: None,
            words: DescriptionAuthor::Operator,
        }
    }

    /// Returns the tools, of those in `offered`, that the agent may call: the tools of the servers that its entry in
    /// the configuration names, or all if it names none.
    pub(super) fn allowed_tools(&self, offered: &[OfferedTool]) -> Vec<OfferedTool> {
        let is_allowed = |tool: &Tool| match (&self.servers, &tool.server) {
            (None, _) => true,
            (Some(names), Some(server)) => names.iter().any(|name| **name == **server),
            // A tool of no server is not on a server that the entry names.
            (Some(_), None) => false,
        };
        offered.iter().filter(|known| is_allowed(&known.tool)).cloned().collect()
    }
}

/// The parts of the chat that the conversation of each agent shares or is created from.
#[derive(Clone)]
pub(super) struct DelegationContext {
    pub(super) policy: Arc<Policy>,
    /// The name of the policy's file.
    pub(super) name: Arc<str>,
    /// Creates an empty monitor of the policy.
    pub(super) monitor: Arc<dyn Fn() -> Monitor + Send + Sync>,
    pub(super) method: Method,
    pub(super) model: Arc<dyn ChatModel>,
    /// The model that fills slots.
    pub(super) small: Arc<dyn ChatModel>,
    /// The model that screens.
    pub(super) screener: Arc<dyn ChatModel>,
    pub(super) terminal: Arc<ChatTerminal>,
    pub(super) shared: SharedChatState,
    /// Whether to print the labels of each step.
    pub(super) labels: bool,
}

impl DelegationContext {
    /// Runs the task that a call delegates to the agent `member`, and returns the answer to the call. `offered` are the
    /// tools that the agent may use, and `tools` runs their calls. The answer is an error if the argument `task` is not
    /// a text, if the conversation of the agent cannot begin, if the agent does not finish, or if the labels of stores
    /// cannot be saved.
    pub(super) fn run_task(
        &self,
        member: &AgentSpec,
        tools: &Toolbox,
        offered: &[OfferedTool],
        call: &AuthorizedCall,
    ) -> ToolAnswer {
        let task = call.call().arguments.as_ref().ok().and_then(|arguments| arguments.get("task"));
        let Some(Value::String(task)) = task else {
            return ToolAnswer::error(
                "the argument `task` is not a string, so nothing was done; write the task as a string",
            );
        };
        self.run_conversation(member, tools, offered, task)
            .unwrap_or_else(|problem| ToolAnswer::error(format!("the agent could not start: {problem}")))
    }

    /// Runs `task` in a new conversation with the agent `member`, which may use the tools `offered`, and returns the
    /// agent's reply with its labels. The conversation recalls the labels of stores first, and saves them at the end.
    fn run_conversation(
        &self,
        member: &AgentSpec,
        tools: &Toolbox,
        offered: &[OfferedTool],
        task: &str,
    ) -> Result<ToolAnswer, String> {
        let mut monitor = (self.monitor)();
        // The label of the call that delegates the task. In the new conversation, the task carries this label.
        let task_label = self.shared.call_label.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stores_version = self.shared.stores().recall(&mut monitor).map_err(|error| error.to_string())?;
        let mut conversation = self.begin_conversation(member, offered, monitor)?;
        // What the agent needs for its steps: an observer, the models, and the approver that asks the person.
        let observed = Arc::new(ObservedChat::default());
        // `None`: the trace file has only the events of the chat itself.
        let mut observer = ChatObserver::new(
            Arc::clone(&self.terminal),
            self.labels,
            None,
            self.shared.clone(),
            Arc::clone(&observed),
        );
        observer.stores_version = stores_version;
        observer.agent_name = Some(member.name.clone());
        let cancellable = |model: &Arc<dyn ChatModel>, what| CancellableModel {
            model: Arc::clone(model),
            terminal: Arc::clone(&self.terminal),
            what,
            steps: None,
        };
        let mut writer = cancellable(&self.model, "the agent's model writes");
        writer.steps = Some(AtomicUsize::new(0));
        let screener = cancellable(&self.screener, "the model screens");
        let filler = cancellable(&self.small, "the model fills a slot");
        let mut person = TerminalApprover::new(CardWriter {
            terminal: Arc::clone(&self.terminal),
            policy: Arc::clone(&self.policy),
            name: Arc::clone(&self.name),
            caller: format!("The agent {}", member.name),
            chat: observed,
        });
        let begun = Instant::now();
        let mut agent = Agent {
            model: &writer,
            screener: &screener,
            filler: &filler,
            tools,
            provider_tools: None,
            approver: &mut person,
            clock: &|| begun.elapsed(),
            observer: &mut observer,
        };
        let ended = block_on(agent.run_task(&mut conversation, task.into(), &task_label));
        observer.process_new_events(&conversation);
        // The labels of stores are saved even if no call ran: that nothing was written is information as well, so the
        // label of a store can rise without a write.
        let saved = observer.save_store_labels(&mut conversation);
        if let Err(problem) = saved {
            return Ok(unfinished_answer(&conversation, &problem));
        }
        Ok(match ended {
            Ok(turn) => {
                observer.print_summary(&turn.spent);
                delegate_answer(&conversation, &turn)
            }
            Err(error) => unfinished_answer(&conversation, &error.to_string()),
        })
    }

    /// Creates the conversation with the agent `member`, which begins with the agent's instructions.
    fn begin_conversation(
        &self,
        member: &AgentSpec,
        offered: &[OfferedTool],
        monitor: Monitor,
    ) -> Result<Conversation, String> {
        // The key of the digests in this conversation. It is random, so that digests do not reveal guessable texts.
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key).map_err(|error| error.to_string())?;
        let settings = ConversationSettings::new(self.method, DigestKey::new(key));
        let failed = |error: flowgate::monitor::PushError| error.to_string();
        let mut conversation = Conversation::new(monitor, offered.to_vec(), settings).map_err(failed)?;
        if let Some(instructions) = &member.instructions {
            conversation.add_system_message(instructions.as_str().into()).map_err(failed)?;
        }
        Ok(conversation)
    }
}

/// Returns the answer to a delegated task: the agent's replies, with their label. It is an error if the turn ended
/// early or a reply was withheld.
fn delegate_answer(conversation: &Conversation, turn: &Turn) -> ToolAnswer {
    let is_complete = turn.ended.is_none() && turn.replies.iter().all(|reply| reply.withheld.is_empty());
    let texts: Vec<&str> = turn.replies.iter().map(|reply| reply.text.as_str()).collect();
    if !is_complete {
        return unfinished_answer(conversation, &texts.join("\n"));
    }
    ToolAnswer { carries: Some(conversation.reply_label_names()), ..ToolAnswer::text(texts.join("\n")) }
}

/// Returns the answer to a delegated task whose agent did not finish: an error that ends with `text`, the agent's
/// replies or the reason. The answer has the label top, because the failure can depend on anything that the agent has
/// read. If `text` is empty, the colon before it is removed.
fn unfinished_answer(conversation: &Conversation, text: &str) -> ToolAnswer {
    let monitor = conversation.monitor();
    let top = monitor.to_names(&monitor.policy().space().top());
    let text = format!("the agent did not finish: {text}");
    ToolAnswer { carries: Some(top), ..ToolAnswer::error(text.trim_end_matches([' ', ':'])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_read_and_problems_named() {
        let check = |text: &str, expected: Result<&[&str], &str>| {
            let read = read_agents(text, &["web".to_owned(), "mail".to_owned()]);
            let names = read.map(|members| members.into_iter().map(|member| member.name).collect::<Vec<_>>());
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(names, expected.map_err(str::to_owned), "{text}");
        };
        check(r#"{"mcpServers": {}}"#, Ok(&[]));
        check(r#"{"agents": {"reader": {"description": "reads", "servers": ["web"]}}}"#, Ok(&["reader"]));
        check(
            r#"{"agents": {"reader": {"description": "reads", "servers": ["wep"]}}}"#,
            Err("the agent `reader`: there is no server `wep` in `mcpServers`; add it there"),
        );
        check(
            r#"{"agents": {"reader": {"description": "reads", "servers": "web"}}}"#,
            Err("the agent `reader`: its `servers` is not a list of names; write [\"one\", \"two\"]"),
        );
        check(
            r#"{"agents": {"a b": {"description": "reads"}}}"#,
            Err(
                "the agent `a b`: policies cannot use this name; use up to 50 letters, digits, `-`, `_` and \
                `.`",
            ),
        );
        check(r#"{"agents": []}"#, Err(&format!("`agents` is not an object; {FORM}")));
        let missing = format!(
            "the agent `a`: it has no `description`, from which the model learns what the agent is for; \
            {FORM}"
        );
        check(r#"{"agents": {"a": {}}}"#, Err(&missing));
    }
}
