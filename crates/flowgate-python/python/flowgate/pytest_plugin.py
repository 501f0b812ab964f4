"""A pytest plugin for the tests of agents: fixtures with test doubles, and a report of what was asked when a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .testing import Injection, MockApprover, ObedientModel, ScriptedModel

_APPROVERS = pytest.StashKey[list[Any]]()


@pytest.fixture
def flowgate_approver(request: pytest.FixtureRequest) -> MockApprover:
    """A person who is asked and refuses, until the test says `allow(...)`. What was asked is in `questions`."""
    from .testing import MockApprover  # noqa: PLC0415 - the plugin costs nothing in tests that do not use it

    approver = MockApprover()
    request.node.stash.setdefault(_APPROVERS, []).append(approver)
    return approver


@pytest.fixture
def flowgate_model() -> Callable[..., ScriptedModel]:
    """Create a model that gives fixed answers."""
    from .testing import ScriptedModel  # noqa: PLC0415

    return lambda *answers: ScriptedModel(answers)


@pytest.fixture
def flowgate_obedient_model() -> Callable[..., ObedientModel]:
    """Create a model that follows a plan and obeys every injection that it is shown."""
    from .testing import ObedientModel  # noqa: PLC0415

    return ObedientModel


@pytest.fixture
def flowgate_injection() -> Callable[..., Injection]:
    """Create an instruction for a text that the agent reads: `flowgate_injection("pay", to="mallory")`."""
    from .testing import Injection  # noqa: PLC0415

    return lambda tool, **arguments: Injection(tool, arguments)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the questions that were asked to the report of a test that fails."""
    report = yield
    if report.when == "call" and report.failed:
        for approver in item.stash.get(_APPROVERS, []):
            lines = [f"{question.tool}: {question.summary}" for question in approver.questions]
            report.sections.append(("questions that the guard asked", "\n".join(lines) or "none"))
    return report
