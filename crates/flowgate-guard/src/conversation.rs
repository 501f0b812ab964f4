//! A guarded conversation: RTBAS's Algorithm 4 as a machine without input and output.
//!
//! It says what it [needs](Need) next: the model's next message, a slot filled, a person's decision, a tool's answer.
//! Whoever drives it ([`crate::agent`], a gateway, a test) gets that and hands it in. So one piece of code decides what
//! is shown and what runs, wherever models and tools live.
//!
//! **Lowest first.** A step is shown what flows to the strictest requirement on offer. The model asks for more with
//! [`look`](crate::slot::LOOK), and that raises the label of what follows: a *level* on top of the one below, which ends when
//! the model says its last word there. Nothing that happens on a level is shown below it. So what is hidden decides
//! nothing that a lower step does: not its calls, their order or their number, and not whether there is one.

mod again;
mod beside;
mod calls;
mod concealed;
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

/// What a conversation waits for.
#[derive(Debug)]
#[must_use]
pub enum Need {
    /// The model's next message: [`Conversation::completed`].
    Complete(View),
    /// What the next step depends on, from the screener's model: [`Conversation::screened`].
    Screen(Request),
    /// A text for a slot, from a model without tools: [`Conversation::filled`].
    Fill(Request),
    /// A person's decision: [`Conversation::decided`].
    Approve(Ask),
    /// A tool's answer; this call may run: [`Conversation::ran`].
    Run(Authorized),
    /// The user's next message: [`Conversation::user`].
    User(Turn),
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// Text, or a list of content blocks.
    pub content: Value,
    /// The same as a JSON value, if the tool gives both.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether it is an error.
    pub is_error: bool,
    /// What it carries besides what the policy says, in names ([`Conversation::carried`]): for a tool that is an agent itself.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub carries: Option<Value>,
}

