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

mod again;
mod beside;
mod calls;
mod concealed;
mod copied;
mod draft;
mod handed;
mod later;
mod phase;
mod said;
mod sent;
mod settings;
mod turn;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Authorized, Finding, MemoryError, Monitor, PushError, ReasonKind};
use flowgate::trace::{Body, Entry, EventId, Message, Tool};
use flowgate_lm::chat::{Completion, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use again::Diverged;
pub use concealed::{Cause, Concealed, Subject};
pub use handed::Handed;
pub use later::CONTINUE;
pub use settings::{Method, Settings};
pub use turn::{Ended, Judged, Reply, Spent, Turn, Void};

use crate::approve::{Ask, Decision};
use crate::catalogue::{Catalogue, Offered};
use crate::clearance::Clearance;
use crate::journal::{Input, Met};
use crate::links;
use crate::placeholder;
use crate::redact::{Hidden, Names};
use crate::screener::{Tagged, tool_filter};
use crate::view::{Answer, Begun, Item, Items, Made, Source, Step, View};

use phase::{Level, Phase};

/// The input that a conversation waits for.
#[derive(Debug)]
#[must_use]
pub enum Need {
    /// The model's next message: [`Conversation::completed`].
    Complete(View),
    /// The screener model's answer on what the next step depends on: [`Conversation::screened`].
    Screen(Request),
    /// The text of a slot, from a model without tools: [`Conversation::filled`].
    Fill(Request),
    /// A person's decision: [`Conversation::decided`].
    Approve(Ask),
    /// A tool's answer. The call may run: [`Conversation::ran`].
    Run(Authorized),
    /// The user's next message; the turn is complete: [`Conversation::user`].
    User(Turn),
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// Text, or a list of content blocks.
    pub content: Value,
    /// The same content as a JSON value, if the tool returns both.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether it is an error.
    pub is_error: bool,
    /// A label, in names ([`Conversation::carried`]), that the answer carries in addition to what the policy states:
    /// for a tool that is itself an agent.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub carries: Option<Value>,
}

impl ToolAnswer {
    /// Returns an answer that consists of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Value::String(text.into()), structured: None, is_error: false, carries: None }
    }

    /// Returns an error answer.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// A guarded conversation with a model.
#[derive(Debug)]
pub struct Conversation {
    monitor: Monitor,
    settings: Settings,
    catalogue: Catalogue,
    items: Items,
    /// The levels of this turn, the lowest first.
    levels: Vec<Level>,
    base: Label,
    /// The base label that the next turn starts from.
    lowest: Label,
    /// A lower bound on the label of everything in this conversation.
    floor: Label,
    phase: Phase,
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
    found: Vec<String>,
    /// The join of the labels of all steps of this turn that could have produced output.
    said: Label,
    /// The label of the next step, if the caller has chosen it.
    chosen: Option<Label>,
    /// Whether the step in progress is a draft that may be rewritten.
    is_draft: bool,
    /// The draft that the step in progress rewrites from a smaller view.
    drafted: Option<(View, Completion)>,
    traced: draft::Traced,
    /// The tools on offer in this turn, if not all.
    roster: Option<Vec<String>>,
    clearance: Clearance,
    /// Ids of the calls that the last message handed to the caller and that have not run beside the chat.
    delivered: HashSet<String>,
    /// The step that a person's decision continued, as an index of the items, until the caller receives the answer.
    resumed: Option<usize>,
    /// Calls taken to run beside the chat since the last query: the tool and the digest of the call.
    taken: Vec<(Tool, String)>,
    /// Calls that ran beside the chat, by id, with the event of the answer.
    beside: HashMap<String, EventId>,
    /// The call that a person has just approved, until it runs or is void: the tool and the digest of the call.
    approved: Option<(Tool, String)>,
    /// The last offer of tools, if all of it was accepted.
    offered: Option<Vec<Arc<Offered>>>,
    /// The inputs since they were last taken, if inputs are recorded.
    inputs: Option<Vec<Input>>,
}

impl Conversation {
    /// Creates a conversation under the policy of `monitor`, in which the model may call these tools.
    ///
    /// # Errors
    /// If the session has no room for the tool descriptions of servers.
    pub fn new(mut monitor: Monitor, tools: Vec<Offered>, settings: Settings) -> Result<Self, PushError> {
        let catalogue = Catalogue::new(&mut monitor, tools.into_iter().map(Arc::new).collect())?;
        let clearance = Clearance::of(&monitor);
        let strictest = monitor.strictest(catalogue.tools());
        let base = monitor.policy().space().greatest_below(&strictest, &clearance.model);
        let (items, levels, turn) = (Items::default(), Vec::new(), Turn::default());
        let phase = Phase::User;
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
            said: base,
            found: Vec::new(),
            is_draft: false,
            drafted: None,
            traced: draft::Traced::default(),
            roster: None,
            clearance,
            delivered: HashSet::new(),
            resumed: None,
            taken: Vec::new(),
            beside: HashMap::new(),
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
    pub fn remember(&self) -> Value {
        self.monitor.remember()
    }

    /// Stamps what was written to stores since the last stamp: see [`Monitor::stamp`].
    pub fn stamp(&mut self, stamp: &str) {
        if self.monitor.stamp(stamp) {
            self.put(|| Input::Stamped(stamp.to_owned()));
        }
    }

    /// Whether stores were written to since the last [stamp](Self::stamp).
    pub fn has_written(&self) -> bool {
        self.monitor.has_written()
    }

    /// A counter that increases whenever the result of [`remember`](Self::remember) may have changed: see
    /// [`Monitor::memory_changes`].
    pub fn memory_changes(&self) -> u64 {
        self.monitor.memory_changes()
    }

    /// Joins the labels that other conversations of this account have since written to stores: see
    /// [`Monitor::recall`].
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn recall(&mut self, record: &Value) -> Result<(), MemoryError> {
        self.put(|| Input::Recall(record.clone()));
        self.monitor.recall(record)
    }

    /// Withdraws the standing consents on these lines of the policy, and no others, from now on. Returns whether the
    /// set changed; if so, calls that were permitted but have not run may no longer run.
    pub fn withdraw(&mut self, lines: &BTreeSet<usize>) -> bool {
        let has_changed = self.monitor.withdraw_consents(lines);
        if has_changed {
            self.put(|| Input::Withdrawn(lines.clone()));
            self.delivered.clear();
        }
        has_changed
    }

    /// Sets the sampling parameters of the model from now on.
    pub fn set_sampling(&mut self, sampling: flowgate_lm::chat::Sampling) {
        if self.settings.sampling != sampling {
            self.put(|| Input::Sampling(sampling.clone()));
            self.settings.sampling = sampling;
        }
    }

    /// The lowest label of a step.
    pub fn base(&self) -> &Label {
        &self.base
    }

    /// Chooses the label of the next step in place of the method, so that a recorded run can be replayed with its
    /// labels. A screener is queried all the same.
    pub fn choose(&mut self, label: Label) {
        if self.inputs.is_some() {
            let names = self.monitor.to_names(&label);
            self.put(|| Input::Choose(names));
        }
        self.chosen = Some(label);
    }

    /// Continues a turn that has ended, without another message of the user.
    pub fn go_on(&mut self) {
        self.put(|| Input::GoOn);
        if self.is_over() {
            self.start();
        }
    }

    /// Whether the turn is complete and the next input is the user's message.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::User) && self.view.is_none()
    }

    /// Returns the view of the next step at `label`.
    pub fn view_at(&self, label: Label) -> View {
        self.source(None).view(label)
    }

    fn source<'c>(&'c self, tag: Option<(&'c str, Label)>) -> Source<'c> {
        Source {
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
        self.put(|| Input::Need(Met::of(&need)));
        need
    }

    fn next_need(&mut self) -> Need {
        if let Some(view) = &self.view {
            return Need::Complete(view.clone());
        }
        loop {
            let need = match std::mem::replace(&mut self.phase, Phase::User) {
                Phase::User => {
                    let mut turn = std::mem::take(&mut self.turn);
                    turn.found.append(&mut self.found);
                    return Need::User(turn);
                }
                Phase::Generate => self.generate(),
                // Without an answer, every region counts as needed.
                Phase::Screening(names) => {
                    let label = self.needed(&names, None);
                    let label = self.chosen.take().unwrap_or(label);
                    Some(self.screen(label))
                }
                Phase::Filtering => {
                    self.roster = Some(Vec::new());
                    self.phase = Phase::Generate;
                    None
                }
                Phase::Showing(label) => {
                    let label = self.chosen.take().unwrap_or(label);
                    Some(self.screen(label))
                }
                Phase::Calls(index) => self.call(index),
                Phase::Filling(filling) => self.fill(*filling),
                Phase::Redeeming { index, permit } => self.redeem(index, *permit),
                // Without an answer, the decision is no, and a tool that was started may have done anything.
                Phase::Asking { index, question } => {
                    self.refuse_asked(index, &question, Decision::Silent);
                    None
                }
                Phase::Running { index, event } => {
                    self.note_void("the tool gave no answer");
                    self.answered(index, event, ToolAnswer::error("the tool gave no answer"));
                    None
                }
            };
            if let Some(need) = need {
                return need;
            }
        }
    }

    fn generate(&mut self) -> Option<Need> {
        let level = self.levels.last().copied()?;
        if self.turn.spent.messages >= self.settings.messages {
            self.levels.clear();
            self.end_level(Some(Ended::Steps));
            return None;
        }
        if level.steps >= self.settings.steps {
            self.end_level(Some(Ended::Steps));
            return None;
        }
        // As if the model wrote a message without calls there. No lower step observes the difference.
        if !level.label.flows_to(&self.clearance.model) {
            self.end_level(Some(Ended::Clearance));
            return None;
        }
        if self.settings.method == Method::ToolFilter && self.roster.is_none() {
            let most = self.monitor.policy().space().greatest_below(&level.label, &self.clearance.screener);
            self.phase = Phase::Filtering;
            return Some(Need::Screen(tool_filter::question(Arc::unwrap_or_clone(
                self.view_at(most).request,
            ))));
        }
        if let Some(level) = self.levels.last_mut() {
            level.steps += 1;
        }
        let seen = || self.monitor.trace().events().last().map_or(Label::BOTTOM, |event| event.context);
        let everything = self.settings.method.shows_everything();
        let label = if everything { self.cleared(seen().join(&self.base)) } else { level.label };
        if let Some(screener) = self.settings.method.screener() {
            let nonce = self.settings.key.nonce(self.screenings);
            let View { request, names, .. } =
                self.source(Some((&nonce, self.clearance.screener))).view(label);
            let may_ask = !names.is_empty() && label.flows_to(&self.clearance.screener);
            if !may_ask && (!names.is_empty() || names.omitted().is_some()) {
                let label = self.needed(&names, None);
                let label = self.chosen.take().unwrap_or(label);
                return Some(self.screen(label));
            }
            if !names.is_empty() {
                let known = names.all().iter().map(|hidden| hidden.name.clone()).collect();
                let request = Arc::unwrap_or_clone(request);
                let question = screener.question(Tagged { request, nonce, names: known });
                self.phase = Phase::Screening(names);
                return Some(Need::Screen(question));
            }
        }
        if let Some(label) = self.chosen.take() {
            return Some(self.screen(label));
        }
        self.is_draft = self.settings.method.drafts() && label != self.base;
        Some(self.show(label))
    }

    /// Returns the greatest label that flows to `label` and to the clearance of the model.
    fn cleared(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// Accepts the answer of the screener's model.
    pub fn screened(&mut self, completion: &Completion) {
        self.put(|| Input::Screened(completion.clone()));
        let phase = std::mem::replace(&mut self.phase, Phase::User);
        if !matches!(phase, Phase::Screening(_) | Phase::Filtering) {
            self.phase = phase;
            return;
        }
        self.turn.spent.screenings += 1;
        self.screenings += 1;
        self.turn.spent.tokens = self.turn.spent.tokens.plus(completion.usage);
        let Phase::Screening(names) = phase else {
            self.roster = Some(tool_filter::answer(completion));
            self.phase = Phase::Generate;
            return;
        };
        let answer = self.settings.method.screener().and_then(|screener| screener.answer(completion));
        let label = self.needed(&names, answer.as_deref());
        self.phase = Phase::Showing(label);
    }

    /// Returns the join of the labels of the needed regions; of all hidden regions if the answer is missing or
    /// invalid.
    fn needed(&mut self, names: &Names, answer: Option<&[String]>) -> Label {
        // An answer with an unknown name is invalid.
        let answer = answer.filter(|needed| needed.iter().all(|name| names.get(name).is_some()));
        // The choice selects one of the labels, and one of the sets of regions.
        self.turn.spent.bits += self.monitor.policy().space().bits().min(names.len());
        // The screener cannot judge what it was not shown.
        let omitted = names.omitted().map_or(self.base, |omitted| omitted.join(&self.base));
        let is_needed = |hidden: &&Hidden| {
            !hidden.reach.flows_to(&self.clearance.screener)
                || answer.is_none_or(|needed| needed.contains(&hidden.name))
        };
        let needed = names.all().iter().filter(is_needed);
        self.cleared(needed.fold(omitted, |label, hidden| label.join(&hidden.label)))
    }

    /// Shows the model a view at the label that a screener chose.
    fn screen(&mut self, label: Label) -> Need {
        let base = self.base;
        if label != base {
            self.monitor.enter(&base, &label);
        }
        self.show(label)
    }

    fn show(&mut self, label: Label) -> Need {
        // A roster is valid for one turn only.
        let has_roster = self.roster.is_some();
        let begun = if has_roster { Begun::default() } else { self.items.begun(&label) };
        let (view, calls) = self.source(None).view_from(label, begun);
        debug_assert_eq!(view, self.view_at(label), "what was shown is shown again as it would be anew");
        if !has_roster {
            self.items.show(view.clone(), calls);
        }
        self.turn.spent.hidden += view.names.len();
        self.view = Some(view.clone());
        Need::Complete(view)
    }

    /// Accepts the model's next message. Returns the label of the step that stands now: of this message, or of the
    /// draft that it was to replace. Returns `None` if the message is to be rewritten from a smaller view.
    pub fn completed(&mut self, completion: Completion) -> Option<Label> {
        self.put(|| Input::Completed(completion.clone()));
        let view = self.view.take()?;
        self.turn.spent.messages += 1;
        self.turn.spent.tokens = self.turn.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle(view, completion)?;
        if self.settings.method == Method::Provenance
            && let Some(level) = self.levels.last_mut()
        {
            // What this turn has done so far stays visible until the turn ends.
            level.label = level.label.join(&view.label);
        }
        let Completion { text, calls, stop, .. } = completion;
        self.turn.stop = stop;
        // The absence of a reply carries information, too.
        self.said = self.said.join(&view.label);
        if !text.is_empty() {
            self.reply(&text, view.label, view.names.len());
        }
        let (has_calls, label) = (!calls.is_empty(), view.label);
        let calls = calls.into_iter().map(|call| Made { call, answer: Answer::Pending }).collect();
        self.items.push(Item::Step(Step { label: view.label, names: view.names, text, calls }));
        self.phase = Phase::Calls(0);
        if !has_calls {
            self.end_level(None);
        }
        Some(label)
    }

    /// Reports that the model gave no answer. A lower level that was to continue does so, because a model that fails
    /// on hidden text reveals a fact about that text. Otherwise the turn ends.
    pub fn failed(&mut self) {
        self.put(|| Input::Failed);
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.end_level(Some(Ended::Model));
    }

    /// Aborts the turn, whatever it waits for.
    pub fn stop(&mut self) {
        self.put(|| Input::Stop);
        self.note_void("the turn was stopped");
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.levels.clear();
        self.turn.ended = Some(Ended::Model);
        self.phase = Phase::User;
    }

    /// Returns a filter for streaming what the model writes now, if any of it may be shown before all of it is
    /// judged: if no rule can stop it, and no draft takes its place.
    pub(crate) fn live(&self) -> Option<links::Live> {
        let (label, hidden) = (self.view.as_ref()?.label, self.view.as_ref()?.names.len());
        let is_final = !self.is_draft && self.drafted.is_none() && !self.monitor.may_stop_replies();
        is_final.then(|| links::Live::new(&self.monitor, &label, hidden))
    }

    /// Takes the judged calls of an aborted turn.
    pub fn judged(&mut self) -> Vec<Judged> {
        std::mem::take(&mut self.turn.judged)
    }

    /// The replies of the model in this turn so far.
    pub fn replies(&self) -> &[Reply] {
        &self.turn.replies
    }

    /// Whether the step in progress is above the lowest label.
    pub fn is_raised(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.label != self.base)
    }

    /// Judges a reply to the user, and adds it to the turn; its text is withheld if a rule forbids it.
    fn reply(&mut self, text: &str, label: Label, hidden: usize) {
        let message = Message { role: "assistant".to_owned(), content: Value::String(text.to_owned()) };
        let withheld: Vec<String> =
            match self.monitor.push_generated(Entry::from(Body::Message(message)), label) {
                Ok((_, findings)) => stops(findings),
                Err(error) => vec![error.to_string()],
            };
        let method = self.settings.method.name();
        // Placeholders are meaningful to the model only.
        let text = placeholder::neutral(text, hidden);
        let (mut text, disarmed) = links::disarm(&mut self.monitor, method, &text, label, &mut self.judged);
        if !withheld.is_empty() {
            self.turn.withheld.push(std::mem::take(&mut text));
        }
        self.turn.replies.push(Reply { text, label: self.monitor.describe(&label), withheld, disarmed });
    }

    /// Ends the current level after the model's last message on it, and resumes the next lower level that was to
    /// continue.
    fn end_level(&mut self, ended: Option<Ended>) {
        while let Some(level) = self.levels.pop() {
            if level.then_return {
                self.phase = Phase::Generate;
                return;
            }
        }
        self.turn.ended = ended;
        self.phase = Phase::User;
    }

    fn step(&self) -> Option<&Step> {
        match self.items.last() {
            Some(Item::Step(step)) => Some(step),
            _ => None,
        }
    }
}

/// Returns the messages of rules that object to something that can no longer be stopped.
fn stops(findings: Vec<Finding>) -> Vec<String> {
    let objects = |finding: &Finding| {
        finding.reason.kind == ReasonKind::Rule && finding.reason.action != flowgate::policy::Action::Log
    };
    findings.into_iter().filter(objects).map(|finding| finding.reason.message).collect()
}
