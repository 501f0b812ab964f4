//! Executes the inputs of a conversation, such as a message of the model or a person's decision. An input takes effect
//! only through this module, both live and in a replay.
//!
//! [`Conversation::submit`] executes an input and records it in the journal. The public methods of [`super::inputs`]
//! construct inputs and submit them; a [replay](super::replay) executes recorded ones. This module only selects the
//! function that executes an input; the other files of `conversation` implement these functions. Invariant: the effect
//! of an input depends on the conversation, on the content of the input and on its [context](InputContext), and on
//! nothing else.

use flowgate::label::Label;
use flowgate::monitor::{AuthorizedCall, ExternalStateError, PushError};
use flowgate::trace::EventId;

use super::respelled_calls::AlignedChat;
use super::{Conversation, Need, Turn};
use crate::history::lookup::QuotationLookup;
use crate::history::{History, MergeSummary};
use crate::journal::Input;

/// What an input refers to outside the conversation and the journal.
pub(super) enum InputContext<'c, 'm> {
    /// Nothing: the input refers to the conversation alone.
    Conversation,
    /// The history of the chat.
    History(&'c mut History),
    /// The history of the chat, the memory of the client, and the result of comparing the sent chat with the history
    /// (`found`).
    Chat { history: &'c mut History, memory: &'c mut QuotationLookup<'m>, found: AlignedChat },
    /// The history of the chat, and the memory of the client.
    Memory { history: &'c mut History, memory: &'c mut QuotationLookup<'m> },
    /// The evidence that a call may run.
    Call(AuthorizedCall),
}

/// What an input results in.
#[derive(Debug)]
pub(super) enum InputOutcome {
    /// It was executed.
    Executed,
    /// It changes nothing, and is not recorded.
    Unchanged,
    /// It lacks its context, and was not executed.
    Inapplicable,
    /// What the conversation waits for.
    Needed(Need),
    /// A message was added, or the session has no room for it.
    Added(Result<EventId, PushError>),
    /// The tools on offer were replaced, or the session has no room for their descriptions.
    Offered(Result<(), PushError>),
    /// The form of the text was replaced, or the session has no room for its schema.
    Formatted(Result<(), PushError>),
    /// A chat was merged, or the session has no room for it.
    Merged(Result<MergeSummary, PushError>),
    /// An answer was carried over, or the session has no room for its calls.
    Carried(Result<(), PushError>),
    /// The labels of external state were joined, or their record is malformed.
    Joined(Result<(), ExternalStateError>),
    /// The bound of the step that is accepted; `None` if the step has to be rewritten, or none was in progress.
    Accepted(Option<Label>),
    /// The turn so far, which waits for a person.
    Asked(Turn),
}

impl InputOutcome {
    /// Returns the result of an input that adds a message. The outcome of any other input, which no caller passes,
    /// counts as if the session had no room.
    pub(super) fn into_added(self) -> Result<EventId, PushError> {
        if let Self::Added(result) = self { result } else { Err(PushError::Full) }
    }

    /// Returns the result of an offer of tools. Other inputs, and an unchanged offer, count as a success.
    pub(super) fn into_offered(self) -> Result<(), PushError> {
        if let Self::Offered(result) = self { result } else { Ok(()) }
    }

    /// Returns the result of an input that joins external state. Other inputs count as a success.
    pub(super) fn into_joined(self) -> Result<(), ExternalStateError> {
        if let Self::Joined(result) = self { result } else { Ok(()) }
    }

    /// Returns the bound of the accepted step; `None` if no step was accepted.
    pub(super) fn accepted_bound(&self) -> Option<Label> {
        if let Self::Accepted(bound) = self { *bound } else { None }
    }

    /// Returns the turn that waits for a person; an empty one for other inputs.
    pub(super) fn into_asked(self) -> Turn {
        if let Self::Asked(turn) = self { turn } else { Turn::default() }
    }

    /// Returns the result of an answer that is carried over. Other inputs count as a success.
    pub(super) fn into_carried(self) -> Result<(), PushError> {
        if let Self::Carried(result) = self { result } else { Ok(()) }
    }

    /// Returns whether the input is to be recorded in the journal. An input that changed nothing is not recorded. An
    /// [inapplicable](Self::Inapplicable) input is not recorded either, because a replay would stop there.
    pub(super) fn has_changed(&self) -> bool {
        !matches!(self, Self::Unchanged | Self::Inapplicable)
    }
}

impl Conversation {
    /// Executes an input that refers to nothing outside the conversation, and records it if it has an effect.
    pub(super) fn submit(&mut self, input: Input) -> InputOutcome {
        self.submit_with(input, InputContext::Conversation)
    }

    /// Executes an input that refers to something outside the conversation, which `context` has. Records the input if
    /// it has an effect.
    pub(super) fn submit_with(&mut self, input: Input, context: InputContext<'_, '_>) -> InputOutcome {
        let outcome = self.apply(&input, context);
        if outcome.has_changed() {
            self.journal.record(|| input);
        }
        outcome
    }

    /// Executes an input without recording it. Live inputs and replayed ones both take effect here. Some inputs need a
    /// `context`, such as the history of the chat; with another context, they are inapplicable and change nothing.
    pub(super) fn apply(&mut self, input: &Input, context: InputContext<'_, '_>) -> InputOutcome {
        match input {
            // The recorded need is the result of the query: a replay compares it.
            Input::Need(_) => return InputOutcome::Needed(self.next_need()),
            Input::Parameters(parameters) => {
                // The labels and verdicts of earlier events could have depended on the parameters.
                if !self.monitor.trace().is_empty() {
                    return InputOutcome::Inapplicable;
                }
                if !self.monitor.add_parameters(parameters) {
                    return InputOutcome::Unchanged;
                }
            }
            Input::Note(role, content) => {
                return InputOutcome::Added(self.add_message(role, content.clone()));
            }
            Input::User(content) => return InputOutcome::Added(self.begin_user_turn(content.clone())),
            Input::Task { content, carries } => {
                return InputOutcome::Added(self.begin_task(content.clone(), carries));
            }
            Input::GoOn => self.restart_turn(),
            Input::Choose(names) => self.labels.choose(self.monitor.from_names(names)),
            Input::Offer(tools) if self.tools.is_same(tools) => return InputOutcome::Unchanged,
            Input::Offer(tools) => return InputOutcome::Offered(self.replace_tools(tools.clone())),
            Input::Sampling(sampling) if self.settings.sampling == *sampling => {
                return InputOutcome::Unchanged;
            }
            Input::Sampling(sampling) => self.settings.sampling = sampling.clone(),
            Input::Format { format, .. } if self.has_format(format.as_ref()) => {
                return InputOutcome::Unchanged;
            }
            Input::Format { format, .. } => {
                let InputContext::Memory { history, memory } = context else {
                    return InputOutcome::Inapplicable;
                };
                return InputOutcome::Formatted(self.replace_format(memory, history, format.as_ref()));
            }
            Input::Recall(record) => return InputOutcome::Joined(self.monitor.join_external_state(record)),
            Input::Withdrawn(lines) => {
                if !self.monitor.withdraw_consents(lines) {
                    return InputOutcome::Unchanged;
                }
                // A handed-over call may have been permitted by a consent, so it may no longer run outside the chat.
                self.handed.revoke();
            }
            Input::GrantsWithdrawn => {
                if !self.monitor.withdraw_grants() {
                    return InputOutcome::Unchanged;
                }
                // A handed-over call may have been permitted by a grant, so it may no longer run outside the chat.
                self.handed.revoke();
            }
            Input::GrantsWithdrawnFor(digests) => {
                let key = &self.settings.key;
                if !self.monitor.withdraw_grants_if(|call| digests.contains(&key.digest_of(call))) {
                    return InputOutcome::Unchanged;
                }
                // As above, a withdrawn grant may have permitted a handed-over call.
                self.handed.revoke();
            }
            Input::Stamped(stamp) => {
                if !self.monitor.stamp_writes(stamp) {
                    return InputOutcome::Unchanged;
                }
            }
            Input::Sent { kept, rest, sources, .. } => {
                let InputContext::Chat { history, memory, found } = context else {
                    return InputOutcome::Inapplicable;
                };
                // Respelled messages after the first `kept` ones count as unchanged, too.
                let respelled = found.alignment.unchanged.saturating_sub(*kept);
                let Some(rest) = rest.get(respelled..) else { return InputOutcome::Inapplicable };
                let rest = (rest, &sources.starting_at(respelled));
                return InputOutcome::Merged(self.merge_chat(memory, history, found.alignment, rest));
            }
            Input::AnsweredTo(message) => {
                let InputContext::History(history) = context else { return InputOutcome::Inapplicable };
                self.append_answer(history, message);
            }
            Input::Carried { message, tools } => {
                let InputContext::History(history) = context else { return InputOutcome::Inapplicable };
                return InputOutcome::Carried(self.take_carried_answer(history, message, tools));
            }
            Input::CarriedRun { tool, arguments, answer } => {
                return InputOutcome::Carried(self.take_carried_run(tool, arguments, answer.clone()));
            }
            Input::Resumed { kept, new } => {
                let InputContext::History(history) = context else { return InputOutcome::Inapplicable };
                self.resume_turn(history, *kept, new.as_ref());
            }
            Input::Completed(completion) => {
                return InputOutcome::Accepted(self.take_completion(completion.clone()));
            }
            Input::Screened(completion) => self.take_screening(completion),
            Input::Filled(completion) => self.fill_slot(completion),
            Input::Unfilled => self.fail_slot(),
            Input::Failed => self.fail_step(),
            Input::Stop => self.abort_turn(),
            Input::Decided(decision) => self.take_decision(*decision),
            Input::Postponed => return InputOutcome::Asked(self.postpone_turn()),
            Input::HandOver => {
                let InputContext::Call(call) = context else { return InputOutcome::Inapplicable };
                self.hand_over_call(&call);
            }
            Input::Ran(answer) => self.take_tool_answer(answer.clone()),
        }
        InputOutcome::Executed
    }
}
