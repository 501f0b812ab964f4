//! Owns the labels of the steps of a turn ([`StepLabels`]). A turn starts at the base label. Each look adds a *level*
//! above it, and the next steps are generated at the label of the highest level. This module also joins the labels of
//! all steps of the turn that could have produced output for the caller.
//!
//! [`StepLabels`] decides which label a level has; it knows neither the policy nor the chat. A
//! [conversation](super::Conversation) begins turns, counts steps, and adds looks. Invariant: every level is at or
//! above the base label, and at or above the level below it. There is one exception: under a method that [raises
//! levels](crate::method::StepMethod::raises_level), a call that acts raises the level of its step, but not a level
//! that a look of the same step has added above it.
//!
//! **Labels that float.** The label of a level is the bound of its steps: they are shown what flows to it. Often a step
//! at the base label was shown only texts whose join is below this bound. If labels *float*, such a step carries the
//! join of what it was shown, and not the bound. A step above the base label always carries the label of its level: a
//! look or a method chose what it was shown, and later steps at the base label do not see that step.
//!
//! Labels stop floating when the base label changes, except if it rises before any step was above it. There are two
//! reasons. If the base label falls, a later step may no longer be shown events that an earlier step was shown. If it
//! rises after a step above it, a later step may be shown events of that step that were hidden so far, and which events
//! these are can depend on hidden labels. From then on, every step carries its bound. `docs/guard.md` has the proof.

use flowgate::label::Label;

use super::settings::StepLabelling;

/// A label at which steps are generated until the model writes a message without calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepLevel {
    pub(super) label: Label,
    /// Whether the level below continues when this one ends.
    then_return: bool,
    /// The number of steps so far, or since a call that the caller runs.
    pub(super) steps: usize,
    /// Whether the level has no step yet.
    is_fresh: bool,
}

impl StepLevel {
    /// Creates a level without steps.
    fn new(label: Label, then_return: bool) -> Self {
        Self { label, then_return, steps: 0, is_fresh: true }
    }
}

/// The labels of the steps of a turn.
#[derive(Debug)]
pub(super) struct StepLabels {
    /// The base label: the lowest bound of a step of this turn.
    base: Label,
    /// The base label that follows from the tools on offer. The next turn starts at the join of it and of `floor`.
    lowest: Label,
    /// A lower bound on the label of everything in this conversation; a task of another agent raises it.
    floor: Label,
    /// The levels of this turn, the lowest first.
    levels: Vec<StepLevel>,
    /// The label of the next step, if the caller has chosen it.
    chosen: Option<Label>,
    /// The join of the labels of all steps of this turn that could have produced output.
    output: Label,
    /// Whether the labels of steps at the base label float: such a step then carries the join of what it was shown,
    /// which can be lower than the base label.
    floats: bool,
    /// The join of the labels of all steps at the base label of their turn, in all turns.
    reached: Label,
    /// Whether tools were offered since the stores that steps could write to were raised.
    has_new_tools: bool,
    /// Whether there was a step in this conversation.
    has_steps: bool,
    /// Whether there was a step above the base label in this conversation.
    has_raised: bool,
    /// Whether the caller runs the calls, and so decides how many messages a task takes.
    are_calls_run_elsewhere: bool,
}

impl StepLabels {
    /// Creates the labels of a conversation that has no turn yet. `base` is the label at which its first turn starts.
    pub(super) fn new(base: Label, labelling: StepLabelling) -> Self {
        Self {
            base,
            lowest: base,
            floor: Label::BOTTOM,
            levels: Vec::new(),
            chosen: None,
            output: base,
            floats: labelling == StepLabelling::Floating,
            reached: Label::BOTTOM,
            has_new_tools: false,
            has_steps: false,
            has_raised: false,
            are_calls_run_elsewhere: false,
        }
    }

    /// Records that the caller runs the calls. The limit on the messages of a level then applies to the messages since
    /// the last call.
    pub(super) fn run_calls_elsewhere(&mut self) {
        self.are_calls_run_elsewhere = true;
    }

