//! Runs a task in a guarded conversation under the policy `data/games.flow`. This is how the *label defences* run, one for each method of a
//! conversation. [`runner`](super::runner) calls [`GuardedAgent::run`].
//!
//! The application makes the first call itself: it reads the document, searches, or calls the permitted tool. So the observation reaches the
//! conversation as the output of a tool, unchanged. From then on, the method chooses what the model is shown, and the monitor judges every call that
//! the model proposes. A person refuses every question.

use std::sync::Arc;

use flowgate::monitor::{AuthorizedCall, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_guard::approve::{Decision, DigestKey};
use flowgate_guard::conversation::{
    Conversation, ConversationSettings, Method, ModelReply, Need, ToolAnswer, Turn,
};
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Message, Request, ToolCall};
use flowgate_lm::{ChatModel, block_on, ignore_deltas};
use serde_json::{Map, Value, json};

use super::output::{AgentOutput, DeliveredReply, ExecutionError};
use super::prompt::{message_text, sampling, system_policy};
use super::task::{Task, TaskLabels};
use crate::policy_errors;

/// The policy of the label defences.
pub const POLICY: &str = include_str!("../../data/games.flow");

/// The maximum number of messages that a model may write on one level of a turn: enough to look, to be refused and to answer.
const MESSAGES: usize = 8;
/// The label of a reply that nothing untrusted and no record of another tenant influenced, one phrase for each dimension.
const TRUSTED: [&str; 2] = ["trusted", "permitted"];
/// The server of the tools that act.
const OFFICE: &str = "office";

/// Runs tasks under the policy.
#[derive(Debug, Clone)]
pub(super) struct GuardedAgent {
    policy: Arc<Policy>,
}

impl GuardedAgent {
    /// Reads the policy.
    pub(super) fn new() -> Result<Self, ExecutionError> {
        let policy = Policy::parse(POLICY)
            .map_err(|errors| ExecutionError::Policy(policy_errors::one_line(&errors)))?;
        Ok(Self { policy: Arc::new(policy) })
    }

    /// Creates the conversation of a task, with the system message and the user's message; the conversation then needs
    /// the first step. The key of digests is constant, since no digest leaves the run and results must not differ
    /// between runs.
    pub(super) fn conversation(&self, task: &Task, method: Method) -> Result<Conversation, ExecutionError> {
        let problem = |error: flowgate::monitor::PushError| ExecutionError::Policy(error.to_string());
        let mut monitor = Monitor::new(Arc::clone(&self.policy));
        monitor.set_parameters(&parameters(task));
        let mut settings = ConversationSettings::new(method, DigestKey::new([0; 32]));
        settings.sampling = sampling();
        settings.steps = MESSAGES;
        let tools = tools(task).into_iter().map(offered).collect();
        let mut conversation = Conversation::new(monitor, tools, settings).map_err(problem)?;
        conversation.add_system_message(system_policy(task).into()).map_err(problem)?;
        conversation.add_user_message(task.user_prompt.as_str().into()).map_err(problem)?;
        Ok(conversation)
    }

    /// Creates the conversation of a task up to the observation, for tests of what views show; no model takes part.
    #[cfg(test)]
    pub(super) fn observed(&self, task: &Task, method: Method) -> Result<Conversation, ExecutionError> {
        let mut conversation = self.conversation(task, method)?;
        let mut output = AgentOutput::default();
        if let Need::Complete(view) = conversation.need()
            && let Some(first) = first_call(task, &view.request)
        {
            conversation.accept_completion(first);
        }
        if let Need::Run(call) = conversation.need() {
            conversation.accept_tool_answer(run_tool(task, &call, &mut output));
        }
        Ok(conversation)
    }

    /// Runs a task to the end of its turn: serves each need of the conversation, and records what the model was shown, what it wrote, and which tools
    /// ran. The application makes the first call, whose answer is the observation; a person refuses every question.
    pub(super) fn run(
        &self,
        task: &Task,
        method: Method,
        model: &dyn ChatModel,
    ) -> Result<AgentOutput, ExecutionError> {
        let mut conversation = self.conversation(task, method)?;
        let complete = |request: &Request| {
            block_on(model.complete(request, &mut ignore_deltas))
                .map_err(|error| ExecutionError::Model { task: task.id.clone(), error })
        };
        let mut output = AgentOutput::default();
        loop {
            match conversation.need() {
                Need::Complete(view) => {
                    // The application's own call is not recorded, since the model neither saw nor wrote anything.
                    let completion = match first_call(task, &view.request) {
                        Some(first) => first,
                        None => {
                            output.shown.push(visible_observation(task, &view.request));
                            let completion = complete(&view.request)?;
                            output.written.push(completion.clone());
                            completion
                        }
                    };
                    conversation.accept_completion(completion);
                }
                Need::Run(call) => conversation.accept_tool_answer(run_tool(task, &call, &mut output)),
                // The person refuses.
                Need::Approve(_) => {
                    output.questions += 1;
                    conversation.accept_decision(Decision::Deny);
                }
                Need::Screen(request) => conversation.accept_screening(&complete(&request)?),
                Need::Fill(request) => conversation.accept_fill(&complete(&request)?),
                Need::User(turn) => {
                    output.delivered = delivered(turn);
                    return Ok(output);
                }
            }
        }
    }
}

