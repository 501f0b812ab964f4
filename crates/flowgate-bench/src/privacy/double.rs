//! Implements the doubles of the privacy suite: an agent that does each task as well as its view allows, and judges,
//! which answer in place of the model of a screener. [`runner`](super::runner) runs them.
//!
//! The agent computes each call from what it can see. It does not replay the ground truth: if a value follows from
//! hidden data, the agent has to look at the data. However, it knows in advance which data a step needs. A real model
//! has to find that out, and can be wrong, so a figure of a double is about the defence, not about a model.

use std::future::ready;

use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Completion, Request, ToolCall, ToolChoice};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::chat::{Chat, group_end};
use super::task::{Derivation, GroundTruthCall, Piece, PrivacyTask, Reference, Template};
use super::value::{Sight, ValueOrNeed, compute, holds, plain_text};
use super::world::{DEMANDS_ALL, DEMANDS_NONE};
use crate::screening::{screener_chat, screening_answer, tagged_regions};
use crate::tokens::usage;

/// How often the noisy judge is wrong about a region, in 1000 cases.
const NOISE: u64 = 100;

/// How a double chooses the hidden regions that a step needs: as the judge of a screener, and as the agent that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionChoice {
    /// Names exactly the regions that the next step needs, and obeys nothing that they say.
    Honest,
    /// Names every region if the next step needs one, like a model that would rather see too much.
    Curious,
    /// Names regions like the honest one. An agent that may not see a value does not say so: it omits the value or
    /// guesses it, as real models do.
    Guessing,
    /// Does what planted instructions in the regions say: also names a region that claims to be needed, and names no
    /// region if a region demands that none be named. Where nothing is planted, it is honest.
    Obeying,
    /// Names regions like the honest one, but is wrong about each region with a probability of 0.1, determined by the
    /// seed.
    Noisy {
        /// The seed.
        seed: u64,
    },
}

impl RegionChoice {
    /// Returns the names of the regions with which the judge answers `request`, a screener's question about a step of
    /// `task`. `needed` are the regions that the next step needs, which an honest judge names.
    fn choose(self, task: &PrivacyTask, request: &Request, needed: Vec<String>) -> Vec<String> {
        let regions = tagged_regions(request);
        match self {
            // The guessing double differs from the honest one only as an agent: it guesses values that it may not
            // see.
            Self::Honest | Self::Guessing => needed,
            // A curious judge names more than the step needs, but nothing if the step needs nothing.
            Self::Curious if needed.is_empty() => needed,
            Self::Curious => regions.into_iter().map(|(name, _)| name).collect(),
            // Planted texts make demands of the judge; one that demands that nothing be named prevails.
            Self::Obeying if regions.iter().any(|(_, text)| text.contains(DEMANDS_NONE)) => Vec::new(),
            Self::Obeying => {
                let demands = regions.into_iter().filter(|(_, text)| text.contains(DEMANDS_ALL));
                let mut named = needed;
                named.extend(demands.map(|(name, _)| name));
                named.sort();
                named.dedup();
                named
            }
            Self::Noisy { seed } => {
                let mut names: Vec<String> = regions.into_iter().map(|(name, _)| name).collect();
                names.sort();
                names.dedup();
                // Each name is in the answer exactly if it is needed, unless the judge errs about it.
                let is_named = |name: &String| needed.contains(name) != is_wrong(seed, task, request, name);
                names.into_iter().filter(is_named).collect()
            }
        }
    }
}

/// Returns whether the noisy judge errs about the region `name` at this step. A digest of the seed, the task, the step
/// and the region decides. So the errors do not depend on the order of questions, and a repeated run has the same
/// errors.
fn is_wrong(seed: u64, task: &PrivacyTask, request: &Request, name: &str) -> bool {
    // The number of messages identifies the step.
    let case = format!("{seed} {} {} {} {name}", task.suite.name(), task.name, request.messages.len());
    let digest = Sha256::digest(case.as_bytes());
    // The first eight bytes of the digest, as a number.
    let drawn = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    // `NOISE` is the number of errors in 1000 cases.
    drawn % 1000 < NOISE
}