    /// Returns the least label of a step with this bound, if its label floats; the step then carries the join of this
    /// label and of the labels of what it is shown. Returns `None` if the step carries its bound.
    pub(super) fn float_from(&self, bound: &Label) -> Option<Label> {
        (self.floats && *bound == self.base).then_some(self.floor)
    }

    /// Returns the least label that a step of this turn can have, whatever it is shown: the lower bound on the label
    /// of everything in this conversation.
    pub(super) fn least(&self) -> Label {
        self.floor
    }

    /// Records that a view with this bound and this label is shown to the model. A step at the base label may need
    /// higher labels of the stores that it could write to: returns the label to which these stores are raised already,
    /// and the label to which they have to be raised. Returns `None` if no store has to be raised, or if the bound is
    /// not the base label: if the method hides text, other functions raise the stores for such a step.
    pub(super) fn record_step(&mut self, bound: &Label, label: &Label) -> Option<(Label, Label)> {
        self.has_steps = true;
        if *bound != self.base {
            self.has_raised = true;
            return None;
        }
        // The step could produce output, whether or not it does.
        self.output = self.output.join(label);
        // The stores of new tools are not raised yet.
        let is_raised = !std::mem::take(&mut self.has_new_tools);
        let raised_up_to = if is_raised { self.reached } else { Label::BOTTOM };
        self.reached = self.reached.join(label);
        (self.reached != raised_up_to).then_some((raised_up_to, self.reached))
    }

    /// Records a step with this label that was generated under another policy.
    pub(super) fn record_carried_step(&mut self, label: &Label) {
        self.has_steps = true;
        // The bound of the step is not known here, so its label decides whether it was shown more than the base label
        // allows.
        if label.flows_to(&self.base) {
            self.reached = self.reached.join(label);
        } else {
            self.has_raised = true;
        }
        self.output = self.output.join(label);
    }

    /// Returns the base label: the lowest bound of a step of this turn.
    pub(super) fn base(&self) -> &Label {
        &self.base
    }

    /// Returns the join of the labels of all steps of this turn that could have produced output for the caller.
    pub(super) fn output(&self) -> &Label {
        &self.output
    }

    /// Begins a turn. Its base label is the join of `lowest`, which follows from the tools on offer, and of `floor`,
    /// which the tasks of other agents raise. Decides whether the labels still float: see the header.
    pub(super) fn begin_turn(&mut self) {
        let base = self.lowest.join(&self.floor);
        // The change is compatible with floating labels if the base label stays, or rises before any step was above it:
        // what earlier steps were shown then stays visible. It is not compatible if the base label falls, because a
        // later step is then no longer shown what an earlier step was shown; nor if it rises after a step above it,
        // because a later step is then shown events of that step that were hidden so far. In both cases, which events
        // these are can depend on hidden labels, so the labels stop floating.
        let is_compatible = base == self.base || self.base.flows_to(&base) && !self.has_raised;
        self.floats &= is_compatible || !self.has_steps;
        self.base = base;
        self.restart_levels();
        // The label of the output so far, before any step: the least label that a step can have.
        self.output = if self.floats { self.floor } else { self.base };
    }

    /// Replaces all levels by one without steps, at the base label.
    pub(super) fn restart_levels(&mut self) {
        self.levels = vec![StepLevel::new(self.base, false)];
    }

    /// Sets the base label that follows from the tools on offer in the following turns.
    pub(super) fn set_lowest(&mut self, lowest: Label) {
        (self.lowest, self.has_new_tools) = (lowest, true);
    }

    /// Raises the lower bound on everything in this conversation, from the next turn on.
    pub(super) fn raise_floor(&mut self, label: &Label) {
        self.floor = self.floor.join(label);
    }

    /// Records that a step with this label could have produced output.
    pub(super) fn add_output(&mut self, label: &Label) {
        self.output = self.output.join(label);
    }

    /// Chooses the label of the next step in place of the method.
    pub(super) fn choose(&mut self, label: Label) {
        self.chosen = Some(label);
    }

