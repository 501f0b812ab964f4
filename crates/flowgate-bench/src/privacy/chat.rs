//! Reads from a view what the [double](super::double) knows of a chat: which answers are shown, and which step of the
//! task is next.
//!
//! The double knows the task from the start, and everything else only from its view. A look begins a *level*, the part
//! of a turn whose steps are shown the regions of the look. The level ends with a message without calls, and its steps
//! are hidden from then on. The double can then no longer see which steps it performed on the level, so it computes
//! them from the task ([`group_end`]).

use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Message, Request, ToolCall};
use serde_json::Value;

use super::task::{PrivacyTask, Reference};
use super::value::{Sight, find};
use crate::screening::text_of;

/// The beginning of the answer to a look whose level has ended.
const LOOKED: &str = "You have looked";
/// The beginning of the answer to a look in a view that shows the regions.
const SHOWN: &str = "It is shown";

/// How far a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The position of the next step; the reply counts as the step after the last one.
    pub(super) next: usize,
    /// The position of the first step on the level of a look; `None` if the view is not on such a level.
    pub(super) level: Option<usize>,
}

/// The chat in a view.
pub(super) struct Chat<'r> {
    request: &'r Request,
}

impl<'r> Chat<'r> {
    /// Reads the view that a request shows.
    pub(super) fn new(request: &'r Request) -> Self {
        Self { request }
    }

    /// Returns what the view shows of a field: its value, a placeholder, or nothing. The field is looked up in the
    /// answer to the latest visible call of the tool that `reference` names.
    pub(super) fn sight(&self, reference: &Reference) -> Sight {
        let calls = self.request.messages.iter().flat_map(|message| match message {
            Message::Assistant { calls, .. } => calls.as_slice(),
            _ => &[],
        });
        let mut calls = calls.filter(|call| tool_of(call) == reference.tool);
        let Some(answer) = calls.next_back().and_then(|call| self.answer(call)) else { return Sight::Absent };
        match serde_json::from_str::<Value>(&answer) {
            Ok(answer) => find(&answer, reference),
            // Text that is not JSON can be the placeholder of the whole answer.
            Err(_) => find(&Value::String(answer), reference),
        }
    }

    /// Returns the text of the answer to a call; `None` if the view has no answer to it.
    fn answer(&self, call: &ToolCall) -> Option<String> {
        let is_answer =
            |message: &&Message| matches!(message, Message::Tool { call_id, .. } if *call_id == call.id);
        self.request.messages.iter().find(is_answer).map(text_of)
    }

    /// Returns the messages after the last message of the user, which is the request of the task. Returns all messages
    /// if the user has written none.
    fn since_request(&self) -> impl Iterator<Item = &'r Message> {
        let messages = &self.request.messages;
        let request = messages.iter().rposition(|message| matches!(message, Message::User(_)));
        messages.iter().skip(request.map_or(0, |index| index + 1))
    }

    /// Returns whether a tool, named without its server, was called since the last message of the user.
    pub(super) fn has_called(&self, tool: &str) -> bool {
        self.since_request().any(|message| match message {
            Message::Assistant { calls, .. } => calls.iter().any(|call| tool_of(call) == tool),
            _ => false,
        })
    }

    /// Returns how far the task has come, as the calls in the view show. A look begins a *level*, whose steps see the
    /// regions that the look names; the level ends with a message without calls. A call counts as the next step that
    /// has the same tool. So steps that were skipped, because their condition did not hold, are passed over.
    pub(super) fn progress(&self, task: &PrivacyTask) -> Progress {
        let mut progress = Progress { next: 0, level: None };
        for message in self.since_request() {
            let Message::Assistant { calls, .. } = message else { continue };
            if calls.is_empty() {
                // A message without calls ends a level.
                progress.level = None;
            }
            for call in calls {
                if call.name == LOOK {
                    let answer = self.answer(call).unwrap_or_default();
                    if answer.starts_with(LOOKED) {
                        // The level is over and its steps are hidden: they were the group that begins at
                        // `progress.next`.
                        progress = Progress { next: group_end(task, progress.next), level: None };
                    } else if answer.starts_with(SHOWN) && progress.level.is_none() {
                        // A further look on a level does not begin another one.
                        progress.level = Some(progress.next);
                    }
                } else {
                    let has_tool_of_call =
                        |index: &usize| task.steps.get(*index).is_some_and(|step| step.tool == tool_of(call));
                    let mut remaining = progress.next..task.steps.len();
                    if let Some(index) = remaining.find(has_tool_of_call) {
                        progress.next = index + 1;
                    }
                }
            }
        }
        progress
    }

    /// Returns the names of all hidden regions in the view; a region that is mentioned twice occurs twice.
    pub(super) fn hidden_names(&self) -> Vec<String> {
        let texts = self.request.messages.iter().map(text_of);
        let names = texts.flat_map(|text| {
            let names = text.split("[hidden ").skip(1).filter_map(|rest| rest.split_once(']'));
            names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        });
        names.collect()
    }

    /// Returns whether the model may call a tool; `name` includes the server.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.request.tools.iter().any(|tool| tool.name == name)
    }

    /// Returns whether an argument may be a slot, a reference to hidden regions. The guard says so in the schema of the
    /// tool on offer.
    pub(super) fn takes_slot(&self, name: &str, argument: &str) -> bool {
        let spec = self.request.tools.iter().find(|spec| spec.name == name);
        let schema = spec.and_then(|spec| spec.parameters.get("properties")?.get(argument));
        schema.is_some_and(|schema| schema.to_string().contains("$slot"))
    }
}

/// Returns the name of the tool of a call, without its server.
fn tool_of(call: &ToolCall) -> &str {
    call.name.rsplit_once("__").map_or(call.name.as_str(), |(_, tool)| tool)
}

/// Returns the index after the last step of the *group* that begins at `start`. A group is the steps that the double
/// must perform on one level of a look, because later steps use the answers to earlier ones. When the level ends, its
/// steps and the answers to them are hidden again, so that no step after it can use them. A group therefore continues
/// as long as the next step uses the answer to a step of the group. The reply counts as the step after the last one.
pub(super) fn group_end(task: &PrivacyTask, start: usize) -> usize {
    // The number of steps, with the reply if the task asks for one.
    let items = task.steps.len() + usize::from(!task.tell.is_empty());
    // Whether the step at `index`, or the reply if `index` is after the last step, uses an answer of the tool `tool`.
    let uses = |index: usize, tool: &str| match task.steps.get(index) {
        Some(step) => step.references().any(|reference| reference.tool == tool),
        None => task.tell.iter().flat_map(|tell| tell.references()).any(|reference| reference.tool == tool),
    };
    let mut end = start + 1;
    while end < items && task.steps.iter().take(end).skip(start).any(|step| uses(end, &step.tool)) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn steps_that_use_an_answer_stay_on_its_level() {
        let tasks = read::all().unwrap();
        let check = |name: &str, start: usize, expected: usize| {
            let task = tasks.iter().find(|task| task.name == name).unwrap();
            assert_eq!(group_end(task, start), expected, "{name}");
        };
        check("search-book-and-sit", 1, 4);
        check("search-book-and-sit", 3, 4);
        check("visa-for-japan", 1, 3);
        check("newsletter", 0, 1);
    }
}
