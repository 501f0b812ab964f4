"""The figures of results, and their table as text.

The form is that of RTBAS's Figures 5 and 6 and Tables 1 and 4: utility without attack, utility and success of attacks under
attack, what the cases are, and what a run costs.
A row with a double is a bound: it says what a defence permits, and nothing about how often a model
obeys.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]

from ...errors import FlowgateError
from .cases import NO_ATTACK
from .judging import is_reader
from .registry import DEFENCES

__all__ = [
    "COST_COLUMNS",
    "OVERVIEW_COLUMNS",
    "Figures",
    "Prices",
    "Total",
    "corrections",
    "cost_rows",
    "differences",
    "figures_of",
    "measured",
    "overview_rows",
    "read_prices",
    "summary",
    "text_table",
]

Result = dict[str, Any]
Prices = dict[str, tuple[float, float]]
"""What a million input and output tokens of a model cost."""


@dataclass
class Total:
    """Sums over cases, with an attack or without."""

    cases: int = 0
    useful: int = 0
    questions: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
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
        self.input_tokens += result["input_tokens"]
        self.output_tokens += result["output_tokens"]
        self.seconds += result["seconds"]
        self.errors += bool(result["error"])
        self.raw += result.get("attack_raw", False)
        self.corrected += result.get("attack_corrected", False)
        self.partial += result.get("partial", False)
        self.payload_only += result.get("payload_only", False)
        self.shown += result.get("attack_shown", False)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def price(self, prices: Prices, model: str) -> str:
        """Return what a case costs, or nothing where the price of the model is not known."""
        if model not in prices or not self.cases:
            return ""
        a_million_in, a_million_out = prices[model]
        return f"{(self.input_tokens * a_million_in + self.output_tokens * a_million_out) / 1e6 / self.cases:.6f}"

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


def measured(results: Iterable[Result]) -> tuple[list[Result], dict[str, str]]:
    """Return the results that were measured, and the rows that stay empty with what they need."""
    kept, empty = [], {}
    for result in results:
        if "empty" in result:
            empty[f"{result['model']}, {result['defence']}"] = str(result["empty"])
        else:
            kept.append(result)
    return kept, empty


def newest(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each case and row: what was measured again replaces what was measured before."""
    names = ("version", "suite", "user_task", "injection_task", "attack", "defence", "policies", "confirmation", "model", "seed")
    return list({tuple(result[name] for name in names): result for result in measured(results)[0]}.values())


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


def summary(results: Iterable[Result]) -> list[Result]:
    """Return what the results were measured with, and the figures of each row over all suites, for a file with a line for each."""
    kept = newest(results)
    sources = {json.dumps(result["data"], sort_keys=True) for result in kept}
    seeds = sorted({result["seed"] for result in kept})
    lines: list[Result] = [{"type": "manifest", "suite": "agentdojo", "seeds": seeds, "data": [json.loads(one) for one in sorted(sources)]}]
    for one in figures_of(kept):
        if one.suite != "all":
            continue
        row = {name: getattr(one, name) for name in ("version", "attack", "model", "is_double", "defence", "confirmation")}
        for name, total in (("without_attack", one.benign), ("under_attack", one.attacked)):
            # Times differ from run to run.
            row[name] = {key: value for key, value in vars(total).items() if key != "seconds"} if total.cases else None
        lines.append({"type": "row", **row})
    return lines


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
    "price ($)",
    "time (s)",
    "errors",
)
OVERVIEW_COLUMNS = ("suite", "user tasks", "cases", "tools", "tools that act", "messages a case")
COST_COLUMNS = ("row", "price ($)", "time (s)", "tokens", "model calls", "questions")
COST_SUITE = "banking"
"""The suite of RTBAS's Table 4."""


def read_prices(path: Path) -> Prices:
    """Read a table of prices: a JSON object with `input` and `output` for each model, in dollars for a million tokens.

    Raises `FlowgateError` if the file has another form.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return {str(model): (float(price["input"]), float(price["output"])) for model, price in table.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        form = '{"MODEL": {"input": 2.5, "output": 10}}, in dollars for a million tokens'
        message = f"{path}: no table of prices ({type(error).__name__}): write {form}"
        raise FlowgateError(message) from error


def overview_rows(results: Iterable[Result]) -> list[tuple[str, list[list[str]]]]:
    """Return the table of the cases for each version, in the form of RTBAS's Table 1: what was measured, and how long the runs are."""
    found: dict[str, dict[str, list[Result]]] = {}
    for result in newest(results):
        found.setdefault(result["version"], {}).setdefault(result["suite"], []).append(result)
    tables = []
    for version, by_suite in sorted(found.items()):
        rows = []
        for name, kept in by_suite.items():
            suite = get_suites(version).get(name)
            if suite is None:
                continue
            attacked = {(result["user_task"], result["injection_task"]) for result in kept if result["attack"] != NO_ATTACK}
            lengths = [result["messages"] for result in kept if result["defence"] == "none" and "messages" in result]
            spread = f"{mean(lengths):.1f} ± {pstdev(lengths):.1f}" if lengths else ""
            tools = [tool.name for tool in suite.tools]
            acting = sum(not is_reader(tool) for tool in tools)
            users = len({result["user_task"] for result in kept})
            rows.append([name, str(users), str(len(attacked)), str(len(tools)), str(acting), spread])
        tables.append((version, rows))
    return tables


