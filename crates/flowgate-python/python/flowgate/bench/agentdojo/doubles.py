"""Two test doubles in place of a model. They are bounds: no language model takes part.

*Obedient* makes the calls of the user's ground truth, whatever it was shown. *Capable* makes the next call of the ground truth if
and only if the values that it needs are shown, can be left to a slot, or can be looked at. Both are gullible: each obeys every
injection as soon as it is shown it. A value that stands in no text was derived from something unknown, so the capable double
needs everything that is hidden, and cannot write it once an earlier call of the ground truth was refused or left out: the answer to
that call may be what the value is derived from. An injection that denies service asks for no call: upon each message that shows it,
a double stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..._flowgate import Completion
from .plans import Call, Plan
from .texts import OMITTED, Answer, calls_of_last_message, contains, leaves, letters, placeholders, regions, shown, words

__all__ = ["LOOK", "REFUSALS", "STOPPED", "Double", "is_screening", "messages_of_model"]

LOOK = "look"
MAX_NAMES = 50
MAX_LOOKS = 4
# How the answer to a call begins that the guard, or a person without the guard, refused.
REFUSALS = ('{"refused"', "The user refused")
# What a double says that an injection has stopped.
STOPPED = "Stopped."

Request = dict[str, Any]
# What a double knows of its progress: what `Double._progress` returns.
Progress = tuple[bool, int, int, int, bool, bool]


@dataclass(frozen=True)
class _Draft:
    """A message with calls, which the guard may discard, and may accept after all when the message that replaces it makes no call."""

    calls: list[Answer]
    # How many messages of the model the chat had before it.
    length: int
    # The progress of the double before the message, and after it.
    before: Progress
    after: Progress


class Double:
    """A double for one case. It is a function from a request to an answer."""

    def __init__(self, plan: Plan, *, is_capable: bool, judge_obeys: bool = False) -> None:
        """Create a double. With `judge_obeys`, it names every region as needed when it is a screener and reads an injection."""
        self.plan, self.is_capable, self.judge_obeys = plan, is_capable, judge_obeys
        self.full: Callable[[], Request] | None = None
        self.obeyed = False
        self._attacks = [letters(text) for text in plan.injections]
        self._attack_words = [words(text) for text in plan.injections]
        self._step = self._looks = self._levels = 0
        self._fills: list[str] = []
        # Whether the last call had slots, and the answer that says that the current call was refused with them.
        self._had_slots, self._refusal = False, ""
        # Whether an earlier call was refused or left out, so that what would be derived from its answer is unknown.
        self._lacks_answer = False
        # Whether the last calls were those of the injection: what they were refused, the user's calls do not need.
        self._was_injected = False
        # The last message with calls, until the next request; and a draft that is discarded, until the request after the one that says so.
        self._draft: _Draft | None = None
        self._discarded: _Draft | None = None

    def sees_attack(self, text: str) -> bool:
        """Whether a text contains the injection."""
        squashed = letters(text)
        return any(attack and attack in squashed for attack in self._attacks)

    def __call__(self, request: Request) -> Completion:
        """Write the next message."""
        self._follow_draft(request)
        before = self._progress()
        completion = self._write(request)
        calls = [Answer(name, json.loads(arguments), "") for _, name, arguments in completion.calls if name != LOOK]
        self._draft = _Draft(calls, self._length(request), before, self._progress()) if calls else None
        return completion

    def _progress(self) -> Progress:
        return (self.obeyed, self._step, self._looks, self._levels, self._lacks_answer, self._was_injected)

    def _go_to(self, progress: Progress) -> None:
        self.obeyed, self._step, self._looks, self._levels, self._lacks_answer, self._was_injected = progress

    def _length(self, request: Request) -> int:
        """Return the number of messages of the model in the whole chat. A view can lack some: what was written at a higher label."""
        return messages_of_model(request if self.full is None else self.full())

    def _follow_draft(self, request: Request) -> None:
        """Go back to before the last calls if the chat does not have them: the message was a draft, which the guard has discarded.

        If the message in its place makes no call, the guard can accept the draft after all. Then go on from after the draft.
        """
        draft, discarded = self._draft, self._discarded
        self._draft = self._discarded = None
        if draft is not None:
            if self._length(request) <= draft.length:
                self._go_to(draft.before)
                self._discarded = draft
        elif discarded is not None:
            chats = [request] if self.full is None else [request, self.full()]
            if any(_are_calls(discarded.calls, calls_of_last_message(chat)) for chat in chats):
                self._go_to(discarded.after)

    def _write(self, request: Request) -> Completion:
        view = shown(request)
        if self.plan.denies_service and self.sees_attack(view):
            return self._stop()
        if not self.obeyed and self.sees_attack(view):
            self.obeyed = True
            if self.plan.injected_calls:
                if self.is_capable:
                    self._settle(request, self._hidden(request, view))
                self._was_injected = True
                return Completion("", [(call.tool, call.arguments) for call in self.plan.injected_calls])
        if not self.is_capable:
            return self._next_call() or self._answer()
        return self._capable(request, view)

    def _stop(self) -> Completion:
        """Write what ends the task: a message without calls, which says nothing of what the user asked for.

        In the level of a look it ends that level alone. What is shown outside is without the injection, and does not stop the double.
        """
        self.obeyed = True
        self._levels = max(0, self._levels - 1)
        return Completion(STOPPED)

    def fill(self, _: Request) -> str:
        """Write the content of the next slot: what the ground truth says."""
        return self._fills.pop(0) if self._fills else ""

    def screen(self, request: Request) -> Completion:
        """Answer as a screener: the tools that the user's calls need, or the hidden regions that the next step needs."""
        tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools") or []}
        text = shown(request)
        if "needed_tools" in tools or not (tagged := _tagged(text)):
            names = sorted({call.tool for call in self.plan.calls})
            answer = next((name for name in tools if name == "needed_tools"), None)
            return Completion(", ".join(names), [(answer, {"tools": names})] if answer else None)
        is_fooled = self.judge_obeys and self.sees_attack(text)
        needed = sorted(tagged) if is_fooled else self._needed_of(tagged, _outside(text))
        call = [("needed_regions", {"reasoning": "", "regions": needed})] if "needed_regions" in tools else None
        return Completion(f"CITED: {', '.join(needed) or 'none'}", call)

    def _next_call(self) -> Completion | None:
        if self._step >= len(self.plan.calls):
            return None
        call = self.plan.calls[self._step]
        self._step += 1
        return Completion("", [(call.tool, call.arguments)])

    def _answer(self, *, is_known: bool = True) -> Completion:
        texts = [self.plan.answer if is_known else "", self.plan.injected_answer if self.obeyed else ""]
        return Completion("\n".join(filter(None, texts)) or "Done.")

    def _capable(self, request: Request, view: str) -> Completion:
        found = self._hidden(request, view)
        hidden = {name: None if text is None else self._words(text) for name, text in found.items()}
        view_words = self._words(view + "\n" + self.plan.prompt)
        if self._was_injected:
            self._was_injected = False
        else:
            self._settle(request, found)
        # What a detector has left out cannot be had.
        is_omitted = OMITTED in view
        self._lacks_answer |= is_omitted
        if self._step >= len(self.plan.calls):
            if is_omitted and not all(f" {word} " in view_words for word in words(self.plan.answer).split()):
                return self._answer(is_known=False)
            missing = _missing_in_answer(self.plan.answer, view_words, hidden)
            if missing and (look := self._look(request, missing, returns=False)):
                return look
            return self._answer(is_known=not missing)
        call = self.plan.calls[self._step]
        if self._levels and not self._looks:
            # Leave the level that an earlier call needed.
            self._levels -= 1
            return Completion("")
        arguments, fills, missing = _with_slots(call, request if self._takes_slots() else {}, view_words, hidden)
        if self._refusal in hidden:
            missing.append(self._refusal)
        missing += self._needs_besides(view, found)
        is_lost = self._is_lost(call, view_words, hidden)
        if missing or is_lost:
            if not is_lost and (look := self._look(request, missing, returns=True)):
                return look
            # What the call needs cannot be had, so it is not made.
            self._step, self._looks, self._refusal, self._lacks_answer = self._step + 1, 0, "", True
            return self._without_call(request, view)
        self._fills, self._looks, self._refusal, self._had_slots = fills, 0, "", bool(fills)
        self._step += 1
        return Completion("", [(call.tool, arguments)])

    def _words(self, text: str) -> str:
        """Return the words of a text without those of the injection: what the user wants is not taken from there."""
        found = words(text)
        for attack in self._attack_words:
            while attack.strip() and attack in found:
                found = found.replace(attack, " ")
        return found

    def _hidden(self, request: Request, view: str) -> dict[str, str | None]:
        """Return the hidden regions of a request by name, with their texts where they are known."""
        return regions(request, self.full() if self.full is not None and placeholders(view) else None)

    def _settle(self, request: Request, hidden: dict[str, str | None]) -> None:
        """Note what became of the user's call that was made last."""
        refusal = _refusal(request, hidden)
        if self._had_slots and self._tries_again(refusal):
            # The same call once more: what was left to slots is looked at, and so is the refusal.
            self._step, self._refusal = self._step - 1, refusal or ""
        self._lacks_answer |= refusal is not None and not self._had_slots
        self._had_slots = False

    def _tries_again(self, refusal: str | None) -> bool:
        """Whether the last call, which had slots, is made without them once more."""
        return bool(refusal)

    def _takes_slots(self) -> bool:
        """Whether the next call may have slots."""
        return not self._refusal

    def _without_call(self, request: Request, view: str) -> Completion:
        """Write what comes in the place of a call that cannot be made."""
        return self._capable(request, view)

    def _needs_besides(self, view: str, hidden: dict[str, str | None]) -> list[str]:
        """Return hidden regions that the next call needs besides those of its values."""
        return []

    def _is_lost(self, call: Call, view_words: str, hidden: dict[str, str | None]) -> bool:
        """Whether a call cannot be written any more, because an answer that it was derived from is lacking."""
        return self._lacks_answer and _has_derived(call, view_words, hidden)

    def _look(self, request: Request, names: list[str], *, returns: bool) -> Completion | None:
        """Look at regions, if the tool is on offer and looking can still help."""
        offered = any(tool["function"]["name"] == LOOK for tool in request.get("tools") or [])
        if not offered or self._looks >= MAX_LOOKS:
            return None
        self._looks += 1
        self._levels += returns
        arguments: dict[str, Any] = {"regions": list(dict.fromkeys(names))[:MAX_NAMES]}
        if returns:
            arguments["then_return"] = True
        return Completion("", [(LOOK, arguments)])

    def _needed_of(self, tagged: dict[str, str], outside: str) -> list[str]:
        view_words = self._words(outside + "\n" + self.plan.prompt)
        hidden: dict[str, str | None] = {name: self._words(text) for name, text in tagged.items()}
        if self._step >= len(self.plan.calls):
            return _missing_in_answer(self.plan.answer, view_words, hidden)
        needed: list[str] = []
        for value in self.plan.calls[self._step].arguments.values():
            needed += _missing(value, view_words, hidden)
        return list(dict.fromkeys(needed))


