//! Carries a conversation over to another policy: processes its recorded inputs again, turn by turn, in a new
//! conversation under the new policy. The gateway does this after the policy of a client has changed.
//!
//! The new policy labels what the client and the tools wrote. A message of the model carries the join of the labels of
//! everything before it, because the journal does not say which regions the model was shown. The calls of the message
//! were permitted by the earlier policy and count as run; no permit and no approval is carried over. What the calls
//! wrote to external state keeps the labels that the earlier policy gave it.
//!
//! The recorded inputs do not contain what happened outside the chat, such as a call that the client ran through the
//! gateway's MCP proxy. The caller repeats each such event between the inputs where it happened, as in a replay. If the
//! event is a call that the model's last message had handed to the client, the caller takes it with
//! [`Conversation::take_earlier_handed_over_call`].
//!
//! The journal of the new conversation records the carried turns as [`Input::Carried`], [`Input::CarriedRun`] and the
//! inputs of the client, so that a replay needs the new policy alone.

use std::fmt;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, PushError};
use flowgate::trace::{Call, EventId, Tool, TraceEntry};
use flowgate_lm::chat::{Message, OutputFormat, Sources, ToolCall};

use super::apply::{InputContext, InputOutcome};
use super::redeclared::SentMessages;
use super::{Conversation, ConversationPhase, ToolAnswer};
use crate::history::lookup::{QuotationLookup, TextQuotations};
use crate::history::{ClientProfile, History, HistoryMessage};
use crate::journal::{Input, RecordedNeed};
use crate::redact::HiddenRegions;
use crate::view::{CallOutcome, ConversationItem, ModelStep, StepCall};

/// The conversation cannot be carried over to another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarryOverError {
    /// A turn has an input that the client did not send in its chat, such as a task of another agent.
    Unsupported,
    /// The chat and the journal disagree, so the journal belongs to another conversation.
    Inconsistent,
    /// The session has no room for the chat, or the labels of external state cannot be read.
    Rejected,
}

impl fmt::Display for CarryOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => {
                "the conversation has an input that the client did not send in its chat, such as a task of another \
                agent; start a new conversation"
            }
            Self::Inconsistent => {
                "the recorded inputs do not match the chat, so they belong to another conversation; start a new \
                conversation"
            }
            Self::Rejected => {
                "the session has no room for the chat, or the labels of external state cannot be read; \
                start a new conversation"
            }
        })
    }
}

impl std::error::Error for CarryOverError {}

impl From<PushError> for CarryOverError {
    fn from(_: PushError) -> Self {
        Self::Rejected
    }
}

