//! Evaluates rules incrementally over a growing trace.
//!
//! A [`RuleMatcher`] has a list for each variable over events: the earlier events that satisfy the conditions on that
//! variable alone. It binds a new event to each variable that the event fits; only the other variables range over their
//! lists. So each match is found once, when its last event arrives. A rule with a block (`count`, `forall`) is
//! evaluated again when an event arrives that the block may count.
//!
//! The monitor calls [`RuleMatcher::match_event`] for each event of a session, and [`analysis`](crate::analysis) for
//! each event of a finished trace; both receive the matches as a [`MatchReceiver`]. [`naive`] computes the same matches
//! by exhaustive search; tests compare the two.

pub(crate) mod naive;

use crate::builtin;
use crate::eval::{Candidates, EvalError, Evaluator, Frame, MissingValueMode, Parameters, Value, set};
use crate::policy::Action;
use crate::policy::plan::{Plan, Rule, Type, VariableSlot};
use crate::predicates::PredicateAnswers;
use crate::trace::{EventBody, EventId, Trace};

/// Receives the matches and failures of rules.
pub(crate) trait MatchReceiver {
    /// Handles a match of the rule with this index. `frame` contains the values of its variables, by slot. Returns
    /// whether the search for further matches of the rule ends. An error also ends the search, and is reported to
    /// [`Self::receive_failure`].
    fn receive_match(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rule: usize,
        frame: &Frame,
    ) -> Result<bool, EvalError>;
    /// Handles the failure of the rule with this index: for some events, a condition could not be evaluated, and no
    /// other condition excludes these events. So it is unknown whether the rule matches.
    fn receive_failure(&mut self, rule: usize, error: EvalError);
}

/// The inputs of an evaluation of rules.
#[derive(Clone, Copy)]
pub(crate) struct RuleContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trace: &'a Trace,
    pub(crate) parameters: &'a Parameters,
    pub(crate) answers: &'a PredicateAnswers,
}

impl<'a> RuleContext<'a> {
    /// Creates an evaluator of rules, in which a missing value is `None`.
    pub(crate) fn evaluator(self, fuel: &'a mut u64) -> Evaluator<'a> {
        builtin::evaluator(self.plan, self.trace, fuel, MissingValueMode::IsNone)
            .with_inputs(self.parameters, self.answers)
    }
}

/// The rules that a new event is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleSelection {
    /// All rules: the trace grows, and calls are judged before they run.
    All,
    /// The rules whose matches are final; the others are evaluated once, at the end of the trace.
    Settled,
}

/// Matches rules against events as they arrive, and stores the events that fit the variables of each rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleMatcher {
    /// The events that fit each event variable of all rules, in the order of rules.
    fitting: Vec<Vec<EventId>>,
    /// The variables that the last event fits, each by the index of its rule and its position among the event variables
    /// of the rule, so that [`forget`](Self::forget) can remove the event from their lists.
    fits: Vec<(usize, usize)>,
    /// The rules that must be searched as a whole for the current event.
    stale: Vec<usize>,
    /// The values of the variables of the rule that is being searched. A field only to save allocations.
    frame: Frame,
}

/// The other events about which the verdict on a call reveals something, because a rule that can stop the call reads
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObservedEvents {
    /// No other events.
    Nothing,
    /// Calls and their outputs.
    Calls,
    /// All events, including messages, which any principal may have put into the context.
    Everything,
}

/// Returns the other events about which the verdict on the call `id` reveals something: the events that rules read to
/// decide whether they match with the call. The verdict reveals something about them even if no rule matches. Rules
/// that only log do not count. For a call whose decision depends on a view, the monitor raises the label of the verdict
/// accordingly.
pub(crate) fn observed_events(plan: &Plan, trace: &Trace, id: EventId) -> ObservedEvents {
    let Some(kind) = event_kind(trace, id) else { return ObservedEvents::Nothing };
    let with_variable = plan.dispatch.rule_variables(trace, id, kind).map(|(rule, _)| rule);
    // Rules without a variable for the call can still read it, in a block or a predicate. All of them are *unsettled*:
    // later events can change their matches.
    let reading = plan.dispatch.unsettled.iter().copied();
    let reading = reading.filter(|index| plan.rules.get(*index).is_some_and(|r| reads_kind(r, kind)));
    let rules = with_variable.chain(reading).filter_map(|index| plan.rules.get(index));
    // The order of `ObservedEvents` is by inclusion, so the greatest covers what every rule reads.
    rules
        .filter(|rule| rule.action != Action::Log)
        .map(events_read_by)
        .max()
        .unwrap_or(ObservedEvents::Nothing)
}

