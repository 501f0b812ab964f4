//! Measures with a fixed number of open requests: each client sends its next request when the last one is answered.
//!
//! * [`measure_streams`]: the first token of streams that the model paces, and the gaps between their chunks.
//! * [`sweep`]: the rate that each way sustains, by the number of requests that are always open.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::load::AnswerTiming;
use crate::options::LatencyOptions;
use crate::process::{self, BenchProcess};
use crate::routes::{self, MeasuredRoute};

/// The numbers of requests that are always open, in a sweep.
const SWEEP: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The measurements of one way, in all rounds with one number of open requests.
#[derive(Debug, Default)]
struct LoopResult {
    timings: Vec<AnswerTiming>,
    /// The CPU time of the server in between; zero if there is none.
    cpu: Duration,
    seconds: f64,
    /// The first failure.
    failure: Option<String>,
}

impl LoopResult {
    /// Measures a way for `seconds` with `concurrency` open requests, and adds the results.
    fn add_round(
        &mut self,
        runtime: &Runtime,
        way: &MeasuredRoute,
        (concurrency, seconds): (usize, f64),
        stream: bool,
    ) {
        let cpu = || way.process.as_ref().map(BenchProcess::cpu).unwrap_or_default();
        let (before, begun) = (cpu(), std::time::Instant::now());
        let (timings, failure) = way.target.keep_open(runtime, (concurrency, seconds), stream);
        self.seconds += begun.elapsed().as_secs_f64();
        self.cpu += cpu().saturating_sub(before);
        self.timings.extend(timings);
        self.failure = self.failure.take().or(failure);
    }

    /// Returns the percentile `part`, from 0 to 1, of the times that `times` selects, in milliseconds.
    fn percentile<'t>(&'t self, part: f64, times: impl Fn(&'t AnswerTiming) -> &'t [Duration]) -> f64 {
        let all = self.timings.iter().flat_map(times);
        let mut all: Vec<f64> = all.map(|time| time.as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        let index = (all.len() as f64 * part) as usize;
        all.get(index.min(all.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    /// Returns the answers per second.
    fn rate(&self) -> f64 {
        self.timings.len() as f64 / self.seconds
    }

    /// Returns the CPU time per answer, in milliseconds.
    fn cpu_of_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.timings.len().max(1) as f64
    }

    fn print_failure(&self, name: &str) {
        if let Some(error) = &self.failure {
            println!("\n{name}: a failure: {error}\n");
        }
    }
}

/// Measures streams whose chunks the model paces, in alternating rounds of all ways, and prints a table of the first
/// token, the gaps between chunks, and the whole answer.
pub(crate) fn measure_streams(runtime: &Runtime, options: &LatencyOptions) {
    let folder = std::env::temp_dir().join(format!("flowgate-streams-{}", std::process::id()));
    let upstream = process::upstream(options.delay, options.chunk_delay);
    // Chats grow while the model takes its time, so few are begun.
    let prepared =
        LatencyOptions { chats: options.concurrency, messages: options.messages.min(19), ..options.clone() };
    let ways = routes::start(runtime, &prepared, &upstream, &folder);
    let mut found: Vec<LoopResult> = ways.iter().map(|_| LoopResult::default()).collect();
    for _ in 0..options.rounds {
        for (way, found) in ways.iter().zip(&mut found) {
            found.add_round(runtime, way, (options.concurrency, options.seconds), true);
        }
    }
    println!(
        "\n## Streams of chunks every {} ms, {} at the same time, in chats that begin with {} bytes\n",
        options.chunk_delay.as_millis(),
        options.concurrency,
        options.context
    );
    println!(
        "| way | first token p50 ms | p99 ms | gap p50 ms | p99 ms | whole p50 ms | p99 ms | CPU ms/request | answered |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (way, found) in ways.iter().zip(&found) {
        let first = |part| found.percentile(part, |timing| std::slice::from_ref(&timing.first));
        let gap = |part| found.percentile(part, |timing| &timing.gaps);
        let whole = |part| found.percentile(part, |timing| std::slice::from_ref(&timing.whole));
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} | {} |",
            way.name,
            first(0.5),
            first(0.99),
            gap(0.5),
            gap(0.99),
            whole(0.5),
            whole(0.99),
            found.cpu_of_request(),
            found.timings.len()
        );
    }
    ways.iter().zip(&found).for_each(|(way, found)| found.print_failure(way.name));
    let _ = std::fs::remove_dir_all(folder);
}

/// Measures how many requests per second each way answers with each number of open requests in [`SWEEP`], and prints a
/// table and the highest rate of each way.
pub(crate) fn sweep(runtime: &Runtime, options: &LatencyOptions) {
    let folder = std::env::temp_dir().join(format!("flowgate-sweep-{}", std::process::id()));
    let upstream = process::upstream(options.delay, Duration::ZERO);
    let ways = routes::start(runtime, options, &upstream, &folder);
    println!("\n## Requests that are always open\n");
    println!(
        "| way | open | requests per second | p50 ms | p99 ms | CPU ms/request |\n|---|---|---|---|---|---|"
    );
    let (mut highest, mut failures) = (vec![0.0_f64; ways.len()], Vec::new());
    for concurrency in SWEEP {
        let mut found: Vec<LoopResult> = ways.iter().map(|_| LoopResult::default()).collect();
        for round in 0..options.rounds {
            for (way, found) in ways.iter().zip(&mut found) {
                found.add_round(runtime, way, (concurrency, options.seconds), round % 2 == 1);
            }
        }
        for ((way, found), highest) in ways.iter().zip(&found).zip(&mut highest) {
            let whole = |part| found.percentile(part, |timing| std::slice::from_ref(&timing.whole));
            *highest = highest.max(found.rate());
            println!(
                "| {} | {concurrency} | {:.0} | {:.2} | {:.2} | {:.2} |",
                way.name,
                found.rate(),
                whole(0.5),
                whole(0.99),
                found.cpu_of_request()
            );
            failures.extend(found.failure.as_ref().map(|error| format!("{}: a failure: {error}", way.name)));
        }
    }
    println!();
    failures.iter().for_each(|failure| println!("{failure}"));
    for (way, highest) in ways.iter().zip(highest) {
        println!("{}: at most {highest:.0} requests per second", way.name);
    }
    let _ = std::fs::remove_dir_all(folder);
}
