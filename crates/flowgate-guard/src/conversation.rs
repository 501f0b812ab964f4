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

mod calls;
mod draft;
mod hand_over;
mod hidden_items;
mod merge;
mod messages;
mod need;
mod outside_chat;
mod phase;
mod postpone;
mod replay;
mod settings;
mod slot_copy;
mod turn;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{EventFinding, ExternalStateError, Monitor, PushError, ReasonKind};
use flowgate::trace::{EventBody, EventId, Message, Tool, TraceEntry};
use flowgate_lm::chat::Completion;
use serde_json::Value;

pub use hidden_items::{HiddenItem, HiddenItemKind, HidingCause};
pub use need::{Need, ToolAnswer};
pub use postpone::CONTINUE;
pub use replay::ReplayDiverged;
pub use settings::{ConversationSettings, Method};
pub use turn::{CallVerdict, HandedOverCall, ModelReply, Turn, TurnEnd, TurnUsage, VoidedCall};

use crate::approve::Decision;
use crate::catalogue::{Catalogue, OfferedTool};
use crate::clearance::EndpointClearances;
use crate::journal::{Input, RecordedNeed};
use crate::links;
use crate::placeholder;
use crate::redact::{HiddenRegion, HiddenRegions};
use crate::screener::{TaggedChat, tool_filter};
use crate::view::{
    CallOutcome, ConversationItem, ConversationItems, ModelStep, StepCall, View, ViewBuilder, ViewPrefix,
};

use phase::{ConversationPhase, StepLevel};

