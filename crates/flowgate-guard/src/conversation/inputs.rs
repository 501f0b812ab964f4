//! Defines the inputs of a conversation, one method of [`Conversation`](super::Conversation) for each.
//!
//! A method constructs an [`Input`] and submits it; [`super::apply`] executes it. The drivers of conversations call
//! these methods: [`crate::agent`], the gateway, the command line and tests.

use std::collections::BTreeSet;

use flowgate::label::Label;
use flowgate::monitor::{AuthorizedCall, ExternalStateError, PushError};
use flowgate::trace::EventId;
use flowgate_lm::chat::{self, Completion, OutputFormat, Sampling};
use serde_json::{Map, Value};

use super::apply::{InputContext, InputOutcome};
use super::redeclared::SentMessages;
use super::{Conversation, Need, ToolAnswer, Turn};
use crate::approve::Decision;
use crate::catalogue::OfferedTool;
use crate::history::lookup::QuotationLookup;
use crate::history::{ClientProfile, History, MergeSummary, SentChat};
use crate::journal::{Input, RecordedNeed};

/// Messages, tools and settings.
impl Conversation {
    /// Adds the operator's instructions.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn add_system_message(&mut self, content: Value) -> Result<EventId, PushError> {
        self.add_context("system", content)
    }

    /// Adds other context, such as retrieved memory, as a message with this role. The policy labels it.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn add_context(&mut self, role: &str, content: Value) -> Result<EventId, PushError> {
        self.submit(Input::Note(role.to_owned(), content)).into_added()
    }

    /// Adds the user's next message and begins a turn. Unfinished work of the previous turn is dropped.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn add_user_message(&mut self, content: Value) -> Result<EventId, PushError> {
        self.submit(Input::User(content)).into_added()
    }

    /// Adds a task from another agent and begins a turn. `carries` is the label of that agent's call, by the names of
    /// its elements. It becomes a lower bound on the label of everything in this conversation.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn add_task(&mut self, content: Value, carries: &Value) -> Result<EventId, PushError> {
        self.submit(Input::Task { content, carries: carries.clone() }).into_added()
    }

    /// Continues a turn that has ended, without another message of the user.
    pub fn continue_turn(&mut self) {
        self.submit(Input::GoOn);
    }

    /// Offers these tools from the next turn on. A changed description is a new event, and labelled again.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn offer_tools(&mut self, tools: Vec<OfferedTool>) -> Result<(), PushError> {
        self.submit(Input::Offer(tools)).into_offered()
    }

    /// Adds parameters of the policy (`input.NAME`) that the caller has, before anything else happens in the
    /// conversation. A parameter that the settings define keeps its value.
    pub fn add_parameters(&mut self, parameters: &Map<String, Value>) {
        self.submit(Input::Parameters(parameters.clone()));
    }

    /// Sets the sampling parameters of the model from now on.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.submit(Input::Sampling(sampling));
    }

    /// Chooses the label of the next step in place of the method, so that a recorded run can be replayed with its
    /// labels. A screener is queried all the same.
    pub fn choose_label(&mut self, label: Label) {
        self.submit(Input::Choose(self.monitor.to_names(&label)));
    }
}

/// State that is shared with other conversations.
impl Conversation {
    /// Marks the stores that were written to since the last call with `stamp`, a text that no other conversation uses.
    /// The stamp is part of the record of the stores' labels, so that a write shows in this record even if it changed
    /// no label.
    pub fn stamp_writes(&mut self, stamp: &str) {
        self.submit(Input::Stamped(stamp.to_owned()));
    }

    /// Raises the labels of the stores by what other conversations of the same tenant have written there since.
    /// `record` has these labels, as
    /// [`Monitor::external_state_record`](flowgate::monitor::Monitor::external_state_record) returned them in another
    /// conversation.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError> {
        self.submit(Input::Recall(record.clone())).into_joined()
    }

    /// From now on, exactly the standing consents on these lines of the policy are withdrawn, and all others apply.
    /// Returns whether that is a change; if so, calls that were permitted but have not run may no longer run.
    pub fn withdraw_consents(&mut self, lines: &BTreeSet<usize>) -> bool {
        self.submit(Input::Withdrawn(lines.clone())).has_changed()
    }
}

