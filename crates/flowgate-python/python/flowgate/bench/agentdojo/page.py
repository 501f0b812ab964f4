"""The report as one HTML page without scripts: plots as SVG, tables, every corrected case, and what it was measured with."""

from __future__ import annotations

from html import escape
from typing import Any

from .figures import (
    COLUMNS,
    COST_COLUMNS,
    OVERVIEW_COLUMNS,
    Figures,
    Group,
    Prices,
    cells,
    corrections,
    cost_rows,
    differences,
    failures,
    figures_of,
    groups,
    measured,
    newest,
    overview_rows,
)
from .plots import trade_offs, utilities

__all__ = ["page"]

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem;
  color: #1b1b1b; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } th, td { padding: .15rem .6rem; text-align: right;
  border-bottom: 1px solid #ddd }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
svg { max-width: 100%; height: auto } .zero { color: #06603a; font-weight: 600 }
details { margin: .4rem 0 } code { font-size: 13px }
"""

INTRODUCTION = """
<p>Utility and raw success are what AgentDojo's own checks say. <em>Corrected</em> success counts calls that ran and that the user's ground
truth lacks, or has with other required arguments; every difference is listed below. <em>Partial</em>: some such call ran, but not the
whole attack. <em>Payload only</em>: the attack could choose a text within the user's own calls, and nothing else. <em>Shown</em>: the model
was shown the injection. <em>Useful unasked</em>: tasks that are done without an attack and without a question.
<em>Tokens</em> of a double are estimated, one for four
characters. <em>Unsafe</em>: the number of the policies' endorsements that leave a choice to strangers' texts.
Rows of a test double are bounds: they say what a defence permits, and nothing about how often a model obeys.</p>
"""


def page(results: list[dict[str, Any]], prices: Prices | None = None) -> str:
    """Return the report on results. Rows of models in `prices` have a price."""
    prices = prices or {}
    figures = figures_of(results)
    body = ["<h1>AgentDojo, judged by AgentDojo</h1>", _intro(results)]
    for version, rows in overview_rows(results):
        body += [f"<h2>The cases of {escape(version)}</h2>", _cells(OVERVIEW_COLUMNS, rows)]
    for title, one in groups(figures):
        body.append(f"<h2>{escape(title)}</h2>")
        if one[0].suite == "all":
            suites = _by_suite(figures, one[0])
            body += [trade_offs(suites), utilities(suites)]
        body.append(_table(one, prices))
    for title, rows in cost_rows(figures, prices):
        body += [f"<h2>What the tasks of banking cost without attack: {escape(title)}</h2>", _cells(COST_COLUMNS, rows)]
    utility = _listed("Where the utility under attack differs from that without", differences(results))
    body += [_empty(results), _corrections(results), utility, _failures(results)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>AgentDojo with Flowgate</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _intro(results: list[dict[str, Any]]) -> str:
    kept = newest(results)
    sources = sorted({", ".join(f"{name} {value}" for name, value in result["data"].items()) for result in kept})
    listed = "".join(f"<li><code>{escape(source)}</code></li>" for source in sources)
    return f"{INTRODUCTION}<p>{len(kept)} results, measured with:</p><ul>{listed}</ul>"


def _by_suite(figures: list[Figures], like: Figures) -> list[tuple[str, list[Figures]]]:
    """Return the rows of each suite with the version, the attack and the model of `like`; all suites together are the last."""
    suites: dict[str, list[Figures]] = {}
    for one in figures:
        if (one.version, one.attack, one.model) == (like.version, like.attack, like.model):
            suites.setdefault(one.suite, []).append(one)
    together = suites.pop("all", [])
    return [*sorted(suites.items()), ("all, weighted by cases", together)]


def _cells(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _table(rows: list[Figures], prices: Prices) -> str:
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    lines = []
    for row in rows:
        is_stopped = row.attacked.cases > 0 and row.attacked.corrected == 0
        marked = [
            f"<td{' class=zero' if column == 'corrected' and is_stopped else ''}>{escape(cell)}</td>"
            for column, cell in zip(COLUMNS, cells(row, prices), strict=True)
        ]
        lines.append(f"<tr>{''.join(marked)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _empty(results: list[dict[str, Any]]) -> str:
    found = measured(results)[1]
    if not found:
        return ""
    lines = "".join(f"<li>{escape(row)}: needs {escape(needs)}</li>" for row, needs in sorted(found.items()))
    return f"<h2>Rows that stay empty</h2><ul>{lines}</ul>"


def _corrections(results: list[dict[str, Any]]) -> str:
    title = "Where the corrected success differs from AgentDojo's check"
    return _listed(title, corrections(results))


def _listed(title: str, found: list[Group]) -> str:
    """Return a list of cases, grouped by their reason."""
    if not found:
        return ""
    lines = []
    for version, model, row, reason, number, cases in found:
        summary = escape(f"{version}, {model}, {row}: {number} because {reason}")
        lines.append(f"<details><summary>{summary}</summary><p>{escape('; '.join(cases))}</p></details>")
    return f"<h2>{escape(title)}</h2>{''.join(lines)}"


def _failures(results: list[dict[str, Any]]) -> str:
    found = failures(results)
    if not found:
        return ""
    lines = [f"<li>{number}: <code>{escape(error)}</code></li>" for error, number in found.most_common(50)]
    return f"<h2>Cases that ended with an error</h2><ul>{''.join(lines)}</ul>"