/// A guarded conversation with a model.
#[derive(Debug)]
pub struct Conversation {
    monitor: Monitor,
    settings: ConversationSettings,
    catalogue: Catalogue,
    items: ConversationItems,
    /// The levels of this turn, the lowest first.
    levels: Vec<StepLevel>,
    base: Label,
    /// The base label that the next turn starts from.
    lowest: Label,
    /// A lower bound on the label of everything in this conversation.
    floor: Label,
    phase: ConversationPhase,
    turn: Turn,
    /// The number of answers of the screener so far. The operator of the screener's model knows it; the number of
    /// items would show how many of them are hidden.
    screenings: usize,
    /// The number of addresses judged so far; makes the ids of these calls, which never run, unique.
    judged: usize,
    /// The number of calls per label.
    ids: HashMap<Label, usize>,
    view: Option<View>,
    /// Rule findings on messages and tool answers, reported with the turn.
    rule_messages: Vec<String>,
    /// The join of the labels of all steps of this turn that could have produced output.
    output_label: Label,
    /// The label of the next step, if the caller has chosen it.
    chosen: Option<Label>,
    /// Whether the step in progress is a draft that may be rewritten.
    is_draft: bool,
    /// The draft that the step in progress rewrites from a smaller view.
    drafted: Option<(View, Completion)>,
    provenance: draft::DraftProvenance,
    /// The tools on offer in this turn, if not all.
    roster: Option<Vec<String>>,
    clearance: EndpointClearances,
    /// Ids of the calls that the last message handed to the caller and that have not run beside the chat.
    delivered: HashSet<String>,
    /// The step that a person's decision continued, as an index of the items, until the caller receives the answer.
    resumed: Option<usize>,
    /// Calls taken to run beside the chat since the last query: the tool and the digest of the call.
    taken: Vec<(Tool, String)>,
    /// Calls that ran beside the chat, by id, with the event of the answer.
    outside_answers: HashMap<String, EventId>,
    /// For a call that ran outside the chat, and each unanswered call that was equal to it then: all of them.
    equal_calls: HashMap<String, Arc<[String]>>,
    /// The call that a person has just approved, until it runs or is void: the tool and the digest of the call.
    approved: Option<(Tool, String)>,
    /// The last offer of tools, if all of it was accepted.
    offered: Option<Vec<Arc<OfferedTool>>>,
    /// The inputs since they were last taken, if inputs are recorded.
    inputs: Option<Vec<Input>>,
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
        let catalogue = Catalogue::new(&mut monitor, tools.into_iter().map(Arc::new).collect())?;
        let clearance = EndpointClearances::of(&monitor);
        let strictest = monitor.strictest_requirement(catalogue.tools());
        let base = monitor.policy().space().greatest_below(&strictest, &clearance.model);
        let (items, levels, turn) = (ConversationItems::default(), Vec::new(), Turn::default());
        let phase = ConversationPhase::User;
        Ok(Self {
            monitor,
            settings,
            catalogue,
            items,
            levels,
            base,
            lowest: base,
            floor: Label::BOTTOM,
            phase,
            turn,
            screenings: 0,
            judged: 0,
            ids: HashMap::new(),
            view: None,
            chosen: None,
            output_label: base,
            rule_messages: Vec::new(),
            is_draft: false,
            drafted: None,
            provenance: draft::DraftProvenance::default(),
            roster: None,
            clearance,
            delivered: HashSet::new(),
            resumed: None,
            taken: Vec::new(),
            outside_answers: HashMap::new(),
            equal_calls: HashMap::new(),
            approved: None,
            offered: None,
            inputs: None,
        })
    }

    /// The monitor, which holds the labels and the trace.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Returns the labels of this account's stores, for its next conversation.
    pub fn external_state_record(&self) -> Value {
        self.monitor.external_state_record()
    }

    /// Stamps what was written to stores since the last stamp: see [`Monitor::stamp_writes`].
    pub fn stamp_writes(&mut self, stamp: &str) {
        if self.monitor.stamp_writes(stamp) {
            self.record_input(|| Input::Stamped(stamp.to_owned()));
        }
    }

    /// Whether stores were written to since the last [stamp](Self::stamp_writes).
    pub fn has_written(&self) -> bool {
        self.monitor.has_written()
    }

    /// A counter that increases whenever the result of [`external_state_record`](Self::external_state_record) may have
    /// changed: see [`Monitor::external_state_changes`].
    pub fn memory_changes(&self) -> u64 {
        self.monitor.external_state_changes()
    }

    /// Joins the labels that other conversations of this account have since written to stores: see
    /// [`Monitor::join_external_state`].
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError> {
        self.record_input(|| Input::Recall(record.clone()));
        self.monitor.join_external_state(record)
    }

    /// Withdraws the standing consents on these lines of the policy, and no others, from now on. Returns whether the
    /// set changed; if so, calls that were permitted but have not run may no longer run.
    pub fn withdraw_consents(&mut self, lines: &BTreeSet<usize>) -> bool {
        let has_changed = self.monitor.withdraw_consents(lines);
        if has_changed {
            self.record_input(|| Input::Withdrawn(lines.clone()));
            self.delivered.clear();
        }
        has_changed
    }

    /// Sets the sampling parameters of the model from now on.
    pub fn set_sampling(&mut self, sampling: flowgate_lm::chat::Sampling) {
        if self.settings.sampling != sampling {
            self.record_input(|| Input::Sampling(sampling.clone()));
            self.settings.sampling = sampling;
        }
    }

    /// The lowest label of a step.
    pub fn base_label(&self) -> &Label {
        &self.base
    }

    /// Chooses the label of the next step in place of the method, so that a recorded run can be replayed with its
    /// labels. A screener is queried all the same.
    pub fn choose_label(&mut self, label: Label) {
        if self.inputs.is_some() {
            let names = self.monitor.to_names(&label);
            self.record_input(|| Input::Choose(names));
        }
        self.chosen = Some(label);
    }

    /// Continues a turn that has ended, without another message of the user.
    pub fn continue_turn(&mut self) {
        self.record_input(|| Input::GoOn);
        if self.is_turn_over() {
            self.reset_levels();
        }
    }

    /// Whether the turn is complete and the next input is the user's message.
    pub fn is_turn_over(&self) -> bool {
        matches!(self.phase, ConversationPhase::User) && self.view.is_none()
    }

    /// Returns the view of the next step at `label`.
    pub fn view_at(&self, label: Label) -> View {
        self.view_builder(None).build(label)
    }

    fn view_builder<'c>(&'c self, tag: Option<(&'c str, Label)>) -> ViewBuilder<'c> {
        ViewBuilder {
            monitor: &self.monitor,
            catalogue: &self.catalogue,
            items: &self.items,
            sampling: &self.settings.sampling,
            roster: self.roster.as_deref(),
            can_look: self.settings.method.has_look(),
            can_slot: self.settings.method.has_slots(),
            tag,
        }
    }

    /// Returns the input that the conversation waits for.
    pub fn need(&mut self) -> Need {
        let need = self.next_need();
        self.record_input(|| Input::Need(RecordedNeed::of(&need)));
        need
    }

    fn next_need(&mut self) -> Need {
        if let Some(view) = &self.view {
            return Need::Complete(view.clone());
        }
        loop {
            let need = match std::mem::replace(&mut self.phase, ConversationPhase::User) {
                ConversationPhase::User => {
                    let mut turn = std::mem::take(&mut self.turn);
                    turn.rule_messages.append(&mut self.rule_messages);
                    return Need::User(turn);
                }
                ConversationPhase::Generate => self.next_generation(),
                // Without an answer, every region counts as needed.
                ConversationPhase::Screening(names) => {
                    let label = self.needed_label(&names, None);
                    let label = self.chosen.take().unwrap_or(label);
                    Some(self.show_screened(label))
                }
                ConversationPhase::Filtering => {
                    self.roster = Some(Vec::new());
                    self.phase = ConversationPhase::Generate;
                    None
                }
                ConversationPhase::Showing(label) => {
                    let label = self.chosen.take().unwrap_or(label);
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
                    self.record_voided_call("the tool gave no answer");
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
        let level = self.levels.last().copied()?;
        if self.turn.spent.messages >= self.settings.messages {
            self.levels.clear();
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
        if self.settings.method == Method::ToolFilter && self.roster.is_none() {
            let most = self.monitor.policy().space().greatest_below(&level.label, &self.clearance.screener);
            self.phase = ConversationPhase::Filtering;
            return Some(Need::Screen(tool_filter::question(Arc::unwrap_or_clone(
                self.view_at(most).request,
            ))));
        }
        if let Some(level) = self.levels.last_mut() {
            level.steps += 1;
        }
        let seen = || self.monitor.trace().events().last().map_or(Label::BOTTOM, |event| event.context);
        let everything = self.settings.method.shows_everything();
        let label = if everything { self.clamp_to_clearance(seen().join(&self.base)) } else { level.label };
        if let Some(screener) = self.settings.method.screener() {
            let nonce = self.settings.key.nonce(self.screenings);
            let View { request, names, .. } =
                self.view_builder(Some((&nonce, self.clearance.screener))).build(label);
            let may_ask = !names.is_empty() && label.flows_to(&self.clearance.screener);
            if !may_ask && (!names.is_empty() || names.omitted_label().is_some()) {
                let label = self.needed_label(&names, None);
                let label = self.chosen.take().unwrap_or(label);
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
        if let Some(label) = self.chosen.take() {
            return Some(self.show_screened(label));
        }
        self.is_draft = self.settings.method.has_drafts() && label != self.base;
        Some(self.show(label))
    }

    /// Returns the greatest label that flows to `label` and to the clearance of the model.
    fn clamp_to_clearance(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// Accepts the answer of the screener's model.
    pub fn accept_screening(&mut self, completion: &Completion) {
        self.record_input(|| Input::Screened(completion.clone()));
        let phase = std::mem::replace(&mut self.phase, ConversationPhase::User);
        if !matches!(phase, ConversationPhase::Screening(_) | ConversationPhase::Filtering) {
            self.phase = phase;
            return;
        }
        self.turn.spent.screenings += 1;
        self.screenings += 1;
        self.turn.spent.tokens = self.turn.spent.tokens.plus(completion.usage);
        let ConversationPhase::Screening(names) = phase else {
            self.roster = Some(tool_filter::parse_answer(completion));
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
        self.turn.spent.bits += self.monitor.policy().space().bits().min(names.len());
        // The screener cannot judge what it was not shown.
        let omitted = names.omitted_label().map_or(self.base, |omitted| omitted.join(&self.base));
        let is_needed = |hidden: &&HiddenRegion| {
            !hidden.reach.flows_to(&self.clearance.screener)
                || answer.is_none_or(|needed| needed.contains(&hidden.name))
        };
        let needed = names.all().iter().filter(is_needed);
        self.clamp_to_clearance(needed.fold(omitted, |label, hidden| label.join(&hidden.label)))
    }

    /// Shows the model a view at the label that a screener chose.
    fn show_screened(&mut self, label: Label) -> Need {
        let base = self.base;
        if label != base {
            self.monitor.raise_stores_for_view(&base, &label);
        }
        self.show(label)
    }

    fn show(&mut self, label: Label) -> Need {
        // A roster is valid for one turn only.
        let has_roster = self.roster.is_some();
        let begun = if has_roster { ViewPrefix::default() } else { self.items.take_prefix(&label) };
        let (view, calls) = self.view_builder(None).build_from(label, begun);
        debug_assert_eq!(view, self.view_at(label), "what was shown is shown again as it would be anew");
        if !has_roster {
            self.items.cache_view(view.clone(), calls);
        }
        self.turn.spent.hidden += view.names.len();
        self.view = Some(view.clone());
        Need::Complete(view)
    }

    /// Accepts the model's next message. Returns the label of the step that stands now: of this message, or of the
    /// draft that it was to replace. Returns `None` if the message is to be rewritten from a smaller view.
    pub fn accept_completion(&mut self, completion: Completion) -> Option<Label> {
        self.record_input(|| Input::Completed(completion.clone()));
        let view = self.view.take()?;
        self.turn.spent.messages += 1;
        self.turn.spent.tokens = self.turn.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle_draft(view, completion)?;
        if self.settings.method == Method::Provenance
            && let Some(level) = self.levels.last_mut()
        {
            // What this turn has done so far stays visible until the turn ends.
            level.label = level.label.join(&view.label);
        }
        let Completion { text, calls, stop, .. } = completion;
        self.turn.stop = stop;
        // The absence of a reply carries information, too.
        self.output_label = self.output_label.join(&view.label);
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

    /// Reports that the model gave no answer. A lower level that was to continue does so, because a model that fails
    /// on hidden text reveals a fact about that text. Otherwise the turn ends.
    pub fn fail_completion(&mut self) {
        self.record_input(|| Input::Failed);
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.end_level(Some(TurnEnd::Model));
    }

    /// Aborts the turn, whatever it waits for.
    pub fn stop(&mut self) {
        self.record_input(|| Input::Stop);
        self.record_voided_call("the turn was stopped");
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.levels.clear();
        self.turn.ended = Some(TurnEnd::Model);
        self.phase = ConversationPhase::User;
    }

    /// Returns a filter for streaming what the model writes now, if any of it may be shown before all of it is
    /// judged: if no rule can stop it, and no draft takes its place.
    pub(crate) fn stream_cleaner(&self) -> Option<links::StreamCleaner> {
        let (label, hidden) = (self.view.as_ref()?.label, self.view.as_ref()?.names.len());
        let is_final = !self.is_draft && self.drafted.is_none() && !self.monitor.may_stop_replies();
        is_final.then(|| links::StreamCleaner::new(&self.monitor, &label, hidden))
    }

    /// Takes the judged calls of an aborted turn.
    pub fn take_judged_calls(&mut self) -> Vec<CallVerdict> {
        std::mem::take(&mut self.turn.judged)
    }

    /// The replies of the model in this turn so far.
    pub fn replies(&self) -> &[ModelReply] {
        &self.turn.replies
    }

    /// Whether the step in progress is above the lowest label.
    pub fn is_raised(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.label != self.base)
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
        let (mut text, disarmed) = links::disarm(&mut self.monitor, method, &text, label, &mut self.judged);
        if !withheld.is_empty() {
            self.turn.withheld.push(std::mem::take(&mut text));
        }
        self.turn.replies.push(ModelReply { text, label: self.monitor.describe(&label), withheld, disarmed });
    }

    /// Ends the current level after the model's last message on it, and resumes the next lower level that was to
    /// continue.
    fn end_level(&mut self, ended: Option<TurnEnd>) {
        while let Some(level) = self.levels.pop() {
            if level.then_return {
                self.phase = ConversationPhase::Generate;
                return;
            }
        }
        self.turn.ended = ended;
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
