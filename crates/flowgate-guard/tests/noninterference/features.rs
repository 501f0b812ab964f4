//! In how many cases each feature of policies occurs: what never occurs is not tested.

use std::collections::BTreeMap;
use std::fmt;

use crate::observed::Observed;
use crate::run::Run;

/// What a policy holds if this stands in it, and in how many of a hundred cases at least.
const IN_POLICIES: [(&str, &str, u64); 19] = [
    ("readers", "lattice readers", 20),
    ("a set", "lattice kinds", 15),
    ("an open set", "lattice sources", 12),
    ("time", "lattice age", 12),
    ("captures", "capture(", 50),
    ("endorsements", "endorse call", 50),
    ("consent", "consent ", 40),
    ("stores", "store s0", 40),
    ("a default", "default ", 5),
    ("labels of descriptions", "(t: Tool)", 10),
    ("labels by predicates", "is_mine(out)", 20),
    ("requirements by predicates", "\n    says(call)", 10),
    ("labels that a field says", "(out.content.k)", 30),
    ("requirements that an argument says", "(call.arguments.a)", 30),
    ("missing values", "is None", 30),
    ("lists of what is not meant", "not in [", 30),
    ("labels of errors", "is_error", 10),
    ("parts for payload", "payload ", 80),
    ("rules by what is hidden", "hidden(call)", 3),
];

/// What happens in a run, and in how many of a hundred cases at least.
const IN_RUNS: [(&str, u64); 7] = [
    ("a part shown of a hidden text", 3),
    ("a typed value from a hidden text", 1),
    ("two forms that differ", 20),
    ("two forms that agree", 20),
    ("a hidden description", 5),
    ("a hidden user", 1),
    ("a name on two servers", 20),
];

#[derive(Debug, Default)]
pub(crate) struct Features(BTreeMap<&'static str, u64>);

impl Features {
    pub(crate) fn count(&mut self, case: &Run, one: &Observed) {
        let in_policy = IN_POLICIES.iter().filter(|(_, text, _)| case.text.contains(text));
        let twice = case.tools.hold_a_name_twice().then_some("a name on two servers");
        for name in in_policy.map(|(name, ..)| *name).chain(one.met.iter().copied()).chain(twice) {
            *self.0.entry(name).or_default() += 1;
        }
    }

    /// The features that occur in fewer of the cases than they should.
    pub(crate) fn rare(&self, cases: u64) -> Vec<&'static str> {
        let least = IN_POLICIES.iter().map(|(name, _, least)| (*name, *least)).chain(IN_RUNS);
        let is_rare = |(name, least): &(&str, u64)| self.0.get(name).unwrap_or(&0) * 100 < cases * least;
        least.filter(is_rare).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "    cases with {}", counts.join(", "))
    }
}
