//! Turns the matches of a policy's rules with an event into reasons. The monitor calls [`Monitor::match_rules`] for
//! each event: the reasons about a call become a part of its verdict, and those about any other event become findings.

use super::{Monitor, Reason, ReasonKind};
use crate::eval::{EvalError, Evaluator, Frame, Value};
use crate::policy::Action;
use crate::policy::plan::{Plan, Rule};
use crate::rules::{MatchReceiver, RuleContext, RuleSelection};
use crate::trace::EventId;

/// The most matches of one rule that are reported for one event. A rule that reaches this number denies, unless it only
/// logs.
const MAX_MATCHES: usize = 100;

impl Monitor {
    /// Matches the rules of the policy against the event `id`. Returns one reason for each match that the event
    /// completes. Also returns a reason for each rule that cannot be evaluated; this reason denies, unless the rule
    /// only logs and fuel is left. If a rule exempts the tool of the event by a pattern that matches tools of two
    /// servers, there is a reason to deny as well. `fuel` is the number of evaluation steps that are left.
    pub(super) fn match_rules(&mut self, id: EventId, fuel: &mut u64) -> Vec<Reason> {
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        let mut reasons = self.ambiguous_exemptions(plan, id);
        let mut report = ReasonCollector { plan, id, reasons: Vec::new(), match_counts: Vec::new() };
        let context =
            RuleContext { plan, trace: &self.trace, parameters: &self.parameters, answers: &self.answers };
        self.rules.match_event(context, id, RuleSelection::All, fuel, &mut report);
        reasons.extend(report.reasons);
        reasons
    }

    /// Finds the rules that exempt the tool of the call `id` by an ambiguous pattern, one that matches tools of two
    /// servers, and returns a reason to deny for each: the exemption would hold for the wrong server as well.
    fn ambiguous_exemptions(&self, plan: &Plan, id: EventId) -> Vec<Reason> {
        let Some(tool) = self.trace.event(id).and_then(|event| event.tool()) else { return Vec::new() };
        let rules = plan.dispatch.exempting.iter().filter_map(|index| plan.rules.get(*index));
        let mut reasons = Vec::new();
        for rule in rules {
            let ambiguous = rule.exempting.iter().find(|pattern| {
                plan.patterns.get(pattern.0).is_some_and(|pattern| pattern.matches(tool))
                    && self.servers.is_ambiguous_for(&plan.patterns, **pattern, Some(tool))
            });
            if let Some(pattern) = ambiguous.and_then(|pattern| plan.patterns.get(pattern.0)) {
                let message = format!(
                    "`{pattern}` matches tools of two servers, so the rule exempts no tool; name the server in the pattern"
                );
                let mut reason = Reason::new(ReasonKind::AmbiguousTool, Action::Deny, message);
                reason.statement = Some(rule.span.clone());
                reasons.push(reason);
            }
        }
        reasons
    }
}

/// Collects the reasons from the rules that are matched against one event.
struct ReasonCollector<'a> {
    plan: &'a Plan,
    /// The event.
    id: EventId,
    reasons: Vec<Reason>,
    /// The index of each rule that has matched, with the number of its matches.
    match_counts: Vec<(usize, usize)>,
}

impl MatchReceiver for ReasonCollector<'_> {
    /// Adds the reason of a match of the rule at `index` in the plan; `frame` contains the values of the rule's
    /// variables. Returns `true`, so that the search for matches of this rule ends, at the [`MAX_MATCHES`]th match.
    /// That match also adds a reason that denies, unless the rule only logs.
    fn receive_match(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        index: usize,
        frame: &Frame,
    ) -> Result<bool, EvalError> {
        let Some(rule) = self.plan.rules.get(index) else { return Ok(true) };
        let mut reason = Reason::new(ReasonKind::Rule, rule.action, message(evaluator, rule, frame)?);
        reason.statement = Some(rule.span.clone());
        reason.events = events(rule, frame);
        // A match with other events is about these events too, so an approval of it cannot hold for a later call.
        if reason.events.iter().all(|event| *event == self.id) {
            reason.grant_scope = rule.grant.scope;
            reason.grants_class = rule.grant.is_by_class;
        }
        self.reasons.push(reason);
        // The matches of one rule arrive one after the other.
        if self.match_counts.last().is_none_or(|(last, _)| *last != index) {
            self.match_counts.push((index, 0));
        }
        let Some((_, count)) = self.match_counts.last_mut() else { return Ok(true) };
        *count += 1;
        if *count == MAX_MATCHES && rule.action != Action::Log {
            // A person cannot approve matches that are not listed.
            let message = format!(
                "the rule matches {MAX_MATCHES} times or more; further matches are not reported; write a rule \
                 that matches less often"
            );
            let mut reason = Reason::new(ReasonKind::Limit, Action::Deny, message);
            reason.statement = Some(rule.span.clone());
            self.reasons.push(reason);
        }
        Ok(*count >= MAX_MATCHES)
    }

    /// Adds the reason that the rule at `index` in the plan cannot be evaluated. The reason denies, unless the rule
    /// only logs and fuel is left.
    fn receive_failure(&mut self, index: usize, error: EvalError) {
        let Some(rule) = self.plan.rules.get(index) else { return };
        // A rule that only logs stops nothing, even if it fails. Spent fuel always denies, since it leaves
        // the other rules unevaluated, too.
        let (kind, action) = match (error == EvalError::Fuel, rule.action) {
            (true, _) => (ReasonKind::Limit, Action::Deny),
            (false, Action::Log) => (ReasonKind::RuleError, Action::Log),
            (false, _) => (ReasonKind::RuleError, Action::Deny),
        };
        let message = format!("the rule cannot be evaluated: {error}");
        let mut reason = Reason::new(kind, action, message);
        reason.statement = Some(rule.span.clone());
        reason.events.push(self.id);
        self.reasons.push(reason);
    }
}

/// Returns the message of a match: the first argument of the rule's violation, evaluated for the match. If the rule
/// gives no argument, the message only says that a rule matches. If the argument cannot be evaluated or is not a text,
/// the message also says why, or which type the argument has.
///
/// # Errors
/// If the fuel is spent.
fn message(evaluator: &mut Evaluator<'_>, rule: &Rule, frame: &Frame) -> Result<String, EvalError> {
    let Some(first) = rule.args.first() else { return Ok("a rule matches".to_owned()) };
    let value = evaluator.evaluate(first, &mut frame.clone()).and_then(|value| evaluator.resolve(&value));
    let value = match value {
        Err(EvalError::Fuel) => return Err(EvalError::Fuel),
        Err(error) => {
            return Ok(format!(
                "a rule matches, but its message (the value that it raises or asks with) cannot be computed: {error}"
            ));
        }
        Ok(value) => value,
    };
    let not_a_text = || format!("a rule matches; its message must be a text, not {}", value.type_name());
    Ok(value.as_text().map_or_else(not_a_text, str::to_owned))
}

/// Returns the events that a match binds to the variables of the rule itself. Events that a `count` or `forall` block
/// of the rule only counts are left out.
fn events(rule: &Rule, frame: &Frame) -> Vec<EventId> {
    let mut events: Vec<EventId> = rule
        .events
        .iter()
        .filter(|variable| variable.is_outer)
        .filter_map(|variable| match frame.get(variable.slot) {
            Some(Value::Event(id)) => Some(*id),
            _ => None,
        })
        .collect();
    events.sort_unstable();
    events.dedup();
    events
}