impl Conversation {
    /// Processes the inputs of one turn of another conversation under the policy of this one. The caller passes the
    /// turns in their order. Queries no model, runs no tool and asks no person. The texts of the turn are added to the
    /// memory of `client` with their new labels; the caller has loaded into that memory what the client was shown in
    /// other conversations. `tool_of` returns the tool that a name in a message of the client means.
    ///
    /// # Errors
    /// If the turn cannot be carried over. The conversation is then in an unspecified state and must be discarded.
    pub fn carry_over(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        turn: &[Input],
        tool_of: &dyn Fn(&str) -> Tool,
    ) -> Result<(), CarryOverError> {
        // The tool and the arguments of the call that runs without the client; the next [`Input::Ran`] has its answer.
        let mut running: Option<(&str, &str)> = None;
        for input in turn {
            match input {
                Input::Sent { kept, certain, rest, seen, sources } => {
                    self.carry_chat(client, history, (*kept, *certain), (rest, sources, seen))?;
                }
                // The client continued a turn that waited for a person: its chat, and what it wrote to continue. All
                // kept messages are certain, since the earlier conversation has compared them with its history already.
                // The input has recorded no sources and no quotations of the new message.
                Input::Resumed { kept, new } => {
                    self.carry_chat(
                        client,
                        history,
                        (*kept, *kept),
                        (new.as_slice(), &Sources::default(), &[]),
                    )?;
                }
                Input::AnsweredTo(message) => {
                    let tools = called_tools(message, tool_of);
                    self.carry_answer(client, history, Input::Carried { message: message.clone(), tools })?;
                }
                Input::Carried { .. } => self.carry_answer(client, history, input.clone())?,
                Input::Offer(tools) => self.offer_tools(tools.clone())?,
                Input::Format { format, seen } => {
                    self.carry_format(client, history, (format.as_ref(), seen))?;
                }
                Input::Parameters(parameters) => self.add_parameters(parameters),
                Input::Note(role, content) => drop(self.add_context(role, content.clone())?),
                Input::Recall(record) => {
                    self.join_external_state(record).map_err(|_| CarryOverError::Rejected)?;
                }
                Input::Need(RecordedNeed::Run { tool, arguments }) => running = Some((tool, arguments)),
                Input::Ran(answer) => {
                    // The record of a call has the tool as a text. A `/` in it may follow the name of a server, or be a
                    // part of the name of a local tool, so such a call cannot be carried over.
                    let (tool, arguments) = running
                        .take()
                        .filter(|(tool, _)| !tool.contains('/'))
                        .ok_or(CarryOverError::Unsupported)?;
                    let (tool, arguments) = ((None, tool.to_owned()), arguments.to_owned());
                    self.carry_run(
                        client,
                        history,
                        Input::CarriedRun { tool, arguments, answer: answer.clone() },
                    )?;
                }
                Input::CarriedRun { .. } => self.carry_run(client, history, input.clone())?,
                Input::User(_) | Input::Task { .. } | Input::GoOn => {
                    return Err(CarryOverError::Unsupported);
                }
                Input::HandOver => running = None,
                // These inputs say what the earlier policy decided and how the model reached its answer. They are left
                // out: the carried answer has the join of the labels of everything before it.
                Input::Need(_)
                | Input::Choose(_)
                | Input::Sampling(_)
                | Input::Withdrawn(_)
                | Input::GrantsWithdrawn
                | Input::GrantsWithdrawnFor(_)
                | Input::Stamped(_)
                | Input::Completed(_)
                | Input::Screened(_)
                | Input::Filled(_)
                | Input::Unfilled
                | Input::Failed
                | Input::Stop
                | Input::Decided(_)
                | Input::Postponed => {}
            }
        }
        Ok(())
    }

    /// Merges a chat that the client sent, and records it in the journal. The first `kept` messages of the chat are
    /// those of the history. The first `certain` of these are not in doubt: the client named the answer that it
    /// continues, or continued a turn that waited for a person. `rest` are the messages after the first `kept`,
    /// `sources` are the declared sources of the parts of `rest`, and `seen` are the quotations that were found in
    /// `rest` under the earlier policy.
    fn carry_chat(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        (kept, certain): (usize, usize),
        (rest, sources, seen): (&[Message], &Sources, &[TextQuotations]),
    ) -> Result<(), CarryOverError> {
        let digests = history.digests_with(kept, rest);
        let chat = SentMessages { digests: &digests, certain, messages: rest, sources };
        let found = self.align_chat(history, &chat, client);
        // The history is the one that the earlier conversation had, so exactly its `kept` messages must be unchanged.
        if digests.len() != kept + rest.len() || found.same != kept {
            return Err(CarryOverError::Inconsistent);
        }
        let mut memory = QuotationLookup::live_after(client, seen);
        let (rest, sources) = (rest.to_vec(), sources.clone());
        let mut input = Input::Sent { kept, certain, rest, seen: Vec::new(), sources };
        let context = InputContext::Chat { history, memory: &mut memory, found };
        // The quotations that the memory finds are known only after the input was applied, so the input is recorded
        // below.
        let InputOutcome::Merged(merged) = self.apply(&input, context) else {
            return Err(CarryOverError::Inconsistent);
        };
        if let Input::Sent { seen, .. } = &mut input {
            *seen = memory.into_answers();
        }
        self.journal.record(|| input);
        merged?;
        Ok(())
    }

