//! Measures the time to evaluate rules over a finished trace, and over one more call. `compat/invariant/bench` measures
//! the same with invariant-ai, whose policy language Flowgate's `Compat` dialect reads.

#![expect(clippy::unwrap_used, reason = "benchmarks")]

use std::fmt::Write as _;
use std::sync::Arc;

use divan::{Bencher, black_box};
use flowgate::analysis::{self, AnalysisOptions};
use flowgate::monitor::{Attribution, Limits, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::{Call, EventBody, Tool, TraceEntry, read};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

/// The flow rule that invariant-ai's README begins with.
const FLOW: &str = "
raise \"mail after the inbox was read\" if:
    (call: ToolCall) -> (call2: ToolCall)
    call is tool:get_inbox
    call2 is tool:send_email
    call2.function.arguments.to != \"boss@firm.com\"
";

/// So many messages: questions, calls, answers. The inbox is read once, and mail goes to the boss alone.
fn messages(count: usize) -> Vec<Value> {
    let message = |index: usize| match index % 3 {
        0 => json!({"role": "user", "content": format!("question {index}: what about the report?")}),
        1 => {
            let (name, arguments) = match index {
                1 => ("get_inbox", json!({"n": 10})),
                n if n % 2 == 0 => ("send_email", json!({"to": "boss@firm.com", "body": "the report"})),
                n => ("search", json!({"query": format!("report {n}")})),
            };
            let function = json!({"name": name, "arguments": arguments});
            json!({"role": "assistant", "content": "", "tool_calls": [{"id": format!("c{index}"), "type": "function", "function": function}]})
        }
        _ => {
            json!({"role": "tool", "tool_call_id": format!("c{}", index - 1), "content": "found nothing of interest"})
        }
    };
    (0..count).map(message).collect()
}

fn entries(count: usize) -> Vec<TraceEntry> {
    read::list(&messages(count)).unwrap()
}

/// Rules about a tool each.
fn many(count: usize) -> String {
    (0..count).fold(String::new(), |mut source, n| {
        let _ = writeln!(
            source,
            "raise \"{n}\" if:\n    (a: ToolCall) -> (b: ToolCall)\n    a is tool:read_{n}\n    b is tool:send_{n}\n    \"secret\" in b.function.arguments.body\n"
        );
        source
    })
}

fn analyzed(bencher: Bencher<'_, '_>, policy: &str, count: usize) {
    let policy = Policy::parse(policy).unwrap();
    let trace = analysis::build_trace(entries(count)).unwrap();
    let options = AnalysisOptions { fuel: u64::MAX, ..AnalysisOptions::default() };
    bencher.bench_local(|| analysis::analyze_trace(&policy, black_box(&trace), &options));
}

#[divan::bench(args = [10, 100, 1_000, 3_000])]
fn flow_rule(bencher: Bencher<'_, '_>, messages: usize) {
    analyzed(bencher, FLOW, messages);
}

#[divan::bench(args = [10, 100, 1_000, 3_000])]
fn flow_rule_with_reading(bencher: Bencher<'_, '_>, count: usize) {
    let (policy, messages) = (Policy::parse(FLOW).unwrap(), messages(count));
    let options = AnalysisOptions { fuel: u64::MAX, ..AnalysisOptions::default() };
    bencher.bench_local(|| {
        let entries = read::list(black_box(&messages)).unwrap();
        analysis::analyze(&policy, entries, &options).unwrap()
    });
}

#[divan::bench(args = [10, 50, 100, 1_000, 5_000])]
fn rules_on_100_messages(bencher: Bencher<'_, '_>, rules: usize) {
    analyzed(bencher, &many(rules), 100);
}

#[divan::bench(args = [1, 50, 1_000])]
fn parse(bencher: Bencher<'_, '_>, rules: usize) {
    let source = many(rules);
    bencher.bench_local(|| Policy::parse(black_box(&source)).unwrap());
}

#[divan::bench(args = [10, 100, 1_000, 3_000])]
fn one_call_more(bencher: Bencher<'_, '_>, count: usize) {
    let limits = Limits { events: 1_000_000, ..Limits::default() };
    let mut monitor = Monitor::with_limits(Arc::new(Policy::parse(FLOW).unwrap()), limits);
    for entry in entries(count) {
        match entry.body {
            EventBody::Call(_) => drop(monitor.record(entry, &Attribution::everything())),
            _ => drop(monitor.push(entry).unwrap()),
        }
    }
    let arguments = json!({"to": "eve@evil.com", "body": "the report"}).to_string();
    let mut turn = 0;
    bencher.bench_local(|| {
        turn += 1;
        let call = Call::from_json(format!("more{turn}"), Tool::local("send_email"), &arguments);
        monitor.judge(black_box(call)).judgement().reasons.len()
    });
}