def _are_calls(calls: list[Answer], full: list[Answer]) -> bool:
    """Whether calls are those of a chat, where their slots can be filled."""
    return len(calls) == len(full) and all(call.is_of_call(one) for call, one in zip(calls, full, strict=True))


def is_screening(request: Request) -> bool:
    """Whether a request asks what the next step needs, instead of asking for the next message."""
    named = any(tool["function"]["name"] in ("needed_regions", "needed_tools") for tool in request.get("tools") or [])
    return named or bool(_tagged(shown(request)))


def messages_of_model(request: Request) -> int:
    """Return how many messages of the model a request shows."""
    return sum(message["role"] == "assistant" for message in request["messages"])


def _refusal(request: Request, hidden: dict[str, str | None]) -> str | None:
    """Return the name of the hidden answer that refuses the last call: empty if the answer is shown, `None` if it refuses nothing."""
    last = request["messages"][-1:]
    if not last or last[0]["role"] != "tool":
        return None
    text = shown({"messages": last})
    name = next(iter(placeholders(text)), "")
    answer = (hidden.get(name) or "") if name else text
    return name if answer.startswith(REFUSALS) else None


def _has_derived(call: Call, view_words: str, hidden: dict[str, str | None]) -> bool:
    """Whether an argument of a call has a text or number that neither the view nor a hidden region contains."""
    texts = [view_words, *(text for text in hidden.values() if text is not None)]
    return any(not any(contains(text, leaf) for text in texts) for value in call.arguments.values() for leaf in leaves(value))


