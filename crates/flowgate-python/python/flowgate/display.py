"""Labelled traces and verdicts as HTML, for notebooks.

Everything that comes from a trace is escaped: a page that an agent has read must not run as a script in a notebook.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from ._flowgate import Approve, Confirm, Event, Replay, Turn, Verdict

__all__ = ["html_of", "html_of_events"]

_STYLE = (
    "<style>.flowgate td{vertical-align:top;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".flowgate .label{border-radius:4px;padding:0 4px;font-size:85%}"
    ".flowgate .permit{color:#1a7f37}.flowgate .confirm{color:#9a6700}.flowgate .deny{color:#cf222e}</style>"
)
# Colour-blind readers tell these apart, and the label stands beside every colour.
_COLOURS = ("#ddf4ff", "#fff1e5", "#fbefff", "#fff8c5", "#dafbe1", "#ffebe9", "#eaeef2")
_LONGEST = 2_000
_MOST = 500


class _Palette:
    """A colour for each label, in the order of their first appearance."""

    def __init__(self) -> None:
        self._colours: dict[str, str] = {}

    def mark(self, text: str, label: Iterable[str]) -> str:
        name = ", ".join(label)
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        title = html.escape(name, quote=True)
        return f'<span style="background:{colour};color:#1f2328" title="{title}">{html.escape(text)}</span>'

    def legend(self) -> str:
        marks = (
            f'<span class="label" style="background:{colour};color:#1f2328">{html.escape(name)}</span>'
            for name, colour in self._colours.items()
        )
        return f"<p>labels: {' '.join(marks)}</p>" if self._colours else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST} more characters)"


def _parts(event: Event, palette: _Palette) -> str:
    """Return the leaves of an event, each with the colour of its label."""
    lines = []
    leaves = [part for part in event.parts if part.value is not None]
    for part in leaves[:_MOST]:
        value = part.value if isinstance(part.value, str) else repr(part.value)
        path = part.path
        name = "" if path in ("content", "arguments") or len(leaves) == 1 else f"{html.escape(path)}: "
        lines.append(name + palette.mark(_shortened(value), part.label))
    if len(leaves) > _MOST:
        lines.append(f"… and {len(leaves) - _MOST} more parts")
    return "<br>".join(lines)


def html_of_events(events: Iterable[Event]) -> str:
    """Return a table of labelled events."""
    palette, rows = _Palette(), []
    for event in events:
        who = event.role or (f"{event.kind} {event.tool}" if event.tool else event.kind)
        if event.status != "done":
            who += f" ({event.status})"
        rows.append(
            f"<tr><td>{event.index}</td><td>{html.escape(str(who))}</td>"
            f"<td>{_parts(event, palette)}</td><td>{html.escape(str(event.label))}</td></tr>"
        )
    head = "<tr><th></th><th>event</th><th>content</th><th>label</th></tr>"
    return f'{_STYLE}<div class="flowgate">{palette.legend()}<table>{head}{"".join(rows)}</table></div>'


def _reasons(reasons: Iterable[Any]) -> str:
    items = []
    for reason in reasons:
        line = f" (line {reason.line} of the policy)" if reason.line else ""
        items.append(f"<li>{html.escape(reason.message)}{line}</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _verdict(verdict: Any) -> str:
    tool = html.escape(str(verdict.tool or ""))
    label = html.escape(", ".join(verdict.label))
    summary = f"<p>{html.escape(verdict.summary)}</p>" if isinstance(verdict, (Confirm, Approve)) else ""
    outcome = "confirm" if isinstance(verdict, Approve) else verdict.outcome
    return (
        f'{_STYLE}<div class="flowgate"><b class="{outcome}">{outcome}</b> {tool}, labelled {label}'
        f"{summary}{_reasons(verdict.reasons)}</div>"
    )


def _turn(turn: Turn) -> str:
    calls = "".join(
        f'<li><b class="{call.outcome}">{call.outcome}</b> {html.escape(str(call.tool))}{_reasons(call.reasons)}</li>'
        for call in turn.judged
    )
    return f'{_STYLE}<div class="flowgate"><p>{html.escape(turn.text)}</p><ul>{calls}</ul></div>'


def _replay(replay: Replay) -> str:
    calls = "".join(
        f'<li><b class="{call.outcome}">{call.outcome}</b> {html.escape(str(call.tool))}{_reasons(call.reasons)}</li>'
        for call in replay.calls
    )
    return f'{_STYLE}<div class="flowgate"><ol>{calls}</ol></div>{html_of_events(replay.monitor.events)}'


def html_of(value: Any) -> str:
    """Return an object of this package as HTML."""
    if isinstance(value, (Verdict, Approve)):
        return _verdict(value)
    if isinstance(value, Turn):
        return _turn(value)
    if isinstance(value, Replay):
        return _replay(value)
    if isinstance(value, Event):
        return html_of_events([value])
    return html_of_events(value.events)
