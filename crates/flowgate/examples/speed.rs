//! Measures the time of the analysis and the monitor over the workload of `compat/invariant/bench.py`, and prints JSON
//! lines.
//!
//! The workload is a file of JSON: `{"flow": {"policy", "traces": [[message, ...], ...], "call": message}, "many":
//! {"policy", "trace"}}`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program to measure with"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgate::analysis::{self, AnalysisOptions};
use flowgate::json::{self, Numbers};
use flowgate::monitor::{Attribution, Limits, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::{Call, EventBody, TraceEntry, read};
use serde_json::{Value, json};

/// How long one thing is measured, and how often at most.
const BUDGET: Duration = Duration::from_millis(1500);
const MOST: usize = 400;

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let workload: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let flow = &workload["flow"];
    let policy = text(&flow["policy"]);
    for trace in flow["traces"].as_array().unwrap() {
        analysis(&policy, trace, "flow");
        judge(&policy, trace, &flow["call"]);
    }
    let many = &workload["many"];
    let policy = text(&many["policy"]);
    let time = median(|| (), |()| Policy::parse(black_box(&policy)).unwrap());
    report("parse_policy", "many", 0, time, policy.lines().filter(|line| line.starts_with("raise")).count());
    analysis(&policy, &many["trace"], "many");
    rules(&many["trace"]);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Microseconds in the median, of runs on fresh input; making the input and dropping what comes out do not count.
fn median<I, O>(mut input: impl FnMut() -> I, mut run: impl FnMut(I) -> O) -> f64 {
    let begun = Instant::now();
    let mut times = Vec::new();
    // The first runs warm up.
    while times.len() < 8 || (begun.elapsed() < BUDGET && times.len() < MOST) {
        let given = input();
        let start = Instant::now();
        let out = black_box(run(given));
        times.push(start.elapsed());
        drop(out);
    }
    let mut times = times.split_off(3);
    times.sort_unstable();
    times.get(times.len() / 2).unwrap().as_secs_f64() * 1e6
}

fn report(what: &str, workload: &str, messages: usize, time: f64, found: usize) {
    println!(
        "{}",
        json!({"what": what, "workload": workload, "messages": messages, "us": time, "found": found})
    );
}

fn entries(json: &str) -> Vec<TraceEntry> {
    let value = json::parse(json, Numbers::Any).unwrap();
    read::list(value.as_array().unwrap()).unwrap()
}

/// Reading a trace, judging it, and both.
fn analysis(policy: &str, trace: &Value, workload: &str) {
    let (messages, source) = (trace.as_array().unwrap().len(), trace.to_string());
    let policy = Policy::parse(policy).unwrap();
    let options = AnalysisOptions { fuel: u64::MAX, ..AnalysisOptions::default() };
    let read = entries(&source);
    let result = analysis::analyze(&policy, read.clone(), &options).unwrap();
    assert!(result.failures.is_empty(), "a rule fails");
    let found = result.violations.len();

    let time = median(|| (), |()| entries(black_box(&source)));
    report("read", workload, messages, time, found);
    let parsed = analysis::build_trace(read).unwrap();
    let time = median(|| (), |()| analysis::analyze_trace(&policy, black_box(&parsed), &options));
    report("analyze", workload, messages, time, found);
    let time = median(|| (), |()| analysis::analyze(&policy, entries(black_box(&source)), &options).unwrap());
    report("both", workload, messages, time, found);
}

/// Ever more rules, each about its own tool, over the same trace.
fn rules(trace: &Value) {
    let parsed = analysis::build_trace(entries(&trace.to_string())).unwrap();
    let options = AnalysisOptions { fuel: u64::MAX, ..AnalysisOptions::default() };
    for count in [10, 100, 1_000, 10_000] {
        let rule = |n: usize| {
            format!(
                "raise \"{n}\" if:\n    (a: ToolCall) -> (b: ToolCall)\n    a is tool:read_{n}\n    b is tool:send_{n}\n"
            )
        };
        let policy = Policy::parse(&(0..count).map(rule).collect::<String>()).unwrap();
        let time = median(|| (), |()| analysis::analyze_trace(&policy, black_box(&parsed), &options));
        report("analyze", "rules", count, time, 0);
    }
}

/// One more call, judged in a session that has seen the trace. A verdict that is dropped leaves no event behind.
fn judge(policy: &str, trace: &Value, call: &Value) {
    let messages = trace.as_array().unwrap().len();
    let limits = Limits { events: 1_000_000, ..Limits::default() };
    let mut monitor = Monitor::with_limits(Arc::new(Policy::parse(policy).unwrap()), limits);
    for entry in entries(&trace.to_string()) {
        match entry.body {
            EventBody::Call(_) => drop(monitor.record(entry, &Attribution::everything())),
            _ => drop(monitor.push(entry).unwrap()),
        }
    }
    let template = entries(&Value::Array(vec![call.clone()]).to_string())
        .into_iter()
        .find_map(|entry| match entry.body {
            EventBody::Call(call) => Some(call),
            _ => None,
        })
        .unwrap();
    let (before, mut turn, mut reasons) = (monitor.trace().len(), 0, 0);
    let time = median(
        || {
            turn += 1;
            Call { id: format!("more{turn}"), ..template.clone() }
        },
        |call| reasons = monitor.judge(call).judgement().reasons.len(),
    );
    assert_eq!(monitor.trace().len(), before, "judging has left events behind");
    report("judge", "flow", messages, time, reasons);
}
