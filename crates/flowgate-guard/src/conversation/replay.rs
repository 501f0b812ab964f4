//! Replays a conversation from its journal: see [`crate::journal`].

use std::fmt;

use flowgate::monitor::AuthorizedCall;

use super::{CallVerdict, Conversation, Need};
use crate::history::lookup::QuotationLookup;
use crate::history::{ClientProfile, History};
use crate::journal::{Input, RecordedNeed};

/// A conversation whose replay diverges: its policy, settings or key changed, or its journal was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayDiverged {
    /// The index of the diverging input, counted from 0.
    pub input: usize,
}

impl fmt::Display for ReplayDiverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the replay of the conversation diverges from input {} on", self.input)
    }
}

impl std::error::Error for ReplayDiverged {}

/// The state of a replay.
struct ReplayState<'a> {
    client: &'a mut ClientProfile,
    history: &'a mut History,
    /// The authorized call, until an input reports its outcome.
    call: Option<AuthorizedCall>,
    judged: Vec<CallVerdict>,
}

impl Conversation {
    /// Replays the recorded inputs of a conversation that had the state of this one. Queries and runs nothing, and
    /// records nothing in the memory of `client`, which the original run did. Returns the judged calls, in order.
    ///
    /// # Errors
    /// If the replay diverges. The conversation is then in an unspecified state and must be discarded.
    pub fn replay(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        inputs: &[Input],
    ) -> Result<Vec<CallVerdict>, ReplayDiverged> {
        let kept = std::mem::take(&mut self.journal);
        let mut again = ReplayState { client, history, call: None, judged: Vec::new() };
        for (index, input) in inputs.iter().enumerate() {
            self.replay_input(&mut again, input).ok_or(ReplayDiverged { input: index })?;
        }
        // Nothing is recorded, but what follows may continue the last texts.
        self.memorize_session(&mut QuotationLookup::from_recorded(again.client, &[]), again.history);
        self.journal = kept;
        Ok(again.judged)
    }

    fn replay_input(&mut self, again: &mut ReplayState<'_>, input: &Input) -> Option<()> {
        let ReplayState { client, history, call, judged } = again;
        // An input that was rejected is rejected again.
        match input {
            Input::Need(met) => {
                let need = self.need();
                if RecordedNeed::of(&need) != *met {
                    return None;
                }
                match need {
                    Need::Run(authorized) => *call = Some(authorized),
                    Need::User(turn) => judged.extend(turn.judged),
                    _ => {}
                }
            }
            Input::Note(role, content) => drop(self.add_context(role, content.clone())),
            Input::User(content) => drop(self.add_user_message(content.clone())),
            Input::Task { content, carries } => drop(self.add_task(content.clone(), carries)),
            Input::GoOn => self.continue_turn(),
            Input::Choose(names) => {
                let label = self.monitor.from_names(names);
                self.choose_label(label);
            }
            Input::Offer(tools) => drop(self.offer_tools(tools.clone())),
            Input::Sampling(sampling) => self.set_sampling(sampling.clone()),
            Input::Recall(record) => drop(self.join_external_state(record)),
            Input::Withdrawn(lines) => drop(self.withdraw_consents(lines)),
            Input::Stamped(stamp) => self.stamp_writes(stamp),
            Input::Sent { kept, rest, seen, sources } => {
                drop(self.replay_chat(client, history, *kept, (rest, sources), seen));
            }
            Input::AnsweredTo(message) => self.replay_answer(history, message),
            Input::Completed(completion) => drop(self.accept_completion(completion.clone())),
            Input::Screened(completion) => self.accept_screening(completion),
            Input::Filled(completion) => self.accept_fill(completion),
            Input::Unfilled => self.fail_fill(),
            Input::Failed => self.fail_completion(),
            Input::Stop => {
                self.stop();
                judged.extend(self.turn.take_judged_calls());
                self.turn.void_approved_calls("");
            }
            Input::Decided(decision) => self.accept_decision(*decision),
            Input::Postponed => judged.extend(self.postpone().judged),
            Input::Resumed { kept, new } => self.replay_resume(history, *kept, new.as_ref()),
            Input::HandOver => self.hand_over(call.take()?),
            Input::Ran(answer) => self.accept_tool_answer(answer.clone()),
        }
        Some(())
    }
}
