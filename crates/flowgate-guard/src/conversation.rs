//! Implements guarded conversations between a user, a model and tools: Algorithm 4 of the paper RTBAS as a state
//! machine without I/O.
//!
//! The machine reports what it [needs](Need) next: the model's next message, the text of a slot, a person's decision, a
//! tool's answer. Its driver ([`crate::agent`], a gateway, a test) obtains that input and passes it in. One piece of
//! code therefore decides what the model is shown and which calls run, wherever models and tools are hosted.
//!
//! **Files.** `inputs` defines the inputs, `apply` executes them, and `messages`, `output_format` and `embedded_texts`
//! add texts to the trace. `generation`, `draft` and `step_labels` choose the label of a step and show the model a
//! view; `cited_passages` judges the citations of a reply. `calls`, `slot_filling`, `slot_copy`, `approval` and
//! `upcoming` process the calls of a step. `hand_over`, `handed_over_calls` and `outside_chat` serve a caller that runs
//! calls itself. `merge`, `memorized_texts`, `redeclared`, `respelled_calls` and `postpone` compare the chat that a
//! caller sends with the conversation. `replay` and `carry_over` rebuild a conversation from its recorded inputs, and
//! `hidden_items` reports what is hidden. The other files define the settings, the state (`phase`, `pending_step`,
//! `running_turn`, `tool_offer`, `unique_numbers`), and what a driver receives (`need`, `turn`).
//!
//! **Levels.** Under the method [lowest first](crate::method::lowest_first), a step is shown what flows to the
//! strictest requirement of the tools on offer. The model requests more with [`look`](crate::slot::LOOK). A look pushes
//! a *level* with a higher label onto the current one, and the following steps are generated on this level. The level
//! ends when the model writes a message without calls on it. Nothing that happens on a level is shown to steps on a
//! level below it. Hidden text therefore does not influence a step on a lower level: neither whether there is such a
//! step, nor the calls that it makes, their order and their number.

mod apply;
mod approval;
mod calls;
mod carry_over;
mod cited_passages;
mod draft;
mod embedded_texts;
mod generation;
mod hand_over;
mod handed_over_calls;
mod hidden_items;
mod inputs;
mod memorized_texts;
mod merge;
mod messages;
mod need;
mod output_format;
mod outside_chat;
mod pending_step;
mod phase;
mod postpone;
mod redeclared;
mod replay;
mod respelled_calls;
mod running_turn;
mod settings;
mod slot_copy;
mod slot_filling;
mod step_labels;
mod tool_offer;
mod turn;
mod unique_numbers;
mod upcoming;

use flowgate::label::Label;
use flowgate::monitor::{EventFinding, Monitor, PushError, ReasonKind};
use flowgate::trace::Tool;

pub use crate::method::Method;
pub use carry_over::CarryOverError;
pub use embedded_texts::{EMBEDDING_ROLE, EmbeddedTexts};
pub use hidden_items::{HiddenItem, HiddenItemKind, HidingCause};
pub use need::{Need, ToolAnswer};
pub use postpone::CONTINUE;
pub use replay::ReplayDiverged;
pub use running_turn::RunningTurn;
pub use settings::{ConversationSettings, StepLabelling};
pub use turn::{CallVerdict, HandedOverCall, ModelReply, Turn, TurnEnd, TurnUsage, VoidedCall};

