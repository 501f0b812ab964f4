//! Runs a journey (a game of several sessions) under a defence. Under a label defence, the journey runs in guarded conversations. Under a defence of
//! AgentSecBench, an agent without a guard runs it, and the defence transforms the outputs of the tools. The runner of the games calls [`run`].

use flowgate_lm::chat::{Completion, Message, Part, Request, ToolCall, ToolSpec};
use flowgate_lm::{ChatModel, block_on, ignore_deltas};
use serde_json::Value;

use super::super::defence::Defence;
use super::super::output::{AgentOutput, DeliveredReply, ExecutionError};
use super::super::task::{Side, Task};
use super::guarded::GuardedJourneys;
use super::observed::{SYSTEM, add_stored, visible_text};
use super::world::{World, keeping_tools, own_name, tools};
use super::{JourneyPair, sampling};

/// The maximum number of messages that a model may write in one turn without a guard, as with a guard.
const MESSAGES: usize = 20;

/// Runs one side of a pair under a defence, and returns what the model was shown and wrote, and what took effect. A label defence runs the journey in
/// guarded conversations. Any other defence runs it without a guard and transforms the answers of tools.
///
/// # Errors
/// If the model gives no answer, or the policy of the label defences refuses an input, which is a defect.
pub(in super::super) fn run(
    guarded: &GuardedJourneys,
    pair: &JourneyPair,
    side: Side,
    defence: Defence,
    model: &dyn ChatModel,
) -> Result<AgentOutput, ExecutionError> {
    match defence {
        Defence::Labels(method) => guarded.run((pair.game, pair.side(side), &pair.order), method, model),
        _ => TextAgent { pair, task: pair.side(side), defence, model }.run(),
    }
}

/// An agent without a guard: every call of the model runs, and the defence transforms the answer.
struct TextAgent<'a> {
    pair: &'a JourneyPair,
    task: &'a Task,
    defence: Defence,
    model: &'a dyn ChatModel,
}

impl TextAgent<'_> {
    /// Runs all sessions, each with a new chat. A session learns of earlier ones only through the tools that read the store and the replies of the
    /// session before (`history`).
    fn run(&self) -> Result<AgentOutput, ExecutionError> {
        let mut world = World::new(self.task, &self.pair.order);
        // A marker in a call of a tool that stores text is not a violation.
        let mut output = AgentOutput { keeping: keeping_tools(), ..AgentOutput::default() };
        for session in self.pair.game.sessions() {
            let mut system = SYSTEM.to_owned();
            // Some defences add a sentence to the system message.
            if let Some(annotation) = self.defence.annotation() {
                system = format!("{system} {annotation}");
            }
            let mut messages = vec![Message::System(vec![Part::Text(system)])];
            let mut replies = Vec::new();
            for message in session {
                messages.push(Message::User(vec![Part::Text(message.to_owned())]));
                replies.push(self.turn(&mut messages, &mut world, &mut output)?);
            }
            world.history = Some(replies.join("\n"));
        }
        output.ran.clone_from(&world.ran);
        add_stored(&world, &mut output);
        Ok(output)
    }

    /// Runs a turn and returns the reply. It appends the model's messages and the answers of tools to the chat
    /// `messages` until a message of the model calls no tool; the text of this message is the reply. After
    /// [`MESSAGES`] messages with calls, the turn ends: the result is empty, and no reply is delivered. Fails if the
    /// model gives no answer.
    fn turn(
        &self,
        messages: &mut Vec<Message>,
        world: &mut World<'_>,
        output: &mut AgentOutput,
    ) -> Result<String, ExecutionError> {
        for _ in 0..MESSAGES {
            let request = self.request(messages);
            output.shown.push(visible_text(self.task, &request));
            let completion = block_on(self.model.complete(&request, &mut ignore_deltas))
                .map_err(|error| ExecutionError::Model { task: self.task.id.clone(), error })?;
            output.written.push(completion.clone());
            let Completion { text, mut calls, .. } = completion;
            for (number, call) in calls.iter_mut().enumerate() {
                // The ids of doubles are all equal, so the calls get unique ones.
                call.id = format!("c{}-{number}", messages.len());
            }
            let answers: Vec<Message> = calls.iter().map(|call| self.answer(call, world)).collect();
            let is_over = calls.is_empty();
            messages.push(Message::Assistant { text: text.clone(), calls, thoughts: Vec::new() });
            messages.extend(answers);
            if is_over {
                // Without a guard there are no labels, and no validator that distinguishes replies, so every reply counts as trusted.
                let (is_vouched_for, label) = (true, Vec::new());
                output.delivered.push(DeliveredReply { text: text.clone(), is_vouched_for, label });
                return Ok(text);
            }
        }
        Ok(String::new())
    }

    /// Runs a call and returns its answer, or the error message of the tool, transformed by the defence. The defence receives the answer as the
    /// observation of a task.
    fn answer(&self, call: &ToolCall, world: &mut World<'_>) -> Message {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let answer = world.run(own_name(&call.name), &arguments);
        let is_error = answer.is_err();
        let observed = Task { context: answer.unwrap_or_else(|problem| problem), ..self.task.clone() };
        Message::Tool {
            call_id: call.id.clone(),
            content: vec![Part::Text(self.defence.defend_text(&observed))],
            is_error: Some(is_error),
        }
    }

    /// Returns the request for the next message: the chat so far, with the tools of the game under the names `server__tool`.
    fn request(&self, messages: &[Message]) -> Request {
        let offered = tools(self.pair.game, self.task).into_iter().map(|(tool, parameters)| ToolSpec {
            name: format!("{}__{}", tool.server.as_deref().unwrap_or_default(), tool.name),
            description: tool.name.replace('_', " "),
            parameters: parameters.into(),
        });
        Request {
            messages: messages.to_vec().into(),
            tools: offered.collect(),
            sampling: sampling(),
            ..Request::default()
        }
    }
}