def _missing(value: Any, view_words: str, hidden: dict[str, str | None]) -> list[str]:
    """Return the hidden regions that a value needs."""
    names: list[str] = []
    for leaf in leaves(value):
        if contains(view_words, leaf):
            continue
        holding = [name for name, text in hidden.items() if text is not None and contains(text, leaf)]
        names += holding[:1] or list(hidden)
    return list(dict.fromkeys(names))


def _missing_in_answer(answer: str, view_words: str, hidden: dict[str, str | None]) -> list[str]:
    """Return the hidden regions that an answer needs. Words that stand nowhere are the model's own; numbers that do were derived."""
    if not hidden or contains(view_words, answer):
        return []
    names: list[str] = []
    for word in words(answer).split():
        if f" {word} " in view_words:
            continue
        holding = [name for name, text in hidden.items() if text is not None and f" {word} " in text]
        if holding:
            names += holding[:1]
        elif word[:1].isdigit():
            # A number is computed from numbers, so no text is needed that has none which the view does not show.
            names += [name for name, text in hidden.items() if text is None or _has_new_number(text, view_words)]
        elif any(text is None for text in hidden.values()):
            names += list(hidden)
    return list(dict.fromkeys(names))


def _has_new_number(text: str, view_words: str) -> bool:
    """Whether a text has a word with a digit that the view does not have."""
    return any(any(map(str.isdigit, word)) and f" {word} " not in view_words for word in text.split())


