"""Feeds every entry of the package with values that no caller should pass: an error is an exception with a text, and never a panic."""

from __future__ import annotations

import inspect
import random

import pytest

import flowgate
from flowgate import detectors

POLICY = flowgate.Policy("""
lattice integrity: trusted < untrusted
lattice readers: readers
label m as trusted if:
    (m: Message)
    m.role == "user"
require trusted if:
    (call: ToolCall) is tool:pay
""")
DEEP: list = []
for _ in range(300):
    DEEP = [DEEP]
VALUES = [
    None, True, 0, -1, 2**63, 2**64, -(2**63) - 1, 1.5, float("nan"), float("inf"), "", "x", "trusted", "\x00", "\ud800", "é" * 1000,
    "a/b", "/", "content[0]", b"", b"x" * 32, [], [1, "a", None], (), {}, {"a": 1}, {1: 2}, {"integrity": "trusted"}, {"readers": ["a"]},
    {"integrity": 3}, set(), object(), int, len, DEEP, "[" * 2000, "{" * 500 + "}" * 500, '{"a": 1, "a": 2}', range(3), Exception("x"),
    [{"role": "user", "content": "x"}], [{"role": "tool", "tool_call_id": 3}], {"choices": []}, {"output": 3}, {"role": "assistant", "tool_calls": 3},
]  # fmt: skip
# What a wrong value may raise. A panic is a BaseException of another kind, and fails the test.
EXPECTED = (TypeError, ValueError, KeyError, IndexError, OverflowError, flowgate.FlowgateError, UnicodeError)


def targets() -> list:
    monitor = flowgate.Monitor(POLICY, events=10_000)
    monitor.user("Hello.")
    guard = flowgate.Guard(POLICY, {"pay": lambda to: "paid"})
    guard.conversation.user("Hello.")
    step = guard.conversation.need()
    trace = flowgate.Trace().user("Hello.").tool_call("pay", {"to": "ann"})
    label = POLICY.top
    verdict = monitor.judge("pay", {"to": "ann"})
    objects = [monitor, guard.conversation, step, trace, label, POLICY, monitor[0], verdict]
    methods = [
        getattr(object_, name)
        for object_ in objects
        for name in dir(type(object_))
        if not name.startswith("_") and callable(getattr(type(object_), name))
    ]
    classes = [flowgate.Policy, flowgate.Monitor, flowgate.Trace, flowgate.Tool, flowgate.Attribution, flowgate.Completion]
    functions = [getattr(detectors, name) for name in detectors.__all__ if inspect.isbuiltin(getattr(detectors, name))]
    return [*methods, *classes, *functions, flowgate.Trace.parse, flowgate.Tool.parse]


@pytest.mark.parametrize("seed", range(4))
def test_no_value_causes_a_panic(seed: int) -> None:
    chance = random.Random(seed)
    called, refused = 0, 0
    for target in targets():
        name = getattr(target, "__name__", "")
        parameters = list(inspect.signature(target).parameters.values())
        for _ in range(30):
            values = [chance.choice(VALUES) for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
            named = {
                parameter.name: chance.choice(VALUES)
                for parameter in parameters
                if parameter.kind is parameter.KEYWORD_ONLY and chance.random() < 0.3
            }
            called += 1
            try:
                target(*values, **named)
            except EXPECTED as error:
                refused += 1
                assert str(error) or isinstance(error, KeyError), (name, values)
    assert called > 1_000
    assert refused > called / 4


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_predicate_may_answer_anything(value: object) -> None:
    source = 'extern p(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    p(call.arguments.to)\n'
    monitor = flowgate.Monitor(flowgate.Policy(source), predicates={"p": lambda _: value})
    verdict = monitor.judge("send", {"to": "a"})
    # Only an answer of the declared type decides.
    assert verdict.outcome == "deny"
    assert monitor.judge("other").outcome == "permit"


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_model_may_answer_anything(value: object) -> None:
    paid = []
    guard = flowgate.Guard(POLICY, {"pay": lambda to: paid.append(to)}, model=lambda _: value, steps=3)
    try:
        guard.run("Hello.")
    except EXPECTED:
        pass
    assert paid == []
    assert guard.run("Hello.", model=lambda _: "Hi.").text == "Hi."