    /// Takes the label that the caller has chosen.
    pub(super) fn take_chosen(&mut self) -> Option<Label> {
        self.chosen.take()
    }

    /// Returns the current level, which is the highest one; `None` if the turn has ended.
    pub(super) fn level(&self) -> Option<StepLevel> {
        self.levels.last().copied()
    }

    /// Returns the label of the current level; the base label if the turn has ended.
    pub(super) fn level_label(&self) -> Label {
        self.levels.last().map_or(self.base, |level| level.label)
    }

    /// Returns whether no level is left, so that the turn has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.levels.is_empty()
    }

    /// Counts a step on the current level.
    pub(super) fn count_step(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.steps += 1;
            level.is_fresh = false;
        }
    }

    /// Resets the count of steps on the current level after a call, if the caller runs the calls: each call of the
    /// caller then begins a new count. `step` is the label of the step with the call; `refusal` is the label of the
    /// refusal, if the call was refused.
    ///
    /// A refusal that is visible to the step does not reset the count. A hidden refusal resets the count like a permit:
    /// otherwise the limit on steps would reveal the refusal. The counts of lower levels stay, because what happened on
    /// this level is hidden from them.
    pub(super) fn count_from_call(&mut self, step: &Label, refusal: Option<&Label>) {
        let is_known_refusal = refusal.is_some_and(|refusal| refusal.flows_to(step));
        if let Some(level) =
            self.levels.last_mut().filter(|_| self.are_calls_run_elsewhere && !is_known_refusal)
        {
            level.steps = 0;
        }
    }

    /// Raises the level of the last step by `label`, so that the following steps on it are shown more. A level above it
    /// that a look of this step has added is not raised.
    pub(super) fn raise_level(&mut self, label: &Label) {
        if let Some(level) = self.levels.iter_mut().rev().find(|level| !level.is_fresh) {
            level.label = level.label.join(label);
        }
    }

    /// Returns whether another look is possible if at most `limit` levels may be on top of each other.
    pub(super) fn has_room_for_look(&self, limit: usize) -> bool {
        self.is_fresh() || self.levels.len() < limit
    }

    /// Adds a look at `label`: a level on top of the current one. With `then_return`, the current level continues after
    /// it. Several looks in one message share one level.
    pub(super) fn add_look(&mut self, label: Label, then_return: bool) {
        let is_fresh = self.is_fresh();
        // The steps of the level are above the base label.
        self.has_raised = true;
        // A level without a step yet was added by another look of the same message.
        match self.levels.last_mut().filter(|_| is_fresh) {
            Some(level) => {
                level.label = level.label.join(&label);
                level.then_return |= then_return;
            }
            None => self.levels.push(StepLevel::new(label, then_return)),
        }
    }

    /// Ends the current level, and with it the levels below, down to the first level that a look asked to return to.
    /// Returns true if that level continues, and false if no level is left.
    pub(super) fn end_level(&mut self) -> bool {
        while let Some(level) = self.levels.pop() {
            // The look that began this level decided whether the level below continues.
            if level.then_return {
                return true;
            }
        }
        false
    }

    /// Ends all levels.
    pub(super) fn end_all(&mut self) {
        self.levels.clear();
    }

    /// Returns whether the current level has no step yet.
    fn is_fresh(&self) -> bool {
        self.levels.last().is_some_and(|level| level.is_fresh)
    }
}

#[cfg(test)]
mod tests {
    use flowgate::policy::Policy;

    use super::*;

    /// A step whose model fails produces nothing, and that is information, too.
    #[test]
    fn a_step_counts_as_output_and_raises_stores_whether_or_not_it_produces_some() {
        let policy = Policy::parse("lattice secrecy: public < internal < private\n").unwrap();
        let internal = policy.space().element("secrecy", "internal").unwrap().label;
        let mut labels = StepLabels::new(policy.space().top(), StepLabelling::Floating);
        labels.begin_turn();
        assert_eq!(*labels.output(), Label::BOTTOM);
        let base = *labels.base();
        assert_eq!(labels.record_step(&base, &internal), Some((Label::BOTTOM, internal)));
        assert_eq!(*labels.output(), internal);
        // The stores are raised once, and again if there are other tools.
        assert_eq!(labels.record_step(&base, &internal), None);
        labels.set_lowest(base);
        labels.begin_turn();
        assert_eq!(labels.record_step(&base, &internal), Some((Label::BOTTOM, internal)));
    }

