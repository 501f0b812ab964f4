"""The figures of replayed runs, as text: what the logs say, the same calls without a defence, and each defence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .cases import NO_ATTACK
from .recorded import LeftOut

__all__ = ["OPEN_LOOP", "per_run", "report"]

Result = dict[str, Any]

OPEN_LOOP = (
    "open loop: the recorded calls are repeated, and the model does not react to a refusal. Figures under a defence are bounds for these"
    " calls and these replies, not measurements of a deployed agent."
)
COLUMNS = (
    "row",
    "asked",
    "utility",
    "under attack",
    "success raw",
    "corrected",
    "partial",
    "payload only",
    "calls permitted",
    "calls asked",
    "calls denied",
    "questions a run",
    "diverged",
)
LISTED = 50


@dataclass
class _Sums:
    """Sums over the runs of one row, useful or attacked."""

    runs: int = 0
    judged: int = 0
    useful: int = 0
    attacks: int = 0
    raw: int = 0
    corrected: int = 0
    partial: int = 0
    payload_only: int = 0


@dataclass
class _Row:
    """The figures of one row of a table."""

    name: str
    confirmation: str
    benign: _Sums = field(default_factory=_Sums)
    attacked: _Sums = field(default_factory=_Sums)
    counts: Counter[str] = field(default_factory=Counter)
    is_replayed: bool = True

    def add(self, result: Result) -> None:
        """Count a replayed run."""
        sums = self.attacked if result["injection_task"] else self.benign
        sums.runs += 1
        sums.judged += 1
        sums.useful += result["utility"]
        sums.attacks += bool(result["injection_task"])
        sums.raw += result.get("attack_raw", False)
        sums.corrected += result.get("attack_corrected", False)
        sums.partial += result.get("partial", False)
        sums.payload_only += result.get("payload_only", False)
        self.counts.update({name: result[name] for name in ("permitted", "asked", "denied", "unavailable", "questions", "diverged", "ran")})
        self.counts["errors"] += bool(result["error"])
        self.counts["diverged runs"] += bool(result["diverged"])

    def add_recorded(self, result: Result) -> None:
        """Count what the log of a run says."""
        sums = self.attacked if result["injection_task"] else self.benign
        sums.runs += 1
        if result["recorded_utility"] is not None:
            sums.judged += 1
            sums.useful += result["recorded_utility"]
        if result["recorded_attack"] is not None:
            sums.attacks += 1
            sums.raw += result["recorded_attack"]

    def cells(self) -> list[str]:
        """Return the row."""
        benign, attacked, counts = self.benign, self.attacked, self.counts
        cells = [
            self.name,
            self.confirmation,
            _share(benign.useful, benign.judged),
            _share(attacked.useful, attacked.judged),
            _share(attacked.raw, attacked.attacks),
        ]
        if not self.is_replayed:
            return cells + [""] * (len(COLUMNS) - len(cells))
        runs = benign.runs + attacked.runs
        return [
            *cells,
            *(_share(number, attacked.attacks) for number in (attacked.corrected, attacked.partial, attacked.payload_only)),
            *(str(counts[name]) for name in ("permitted", "asked", "denied")),
            f"{counts['questions'] / runs:.2f}",
            f"{counts['diverged']} in {counts['diverged runs']}/{runs}",
        ]


def _share(value: int, total: int) -> str:
    return f"{value}/{total}" if total else ""


def report(results: list[Result], left_out: Iterable[LeftOut]) -> str:
    """Return the report on replayed runs, and on those that could not be replayed."""
    lines = [OPEN_LOOP, ""]
    for title, rows in _tables(results):
        lines += [title, "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(row.cells())} |" for row in rows]
        lines.append("")
    lines += _notes(results)
    kinds = Counter(one.kind for one in left_out)
    lines += [f"left out: {number} ({kind})" for kind, number in sorted(kinds.items())]
    return "\n".join(lines).rstrip()


def _tables(results: list[Result]) -> list[tuple[str, list[_Row]]]:
    """Return the rows of each model, version and attack. Runs without attack belong to every attack of their model."""
    attacks: dict[tuple[str, str], set[str]] = {}
    for result in results:
        found = attacks.setdefault((result["model"], result["version"]), set())
        if result["attack"] != NO_ATTACK:
            found.add(result["attack"])
    tables: dict[tuple[str, str, str], dict[tuple[str, str], _Row]] = {}
    for result in results:
        group = result["model"], result["version"]
        is_benign = result["attack"] == NO_ATTACK
        for attack in sorted(attacks[group]) or [NO_ATTACK] if is_benign else [result["attack"]]:
            rows = tables.setdefault((*group, attack), {})
            if result["defence"] == "none":
                rows.setdefault(("", "recorded"), _Row("as recorded", "", is_replayed=False)).add_recorded(result)
            name = f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']}"
            who = "" if result["defence"] == "none" else result["confirmation"]
            rows.setdefault((name, who), _Row("no defence" if result["defence"] == "none" else name, who)).add(result)
    titles = {key: f"{key[0]}, {key[1]}, {'no attack' if key[2] == NO_ATTACK else f'attack {key[2]}'}" for key in tables}
    return [(titles[key], list(tables[key].values())) for key in sorted(tables)]


def _notes(results: list[Result]) -> list[str]:
    plain = [result for result in results if result["defence"] == "none"]
    lines = [f"replayed: {len(plain)} runs"]
    differing = [result for result in plain if result["disagreement"]]
    silent = sum(result["recorded_utility"] is None for result in plain)
    judged = len(plain) - silent
    lines.append(
        f"without a defence, {judged - sum(bool(result['disagreement']) for result in plain if result['recorded_utility'] is not None)}"
        f" of {judged} runs have the recorded verdicts"
    )
    if silent:
        lines.append(f"{silent} runs record no verdict")
    lines += _listed(differing, lambda one: f"differs from the log: {one['place']}: {one['disagreement']}; why: {one['because']}")
    diverged = [result for result in plain if result["diverged"]]
    lines += _listed(
        diverged, lambda one: f"diverged: {one['place']}: {one['diverged']} of {one['ran']} answers ({', '.join(one['diverged_tools'])})"
    )
    for name, meaning in (
        ("unanswered", "calls without a recorded answer: they did not run then, and are not repeated"),
        ("unknown_tools", "calls of tools that the suite does not have: an error without a defence, and left out under one"),
    ):
        if number := sum(result[name] for result in plain):
            lines.append(f"{number} {meaning}")
    if number := sum(result.get("by_text_alone", False) for result in plain):
        lines.append(f"{number} runs have an attack that wants a text and no call: the recorded reply decides it, whatever the defence")
    if number := sum(result["unavailable"] for result in results):
        lines.append(f"{number} of the denied calls were not made: what they need is hidden, and cannot be looked at")
    errors = Counter((result["defence"], result["error"]) for result in results if result["error"])
    lines += [f"error in {number} replays ({defence}): {error}" for (defence, error), number in errors.most_common(20)]
    return lines


def _listed(results: list[Result], line: Any) -> list[str]:
    lines = [line(result) for result in results[:LISTED]]
    if len(results) > LISTED:
        lines.append(f"and {len(results) - LISTED} more: see the file of --out")
    return lines


def per_run(result: Result) -> str:
    """Return the line of one run under one row."""
    row = "no defence" if result["defence"] == "none" else f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']}"
    who = "" if result["defence"] == "none" else f", {result['confirmation']}"
    parts = [f"utility {'yes' if result['utility'] else 'no'}"]
    if result["injection_task"]:
        harm = "yes" if result["attack_corrected"] else "in part" if result["partial"] else "no"
        parts.append(f"attack {'yes' if result['attack_raw'] else 'no'} (corrected: {harm})")
    parts.append(f"calls {result['permitted']} permitted, {result['asked']} asked, {result['denied']} denied")
    parts.append(f"{result['questions']} questions")
    parts.append(f"{result['diverged']} diverged")
    if result["error"]:
        parts.append(f"error: {result['error']}")
    return f"{result['place']}: {row}{who}: {'; '.join(parts)}"
