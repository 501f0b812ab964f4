"""The figures of results, and their table as text.

The form is that of RTBAS's Figures 5 and 6 and Tables 1 and 4: utility without attack, utility and success of attacks under
attack, and what a run costs. A row with a double is a bound: it says what a defence permits, and nothing about how often a model
obeys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .cases import NO_ATTACK

__all__ = ["Figures", "Total", "corrections", "figures_of", "text_table"]

Result = dict[str, Any]


@dataclass
class Total:
    """Sums over cases, with an attack or without."""

    cases: int = 0
    useful: int = 0
    questions: int = 0
    model_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    errors: int = 0
    raw: int = 0
    corrected: int = 0
    partial: int = 0
    payload_only: int = 0
    shown: int = 0

    def add(self, result: Result) -> None:
        """Count a result."""
        self.cases += 1
        self.useful += result["utility"]
        self.questions += result["questions"]
        self.model_calls += result["model_calls"]
        self.tokens += result["input_tokens"] + result["output_tokens"]
        self.seconds += result["seconds"]
        self.errors += bool(result["error"])
        self.raw += result.get("attack_raw", False)
        self.corrected += result.get("attack_corrected", False)
        self.partial += result.get("partial", False)
        self.payload_only += result.get("payload_only", False)
        self.shown += result.get("attack_shown", False)

    def per_case(self, value: float) -> str:
        """Return a sum for each case, or nothing where there is no case."""
        return f"{value / self.cases:.2f}" if self.cases else ""

    def share(self, value: int) -> str:
        """Return a count of all cases, or nothing where there is no case."""
        return f"{value}/{self.cases}" if self.cases else ""


@dataclass
class Figures:
    """The figures of one row in one suite, or in `all`."""

    version: str
    attack: str
    suite: str
    model: str
    is_double: bool
    defence: str
    confirmation: str
    benign: Total = field(default_factory=Total)
    attacked: Total = field(default_factory=Total)


def newest(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each case and row: what was measured again replaces what was measured before."""
    names = ("version", "suite", "user_task", "injection_task", "attack", "defence", "policies", "confirmation", "model", "seed")
    return list({tuple(result[name] for name in names): result for result in results}.values())


def figures_of(results: Iterable[Result]) -> list[Figures]:
    """Return the figures of each version, attack, model, row and suite. Runs without attack belong to every attack."""
    kept = newest(results)
    attacks = defaultdict(set)
    for result in kept:
        if result["attack"] != NO_ATTACK:
            attacks[result["version"]].add(result["attack"])
    figures: dict[tuple[str, ...], Figures] = {}
    for result in kept:
        is_benign = result["attack"] == NO_ATTACK
        version = result["version"]
        row = f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']}"
        for attack in sorted(attacks[version]) or [NO_ATTACK] if is_benign else [result["attack"]]:
            for suite in (result["suite"], "all"):
                key = (version, attack, result["model"], row, result["confirmation"], suite)
                if key not in figures:
                    figures[key] = Figures(version, attack, suite, result["model"], result["is_double"], row, result["confirmation"])
                (figures[key].benign if is_benign else figures[key].attacked).add(result)
    return [figures[key] for key in sorted(figures, key=lambda key: (key[:3], key[5] != "all", key[5], key[3], key[4]))]


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
    "calls",
    "tokens",
    "errors",
)


def cells(figures: Figures) -> list[str]:
    """Return a row of the table."""
    benign, attacked = figures.benign, figures.attacked
    both = benign if benign.cases else attacked
    return [
        figures.defence,
        figures.confirmation,
        benign.share(benign.useful),
        attacked.share(attacked.useful),
        attacked.share(attacked.raw),
        attacked.share(attacked.corrected),
        attacked.share(attacked.partial),
        attacked.share(attacked.payload_only),
        attacked.share(attacked.shown),
        both.per_case(both.questions),
        both.per_case(both.model_calls),
        both.per_case(both.tokens) if not figures.is_double else "",
        str(benign.errors + attacked.errors),
    ]


def groups(figures: list[Figures]) -> list[tuple[str, list[Figures]]]:
    """Return the figures of each table, with its title."""
    tables: dict[str, list[Figures]] = {}
    for one in figures:
        bound = " (a test double: bounds)" if one.is_double else ""
        attack = "no attack" if one.attack == NO_ATTACK else f"attack {one.attack}"
        tables.setdefault(f"{one.version}, {attack}, model {one.model}{bound}, suite {one.suite}", []).append(one)
    return list(tables.items())


def text_table(figures: list[Figures]) -> str:
    """Return the tables as text in Markdown."""
    lines = []
    for title, rows in groups(figures):
        lines += [title, "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(cells(row))} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def corrections(results: Iterable[Result]) -> list[tuple[str, str, str, str, int, list[str]]]:
    """Return where the corrected success differs from AgentDojo's check: version, model, row, reason, number, cases."""
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for result in newest(results):
        if result.get("reason"):
            row = f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']} ({result['confirmation']})"
            case = f"{result['suite']} {result['user_task']} {result['injection_task']} ({result['attack']})"
            found[result["version"], result["model"], row, result["reason"]].append(case)
    return [(*key, len(cases), sorted(cases)) for key, cases in sorted(found.items())]


def failures(results: Iterable[Result]) -> Counter[str]:
    """Return the errors of cases that could not be judged, with their number."""
    return Counter(result["error"] for result in newest(results) if result["error"])