def cost_rows(figures: Iterable[Figures], prices: Prices) -> list[tuple[str, list[list[str]]]]:
    """Return what the user's tasks of one suite cost without attack, for each model, in the form of RTBAS's Table 4."""
    tables: dict[str, dict[str, list[str]]] = {}
    for one in figures:
        total = one.benign
        if one.suite != COST_SUITE or not total.cases:
            continue
        bound = " (a test double: tokens are estimated, and the time is the guard's)" if one.is_double else ""
        row = [
            f"{one.defence} ({one.confirmation})",
            total.price(prices, one.model),
            total.per_case(total.seconds),
            total.per_case(total.tokens),
            total.per_case(total.model_calls),
            total.per_case(total.questions),
        ]
        tables.setdefault(f"{one.version}, model {one.model}{bound}", {})[row[0]] = row
    return [(title, list(rows.values())) for title, rows in tables.items()]


def cells(figures: Figures, prices: Prices) -> list[str]:
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
        both.per_case(both.tokens),
        both.price(prices, figures.model),
        both.per_case(both.seconds),
        str(benign.errors + attacked.errors),
    ]


def groups(figures: list[Figures]) -> list[tuple[str, list[Figures]]]:
    """Return the figures of each table, with its title."""
    tables: dict[str, list[Figures]] = {}
    for one in figures:
        bound = " (a test double: bounds; tokens are estimated)" if one.is_double else ""
        attack = "no attack" if one.attack == NO_ATTACK else f"attack {one.attack}"
        tables.setdefault(f"{one.version}, {attack}, model {one.model}{bound}, suite {one.suite}", []).append(one)
    return list(tables.items())


def text_table(figures: list[Figures], prices: Prices) -> str:
    """Return the tables as text in Markdown."""
    return "\n".join(markdown(title, COLUMNS, [cells(row, prices) for row in rows]) for title, rows in groups(figures))


def markdown(title: str, columns: Iterable[str], rows: Iterable[list[str]]) -> str:
    """Return one table with its title in Markdown."""
    head = list(columns)
    lines = [title, "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def corrections(results: Iterable[Result]) -> list[tuple[str, str, str, str, int, list[str]]]:
    """Return where the corrected success differs from AgentDojo's check: version, model, row, reason, number, cases."""
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for result in newest(results):
        if result.get("reason"):
            row = f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']} ({result['confirmation']})"
            case = f"{result['suite']} {result['user_task']} {result['injection_task']} ({result['attack']})"
            found[result["version"], result["model"], row, result["reason"]].append(case)
    return [(*key, len(cases), sorted(cases)) for key, cases in sorted(found.items())]


def differences(results: Iterable[Result]) -> list[tuple[str, str, str, str, int, list[str]]]:
    """Return where the utility under attack differs from that without: version, model, row, reason, number, cases."""
    kept = newest(results)
    names = ("version", "suite", "user_task", "defence", "policies", "confirmation", "model", "seed")
    alone = {tuple(result[name] for name in names): result["utility"] for result in kept if result["attack"] == NO_ATTACK}
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for result in kept:
        before = alone.get(tuple(result[name] for name in names))
        if result["attack"] == NO_ATTACK or before is None or before == result["utility"]:
            continue
        row = f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']} ({result['confirmation']})"
        if result.get("is_in_users_values"):
            reason = "the values of the user's own calls contain the injection"
        elif result.get("harmful"):
            reason = "calls of the attack ran"
        elif _leaves_out(result["defence"]) and not result.get("attack_shown"):
            reason = "the defence left out the outputs with the injection"
        else:
            reason = "not known"
        case = f"{result['suite']} {result['user_task']} {result['injection_task']} ({result['attack']})"
        found[result["version"], result["model"], row, reason].append(case)
    return [(*key, len(cases), sorted(cases)) for key, cases in sorted(found.items())]


def _leaves_out(name: str) -> bool:
    """Whether a defence leaves out outputs in which it finds an injection."""
    defence = DEFENCES.get(name)
    return defence is not None and (defence.detect is not None or defence.builtin == "transformers_pi_detector")


def failures(results: Iterable[Result]) -> Counter[str]:
    """Return the errors of cases that could not be judged, with their number."""
    return Counter(result["error"] for result in newest(results) if result["error"])