    /// A call on a higher level does not reset the count of steps on the level below.
    #[test]
    fn the_steps_of_a_level_are_counted_whatever_happens_above_it() {
        let mut labels = StepLabels::new(Label::BOTTOM, StepLabelling::Floating);
        labels.run_calls_elsewhere();
        labels.begin_turn();
        labels.count_step();
        labels.add_look(Label::BOTTOM, true);
        labels.count_step();
        labels.count_from_call(&Label::BOTTOM, None);
        assert_eq!(labels.level().map(|level| level.steps), Some(0));
        assert!(labels.end_level());
        assert_eq!(labels.level().map(|level| level.steps), Some(1));
    }

    /// A call of the caller resets the count of steps, but the level still counts as one with a step: the look adds
    /// another level.
    #[test]
    fn a_look_after_a_call_of_the_same_message_is_a_level_above() {
        let mut labels = StepLabels::new(Label::BOTTOM, StepLabelling::Floating);
        labels.run_calls_elsewhere();
        labels.begin_turn();
        labels.count_step();
        labels.count_from_call(&Label::BOTTOM, None);
        labels.add_look(Label::BOTTOM, true);
        assert_eq!(labels.levels.len(), 2);
    }

    /// Rows: whether the caller runs the calls, the label of the refusal if the call is refused, and whether the count
    /// of steps is reset.
    #[test]
    fn the_steps_since_a_call_do_not_depend_on_a_hidden_verdict() {
        let policy = Policy::parse("lattice secrecy: public < private\n").unwrap();
        let private = policy.space().element("secrecy", "private").unwrap().label;
        for (elsewhere, refusal, is_counted_anew) in [
            (false, None, false),
            (false, Some(private), false),
            (true, None, true),
            (true, Some(private), true),
            (true, Some(Label::BOTTOM), false),
        ] {
            let mut labels = StepLabels::new(Label::BOTTOM, StepLabelling::Floating);
            if elsewhere {
                labels.run_calls_elsewhere();
            }
            labels.begin_turn();
            labels.count_step();
            labels.count_from_call(&Label::BOTTOM, refusal.as_ref());
            let steps = labels.level().map(|level| level.steps);
            assert_eq!(steps, Some(usize::from(!is_counted_anew)), "{elsewhere} {refusal:?}");
        }
    }

    /// A call after a look of the same message raises the level of their step, and not that of the look.
    #[test]
    fn a_call_raises_the_level_of_its_step() {
        let policy = Policy::parse("lattice secrecy: public < internal < private\n").unwrap();
        let element = |name: &str| policy.space().element("secrecy", name).unwrap().label;
        let (internal, private) = (element("internal"), element("private"));
        let mut labels = StepLabels::new(Label::BOTTOM, StepLabelling::Floating);
        labels.begin_turn();
        labels.count_step();
        labels.raise_level(&internal);
        assert_eq!(labels.level_label(), internal);
        labels.add_look(internal, true);
        labels.raise_level(&private);
        assert_eq!(labels.level_label(), internal);
        assert!(labels.end_level());
        assert_eq!(labels.level_label(), private);
    }

    #[test]
    fn looks_of_one_message_are_one_level() {
        let mut labels = StepLabels::new(Label::BOTTOM, StepLabelling::Floating);
        labels.begin_turn();
        labels.count_step();
        assert!(!labels.has_room_for_look(1) && labels.has_room_for_look(2));
        labels.add_look(Label::BOTTOM, true);
        labels.add_look(Label::BOTTOM, false);
        assert_eq!(labels.levels.len(), 2);
        assert!(labels.has_room_for_look(2));
        assert!(labels.end_level(), "the lower level continues");
        assert!(!labels.end_level() && labels.is_ended());
    }
}
