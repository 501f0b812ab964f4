//! Times what `compat/python/overhead.py` does through the Python package, without Python: one JSON line for each workload, with the
//! nanoseconds of one operation, the median of many rounds.
//!
//! The two files describe the same workloads and must be changed together.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures"
)]

use std::sync::Arc;
use std::time::Instant;

use flowgate::monitor::{Monitor, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Tool, TraceEntry};

const POLICY: &str = "\
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == 'user'
require untrusted if:
    (call: ToolCall) is tool:read_page
require trusted if:
    (call: ToolCall) is tool:pay
";
const ROUNDS: usize = 200;
const CALLS: usize = 100;

/// One operation in a session, the n-th.
type Operation<'o> = &'o dyn Fn(&mut Monitor, usize);

/// Returns the median time of one of `CALLS` operations, over `ROUNDS` sessions.
fn measure(policy: &Arc<Policy>, operate: impl Fn(&mut Monitor, usize)) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut monitor = Monitor::new(Arc::clone(policy));
            monitor.push(TraceEntry::user("Pay the bill on example.org.")).unwrap();
            let begun = Instant::now();
            for number in 0..CALLS {
                operate(&mut monitor, number);
            }
            begun.elapsed().as_secs_f64() * 1e9 / CALLS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    *times.get(ROUNDS / 2).unwrap()
}

fn main() {
    let policy = Arc::new(Policy::parse(POLICY).unwrap());
    let read = |number: usize| {
        Call::from_json(format!("c{number}"), Tool::local("read_page"), r#"{"url": "example.org"}"#)
    };
    let pay = |number: usize| {
        Call::from_json(format!("p{number}"), Tool::local("pay"), r#"{"to": "ann", "amount": 20}"#)
    };
    let run = |monitor: &mut Monitor, number: usize| {
        if let Verdict::Permit(permit) = monitor.judge(read(number)) {
            let call = monitor.redeem(permit).unwrap();
            monitor.push(TraceEntry::tool_output(&*call.call().id, "20 dollars.")).unwrap();
        }
    };
    let workloads: [(&str, Operation<'_>); 4] = [
        ("push a message", &|monitor, _| drop(monitor.push(TraceEntry::user("Pay the bill.")).unwrap())),
        ("judge a call", &|monitor, number| drop(monitor.judge(pay(number)))),
        ("judge, run and label a call", &run),
        ("judge a call that needs a question", &|monitor, number| {
            if number == 0 {
                run(monitor, 0);
            }
            let Verdict::Confirm(question) = monitor.judge(pay(number)) else { return };
            assert_eq!(question.judgement().reasons.len(), 3);
        }),
    ];
    for (name, operate) in workloads {
        println!("{}", serde_json::json!({"name": name, "ns": measure(&policy, operate)}));
    }
}
