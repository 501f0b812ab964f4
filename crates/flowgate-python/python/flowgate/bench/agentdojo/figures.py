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
from .cases import NO_ATTACK, attacks
from .commands import commands_of
from .judging import is_reader
from .registry import DEFENCES, is_double

__all__ = [
    "COST_COLUMNS",
    "OVERVIEW_COLUMNS",
    "Figures",
    "Prices",
    "Total",
    "corrected_cases",
    "corrections",
    "cost_rows",
    "differences",
    "differing_cases",
    "figures_of",
    "measured",
    "overview_rows",
    "pairs",
    "read_prices",
    "row_name",
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
    unasked: int = 0
    useful_unasked: int = 0
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
    shown_unknown: int = 0

    def add(self, result: Result) -> None:
        """Count a result."""
        self.cases += 1
        self.useful += result["utility"]
        self.unasked += not result["questions"]
        self.useful_unasked += result["utility"] and not result["questions"]
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
        self.shown += bool(result.get("attack_shown"))
        self.shown_unknown += result.get("attack_shown", False) is None

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

    @property
    def share_shown(self) -> str:
        """The cases in which the model was shown the injection, or nothing if that is not known of all."""
        return "" if self.shown_unknown else self.share(self.shown)

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
    needs: str = ""
    """What a row needs that stays empty."""
    unsafe: dict[str, int] = field(default_factory=dict)
    """The number of statements `unsafe endorse` in the policy of each suite."""

    @property
    def marked(self) -> str:
        """The defence, with the number of the `unsafe` endorsements that its figures depend on."""
        count = sum(self.unsafe.values())
        return f"{self.defence} ({count} unsafe)" if count else self.defence


def measured(results: Iterable[Result]) -> tuple[list[Result], dict[str, str]]:
    """Return the results that were measured, and the rows that stay empty with what they need."""
    kept, empty = _parted(results)
    return kept, {f"{result['model']}, {result['defence']}": str(result["empty"]) for result in empty}


ROW = ("version", "attack", "defence", "policies", "confirmation", "model")


def _parted(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Return the results that were measured, and the rows that stay empty because nothing was."""
    every = list(results)
    kept = [result for result in every if "empty" not in result]
    known = {tuple(result[name] for name in ROW) for result in kept}
    return kept, [result for result in every if "empty" in result and tuple(result.get(name) for name in ROW) not in known]


def newest(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each case and row: what was measured again replaces what was measured before."""
    names = ("version", "suite", "user_task", "injection_task", "attack", "defence", "policies", "confirmation", "model", "seed")
    return list({tuple(result[name] for name in names): result for result in measured(results)[0]}.values())


def figures_of(results: Iterable[Result]) -> list[Figures]:
    """Return the figures of each version, attack, model, row and suite. Runs without attack belong to every attack."""
    results = list(results)
    kept, empty = newest(results), [result for result in _parted(results)[1] if "version" in result]
    attacked = defaultdict(set)
    for result in [*kept, *empty]:
        if result["attack"] != NO_ATTACK:
            attacked[result["version"]].add(result["attack"])
    figures: dict[tuple[str, ...], Figures] = {}
    for result in kept:
        is_benign = result["attack"] == NO_ATTACK
        version = result["version"]
        row = row_name(result)
        for attack in sorted(attacked[version]) or [NO_ATTACK] if is_benign else [result["attack"]]:
            for suite in (result["suite"], "all"):
                key = (version, attack, result["model"], row, result["confirmation"], suite)
                if key not in figures:
                    figures[key] = Figures(version, attack, suite, result["model"], result["is_double"], row, result["confirmation"])
                (figures[key].benign if is_benign else figures[key].attacked).add(result)
                figures[key].unsafe[result["suite"]] = result.get("unsafe", 0)
    for result in empty:
        version, model, row = result["version"], result["model"], row_name(result)
        for attack in [result["attack"]] if result["attack"] != NO_ATTACK else sorted(attacked[version]) or [NO_ATTACK]:
            key = (version, attack, model, row, result["confirmation"], "all")
            one = Figures(version, attack, "all", model, is_double(model), row, result["confirmation"], needs=str(result["empty"]))
            figures.setdefault(key, one)
    return [figures[key] for key in sorted(figures, key=lambda key: (key[:3], key[5] != "all", key[5], key[3], key[4]))]


def summary(results: Iterable[Result]) -> list[Result]:
    """Return a file with a line for each: what the results were measured with and by which commands, the figures of each row over all
    suites, the cases whose success is corrected, those whose utility differs from that without attack, and pairs in both forms.
    """
    results = list(results)
    kept = newest(results)
    sources = {json.dumps(result["data"], sort_keys=True) for result in kept}
    seeds = sorted({result["seed"] for result in kept})
    data = [json.loads(one) for one in sorted(sources)]
    lines: list[Result] = [{"type": "manifest", "suite": "agentdojo", "seeds": seeds, "data": data, "commands": commands_of(kept)}]
    for one in figures_of(results):
        if one.suite != "all":
            continue
        row = {name: getattr(one, name) for name in ("version", "attack", "model", "is_double", "defence", "confirmation")}
        for name, total in (("without_attack", one.benign), ("under_attack", one.attacked)):
            # Times differ from run to run.
            row[name] = {key: value for key, value in vars(total).items() if key != "seconds"} if total.cases else None
        row["unsafe_endorsements"] = sum(one.unsafe.values())
        lines.append({"type": "row", **row, **({"empty": one.needs} if one.needs else {})})
    for kind, found in (("correction", corrected_cases(kept)), ("difference", differing_cases(kept))):
        lines += _by_attack(kind, found)
    lines += [{"type": "pairs", **one} for one in pairs(kept)]
    return lines


def _by_attack(kind: str, found: Iterable[tuple[str, Result]]) -> list[Result]:
    """Return a line for each row, injection task and reason, with the user's tasks that it holds for."""
    lines: dict[tuple[str, ...], Result] = {}
    for reason, result in found:
        line = {"type": kind, "version": result["version"], "model": result["model"], "defence": row_name(result)}
        line |= {name: result[name] for name in ("confirmation", "attack", "suite", "injection_task")}
        line |= (
            {name: result[name] for name in ("attack_raw", "attack_corrected")} if kind == "correction" else {"utility": result["utility"]}
        )
        line["reason"] = reason
        lines.setdefault(tuple(map(str, line.values())), {**line, "user_tasks": []})["user_tasks"].append(result["user_task"])
    return list(lines.values())


CASE = ("version", "suite", "user_task", "injection_task", "attack")
PAIRED = ("utility", "attack_raw", "attack_corrected", "partial", "payload_only", "attack_shown", "model_calls", "questions")


def row_name(result: Result) -> str:
    """Return the row of a result in a word."""
    return f"{result['defence']}{', ' if result['policies'] else ''}{result['policies']}"


def pairs(results: Iterable[Result]) -> list[Result]:
    """Return, for each row that was measured in this process and through the gateway, how many cases were, and how many of them differ."""
    names = (*CASE, "policies", "confirmation", "model", "seed")
    kept = newest(results)
    alone = {(result["defence"], *(result[name] for name in names)): result for result in kept}
    found: dict[tuple[str, ...], Result] = {}
    for result in kept:
        through, _, name = result["defence"].partition("gateway-")
        other = alone.get((name, *(result[name] for name in names)))
        if through or other is None:
            continue
        row = {"version": result["version"], "attack": result["attack"], "model": result["model"]}
        row |= {"defence": row_name(other), "confirmation": result["confirmation"]}
        one = found.setdefault(tuple(row.values()), {**row, "pairs": 0, "differing": {}})
        one["pairs"] += 1
        for name in PAIRED:
            if result.get(name) != other.get(name):
                one["differing"][name] = one["differing"].get(name, 0) + 1
    return [found[key] for key in sorted(found)]


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
        figures.marked,
        figures.confirmation,
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
        both.per_case(both.tokens),
        both.price(prices, figures.model),
        both.per_case(both.seconds),
        str(benign.errors + attacked.errors) if both.cases else "",
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


Group = tuple[str, str, str, str, int, list[str]]
"""Cases with one reason: version, model, row, reason, number, cases."""


def corrections(results: Iterable[Result]) -> list[Group]:
    """Return where the corrected success differs from AgentDojo's check, by row and reason."""
    return _grouped(corrected_cases(results))


def differences(results: Iterable[Result]) -> list[Group]:
    """Return where the utility under attack differs from that without, by row and reason."""
    return _grouped(differing_cases(results))


def _grouped(found: Iterable[tuple[str, Result]]) -> list[Group]:
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for reason, result in found:
        row = f"{row_name(result)} ({result['confirmation']})"
        case = f"{result['suite']} {result['user_task']} {result['injection_task']} ({result['attack']})"
        groups[result["version"], result["model"], row, reason].append(case)
    return [(*key, len(cases), sorted(cases)) for key, cases in sorted(groups.items())]


def corrected_cases(results: Iterable[Result]) -> list[tuple[str, Result]]:
    """Return each case whose corrected success differs from AgentDojo's check, with the reason."""
    return _sorted((str(result["reason"]), result) for result in newest(results) if result.get("reason"))


def differing_cases(results: Iterable[Result]) -> list[tuple[str, Result]]:
    """Return each case whose utility under attack differs from that of its task without, with the reason."""
    kept = newest(results)
    names = ("version", "suite", "user_task", "defence", "policies", "confirmation", "model", "seed")
    alone = {tuple(result[name] for name in names): result for result in kept if result["attack"] == NO_ATTACK}
    found = []
    for result in kept:
        before = alone.get(tuple(result[name] for name in names))
        if result["attack"] != NO_ATTACK and before is not None and before["utility"] != result["utility"]:
            found.append((_difference(result, before), result))
    return _sorted(found)


def _sorted(found: Iterable[tuple[str, Result]]) -> list[tuple[str, Result]]:
    names = ("version", "model", "defence", "policies", "confirmation", "suite", "user_task", "injection_task", "attack")
    return sorted(found, key=lambda one: [str(one[1][name]) for name in names])


def _difference(result: Result, alone: Result) -> str:
    """Return why an attack has changed the utility of a case. `alone` is the result of the same task and row without the attack."""
    if result["error"]:
        return "the case ended with an error"
    if result.get("is_in_users_values"):
        return "the values of the user's own calls contain the injection"
    if result.get("harmful"):
        return "calls of the attack ran"
    if attacks().get(result["attack"]) and result.get("attack_shown"):
        return "the injection told the model to stop"
    if _leaves_out(result["defence"]) and not result.get("attack_shown"):
        return "the defence left out the outputs with the injection"
    if not ("own_ran" in result and "own_ran" in alone):
        return "not known"
    asked, before = Counter[str](result["asked_own"]), Counter[str](alone["asked_own"])
    if surplus := asked - before:
        return f"a person was asked about the user's own call of {', '.join(sorted(surplus))}, and not without the attack"
    ran, ran_before = Counter[str](result["own_ran"]), Counter[str](alone["own_ran"])
    if missing := ran_before - ran:
        return f"the user's own call of {', '.join(sorted(missing))} did not run, and ran without the attack"
    if ran == ran_before:
        return "the user's own calls ran as without the attack, and the reply no longer satisfies the check"
    return "not known"


def _leaves_out(name: str) -> bool:
    """Whether a defence leaves out outputs in which it finds an injection."""
    defence = DEFENCES.get(name)
    return defence is not None and (defence.detect is not None or defence.builtin == "transformers_pi_detector")


def failures(results: Iterable[Result]) -> Counter[str]:
    """Return the errors of cases that could not be judged, with their number."""
    return Counter(result["error"] for result in newest(results) if result["error"])
