//! Counts in how many cases each form of statement changes a verdict: the recorded session is judged again under the same
//! policy and under the policy without the statements of the form. A form that changes no verdict is not tested, however
//! often policies contain it.
//!
//! Approvals for more than one call are not judged again; they count where a call runs because of one.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowgate::monitor::{Monitor, Outcome, RejudgedCall};
use flowgate::policy::Policy;

use crate::forms::{self, FORMS, Limit};
use crate::observed_run::ObservedRun;
use crate::run::NoninterferenceCase;
use crate::session::GRANTS;

/// The effects of the limits of consents, which are removed alone.
const LIMITS: [(&str, Limit); 2] = [("a limit of calls", Limit::Calls), ("a limit of a sum", Limit::Sum)];

/// Returns the names of all effects.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.effect).chain(LIMITS.map(|(name, _)| name)).chain(GRANTS)
}

/// Returns the effects that the policy of a case had in a run of it: those whose removal changes the outcome of a call
/// or its reasons.
pub(crate) fn of(case: &NoninterferenceCase, run: &ObservedRun) -> BTreeSet<&'static str> {
    let statements = forms::statements(&case.text);
    let mut changes: Vec<(&'static str, String)> = Vec::new();
    for form in &FORMS {
        if statements.iter().any(|statement| form.is_form_of(statement)) {
            let others = statements.iter().filter(|statement| !form.is_form_of(statement));
            changes.push((form.effect, others.cloned().collect()));
        }
    }
    for (name, limit) in LIMITS {
        let without = limit.removed_from(&case.text);
        if without != case.text {
            changes.push((name, without));
        }
    }
    let mut effects: BTreeSet<&'static str> =
        GRANTS.into_iter().filter(|name| run.met.contains(name)).collect();
    for session in &run.sessions {
        let monitor = session.conversation.monitor();
        let Some(same) = verdicts(monitor, &case.text) else { continue };
        for (name, text) in &changes {
            if !effects.contains(name) && verdicts(monitor, text).is_some_and(|other| other != same) {
                effects.insert(*name);
            }
        }
    }
    effects
}

/// A verdict without positions in the text of the policy: the outcome, and the parts that reasons are about.
type Verdict = (Outcome, Vec<(&'static str, Option<String>, String)>);

/// Returns the verdicts on the calls of a recorded session under a policy.
fn verdicts(monitor: &Monitor, text: &str) -> Option<Vec<Verdict>> {
    let policy = Policy::parse(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let session = monitor.rejudge(Arc::new(policy), &mut || true)?;
    let verdict = |call: RejudgedCall| {
        let outcome = call.judgement.outcome();
        let reasons = call.judgement.reasons.into_iter();
        (outcome, reasons.map(|reason| (reason.kind.name(), reason.part, reason.message)).collect())
    };
    Some(session.calls.into_iter().map(verdict).collect())
}
