"""Invariant's interface. Invariant's own tests run in `compat/python/run`; these are about what they do not cover."""

from __future__ import annotations

import asyncio

import pytest

from flowgate import invariant
from flowgate.invariant import LocalPolicy, Monitor, assistant, tool, tool_call, user

RULE = """
raise Violation("found it", m) if:
    (m: Message)
    "secret" in m.content
"""


def test_a_match_has_the_form_of_the_original() -> None:
    result = LocalPolicy.from_string(RULE).analyze([user("a secret")])
    [error] = result.errors
    assert [found.to_address() for found in error.ranges] == ["messages.0", "messages.0.content:2-8"]
    assert str(error).startswith("ErrorInformation(found it {'role': 'user'")
    assert invariant.ErrorInformation.from_dict(error.to_dict()) == error
    assert result.to_dict()["errors"][0]["args"][0] == "found it"
    assert "found it" in str(result)
    with pytest.raises(invariant.UnhandledError, match="1 unhandled error"):
        LocalPolicy.from_string(RULE).analyze([user("a secret")], raise_unhandled=True)


def test_a_monitor_reports_a_match_once() -> None:
    monitor = Monitor.from_string(RULE)
    trace = [user("a secret")]
    assert len(monitor.check([], trace)) == 1
    assert monitor.check([], trace) == []
    assert len(monitor.check(trace, [user("another secret")])) == 1
    monitor.reset()
    assert len(monitor.check([], trace)) == 1


def test_pending_events_without_places_are_reported() -> None:
    policy = LocalPolicy.from_string(
        'from invariant import count\nraise "too many" if:\n    count(min=2):\n        (m: Message)\n        m.role == "user"\n'
    )
    trace = [user("a"), user("b")]
    # The original drops what binds no event of the pending part, so that counting rules never fire.
    assert len(policy.analyze_pending(trace[:1], trace[1:]).errors) == 1


def test_there_is_no_limit_of_evaluations() -> None:
    policy = LocalPolicy.from_string('raise "a" if:\n    (m: Message) -> (c: ToolCall)\n    "x" in m.content\n    c is tool:f\n')
    trace = [user("y")] * 500 + [assistant(None, tool_call("1", "f", {})), tool("1", "z")]
    assert policy.analyze(trace).errors == []


def test_errors_have_the_types_of_the_original() -> None:
    with pytest.raises(invariant.PolicyLoadingError, match="unknown type `Mesage`") as caught:
        LocalPolicy.from_string('raise "a" if:\n    (m: Mesage)\n')
    assert caught.value.errors[0].line == 2
    with pytest.raises(invariant.MissingPolicyParameter, match="pattern"):
        LocalPolicy.from_string('raise "a" if:\n    (m: Message)\n    input.pattern in m.content\n').analyze([user("x")])
    with pytest.raises(invariant.InvariantInputValidationError, match=r"messages\[1\]"):
        LocalPolicy.from_string(RULE).analyze([user("x"), 3])
    with pytest.raises(invariant.ExcessivePolicyError):
        LocalPolicy.from_string('import os\nraise "a" if:\n    os.system("x")\n').analyze([user("x")])
    with pytest.raises(ValueError, match="extern"):
        LocalPolicy.from_string(RULE, symbol_table=object())


def test_asynchronous_forms_work_in_a_running_loop() -> None:
    async def run() -> int:
        policy = LocalPolicy.from_string(RULE)
        result = await policy.a_analyze([user("a secret")])
        pending = await policy.a_analyze_pending([user("a")], [user("a secret")])
        # The synchronous form of the original raises here.
        return len(result.errors) + len(pending.errors) + len(policy.analyze([user("a secret")]).errors)

    assert asyncio.run(run()) == 3


def test_python_functions_are_predicates(tmp_path) -> None:
    source = 'extern bad(x: str) -> bool\nraise "bad" if:\n    (m: Message)\n    bad(m.content)\n'
    policy = LocalPolicy.from_string(source, predicates={"bad": lambda text: "x" in text})
    assert len(policy.analyze([user("x"), user("y")]).errors) == 1
    path = tmp_path / "rules.iv"
    path.write_text(RULE)
    assert len(Monitor.from_file(path).check([], [user("secret")])) == 1