use crate::approve::Decision;
use crate::catalogue::OfferedTool;
use crate::clearance::EndpointClearances;
use crate::journal::Journal;
use crate::links;
use crate::method::draft::DraftJudge;
use crate::redact::HiddenRegions;
use crate::requested_format::RequestedFormat;
use crate::view::{ConversationItem, ConversationItems, ModelStep, View, ViewBuilder};

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
    /// What the model, the screener and the filler may read.
    clearance: EndpointClearances,
    tools: ToolOffer,
    /// The form that the client demands of the model's text.
    format: Option<RequestedFormat>,
    /// The chat: messages, and steps with their calls.
    items: ConversationItems,
    /// What the conversation does or waits for next.
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
    /// The counters for ids that reveal nothing about hidden text.
    numbers: UniqueNumbers,
    /// The inputs since a caller last took them.
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
        // The base label: the greatest that flows to every requirement on offer and that the model may read.
        let base = monitor.policy().space().greatest_below(&strictest, &clearance.model);
        let drafts = settings.method.start_drafts();
        // In a conversation that hides context, a label that floats would reveal whether hidden context exists.
        let labelling = if settings.hides_context { StepLabelling::Fixed } else { settings.step_labels };
        Ok(Self {
            monitor,
            settings,
            clearance,
            tools,
            format: None,
            items: ConversationItems::default(),
            phase: ConversationPhase::User,
            labels: StepLabels::new(base, labelling),
            step: PendingStep::default(),
            drafts,
            turn: RunningTurn::default(),
            handed: HandedOverCalls::default(),
            numbers: UniqueNumbers::default(),
            journal: Journal::default(),
        })
    }

    /// Returns the monitor, which holds the labels and the trace.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Returns the recorded inputs.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the recorded inputs, for a caller that starts the record or takes it.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Returns the base label, from which each turn starts. A step at the base label is shown only what flows to it.
    pub fn base_label(&self) -> &Label {
        self.labels.base()
    }

    /// Adds another step to a turn that has ended, without a new message of the user. Does nothing during a turn.
    fn restart_turn(&mut self) {
        if self.is_turn_over() {
            self.labels.restart_levels();
            self.start_generating();
        }
    }

    /// Returns whether the turn is complete and the next input is the user's message.
    pub fn is_turn_over(&self) -> bool {
        matches!(self.phase, ConversationPhase::User) && self.step.view().is_none()
    }

    /// Returns the view that the next step would be shown if its bound were `label`.
    pub fn view_at(&self, label: Label) -> View {
        self.view_builder(None).build(label)
    }

    /// Returns the name by which the model calls a tool that is on offer; `None` for any other.
    pub fn tool_name(&self, tool: &Tool) -> Option<&str> {
        self.tools.catalogue().name_of(tool)
    }

    /// Returns the regions that a screener is being asked about, and the label of the current level; `None` if no
    /// screener is being asked.
    pub(crate) fn screened_regions(&self) -> Option<(Label, &HiddenRegions)> {
        match &self.phase {
            ConversationPhase::Screening(names) => Some((self.labels.level()?.label, names)),
            _ => None,
        }
    }

    /// Returns a builder for views of this chat. For a view that a screener judges, `tag` has a nonce and the clearance
    /// of the screener: the builder then puts hidden regions between tags with the nonce. For a view that the model is
    /// shown, `tag` is `None`.
    fn view_builder<'c>(&'c self, tag: Option<(&'c str, Label)>) -> ViewBuilder<'c> {
        ViewBuilder {
            monitor: &self.monitor,
            catalogue: self.tools.catalogue(),
            items: &self.items,
            sampling: &self.settings.sampling,
            format: self.format.as_ref(),
            selected_tools: self.turn.selected_tools.as_deref(),
            can_look: self.settings.method.has_look(),
            can_slot: self.settings.method.has_slots(),
            tag,
            // The label of the view is its bound.
            floats_from: None,
        }
    }

    /// Executes phases until the conversation needs an input, and returns this need. The driver may call this function
    /// again without having passed in the screening, the choice of tools, the decision or the tool's answer that the
    /// last need asked for. The conversation then assumes the most cautious answer.
    fn next_need(&mut self) -> Need {
        // The model has not answered the view that it was shown, so the need is the same as before.
        if let Some(view) = self.step.view() {
            return Need::Complete(view.clone());
        }
        loop {
            // The phase is taken out, and each branch below sets the next one.
            let need = match std::mem::replace(&mut self.phase, ConversationPhase::User) {
                ConversationPhase::User => return Need::User(self.turn.finish()),
                ConversationPhase::Generate => self.next_generation(),
                // No screening was passed in: every region counts as needed.
                ConversationPhase::Screening(names) => {
                    let label = self.needed_label(&names, None);
                    // A label that the caller has chosen replaces the method's label.
                    let label = self.labels.take_chosen().unwrap_or(label);
                    Some(self.show_screened(label))
                }
                // No choice of tools was passed in: no tool is offered in this turn.
                ConversationPhase::Filtering => {
                    self.turn.selected_tools = Some(Vec::new());
                    self.phase = ConversationPhase::Generate;
                    None
                }
                // A screener or the verdict on a draft has chosen the label.
                ConversationPhase::Showing(label) => {
                    let label = self.labels.take_chosen().unwrap_or(label);
                    Some(self.show_screened(label))
                }
                ConversationPhase::Calls(index) => self.process_call(index),
                ConversationPhase::Filling(filling) => self.fill_next_slot(*filling),
                ConversationPhase::Redeeming { index, permit } => self.redeem_permit(index, *permit),
                // No decision was passed in: the call is refused.
                ConversationPhase::Asking { index, question } => {
                    self.refuse_unapproved(index, &question, Decision::Unanswered);
                    None
                }
                // No answer was passed in. The tool may have had any effect, so an error is recorded as its answer.
                ConversationPhase::Running { index, event } => {
                    self.turn.void_approval("the tool gave no answer");
                    let error = ToolAnswer::error(
                        "the tool gave no answer, and its call may have had an effect; check that before you call \
                        it again",
                    );
                    self.record_answer_event(index, event, error);
                    None
                }
            };
            if let Some(need) = need {
                return need;
            }
        }
    }

    /// Returns the filter through which the text of the step in progress may be shown while the model writes it. `None`
    /// if the text must not be shown before all of it is judged: a rule may stop it, or a draft may be rewritten. A
    /// text that must be JSON may be shown only if it is certainly the only reply, and the policy permits every link in
    /// it.
    pub(crate) fn stream_cleaner(&self) -> Option<links::StreamCleaner> {
        let view = self.step.view()?;
        let can_stream = self.step.is_final() && !self.monitor.may_stop_replies();
        // The short forms of placeholders, such as `[h1]`, count only for regions that the view hides, so the cleaner
        // needs their number.
        let cleaner =
            can_stream.then(|| links::StreamCleaner::new(&self.monitor, &view.label, view.names.len()))?;
        // If the client demands JSON, the answer of the turn must be one JSON text. This text is certainly the only
        // reply if there was none before, and if the model has no tools, after whose calls it could write another one.
        let is_only_reply = view.request.tools.is_empty() && self.turn.replies().is_empty();
        (self.format.is_none() || is_only_reply && cleaner.permits_all()).then_some(cleaner)
    }

    /// Returns the turn so far.
    pub fn running_turn(&self) -> &RunningTurn {
        &self.turn
    }

    /// Returns the turn so far, for a caller that aborts it.
    pub fn running_turn_mut(&mut self) -> &mut RunningTurn {
        &mut self.turn
    }

    /// Returns whether the bound of the step in progress is not the base label, so that the step may be shown more than
    /// a step at the base label.
    pub fn is_raised(&self) -> bool {
        self.step.view().is_some_and(|view| view.bound != *self.labels.base())
    }

    /// Returns the last item of the chat if it is a step, such as the one whose calls are processed.
    fn last_step(&self) -> Option<&ModelStep> {
        match self.items.last() {
            Some(ConversationItem::Step(step)) => Some(step),
            _ => None,
        }
    }
}

/// Returns the messages of the rules that forbid an event of the trace; `findings` is everything that rules say about
/// the event. If there is a message, the text of the event must not be shown. Rules that only log are left out.
fn blocking_messages(findings: Vec<EventFinding>) -> Vec<String> {
    // A rule that cannot be evaluated, or that exceeds a limit, stops a text like a rule that matches.
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let is_blocking = |finding: &EventFinding| {
        kinds.contains(&finding.reason.kind) && finding.reason.action != flowgate::policy::Action::Log
    };
    findings.into_iter().filter(is_blocking).map(|finding| finding.reason.message).collect()
}
