//! Replays a conversation from its journal: see [`crate::journal`].

use std::fmt;

use flowgate::monitor::Authorized;

use super::{Conversation, Judged, Need};
use crate::history::memory::Memory;
use crate::history::{Client, History};
use crate::journal::{Input, Met};

/// A conversation whose replay diverges: its policy, settings or key changed, or its journal was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diverged {
    /// The index of the diverging input, counted from 0.
    pub input: usize,
}

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the conversation does not come to the same as it did, from input {} on", self.input)
    }
}

impl std::error::Error for Diverged {}

/// The state of a replay.
struct Again<'a> {
    client: &'a mut Client,
    history: &'a mut History,
    /// The authorized call, until an input reports its outcome.
    call: Option<Authorized>,
    judged: Vec<Judged>,
}

impl Conversation {
    /// Records inputs from now on, to be [taken](Self::inputs).
    pub fn keep_inputs(&mut self) {
        self.inputs.get_or_insert_default();
    }

    /// Takes the inputs recorded since the last call.
    pub fn inputs(&mut self) -> Vec<Input> {
        self.inputs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether inputs were recorded since they were last taken.
    pub fn has_inputs(&self) -> bool {
        self.inputs.as_ref().is_some_and(|inputs| !inputs.is_empty())
    }

    pub(super) fn put(&mut self, input: impl FnOnce() -> Input) {
        if let Some(inputs) = &mut self.inputs {
            inputs.push(input());
        }
    }

    /// Replays the recorded inputs of a conversation that had the state of this one. Queries and runs nothing, and
    /// records nothing in the memory of `client`, which the original run did. Returns the judged calls, in order.
    ///
    /// # Errors
    /// If the replay diverges. The conversation is then in an unspecified state and must be discarded.
    pub fn again(
        &mut self,
        client: &mut Client,
        history: &mut History,
        inputs: &[Input],
    ) -> Result<Vec<Judged>, Diverged> {
        let kept = self.inputs.take();
        let mut again = Again { client, history, call: None, judged: Vec::new() };
        for (index, input) in inputs.iter().enumerate() {
            self.put_again(&mut again, input).ok_or(Diverged { input: index })?;
        }
        // Nothing is recorded, but what follows may continue the last texts.
        self.tell_memory(&mut Memory::again(again.client, &[]), again.history);
        self.inputs = kept;
        Ok(again.judged)
    }

    fn put_again(&mut self, again: &mut Again<'_>, input: &Input) -> Option<()> {
        let Again { client, history, call, judged } = again;
        // An input that was rejected is rejected again.
        match input {
            Input::Need(met) => {
                let need = self.need();
                if Met::of(&need) != *met {
                    return None;
                }
                match need {
                    Need::Run(authorized) => *call = Some(authorized),
                    Need::User(turn) => judged.extend(turn.judged),
                    _ => {}
                }
            }
            Input::Note(role, content) => drop(self.note(role, content.clone())),
            Input::User(content) => drop(self.user(content.clone())),
            Input::Task { content, carries } => drop(self.task(content.clone(), carries)),
            Input::GoOn => self.go_on(),
            Input::Choose(names) => {
                let label = self.monitor.from_names(names);
                self.choose(label);
            }
            Input::Offer(tools) => drop(self.offer(tools.clone())),
            Input::Sampling(sampling) => self.set_sampling(sampling.clone()),
            Input::Recall(record) => drop(self.recall(record)),
            Input::Withdrawn(lines) => drop(self.withdraw(lines)),
            Input::Stamped(stamp) => self.stamp(stamp),
            Input::Sent { kept, rest, seen, sources } => {
                drop(self.sent_again(client, history, *kept, (rest, sources), seen));
            }
            Input::AnsweredTo(message) => self.answered_again(history, message),
            Input::Completed(completion) => drop(self.completed(completion.clone())),
            Input::Screened(completion) => self.screened(completion),
            Input::Filled(completion) => self.filled(completion),
            Input::Unfilled => self.unfilled(),
            Input::Failed => self.failed(),
            Input::Stop => {
                self.stop();
                judged.extend(self.judged());
                self.give_up_approved("");
            }
            Input::Decided(decision) => self.decided(*decision),
            Input::Postponed => judged.extend(self.postpone().judged),
            Input::Resumed { kept, new } => self.resume_again(history, *kept, new.as_ref()),
            Input::HandOver => self.hand_over(call.take()?),
            Input::Ran(answer) => self.ran(answer.clone()),
        }
        Some(())
    }
}
