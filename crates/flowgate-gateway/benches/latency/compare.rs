//! Compares all ways to the upstream (see `routes`): the same requests are sent on each way, alternating in rounds, so
//! that other load on the machine affects all of them.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::options::LatencyOptions;
use crate::process::{self, BenchProcess};
use crate::report::{self, RoundResult, RouteResult};
use crate::routes;

/// Runs the comparison at each rate, and prints a table for it, the CPU time of the upstream, and the memory of each
/// way.
pub(crate) fn run(runtime: &Runtime, options: &LatencyOptions) {
    let folder = std::env::temp_dir().join(format!("flowgate-latency-{}", std::process::id()));
    let upstream = process::upstream(Duration::ZERO, Duration::ZERO);
    let ways = routes::start(runtime, options, &upstream, &folder);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{cores} cores; chats of 1 to {} messages, {} side by side; {} statements; {} rounds of {} s",
        options.messages,
        options.chats,
        crate::policy::STATEMENTS,
        options.rounds,
        options.seconds,
    );
    for rate in &options.rates {
        let mut found: Vec<RouteResult> =
            ways.iter().map(|way| RouteResult { name: way.name, rounds: Vec::new() }).collect();
        let before = upstream.cpu();
        for _ in 0..options.rounds {
            for (way, found) in ways.iter().zip(&mut found) {
                let cpu = || way.process.as_ref().map(BenchProcess::cpu).unwrap_or_default();
                let (before, machine, begun) = (cpu(), process::machine(), Instant::now());
                let samples = way.target.offer(runtime, *rate, options.seconds);
                let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu().saturating_sub(before));
                let stolen = machine.stolen_until(process::machine());
                found.rounds.push(RoundResult { samples, cpu, seconds, stolen });
            }
        }
        report::print(*rate, &found);
        let all: usize = found.iter().map(RouteResult::asked).sum();
        let spent = upstream.cpu().saturating_sub(before).as_secs_f64() * 1e3;
        println!("\nThe upstream took {:.2} ms of CPU for a request.", spent / all.max(1) as f64);
    }
    for way in &ways {
        if let Some(process) = &way.process {
            println!("{}: {:.0} MiB", way.name, process.resident());
        }
    }
    drop(ways);
    let _ = std::fs::remove_dir_all(folder);
}