/// Approvals that hold for the rest of the conversation.
impl Conversation {
    /// Withdraws all grants of the conversation. Returns whether there was one; if so, calls that a grant permitted but
    /// that have not run may no longer run.
    pub fn withdraw_grants(&mut self) -> bool {
        self.submit(Input::GrantsWithdrawn).has_changed()
    }

    /// Withdraws the grants whose approved calls have these [digests](crate::approve::ApprovalRequest::digest), as
    /// [`withdraw_grants`](Self::withdraw_grants) does with all of them. Returns whether there was one.
    pub fn withdraw_grants_for(&mut self, digests: &BTreeSet<String>) -> bool {
        self.submit(Input::GrantsWithdrawnFor(digests.clone())).has_changed()
    }
}

/// What the conversation waits for ([`Need`]), and the answers to it.
impl Conversation {
    /// Returns the input that the conversation waits for. This query can advance the conversation, so the journal
    /// records it with its result, and a replay must give the same result.
    pub fn need(&mut self) -> Need {
        let need = self.next_need();
        self.journal.record(|| Input::Need(RecordedNeed::of(&need)));
        need
    }

    /// Accepts the model's next message. Returns the [bound](crate::view::View::bound) of the step that is added to the
    /// chat: the step with this message, or the step with the draft that this message was to replace. Returns `None` if
    /// the message is a draft that has to be rewritten from a view at a lower label, or if no message was awaited.
    pub fn accept_completion(&mut self, completion: Completion) -> Option<Label> {
        self.submit(Input::Completed(completion)).accepted_bound()
    }

    /// Reports that the model gave no answer, which ends the current level. A failure on hidden text reveals a fact
    /// about that text, so the conversation continues on the level below if that level was to continue. Otherwise the
    /// turn ends.
    pub fn fail_completion(&mut self) {
        self.submit(Input::Failed);
    }

    /// Accepts the answer of the screener's model.
    pub fn accept_screening(&mut self, completion: &Completion) {
        self.submit(Input::Screened(completion.clone()));
    }

    /// Accepts the text of a slot; anything other than text is dropped.
    pub fn accept_fill(&mut self, completion: &Completion) {
        self.submit(Input::Filled(completion.clone()));
    }

    /// Reports that a slot could not be filled: the call does not run.
    pub fn fail_fill(&mut self) {
        self.submit(Input::Unfilled);
    }

    /// Accepts a person's decision.
    pub fn accept_decision(&mut self, decision: Decision) {
        self.submit(Input::Decided(decision));
    }

    /// Accepts a tool's answer.
    pub fn accept_tool_answer(&mut self, answer: ToolAnswer) {
        self.submit(Input::Ran(answer));
    }

    /// Hands the call that is about [to run](Need::Run) to the caller. The turn [ends](Turn::calls) when all calls of
    /// the message are processed, and continues when the answers are [sent](Conversation::accept_messages).
    pub fn hand_over(&mut self, call: AuthorizedCall) {
        self.submit_with(Input::HandOver, InputContext::Call(call));
    }

    /// Aborts the turn, whatever it waits for.
    pub fn stop(&mut self) {
        self.submit(Input::Stop);
    }

    /// Ends the turn for its caller, and returns what it has produced so far; the [question](Need::Approve) stays open.
    /// The calls of the same message that may run already are handed over later, together with the others, when the
    /// question is answered.
    pub fn postpone(&mut self) -> Turn {
        self.submit(Input::Postponed).into_asked()
    }
}

