//! Counts the *findings*: what objected to something that an agent did or a model wrote. A finding is a requirement
//! that a call did not meet, a rule that matched, another reason (such as a limit), or a verdict of watch mode.
//!
//! `chat::report` collects the findings of one request as [`RequestFindings`], and `figures` adds them to the counts
//! over time and to the [`FindingTable`]: how often each statement of a policy objected to each tool, since the start.

use std::collections::BTreeMap;

use flowgate::monitor::{Outcome, ReasonKind};
use flowgate::policy::{Action, Policy};
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Value, json};

/// The most findings of one request that are distinguished.
const MAX_OF_REQUEST: usize = 100;
/// The most findings that are distinguished since the start.
const MAX_FINDINGS: usize = 500;
/// The longest name of a tool, in bytes; a longer one is replaced by [`OTHER`].
const MAX_TOOL_NAME: usize = 128;
/// The most findings that an answer lists.
const MAX_LISTED: usize = 50;
/// The name of tools with too long a name.
const OTHER: &str = "(other)";

/// What has objected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingKind {
    /// The label of a call exceeds its requirement, or no requirement bounds it.
    Requirement,
    /// A rule matched, or could not be evaluated.
    Rule,
    /// Another reason: a malformed call, a limit and the like.
    Other,
    /// A client in watch mode did what its policy would not have permitted. Nothing was stopped.
    Watched,
}

impl FindingKind {
    /// All kinds, in the order of [`RequestFindings::by_kind`].
    pub(crate) const ALL: [Self; 4] = [Self::Requirement, Self::Rule, Self::Other, Self::Watched];

    /// Returns the name of the kind in the answer to the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requirement => "requirement",
            Self::Rule => "rule",
            Self::Other => "other",
            Self::Watched => "watched",
        }
    }

    /// Returns the kind of finding that a reason of a verdict is; `None` for a reason that speaks for the call, which
    /// is no finding.
    fn of(reason: ReasonKind) -> Option<Self> {
        match reason {
            ReasonKind::Requirement | ReasonKind::Undeclared => Some(Self::Requirement),
            ReasonKind::Rule | ReasonKind::RuleError => Some(Self::Rule),
            ReasonKind::Consent | ReasonKind::Granted => None,
            _ => Some(Self::Other),
        }
    }
}

/// What is counted as one finding: its kind, the tool, and the place of the statement, such as `line 12`; the place is
/// empty if no statement is the reason.
type Finding = (FindingKind, String, String);

/// The findings of one request, with their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestFindings {
    counts: BTreeMap<Finding, u64>,
    /// The numbers by kind, also of findings that are not in `counts`.
    by_kind: [u64; FindingKind::ALL.len()],
}

impl RequestFindings {
    /// Adds the reasons of the verdict `call`, unless it permits the call. `policy` is the policy by which the call
    /// was judged.
    pub(crate) fn add(&mut self, call: &CallVerdict, policy: &Policy) {
        if call.outcome == Outcome::Permit {
            return;
        }
        // A reason with the action `log` has not objected: its rule only notes the call.
        for reason in call.reasons.iter().filter(|reason| reason.action != Action::Log) {
            // A reason that speaks for the call, such as a consent, is no finding.
            let Some(kind) = FindingKind::of(reason.kind) else { continue };
            let place = reason.statement.as_ref().map(|span| policy.locate(span).line_name());
            self.count(kind, &call.tool.to_string(), place.unwrap_or_default());
        }
    }

    /// Adds a verdict of watch mode that would not have permitted a call of `tool`.
    pub(crate) fn add_watched(&mut self, tool: &str) {
        self.count(FindingKind::Watched, tool, String::new());
    }

    /// Returns the numbers by kind, in the order of [`FindingKind::ALL`].
    pub(crate) fn by_kind(&self) -> [u64; FindingKind::ALL.len()] {
        self.by_kind
    }

