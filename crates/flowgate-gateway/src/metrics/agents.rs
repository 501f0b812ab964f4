//! Counts what agents did, by client: verdicts on their calls, questions to people and their decisions, tokens, and how
//! long turns took. The routes of models and MCP servers count here, and the HTTP service writes the text.
//!
//! Only the operator may read these metrics, as a verdict may depend on hidden text.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flowgate::monitor::Outcome;
use flowgate_lm::chat::Usage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

use super::{Latencies, latencies, text_of};

/// The most tools that are counted by their names. Agents name their tools: without a bound, one agent could make the
/// metrics grow.
const MAX_TOOLS: usize = 1000;
/// The longest name of a tool, in bytes, under which its calls are counted.
const MAX_TOOL_NAME: usize = 128;
/// The label for tools that are not counted by their names.
const OTHER: &str = "(other)";

/// The label of metrics that are counted by client only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientLabel {
    client: String,
}

/// The labels of judged calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    client: String,
    tool: String,
    verdict: &'static str,
    /// `enforce`, or `watch` if the verdict had no effect.
    mode: &'static str,
}

/// The labels of metrics that are counted by client and tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    client: String,
    tool: String,
}

/// The labels of decisions of people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    client: String,
    tool: String,
    decision: &'static str,
}

/// The labels of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    client: String,
    /// `input` for the tokens that a model read, `output` for those that it wrote.
    direction: &'static str,
}

/// The number of judged calls, by tool and verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VerdictCounts(BTreeMap<(String, &'static str), u64>);

impl VerdictCounts {
    /// Counts a verdict on a call of a tool.
    pub(crate) fn count(&mut self, tool: &str, outcome: Outcome) {
        let verdict = match outcome {
            Outcome::Permit => "permit",
            Outcome::Confirm => "confirm",
            Outcome::Deny => "deny",
        };
        *self.0.entry((tool.to_owned(), verdict)).or_default() += 1;
    }
}

/// The measurements of one turn of an agent, which are added to the counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TurnMetrics {
    /// The time that the turn took, including the time for which it waited for models.
    pub(crate) took: Duration,
    /// The time for which it waited for models.
    pub(crate) upstream: Duration,
    /// The tokens of all requests to the models.
    pub(crate) tokens: Usage,
    /// The number of hidden regions.
    pub(crate) hidden: u64,
}

/// The counters of what agents did.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    questions: Family<ToolLabels, Counter>,
    decisions: Family<DecisionLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<ClientLabel, Counter<f64, AtomicU64>>,
    hidden: Family<ClientLabel, Counter>,
    turns: Latencies<ClientLabel>,
    upstream: Latencies<ClientLabel>,
    decided_after: Latencies<ToolLabels>,
    calls_of_servers: Latencies<ToolLabels>,
    /// The tools that are counted by their names.
    tools: Mutex<HashSet<String>>,
}

impl AgentMetrics {
    /// Creates the counters, all at zero, and registers them with their names and help texts.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let all = &mut registry;
        Self {
            calls: registered(all, "flowgate_calls", "Calls that were judged", Family::default()),
            questions: registered(
                all,
                "flowgate_questions",
                "Questions to people, which no lasting grant answered",
                Family::default(),
            ),
            decisions: registered(all, "flowgate_decisions", "Decisions of people", Family::default()),
            tokens: registered(
                all,
                "flowgate_tokens",
                "Tokens of the models, as their servers report",
                Family::default(),
            ),
            cost: registered(
                all,
                "flowgate_cost",
                "Cost of the models of clients with a budget, in the currency of [prices]",
                Family::default(),
            ),
            hidden: registered(
                all,
                "flowgate_hidden_regions",
                "Regions that a turn's views left out",
                Family::default(),
            ),
            turns: registered(all, "flowgate_turn_seconds", "Time of a turn of an agent", latencies()),
            upstream: registered(
                all,
                "flowgate_upstream_seconds",
                "Time for which a turn waited for models",
                latencies(),
            ),
            decided_after: registered(
                all,
                "flowgate_decision_seconds",
                "Time from a question to the decision on it",
                latencies(),
            ),
            calls_of_servers: registered(
                all,
                "flowgate_tool_seconds",
                "Time of a call of a tool of an MCP server, from its message to its answer, with its questions",
                latencies(),
            ),
            tools: Mutex::default(),
            registry,
        }
    }

    /// Counts the verdicts on the calls of a client. `is_watching` says that the client is in watch mode, in which the
    /// verdicts had no effect.
    pub(crate) fn count_calls(&self, client: &str, verdicts: &VerdictCounts, is_watching: bool) {
        for ((tool, verdict), &count) in &verdicts.0 {
            let labels = CallLabels {
                client: client.to_owned(),
                tool: self.counted_name(tool).to_owned(),
                verdict,
                mode: if is_watching { "watch" } else { "enforce" },
            };
            self.calls.get_or_create(&labels).inc_by(count);
        }
    }

    /// Counts a turn of a client.
    pub(crate) fn count_turn(&self, client: &str, turn: &TurnMetrics) {
        let label = ClientLabel { client: client.to_owned() };
        self.turns.get_or_create(&label).observe(turn.took.as_secs_f64());
        self.upstream.get_or_create(&label).observe(turn.upstream.as_secs_f64());
        self.hidden.get_or_create(&label).inc_by(turn.hidden);
        self.count_tokens(client, turn.tokens);
    }

    /// Counts tokens of a client, as the model's server has reported them.
    pub(crate) fn count_tokens(&self, client: &str, usage: Usage) {
        for (direction, tokens) in [("input", usage.input), ("output", usage.output)] {
            self.tokens.get_or_create(&TokenLabels { client: client.to_owned(), direction }).inc_by(tokens);
        }
    }

    /// Counts what the models of a client with a budget cost, in millionths of the currency.
    pub(crate) fn count_cost(&self, client: &str, millionths: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let cost = millionths as f64 / 1e6;
        self.cost.get_or_create(&ClientLabel { client: client.to_owned() }).inc_by(cost);
    }

    /// Counts a question to people about a call of a tool, or about the tool itself.
    pub(crate) fn count_question(&self, client: &str, tool: &str) {
        self.questions.get_or_create(&self.tool_labels(client, tool)).inc();
    }

    /// Counts the decision of a person on a question about a tool of a client. `after` is the time from the question to
    /// the decision.
    pub(crate) fn count_decision(
        &self,
        (client, tool): (&str, &str),
        decision: &'static str,
        after: Duration,
    ) {
        let labels = self.tool_labels(client, tool);
        self.decided_after.get_or_create(&labels).observe(after.as_secs_f64());
        let ToolLabels { client, tool } = labels;
        self.decisions.get_or_create(&DecisionLabels { client, tool, decision }).inc();
    }

    /// Counts a call of a tool of an MCP server, and the time that it took.
    pub(crate) fn count_tool_time(&self, client: &str, tool: &str, took: Duration) {
        self.calls_of_servers.get_or_create(&self.tool_labels(client, tool)).observe(took.as_secs_f64());
    }

    /// Returns the labels of a client and a tool.
    fn tool_labels(&self, client: &str, tool: &str) -> ToolLabels {
        ToolLabels { client: client.to_owned(), tool: self.counted_name(tool).to_owned() }
    }

    /// Returns the counters in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        text_of(&self.registry)
    }

    /// Returns the name under which the calls of a tool are counted: its own or, if that is too long or too many
    /// tools are counted by their names already, [`OTHER`].
    fn counted_name<'t>(&self, tool: &'t str) -> &'t str {
        if tool.len() > MAX_TOOL_NAME {
            return OTHER;
        }
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if !tools.contains(tool) {
            if tools.len() >= MAX_TOOLS {
                return OTHER;
            }
            tools.insert(tool.to_owned());
        }
        tool
    }
}

