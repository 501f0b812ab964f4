//! Counts requests and their latencies, and writes all metrics in the text format of Prometheus. The HTTP service owns
//! the counters and serves the text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

/// The upper bounds of the latency histogram: in microseconds, and as Prometheus reads them.
const BOUNDS: [(u64, &str); 12] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (1_000_000, "1"),
    (5_000_000, "5"),
    (30_000_000, "30"),
];

/// The latencies of one route.
#[derive(Debug, Default, Clone, Copy)]
struct Histogram {
    /// The number of requests that took at most the bound with the same index.
    buckets: [u64; BOUNDS.len()],
    /// The number of all requests.
    count: u64,
    /// The time of all requests together, in microseconds.
    micros: u64,
}

/// The counters. Their keys are routes, which are constants: a client cannot make them grow.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counted: Mutex<RouteRequestCounts>,
}

/// The numbers and latencies of requests, by route.
#[derive(Debug, Default)]
struct RouteRequestCounts {
    /// The number of requests by route and status.
    requests: BTreeMap<(&'static str, u16), u64>,
    /// The latencies by route.
    latencies: BTreeMap<&'static str, Histogram>,
}

/// A metric that is measured on demand: its name, its help text, its value, and whether it is a counter, whose value
/// never decreases.
pub(crate) type Metric = (&'static str, &'static str, u64, bool);

impl Metrics {
    /// Counts an answered request of `route` with its status and the time that it took. Buckets are cumulative: a
    /// request counts in every bucket whose bound it does not exceed.
    pub(crate) fn count(&self, route: &'static str, status: u16, took: Duration) {
        // A thread that panicked while counting leaves at worst one request uncounted.
        let mut counted = self.counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *counted.requests.entry((route, status)).or_default() += 1;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let histogram = counted.latencies.entry(route).or_default();
        // The bound in microseconds; its second part is the same bound as text.
        for (bucket, (bound, _)) in histogram.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(micros <= bound);
        }
        histogram.count += 1;
        histogram.micros = histogram.micros.saturating_add(micros);
    }

    /// Returns all counters, `figures` (values that were measured now), and `limits` (how often each limit was reached)
    /// in the text format of Prometheus.
    pub(crate) fn text(&self, figures: &[Metric], limits: &BTreeMap<&'static str, u64>) -> String {
        let counted = self.counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut text = String::new();
        write_metric_head(&mut text, "flowgate_requests_total", "Requests that were answered.", "counter");
        for ((route, status), count) in &counted.requests {
            // Writing to a `String` cannot fail.
            let _ =
                writeln!(text, "flowgate_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        let name = "flowgate_request_seconds";
        write_metric_head(&mut text, name, "Time from the head of a request to its answer.", "histogram");
        for (route, histogram) in &counted.latencies {
            for (count, (_, bound)) in histogram.buckets.iter().zip(BOUNDS) {
                let _ = writeln!(text, "{name}_bucket{{route=\"{route}\",le=\"{bound}\"}} {count}");
            }
            let (count, micros) = (histogram.count, histogram.micros);
            let _ = writeln!(text, "{name}_bucket{{route=\"{route}\",le=\"+Inf\"}} {count}");
            let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
            let _ = writeln!(text, "{name}_sum{{route=\"{route}\"}} {seconds}.{rest:06}");
            let _ = writeln!(text, "{name}_count{{route=\"{route}\"}} {count}");
        }
        let name = "flowgate_limits_total";
        write_metric_head(
            &mut text,
            name,
            "How often a bound was reached and something was refused or let go.",
            "counter",
        );
        for (limit, count) in limits {
            let _ = writeln!(text, "{name}{{limit=\"{limit}\"}} {count}");
        }
        for (name, help, value, is_counter) in figures {
            write_metric_head(&mut text, name, help, if *is_counter { "counter" } else { "gauge" });
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }
}

/// Writes the lines that precede the values of a metric: its help text and its kind.
fn write_metric_head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let metrics = Metrics::default();
        metrics.count("/a", 200, Duration::from_micros(1_000));
        metrics.count("/a", 400, Duration::from_secs(2));
        metrics.count("other", 404, Duration::from_secs(100));
        let figures = [("flowgate_cached_policies", "Compiled policies.", 3, false)];
        let text = metrics.text(&figures, &BTreeMap::from([("open connections", 7)]));
        for line in [
            "# TYPE flowgate_request_seconds histogram",
            "flowgate_requests_total{route=\"/a\",status=\"200\"} 1",
            "flowgate_requests_total{route=\"/a\",status=\"400\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"0.0005\"} 0",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"0.001\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"1\"} 1",
            "flowgate_request_seconds_bucket{route=\"/a\",le=\"5\"} 2",
            "flowgate_request_seconds_bucket{route=\"other\",le=\"30\"} 0",
            "flowgate_request_seconds_bucket{route=\"other\",le=\"+Inf\"} 1",
            "flowgate_request_seconds_sum{route=\"/a\"} 2.001000",
            "flowgate_request_seconds_count{route=\"/a\"} 2",
            "flowgate_limits_total{limit=\"open connections\"} 7",
            "flowgate_cached_policies 3",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }
}
