//! Drives the turns of a conversation about a task: serves what the conversation needs, and runs permitted calls in the
//! environment of the task (its flights, payments or shop: [`world`]). In the turns before the one with the task's
//! request, a fixed script writes the messages in place of the model. [`runner`](super::runner) calls this
//! module.

use flowgate::monitor::AuthorizedCall;
use flowgate::trace::Tool;
use flowgate_guard::approve::{ApprovalRequest, Decision};
use flowgate_guard::conversation::{Conversation, Need, ToolAnswer, Turn};
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Request};
use serde_json::{Map, Value, json};

use super::chat::Chat;
use super::double::{call, say};
use super::task::Suite;
use super::world::{self, PrivacyWorld};

/// The maximum number of tokens of an answer.
pub const ANSWER_TOKENS: u32 = 512;

/// Returns the request with greedy sampling (temperature 0), so that a run depends on chance as little as possible. The
/// answer may have [`ANSWER_TOKENS`] tokens, more than in the games, because a call with its arguments must fit.
pub(super) fn greedy(request: &Request) -> Request {
    let mut request = request.clone();
    request.sampling.temperature = Some(0.0);
    request.sampling.max_tokens = Some(ANSWER_TOKENS);
    request
}

/// Serves the needs of a conversation until the turn is over, and returns the turn. `model` answers as the agent, the
/// screener and the filler, and `person` answers the questions.
pub(super) fn drive(
    conversation: &mut Conversation,
    world: &mut PrivacyWorld,
    model: &dyn Fn(&Request) -> Completion,
    person: &mut dyn FnMut(&ApprovalRequest) -> Decision,
) -> Turn {
    loop {
        match conversation.need() {
            Need::Complete(view) => {
                conversation.accept_completion(model(&view.request));
            }
            Need::Screen(request) => conversation.accept_screening(&model(&request)),
            Need::Fill(request) => conversation.accept_fill(&model(&request)),
            Need::Approve(ask) => conversation.accept_decision(person(&ask)),
            Need::Run(call) => conversation.accept_tool_answer(run_tool(world, &call)),
            Need::User(turn) => return turn,
        }
    }
}

/// Runs a permitted call in the environment. If the tool refuses the call, the answer is an error, which the model
/// sees.
pub(super) fn run_tool(world: &mut PrivacyWorld, call: &AuthorizedCall) -> ToolAnswer {
    let arguments = call.call().arguments.as_ref().cloned().unwrap_or_default();
    match world.run(&call.call().tool.name, &arguments) {
        Ok(answer) => ToolAnswer::text(answer.to_string()),
        Err(problem) => ToolAnswer::error(problem),
    }
}

/// Returns the next message in a turn before the request, in place of a model: first the call of the tool `called`, if
/// there is one, then a reply that repeats nothing private. The answer to a screener is that no region is needed.
pub(super) fn earlier_message(suite: Suite, called: Option<&str>, request: &Request) -> Completion {
    if let Some((_, has_answer_tool)) = crate::screening::screener_chat(request) {
        return crate::screening::screening_answer(&[], has_answer_tool);
    }
    match called {
        // A model knows a tool as `server__tool`; the server has the name of the suite.
        Some(tool) if !Chat::new(request).has_called(tool) => {
            call(&format!("{}__{tool}", suite.name()), Map::new())
        }
        _ => say("Here you are."),
    }
}

/// Returns a tool as it is offered to the model. The schema names the arguments and leaves their types open. The
/// description counts as written by the operator, so it is trusted.
pub(super) fn offered(suite: Suite, tool: &world::PrivacyTool) -> OfferedTool {
    let properties = tool.arguments.iter().map(|name| ((*name).to_owned(), json!({})));
    let properties: Map<String, Value> = properties.collect();
    OfferedTool {
        tool: Tool::of(suite.name(), tool.name),
        description: tool.description.to_owned(),
        parameters: json!({"type": "object", "properties": properties}).into(),
        // The answers have no declared schema.
        output: None,
        words: DescriptionAuthor::Operator,
    }
}
