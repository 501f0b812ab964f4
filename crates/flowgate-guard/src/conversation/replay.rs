//! Replays a conversation from its journal: applies the recorded inputs in order, without querying a model or running a
//! tool. Stops with [`ReplayDiverged`] at the first input that is not possible in the state, or at which the
//! conversation waits for something other than what was recorded. The gateway restores stored conversations this way
//! and checks verdicts again. See [`crate::journal`] for the recording.

use std::fmt;

use flowgate::monitor::AuthorizedCall;

use super::apply::{InputContext, InputOutcome};
use super::redeclared::SentMessages;
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
        write!(
            f,
            "the replay of the conversation diverges at input {}, which had another result when it was \
            recorded: the policy, the settings or the key changed, or the journal was altered; replay it with \
            the policy, the settings and the key of the recording",
            self.input
        )
    }
}

impl std::error::Error for ReplayDiverged {}

/// The state of a replay.
struct ReplayState<'a> {
    client: &'a mut ClientProfile,
    history: &'a mut History,
    /// The authorized call, until an input reports its outcome.
    call: Option<AuthorizedCall>,
    /// The verdicts on the calls of the turns that are replayed already.
    judged: Vec<CallVerdict>,
}

impl Conversation {
    /// Replays the recorded inputs of a conversation that began in the state of this one. Queries no model and runs
    /// no tool. Adds nothing to the memory of `client`, to which the original run has added the texts already.
    /// Returns the judged calls, in order.
    ///
    /// # Errors
    /// If the replay diverges. The conversation is then in an unspecified state and must be discarded.
    pub fn replay(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        inputs: &[Input],
    ) -> Result<Vec<CallVerdict>, ReplayDiverged> {
        let journal = std::mem::take(&mut self.journal);
        let mut state = ReplayState { client, history, call: None, judged: Vec::new() };
        for (index, input) in inputs.iter().enumerate() {
            self.replay_input(&mut state, input).ok_or(ReplayDiverged { input: index })?;
        }
        // Updates only the history, by which quotations in the next live message are labelled. The client's memory has
        // these texts already: a lookup of recorded answers adds nothing to it.
        self.memorize_session(&mut QuotationLookup::from_recorded(state.client, &[]), state.history);
        self.journal = journal;
        Ok(state.judged)
    }

    /// Applies one input. Returns `None` if the input is not possible in this state, or if the conversation waits for
    /// something other than what was recorded ([`Input::Need`]). The results of other inputs are not compared: their
    /// changes show in what the conversation waits for next. `state` collects the verdicts, and has the call that
    /// waits to be handed over.
    fn replay_input(&mut self, state: &mut ReplayState<'_>, input: &Input) -> Option<()> {
        let ReplayState { client, history, call, judged } = state;
        let outcome = match input {
            Input::Sent { kept, certain, rest, seen, sources } => {
                let digests = history.digests_with(*kept, rest);
                let chat = SentMessages { digests: &digests, certain: *certain, messages: rest, sources };
                let found = self.align_chat(history, &chat, client);
                // The history is the one of the original run, so exactly its `kept` messages must be unchanged.
                if found.same != *kept {
                    return None;
                }
                let memory = &mut QuotationLookup::from_recorded(client, seen);
                self.apply(input, InputContext::Chat { history, memory, found })
            }
            Input::Format { seen, .. } => {
                let memory = &mut QuotationLookup::from_recorded(client, seen);
                self.apply(input, InputContext::Memory { history, memory })
            }
            Input::AnsweredTo(_) | Input::Carried { .. } | Input::Resumed { .. } => {
                self.apply(input, InputContext::History(history))
            }
            Input::HandOver => self.apply(input, InputContext::Call(call.take()?)),
            _ => self.apply(input, InputContext::Conversation),
        };
        match (input, outcome) {
            (_, InputOutcome::Inapplicable | InputOutcome::Carried(Err(_))) => return None,
            (Input::Need(recorded), InputOutcome::Needed(need)) => {
                if RecordedNeed::of(&need) != *recorded {
                    return None;
                }
                match need {
                    Need::Run(authorized) => *call = Some(authorized),
                    Need::User(turn) => judged.extend(turn.judged),
                    _ => {}
                }
            }
            // The caller of the original run took the judged calls and approvals of the aborted turn.
            (Input::Stop, _) => {
                judged.extend(self.turn.take_judged_calls());
                // Only the state of the turn is reset: the result is not used, so the cause may be empty.
                self.turn.void_approved_calls("");
            }
            (_, InputOutcome::Asked(turn)) => judged.extend(turn.judged),
            _ => {}
        }
        Some(())
    }
}
