//! A guarded conversation: RTBAS's Algorithm 4 as a state machine without I/O.
//!
//! The machine reports what it [needs](Need) next: the model's next message, the text of a slot, a person's decision,
//! a tool's answer. Its driver ([`crate::agent`], a gateway, a test) obtains that input and passes it in. One piece
//! of code therefore decides what the model is shown and which calls run, wherever models and tools are hosted.
//!
//! **Lowest first.** A step is shown what flows to the strictest requirement of the tools on offer. The model
//! requests more with [`look`](crate::slot::LOOK), which raises the label of the following steps: it pushes a *level*
//! onto the current one, and the level ends when the model writes a message without calls there. Nothing that happens
//! on a level is shown below it. Hidden text therefore does not influence a lower step: neither its calls, their
//! order and their number, nor whether there is one.

mod apply;
mod calls;
mod draft;
mod hand_over;
mod handed_over_calls;
mod hidden_items;
mod inputs;
mod merge;
mod messages;
mod need;
mod outside_chat;
mod pending_step;
mod phase;
mod postpone;
mod replay;
mod running_turn;
mod settings;
mod slot_copy;
mod step_labels;
mod tool_offer;
mod turn;
mod unique_numbers;

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{EventFinding, Monitor, PushError, ReasonKind};
use flowgate::trace::{EventBody, Message, TraceEntry};
use flowgate_lm::chat::Completion;
use serde_json::Value;

pub use crate::method::Method;
pub use hidden_items::{HiddenItem, HiddenItemKind, HidingCause};
pub use need::{Need, ToolAnswer};
pub use postpone::CONTINUE;
pub use replay::ReplayDiverged;
pub use running_turn::RunningTurn;
pub use settings::ConversationSettings;
pub use turn::{CallVerdict, HandedOverCall, ModelReply, Turn, TurnEnd, TurnUsage, VoidedCall};

use crate::approve::Decision;
use crate::catalogue::OfferedTool;
use crate::clearance::EndpointClearances;
use crate::journal::Journal;
use crate::links;
use crate::method::draft::DraftJudge;
use crate::placeholder;
use crate::redact::{HiddenRegion, HiddenRegions};
use crate::screener::TaggedChat;
use crate::view::{
    CallOutcome, ConversationItem, ConversationItems, ModelStep, StepCall, View, ViewBuilder, ViewPrefix,
};

use handed_over_calls::HandedOverCalls;
use pending_step::PendingStep;
use phase::ConversationPhase;
use step_labels::StepLabels;
use tool_offer::ToolOffer;
use unique_numbers::UniqueNumbers;

/// A guarded conversation with a model.
#[derive(Debug)]
pub struct Conversation {
    monitor: Monitor,
    settings: ConversationSettings,
    clearance: EndpointClearances,
    tools: ToolOffer,
    items: ConversationItems,
    /// The next action.
    phase: ConversationPhase,
    /// The labels of the steps of this turn.
    labels: StepLabels,
    /// The step in progress.
    step: PendingStep,
    /// The judge of drafts, if the method drafts.
    drafts: Option<Box<dyn DraftJudge>>,
    /// What this turn has produced so far.
    turn: RunningTurn,
    /// The calls that the caller runs itself.
    handed: HandedOverCalls,
    numbers: UniqueNumbers,
    /// The inputs since they were last taken.
    journal: Journal,
}

impl Conversation {
    /// Creates a conversation under the policy of `monitor`, in which the model may call these tools.
    ///
    /// # Errors
    /// If the session has no room for the tool descriptions of servers.
    pub fn new(
        mut monitor: Monitor,
        tools: Vec<OfferedTool>,
        settings: ConversationSettings,
    ) -> Result<Self, PushError> {
        let tools = ToolOffer::new(&mut monitor, tools)?;
        let clearance = EndpointClearances::of(&monitor);
        let strictest = tools.strictest_requirement(&monitor);
        let base = monitor.policy().space().greatest_below(&strictest, &clearance.model);
        let drafts = settings.method.start_drafts();
        Ok(Self {
            monitor,
            settings,
            clearance,
            tools,
            items: ConversationItems::default(),
            phase: ConversationPhase::User,
            labels: StepLabels::new(base),
            step: PendingStep::default(),
            drafts,
            turn: RunningTurn::default(),
            handed: HandedOverCalls::default(),
            numbers: UniqueNumbers::default(),
            journal: Journal::default(),
        })
    }