    /// Sets the form of the model's text, and records the form in the journal with the quotations that the memory of
    /// `client` finds in its schema. `seen` are the quotations that were found under the earlier policy.
    fn carry_format(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        (format, seen): (Option<&OutputFormat>, &[TextQuotations]),
    ) -> Result<(), CarryOverError> {
        let mut memory = QuotationLookup::live_after(client, seen);
        let mut input = Input::Format { format: format.cloned(), seen: Vec::new() };
        let context = InputContext::Memory { history, memory: &mut memory };
        // Another outcome means that the form is the same as before: nothing is recorded.
        let InputOutcome::Formatted(formatted) = self.apply(&input, context) else { return Ok(()) };
        if let Input::Format { seen, .. } = &mut input {
            *seen = memory.into_answers();
        }
        self.journal.record(|| input);
        formatted?;
        Ok(())
    }

    /// Adds an answer of the model to the conversation, and records its texts in the memory of the client. `answer` is
    /// an [`Input::Carried`].
    fn carry_answer(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        answer: Input,
    ) -> Result<(), CarryOverError> {
        self.submit_with(answer, InputContext::History(history)).into_carried()?;
        self.memorize(client, history);
        Ok(())
    }

    /// Adds a call that ran without the client to the conversation, and records the texts of the call and of its answer
    /// in the memory of the client. `run` is an [`Input::CarriedRun`].
    fn carry_run(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        run: Input,
    ) -> Result<(), CarryOverError> {
        self.submit(run).into_carried()?;
        self.memorize(client, history);
        Ok(())
    }

    /// Adds a step that the model wrote under another policy: one call, which ran without the client, and the answer of
    /// its tool. The tool is given by its server (`None` for a local tool) and its name. The present policy labels the
    /// answer. The text of the step is not known here: what the client received of this text is part of the carried
    /// answer that follows.
    ///
    /// # Errors
    /// If the session has no room for the call or its answer.
    pub(super) fn take_carried_run(
        &mut self,
        (server, name): &(Option<String>, String),
        arguments: &str,
        answer: ToolAnswer,
    ) -> Result<(), PushError> {
        let label = self.label_of_everything();
        self.labels.record_carried_step(&label);
        let tool = server.as_ref().map_or_else(|| Tool::local(name), |server| Tool::of(server, name));
        let id = self.next_id(&label);
        let shown_name = self.tools.catalogue().name_of(&tool).unwrap_or(name).to_owned();
        let event = self.record_carried_call(&id, tool, arguments)?;
        let call = ToolCall { id, name: shown_name, arguments: arguments.to_owned() };
        self.items.push(ConversationItem::Step(ModelStep {
            label,
            bound: label,
            names: HiddenRegions::default(),
            text: String::new(),
            calls: vec![StepCall { call, answer: CallOutcome::HandedOver(event) }],
            thoughts: Vec::new(),
        }));
        let count = self.monitor.trace().len();
        // The call is the first and only one of its step.
        self.record_answer_event(0, event, answer);
        self.step.clear();
        self.labels.end_all();
        // The earlier conversation has reported what the turn produced.
        drop(self.turn.finish());
        self.phase = ConversationPhase::User;
        // If the session has no room for the answer, no event was added. The caller then discards the conversation.
        if self.monitor.trace().len() == count { Err(PushError::Full) } else { Ok(()) }
    }

