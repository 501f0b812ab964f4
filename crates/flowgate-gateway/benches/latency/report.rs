//! What was found, as a table.

use std::time::Duration;

use crate::load::Sample;

/// What is known of one way at one rate.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<Sample>,
    pub(crate) cpu: Duration,
    /// Seconds in which all answers came.
    pub(crate) seconds: f64,
}

impl Found {
    fn answered(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_answered).count()
    }

    /// CPU milliseconds for a request.
    fn cpu(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.answered().max(1) as f64
    }

    /// The times of these requests in milliseconds, sorted. One that was given up took at least as long as it was waited for.
    fn times(&self, stream: bool) -> Vec<f64> {
        let of = self.samples.iter().filter(|sample| sample.stream == stream);
        let mut times: Vec<f64> = of.map(|sample| sample.whole.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

fn percentile(times: &[f64], part: f64) -> f64 {
    let index = (times.len() as f64 * part) as usize;
    times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Prints all ways at one rate; the second is what the others are held against.
pub(crate) fn print(rate: f64, found: &[Found]) {
    println!("\n## {rate} requests per second\n");
    println!(
        "| way | answer | p50 ms | p90 ms | p99 ms | p50 − bare | p50 / bare | p99 − bare | CPU ms/request | / bare | answered | rate |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let bare = found.iter().find(|found| found.name == "bare proxy");
    for way in found {
        for stream in [false, true] {
            let times = way.times(stream);
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| percentile(&times, part));
            let [bare50, bare99] =
                [0.5, 0.99].map(|part| bare.map_or(f64::NAN, |bare| percentile(&bare.times(stream), part)));
            let answer = if stream { "streamed" } else { "whole" };
            let cpu = if way.cpu.is_zero() { "–".to_owned() } else { format!("{:.2}", way.cpu()) };
            let more = bare
                .filter(|_| !way.cpu.is_zero())
                .map_or_else(|| "–".to_owned(), |bare| format!("{:.1}", way.cpu() / bare.cpu()));
            println!(
                "| {} | {answer} | {p50:.2} | {p90:.2} | {p99:.2} | {:+.2} | {:.1} | {:+.2} | {cpu} | {more} | {}/{} | {:.0}/s |",
                way.name,
                p50 - bare50,
                p50 / bare50,
                p99 - bare99,
                way.answered(),
                way.samples.len(),
                way.answered() as f64 / way.seconds,
            );
        }
    }
}
