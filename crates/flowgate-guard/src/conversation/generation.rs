//! Generates the steps of a conversation: decides which label the next one has, what it is shown, and what its message
//! leads to.
//!
//! The [method](crate::method) of the conversation says how the label is chosen: the lowest first, by a draft, or by a
//! screener (a model that names the hidden regions that the step needs). [`super`] advances through the phases and
//! calls this file for a step; [`super::apply`] passes the model's message and the screener's answer in. Invariant: a
//! step is shown only what flows to its label, and its label flows to the clearance of the model.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::trace::{Message, TraceEntry};
use flowgate_lm::chat::Completion;

use super::phase::ConversationPhase;
use super::{Conversation, ModelReply, Need, StepLabelling, TurnEnd, blocking_messages};
use crate::links;
use crate::placeholder;
use crate::redact::{HiddenRegion, HiddenRegions};
use crate::screener::TaggedChat;
use crate::view::{CallOutcome, ConversationItem, ModelStep, StepCall, View, ViewBuilder, ViewPrefix};

impl Conversation {
    /// Begins the next step: chooses its label and shows the model a view, or asks the model that selects tools or
    /// screens regions first. Ends the level, or the turn, at a limit. Returns `None` if there is nothing to ask now.
    pub(super) fn next_generation(&mut self) -> Option<Need> {
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
            let selector_bound =
                self.monitor.policy().space().greatest_below(&level.label, &self.clearance.screener);
            self.phase = ConversationPhase::Filtering;
            let request = Arc::unwrap_or_clone(self.view_at(selector_bound).request).without_reasoning();
            return Some(Need::Screen(selector.question(request)));
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
                let request = Arc::unwrap_or_clone(request).without_reasoning();
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
    pub(super) fn clamp_to_clearance(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// Takes the answer of the screener's model.
    pub(super) fn take_screening(&mut self, completion: &Completion) {
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
    pub(super) fn needed_label(&mut self, names: &HiddenRegions, answer: Option<&[String]>) -> Label {
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
    pub(super) fn show_screened(&mut self, label: Label) -> Need {
        let base = *self.labels.base();
        if label != base {
            self.monitor.raise_stores_for_view(&base, &label);
        }
        self.show(label)
    }

    /// Shows the model a view at a bound. The beginning of the last view is reused if it cannot have changed.
    fn show(&mut self, bound: Label) -> Need {
        // A roster is valid for one turn only.
        let has_roster = self.turn.roster.is_some();
        let reused_prefix = if has_roster { ViewPrefix::default() } else { self.items.take_prefix(&bound) };
        let floats_from = self.float_from(&bound);
        let builder = ViewBuilder { floats_from, ..self.view_builder(None) };
        let (view, summary) = builder.build_from(bound, reused_prefix);
        debug_assert_eq!(
            view,
            builder.build(bound),
            "a continued view must equal the view that is computed from the trace"
        );
        if !has_roster {
            self.items.cache_view(view.clone(), summary);
        }
        if let Some((before, reached)) = self.labels.record_step(&bound, &view.label)
            && self.settings.step_labels == StepLabelling::Floating
            && !self.settings.method.shows_everything()
        {
            // An observer who sees that no step was labelled higher must not learn what such a step wrote.
            self.monitor.raise_stores_for_view(&before, &reached);
        }
        self.turn.outcome.spent.hidden += view.names.len();
        self.step.show(view.clone());
        Need::Complete(view)
    }

    /// Returns the least label of a step with this bound, if its label floats.
    fn float_from(&self, bound: &Label) -> Option<Label> {
        let shows_all = self.settings.method.shows_everything() && self.drafts.is_none();
        match self.settings.step_labels {
            // Nothing that it could have been shown is hidden, so what it was shown is all that it depends on.
            StepLabelling::Floating if shows_all => Some(self.labels.least()),
            _ => self.labels.float_from(bound),
        }
    }

    /// Takes the model's next message. Returns the bound of the accepted step, if there is one.
    pub(super) fn take_completion(&mut self, completion: Completion) -> Option<Label> {
        let view = self.step.take_view()?;
        self.turn.outcome.spent.messages += 1;
        self.turn.outcome.spent.tokens = self.turn.outcome.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle_draft(view, completion)?;
        if self.settings.method.raises_level() {
            // What this turn has done so far stays visible until the turn ends.
            self.labels.raise_level(&view.bound);
        }
        let Completion { text, calls, thoughts, stop, .. } = completion;
        self.turn.outcome.stop = stop;
        // The absence of a reply carries information, too.
        self.labels.add_output(&view.label);
        for thought in &thoughts {
            let text = thought.text();
            if !text.is_empty() {
                let judged = self.judge_text(&text, view.label, view.names.len());
                self.turn.outcome.thoughts.push(judged);
            }
        }
        if !text.is_empty() {
            let judged = self.judge_text(&text, view.label, view.names.len());
            self.turn.outcome.replies.push(judged);
        }
        let (has_calls, bound) = (!calls.is_empty(), view.bound);
        let calls = calls.into_iter().map(|call| StepCall { call, answer: CallOutcome::Pending }).collect();
        self.items.push(ConversationItem::Step(ModelStep {
            label: view.label,
            bound,
            names: view.names,
            text,
            calls,
            thoughts,
        }));
        self.phase = ConversationPhase::Calls(0);
        if !has_calls {
            self.end_level(None);
        }
        Some(bound)
    }

    /// Ends the step, to which the model gave no answer.
    pub(super) fn fail_step(&mut self) {
        self.step.clear();
        self.end_level(Some(TurnEnd::Model));
    }

    /// Aborts the turn, whatever it waits for.
    pub(super) fn abort_turn(&mut self) {
        self.turn.void_approval("the turn was stopped");
        self.step.clear();
        self.labels.end_all();
        self.turn.outcome.ended = Some(TurnEnd::Model);
        self.phase = ConversationPhase::User;
    }

    /// Judges a text of the model that the user may see, a reply or its reasoning; the text is withheld if a rule forbids
    /// it.
    fn judge_text(&mut self, text: &str, label: Label, hidden: usize) -> ModelReply {
        let message = Message::new("assistant", text);
        let withheld: Vec<String> = match self.monitor.push_generated(TraceEntry::from(message), label) {
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
        ModelReply { text, label: self.monitor.describe(&label), withheld, disarmed }
    }

    /// Ends the current level after the model's last message on it, and resumes the next lower level that was to
    /// continue.
    pub(super) fn end_level(&mut self, ended: Option<TurnEnd>) {
        if self.labels.end_level() {
            self.phase = ConversationPhase::Generate;
            return;
        }
        self.turn.outcome.ended = ended;
        self.phase = ConversationPhase::User;
    }
}