/// Returns which events a rule may read in addition to the event that completes a match. The result is an upper bound.
pub(crate) fn events_read_by(rule: &Rule) -> ObservedEvents {
    // A settled rule has an event variable, no block, and no condition that reads events of other kinds. If it has one
    // variable, it reads only the event that completes the match.
    if rule.events.len() <= 1 && rule.is_settled && rule.other_event_kinds.is_empty() {
        return ObservedEvents::Nothing;
    }
    // Any other rule may read earlier events of the types of its variables and of `other_event_kinds`.
    // A rule with neither reads no events, so `Calls` is an upper bound for it as well.
    let mut types =
        rule.events.iter().map(|variable| variable.ty).chain(rule.other_event_kinds.iter().copied());
    if types.all(|ty| matches!(ty, Type::ToolCall | Type::ToolOutput)) {
        ObservedEvents::Calls
    } else {
        ObservedEvents::Everything
    }
}

impl RuleMatcher {
    /// Creates a matcher for a plan, with an empty list of fitting events for each event variable of all rules.
    pub(crate) fn new(plan: &Plan) -> Self {
        let variables = plan.rules.last().map_or(0, |rule| rule.first_event + rule.events.len());
        let fitting = vec![Vec::new(); variables];
        Self { fitting, ..Self::default() }
    }

    /// Reports the matches that the event completes. In some of them, a variable is bound to the event. The others are
    /// matches of rules with a block (`count:`, `not:`, `forall:`) that may count the event.
    ///
    /// The event is first added to the lists of the variables that it fits. Then each rule that it concerns is
    /// searched, in one of two ways. A search with a variable bound to the event (the *anchor*) is cheap, but finds
    /// only matches that contain the event. So a rule with a block that may count the event is put on the list `stale`,
    /// and searched once as a whole. With [`RuleSelection::Settled`], only the rules whose matches never change are
    /// searched.
    pub(crate) fn match_event(
        &mut self,
        context: RuleContext<'_>,
        id: EventId,
        which: RuleSelection,
        fuel: &mut u64,
        report: &mut impl MatchReceiver,
    ) {
        let plan = context.plan;
        self.fits.clear();
        self.stale.clear();
        let Some(kind) = event_kind(context.trace, id) else { return };
        self.record_fits(context, id, kind, fuel);
        for index in 0..self.fits.len() {
            let Some((rule_index, position)) = self.fits.get(index).copied() else { continue };
            let Some(rule) = plan.rules.get(rule_index) else { continue };
            let Some(variable) = rule.events.get(position) else { continue };
            if !variable.is_outer {
                // The variable belongs to a block, which may count the event. With `matters_later`, this can change the
                // result of the block in matches of earlier events, so the whole rule is searched again. Otherwise, the
                // block counts the event only in matches with a later event, and that event starts their search.
                if variable.matters_later {
                    self.stale.push(rule_index);
                }
            } else if rule.is_settled {
                // Later events do not change the matches of the rule, so it is searched only for matches that this
                // event may complete as the last one.
                if variable.can_be_last {
                    self.match_anchored(context, rule_index, position, id, fuel, report);
                }
            } else if which == RuleSelection::All && !self.stale.contains(&rule_index) {
                // A rule that is not settled is judged by the present result of its block, even if later events change
                // the result. If the block reads this event too, the whole rule is searched, since matches of earlier
                // events may change.
                let block_may_read_event =
                    reads_kind(rule, kind) || self.may_fit_block_later(rule, rule_index);
                if block_may_read_event {
                    self.stale.push(rule_index);
                } else if variable.can_be_last {
                    self.match_anchored(context, rule_index, position, id, fuel, report);
                }
            }
        }
        if which == RuleSelection::Settled {
            return;
        }
        // Also stale are the unsettled rules that read events of this kind apart from their variables, or no events at
        // all: the event can change whether they hold without fitting a variable.
        for rule_index in &plan.dispatch.unsettled {
            if plan.rules.get(*rule_index).is_some_and(|rule| reads_kind(rule, kind)) {
                self.stale.push(*rule_index);
            }
        }
        self.stale.sort_unstable();
        self.stale.dedup();
        for rule_index in std::mem::take(&mut self.stale) {
            self.match_fitting(context, rule_index, fuel, report);
        }
    }

