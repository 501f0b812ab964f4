//! Counts in how many cases each feature has an effect: a feature without effect is not tested.

use std::collections::BTreeMap;
use std::fmt;

use crate::observed_run::ObservedRun;
use crate::run::NoninterferenceCase;

/// Texts that policies contain, and the least percentage of cases. Only parts of the lattice, and statements
/// whose effect is a call that runs: other features are counted where they have an effect. [`crate::effects`] counts the
/// verdicts that each form of statement changes.
const IN_POLICIES: [(&str, &str, u64); 18] = [
    ("readers", "lattice readers", 20),
    ("a set", "lattice kinds", 15),
    ("an open set", "lattice sources", 12),
    ("time", "lattice age", 12),
    ("consent", "consent ", 40),
    ("requirements that an argument says", "(call.arguments.a)", 30),
    ("a default", "default ", 5),
    ("an endorsement of what answers contain", "b in tool:", 10),
    ("rules by what is hidden", "hidden(call)", 3),
    ("an endorsement of URLs on listed hosts", "is_url_on(call.arguments.b, [", 2),
    ("an endorsement of URLs on hosts that messages name", "is_url_on(call.arguments.b, Message)", 2),
    ("an endorsement of URLs on domains", "is_url_on_domain(", 2),
    ("an endorsement of URLs on hosts that answers name", "is_url_on(call.arguments.b, tool:", 2),
    ("an endorsement of paths", "is_path_in(", 2),
    ("an endorsement of numbers", "is_decimal(", 2),
    ("an endorsement of yes or no", "is_yes_no(", 2),
    ("an endorsement of items of a list", "item in [", 2),
    ("an endorsement of items that answers contain", "item in tool:", 2),
];

/// Events in runs, and the least percentage of cases. An event that does not occur is not tested.
const IN_RUNS: [(&str, u64); 62] = [
    ("a label because of a missing value", 3),
    ("a label that a condition did not grant", 40),
    ("a label that a condition granted", 30),
    ("a label that a field says", 15),
    ("a label that looks at what is above it", 25),
    ("a pattern that two servers match", 6),
    ("a text in place of parts", 60),
    ("a predicate that was answered", 12),
    ("a part shown of a hidden text", 1),
    ("a part of an answer to a call with hidden arguments", 0),
    ("a typed value from a hidden text", 1),
    ("two forms that differ", 20),
    ("two forms that agree", 20),
    ("an error", 5),
    ("an image", 15),
    ("an image that is shown", 8),
    ("a long text", 10),
    ("a hidden description", 5),
    ("a hidden user", 1),
    ("a schema that is shown", 5),
    ("a hidden schema", 10),
    ("a name on two servers", 20),
    ("a look beyond the model's clearance", 3),
    ("a slot that was filled", 20),
    ("a slot that nobody could fill", 4),
    ("two slots in a message", 8),
    ("a slot that takes endorsed values only", 5),
    ("a store that raises an answer", 8),
    ("what another session wrote", 1),
    ("an echo that is seen", 50),
    ("an echo that is hidden", 30),
    ("an agent that is seen", 30),
    ("an agent that is hidden", 15),
    ("a question that the observer sees", 8),
    ("a question with excerpts", 6),
    ("an announced question", 1),
    ("a reply that is withheld", 2),
    ("a reply with an address that is disarmed", 4),
    ("a store that the observer remembers", 5),
    ("a turn that the observer sees end", 20),
    ("a fill that the observer sees", 2),
    ("messages that are gone", 40),
    ("a history of which turns are dropped", 8),
    ("a summary that the observer sees", 5),
    ("a summary that is hidden", 10),
    ("a rewritten message of the user that the observer sees", 5),
    ("a rewritten message of the user that is hidden", 1),
    ("a rewritten message of the model", 6),
    ("a rewritten answer that the observer sees", 1),
    ("a rewritten answer that is hidden", 2),
    ("a quotation of a hidden text", 12),
    ("a call of the chat that runs beside it", 25),
    ("an answer that is passed on in other words", 12),
    ("a call beside the chat that is seen", 6),
    ("a call beside the chat that is hidden", 3),
    ("a call of another agent that is seen", 10),
    ("a call of another agent that is hidden", 5),
    ("an agent that is told what another has seen", 18),
    ("an agent that has not seen what another has", 8),
    ("a step that carries less than its bound", 13),
    ("a step that the observer sees because its label floats", 6),
    ("an approval for the rest of a conversation", 0),
];

#[derive(Debug, Default)]
pub(crate) struct FeatureCounts(BTreeMap<&'static str, u64>);

impl FeatureCounts {
    pub(crate) fn count(&mut self, case: &NoninterferenceCase, one: &ObservedRun) {
        let in_policy = IN_POLICIES.iter().filter(|(_, text, _)| case.text.contains(text));
        let twice = case.tools.hold_a_name_twice().then_some("a name on two servers");
        for name in in_policy.map(|(name, ..)| *name).chain(one.met.iter().copied()).chain(twice) {
            *self.0.entry(name).or_default() += 1;
        }
    }

    /// Returns the number of cases in which a feature had an effect.
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns the features that have an effect in too few of the cases, or in none.
    pub(crate) fn rare(&self, cases: u64) -> Vec<&'static str> {
        let least = IN_POLICIES.iter().map(|(name, _, least)| (*name, *least)).chain(IN_RUNS);
        // Few cases vary more.
        let tolerance = if cases < 1000 { 2 } else { 1 };
        let is_rare = |(name, least): &(&str, u64)| {
            let count = self.of(name);
            count == 0 || count * 100 * tolerance < cases * least
        };
        least.filter(is_rare).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for FeatureCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "    cases with {}", counts.join(", "))
    }
}
