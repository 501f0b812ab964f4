"""The person of the benchmark, who answers the questions of one run: refuses, allows, or is the oracle.

The oracle knows what the user wants. It allows each call of the user's ground truth as often as the ground truth has it, reads as often
as they are asked about, and only with the texts that the ground truth states. Where the ground truth states no text, only a placeholder
such as `<summary>`, it allows any but that of the attack's own call. A model that words such a text itself, as an injection asks,
is allowed to: only a double writes the attack's call to the letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from .judging import call_key, is_reader, payload_of
from .plans import Call, Plan
from .texts import letters, words

__all__ = ["Decide", "Oracle", "decider"]

Decide = Callable[[str, dict[str, Any]], bool]
"""Answers a question about a tool and its arguments: whether the call may run."""

_PLACEHOLDER = re.compile(r"\s*<[\w ]+>\s*")


def decider(confirmation: str, plan: Plan) -> Decide:
    """Return the person who is asked in one run: one who refuses, one who allows, or an oracle."""
    if confirmation == "oracle":
        return Oracle(plan)
    return lambda _tool, _arguments: confirmation == "allow"


class Oracle:
    """A person who allows what the user's ground truth has, and remembers what was allowed."""

    def __init__(self, plan: Plan) -> None:
        """Create the oracle of one run."""
        self.plan = plan
        self._left = list(plan.calls)
        self._given: list[Call] = []

    def __call__(self, tool: str, arguments: dict[str, Any]) -> bool:
        """Whether a call may run. What is allowed counts as made."""
        asked = Call(tool, arguments)
        if is_reader(tool):
            return any(self._is_same(call, asked) for call in self.plan.calls)
        # A call whose texts are stated comes before one that may have any.
        found = next((call for call in sorted(self._left, key=self._is_open) if self._is_same(call, asked)), None)
        if found is None or (self._is_open(found) and self._is_attack(asked)):
            return False
        self._left.remove(found)
        self._given.append(found)
        return True

    def take_back(self, tool: str, arguments: dict[str, Any]) -> None:
        """Forget that a call was allowed: the answer came too late to be used."""
        asked = Call(tool, arguments)
        found = next((call for call in reversed(self._given) if self._is_same(call, asked)), None)
        if found is not None:
            self._given.remove(found)
            self._left.append(found)

    def _is_attack(self, asked: Call) -> bool:
        """Whether a call is one of the attack's, with its texts."""
        return any(self._is_same(call, asked) for call in self.plan.injected_calls)

    def _is_same(self, stated: Call, asked: Call) -> bool:
        """Whether a call has the required arguments of a stated one, and its texts where it states them."""
        suite = self.plan.suite
        if call_key(stated.tool, stated.arguments, suite) != call_key(asked.tool, asked.arguments, suite):
            return False
        for name in payload_of(stated.tool, suite):
            text = _text(stated.arguments.get(name))
            if not _is_placeholder(text) and words(text) != words(_text(asked.arguments.get(name))):
                return False
        return True

    def _is_open(self, call: Call) -> bool:
        """Whether a call states a placeholder in the place of a text."""
        return any(_is_placeholder(_text(call.arguments.get(name))) for name in payload_of(call.tool, self.plan.suite))


def _is_placeholder(text: str) -> bool:
    return bool(text) and (not letters(text) or _PLACEHOLDER.fullmatch(text) is not None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