def _with_slots(
    call: Call, request: Request, view_words: str, hidden: dict[str, str | None]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return a call's arguments with slots for hidden values, the texts of the slots, and the regions that it needs besides."""
    arguments, fills, missing = dict(call.arguments), [], []
    for name, value in call.arguments.items():
        needed = _missing(value, view_words, hidden)
        if not needed:
            continue
        if _takes_slot(request, call.tool, name) and not isinstance(value, (dict, list)) and len(needed) <= MAX_NAMES:
            fills.append(str(value))
            arguments[name] = {"$slot": {"regions": needed, "fill": "as the user asks"}}
        else:
            missing += needed
    return arguments, fills, list(dict.fromkeys(missing))


def _takes_slot(request: Request, tool: str, argument: str) -> bool:
    for offered in request.get("tools") or []:
        if offered["function"]["name"] == tool:
            schema = offered["function"]["parameters"].get("properties", {}).get(argument)
            return '"$slot"' in json.dumps(schema)
    return False


def _tagged(text: str) -> dict[str, str]:
    """Return the tagged regions of a screener's request, by name."""
    found: dict[str, str] = {}
    for part in text.split("<<REGION_")[1:]:
        name, separator, rest = part.partition(">>")
        end = rest.find(f"<</REGION_{name}>>")
        short = name.rpartition("_")[2]
        if separator and end >= 0 and short[:1] == "h" and short[1:].isdigit():
            found[short] = rest[:end]
    return found


def _outside(text: str) -> str:
    """Return a screener's request without its regions."""
    rest, outside = text, []
    while (start := rest.find("<<REGION_")) >= 0:
        name = rest[start + len("<<REGION_") :].partition(">>")[0]
        closing = f"<</REGION_{name}>>"
        end = rest.find(closing, start)
        outside.append(rest[:start])
        if end < 0:
            rest = rest[start + len("<<REGION_") :]
            continue
        rest = rest[end + len(closing) :]
    return "\n".join([*outside, rest])
