//! What is odd about a policy and the traces at hand, though both can be used: words of the policy that never occur there, traces
//! without messages, roles that no client has.

use flowgate::occurrence::{Occurrences, ROLES};
use flowgate::policy::{Diagnostic, Policy};
use flowgate::trace::Trace;
use serde_json::{Value, json};

use crate::output::{Output, plural};

/// How many warnings without a name that was perhaps meant are drawn.
const MAX_DRAWN: usize = 10;

/// What was seen of the traces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces {
    occurrences: Occurrences,
    /// The first trace without messages, and how many there are.
    empty: Option<(String, usize)>,
}

/// What is odd.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Places in the policy.
    policy: Vec<Diagnostic>,
    /// What is said of traces: a code, and one line.
    traces: Vec<(&'static str, String)>,
}

impl Traces {
    /// Takes in one run.
    pub(crate) fn add(&mut self, place: &str, trace: &Trace) {
        if trace.is_empty() {
            self.add_empty(place);
        }
        self.occurrences.add(trace);
    }

    /// Takes in a run or a file without messages.
    pub(crate) fn add_empty(&mut self, place: &str) {
        self.empty.get_or_insert_with(|| (place.to_owned(), 0)).1 += 1;
    }

    /// Takes in what others have seen.
    pub(crate) fn merge(&mut self, other: Self) {
        self.occurrences.merge(other.occurrences);
        if let Some((place, count)) = other.empty {
            self.empty.get_or_insert((place, 0)).1 += count;
        }
    }

    /// What is odd about them, and about a policy next to them.
    pub(crate) fn warnings(&self, policy: &Policy) -> Warnings {
        let mut traces = Vec::new();
        if let Some((place, count)) = &self.empty {
            let others = if *count > 1 { format!(", nor have {} more", count - 1) } else { String::new() };
            traces
                .push(("empty-trace", format!("{place} has no messages{others}: nothing was judged there")));
        }
        for role in self.occurrences.unknown_roles() {
            let known = ROLES.join(", ");
            traces.push((
                "unknown-role",
                format!("the traces have messages of the role `{role}`; known are {known}"),
            ));
        }
        Warnings { policy: self.occurrences.warnings(policy), traces }
    }
}

impl Warnings {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.policy.len() + self.traces.len()
    }

    /// Draws them on the standard error: all that may be misspelled, and some of the others.
    pub(crate) fn draw(&self, name: &str, policy: &Policy, output: &mut Output) {
        let is_near =
            |warning: &&Diagnostic| warning.help.as_deref().is_some_and(|help| help.starts_with("did you"));
        let near = self.policy.iter().filter(is_near);
        let others: Vec<&Diagnostic> = self.policy.iter().filter(|warning| !is_near(warning)).collect();
        let drawn: Vec<Diagnostic> = near.chain(others.iter().copied().take(MAX_DRAWN)).cloned().collect();
        output.diagnostics(name, policy.source(), &drawn);
        if let Some(more) = others.len().checked_sub(MAX_DRAWN).filter(|more| *more > 0) {
            let message = format!(
                "{name} names {} more that the traces do not have; --format json lists all",
                plural(more, "word")
            );
            output.warning(&message);
        }
        for (code, message) in &self.traces {
            output.warning(&format!("{message} [{code}]"));
        }
    }

    /// The same for programs.
    pub(crate) fn json(&self, name: &str, policy: &Policy) -> Vec<Value> {
        let of_policy = self.policy.iter().map(|warning| {
            json!({
                "type": "warning",
                "code": warning.code,
                "message": warning.message,
                "help": warning.help,
                "policy": name,
                "line": policy.line(&warning.span),
                "text": policy.source().get(warning.span.clone()),
            })
        });
        let of_traces = self
            .traces
            .iter()
            .map(|(code, message)| json!({"type": "warning", "code": code, "message": message}));
        of_policy.chain(of_traces).collect()
    }

    /// The same as results of SARIF.
    pub(crate) fn sarif(&self, name: &str, policy: &Policy) -> Vec<Value> {
        let result = |code: &str, message: String, line: Option<usize>| {
            let region = line.map_or(Value::Null, |line| json!({"startLine": line}));
            let mut location = json!({"artifactLocation": {"uri": name}});
            if let (Some(location), false) = (location.as_object_mut(), region.is_null()) {
                location.insert("region".to_owned(), region);
            }
            json!({
                "ruleId": code,
                "level": "warning",
                "message": {"text": message},
                "locations": [{"physicalLocation": location}],
            })
        };
        let of_policy = self.policy.iter().map(|warning| {
            let help = warning.help.as_deref().map(|help| format!("; {help}")).unwrap_or_default();
            result(warning.code, format!("{}{help}", warning.message), Some(policy.line(&warning.span)))
        });
        of_policy
            .chain(self.traces.iter().map(|(code, message)| result(code, message.clone(), None)))
            .collect()
    }
}