    /// Adds an event of this `kind` to the lists of the variables that it fits, and adds these variables to `fits`.
    fn record_fits(&mut self, context: RuleContext<'_>, id: EventId, kind: Type, fuel: &mut u64) {
        let plan = context.plan;
        for (rule_index, position) in plan.dispatch.rule_variables(context.trace, id, kind) {
            let Some(rule) = plan.rules.get(rule_index) else { continue };
            if self.is_fitting(context, rule, position, id, fuel)
                && let Some(events) = self.fitting.get_mut(rule.first_event + position)
            {
                events.push(id);
                self.fits.push((rule_index, position));
            }
        }
        self.fits.sort_unstable();
    }

    /// Reports the matches of the rules whose matches are not final before the end of the trace, such as rules with
    /// blocks. [`analysis`](crate::analysis) calls it after the last event.
    pub(crate) fn finish(
        &mut self,
        context: RuleContext<'_>,
        fuel: &mut u64,
        report: &mut impl MatchReceiver,
    ) {
        for rule_index in &context.plan.dispatch.unsettled {
            self.match_fitting(context, *rule_index, fuel, report);
        }
    }

    /// Removes an event from the lists, so that it takes part in no later match. The monitor does this for a call that
    /// was judged but not permitted. The event must be the last one that was passed to
    /// [`match_event`](Self::match_event).
    pub(crate) fn forget(&mut self, plan: &Plan, id: EventId) {
        // `fits` names the lists to which the last event was added.
        for (rule, position) in self.fits.drain(..) {
            let first = plan.rules.get(rule).map_or(0, |rule| rule.first_event);
            if let Some(events) = self.fitting.get_mut(first + position)
                && events.last() == Some(&id)
            {
                events.pop();
            }
        }
    }

    /// Returns whether a block of the rule may count the current event in matches of earlier events
    /// (`EventVariable::matters_later`).
    fn may_fit_block_later(&self, rule: &Rule, rule_index: usize) -> bool {
        self.fits.iter().any(|(other, position)| {
            *other == rule_index && rule.events.get(*position).is_some_and(|v| !v.is_outer && v.matters_later)
        })
    }

    /// Returns whether the event may satisfy the conditions that the rule states on one variable alone, the variable at
    /// `position` among its event variables. True also if such a condition cannot be evaluated: the search for matches
    /// of the rule then evaluates it again, and reports the failure.
    fn is_fitting(
        &mut self,
        context: RuleContext<'_>,
        rule: &Rule,
        position: usize,
        id: EventId,
        fuel: &mut u64,
    ) -> bool {
        let Some(variable) = rule.events.get(position) else { return false };
        if variable.alone.is_empty() {
            return true;
        }
        self.reset(rule);
        set(&mut self.frame, variable.slot, Value::Event(id));
        let mut evaluator = context.evaluator(fuel);
        // `Ok(true)` ends the search: one match suffices.
        match evaluator.search(&variable.alone, &mut self.frame, &mut |_, _| Ok(true)) {
            Ok(holds) => holds || !evaluator.failures.is_empty(),
            // The rule is tried with the event, and then reports that the fuel is spent.
            Err(_) => true,
        }
    }

    /// Resets the frame: no variable of the rule has a value.
    fn reset(&mut self, rule: &Rule) {
        self.frame.clear();
        self.frame.resize(rule.query.slots, Value::Absent);
    }

    /// Reports the matches of a rule in which the event is bound to the variable at `position`. The search binds the
    /// other variables to the events in the lists.
    fn match_anchored(
        &mut self,
        context: RuleContext<'_>,
        rule_index: usize,
        position: usize,
        id: EventId,
        fuel: &mut u64,
        report: &mut impl MatchReceiver,
    ) {
        let Some(rule) = context.plan.rules.get(rule_index) else { return };
        let Some(variable) = rule.events.get(position) else { return };
        self.reset(rule);
        set(&mut self.frame, variable.slot, Value::Event(id));
        let lists = self.fitting.get(rule.first_event..).unwrap_or_default();
        let fitting = FittingEvents { rule, lists, trace: context.trace, anchor: Some((position, id)) };
        let mut evaluator = context.evaluator(fuel);
        evaluator.candidates = &fitting;
        run(evaluator, &variable.anchor, &mut self.frame, rule_index, report);
    }

