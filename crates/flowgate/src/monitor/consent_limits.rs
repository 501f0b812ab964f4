//! Decides whether a call is within the limits of a standing consent: how many calls it covers, and up to which sum of
//! an argument. [`super::requirement`] calls this module.
//!
//! Every call of the session to a tool that the consent is about counts, including the judged one. It counts whether it
//! waits to run or has run, whether the consent covered it or not, and whichever agent made it. So calls of one message
//! count together, and a call that was approved by a person uses up the limit as well. A call that was withdrawn before
//! it ran does not count. If one of these calls has no amount that can be summed exactly, the consent does not apply.
//!
//! The session has no clock, so there are no limits for a day. The verdict on a call depends on other calls, and so
//! carries the label of all of them ([`super::call_examination`]): an observer of the verdict could otherwise learn
//! about calls that are hidden from it.

use crate::policy::exact_amount::ExactAmount;
use crate::policy::plan::{Consent, Plan, TargetPath, TargetStep};
use crate::trace::{Event, EventId, NodeContent, Status, Trace};

/// Returns whether all calls so far, including the one that is judged, are within the limits of a consent. A limit
/// bounds the number of calls or the sum of an argument. Also `false` if a call has no amount that can be summed
/// exactly, or if `fuel`, the number of evaluation steps that are left, is less than the number of events: each event
/// costs one step.
pub(super) fn is_within_limits(
    plan: &Plan,
    trace: &Trace,
    consent: &Consent,
    judged: EventId,
    fuel: &mut u64,
) -> bool {
    if consent.limits.is_empty() {
        return true;
    }
    let Some(left) = u64::try_from(trace.len()).ok().and_then(|steps| fuel.checked_sub(steps)) else {
        *fuel = 0;
        return false;
    };
    *fuel = left;
    // The calls that count: those of the tools of the consent that were not withdrawn. The judged call always counts.
    let matches = |event: &Event| {
        event.tool().is_some_and(|tool| {
            let mut patterns = consent.query.tools.iter().map(|id| plan.patterns.get(id.0));
            patterns.all(|pattern| pattern.is_some_and(|pattern| pattern.matches(tool)))
        })
    };
    let is_counted = |(index, event): &(usize, &Event)| {
        matches(event) && (event.status != Status::Withdrawn || EventId(*index) == judged)
    };
    let calls = || trace.events().iter().enumerate().filter(is_counted).map(|(_, event)| event);
    consent.limits.iter().all(|limit| {
        // A limit without an argument counts the calls, 1 each.
        let amount = |call: &Event| match &limit.amount {
            Some(argument) => exact_amount(call, argument),
            None => Some(ExactAmount::one()),
        };
        let sum = calls().try_fold(ExactAmount::default(), |sum, call| sum.plus(amount(call)?));
        sum.is_some_and(|sum| sum <= limit.most)
    })
}

/// Returns the amount in an argument of a call. `argument` is the path to the amount. `None` if the call has no such
/// argument, or if the value of the argument cannot be summed exactly. Also `None` if a step of the path is not a key,
/// since the path may then lead to several values.
fn exact_amount(call: &Event, argument: &TargetPath) -> Option<ExactAmount> {
    let document = &call.document;
    let node = argument.steps.iter().try_fold(0, |node, step| match step {
        TargetStep::Key(key) => document.key(node, key),
        _ => None,
    })?;
    match &document.node(node)?.content {
        NodeContent::Scalar(value) => ExactAmount::of_value(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::label::Label;
    use crate::monitor::{Attribution, CallDependency, Monitor, Verdict};
    use crate::policy::Policy;
    use crate::trace::{Call, Tool, TraceEntry};

    /// An observer of the verdict could learn about calls that are hidden from it, so the verdict carries their labels.
    #[test]
    fn the_verdict_carries_the_labels_of_other_calls() {
        let decided = |limit: &str| {
            let policy = format!(
                "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n\
                 require trusted, private if:\n    (call: ToolCall) is tool:r\"pay|note\"\n\
                 consent private for call.arguments.amount{limit} if:\n    (call: ToolCall) is tool:pay\n"
            );
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&policy).unwrap()));
            let private = monitor.policy().space().element("secrecy", "private").unwrap().label;
            let mut judge = |id: &str, tool: &str, view: Label| {
                let call = Call::from_json(id.to_owned(), Tool::local(tool), r#"{"amount": 1}"#);
                let attribution =
                    Attribution { decision: CallDependency::View(view), ..Attribution::everything() };
                monitor.judge_entry(TraceEntry::from(call), attribution)
            };
            let Verdict::Permit(hidden) = judge("c1", "pay", private) else { panic!() };
            let labels = [judge("c2", "pay", Label::BOTTOM), judge("c3", "note", Label::BOTTOM)]
                .map(|verdict| verdict.judgement().decided == Label::BOTTOM);
            drop(hidden);
            labels
        };
        assert_eq!(decided(""), [true, true]);
        assert_eq!(decided(" up to 3 calls"), [false, true]);
        assert_eq!(decided(" up to 3 of call.arguments.amount"), [false, true]);
    }
}