    /// The monitor, which holds the labels and the trace.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The recorded inputs.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The recorded inputs, to start the record or to take it.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// The lowest label of a step.
    pub fn base_label(&self) -> &Label {
        self.labels.base()
    }

    /// Continues a turn that has ended.
    fn restart_turn(&mut self) {
        if self.is_turn_over() {
            self.labels.restart_levels();
            self.start_generating();
        }
    }

    /// Whether the turn is complete and the next input is the user's message.
    pub fn is_turn_over(&self) -> bool {
        matches!(self.phase, ConversationPhase::User) && self.step.view().is_none()
    }

    /// Returns the view of the next step at `label`.
    pub fn view_at(&self, label: Label) -> View {
        self.view_builder(None).build(label)
    }

    fn view_builder<'c>(&'c self, tag: Option<(&'c str, Label)>) -> ViewBuilder<'c> {
        ViewBuilder {
            monitor: &self.monitor,
            catalogue: self.tools.catalogue(),
            items: &self.items,
            sampling: &self.settings.sampling,
            roster: self.turn.roster.as_deref(),
            can_look: self.settings.method.has_look(),
            can_slot: self.settings.method.has_slots(),
            tag,
        }
    }

    /// Advances to the next need.
    fn next_need(&mut self) -> Need {
        if let Some(view) = self.step.view() {
            return Need::Complete(view.clone());
        }
        loop {
            let need = match std::mem::replace(&mut self.phase, ConversationPhase::User) {
                ConversationPhase::User => return Need::User(self.turn.finish()),
                ConversationPhase::Generate => self.next_generation(),
                // Without an answer, every region counts as needed.
                ConversationPhase::Screening(names) => {
                    let label = self.needed_label(&names, None);
                    let label = self.labels.take_chosen().unwrap_or(label);
                    Some(self.show_screened(label))
                }
                ConversationPhase::Filtering => {
                    self.turn.roster = Some(Vec::new());
                    self.phase = ConversationPhase::Generate;
                    None
                }
                ConversationPhase::Showing(label) => {
                    let label = self.labels.take_chosen().unwrap_or(label);
                    Some(self.show_screened(label))
                }
                ConversationPhase::Calls(index) => self.process_call(index),
                ConversationPhase::Filling(filling) => self.fill_next_slot(*filling),
                ConversationPhase::Redeeming { index, permit } => self.redeem_permit(index, *permit),
                // Without an answer, the decision is no, and a tool that was started may have done anything.
                ConversationPhase::Asking { index, question } => {
                    self.refuse_unapproved(index, &question, Decision::Silent);
                    None
                }
                ConversationPhase::Running { index, event } => {
                    self.turn.void_approval("the tool gave no answer");
                    self.record_answer_event(index, event, ToolAnswer::error("the tool gave no answer"));
                    None
                }
            };
            if let Some(need) = need {
                return need;
            }
        }
    }

    fn next_generation(&mut self) -> Option<Need> {
        let level = self.labels.level()?;
        if self.turn.outcome.spent.messages >= self.settings.messages {
            self.labels.end_all();
            self.end_level(Some(TurnEnd::Steps));
            return None;
        }
        if level.steps >= self.settings.steps {
            self.end_level(Some(TurnEnd::Steps));
            return None;
        }
        // As if the model wrote a message without calls there. No lower step observes the difference.
        if !level.label.flows_to(&self.clearance.model) {
            self.end_level(Some(TurnEnd::Clearance));
            return None;
        }
        if let Some(selector) = self.settings.method.tool_selector().filter(|_| self.turn.roster.is_none()) {
            let most = self.monitor.policy().space().greatest_below(&level.label, &self.clearance.screener);
            self.phase = ConversationPhase::Filtering;
            return Some(Need::Screen(selector.question(Arc::unwrap_or_clone(self.view_at(most).request))));
        }
        self.labels.count_step();
        let seen = || self.monitor.trace().events().last().map_or(Label::BOTTOM, |event| event.context);
        let everything = self.settings.method.shows_everything();
        let label =
            if everything { self.clamp_to_clearance(seen().join(self.labels.base())) } else { level.label };
        if let Some(screener) = self.settings.method.screener() {
            let nonce = self.settings.key.nonce(self.numbers.screenings());
            let View { request, names, .. } =
                self.view_builder(Some((&nonce, self.clearance.screener))).build(label);
            let may_ask = !names.is_empty() && label.flows_to(&self.clearance.screener);
            if !may_ask && (!names.is_empty() || names.omitted_label().is_some()) {
                let label = self.needed_label(&names, None);
                let label = self.labels.take_chosen().unwrap_or(label);
                return Some(self.show_screened(label));
            }
            if !names.is_empty() {
                let known = names.all().iter().map(|hidden| hidden.name.clone()).collect();
                let request = Arc::unwrap_or_clone(request);
                let question = screener.question(TaggedChat { request, nonce, names: known });
                self.phase = ConversationPhase::Screening(names);
                return Some(Need::Screen(question));
            }
        }
        if let Some(label) = self.labels.take_chosen() {
            return Some(self.show_screened(label));
        }
        self.step.set_draft(self.drafts.is_some() && label != *self.labels.base());
        Some(self.show(label))
    }

    /// Returns the greatest label that flows to `label` and to the clearance of the model.
    fn clamp_to_clearance(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// Takes the answer of the screener's model.
    fn take_screening(&mut self, completion: &Completion) {
        let phase = std::mem::replace(&mut self.phase, ConversationPhase::User);
        if !matches!(phase, ConversationPhase::Screening(_) | ConversationPhase::Filtering) {
            self.phase = phase;
            return;
        }
        self.turn.outcome.spent.screenings += 1;
        self.numbers.count_screening();
        self.turn.outcome.spent.tokens = self.turn.outcome.spent.tokens.plus(completion.usage);
        let ConversationPhase::Screening(names) = phase else {
            let selector = self.settings.method.tool_selector();
            self.turn.roster = Some(selector.map(|it| it.parse_answer(completion)).unwrap_or_default());
            self.phase = ConversationPhase::Generate;
            return;
        };
        let answer = self.settings.method.screener().and_then(|screener| screener.parse_answer(completion));
        let label = self.needed_label(&names, answer.as_deref());
        self.phase = ConversationPhase::Showing(label);
    }

    /// Returns the join of the labels of the needed regions; of all hidden regions if the answer is missing or
    /// invalid.
    fn needed_label(&mut self, names: &HiddenRegions, answer: Option<&[String]>) -> Label {
        // An answer with an unknown name is invalid.
        let answer = answer.filter(|needed| needed.iter().all(|name| names.get(name).is_some()));
        // The choice selects one of the labels, and one of the sets of regions.
        self.turn.outcome.spent.bits += self.monitor.policy().space().bits().min(names.len());
        // The screener cannot judge what it was not shown.
        let omitted =
            names.omitted_label().map_or(*self.labels.base(), |omitted| omitted.join(self.labels.base()));
        let is_needed = |hidden: &&HiddenRegion| {
            !hidden.reach.flows_to(&self.clearance.screener)
                || answer.is_none_or(|needed| needed.contains(&hidden.name))
        };
        let needed = names.all().iter().filter(is_needed);
        self.clamp_to_clearance(needed.fold(omitted, |label, hidden| label.join(&hidden.label)))
    }

    /// Shows the model a view at the label that a screener chose.
    fn show_screened(&mut self, label: Label) -> Need {
        let base = *self.labels.base();
        if label != base {
            self.monitor.raise_stores_for_view(&base, &label);
        }
        self.show(label)
    }

    fn show(&mut self, label: Label) -> Need {
        // A roster is valid for one turn only.
        let has_roster = self.turn.roster.is_some();
        let begun = if has_roster { ViewPrefix::default() } else { self.items.take_prefix(&label) };
        let (view, calls) = self.view_builder(None).build_from(label, begun);
        debug_assert_eq!(view, self.view_at(label), "what was shown is shown again as it would be anew");
        if !has_roster {
            self.items.cache_view(view.clone(), calls);
        }
        self.turn.outcome.spent.hidden += view.names.len();
        self.step.show(view.clone());
        Need::Complete(view)
    }

    /// Takes the model's next message. Returns the label of the step that stands, if one does.
    fn take_completion(&mut self, completion: Completion) -> Option<Label> {
        let view = self.step.take_view()?;
        self.turn.outcome.spent.messages += 1;
        self.turn.outcome.spent.tokens = self.turn.outcome.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle_draft(view, completion)?;
        if self.settings.method.raises_level() {
            // What this turn has done so far stays visible until the turn ends.
            self.labels.raise_level(&view.label);
        }
        let Completion { text, calls, stop, .. } = completion;
        self.turn.outcome.stop = stop;
        // The absence of a reply carries information, too.
        self.labels.add_output(&view.label);
        if !text.is_empty() {
            self.add_reply(&text, view.label, view.names.len());
        }
        let (has_calls, label) = (!calls.is_empty(), view.label);
        let calls = calls.into_iter().map(|call| StepCall { call, answer: CallOutcome::Pending }).collect();
        self.items.push(ConversationItem::Step(ModelStep {
            label: view.label,
            names: view.names,
            text,
            calls,
        }));
        self.phase = ConversationPhase::Calls(0);
        if !has_calls {
            self.end_level(None);
        }
        Some(label)
    }

    /// Ends the step, to which the model gave no answer.
    fn fail_step(&mut self) {
        self.step.clear();
        self.end_level(Some(TurnEnd::Model));
    }

    /// Aborts the turn, whatever it waits for.
    fn abort_turn(&mut self) {
        self.turn.void_approval("the turn was stopped");
        self.step.clear();
        self.labels.end_all();
        self.turn.outcome.ended = Some(TurnEnd::Model);
        self.phase = ConversationPhase::User;
    }

    /// Returns a filter for streaming what the model writes now, if any of it may be shown before all of it is
    /// judged: if no rule can stop it, and no draft takes its place.
    pub(crate) fn stream_cleaner(&self) -> Option<links::StreamCleaner> {
        let view = self.step.view()?;
        let is_final = self.step.is_final() && !self.monitor.may_stop_replies();
        is_final.then(|| links::StreamCleaner::new(&self.monitor, &view.label, view.names.len()))
    }

    /// The turn so far.
    pub fn running_turn(&self) -> &RunningTurn {
        &self.turn
    }

    /// The turn so far, for a caller that aborts it.
    pub fn running_turn_mut(&mut self) -> &mut RunningTurn {
        &mut self.turn
    }

    /// Whether the step in progress is above the lowest label.
    pub fn is_raised(&self) -> bool {
        self.step.view().is_some_and(|view| view.label != *self.labels.base())
    }

    /// Judges a reply to the user, and adds it to the turn; its text is withheld if a rule forbids it.
    fn add_reply(&mut self, text: &str, label: Label, hidden: usize) {
        let message = Message { role: "assistant".to_owned(), content: Value::String(text.to_owned()) };
        let withheld: Vec<String> =
            match self.monitor.push_generated(TraceEntry::from(EventBody::Message(message)), label) {
                Ok((_, findings)) => blocking_messages(findings),
                Err(error) => vec![error.to_string()],
            };
        let method = self.settings.method.name();
        // Placeholders are meaningful to the model only.
        let text = placeholder::neutralize(text, hidden);
        let (mut text, disarmed) =
            links::disarm(&mut self.monitor, method, &text, label, self.numbers.addresses_mut());
        if !withheld.is_empty() {
            self.turn.outcome.withheld.push(std::mem::take(&mut text));
        }
        self.turn.outcome.replies.push(ModelReply {
            text,
            label: self.monitor.describe(&label),
            withheld,
            disarmed,
        });
    }

    /// Ends the current level after the model's last message on it, and resumes the next lower level that was to
    /// continue.
    fn end_level(&mut self, ended: Option<TurnEnd>) {
        if self.labels.end_level() {
            self.phase = ConversationPhase::Generate;
            return;
        }
        self.turn.outcome.ended = ended;
        self.phase = ConversationPhase::User;
    }

    fn last_step(&self) -> Option<&ModelStep> {
        match self.items.last() {
            Some(ConversationItem::Step(step)) => Some(step),
            _ => None,
        }
    }
}

/// Returns the messages of rules that object to something that can no longer be stopped.
fn blocking_messages(findings: Vec<EventFinding>) -> Vec<String> {
    let objects = |finding: &EventFinding| {
        finding.reason.kind == ReasonKind::Rule && finding.reason.action != flowgate::policy::Action::Log
    };
    findings.into_iter().filter(objects).map(|finding| finding.reason.message).collect()
}