impl ToolAnswer {
    /// An answer that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Value::String(text.into()), structured: None, is_error: false, carries: None }
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// A conversation with a model, guarded.
#[derive(Debug)]
pub struct Conversation {
    monitor: Monitor,
    settings: Settings,
    catalogue: Catalogue,
    items: Items,
    /// The lowest label, and what was raised on it.
    levels: Vec<Level>,
    base: Label,
    /// The same in the next turn.
    lowest: Label,
    /// What nothing in this conversation carries less than.
    floor: Label,
    phase: Phase,
    turn: Turn,
    /// How many calls were judged without being meant to run, for ids that are unique.
    judged: usize,
    /// How many calls each label has made.
    ids: HashMap<Label, usize>,
    view: Option<View>,
    /// What rules found in what others said, to be told with the turn.
    found: Vec<String>,
    /// The join of the labels at which something could be said in this turn.
    said: Label,
    /// The label of the next step, if somebody has chosen it.
    chosen: Option<Label>,
    /// Whether the step that is being written may be written again.
    is_draft: bool,
    /// What is being written again from less.
    drafted: Option<(View, Completion)>,
    traced: draft::Traced,
    /// Which tools are on offer in this turn, if not all.
    roster: Option<Vec<String>>,
    clearance: Clearance,
    /// Calls that the caller has got in the last message, and that have not run beside the chat.
    delivered: HashSet<String>,
    /// Calls that were taken to run beside the chat since somebody asked: the tool, and what stands for the call.
    taken: Vec<(Tool, String)>,
    /// Calls that ran beside the chat, and what they answered.
    beside: HashMap<String, EventId>,
    /// The call that a person has just allowed, until it runs or does not: the tool, and what stands for the call.
    approved: Option<(Tool, String)>,
    /// What was offered last, if all of it could be taken in.
    offered: Option<Vec<Arc<Offered>>>,
    /// What was put in since it was last taken out, if that is kept.
    inputs: Option<Vec<Input>>,
}

impl Conversation {
    /// A conversation under the policy of `monitor`, in which the model may call these tools.
    ///
    /// # Errors
    /// If the session has no room for what servers say of their tools.
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
            taken: Vec::new(),
            beside: HashMap::new(),
            approved: None,
            offered: None,
            inputs: None,
        })
    }

    /// The labels and the record of what happened.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// What this account's stores carry, for its next conversation.
    pub fn remember(&self) -> Value {
        self.monitor.remember()
    }

    /// Marks what was written to stores since the last time: see [`Monitor::stamp`].
    pub fn stamp(&mut self, stamp: &str) {
        if self.monitor.stamp(stamp) {
            self.put(|| Input::Stamped(stamp.to_owned()));
        }
    }

    /// Whether something was written to stores that was not [marked](Self::stamp) since.
    pub fn has_written(&self) -> bool {
        self.monitor.has_written()
    }

    /// How often what is remembered may have changed: see [`Monitor::memory_changes`].
    pub fn memory_changes(&self) -> u64 {
        self.monitor.memory_changes()
    }

    /// Joins what others of this account have written to stores since: see [`Monitor::recall`].
    ///
    /// # Errors
    /// If it is no such record.
    pub fn recall(&mut self, record: &Value) -> Result<(), MemoryError> {
        self.put(|| Input::Recall(record.clone()));
        self.monitor.recall(record)
    }

    /// The consents on these lines of the policy are withdrawn from now on, and no others.
    /// Whether that is another set than before: then no call may run any more that was permitted and has not.
    pub fn withdraw(&mut self, lines: &BTreeSet<usize>) -> bool {
        let has_changed = self.monitor.withdraw_consents(lines);
        if has_changed {
            self.put(|| Input::Withdrawn(lines.clone()));
            self.delivered.clear();
        }
        has_changed
    }

    /// How the model's tokens are chosen from now on.
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

    /// Chooses the label of the next step, instead of the method: what a recorded run chose is replayed so.
    pub fn choose(&mut self, label: Label) {
        if self.inputs.is_some() {
            let names = self.monitor.to_names(&label);
            self.put(|| Input::Choose(names));
        }
        self.chosen = Some(label);
    }

    /// Goes on with a turn that has ended, without another message of the user.
    pub fn go_on(&mut self) {
        self.put(|| Input::GoOn);
        if self.is_over() {
            self.start();
        }
    }

    /// Whether nothing more is needed for this turn: it is the user's.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::User) && self.view.is_none()
    }

    /// What the next step would be shown at `label`.
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

    /// What the conversation waits for.
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
                // No answer: everything counts.
                Phase::Screening(names) => {
                    let label = self.needed(&names, None);
                    Some(self.screen(label))
                }
                Phase::Filtering => {
                    self.roster = Some(Vec::new());
                    self.phase = Phase::Generate;
                    None
                }
                Phase::Showing(label) => Some(self.screen(label)),
                Phase::Calls(index) => self.call(index),
                Phase::Filling(filling) => self.fill(*filling),
                Phase::Redeeming { index, permit } => self.redeem(index, *permit),
                // Nobody has answered: no is the answer, and a tool that was started may have done anything.
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
        // As if the model had nothing to say there. That it was so is told nowhere below.
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
        if let Some(label) = self.chosen.take() {
            return Some(self.screen(label));
        }
        if let Some(screener) = self.settings.method.screener() {
            let nonce = self.settings.key.nonce(self.items.len());
            let View { request, names, .. } =
                self.source(Some((&nonce, self.clearance.screener))).view(label);
            if !names.is_empty() && !label.flows_to(&self.clearance.screener) {
                let label = self.needed(&names, None);
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
        self.is_draft = self.settings.method.drafts() && label != self.base;
        Some(self.show(label))
    }

    /// As much of a label as the model may be shown.
    fn cleared(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// The screener's model has answered.
    pub fn screened(&mut self, completion: &Completion) {
        self.put(|| Input::Screened(completion.clone()));
        let phase = std::mem::replace(&mut self.phase, Phase::User);
        if !matches!(phase, Phase::Screening(_) | Phase::Filtering) {
            self.phase = phase;
            return;
        }
        self.turn.spent.screenings += 1;
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

    /// The join of the labels of what is needed; of all that is hidden, if nobody knows what is.
    fn needed(&mut self, names: &Names, answer: Option<&[String]>) -> Label {
        // A name that nobody gave is no answer.
        let answer = answer.filter(|needed| needed.iter().all(|name| names.get(name).is_some()));
        // The choice is one among the labels, and among the sets of regions.
        self.turn.spent.bits += self.monitor.policy().space().bits().min(names.len());
        // What the screener was not shown it could not judge.
        let is_needed = |hidden: &&Hidden| {
            !hidden.reach.flows_to(&self.clearance.screener)
                || answer.is_none_or(|needed| needed.contains(&hidden.name))
        };
        let needed = names.all().iter().filter(is_needed);
        self.cleared(needed.fold(self.base, |label, hidden| label.join(&hidden.label)))
    }

    /// What the model is shown at a label that a screener chose.
    fn screen(&mut self, label: Label) -> Need {
        let base = self.base;
        if label != base {
            self.monitor.enter(&base, &label);
        }
        self.show(label)
    }

    fn show(&mut self, label: Label) -> Need {
        // A roster holds for one turn.
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

    /// The model has written its next message. Returns the label of the step that stands now: of this one, or of the draft
    /// that it was to replace. There is none if the message is to be written again from less.
    pub fn completed(&mut self, completion: Completion) -> Option<Label> {
        self.put(|| Input::Completed(completion.clone()));
        let view = self.view.take()?;
        self.turn.spent.messages += 1;
        self.turn.spent.tokens = self.turn.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle(view, completion)?;
        if self.settings.method == Method::Provenance
            && let Some(level) = self.levels.last_mut()
        {
            // What was done so far in this turn is shown until it ends.
            level.label = level.label.join(&view.label);
        }
        let Completion { text, calls, stop, .. } = completion;
        self.turn.stop = stop;
        // That nothing is said here tells something, too.
        self.said = self.said.join(&view.label);
        if !text.is_empty() {
            self.reply(&text, view.label);
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

    /// The model gave no answer. What was promised to go on below does so: that a model fails on hidden text is a fact
    /// about the text. Otherwise the turn ends.
    pub fn failed(&mut self) {
        self.put(|| Input::Failed);
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.end_level(Some(Ended::Model));
    }

    /// The turn is given up, whoever waits for it.
    pub fn stop(&mut self) {
        self.put(|| Input::Stop);
        self.note_void("the turn was stopped");
        (self.view, self.drafted, self.is_draft) = (None, None, false);
        self.levels.clear();
        self.turn.ended = Some(Ended::Model);
        self.phase = Phase::User;
    }

    /// What the model writes now, if any of it may be shown before all of it is judged: no rule can stop it, and no
    /// draft takes its place.
    pub(crate) fn live(&self) -> Option<links::Live> {
        let label = self.view.as_ref()?.label;
        let is_final = !self.is_draft && self.drafted.is_none() && !self.monitor.may_stop_replies();
        is_final.then(|| links::Live::new(&self.monitor, &label))
    }

    /// Takes out what was judged in a turn that was given up.
    pub fn judged(&mut self) -> Vec<Judged> {
        std::mem::take(&mut self.turn.judged)
    }

    /// What the model has said in this turn so far.
    pub fn replies(&self) -> &[Reply] {
        &self.turn.replies
    }

    /// Whether the step that is being written is above the lowest label.
    pub fn is_raised(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.label != self.base)
    }

    /// Judges what the model says to the user, and shows it if no rule forbids that.
    fn reply(&mut self, text: &str, label: Label) {
        let message = Message { role: "assistant".to_owned(), content: Value::String(text.to_owned()) };
        let withheld: Vec<String> =
            match self.monitor.push_generated(Entry::from(Body::Message(message)), label) {
                Ok((_, findings)) => stops(findings),
                Err(error) => vec![error.to_string()],
            };
        let method = self.settings.method.name();
        // Nobody but the model knows what a placeholder is.
        let text = placeholder::neutral(text);
        let (mut text, disarmed) = links::disarm(&mut self.monitor, method, &text, label, &mut self.judged);
        if !withheld.is_empty() {
            self.turn.withheld.push(std::mem::take(&mut text));
        }
        self.turn.replies.push(Reply { text, label: self.monitor.describe(&label), withheld, disarmed });
    }

    /// The model has said its last word on this level: the next lower one goes on that was promised it would.
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

/// What rules say that object to something which cannot be stopped any more.
fn stops(findings: Vec<Finding>) -> Vec<String> {
    let objects = |finding: &Finding| {
        finding.reason.kind == ReasonKind::Rule && finding.reason.action != flowgate::policy::Action::Log
    };
    findings.into_iter().filter(objects).map(|finding| finding.reason.message).collect()
}
