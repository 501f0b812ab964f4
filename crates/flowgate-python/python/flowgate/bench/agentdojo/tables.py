"""The tables of results as Markdown, as docs/agentdojo.md has them: without costs, which are estimated for a double.

Everything a reader needs to compare is with them: the commands, the corrected cases with their reasons, the cases whose utility an
attack changes, and how results in this process and through the gateway differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .cases import NO_ATTACK
from .commands import commands_of
from .figures import Figures, corrected_cases, differing_cases, figures_of, groups, markdown, measured, newest, pairs, row_name

__all__ = ["tables"]

Result = dict[str, Any]

COLUMNS = (
    "defence",
    "asked",
    "utility",
    "under attack",
    "success raw",
    "corrected",
    "partial",
    "payload only",
    "shown",
    "questions",
    "useful unasked",
    "calls of the model",
)
CASE_COLUMNS = ("version", "defence", "model", "attack", "number", "the user's tasks", "reason")


def tables(results: list[Result]) -> str:
    """Return the tables of results over all suites, and what they were measured with."""
    kept = newest(results)
    parts = [markdown(title, COLUMNS, map(_cells, rows)) for title, rows in groups(figures_of(results)) if rows[0].suite == "all"]
    for title, found in (
        ("Cases whose success AgentDojo's check sees otherwise:", corrected_cases(kept)),
        ("Cases whose utility differs from that without the attack:", differing_cases(kept)),
    ):
        if found:
            parts.append(markdown(title, CASE_COLUMNS, _by_reason(found)))
    lines = [_pair(one) for one in pairs(kept)] + [f"empty: {row}: it needs {needs}" for row, needs in measured(results)[1].items()]
    if lines:
        parts.append("\n".join([*(f"* {line}" for line in lines), ""]))
    sources = sorted({json.dumps(result["data"], sort_keys=True) for result in kept})
    listed = [f"* {', '.join(f'{name} {value}' for name, value in json.loads(source).items())}" for source in sources]
    commands = [f"$ python -m flowgate.bench.agentdojo {command}" for command in commands_of(kept)]
    return "\n".join([*parts, "Measured with:", "", *listed, "", "```console", *commands, "```", ""])


def _cells(row: Figures) -> list[str]:
    """Return a row of a table."""
    benign, attacked = row.benign, row.attacked
    both = benign if benign.cases else attacked
    return [
        row.marked,
        row.confirmation,
        benign.share(benign.useful),
        attacked.share(attacked.useful),
        attacked.share(attacked.raw),
        attacked.share(attacked.corrected),
        attacked.share(attacked.partial),
        attacked.share(attacked.payload_only),
        attacked.share_shown,
        both.per_case(both.questions),
        benign.share(benign.useful_unasked),
        both.per_case(both.model_calls),
    ]


def _by_reason(found: Iterable[tuple[str, Result]]) -> list[list[str]]:
    """Return a row for each attack and reason, with the user's tasks."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for reason, result in found:
        name = "" if result["attack"] == "important_instructions" else f" ({result['attack']})"
        attack = f"`{result['suite']}`, `{result['injection_task']}`{name}"
        key = (result["version"], f"{row_name(result)} ({result['confirmation']})", result["model"], attack, reason)
        rows.setdefault(key, []).append(result["user_task"].removeprefix("user_task_"))
    return [[*key[:4], str(len(users)), ", ".join(sorted(users, key=_number)), key[4]] for key, users in rows.items()]


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (-1, text)


def _pair(one: Result) -> str:
    """Return a line on a row in both forms."""
    attack = "without attack" if one["attack"] == NO_ATTACK else f"attack {one['attack']}"
    differing = ", ".join(f"{name} in {number}" for name, number in one["differing"].items()) or "nothing"
    return (
        f"{one['version']}, {attack}, model {one['model']}, {one['defence']} ({one['confirmation']}):"
        f" {one['pairs']} cases in this process and through the gateway; what differs: {differing}"
    )
