"""Whether a value or an attack is in a text that a model was shown.

AgentDojo pastes an attack into a YAML document, which wraps, quotes and escapes it, so texts are compared by their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "OMITTED",
    "Answer",
    "answers",
    "as_read",
    "contains",
    "leaves",
    "letters",
    "message_texts",
    "placeholders",
    "regions",
    "shown",
    "words",
]

# What AgentDojo's detectors put in the place of an output with an injection, and ours do, too.
OMITTED = "<Data omitted because a prompt injection was detected>"

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|([nrt]))")
_PLACEHOLDER = re.compile(r"\[hidden (h\d+)[^\]]*\]")
_WORD = re.compile(r"\d+\.\d+|[^\W_]+")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: " " if match[3] else chr(int(match[1] or match[2], 16)), text)


def letters(text: str) -> str:
    """Reduce a text to its letters and digits."""
    return re.sub(r"[\W_]+", "", _unescaped(text))


def words(text: str) -> str:
    """Return the words of a text in lower case, with a space before and after each."""
    text = re.sub(r"(\d)T(?=\d)", r"\1 ", _unescaped(text))
    found = [match.rstrip("0").rstrip(".") if "." in match else match for match in _WORD.findall(text)]
    return f" {' '.join(found).lower()} "


def contains(text_words: str, value: str) -> bool:
    """Whether words contain the words of a value, one after the other. A value without words is contained in everything."""
    wanted = words(value)
    return not wanted.strip() or wanted in text_words


def leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value. Nothing stands for a null or for one of two values."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def message_texts(request: dict[str, Any]) -> list[str]:
    """Return the text of each message of an OpenAI request."""
    texts = []
    for message in request["messages"]:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "\n".join(str(part.get("text", "")) for part in content)
        texts.append(str(content))
    return texts


def shown(request: dict[str, Any]) -> str:
    """Return what a request shows to the model, without the tools and without the calls that the model wrote."""
    return "\n".join(message_texts(request))


def as_read(reply: str) -> str:
    """Return a reply as a person reads it: addresses that the guard has disarmed (`ann @ example .org`) are put together again.

    AgentDojo compares replies letter by letter, and nothing follows an address in them.
    """
    joined = re.sub(r"(?<=\S) @ (?=\w)", "@", reply)
    joined = re.sub(r"(?<=\w) \.(?=\w)", ".", joined)
    joined = re.sub(r"\bhxxp(s?): / / ?", r"http\1://", joined)
    return joined.replace("\u2039", "<")


def placeholders(text: str) -> list[str]:
    """Return the names of the hidden regions that a text has placeholders for."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def regions(view: dict[str, Any], full: dict[str, Any] | None) -> dict[str, str | None]:
    """Return the hidden regions of a view by name, with their texts where they are known.

    `full` is the same chat with nothing hidden; it has more messages where whole events are hidden from the view. A region whose text
    cannot be told from its surroundings is `None`.
    """
    found: dict[str, str | None] = dict.fromkeys(placeholders(shown(view)))
    whole = answers(full) if full is not None else []
    # Equal calls are matched from the last one on: what a look's level did may be hidden, and came before.
    for answer in reversed(answers(view)):
        place = next((place for place in reversed(range(len(whole))) if answer.is_of_call(whole[place])), None)
        if place is None:
            continue
        complete = whole.pop(place).text
        parts = _PLACEHOLDER.split(answer.text)
        # A tool that prints a dictionary chooses its quotes by what they enclose, so a hidden text can have others than its placeholder.
        pattern = "(.*?)".join(re.sub("['\"]", "['\"]", re.escape(part)) for part in parts[::2])
        if len(parts) > 1 and (match := re.fullmatch(pattern, complete, re.DOTALL)):
            found.update(zip(parts[1::2], match.groups(), strict=True))
    return found


@dataclass(frozen=True)
class Answer:
    """The answer to a call."""

    tool: str
    arguments: Any
    text: str

    def is_of_call(self, full: Answer) -> bool:
        """Whether the call is that of `full`, in which slots may be filled. How either client prints arguments does not matter."""
        return self.tool == full.tool and _is_filled(self.arguments, full.arguments)


def _is_filled(value: Any, full: Any) -> bool:
    """Whether two arguments are equal, apart from the slots of the first and the values in their place."""
    if not isinstance(value, dict):
        return bool(value == full)
    if "$slot" in value:
        return True
    return isinstance(full, dict) and value.keys() == full.keys() and all(_is_filled(value[name], full[name]) for name in value)


def answers(request: dict[str, Any]) -> list[Answer]:
    """Return the answers to calls, in order."""
    calls: dict[str, tuple[str, Any]] = {}
    found = []
    for message, text in zip(request["messages"], message_texts(request), strict=True):
        for call in message.get("tool_calls") or []:
            calls[call["id"]] = (call["function"]["name"], _parsed(call["function"]["arguments"]))
        if message["role"] == "tool":
            found.append(Answer(*calls.get(message["tool_call_id"], ("", None)), text))
    return found


def calls_of_last_message(request: dict[str, Any]) -> list[Answer]:
    """Return the calls of the last message of the model, with empty answers. There are none if a message of the user follows it."""
    for message in reversed(request["messages"]):
        if message["role"] == "assistant":
            functions = [call["function"] for call in message.get("tool_calls") or []]
            return [Answer(function["name"], _parsed(function["arguments"]), "") for function in functions]
        if message["role"] == "user":
            break
    return []


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
