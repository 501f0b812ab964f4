//! Measures many turns that wait for a slow model at the same time: the memory and the threads of the gateway's process
//! while they wait, and the time that the gateway adds until the first byte of an answer.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::chat::BenchChat;
use crate::options::LatencyOptions;
use crate::process::{self, BenchProcess, KEY};

/// The share of the model's time in which all turns begin.
const RAMP: f64 = 0.8;
/// The interval at which memory and threads are read.
const POLL: Duration = Duration::from_millis(250);

/// One turn: the time until the first byte of its answer, or why it failed.
type TurnOutcome = Result<Duration, String>;

/// Measures the bare proxy and the gateway, and prints a table.
pub(crate) fn run(runtime: &Runtime, options: &LatencyOptions) {
    let Some(binary) = options.flowgate.first() else {
        println!("--in-flight wants --flowgate BINARY");
        return;
    };
    let folder = std::env::temp_dir().join(format!("flowgate-in-flight-{}", std::process::id()));
    let upstream = process::upstream(options.delay, Duration::ZERO);
    println!(
        "\n## {} turns in flight, with a model that takes {} s\n",
        options.in_flight,
        options.delay.as_secs_f64()
    );
    println!(
        "| way | answered | added p50 ms | added p99 ms | MiB | threads | CPU ms/turn |\n|---|---|---|---|---|---|---|"
    );
    for (name, process) in [
        ("bare proxy", process::start_bare_proxy(&upstream.address)),
        ("flowgate", process::flowgate(options, binary, &upstream.address, &folder)),
    ] {
        report(name, runtime, options, &process);
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Runs all turns through one server, and prints its row of the table: the added time is the time until the first byte
/// without the delay of the model.
fn report(name: &str, runtime: &Runtime, options: &LatencyOptions, process: &BenchProcess) {
    let before = process.cpu();
    let turns = begin(runtime, options, &process.address);
    let (mut memory, mut threads) = (0.0_f64, 0.0_f64);
    while turns.iter().any(|turn| !turn.is_finished()) {
        (memory, threads) = (memory.max(process.resident()), threads.max(process.threads()));
        std::thread::sleep(POLL);
    }
    let cpu = process.cpu().saturating_sub(before).as_secs_f64() * 1e3 / options.in_flight.max(1) as f64;
    let outcomes: Vec<TurnOutcome> =
        runtime.block_on(async { outcomes_of(turns).await }).into_iter().collect();
    let mut added: Vec<f64> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().ok())
        .map(|time| time.saturating_sub(options.delay).as_secs_f64() * 1e3)
        .collect();
    added.sort_by(f64::total_cmp);
    let part = |part: f64| {
        let index = (added.len() as f64 * part) as usize;
        added.get(index.min(added.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    println!(
        "| {name} | {}/{} | {:.1} | {:.1} | {memory:.0} | {threads} | {cpu:.2} |",
        added.len(),
        options.in_flight,
        part(0.5),
        part(0.99)
    );
    if let Some(error) = outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
        println!("\n{name}: the first failure: {error}\n");
    }
}

/// Waits for all turns, and returns their outcomes.
async fn outcomes_of(turns: Vec<tokio::task::JoinHandle<TurnOutcome>>) -> Vec<TurnOutcome> {
    let mut outcomes = Vec::new();
    for turn in turns {
        outcomes.push(turn.await.unwrap());
    }
    outcomes
}

/// Begins all turns, evenly over a part of the model's time, so that all of them wait for it at the same time.
fn begin(
    runtime: &Runtime,
    options: &LatencyOptions,
    address: &str,
) -> Vec<tokio::task::JoinHandle<TurnOutcome>> {
    let begun = Instant::now();
    let pause = options.delay.mul_f64(RAMP / options.in_flight.max(1) as f64);
    let turns = (0..u32::try_from(options.in_flight).unwrap()).map(|number| {
        std::thread::sleep((begun + pause * number).saturating_duration_since(Instant::now()));
        let address = address.to_owned();
        runtime.spawn(async move { run_turn(&address, number).await.map_err(|error| error.to_string()) })
    });
    turns.collect()
}

/// Sends one message on a separate connection, and returns the time until the first byte of the streamed answer.
async fn run_turn(address: &str, number: u32) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let mut chat = BenchChat::new(format!("chat {number}"), 0);
    let body = Full::new(Bytes::from(chat.ask(true)));
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post("/v1/chat/completions")
        .header("host", address)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {KEY}"))
        .body(body)?;
    let begun = Instant::now();
    let mut answer = sender.send_request(request).await?;
    let mut text = Vec::new();
    let mut first = None;
    while let Some(frame) = answer.body_mut().frame().await {
        if let Some(data) = frame?.data_ref() {
            first.get_or_insert_with(|| begun.elapsed());
            text.extend_from_slice(data);
        }
    }
    if answer.status() != 200 {
        return Err(format!("{}: {}", answer.status(), String::from_utf8_lossy(&text)).into());
    }
    chat.push_answer(true, &text)?;
    first.ok_or_else(|| "the answer is empty".into())
}