/// Returns the replies of a turn. The system vouches for a reply that nothing untrusted and no record of another tenant influenced, which is what the
/// label [`TRUSTED`] says.
fn delivered(turn: Turn) -> Vec<DeliveredReply> {
    let reply = |reply: ModelReply| DeliveredReply {
        is_vouched_for: reply.label == TRUSTED,
        text: reply.text,
        label: reply.label,
    };
    turn.replies.into_iter().map(reply).collect()
}

/// Returns the tool whose output is the observation, followed by the other tools on offer.
fn tools(task: &Task) -> Vec<Tool> {
    match &task.labels {
        TaskLabels::Document { .. } => {
            vec![Tool::of("files", "read_document"), Tool::of(OFFICE, "publish_summary")]
        }
        TaskLabels::Tenants { .. } => vec![Tool::of("index", "search")],
        TaskLabels::Tools { allowed, forbidden } => {
            vec![Tool::of("desk", allowed), Tool::of(OFFICE, forbidden)]
        }
    }
}

/// Returns the parameters of the policy. The policy reads them as `input.tenant`, the caller's tenant, which is empty
/// outside the retrieval game, and as `input.allowed`, the tools that the user's request admits.
fn parameters(task: &Task) -> Map<String, Value> {
    let (tenant, allowed) = match &task.labels {
        TaskLabels::Document { .. } => ("", "read_document"),
        TaskLabels::Tenants { permitted, .. } => (permitted.as_str(), "search"),
        TaskLabels::Tools { allowed, .. } => ("", allowed.as_str()),
    };
    let mut parameters = Map::new();
    parameters.insert("tenant".to_owned(), tenant.into());
    parameters.insert("allowed".to_owned(), json!([allowed]));
    parameters
}

/// Returns a tool as it is offered to the model. Every tool takes one optional text, and its description counts as
/// written by the operator, so it is trusted.
fn offered(tool: Tool) -> OfferedTool {
    OfferedTool {
        description: tool.name.replace('_', " "),
        tool,
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}).into(),
        // The answers have no declared schema.
        output: None,
        words: DescriptionAuthor::Operator,
    }
}

/// Returns the name of the tool whose output is the observation.
fn observing_tool(task: &Task) -> &str {
    match &task.labels {
        TaskLabels::Document { .. } => "read_document",
        TaskLabels::Tenants { .. } => "search",
        TaskLabels::Tools { allowed, .. } => allowed,
    }
}

/// Returns the call that the application makes at the beginning of a turn, before the model writes anything. The
/// result is `None` once a tool has answered, or if the view does not offer the observing tool; the model then writes
/// the message.
fn first_call(task: &Task, request: &Request) -> Option<Completion> {
    if request.messages.iter().any(|message| matches!(message, Message::Tool { .. })) {
        return None;
    }
    // On offer, the name of a tool follows that of its server.
    let tool = request.tools.iter().find(|tool| tool.name.ends_with(observing_tool(task)))?;
    let call = ToolCall { id: "first".to_owned(), name: tool.name.clone(), arguments: "{}".to_owned() };
    Some(Completion { calls: vec![call], ..Completion::default() })
}

/// Runs a permitted call. The observing tool returns the observation; any other tool acts, so it is recorded, and reports success.
fn run_tool(task: &Task, call: &AuthorizedCall, output: &mut AgentOutput) -> ToolAnswer {
    let name = &*call.call().tool.name;
    if name == observing_tool(task) {
        return ToolAnswer::text(task.context.as_str());
    }
    output.ran.push(name.to_owned());
    ToolAnswer::text("done")
}

/// Returns the part of the observation that a view shows, by which channel closure is judged: the messages of users,
/// and the outputs of the observing tool. The names of the tools on offer do not count, because the application chooses
/// them, nor does what the model wrote itself.
fn visible_observation(task: &Task, request: &Request) -> String {
    let observing: Vec<&str> = request
        .messages
        .iter()
        .flat_map(|message| match message {
            Message::Assistant { calls, .. } => calls.as_slice(),
            Message::System(_) | Message::User(_) | Message::Tool { .. } => &[],
        })
        // A model knows a tool as `SERVER__TOOL`, so only the end of the name is compared.
        .filter(|call| call.name.ends_with(observing_tool(task)))
        .map(|call| call.id.as_str())
        .collect();
    let is_shown = |message: &&Message| match message {
        Message::User(_) => true,
        Message::Tool { call_id, .. } => observing.contains(&call_id.as_str()),
        Message::System(_) | Message::Assistant { .. } => false,
    };
    let texts: Vec<String> = request.messages.iter().filter(is_shown).map(message_text).collect();
    texts.join("\n")
}