    /// Counts a finding once more. The number of its kind always grows. The number of this kind with this tool and this
    /// `place` (see [`Finding`]) grows only if it exists already, or if there is room for a further one.
    fn count(&mut self, kind: FindingKind, tool: &str, place: String) {
        let known = FindingKind::ALL.iter().position(|listed| *listed == kind);
        if let Some(count) = known.and_then(|index| self.by_kind.get_mut(index)) {
            *count += 1;
        }
        let tool = if tool.len() > MAX_TOOL_NAME { OTHER } else { tool };
        let finding = (kind, tool.to_owned(), place);
        if self.counts.len() < MAX_OF_REQUEST || self.counts.contains_key(&finding) {
            *self.counts.entry(finding).or_default() += 1;
        }
    }
}

/// How often each finding occurred since the start.
#[derive(Debug, Default)]
pub(crate) struct FindingTable {
    /// By the name of the client and the finding: the number, and the time of the last one in milliseconds since 1970.
    counts: BTreeMap<(String, Finding), (u64, u64)>,
    /// The number of findings beyond [`MAX_FINDINGS`].
    left_out: u64,
}

impl FindingTable {
    /// Adds the findings of one request of a client. `at` is the time at which the request ended, in milliseconds since
    /// 1970.
    pub(crate) fn add(&mut self, client: &str, findings: &RequestFindings, at: u64) {
        for (finding, count) in &findings.counts {
            let key = (client.to_owned(), finding.clone());
            if self.counts.len() >= MAX_FINDINGS && !self.counts.contains_key(&key) {
                self.left_out = self.left_out.saturating_add(*count);
                continue;
            }
            let (sum, last) = self.counts.entry(key).or_default();
            (*sum, *last) = (sum.saturating_add(*count), (*last).max(at));
        }
    }

    /// Returns the most frequent findings of the clients for which `is_shown` returns true, as JSON.
    pub(crate) fn to_json(&self, is_shown: &dyn Fn(&str) -> bool) -> Value {
        let mut listed: Vec<_> = self.counts.iter().filter(|((client, _), _)| is_shown(client)).collect();
        // Stable: equally frequent ones stay in the order of their names.
        listed.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let written = listed.into_iter().take(MAX_LISTED);
        let written = written.map(|((client, (kind, tool, place)), (count, last))| {
            json!({
                "client": client, "kind": kind.name(), "tool": tool, "place": place, "count": count, "last": last,
            })
        });
        written.collect()
    }

    /// Returns the number of findings that are not distinguished.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(names: &[&str]) -> RequestFindings {
        let mut findings = RequestFindings::default();
        names.iter().for_each(|name| findings.count(FindingKind::Rule, name, "line 3".to_owned()));
        findings
    }

    #[test]
    fn the_most_frequent_come_first() {
        let mut table = FindingTable::default();
        table.add("x", &findings(&["a", "b", "b"]), 5);
        table.add("y", &findings(&["a"]), 7);
        table.add("x", &findings(&["b"]), 6);
        let all = table.to_json(&|_| true);
        let row = |client: &str, tool: &str, count: u64, last: u64| json!({"client": client, "kind": "rule", "tool": tool, "place": "line 3", "count": count, "last": last});
        assert_eq!(all, json!([row("x", "b", 3, 6), row("x", "a", 1, 5), row("y", "a", 1, 7)]));
        assert_eq!(table.to_json(&|client| client == "y"), json!([row("y", "a", 1, 7)]));
    }

    /// A model that invents tools does not make the table grow without bound, and everything is counted.
    #[test]
    fn findings_are_bounded() {
        let mut table = FindingTable::default();
        let names: Vec<String> = (0..MAX_OF_REQUEST + 50).map(|number| format!("t{number}")).collect();
        let mut many = RequestFindings::default();
        names.iter().for_each(|name| many.count(FindingKind::Requirement, name, String::new()));
        many.count(FindingKind::Requirement, &"t".repeat(MAX_TOOL_NAME + 1), String::new());
        assert_eq!((many.counts.len(), many.by_kind()), (MAX_OF_REQUEST, [151, 0, 0, 0]));
        for number in 0..MAX_FINDINGS + 20 {
            table.add("x", &findings(&[&format!("t{number}")]), 1);
        }
        assert_eq!((table.counts.len(), table.left_out()), (MAX_FINDINGS, 20));
        assert_eq!(table.to_json(&|_| true).as_array().unwrap().len(), MAX_LISTED);
    }
}