    /// Adds a message that the model wrote under another policy, with its calls as handed over, and ends the turn.
    /// `tools` has one pair for each call of the message: the server of the tool (`None` for a local tool), and the
    /// name. Does nothing if the message is not one of the model.
    ///
    /// # Errors
    /// If the session has no room for a call.
    pub(super) fn take_carried_answer(
        &mut self,
        history: &mut History,
        message: &Message,
        tools: &[(Option<String>, String)],
    ) -> Result<(), PushError> {
        let Message::Assistant { text, calls, thoughts } = message else { return Ok(()) };
        let label = self.label_of_everything();
        if !text.is_empty() {
            // Rules over the history read what the model wrote. Their findings are ignored: the earlier policy has
            // decided on this text.
            let written = flowgate::trace::Message::new("assistant", text.as_str());
            self.monitor.push_generated(TraceEntry::from(written), label)?;
        }
        self.labels.record_carried_step(&label);
        let mut step_calls = Vec::with_capacity(calls.len());
        // The ids of the calls in the trace of this conversation.
        let mut ids = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let tool = match tools.get(index) {
                Some((Some(server), name)) => Tool::of(server, name),
                Some((None, name)) => Tool::local(name),
                None => Tool::local(&call.name),
            };
            let is_used = self.monitor.trace().calls_with_id(&call.id).next().is_some();
            let id = if is_used { self.next_id(&label) } else { call.id.clone() };
            // The model calls the tool by its name in the catalogue, which may differ from the client's.
            let name = self.tools.catalogue().name_of(&tool).unwrap_or(&call.name).to_owned();
            let event = self.record_carried_call(&id, tool, &call.arguments)?;
            ids.push(id);
            let call = ToolCall { name, ..call.clone() };
            step_calls.push(StepCall { call, answer: CallOutcome::HandedOver(event) });
        }
        self.items.push(ConversationItem::Step(ModelStep {
            label,
            bound: label,
            names: HiddenRegions::default(),
            text: text.clone(),
            calls: step_calls,
            thoughts: thoughts.clone(),
        }));
        history.push_message(HistoryMessage::new(message, label, self.items.len()).into_written());
        // The client may know the calls by other ids. The calls were permitted by another policy, so they may not run
        // outside the chat.
        self.handed.deliver(message, ids);
        self.handed.end_earlier();
        self.step.clear();
        self.labels.end_all();
        // The earlier conversation has already reported what the turn produced.
        drop(self.turn.finish());
        self.phase = ConversationPhase::User;
        Ok(())
    }

    /// Records a call that the earlier policy permitted, as influenced by everything before it.
    fn record_carried_call(&mut self, id: &str, tool: Tool, arguments: &str) -> Result<EventId, PushError> {
        let call = Call::from_json(id, tool, arguments);
        let recorded = self.monitor.record_earlier(TraceEntry::from(call), &Attribution::everything());
        recorded.event.ok_or(PushError::Full)
    }

    /// Returns the join of the labels of everything that this conversation contains, or contained before its client
    /// changed the chat.
    fn label_of_everything(&self) -> Label {
        let top = self.monitor.policy().space().top();
        let trace = self.monitor.trace();
        // For each event: its own label, the label of the verdict on it (if it is a call), and the label of its
        // existence.
        let events = trace.events().iter().enumerate().map(|(index, event)| {
            event.label.join(&event.decided).join(&trace.existence_label(EventId(index)))
        });
        let described = self.tools.catalogue().view_label(&self.monitor, &top);
        let format =
            self.format.as_ref().map_or(Label::BOTTOM, |format| format.view_label(&self.monitor, &top));
        // `least` bounds the label of everything in this conversation from below.
        events.fold(self.labels.least().join(&described).join(&format), |all, label| all.join(&label))
    }
}

/// Returns the tool of each call of a message as [`Input::Carried`] has it: the server (`None` for a local tool), and
/// the name. The list is empty for a message that is not the model's.
fn called_tools(message: &Message, tool_of: &dyn Fn(&str) -> Tool) -> Vec<(Option<String>, String)> {
    let Message::Assistant { calls, .. } = message else { return Vec::new() };
    let server_and_name = |tool: Tool| (tool.server.as_deref().map(str::to_owned), (*tool.name).to_owned());
    calls.iter().map(|call| server_and_name(tool_of(&call.name))).collect()
}