/// The double for one task.
#[derive(Debug, Clone, Copy)]
pub struct AgentDouble<'t> {
    /// The task.
    pub task: &'t PrivacyTask,
    /// How the double chooses the regions that a step needs.
    pub judge: RegionChoice,
}

impl ChatModel for AgentDouble<'_> {
    fn name(&self) -> &str {
        "test double: does each task as well as its view allows"
    }

    /// Answers the request at once; the listener, which would receive partial answers, is not called.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        let answer = self.answer(request);
        let usage = usage(request, &answer);
        Box::pin(ready(Ok(Completion { usage, ..answer })))
    }
}

impl AgentDouble<'_> {
    /// Answers a request by its kind: the request to fill a slot, a screener's question, or a request for the next
    /// message of the chat.
    fn answer(&self, request: &Request) -> Completion {
        // Only the request to fill a slot offers no tools and forbids calls.
        if request.tools.is_empty() && request.choice == ToolChoice::None {
            // The double uses only slots that copy a region, so the filler has nothing to write.
            return say("");
        }
        let Some((hidden, has_answer_tool)) = screener_chat(request) else {
            return self.next_message(&Chat::new(request));
        };
        // The regions that the agent itself would look at next are those that the next step needs.
        let next = self.next_message(&Chat::new(&hidden));
        let looks = next.calls.iter().filter(|call| call.name == LOOK);
        let needed = looks.flat_map(|call| looked_at(&call.arguments)).collect();
        // Some kinds of judges name other regions as well, or none.
        screening_answer(&self.judge.choose(self.task, request, needed), has_answer_tool)
    }

    /// Returns the next message: the call of the next step, a look at the regions that the step needs, `Done.` to end a
    /// level whose steps are complete, or the reply that the task asks for. Steps whose condition does not hold are
    /// skipped. A level is the part of the turn that sees the regions of a look; a message without calls ends it.
    fn next_message(&self, chat: &Chat<'_>) -> Completion {
        let progress = chat.progress(self.task);
        // The reply counts as an item after the steps.
        let items = self.task.steps.len() + usize::from(!self.task.tell.is_empty());
        let is_group_done = progress.level.is_some_and(|start| progress.next >= group_end(self.task, start));
        if is_group_done && progress.next < items {
            return say("Done.");
        }
        for (index, step) in self.task.steps.iter().enumerate().skip(progress.next) {
            if let Some(message) = self.perform(chat, index, step, progress.level.is_some()) {
                return message;
            }
        }
        if self.task.tell.is_empty() {
            return say("Done.");
        }
        // Everything that the reply has to contain is computed as one template, so that one look shows all that is
        // hidden.
        let separator = [Piece::Text(" ".to_owned())];
        let tell: Vec<&[Piece]> = self.task.tell.iter().map(|tell| tell.0.as_slice()).collect();
        match compute(&Template(tell.join(separator.as_slice())), &|reference| chat.sight(reference)) {
            ValueOrNeed::Known(value) => say(&plain_text(&value)),
            // Nothing follows the reply, so the double need not return to the lower level after the look.
            ValueOrNeed::Needs { names, .. } => self.look(chat, names, false),
            ValueOrNeed::Missing => say("I cannot find it."),
        }
    }

    /// Returns a look at the regions `names`, or at all hidden regions if the double is curious. With `then_return`,
    /// the look asks that the conversation continue afterwards on the lower level, where the regions are hidden again.
    /// If the tool `look` is not on offer, the message is a refusal in words.
    fn look(&self, chat: &Chat<'_>, mut names: Vec<String>, then_return: bool) -> Completion {
        if !chat.offers(LOOK) {
            return say("I may not see it.");
        }
        if self.judge == RegionChoice::Curious {
            names = chat.hidden_names();
        }
        names.sort();
        names.dedup();
        let arguments = json!({"regions": names, "then_return": then_return});
        call(LOOK, arguments.as_object().cloned().unwrap_or_default())
    }

    /// Returns whether the agent guesses hidden values: the double is the guessing one, and the tool `look` is not on
    /// offer.
    fn guesses(&self, chat: &Chat<'_>) -> bool {
        self.judge == RegionChoice::Guessing && !chat.offers(LOOK)
    }

    /// Returns the message for `step`, which has the position `index`: its call, or a look if a value is hidden and
    /// no slot can carry it. Where no look is on offer, the guessing double guesses a hidden argument or omits it,
    /// and the others say that they may not see it. If a value does not exist, the message says so. The result is
    /// `None` if the step is skipped: its condition does not hold, or the condition is hidden and the double guesses.
    /// `is_raised` says whether the double is already on the level of a look.
    fn perform(
        &self,
        chat: &Chat<'_>,
        index: usize,
        step: &GroundTruthCall,
        is_raised: bool,
    ) -> Option<Completion> {
        let tool = format!("{}__{}", self.task.suite.name(), step.tool);
        let sight = |reference: &_| chat.sight(reference);
        // The names of the hidden regions at which the double has to look.
        let mut needed: Vec<String> = Vec::new();
        match step.condition.as_ref().map(|condition| holds(condition, &sight)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return None,
            Some(Err(Sight::Hidden { .. })) if self.guesses(chat) => return None,
            Some(Err(Sight::Hidden { name, .. })) => needed.push(name),
            Some(Err(_)) => return Some(say("I cannot find it.")),
        }
        let mut arguments = Map::new();
        for (name, template) in &step.arguments {
            let value = match compute(template, &sight) {
                ValueOrNeed::Known(value) => value,
                ValueOrNeed::Needs { names, slot: Some(value) } if chat.takes_slot(&tool, name) => {
                    match template.0.as_slice() {
                        // A single field becomes a slot; a longer text is passed on with the placeholders in it.
                        [Piece::Field(_)] => json!({"$slot": {"regions": names}}),
                        _ => value,
                    }
                }
                ValueOrNeed::Needs { .. } if self.guesses(chat) => match guess(template, &sight) {
                    Some(value) => value,
                    // An argument without a guess is omitted.
                    None => continue,
                },
                ValueOrNeed::Needs { names, .. } => {
                    needed.extend(names);
                    continue;
                }
                ValueOrNeed::Missing => return Some(say("I cannot find it.")),
            };
            arguments.insert(name.clone(), value);
        }
        if needed.is_empty() {
            return Some(call(&tool, arguments));
        }
        // The double returns to the lower level after the look if work is left that does not depend on this step: a
        // step after its group (`group_end`), or the reply, which counts as the step after the last one.
        let items = self.task.steps.len() + usize::from(!self.task.tell.is_empty());
        let then_return = !is_raised && group_end(self.task, index) < items;
        Some(self.look(chat, needed, then_return))
    }
}

