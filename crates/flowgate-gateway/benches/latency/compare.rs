//! Compares all ways to the same upstream, alternating in rounds, so that other load on the machine affects all of
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::load::LoadTarget;
use crate::options::LatencyOptions;
use crate::process::{self, BenchProcess};
use crate::report::{self, RoundResult, RouteResult};

/// A way to the upstream.
struct MeasuredRoute {
    name: &'static str,
    /// The server in between, if there is one.
    process: Option<BenchProcess>,
    target: Arc<LoadTarget>,
}

pub(crate) fn run(runtime: &Runtime, options: &LatencyOptions) {
    let folder = std::env::temp_dir().join(format!("flowgate-latency-{}", std::process::id()));
    let upstream = process::upstream(Duration::ZERO);
    let mut ways = Vec::new();
    let mut add = |name: &'static str, process: Option<BenchProcess>| {
        let address = process.as_ref().map_or(&upstream.address, |process| &process.address);
        let target = LoadTarget::new(address, options);
        match target.prepare(runtime, options.chats) {
            Ok(rate) => {
                println!(
                    "{name}: {rate:.0} requests per second, sixteen at the same time, in chats that grow"
                );
                ways.push(MeasuredRoute { name, process, target });
            }
            Err(error) => println!("left out, since it does not answer: {name}: {error}"),
        }
    };
    if !options.only_flowgate {
        add("direct", None);
        add("bare proxy", Some(process::start_bare_proxy(&upstream.address)));
    }
    for (index, binary) in options.flowgate.iter().enumerate() {
        let name = ["flowgate", "flowgate, second", "flowgate, third"]
            .get(index)
            .copied()
            .unwrap_or("flowgate, other");
        let process = process::flowgate(options, binary, &upstream.address, &folder.join(index.to_string()));
        add(name, Some(process));
    }
    if let Some(binary) = &options.litellm {
        match process::litellm(binary, &upstream.address, &folder.join("litellm")) {
            Ok(process) => add("LiteLLM", Some(process)),
            Err(error) => println!("left out: {error}"),
        }
    }
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
