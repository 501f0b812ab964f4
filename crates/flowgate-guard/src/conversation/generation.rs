//! Generates the steps of a conversation: chooses the label of the next step, shows the model a view at that label, and
//! adds the model's message to the chat.
//!
//! The [method](crate::method) of the conversation says how the label is chosen: the lowest label first, by a draft (a
//! message that was written with everything in view, and may have to be rewritten), or by a screener (a model that
//! names the hidden regions that the step needs). [`super`] advances through the phases and calls this module for each
//! step; [`super::apply`] passes in the model's message and the screener's answer. Invariant: a step is shown only what
//! flows to its label, and its label flows to the clearance of the model.

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
    /// Begins the next step: chooses its label and shows the model a view. If the method has a model that selects the
    /// tools of the turn or screens the hidden regions, asks this model first; its answer arrives in
    /// [`take_screening`](Self::take_screening). At a limit, ends the level (the steps that the model writes at one
    /// label) or the turn instead. Returns what is needed next; `None` if nothing has to be asked now, so that the
    /// phase says how the turn continues.
    pub(super) fn next_generation(&mut self) -> Option<Need> {
        let level = self.labels.level()?;
        if self.turn.outcome.spent.messages >= self.settings.messages {
            // No level is left to return to, so `end_level` ends the turn.
            self.labels.end_all();
            self.end_level(Some(TurnEnd::Steps));
            return None;
        }
        if level.steps >= self.settings.steps {
            self.end_level(Some(TurnEnd::Steps));
            return None;
        }
        // The model may not read what this level shows. The level ends as if the model had written a message without
        // calls on it, so no step on a lower level observes the difference.
        if !level.label.flows_to(&self.clearance.model) {
            self.end_level(Some(TurnEnd::Clearance));
            return None;
        }
        // Once a turn, a method may have a model select the tools on offer.
        if let Some(selector) =
            self.settings.method.tool_selector().filter(|_| self.turn.selected_tools.is_none())
        {
            let selector_bound =
                self.monitor.policy().space().greatest_below(&level.label, &self.clearance.screener);
            self.phase = ConversationPhase::Filtering;
            let request = Arc::unwrap_or_clone(self.view_at(selector_bound).request).without_reasoning();
            return Some(Need::Screen(selector.question(request)));
        }
        self.labels.count_step();
        // The join of the labels of everything that a step could be shown: of all events up to the last one (its
        // `context`).
        let full_label = || self.monitor.trace().events().last().map_or(Label::BOTTOM, |event| event.context);
        let label = if self.settings.method.shows_everything() {
            self.clamp_to_clearance(full_label().join(self.labels.base()))
        } else {
            level.label
        };
        if let Some(need) = self.screen(label) {
            return Some(need);
        }
        // A label that the caller has chosen (`choose_label`) replaces the method's label.
        if let Some(label) = self.labels.take_chosen() {
            return Some(self.show_screened(label));
        }
        // If the method judges drafts, a message that was written above the base label is a draft.
        self.step.set_draft(self.drafts.is_some() && label != *self.labels.base());
        Some(self.show(label))
    }

    /// Asks the method's screener which of the regions that are hidden at `label` the step needs. If the screener
    /// cannot be asked about what is hidden, all of it counts as needed: shows the model a view at the label of
    /// [`needed_label`](Self::needed_label) or, if the caller has chosen a label (`choose_label`), at this label.
    /// Returns `None` if the method has no screener, or nothing is hidden at `label`.
    fn screen(&mut self, label: Label) -> Option<Need> {
        let screener = self.settings.method.screener()?;
        let nonce = self.settings.key.nonce(self.numbers.screenings());
        // The view for the screener: `names` are the regions that a step at `label` would not be shown.
        let View { request, names, .. } =
            self.view_builder(Some((&nonce, self.clearance.screener))).build(label);
        // An event or a step whose existence is hidden from the screener is left out of its view: it is no region with
        // a name, and only its label is known (`omitted_label`).
        if names.is_empty() && names.omitted_label().is_none() {
            return None;
        }
        // The screener can choose only among regions with names, and may read the view only if its clearance covers
        // `label`.
        let may_ask = !names.is_empty() && label.flows_to(&self.clearance.screener);
        if !may_ask {
            // `None`: without an answer, everything that is hidden counts as needed.
            let label = self.needed_label(&names, None);
            let label = self.labels.take_chosen().unwrap_or(label);
            return Some(self.show_screened(label));
        }
        let region_names = names.all().iter().map(|hidden| hidden.name.clone()).collect();
        let request = Arc::unwrap_or_clone(request).without_reasoning();
        let question = screener.question(TaggedChat { request, nonce, names: region_names });
        self.phase = ConversationPhase::Screening(names);
        Some(Need::Screen(question))
    }

    /// Returns the greatest label that flows to `label` and to the clearance of the model.
    pub(super) fn clamp_to_clearance(&self, label: Label) -> Label {
        self.monitor.policy().space().greatest_below(&label, &self.clearance.model)
    }

    /// Takes the answer of the screener's model: the tools that it selects for this turn, or the regions that the next
    /// step needs. Does nothing if the screener was not asked.
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
            // The phase is `Filtering`: the answer selects the tools of this turn.
            let selector = self.settings.method.tool_selector();
            self.turn.selected_tools =
                Some(selector.map(|selector| selector.parse_answer(completion)).unwrap_or_default());
            self.phase = ConversationPhase::Generate;
            return;
        };
        let answer = self.settings.method.screener().and_then(|screener| screener.parse_answer(completion));
        let label = self.needed_label(&names, answer.as_deref());
        self.phase = ConversationPhase::Showing(label);
    }

    /// Returns the label of what the next step needs, lowered to the clearance of the model: the join of the base
    /// label and of the labels of what is needed. This is each region that the screener's `answer` names, each
    /// region that the screener may not read, and everything that was omitted from the screener's view. `names` are
    /// the regions that this view hid or tagged. A missing or invalid answer counts as one that names all of them.
    /// Counts the bits of hidden text that the choice reveals.
    pub(super) fn needed_label(&mut self, names: &HiddenRegions, answer: Option<&[String]>) -> Label {
        // An answer with an unknown name is invalid.
        let answer = answer.filter(|needed| needed.iter().all(|name| names.get(name).is_some()));
        // What the choice reveals has at most as many bits as a label, and at most one bit for each region.
        self.turn.outcome.spent.bits += self.monitor.policy().space().bits().min(names.len());
        // The screener cannot judge what it was not shown.
        let omitted =
            names.omitted_label().map_or(*self.labels.base(), |omitted| omitted.join(self.labels.base()));
        // The screener may read a region if its clearance covers everything in the region (`reach`).
        let is_needed = |hidden: &&HiddenRegion| {
            !hidden.reach.flows_to(&self.clearance.screener)
                || answer.is_none_or(|needed| needed.contains(&hidden.name))
        };
        let needed = names.all().iter().filter(is_needed);
        self.clamp_to_clearance(needed.fold(omitted, |label, hidden| label.join(&hidden.label)))
    }

    /// Shows the model a view at a label that a screener or the caller chose. This choice may depend on hidden text,
    /// and so may what the step writes: the labels of the stores to which it could write are raised first.
    pub(super) fn show_screened(&mut self, label: Label) -> Need {
        let base = *self.labels.base();
        if label != base {
            self.monitor.raise_stores_for_view(&base, &label);
        }
        self.show(label)
    }

    /// Starts a step with this bound: builds its view, and returns the need for the model's message. The beginning of
    /// the last view is reused if it cannot have changed. The label of the view is the bound or, if the label of the
    /// step floats ([`float_from`](Self::float_from)), the join of the labels of what is shown.
    fn show(&mut self, bound: Label) -> Need {
        // A selection of tools is valid for one turn only, so its view is neither reused nor cached.
        let has_selected_tools = self.turn.selected_tools.is_some();
        let reused_prefix =
            if has_selected_tools { ViewPrefix::default() } else { self.items.take_prefix(&bound) };
        let floats_from = self.float_from(&bound);
        let builder = ViewBuilder { floats_from, ..self.view_builder(None) };
        let (view, summary) = builder.build_from(bound, reused_prefix);
        debug_assert_eq!(
            view,
            builder.build(bound),
            "a continued view must equal the view that is computed from the trace"
        );
        if !has_selected_tools {
            self.items.cache_view(view.clone(), summary);
        }
        if let Some((raised_up_to, raise_to)) = self.labels.record_step(&bound, &view.label)
            && self.settings.step_labels == StepLabelling::Floating
            && !self.settings.method.shows_everything()
        {
            // With floating labels, the label of a step depends on what the step is shown. Whether a store carries a
            // higher label must not tell an observer whether such a step wrote to it, so all stores that the step could
            // write to are raised first. With fixed labels, the label of a step reveals nothing. A method that shows
            // everything does not promise to hide whether a step wrote (`docs/guard.md`).
            self.monitor.raise_stores_for_view(&raised_up_to, &raise_to);
        }
        self.turn.outcome.spent.hidden += view.names.len();
        self.step.show(view.clone());
        Need::Complete(view)
    }

    /// Returns the least label that a step with this bound can have, if the label of the step *floats*, that is, if it
    /// is the join of the labels of what the step is shown. `None` if the label of the step is the bound itself.
    fn float_from(&self, bound: &Label) -> Option<Label> {
        let shows_all = self.settings.method.shows_everything() && self.drafts.is_none();
        match self.settings.step_labels {
            // Nothing that could be shown is hidden from the step, so its label depends only on what the step is shown.
            StepLabelling::Floating if shows_all => Some(self.labels.least()),
            // In all other cases, only a step at the base label may float.
            _ => self.labels.float_from(bound),
        }
    }

    /// Takes the model's next message: judges its text and its reasoning before the user receives them, adds the step
    /// to the chat, and continues with its calls. A message without calls ends the level. Returns the bound of the
    /// accepted step; `None` if the message is a draft that has to be rewritten, or if no message was awaited.
    pub(super) fn take_completion(&mut self, completion: Completion) -> Option<Label> {
        let view = self.step.take_view()?;
        self.turn.outcome.spent.messages += 1;
        self.turn.outcome.spent.tokens = self.turn.outcome.spent.tokens.plus(completion.usage);
        let (view, completion) = self.settle_draft(view, completion)?;
        let Completion { text, calls, thoughts, citations, stop, .. } = completion;
        self.turn.outcome.stop = stop;
        // Recorded for a step without a text, too: the absence of a text depends on what the step was shown.
        self.labels.add_output(&view.label);
        for thought in &thoughts {
            let text = thought.text();
            if !text.is_empty() {
                // `false`: reasoning is never JSON, whatever form the client demands of the reply.
                let judged = self.judge_text(&text, view.label, view.names.len(), false);
                self.turn.outcome.thoughts.push(judged);
            }
        }
        if !text.is_empty() {
            // The client expects JSON even if the view did not show the model the form.
            let is_json = self.format.is_some();
            let mut judged = self.judge_text(&text, view.label, view.names.len(), is_json);
            judged.citations = self.judge_citations(citations, &text, &judged, view.label);
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

    /// Ends the step in progress, because the model gave no answer, and ends the level of the step.
    pub(super) fn fail_step(&mut self) {
        self.step.clear();
        self.end_level(Some(TurnEnd::Model));
    }

    /// Aborts the turn, whatever it waits for. An approved call that has not run is reported as void. The turn ends as
    /// if the model gave no answer.
    pub(super) fn abort_turn(&mut self) {
        self.turn.void_approval("the turn was stopped");
        self.step.clear();
        self.labels.end_all();
        self.turn.outcome.ended = Some(TurnEnd::Model);
        self.phase = ConversationPhase::User;
    }

    /// Judges a reply or the reasoning of the model before the user sees it. Disarms forbidden URLs in the text,
    /// and replaces placeholders, which mean nothing to the user. If a rule forbids the text, the returned reply
    /// has no text, and the turn keeps the text for the operator. `label` is the label of the step that wrote the
    /// text, and `hidden` is the number of hidden regions of the view that the step was shown. If the client
    /// expects JSON (`is_json`), looks for URLs and placeholders in the decoded strings of the JSON text.
    fn judge_text(&mut self, text: &str, label: Label, hidden: usize, is_json: bool) -> ModelReply {
        let message = Message::new("assistant", text);
        let withheld: Vec<String> = match self.monitor.push_generated(TraceEntry::from(message), label) {
            Ok((_, findings)) => blocking_messages(findings),
            // The session has no room for the text, so no rule could examine it: it is withheld, too.
            Err(error) => vec![error.to_string()],
        };
        let method = self.settings.method.name();
        let next_id = self.numbers.addresses_mut();
        let (mut text, disarmed) = match is_json {
            true => links::disarm_json(&mut self.monitor, method, (text, hidden), label, next_id),
            false => {
                let text = placeholder::neutralize(text, hidden);
                links::disarm(&mut self.monitor, method, &text, label, next_id)
            }
        };
        if !withheld.is_empty() {
            self.turn.outcome.withheld.push(std::mem::take(&mut text));
        }
        let label = self.monitor.describe(&label);
        ModelReply { text, label, withheld, disarmed, citations: Vec::new() }
    }

    /// Ends the current level (the steps that the model writes at one view label), and resumes the lower level that the
    /// model left with a `look` and wanted to return to. If there is none, ends the turn; `ended` is the reason, or
    /// `None` if the turn is complete.
    pub(super) fn end_level(&mut self, ended: Option<TurnEnd>) {
        if self.labels.end_level() {
            self.phase = ConversationPhase::Generate;
            return;
        }
        self.turn.outcome.ended = ended;
        self.phase = ConversationPhase::User;
    }
}
