"""The plots of the report as SVG, with a panel for each suite: RTBAS's Figure 5, security over utility, and Figure 6, utility alone."""

from __future__ import annotations

from html import escape

from .figures import Figures

__all__ = ["trade_offs", "utilities"]

PANEL, GAP, LEFT, TOP = 150, 34, 46, 30
BAR = 15
COLOURS = ("#1f5fbf", "#c2571a", "#3a8f5c", "#8a4fbf", "#b3263e", "#5f6b1f", "#0f8b8d", "#7a5230")


def _name(row: Figures) -> str:
    return f"{row.defence} ({row.confirmation})"


def _svg(title: str, width: int, height: int, content: list[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg role="img" aria-label="{escape(title)}" {size}>{"".join(content)}</svg>'


def _text(x: float, y: float, text: str, size: int = 11, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{more}>{escape(text)}</text>'


def trade_offs(suites: list[tuple[str, list[Figures]]]) -> str:
    """Plot utility under attack over the share of attacks that fail, in a panel for each suite: RTBAS's Figure 5.

    The top right corner is best. A row has the same number in every panel.
    """
    panels = [(suite, [row for row in rows if row.attacked.cases]) for suite, rows in suites]
    panels = [(suite, rows) for suite, rows in panels if rows]
    if not panels:
        return ""
    names = list(dict.fromkeys(_name(row) for _, rows in panels for row in rows))
    content = []
    for place, (suite, rows) in enumerate(panels):
        left = LEFT + place * (PANEL + GAP)
        content.append(f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#888"/>')
        content.append(_text(left, TOP - 10, suite, 12, ' font-weight="600"'))
        content += [_text(left, TOP + PANEL + 14, "0"), _text(left + PANEL - 6, TOP + PANEL + 14, "1")]
        used: dict[tuple[int, int], int] = {}
        for row in rows:
            number, total = names.index(_name(row)), row.attacked
            x = left + PANEL * (1 - total.corrected / total.cases)
            y = TOP + PANEL * (1 - total.useful / total.cases)
            colour = COLOURS[number % len(COLOURS)]
            # Rows with the same figures have their numbers beside each other.
            spot = (round(x / 6), round(y / 6))
            used[spot] = shift = used.get(spot, -1) + 1
            content.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
            content.append(_text(x - 10 - 12 * shift, y + 13, str(number + 1), 9, f' fill="{colour}"'))
    bottom = TOP + PANEL
    middle = TOP + PANEL / 2
    content.append(_text(LEFT, bottom + 28, "attacks that fail →"))
    content.append(_text(16, middle + 50, "utility under attack →", 11, f' transform="rotate(-90 16 {middle + 50:.0f})"'))
    for number, name in enumerate(names):
        x, y = LEFT + (number % 3) * 300, bottom + 50 + 15 * (number // 3)
        content.append(_text(x, y, f"{number + 1}  {name}", 11, f' fill="{COLOURS[number % len(COLOURS)]}"'))
    width = max(LEFT + len(panels) * (PANEL + GAP), LEFT + 900)
    height = bottom + 60 + 15 * ((len(names) + 2) // 3)
    return _svg("utility under attack over attacks that fail", width, height, content)


def utilities(suites: list[tuple[str, list[Figures]]]) -> str:
    """Plot utility without attack as bars, in a group for each suite: RTBAS's Figure 6."""
    groups = [(suite, [row for row in rows if row.benign.cases]) for suite, rows in suites]
    groups = [(suite, rows) for suite, rows in groups if rows]
    if not groups:
        return ""
    content, y = [], 0.0
    for suite, rows in groups:
        y += 18
        content.append(_text(8, y, suite, 12, ' font-weight="600"'))
        for number, row in enumerate(rows):
            share = row.benign.useful / row.benign.cases
            y += BAR
            content.append(_text(280, y + 10, _name(row), 10, ' text-anchor="end"'))
            colour = COLOURS[number % len(COLOURS)]
            content.append(f'<rect x="288" y="{y + 1:.1f}" width="{400 * share:.1f}" height="{BAR - 4}" fill="{colour}"/>')
            content.append(_text(294 + 400 * share, y + 10, f"{row.benign.useful}/{row.benign.cases}", 10))
        y += 8
    return _svg("utility without attack", 780, int(y + BAR + 8), content)
