"""Times the Python package beside the same operations in Rust, and fails if the bindings cost more than the limit.

    FLOWGATE_OVERHEAD=PROGRAM pytest compat/python/overhead.py

`PROGRAM` is the example `overhead` of `flowgate-python`. The two files describe the same workloads and must be changed together. Each
figure is the median of 200 sessions of 100 operations. `FLOWGATE_OVERHEAD_LIMIT` is the limit in microseconds for one operation, 20 by default.
The nightly run has it, and not the gate, since it depends on the speed of the machine.
"""

import json
import os
import subprocess

import pytest

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
LIMIT = float(os.environ.get("FLOWGATE_OVERHEAD_LIMIT", "20"))


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


@pytest.fixture(scope="module")
def rust():
    """The nanoseconds of each operation in Rust."""
    lines = subprocess.run([os.environ["FLOWGATE_OVERHEAD"]], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {row["name"]: row["ns"] for row in map(json.loads, lines)}
    assert found.keys() == WORKLOADS.keys(), "the workloads of the two programs differ"
    return found


def new_session():
    monitor = flowgate.Monitor(POLICY)
    monitor.user("Pay the bill on example.org.")
    return (monitor,), {}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_bindings_cost_less_than_the_limit(benchmark, rust, name):
    operate = WORKLOADS[name]

    def session(monitor):
        for number in range(CALLS):
            operate(monitor, number)

    benchmark.pedantic(session, setup=new_session, rounds=ROUNDS, warmup_rounds=5)
    python = benchmark.stats.stats.median / CALLS * 1e6
    difference = python - rust[name] / 1000
    benchmark.extra_info.update({"microseconds in Rust": rust[name] / 1000, "microseconds above Rust": difference})
    print(f"\n{name}: {rust[name] / 1000:.2f} µs in Rust, {python:.2f} µs in Python, {difference:.2f} µs above")
    assert difference < LIMIT
