//! Counts the requests of agents, the verdicts and the findings over time, since the start of the gateway: the
//! *figures*, which the page shows as charts. The routes of models and MCP servers count each request here, and
//! `figures_route` serves the figures.
//!
//! The time is divided into equal intervals. When there are too many of them, each pair of neighbours is merged, so
//! that a bounded number of intervals covers the whole time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::findings::{FindingKind, FindingTable, RequestFindings};

/// The length of an interval at the start.
const WIDTH: Duration = Duration::from_secs(10);
/// The most intervals.
const MAX_INTERVALS: usize = 240;

/// The numbers that one request of an agent adds to the figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestFigures {
    /// The client that has sent it.
    pub(crate) client: String,
    /// The time that it took.
    pub(crate) took: Duration,
    /// Whether it was refused or failed.
    pub(crate) is_failed: bool,
    /// The numbers of permitted, asked and denied calls.
    pub(crate) verdicts: [u64; 3],
    /// What objected to calls.
    pub(crate) findings: RequestFindings,
    /// The number of replies that a rule withheld.
    pub(crate) withheld: u64,
    /// The number of regions that were hidden from models.
    pub(crate) hidden: u64,
}

/// The figures of the gateway since its start.
#[derive(Debug)]
pub(crate) struct FigureSeries {
    /// The time of the start, by the monotonic clock.
    begun: Instant,
    /// The time of the start, in milliseconds since 1970.
    begun_at: u64,
    intervals: Mutex<Intervals>,
    findings: Mutex<FindingTable>,
}

/// The intervals up to the last one in which something happened.
#[derive(Debug)]
struct Intervals {
    width: Duration,
    figures: Vec<IntervalFigures>,
}

/// The figures of one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct IntervalFigures {
    requests: u64,
    failed: u64,
    /// The numbers of permitted, asked and denied calls.
    verdicts: [u64; 3],
    /// The numbers of findings by kind.
    findings: [u64; FindingKind::ALL.len()],
    withheld: u64,
    hidden: u64,
    /// The time of all requests together.
    took: Duration,
    /// The time of the slowest request.
    slowest: Duration,
}

impl FigureSeries {
    /// Begins the count at `now`. Also notes the present time in milliseconds since 1970, which the page shows.
    pub(crate) fn new(now: Instant) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begun_at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let intervals = Mutex::new(Intervals { width: WIDTH, figures: Vec::new() });
        Self { begun: now, begun_at, intervals, findings: Mutex::default() }
    }

    /// Adds a request that ended at `now`.
    pub(crate) fn count(&self, request: &RequestFigures, now: Instant) {
        let since = u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX);
        let at = self.begun_at.saturating_add(since);
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).add(
            &request.client,
            &request.findings,
            at,
        );
        let mut intervals = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        // `None` only if a number overflows: then the request is not counted.
        if let Some(interval) = intervals.at(now.saturating_duration_since(self.begun)) {
            interval.add(&IntervalFigures {
                requests: 1,
                failed: request.is_failed.into(),
                verdicts: request.verdicts,
                findings: request.findings.by_kind(),
                withheld: request.withheld,
                hidden: request.hidden,
                took: request.took,
                slowest: request.took,
            });
        }
    }

    /// Returns the figures of all intervals up to `now` as JSON, for the charts of the page, with the most frequent
    /// findings of the clients for which `shows_findings` returns true.
    pub(crate) fn to_json(&self, now: Instant, shows_findings: &dyn Fn(&str) -> bool) -> Value {
        let mut intervals = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        // Called for its effect: adds empty intervals for the time since the last request.
        let _ = intervals.at(now.saturating_duration_since(self.begun));
        let written = intervals.figures.iter().map(|interval| {
            let [permitted, asked, denied] = interval.verdicts;
            // In the order of `FindingKind::ALL`.
            let [requirements, rules, others, watched] = interval.findings;
            let mean = interval.took.checked_div(u32::try_from(interval.requests).unwrap_or(u32::MAX));
            json!({
                "requests": interval.requests,
                "failed": interval.failed,
                "permitted": permitted,
                "asked": asked,
                "denied": denied,
                "requirements": requirements,
                "rules": rules,
                "other_findings": others,
                "watched": watched,
                "withheld": interval.withheld,
                "hidden": interval.hidden,
                "mean_ms": mean.map(|mean| mean.as_secs_f64() * 1000.0),
                "slowest_ms": (interval.requests > 0).then_some(interval.slowest.as_secs_f64() * 1000.0),
            })
        });
        let written: Vec<Value> = written.collect();
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "begun": self.begun_at,
            "seconds": intervals.width.as_secs(),
            "intervals": written,
            "findings": findings.to_json(shows_findings),
            "findings_left_out": findings.left_out(),
        })
    }
}

