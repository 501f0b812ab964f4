//! Prints the results of a comparison as a table. Each figure is the median over rounds.

use std::time::Duration;

use crate::load::RequestSample;

/// The results of one way at one rate.
#[derive(Debug)]
pub(crate) struct RouteResult {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<RoundResult>,
}

/// The results of one round.
#[derive(Debug)]
pub(crate) struct RoundResult {
    pub(crate) samples: Vec<RequestSample>,
    /// The CPU time of the server in between; zero if there is none.
    pub(crate) cpu: Duration,
    /// The time until all answers had arrived, in seconds.
    pub(crate) seconds: f64,
    /// The share of the time that other virtual machines on the host took.
    pub(crate) stolen: f64,
}

impl RoundResult {
    fn answered(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_answered).count()
    }

    /// Returns the CPU time per answered request in milliseconds; `None` if there is no server in between.
    fn cpu(&self) -> Option<f64> {
        (!self.cpu.is_zero()).then(|| self.cpu.as_secs_f64() * 1e3 / self.answered().max(1) as f64)
    }

    /// Returns the percentile `part`, from 0 to 1, of the latencies of streamed or whole answers, in milliseconds. An
    /// abandoned request counts with the time after which it was abandoned, a lower bound.
    fn percentile(&self, stream: bool, part: f64) -> f64 {
        let of = self.samples.iter().filter(|sample| sample.stream == stream);
        let mut times: Vec<f64> = of.map(|sample| sample.whole.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let index = (times.len() as f64 * part) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}

impl RouteResult {
    fn answered(&self) -> usize {
        self.rounds.iter().map(RoundResult::answered).sum()
    }

    pub(crate) fn asked(&self) -> usize {
        self.rounds.iter().map(|round| round.samples.len()).sum()
    }

    /// Returns the median over rounds of a figure that is computed from a round and the same round of another way.
    fn median_against(
        &self,
        other: Option<&Self>,
        compute: impl Fn(&RoundResult, &RoundResult) -> Option<f64>,
    ) -> Option<f64> {
        let rounds = self.rounds.iter().zip(&other?.rounds);
        let mut values: Vec<f64> = rounds.filter_map(|(round, other)| compute(round, other)).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
        Some((values.get(low)? + values.get(high)?) / 2.0)
    }

    /// Returns the median over rounds of a figure that is computed from a round.
    fn median(&self, compute: impl Fn(&RoundResult) -> Option<f64>) -> Option<f64> {
        self.median_against(Some(self), |round, _| compute(round))
    }
}

/// Prints the results of all ways at one rate, in comparison with the bare proxy.
pub(crate) fn print(rate: f64, found: &[RouteResult]) {
    println!("\n## {rate} requests per second\n");
    println!(
        "| way | answer | p50 ms | p90 ms | p99 ms | p50 − bare | p50 / bare | p99 − bare | CPU ms/request | / bare | answered | rate | stolen |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let bare = found.iter().find(|found| found.name == "bare proxy");
    for way in found {
        for stream in [false, true] {
            let plain = |part| way.median(|round| Some(round.percentile(stream, part)));
            let more = |part| {
                way.median_against(bare, |round, bare| {
                    Some(round.percentile(stream, part) - bare.percentile(stream, part))
                })
            };
            let times = way.median_against(bare, |round, bare| {
                Some(round.percentile(stream, 0.5) / bare.percentile(stream, 0.5))
            });
            let cpu = way.median(RoundResult::cpu);
            let cpu_times = way.median_against(bare, |round, bare| Some(round.cpu()? / bare.cpu()?));
            let seconds: f64 = way.rounds.iter().map(|round| round.seconds).sum();
            let stolen = way.rounds.iter().map(|round| round.stolen * round.seconds).sum::<f64>() / seconds;
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}/{} | {:.0}/s | {:.1} % |",
                way.name,
                if stream { "streamed" } else { "whole" },
                two_decimals(plain(0.5)),
                two_decimals(plain(0.9)),
                two_decimals(plain(0.99)),
                show(more(0.5), |ms| format!("{ms:+.2}")),
                show(times, |times| format!("{times:.1}")),
                show(more(0.99), |ms| format!("{ms:+.2}")),
                two_decimals(cpu),
                show(cpu_times, |times| format!("{times:.1}")),
                way.answered(),
                way.asked(),
                way.answered() as f64 / seconds,
                stolen * 100.0,
            );
        }
    }
}

fn two_decimals(value: Option<f64>) -> String {
    show(value, |value| format!("{value:.2}"))
}

/// Formats a figure; a dash if it does not exist.
fn show(value: Option<f64>, form: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), form)
}
