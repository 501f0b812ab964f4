//! Warns about a policy and traces that are valid but do not fit each other: names in the policy that do not occur in
//! the traces, traces without messages, and messages with unknown roles. `flowgate check` and `flowgate replay` use it.
//! With `--tools`, the output in JSON and SARIF also has the result of the comparison with tools (`tool_files`).

use flowgate::occurrence::{Occurrences, ROLES};
use flowgate::policy::{Diagnostic, Policy};
use flowgate::trace::Trace;
use serde_json::{Value, json};

use crate::output::{Console, plural, statement_line};
use crate::tool_files::ToolComparison;

/// The maximum number of warnings without a suggestion that are printed.
const MAX_DRAWN: usize = 10;

/// The names that occur in the traces, and the traces without messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceOccurrences {
    occurrences: Occurrences,
    /// The first trace without messages, and the number of such traces.
    empty: Option<(String, usize)>,
}

/// The warnings about a policy and traces, and the result of a comparison with tools.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Warnings at positions in the policy.
    policy: Vec<Diagnostic>,
    /// Warnings about traces: a code and a message.
    traces: Vec<(&'static str, String)>,
    /// The result of comparing the policy with the files of `--tools`; it is printed already.
    compared: Option<ToolComparison>,
}

impl TraceOccurrences {
    /// Adds the names of tools, arguments, roles and fields that occur in one run: names of the policy that occur in
    /// no run get a warning. A run without messages is counted for another warning, which calls the run `name`.
    pub(crate) fn add(&mut self, name: &str, trace: &Trace) {
        if trace.is_empty() {
            self.add_empty(name);
        }
        self.occurrences.add(trace);
    }

    /// Counts a run or a file without messages, for a warning. The warning names only the first of them, by its `name`.
    pub(crate) fn add_empty(&mut self, name: &str) {
        self.empty.get_or_insert_with(|| (name.to_owned(), 0)).1 += 1;
    }

    /// Adds the names of `other`, and the number of its traces without messages. The name of the first such trace
    /// stays.
    pub(crate) fn merge(&mut self, other: Self) {
        self.occurrences.merge(other.occurrences);
        if let Some((name, count)) = other.empty {
            self.empty.get_or_insert((name, 0)).1 += count;
        }
    }

    /// Returns the warnings about these traces, and about the names in the policy that do not occur in them.
    pub(crate) fn warnings(&self, policy: &Policy) -> Warnings {
        let mut traces = Vec::new();
        if let Some((first, count)) = &self.empty {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(", like {}", plural(others, "other trace")),
            };
            traces.push((
                "empty-trace",
                format!(
                    "{first} has no messages{others}, so nothing was judged in it; give a trace with messages"
                ),
            ));
        }
        for role in self.occurrences.unknown_roles() {
            let known = ROLES.join(", ");
            traces.push((
                "unknown-role",
                format!("the traces have messages of the unknown role `{role}`; known roles are {known}"),
            ));
        }
        Warnings { policy: self.occurrences.warnings(policy), traces, compared: None }
    }
}

impl Warnings {
    /// Adds the result of comparing the policy with the tools of `--tools`. [`Self::print`] leaves it out, because
    /// [`tool_files`](crate::tool_files) has printed it already.
    pub(crate) fn with_comparison(self, compared: Option<ToolComparison>) -> Self {
        Self { compared, ..self }
    }

    /// Returns the number of warnings, including those of the comparison with tools.
    pub(crate) fn len(&self) -> usize {
        self.about_policy().count() + self.traces.len()
    }

    /// Returns the warnings at positions in the policy, those of the comparison with tools first.
    fn about_policy(&self) -> impl Iterator<Item = &Diagnostic> {
        let compared = self.compared.iter().flat_map(|compared| &compared.warnings);
        compared.chain(&self.policy)
    }

    /// Returns the notes as JSON, if there was a comparison with tools.
    pub(crate) fn notes_json(&self) -> Option<Vec<Value>> {
        self.compared.as_ref().map(ToolComparison::notes_json)
    }

    /// Prints warnings on the standard error: those about the policy that have a suggestion (`did you mean`), at most
    /// [`MAX_DRAWN`] of the others about the policy, and those about traces. The warnings of the comparison with tools are
    /// left out, because they are printed already. `name` is the policy's own file.
    pub(crate) fn print(&self, name: &str, policy: &Policy, output: &mut Console) {
        let has_suggestion =
            |warning: &&Diagnostic| warning.help.as_deref().is_some_and(|help| help.starts_with("did you"));
        let suggested = self.policy.iter().filter(has_suggestion);
        let others: Vec<&Diagnostic> =
            self.policy.iter().filter(|warning| !has_suggestion(warning)).collect();
        let drawn: Vec<Diagnostic> =
            suggested.chain(others.iter().copied().take(MAX_DRAWN)).cloned().collect();
        output.diagnostics(name, policy.files(), &drawn);
        if let Some(more) = others.len().checked_sub(MAX_DRAWN).filter(|more| *more > 0) {
            let message = format!(
                "{name} has {} that do not occur in the traces; --format json lists all of them",
                plural(more, "further name")
            );
            output.warning(&message);
        }
        for (code, message) in &self.traces {
            output.warning(&format!("{message} [{code}]"));
        }
    }

    /// Returns the warnings as JSON: those of the comparison with tools, those at other positions in the policy, and
    /// those about traces, which have no position. `name` is the policy's own file.
    pub(crate) fn json(&self, name: &str, policy: &Policy) -> Vec<Value> {
        let of_policy = self.about_policy().map(|warning| {
            let (file, line) = statement_line(name, policy, &warning.span);
            json!({
                "type": "warning",
                "code": warning.code,
                "message": warning.message,
                "help": warning.help,
                "policy": file,
                "line": line,
                "text": policy.source().get(warning.span.clone()),
            })
        });
        let of_traces = self
            .traces
            .iter()
            .map(|(code, message)| json!({"type": "warning", "code": code, "message": message}));
        of_policy.chain(of_traces).collect()
    }

    /// Returns the warnings and notes as SARIF results. A warning about a trace has the policy's own file, `name`, as its
    /// location, without a line.
    pub(crate) fn sarif(&self, name: &str, policy: &Policy) -> Vec<Value> {
        let result = |code: &str, message: String, position: Option<(String, usize)>| {
            let (file, line) = position.unzip();
            let region = line.map_or(Value::Null, |line| json!({"startLine": line}));
            let file = file.as_deref().unwrap_or(name);
            let mut location = json!({"artifactLocation": {"uri": file}});
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
        let of_policy = self.about_policy().map(|warning| {
            let help = warning.help.as_deref().map(|help| format!("; {help}")).unwrap_or_default();
            let position = statement_line(name, policy, &warning.span);
            result(warning.code, format!("{}{help}", warning.message), Some(position))
        });
        of_policy
            .chain(self.traces.iter().map(|(code, message)| result(code, message.clone(), None)))
            .chain(self.compared.iter().flat_map(|compared| compared.notes_sarif(name)))
            .collect()
    }
}
