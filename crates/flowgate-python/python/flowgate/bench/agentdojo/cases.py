"""The cases of AgentDojo, and the rows of the measurement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import Any

import agentdojo.attacks  # type: ignore[import-untyped] # noqa: F401 - registers the attacks
from agentdojo.attacks.attack_registry import ATTACKS  # type: ignore[import-untyped]
from agentdojo.task_suite import get_suite  # type: ignore[import-untyped]

__all__ = ["CONFIRMATIONS", "NO_ATTACK", "SUITES", "VERSIONS", "Case", "Row", "Settings", "attacks", "cases", "suite_of"]

SUITES = ("workspace", "travel", "banking", "slack")
VERSIONS = ("v1.1.2", "v1.2.2")
CONFIRMATIONS = ("refuse", "allow", "oracle")
NO_ATTACK = "none"
# AgentDojo's attack by a message that addresses the model finds the model's name in the pipeline's.
PIPELINE_NAME = "gpt-4o-2024-05-13"


@dataclass(frozen=True)
class Row:
    """One row of the measurement: a defence with its policies, who confirms, and the model."""

    defence: str
    policies: str
    confirmation: str
    model: str

    @property
    def name(self) -> str:
        """The row in a word."""
        policies = f", {self.policies}" if self.policies else ""
        return f"{self.defence}{policies}"


@dataclass(frozen=True)
class Case:
    """A user's task, with an attack or without."""

    version: str
    suite: str
    user_task: str
    injection_task: str | None
    attack: str


@dataclass(frozen=True)
class Settings:
    """What all cases of a run share: the folder of the policies, where models and the gateway are, and the plugins."""

    policies: str
    seed: int = 0
    base_url: str = ""
    gateway: str = ""
    plugins: tuple[str, ...] = ()


def suite_of(benchmark_version: str, name: str) -> Any:
    """Return a suite of AgentDojo."""
    return get_suite(benchmark_version, name)


def attacks() -> dict[str, bool]:
    """Return AgentDojo's attacks that need nobody at the keyboard, and whether each denies service instead of asking for a task."""
    return {name: bool(attack.is_dos_attack) for name, attack in sorted(ATTACKS.items()) if name != "manual"}


def cases(benchmark_version: str, suites: tuple[str, ...], attack: str, stride: int = 1, offset: int = 0) -> Iterator[Case]:
    """Yield the cases of suites under an attack: about every `stride`-th of each suite, so that a sample has all suites.

    The stride of a suite is the next one that has no divisor in common with the number of injection tasks: every user's task has all of
    them, one after the other, so a common divisor would leave out some for all users.
    """
    for name in suites:
        suite = suite_of(benchmark_version, name)
        injections: list[str | None] = [None] if attack == NO_ATTACK else list(suite.injection_tasks)
        if attack != NO_ATTACK and attacks().get(attack):
            # An attack that denies service is the same with every injection task.
            injections = injections[:1]
        every = [Case(benchmark_version, name, user, task, attack) for user in suite.user_tasks for task in injections]
        step = next(one for one in count(stride) if gcd(one, len(injections)) == 1)
        yield from every[offset % step :: step]
