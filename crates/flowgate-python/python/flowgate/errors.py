"""The exceptions of the package. All derive from `FlowgateError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._flowgate import Deny, Diagnostic

__all__ = [
    "Denied",
    "FlowgateError",
    "InUseError",
    "PolicyError",
    "SessionError",
    "TraceError",
    "UsedError",
]


class FlowgateError(Exception):
    """An error of this package."""


class PolicyError(FlowgateError):
    """A policy cannot be used.

    The attributes describe the first error; `diagnostics` has all of them.
    """

    diagnostics: list[Diagnostic]
    code: str
    file: str | None
    line: int
    column: int
    hint: str | None

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Create the error for these diagnostics, of which there is at least one error."""
        super().__init__(diagnostics)
        self.diagnostics = list(diagnostics)
        first = next((found for found in self.diagnostics if found.severity == "error"), self.diagnostics[0])
        self.code, self.file, self.hint = first.code, first.file, first.hint
        self.line, self.column = first.line, first.column
        self._first = first

    def __str__(self) -> str:
        """Return the first error with its place, and the number of the others."""
        more = len(self.diagnostics) - 1
        rest = f" (and {more} more: see `diagnostics`)" if more else ""
        return f"{self._first}{rest}\n\n{self._first.excerpt}"


class TraceError(FlowgateError):
    """A recorded run cannot be read.

    `line` is the line of the file, from 1, and `message` the index of the message, from 0; either may be unknown.
    """

    def __init__(self, problem: str, line: int | None = None, message: int | None = None) -> None:
        """Create the error for a problem and its place."""
        super().__init__(problem, line, message)
        self.problem, self.line, self.message = problem, line, message

    def __str__(self) -> str:
        """Return the place and the problem."""
        places = []
        if self.line is not None and (self.line > 1 or self.message is None):
            places.append(f"line {self.line}")
        if self.message is not None:
            places.append(f"message {self.message}")
        return f"{', '.join(places)}: {self.problem}" if places else self.problem


class SessionError(FlowgateError):
    """An event does not fit into the session, for example because the session is full."""


class UsedError(FlowgateError):
    """A permit, a question or a need was used a second time."""


class InUseError(FlowgateError):
    """A predicate uses the session that calls it."""


class Denied(FlowgateError):
    """A call must not run. `verdict` says why."""

    verdict: Deny

    def __init__(self, verdict: Deny) -> None:
        """Create the exception for a verdict."""
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        """Return all reasons in one line."""
        return self.verdict.why