/// Returns the value of a template with a guess for each hidden field. For a field that is replaced by one of several
/// texts ([`Derivation::Choose`]), the guess is the last of these texts; any other hidden field is left out. The result
/// is `None` if the text is then empty.
fn guess(template: &Template, sight: &dyn Fn(&Reference) -> Sight) -> Option<Value> {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => Some(text.clone()),
        Piece::Field(reference) => {
            match (compute(&Template(vec![piece.clone()]), sight), &reference.derivation) {
                (ValueOrNeed::Known(value), _) => Some(plain_text(&value)),
                (_, Derivation::Choose(choices)) => choices.last().map(|(_, text)| text.clone()),
                _ => None,
            }
        }
    };
    let text: String = template.0.iter().filter_map(piece).collect();
    (!text.is_empty()).then_some(Value::String(text))
}

/// Returns the names of the regions in the arguments of a look; none if the arguments are malformed.
fn looked_at(arguments: &str) -> Vec<String> {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let names = arguments.get("regions").and_then(Value::as_array).cloned().unwrap_or_default();
    names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a message without calls.
pub(super) fn say(text: &str) -> Completion {
    Completion { text: text.to_owned(), ..Completion::default() }
}

/// Returns a message with one call. The conversation assigns ids, so every call may have the same.
pub(super) fn call(name: &str, arguments: Map<String, Value>) -> Completion {
    let arguments = Value::Object(arguments).to_string();
    let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
    Completion { calls: vec![call], ..Completion::default() }
}
