"""The commands that measure what a file of results has: a report names them, so that its figures can be measured again.

They follow from the results alone, whatever program has run the cases.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from typing import Any

from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]

from .cases import SUITES, VERSIONS, cases
from .registry import DEFENCES

__all__ = ["commands_of", "part_of"]

Result = dict[str, Any]
Found = frozenset[tuple[str, str, str | None]]
# The options of a command with their values. A command measures each value with each of the others.
Part = dict[str, tuple[str, ...]]
OPTIONS = ("confirm", "policies", "defence", "attack", "version")
DEFAULTS = {"confirm": ("refuse",), "policies": ("strict",), "seed": ("0",)}


def commands_of(results: Iterable[Result]) -> list[str]:
    """Return the arguments of the commands that measure these results. A part that no command measures alone is said to be one."""
    parts: dict[tuple[tuple[str, tuple[str, ...]], ...], set[tuple[str, str, str | None]]] = {}
    for result in results:
        part = {
            "version": (result["version"],),
            "attack": (result["attack"],),
            "model": (result["model"],),
            "defence": (result["defence"],),
            "policies": (result["policies"] or "strict",),
            "confirm": (result["confirmation"],),
            "seed": (str(result["seed"]),),
            "base-url": (result["base_url"],) if result.get("base_url") else (),
            "gateway": ("PATH",) if _is_gateway(result["defence"]) else (),
        }
        parts.setdefault(tuple(part.items()), set()).add((result["suite"], result["user_task"], result["injection_task"]))
    commands: list[Part] = []
    for key, found in parts.items():
        one = dict(key)
        suites, sample, note = part_of(one["version"][0], one["attack"][0], frozenset(found))
        commands.append({**one, "suite": suites, "sample": sample, "note": note})
    for option in OPTIONS:
        commands = _merged(commands, option)
    return [_text(command) for command in commands]


def _is_gateway(name: str) -> bool:
    return name in DEFENCES and DEFENCES[name].is_gateway


@lru_cache(maxsize=256)
def part_of(version: str, attack: str, found: Found) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the suites, the sample and a note for a set of cases. Each is empty if all cases are there."""
    suites = tuple(name for name in get_suites(version) if any(suite == name for suite, _, _ in found))
    every = _cases(version, suites, attack, 1)
    named = () if set(suites) >= set(SUITES if version in VERSIONS else get_suites(version)) else suites
    for stride in count(1):
        sample = _cases(version, suites, attack, stride)
        if sample == found:
            return named, () if stride == 1 else (str(stride),), ()
        if len(sample) < len(found) or stride > len(every):
            return named, (), (f"{len(found)} of {len(every)} cases",)
    raise AssertionError


@lru_cache(maxsize=256)
def _cases(version: str, suites: tuple[str, ...], attack: str, stride: int) -> Found:
    return frozenset((case.suite, case.user_task, case.injection_task) for case in cases(version, suites, attack, stride))


def _merged(commands: list[Part], option: str) -> list[Part]:
    """Return commands that differ in one option alone as one command."""
    found: dict[tuple[tuple[str, tuple[str, ...]], ...], Part] = {}
    for command in commands:
        key = tuple((name, values) for name, values in command.items() if name != option)
        if key in found:
            found[key][option] = tuple(dict.fromkeys([*found[key][option], *command[option]]))
        else:
            found[key] = dict(command)
    return list(found.values())


def _text(command: Part) -> str:
    words = ["run"]
    for option, values in command.items():
        if option != "note" and values and values != DEFAULTS.get(option):
            words += [f"--{option}", *values]
    note = f"  # {command['note'][0]}" if command["note"] else ""
    return f"{shlex.join(words)}{note}"
