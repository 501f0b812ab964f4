//! Rules over the trace, evaluated as it grows.
//!
//! For each rule and each of its variables, the events that satisfy the conditions on that variable alone are kept.
//! A new event is put in the place of each variable that it fits, and only the others range over what is kept; so
//! each match is found once, when the last of its events arrives.

use super::{Reason, ReasonKind};
use crate::eval::{EvalError, Evaluator, Frame, Missing, Value, set};
use crate::policy::Action;
use crate::policy::pattern::Servers;
use crate::policy::plan::{Plan, Rule, Type};
use crate::trace::{Body, EventId, Trace};

/// How many matches of one rule one event may complete.
const MAX_MATCHES: usize = 100;

/// The events that fit the variables of each rule so far.
#[derive(Debug, Default)]
pub(super) struct Rules {
    fitting: Vec<Vec<Vec<EventId>>>,
}

impl Rules {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { fitting: plan.rules.iter().map(|rule| vec![Vec::new(); rule.anchors.len()]).collect() }
    }

    /// The matches that the event completes. An evaluation that fails counts as a match that denies.
    pub(super) fn meet(
        &mut self,
        plan: &Plan,
        trace: &Trace,
        servers: &Servers,
        id: EventId,
        fuel: &mut u64,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let tool = trace.event(id).and_then(|event| event.tool());
        for (rule, fitting) in plan.rules.iter().zip(&mut self.fitting) {
            // A rule must not spare a tool for a name that two servers have.
            let spared = rule.exempting.iter().filter(|_| tool.is_some()).find(|pattern| {
                let matches =
                    |tool| plan.patterns.get(pattern.0).is_some_and(|pattern| pattern.matches(tool));
                tool.is_some_and(matches) && servers.is_ambiguous_for(&plan.patterns, **pattern, tool)
            });
            if let Some(pattern) = spared.and_then(|pattern| plan.patterns.get(pattern.0)) {
                let message = format!(
                    "`{pattern}` matches tools of two servers, so the rule exempts none; name the server"
                );
                let mut reason = Reason::new(ReasonKind::AmbiguousTool, Action::Deny, message);
                reason.statement = Some(rule.span.clone());
                reasons.push(reason);
            }
            let matched = meet_rule(plan, rule, fitting, trace, id, fuel, &mut reasons);
            if let Err(error) = matched {
                let kind = if error == EvalError::Fuel { ReasonKind::Limit } else { ReasonKind::RuleError };
                let message = format!("the rule cannot be evaluated: {error}");
                let mut reason = Reason::new(kind, Action::Deny, message);
                reason.statement = Some(rule.span.clone());
                reason.events.push(id);
                reasons.push(reason);
            }
        }
        reasons
    }

    /// Forgets the last event.
    pub(super) fn forget(&mut self, id: EventId) {
        for events in self.fitting.iter_mut().flatten() {
            if events.last() == Some(&id) {
                events.pop();
            }
        }
    }
}

fn meet_rule(
    plan: &Plan,
    rule: &Rule,
    fitting: &mut [Vec<EventId>],
    trace: &Trace,
    id: EventId,
    fuel: &mut u64,
    reasons: &mut Vec<Reason>,
) -> Result<(), EvalError> {
    let Some(event) = trace.event(id) else { return Ok(()) };
    let ty = match event.body {
        Body::Message(_) => Type::Message,
        Body::Call(_) => Type::ToolCall,
        Body::Output(_) => Type::ToolOutput,
    };
    let mut evaluator = Evaluator::new(plan, trace, fuel, Missing::IsNone);
    let mut fits = vec![false; rule.anchors.len()];
    let mut failed = None;
    for (index, (slot, alone)) in rule.alone.iter().enumerate() {
        let declared = rule.query.variables.iter().find(|variable| variable.slot == *slot);
        if declared.is_none_or(|variable| variable.ty != ty) {
            continue;
        }
        let mut frame = vec![Value::Absent; rule.query.slots];
        set(&mut frame, *slot, Value::Event(id));
        // A condition that cannot be evaluated may hold: the event is kept, and the rule is tried with it.
        let holds = match evaluator.solve(alone, &mut frame, &|_| None, &mut |_, _| Ok(true)) {
            Ok(holds) => holds,
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        if let (true, Some(fit), Some(events)) = (holds, fits.get_mut(index), fitting.get_mut(index)) {
            *fit = true;
            events.push(id);
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let mut found = 0;
    for (index, (slot, ops)) in rule.anchors.iter().enumerate() {
        if !fits.get(index).copied().unwrap_or(false) {
            continue;
        }
        let candidates = |other: usize| {
            let position = rule.anchors.iter().position(|(slot, _)| *slot == other)?;
            let events = fitting.get(position)?;
            // The event stands in the place of earlier variables in matches that were found there.
            Some(events.iter().copied().filter(|known| position > index || *known != id).collect())
        };
        let mut frame = vec![Value::Absent; rule.query.slots];
        set(&mut frame, *slot, Value::Event(id));
        evaluator.solve(ops, &mut frame, &candidates, &mut |evaluator, frame| {
            let mut reason = Reason::new(ReasonKind::Rule, rule.action, message(evaluator, rule, frame)?);
            reason.statement = Some(rule.span.clone());
            reason.events = events(rule, frame);
            reasons.push(reason);
            found += 1;
            Ok(found >= MAX_MATCHES)
        })?;
    }
    if found >= MAX_MATCHES && rule.action != Action::Log {
        // A person cannot approve of what is not listed.
        let message = format!("the rule matches {MAX_MATCHES} times or more");
        let mut reason = Reason::new(ReasonKind::Limit, Action::Deny, message);
        reason.statement = Some(rule.span.clone());
        reasons.push(reason);
    }
    Ok(())
}

fn message(evaluator: &mut Evaluator<'_>, rule: &Rule, frame: &Frame) -> Result<String, EvalError> {
    let value = evaluator.evaluate(&rule.message, &mut frame.clone())?;
    let value = evaluator.resolve(&value)?;
    Ok(value.as_text().map_or_else(|| format!("a rule matches ({})", value.type_name()), str::to_owned))
}

fn events(rule: &Rule, frame: &Frame) -> Vec<EventId> {
    let mut events: Vec<EventId> = rule
        .anchors
        .iter()
        .filter_map(|(slot, _)| match frame.get(*slot) {
            Some(Value::Event(id)) => Some(*id),
            _ => None,
        })
        .collect();
    events.sort_unstable();
    events.dedup();
    events
}