/// Registers a metric, and returns it.
fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_by_client() {
        let metrics = AgentMetrics::new();
        let mut verdicts = VerdictCounts::default();
        for (tool, outcome) in [("a", Outcome::Permit), ("a", Outcome::Permit), ("b\"\n", Outcome::Deny)] {
            verdicts.count(tool, outcome);
        }
        metrics.count_calls("x", &verdicts, false);
        metrics.count_calls("y", &verdicts, true);
        metrics.count_turn(
            "x",
            &TurnMetrics {
                took: Duration::from_secs(3),
                upstream: Duration::from_secs(2),
                tokens: Usage { input: 10, output: 5, cached: 0 },
                hidden: 4,
            },
        );
        metrics.count_question("x", "a");
        metrics.count_question("x", &"t".repeat(MAX_TOOL_NAME + 1));
        metrics.count_tool_time("x", "bank/pay", Duration::from_millis(20));
        metrics.count_cost("x", 1_500_000);
        metrics.count_decision(("x", "a"), "allow", Duration::from_secs(20));
        let text = metrics.text();
        for line in [
            r#"flowgate_calls_total{client="x",tool="a",verdict="permit",mode="enforce"} 2"#,
            r#"flowgate_calls_total{client="x",tool="b\"\n",verdict="deny",mode="enforce"} 1"#,
            r#"flowgate_calls_total{client="y",tool="a",verdict="permit",mode="watch"} 2"#,
            r#"flowgate_questions_total{client="x",tool="a"} 1"#,
            r#"flowgate_questions_total{client="x",tool="(other)"} 1"#,
            r#"flowgate_decisions_total{client="x",tool="a",decision="allow"} 1"#,
            r#"flowgate_decision_seconds_bucket{client="x",tool="a",le="30"} 1"#,
            r#"flowgate_tool_seconds_bucket{client="x",tool="bank/pay",le="0.01"} 0"#,
            r#"flowgate_tool_seconds_bucket{client="x",tool="bank/pay",le="0.025"} 1"#,
            r#"flowgate_tokens_total{client="x",direction="input"} 10"#,
            r#"flowgate_tokens_total{client="x",direction="output"} 5"#,
            r#"flowgate_cost_total{client="x"} 1.5"#,
            r#"flowgate_hidden_regions_total{client="x"} 4"#,
            r#"flowgate_turn_seconds_sum{client="x"} 3.0"#,
            r#"flowgate_upstream_seconds_bucket{client="x",le="1"} 0"#,
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }

    /// An agent that invents tools does not make the metrics grow without bound.
    #[test]
    fn names_of_tools_are_bounded() {
        let metrics = AgentMetrics::new();
        let mut verdicts = VerdictCounts::default();
        for number in 0..MAX_TOOLS + 50 {
            verdicts.count(&format!("tool{number}"), Outcome::Permit);
        }
        verdicts.count(&"t".repeat(MAX_TOOL_NAME + 1), Outcome::Permit);
        metrics.count_calls("x", &verdicts, false);
        let text = metrics.text();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("flowgate_calls_total{")).count(),
            MAX_TOOLS + 1
        );
        let other = r#"flowgate_calls_total{client="x",tool="(other)",verdict="permit",mode="enforce"} 51"#;
        assert!(text.contains(other), "{text}");
    }
}
