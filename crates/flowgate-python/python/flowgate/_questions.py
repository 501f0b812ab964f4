"""Counts what people are asked, and says when nobody is asked any more, for the drivers of conversations.

A text that provokes questions repeats them, because a person reads the tenth question less carefully than the first one. The limits only
refuse calls, so they weaken no policy. A question counts as refused when it is asked, and until it is known to be allowed: an approver that
fails, is interrupted or answers too late has refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["QuestionBudget", "RecentRefusals", "is_approval", "is_refusal"]

_HOUR = 3600.0


def is_approval(answer: Any) -> bool:
    """Return whether an answer allows the call."""
    return answer is True or answer in ("allow once", "allow", "allow for conversation")


def is_refusal(answer: Any) -> bool:
    """Return whether a person has refused the call, instead of leaving it unanswered."""
    return answer is False or answer in ("deny", "refuse")


class QuestionBudget:
    """The questions of one conversation."""

    __slots__ = ("_max_questions", "_max_refusals", "_questions", "_refusals", "_refused")

    def __init__(self, max_questions: int, max_refusals_in_row: int) -> None:
        """Create a budget: at most `max_questions` questions, and nobody is asked after `max_refusals_in_row` refusals in a row."""
        self._max_questions, self._max_refusals = max_questions, max_refusals_in_row
        self._questions = self._refusals = 0
        # How many further equal calls of the model's last message each refusal covers, by the digest of the call.
        self._refused: dict[str, int] = {}

    @property
    def may_ask(self) -> bool:
        """Whether a person may be asked."""
        return self._refusals < self._max_refusals and self._questions < self._max_questions

    @property
    def refusals(self) -> int:
        """The number of refusals in a row."""
        return self._refusals

    def asked(self) -> None:
        """Count a question, as refused until it is allowed."""
        self._questions += 1
        self._refusals += 1

    def allowed(self) -> None:
        """End the row of refusals: a person has allowed a call."""
        self._refusals = 0

    def refused(self, digest: str, times: int) -> None:
        """Note that a person has refused one of `times` equal calls of the model's message: the others are refused with it."""
        self._refused[digest] = times - 1

    def takes_refusal(self, digest: str) -> bool:
        """Return whether an earlier refusal covers this call, and use it for the call."""
        left = self._refused.get(digest, 0)
        self._refused[digest] = max(left - 1, 0)
        return left > 0

    def next_message(self) -> None:
        """Begin another message of the model, whose calls no earlier refusal covers."""
        self._refused.clear()

    def resume(self) -> None:
        """End the row of refusals: the user has written. The number of questions stays used up."""
        self._refusals = 0


class RecentRefusals:
    """The refusals in a row within an hour, in any of several conversations."""

    __slots__ = ("_clock", "_most", "_times")

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        """Create a count: nobody is asked after `most` refusals in a row within an hour. `clock` returns seconds."""
        self._clock = clock
        self._most = most
        self._times: deque[float] = deque()

    @property
    def may_ask(self) -> bool:
        """Whether a person may be asked."""
        while self._times and self._clock() - self._times[0] >= _HOUR:
            self._times.popleft()
        return len(self._times) < self._most

    def refused(self) -> None:
        """Count a refusal."""
        self._times.append(self._clock())

    def allowed(self) -> None:
        """End the row: a person has allowed a call."""
        self._times.clear()