    /// Reports all matches of a rule among the events that fit its variables. No variable is bound beforehand.
    fn match_fitting(
        &mut self,
        context: RuleContext<'_>,
        rule_index: usize,
        fuel: &mut u64,
        report: &mut impl MatchReceiver,
    ) {
        let Some(rule) = context.plan.rules.get(rule_index) else { return };
        self.reset(rule);
        // `fitting` has a list for each event variable of each rule; those of this rule begin at `first_event`.
        let lists = self.fitting.get(rule.first_event..).unwrap_or_default();
        let fitting = FittingEvents { rule, lists, trace: context.trace, anchor: None };
        let mut evaluator = context.evaluator(fuel);
        evaluator.candidates = &fitting;
        run(evaluator, &rule.ops, &mut self.frame, rule_index, report);
    }
}

/// Searches for the matches of the rule with the index `rule_index` by `ops`, the steps of the search, and reports
/// matches and failures. `frame` contains the values of the variables, by slot; the caller has set the values of those
/// that are bound beforehand.
fn run(
    mut evaluator: Evaluator<'_>,
    ops: &[crate::policy::plan::SearchOp],
    frame: &mut Frame,
    rule_index: usize,
    report: &mut impl MatchReceiver,
) {
    let result = evaluator
        .search(ops, frame, &mut |evaluator, frame| report.receive_match(evaluator, rule_index, frame));
    // Reports the failures of single assignments first, and then the error that has ended the search, if there is one.
    for failure in std::mem::take(&mut evaluator.failures) {
        report.receive_failure(rule_index, failure);
    }
    if let Err(error) = result {
        report.receive_failure(rule_index, error);
    }
}

/// Returns the kind of an event; `None` if there is no event with this id.
pub(crate) fn event_kind(trace: &Trace, id: EventId) -> Option<Type> {
    Some(match trace.event(id)?.body {
        EventBody::Message(_) => Type::Message,
        EventBody::Call(_) => Type::ToolCall,
        EventBody::Output(_) => Type::ToolOutput,
        EventBody::Tool(_) => Type::Tool,
    })
}

/// Returns whether a new event of this kind may change whether a rule matches, even if it fits no variable of the rule:
/// the rule reads events of this kind in addition to the events of its variables, or reads no events at all, and so can
/// match at any time.
pub(crate) fn reads_kind(rule: &Rule, kind: Type) -> bool {
    rule.other_event_kinds.iter().any(|ty| *ty == kind || *ty == Type::Event)
        || (rule.events.is_empty() && rule.other_event_kinds.is_empty())
}

/// The events that the variables of a rule range over.
struct FittingEvents<'a> {
    rule: &'a Rule,
    /// The events that fit each event variable of the rule, in the order of the variables.
    lists: &'a [Vec<EventId>],
    trace: &'a Trace,
    /// The new event, with the position of the variable that it is bound to; `None` if the whole rule is searched.
    anchor: Option<(usize, EventId)>,
}

impl Candidates for FittingEvents<'_> {
    /// Returns the events to which the search may bind the variable in `slot`; `None`, which means all events of the
    /// trace, if `slot` is not an event variable of the rule. `frame` contains the values that are bound so far.
    ///
    /// These are the events that fit the variable. If the rule requires that the event directly precedes the event of
    /// another variable (`a ~> b`), only that predecessor remains. In a search with an anchor, the variables before the
    /// anchor are not bound to the new event: such a match is found in the search in which that variable is the anchor.
    /// Variables of a block are never anchors, so they may be bound to the new event.
    fn events(&self, slot: VariableSlot, frame: &Frame) -> Option<Vec<EventId>> {
        let position = self.rule.events.iter().position(|variable| variable.slot == slot)?;
        let (variable, events) = (self.rule.events.get(position)?, self.lists.get(position)?);
        let may_be_bound = |id: &EventId| match self.anchor {
            Some((anchor, new)) if variable.is_outer => position > anchor || *id != new,
            _ => true,
        };
        // The lists are in the order of the trace, so `events` can be searched by bisection.
        if let Some(Value::Event(next)) = variable.right_before.and_then(|slot| frame.get(slot)) {
            let only = self.trace.previous(*next).filter(|id| events.binary_search(id).is_ok());
            return Some(only.into_iter().filter(may_be_bound).collect());
        }
        Some(events.iter().copied().filter(may_be_bound).collect())
    }
}