/// The chat as its caller holds it.
impl Conversation {
    /// Accepts the chat as the caller holds it now, including new messages; the model may answer it. A message that
    /// the caller changed carries at least the label of the message that it replaces.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn accept_messages(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        messages: &[chat::Message],
    ) -> Result<MergeSummary, PushError> {
        // The chat holds all messages in full, so `accept_chat` does not return `None`.
        Ok(self.accept_chat(client, history, &SentChat::of(messages))?.unwrap_or_default())
    }

    /// Accepts a chat whose digests are computed already, as [`accept_messages`](Self::accept_messages) does. Does
    /// nothing and returns `None` if the history lacks a message that `chat` has only as a digest.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn accept_chat(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        chat: &SentChat<'_>,
    ) -> Result<Option<MergeSummary>, PushError> {
        let certain = chat.certain_count();
        // The declared sources of the messages that the chat has in full.
        let declared = chat.sources_after(chat.digest_only_count());
        let found = self.align_chat(history, &SentMessages::of(chat, &declared), client);
        // The input leaves out only the messages that have the digests of the history. It contains the messages that
        // differ from the history only in the spelling of their calls, so that a replay recognises these as well.
        let kept = found.same;
        let Some(rest) = chat.messages_after(kept) else { return Ok(None) };
        let mut memory = QuotationLookup::live(client);
        let (rest, sources) = (rest.to_vec(), chat.sources_after(kept));
        let mut input = Input::Sent { kept, certain, rest, seen: Vec::new(), sources };
        let context = InputContext::Chat { history, memory: &mut memory, found };
        let InputOutcome::Merged(merged) = self.apply(&input, context) else { return Ok(None) };
        // The answers of the client's memory are part of the input, so that a replay needs no memory. They are known
        // only now, so the input is recorded here and not by `submit`. `bits` bounds what these answers can reveal
        // about remembered texts.
        let bits = memory.bits();
        if let Input::Sent { seen, .. } = &mut input {
            *seen = memory.into_answers();
        }
        self.journal.record(|| input);
        merged.map(|sent| Some(MergeSummary { bits, ..sent }))
    }

    /// Sets the form that the model's text must have from now on; `None` permits any form. The policy labels a schema
    /// as a message of the role [`FORMAT_ROLE`](crate::FORMAT_ROLE). If the schema quotes texts that the client was
    /// shown, it also carries the labels of these texts. Returns an upper bound on the bits that the label of the
    /// schema reveals about remembered texts.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn set_output_format(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        format: Option<OutputFormat>,
    ) -> Result<u32, PushError> {
        let mut memory = QuotationLookup::live(client);
        let mut input = Input::Format { format, seen: Vec::new() };
        let context = InputContext::Memory { history, memory: &mut memory };
        // Another outcome means that the form is the same as before: nothing is recorded.
        let InputOutcome::Formatted(outcome) = self.apply(&input, context) else { return Ok(0) };
        let bits = memory.bits();
        // As for a chat, the answers of the client's memory are known only now.
        if let Input::Format { seen, .. } = &mut input {
            *seen = memory.into_answers();
        }
        self.journal.record(|| input);
        outcome.map(|()| bits)
    }

    /// Records the answer that the caller received in this turn. The history recognises it from now on, and a quotation
    /// of it carries its label in all sessions of the client.
    pub fn record_answer(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        message: &chat::Message,
    ) {
        self.submit_with(Input::AnsweredTo(message.clone()), InputContext::History(history));
        self.memorize(client, history);
    }

    /// Continues the turn that waits for a person, if the chat repeats the previous request or asks to continue.
    /// Returns whether the turn continues; if so, the caller passes in the [decision](Self::accept_decision) next. The
    /// history adopts the chat.
    pub fn try_resume(&mut self, history: &mut History, chat: &SentChat<'_>) -> bool {
        let Some((kept, new)) = self.find_resumption(history, chat) else { return false };
        let input = Input::Resumed { kept, new: new.cloned() };
        self.submit_with(input, InputContext::History(history)).has_changed()
    }
}
