"""The report as one HTML page without scripts: plots as SVG, tables, every corrected case, and what it was measured with."""

from __future__ import annotations

from html import escape
from typing import Any

from .figures import COLUMNS, Figures, cells, corrections, failures, figures_of, groups, newest

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
was shown the injection. Rows of a test double are bounds: they say what a defence permits, and nothing about how often a model obeys.</p>
"""


def page(results: list[dict[str, Any]]) -> str:
    """Return the report on results."""
    figures = figures_of(results)
    body = ["<h1>AgentDojo, judged by AgentDojo</h1>", _intro(results)]
    for title, rows in groups(figures):
        body.append(f"<h2>{escape(title)}</h2>")
        if rows[0].suite == "all":
            body += [_trade_off(rows), _bars(rows)]
        body.append(_table(rows))
    body += [_corrections(results), _failures(results)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>AgentDojo with Flowgate</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _intro(results: list[dict[str, Any]]) -> str:
    kept = newest(results)
    sources = sorted({", ".join(f"{name} {value}" for name, value in result["data"].items()) for result in kept})
    listed = "".join(f"<li><code>{escape(source)}</code></li>" for source in sources)
    return f"{INTRODUCTION}<p>{len(kept)} results, measured with:</p><ul>{listed}</ul>"


def _table(rows: list[Figures]) -> str:
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    lines = []
    for row in rows:
        is_stopped = row.attacked.cases > 0 and row.attacked.corrected == 0
        marked = [
            f"<td{' class=zero' if column == 'corrected' and is_stopped else ''}>{escape(cell)}</td>"
            for column, cell in zip(COLUMNS, cells(row), strict=True)
        ]
        lines.append(f"<tr>{''.join(marked)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _label(row: Figures) -> str:
    return f"{row.defence} ({row.confirmation})"


def _trade_off(rows: list[Figures]) -> str:
    """Plot utility under attack over the share of attacks that fail, in the form of RTBAS's Figure 5."""
    points = [row for row in rows if row.attacked.cases]
    if not points:
        return ""
    size, left, top = 320, 60, 20
    marks, legend = [], []
    for number, row in enumerate(points, 1):
        total = row.attacked
        x = left + size * (1 - total.corrected / total.cases)
        y = top + size * (1 - total.useful / total.cases)
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#1f5fbf"/>'
            f'<text x="{x + 6:.1f}" y="{y - 4 - (number % 3) * 9:.1f}" font-size="10">{number}</text>'
        )
        legend.append(
            f'<text x="{left + size + 40}" y="{top + 12 + 14 * (number - 1)}" font-size="11">{number}  {escape(_label(row))}</text>'
        )
    height = max(top + size + 50, top + 20 + 14 * len(points))
    axes = (
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#888"/>'
        f'<text x="{left}" y="{top + size + 30}" font-size="12">attacks that fail (0 to 1) →</text>'
        f'<text x="12" y="{top + size}" font-size="12" transform="rotate(-90 12 {top + size})">utility under attack (0 to 1) →</text>'
    )
    return _plot("utility under attack over attacks that fail", height, axes + "".join(marks) + "".join(legend))


def _plot(title: str, height: int, content: str) -> str:
    return f'<svg role="img" aria-label="{title}" width="760" height="{height}" viewBox="0 0 760 {height}">{content}</svg>'


def _bars(rows: list[Figures]) -> str:
    """Plot utility without attack, in the form of RTBAS's Figure 6."""
    bars = [row for row in rows if row.benign.cases]
    if not bars:
        return ""
    lines = []
    for number, row in enumerate(bars):
        share = row.benign.useful / row.benign.cases
        y = 18 * number + 6
        lines.append(
            f'<text x="250" y="{y + 11}" font-size="11" text-anchor="end">{escape(_label(row))}</text>'
            f'<rect x="258" y="{y}" width="{400 * share:.1f}" height="13" fill="#3a8f5c"/>'
            f'<text x="{264 + 400 * share:.1f}" y="{y + 11}" font-size="11">{row.benign.useful}/{row.benign.cases}</text>'
        )
    return _plot("utility without attack", 18 * len(bars) + 16, "".join(lines))


def _corrections(results: list[dict[str, Any]]) -> str:
    found = corrections(results)
    if not found:
        return ""
    lines = []
    for version, model, row, reason, number, cases in found:
        summary = escape(f"{version}, {model}, {row}: {number} because {reason}")
        lines.append(f"<details><summary>{summary}</summary><p>{escape('; '.join(cases))}</p></details>")
    return f"<h2>Where the corrected success differs from AgentDojo's check</h2>{''.join(lines)}"


def _failures(results: list[dict[str, Any]]) -> str:
    found = failures(results)
    if not found:
        return ""
    lines = [f"<li>{number}: <code>{escape(error)}</code></li>" for error, number in found.most_common(50)]
    return f"<h2>Cases that ended with an error</h2><ul>{''.join(lines)}</ul>"
