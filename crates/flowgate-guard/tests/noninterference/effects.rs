//! Counts in how many cases each form of statement changes a verdict: the recorded session is judged again under the same
//! policy and under the policy without the statements of the form. A form that changes no verdict is not tested, however
//! often policies contain it.
//!
//! Approvals for more than one call are not judged again; they count where a call runs because of one.

use std::collections::{BTreeMap, BTreeSet};
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

/// The number of cases that are tried if none is set.
pub(crate) const USUAL_CASES: u64 = 300;

/// The number of cases that [`MEASURED`] is about.
const MEASURED_CASES: u64 = 8_000;

/// In how many of the cases from seed 4001 each form changes a verdict, or a call runs because of the approval.
const MEASURED: [(&str, u64); 37] = [
    ("URLs on domains that answers name", 61),
    ("URLs on domains that messages name", 126),
    ("URLs on hosts that answers name", 59),
    ("URLs on hosts that messages name", 120),
    ("URLs on listed domains", 129),
    ("URLs on listed hosts", 125),
    ("a consent", 272),
    ("a consent for a destination that answers contain", 158),
    ("a consent for what answers contain", 144),
    ("a consent with a limit of a sum", 121),
    ("a consent with a limit of calls", 156),
    ("a grant for a conversation", 44),
    ("a grant for a conversation by class", 46),
    ("a grant for days by class", 27),
    ("a grant for good", 31),
    ("a grant of another payload", 7),
    ("a grant of another value of a class", 4),
    ("a grant of the same values", 135),
    ("a limit of a sum", 192),
    ("a limit of calls", 156),
    ("dates", 147),
    ("decimals", 118),
    ("items of a list of values", 133),
    ("items that answers contain", 249),
    ("items that are dates", 122),
    ("listed values", 138),
    ("mail addresses", 122),
    ("one value", 123),
    ("paths", 119),
    ("payload", 1576),
    ("texts of a pattern", 152),
    ("times", 144),
    ("truth values", 115),
    ("what answers contain", 281),
    ("what answers to equal calls contain", 95),
    ("whole numbers", 119),
    ("yes or no", 147),
];

/// A case in which each effect occurs that [`MEASURED`] does not promise for a run of few cases.
pub(crate) const RARE: [(&str, u64); 9] = [
    ("URLs on domains that answers name", 4_441),
    ("URLs on hosts that answers name", 4_063),
    ("a grant for a conversation", 4_202),
    ("a grant for a conversation by class", 4_581),
    ("a grant for days by class", 4_773),
    ("a grant for good", 4_128),
    ("a grant of another payload", 5_025),
    ("a grant of another value of a class", 10_459),
    ("what answers to equal calls contain", 4_104),
];

/// Returns the effects that occur in fewer than a quarter of the cases in which they should, by what was measured, each
/// with its number and the least one.
pub(crate) fn rare(counts: &BTreeMap<&str, u64>, cases: u64) -> Vec<String> {
    let is_rare = |(name, measured): &(&'static str, u64)| {
        let least = least(*measured, cases);
        let count = counts.get(name).copied().unwrap_or_default();
        (count < least).then(|| format!("{name}: {count} of at least {least}"))
    };
    MEASURED.iter().filter_map(is_rare).collect()
}

/// Returns the least number of cases in which an effect should occur, by the number of cases in which it was measured.
fn least(measured: u64, cases: u64) -> u64 {
    measured * cases / (MEASURED_CASES * 4)
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

/// The README says which forms the generator has, by the names of their effects.
#[test]
fn the_readme_names_every_form() {
    let is_endorsed = |name: &&str| FORMS.iter().any(|form| form.effect == *name && form.is_endorsement());
    let endorsed: Vec<&str> = names().filter(is_endorsed).collect();
    let others: Vec<&str> = names().filter(|name| !is_endorsed(name)).collect();
    let sentence = format!("The policies endorse {}; they have {}.", endorsed.join(", "), others.join(", "));
    let readme = include_str!("../../../../README.md");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(readme.contains(&sentence), "the README does not say: {sentence}");
}

/// Each statement of the generator is counted as one form, and each form can be parsed.
#[test]
fn every_form_is_counted_once() {
    for form in &FORMS {
        let statement = form.statement("t0");
        let forms = FORMS.iter().filter(|other| other.is_form_of(&statement));
        assert_eq!(forms.map(|other| other.effect).collect::<Vec<_>>(), [form.effect], "{statement}");
        let policy =
            format!("lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n{statement}");
        Policy::parse(&policy).unwrap_or_else(|errors| panic!("{errors:?}\n{policy}"));
    }
    assert!(MEASURED.iter().all(|(name, _)| names().any(|known| known == *name)));
    assert_eq!(MEASURED.len(), names().count(), "each effect has a floor");
    let without_floor = MEASURED.iter().filter(|(_, measured)| least(*measured, USUAL_CASES) == 0);
    let rare = RARE.iter().map(|(name, _)| name);
    assert!(without_floor.map(|(name, _)| name).eq(rare), "each effect has a floor or a case");
}
