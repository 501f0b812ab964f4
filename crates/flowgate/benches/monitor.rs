//! Measures the time to push one event and to judge one call, on traces of different lengths, under the policy of a
//! bank.

#![expect(clippy::unwrap_used, clippy::panic, reason = "benchmarks")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use flowgate::monitor::{Monitor, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Tool, TraceEntry};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

const POLICY: &str = include_str!("../../../examples/agentdojo/banking.flow");
/// Rules over pairs of events, on top of the labels.
const RULES: &str = "
raise \"a password was changed after a file was read\" if:
    (read: ToolCall) -> (change: ToolCall)
    read is tool:read_file
    change is tool:update_password
ask \"money moves because of a file\" if:
    (file: ToolOutput) => (call: ToolCall)
    file is tool:read_file
    call is tool:send_money
";

fn rows() -> String {
    let row = |i: usize| {
        format!(
            "- amount: {i}.5\n  date: '2022-01-0{i}'\n  id: {i}\n  recipient: me\n  recurring: false\n  sender: DE{i}\n  subject: payment {i}\n"
        )
    };
    (1..6).map(row).collect()
}

/// A monitor that has seen `length` events: questions, calls and answers in turn.
fn session(length: usize) -> Monitor {
    let policy = Arc::new(Policy::parse(&format!("{POLICY}{RULES}")).unwrap());
    let mut monitor = Monitor::new(policy);
    let mut turn = 0;
    while monitor.trace().len() + 3 <= length {
        turn += 1;
        let content = Value::String(format!("What happened in week {turn}?"));
        monitor.push(TraceEntry::user(content)).unwrap();
        let id = format!("c{turn}");
        let call = Call::from_json(&id, Tool::local("get_most_recent_transactions"), "{\"n\": 5}");
        let Verdict::Permit(permit) = monitor.judge(call) else { panic!("reading is permitted") };
        monitor.redeem(permit).unwrap();
        monitor.push(output(&id)).unwrap();
    }
    monitor
}

fn output(id: &str) -> TraceEntry {
    let (call_id, content) = (id.to_owned(), Value::String(rows()));
    TraceEntry::tool_output(call_id, content)
}

/// One answer of five rows is pushed, and one payment judged (asked about, so the trace does not grow by it).
#[divan::bench(args = [10, 100, 1_000, 10_000], sample_count = 500, sample_size = 1)]
fn push_and_judge(bencher: Bencher<'_, '_>, length: usize) {
    let mut monitor = session(length);
    let mut turn = 0;
    bencher
        .with_inputs(|| {
            turn += 1;
            // Input, not measured: a call whose answer is pushed next.
            (
                turn,
                json!({"recipient": "DE1", "amount": 4.0, "subject": "x", "date": "2022-04-01"}).to_string(),
            )
        })
        .bench_local_values(|(turn, arguments)| {
            let content = Value::String(format!("Question {turn}"));
            monitor.push(TraceEntry::user(content)).unwrap();
            let call = Call::from_json(format!("b{turn}"), Tool::local("send_money"), &arguments);
            black_box(monitor.judge(call))
        });
}

/// One answer of five rows, labelled field by field.
#[divan::bench(args = [10, 1_000, 10_000], sample_count = 500, sample_size = 1)]
fn push_rows(bencher: Bencher<'_, '_>, length: usize) {
    let mut monitor = session(length);
    let mut turn = 0;
    let mut next = |monitor: &mut Monitor| {
        turn += 1;
        let id = format!("r{turn}");
        let call = Call::from_json(&id, Tool::local("get_most_recent_transactions"), "{}");
        let Verdict::Permit(permit) = monitor.judge(call) else { panic!("reading is permitted") };
        monitor.redeem(permit).unwrap();
        id
    };
    let ids: Vec<String> = (0..600).map(|_| next(&mut monitor)).collect();
    let mut ids = ids.into_iter();
    bencher
        .with_inputs(|| output(&ids.next().unwrap_or_default()))
        .bench_local_values(|entry| black_box(monitor.push(entry)));
}

/// A policy, read and compiled.
#[divan::bench]
fn parse_policy() -> Policy {
    Policy::parse(black_box(POLICY)).unwrap()
}
