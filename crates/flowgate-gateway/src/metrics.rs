//! Counts requests and their latencies, and writes all metrics in the text format of Prometheus. The HTTP service owns
//! these counters and serves the text.
//!
//! * [`agents`]: counts what agents did: verdicts on their calls, questions, decisions, tokens, and how long turns
//!   took.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(crate) mod agents;

/// The upper bounds of the buckets of latencies, in seconds.
const BOUNDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];

/// Latencies, by labels.
type Latencies<L> = Family<L, Histogram, fn() -> Histogram>;

/// Creates latencies of which nothing is observed yet.
fn latencies<L: Clone + std::hash::Hash + Eq>() -> Latencies<L> {
    Latencies::new_with_constructor(|| Histogram::new(BOUNDS))
}

/// The labels of an answered request. Routes are constants: a client cannot make them grow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

/// The label of the latencies of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

/// The label of reached limits: the name of the bounded quantity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

/// The counters of HTTP requests.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Latencies<RouteLabel>,
}

/// A metric that is measured on demand: its name, its help text, its value, and whether it is a counter, whose value
/// never decreases. The name of a counter ends in `_total`.
pub(crate) type Metric = (&'static str, &'static str, u64, bool);

impl Metrics {
    /// Creates the counters, all at zero, and registers them with their names and help texts.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let (requests, seconds) = (Family::default(), latencies());
        registry.register("flowgate_requests", "Requests that were answered", Family::clone(&requests));
        let help = "Time from the head of a request to its answer";
        registry.register("flowgate_request_seconds", help, Family::clone(&seconds));
        Self { registry, requests, seconds }
    }

    /// Counts an answered request of `route` with its status and the time that it took.
    pub(crate) fn count(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.seconds.get_or_create(&RouteLabel { route }).observe(took.as_secs_f64());
    }

    /// Returns all counters, `figures` (values that were measured now), and `limits` (how often each limit was reached)
    /// in the text format of Prometheus.
    pub(crate) fn text(&self, figures: &[Metric], limits: &BTreeMap<&'static str, u64>) -> String {
        let mut measured = Registry::default();
        let reached = Family::<LimitLabel, Counter>::default();
        for (&limit, &count) in limits {
            reached.get_or_create(&LimitLabel { limit }).inc_by(count);
        }
        let help = "How often a limit was reached, so that something was refused, dropped or forgotten";
        measured.register("flowgate_limits", help, reached);
        for &(name, help, value, is_counter) in figures {
            // The registry adds the full stop itself.
            let help = help.trim_end_matches('.');
            // The name of every counter ends in `_total`, which the encoder appends itself.
            match (is_counter, name.strip_suffix("_total")) {
                (true, Some(name)) => measured.register(name, help, ConstCounter::new(value)),
                _ => measured.register(name, help, ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))),
            }
        }
        [text_of(&self.registry), text_of(&measured)].concat()
    }
}

/// Returns the metrics of a registry in the text format of Prometheus.
fn text_of(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = prometheus_text::encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let metrics = Metrics::new();
        metrics.count("/a", 200, Duration::from_micros(1_000));
        metrics.count("/a", 400, Duration::from_secs(2));
        metrics.count("other", 404, Duration::from_secs(1000));
        let figures = [
            ("flowgate_cached_policies", "Compiled policies.", 3, false),
            ("flowgate_hits_total", "Policies that were found.", 4, true),
        ];
        let text = metrics.text(&figures, &BTreeMap::from([("open connections", 7)]));
        for line in [
            "# TYPE flowgate_request_seconds histogram",
            "flowgate_requests_total{route=\"/a\",status=\"200\"} 1",
            "flowgate_requests_total{route=\"/a\",status=\"400\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"0.0005\"} 0",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"0.001\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"1\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"5\"} 2",
            "flowgate_request_seconds_bucket{route=\"other\",le=\"120\"} 0",
            "flowgate_request_seconds_bucket{route=\"other\",le=\"+Inf\"} 1",
            "flowgate_request_seconds_sum{route=\"/a\"} 2.001",
            "flowgate_request_seconds_count{route=\"/a\"} 2",
            "flowgate_limits_total{limit=\"open connections\"} 7",
            "# HELP flowgate_cached_policies Compiled policies.",
            "# TYPE flowgate_cached_policies gauge",
            "flowgate_cached_policies 3",
            "# TYPE flowgate_hits_total counter",
            "flowgate_hits_total 4",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }
}
