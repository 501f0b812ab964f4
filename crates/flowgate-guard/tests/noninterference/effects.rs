//! Counts in how many cases each form of statement changes a verdict: the recorded session is judged again under the same
//! policy and under the policy without the statements of the form. A form that changes no verdict is not tested, however
//! often policies contain it.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowgate::monitor::{Monitor, Outcome, RejudgedCall};
use flowgate::policy::Policy;

use crate::observed_run::ObservedRun;
use crate::run::NoninterferenceCase;

/// Forms of statements: the effect, a text of the first line, and one of the conditions (any if empty).
const FORMS: [(&str, &str, &str); 14] = [
    ("an endorsement of a date", "endorse ", "is_date("),
    ("an endorsement of what answers contain", "endorse call", "b in tool:*"),
    ("an endorsement of URLs on listed hosts", "endorse ", "is_url_on(call.arguments.b, ["),
    (
        "an endorsement of URLs on hosts that messages name",
        "endorse ",
        "is_url_on(call.arguments.b, Message)",
    ),
    ("an endorsement of URLs on domains that messages name", "endorse ", "is_url_on_domain("),
    ("an endorsement of URLs on hosts that answers name", "endorse ", "is_url_on(call.arguments.b, tool:"),
    ("an endorsement of paths", "endorse ", "is_path_in("),
    ("an endorsement of numbers", "endorse ", "is_decimal("),
    ("an endorsement of yes or no", "endorse ", "is_yes_no("),
    ("an endorsement of items of a list", "endorse ", "item in ["),
    ("an endorsement of items that answers contain", "endorse ", "item in tool:"),
    ("a consent", "consent ", ""),
    ("a consent with a limit", " up to ", ""),
    ("a consent for what answers contain", "consent ", " in tool:"),
];

/// The effect of the limit of a consent, which is removed alone.
pub(crate) const LIMIT: &str = "a limit of a consent";

/// Returns the names of all effects.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FORMS.into_iter().map(|(name, ..)| name).chain([LIMIT])
}

/// Returns the effects that the policy of a case had in a run of it: those whose removal changes the outcome of a call
/// or its reasons.
pub(crate) fn of(case: &NoninterferenceCase, run: &ObservedRun) -> BTreeSet<&'static str> {
    let statements = statements(&case.text);
    let mut changes: Vec<(&'static str, String)> = Vec::new();
    for (name, head, condition) in FORMS {
        let is_of_form = |statement: &&String| {
            let first = statement.lines().next().unwrap_or_default();
            first.contains(head) && statement.contains(condition)
        };
        if statements.iter().any(|statement| is_of_form(&statement)) {
            changes.push((name, statements.iter().filter(|one| !is_of_form(one)).cloned().collect()));
        }
    }
    if case.text.contains(" up to ") {
        let lines = case.text.lines().map(|line| match line.split_once(" up to ") {
            Some((head, _)) => format!("{head} if:\n"),
            None => format!("{line}\n"),
        });
        changes.push((LIMIT, lines.collect()));
    }
    let mut effects = BTreeSet::new();
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

/// Returns the statements of a policy.
fn statements(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with(' ') => last.push_str(&format!("{line}\n")),
            _ => found.push(format!("{line}\n")),
        }
    }
    found
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