impl Intervals {
    /// Returns the interval at the time `since` after the start; adds it, and those before it, if they do not exist
    /// yet. If there would be more than [`MAX_INTERVALS`] intervals, first doubles their width and merges each pair,
    /// as often as necessary. Returns `None` only if a number overflows.
    fn at(&mut self, since: Duration) -> Option<&mut IntervalFigures> {
        loop {
            // `max` only guards the division: no width is less than a millisecond.
            let index = usize::try_from(since.as_millis() / self.width.as_millis().max(1)).ok()?;
            if index < MAX_INTERVALS {
                if index >= self.figures.len() {
                    self.figures.resize(index + 1, IntervalFigures::default());
                }
                return self.figures.get_mut(index);
            }
            self.width = self.width.checked_mul(2)?;
            let merged = self.figures.chunks(2).map(|pair| {
                let mut sum = IntervalFigures::default();
                pair.iter().for_each(|interval| sum.add(interval));
                sum
            });
            self.figures = merged.collect();
        }
    }
}

impl IntervalFigures {
    /// Adds the figures of other requests.
    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        let counts = self.verdicts.iter_mut().chain(&mut self.findings);
        for (count, more) in counts.zip(other.verdicts.into_iter().chain(other.findings)) {
            *count = count.saturating_add(more);
        }
        self.withheld = self.withheld.saturating_add(other.withheld);
        self.hidden = self.hidden.saturating_add(other.hidden);
        self.took = self.took.saturating_add(other.took);
        self.slowest = self.slowest.max(other.slowest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_time_has_a_bounded_number_of_intervals() {
        let begun = Instant::now();
        let series = FigureSeries::new(begun);
        let request = |millis: u64, is_failed, verdicts| RequestFigures {
            took: Duration::from_millis(millis),
            is_failed,
            verdicts,
            withheld: 1,
            hidden: 2,
            ..RequestFigures::default()
        };
        series.count(&request(10, false, [1, 0, 2]), begun);
        series.count(&request(30, true, [0, 1, 0]), begun + Duration::from_secs(9));
        series.count(&request(5, false, [0; 3]), begun + Duration::from_secs(11));
        let first = json!({"requests": 2, "failed": 1, "permitted": 1, "asked": 1, "denied": 2, "requirements": 0, "rules": 0, "other_findings": 0, "watched": 0, "withheld": 2, "hidden": 4, "mean_ms": 20.0, "slowest_ms": 30.0});
        let empty = json!({"requests": 0, "failed": 0, "permitted": 0, "asked": 0, "denied": 0, "requirements": 0, "rules": 0, "other_findings": 0, "watched": 0, "withheld": 0, "hidden": 0, "mean_ms": null, "slowest_ms": null});
        let shown = series.to_json(begun + Duration::from_secs(25), &|_| true);
        let intervals = shown["intervals"].as_array().unwrap();
        assert_eq!((&shown["seconds"], intervals.len()), (&json!(10), 3), "{shown}");
        assert_eq!((&intervals[0], &intervals[1]["requests"], &intervals[2]), (&first, &json!(1), &empty));
        // After 40 minutes, intervals have twice the length; after years, there are not more of them.
        for (seconds, width) in [(2_399, 10), (2_400, 20), (100_000_000, 655_360)] {
            let shown = series.to_json(begun + Duration::from_secs(seconds), &|_| true);
            let intervals = shown["intervals"].as_array().unwrap();
            assert_eq!(shown["seconds"], width, "{seconds}");
            assert!(intervals.len() <= MAX_INTERVALS && intervals.len() > MAX_INTERVALS / 3, "{seconds}");
            let requests: u64 = intervals.iter().map(|interval| interval["requests"].as_u64().unwrap()).sum();
            assert_eq!(requests, 3, "{seconds}");
        }
    }
}
