"""Times the Python package beside the same operations in Rust, in one run, and fails if the bindings cost more than the limit.

    overhead.py RUST_PROGRAM [--limit MICROSECONDS]

`RUST_PROGRAM` is the example `overhead` of `flowgate-python`. The two files describe the same workloads and must be changed together. Each
figure is the median of 200 sessions of 100 operations.
"""

import argparse
import json
import statistics
import subprocess
import time

import flowgate

POLICY = flowgate.Policy("""
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == 'user'
require untrusted if:
    (call: ToolCall) is tool:read_page
require trusted if:
    (call: ToolCall) is tool:pay
""")
ROUNDS, CALLS = 200, 100


def measure(operate):
    times = []
    for _ in range(ROUNDS):
        monitor = flowgate.Monitor(POLICY)
        monitor.user("Pay the bill on example.org.")
        begun = time.perf_counter_ns()
        for number in range(CALLS):
            operate(monitor, number)
        times.append((time.perf_counter_ns() - begun) / CALLS)
    return statistics.median(times)


def push(monitor, _):
    monitor.user("Pay the bill.")


def judge(monitor, number):
    monitor.judge("pay", {"to": "ann", "amount": 20}, id=f"p{number}")


def run(monitor, number):
    call = monitor.judge("read_page", {"url": "example.org"}, id=f"c{number}").redeem()
    call.output("20 dollars.")


def ask(monitor, number):
    if number == 0:
        run(monitor, 0)
    question = monitor.judge("pay", {"to": "ann", "amount": 20}, id=f"p{number}")
    assert len(question.reasons) == 3


WORKLOADS = {
    "push a message": push,
    "judge a call": judge,
    "judge, run and label a call": run,
    "judge a call that needs a question": ask,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rust")
    parser.add_argument("--limit", type=float, default=20.0)
    options = parser.parse_args()
    lines = subprocess.run([options.rust], check=True, capture_output=True, text=True).stdout.splitlines()
    rust = {row["name"]: row["ns"] for row in map(json.loads, lines)}
    assert rust.keys() == WORKLOADS.keys(), "the workloads of the two programs differ"
    print("| | Rust | Python | difference |\n|---|---|---|---|")
    worst = 0.0
    for name, operate in WORKLOADS.items():
        python = measure(operate)
        difference = (python - rust[name]) / 1000
        worst = max(worst, difference)
        print(f"| {name} | {rust[name] / 1000:.2f} µs | {python / 1000:.2f} µs | {difference:.2f} µs |")
    if worst > options.limit:
        raise SystemExit(f"the bindings cost {worst:.1f} µs, more than {options.limit} µs")


if __name__ == "__main__":
    main()
