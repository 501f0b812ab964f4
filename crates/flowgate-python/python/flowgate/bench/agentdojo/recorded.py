"""Recorded runs of AgentDojo: its own logs, and exports of them as JSON lines.

A run is an object with `messages` and the fields of the benchmark, beside them or under `metadata`. Messages have AgentDojo's form
or OpenAI's. Whatever cannot be read is returned as a `LeftOut` with its place: nothing is dropped silently.
"""

from __future__ import annotations

import gzip
import json
import zlib
from ast import literal_eval
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import NO_ATTACK

__all__ = ["LeftOut", "RecordedCall", "RecordedRun", "read_runs"]

ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")

# The names of each field: AgentDojo's first, then those of exports.
FIELDS = {
    "suite": ("suite_name", "suite"),
    "user_task": ("user_task_id", "user_task"),
    "injection_task": ("injection_task_id", "injection_task"),
    "attack": ("attack_type", "attack"),
    "model": ("pipeline_name", "model"),
    "version": ("benchmark_version",),
    "package": ("agentdojo_package_version",),
    "utility": ("utility",),
    "security": ("security", "attack_succeeded"),
    "injections": ("injections",),
    "error": ("error",),
}


@dataclass(frozen=True)
class RecordedCall:
    """A call of a recorded run."""

    tool: str
    arguments: dict[str, Any]
    answer: str | None
    """What the model was shown, an error included; `None` if the call has no answer, and so did not run."""
    origin: str = ""
    """Whose task the call serves, `user` or `injection`, if the run says it."""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run. `utility` and `security` are the verdicts that the log records, or `None`."""

    place: str
    model: str
    version: str
    suite: str
    user_task: str
    injection_task: str | None
    attack: str
    injections: dict[str, str] | None
    prompt: str
    calls: tuple[RecordedCall, ...]
    output: str | None
    """The text of the last message of the model; `None` if the run does not end with one."""
    utility: bool | None
    security: bool | None
    error: str
    package: str


@dataclass(frozen=True)
class LeftOut:
    """A run, or a file, that is not replayed, with its place and the reason."""

    place: str
    kind: str
    reason: str

    def __str__(self) -> str:
        """The line that reports it."""
        return f"{self.place}: {self.reason}"


class _Problem(Exception):
    """What is wrong with a run, and what to do."""


def read_runs(paths: Iterable[str]) -> Iterator[RecordedRun | LeftOut]:
    """Read the runs of files and folders. A folder is walked for files that end with `.json` or `.jsonl`, compressed or not."""
    for name in paths:
        path = Path(name)
        if not path.is_dir():
            yield from _file(path)
            continue
        files = sorted(file for file in path.rglob("*") if file.name.endswith(ENDINGS) and file.is_file())
        if not files:
            yield LeftOut(
                str(path), "unreadable", f"the folder has no file that ends with {', '.join(ENDINGS)}: name the folder of the runs"
            )
        for file in files:
            yield from _file(file)


def _file(path: Path) -> Iterator[RecordedRun | LeftOut]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()
    except (OSError, EOFError, zlib.error) as error:
        yield LeftOut(str(path), "unreadable", f"the file cannot be read ({_first_line(error)}): check its name and that it is complete")
    except UnicodeDecodeError as error:
        yield LeftOut(str(path), "unreadable", f"byte {error.start + 1}: not UTF-8: a compressed file has to end with .gz")
    else:
        yield from _documents(path, text)


def _documents(path: Path, text: str) -> Iterator[RecordedRun | LeftOut]:
    """Read the one document of a file, or its JSON lines."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        yield LeftOut(str(path), "unreadable", "the file is empty: name a file of runs")
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        if len(lines) == 1 or not _is_json(lines[0][1]):
            yield _not_json(path, getattr(error, "lineno", 1), error)
            return
    else:
        several = document if isinstance(document, list) else [document]
        for index, item in enumerate(several):
            yield _run(f"{path}, run {index + 1}" if isinstance(document, list) else str(path), item)
        return
    for number, line in lines:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield _not_json(path, number, error)
        else:
            yield _run(f"{path}, line {number}", item)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _not_json(path: Path, line: int, error: Exception) -> LeftOut:
    detail = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
    return LeftOut(f"{path}, line {line}", "unreadable", f"not JSON: {detail}: check that the file is complete")


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).split("\n", 1)[0]


def _run(place: str, item: Any) -> RecordedRun | LeftOut:
    try:
        return _checked_run(place, item)
    except _Problem as problem:
        return LeftOut(place, "no run of AgentDojo", str(problem))


def _checked_run(place: str, item: Any) -> RecordedRun:
    if not isinstance(item, dict) or not isinstance(item.get("messages"), list):
        message = "no recorded run: a run is an object with `messages`"
        raise _Problem(message)
    metadata = item.get("metadata")
    values = {**(metadata if isinstance(metadata, dict) else {}), **item}
    found = {field: next((values[name] for name in names if values.get(name) is not None), None) for field, names in FIELDS.items()}
    suite, user_task = _text(found, "suite"), _text(found, "user_task")
    if not (suite and user_task):
        lacking = FIELDS["user_task" if suite else "suite"][0]
        message = f"the run has no `{lacking}`: replay logs of AgentDojo, or exports that keep its fields"
        raise _Problem(message)
    injection_task = _text(found, "injection_task") or None
    injections = found["injections"]
    if injections is not None and not _is_of_texts(injections):
        message = "`injections` is not an object of texts: it maps places of the environment to injected texts"
        raise _Problem(message)
    calls, output, prompt = _messages(item["messages"])
    return RecordedRun(
        place=place,
        model=_text(found, "model") or "not recorded",
        version=_text(found, "version"),
        suite=suite,
        user_task=user_task,
        injection_task=injection_task,
        attack=(_text(found, "attack") or "not recorded") if injection_task else NO_ATTACK,
        injections=injections,
        prompt=prompt,
        calls=tuple(calls),
        output=output,
        utility=_verdict(found, "utility"),
        # Without an attack, AgentDojo writes `true`, which means nothing.
        security=_verdict(found, "security") if injection_task else None,
        error=_text(found, "error"),
        package=_text(found, "package"),
    )


def _text(found: dict[str, Any], name: str) -> str:
    value = found[name]
    if value is not None and not isinstance(value, str):
        message = f"`{FIELDS[name][0]}` is not a text"
        raise _Problem(message)
    return value or ""


def _verdict(found: dict[str, Any], name: str) -> bool | None:
    value = found[name]
    if value is not None and not isinstance(value, bool):
        message = f"`{FIELDS[name][0]}` is neither true nor false"
        raise _Problem(message)
    return value


def _is_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


@dataclass
class _Open:
    """A call whose answer has not been read yet."""

    identifier: str
    tool: str
    arguments: dict[str, Any]
    origin: str
    answer: str | None = None
    given: Any = field(default=None)
    """The arguments as the log has them, which an answer without an identifier repeats."""


def _messages(messages: list[Any]) -> tuple[list[RecordedCall], str | None, str]:
    """Return the calls with their answers, the text of the last message of the model, and the first message of the user."""
    calls: list[_Open] = []
    output, prompt = None, None
    for index, message in enumerate(messages):
        try:
            role, text = _role_and_text(message)
            if role == "user" and prompt is None:
                prompt = text
            elif role == "assistant":
                calls += _calls(message)
            elif role == "tool":
                _answer(message, text, calls)
            # AgentDojo judges the text of the last message, whatever calls it has.
            output = text if role == "assistant" else None
        except _Problem as problem:
            located = f"message {index}: {problem}"
            raise _Problem(located) from None
    return [RecordedCall(call.tool, call.arguments, call.answer, call.origin) for call in calls], output, prompt or ""


def _role_and_text(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        problem = "no message: it has no `role`"
        raise _Problem(problem)
    content = message.get("content")
    if isinstance(content, list):
        # AgentDojo's blocks have `content`, OpenAI's have `text`.
        blocks = [block.get("content", block.get("text")) if isinstance(block, dict) else block for block in content]
        texts = [text for text in blocks if text is not None]
    else:
        texts = [content] if content is not None else []
    if not all(isinstance(text, str) for text in texts):
        problem = "the content is not a text"
        raise _Problem(problem)
    return message["role"], "\n".join(texts)


def _calls(message: dict[str, Any]) -> Iterator[_Open]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        problem = "`tool_calls` is not a list"
        raise _Problem(problem)
    for call in calls or []:
        function = call.get("function") if isinstance(call, dict) else None
        name, given = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (function, None)
        if not isinstance(name, str):
            problem = "a tool call has no name under `function`"
            raise _Problem(problem)
        if not isinstance(function, dict):
            given = call.get("args")
        origin = message.get("origin")
        yield _Open(str(call.get("id") or ""), name, _arguments(given), origin if isinstance(origin, str) else "", given=given)


def _arguments(given: Any) -> dict[str, Any]:
    """Return arguments as AgentDojo runs them: a text that states a list is the list."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            given = ""
    if given is not None and not isinstance(given, dict):
        problem = "the arguments of a tool call are not a JSON object"
        raise _Problem(problem)
    return {name: _as_list(value) for name, value in (given or {}).items()}


def _as_list(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        parsed = literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value
    return parsed if isinstance(parsed, list) else value


def _answer(message: dict[str, Any], text: str, calls: list[_Open]) -> None:
    """Pass an answer to its call: the open one with its identifier, else the first open one that it repeats, else the first."""
    waiting = [call for call in calls if call.answer is None]
    identifier = message.get("tool_call_id")
    repeated = message.get("tool_call")
    named = [call for call in waiting if identifier and call.identifier == identifier]
    if not named and isinstance(repeated, dict):
        named = [call for call in waiting if call.tool == repeated.get("function") and call.given == repeated.get("args")]
    if not (named or waiting):
        problem = "an answer to no call"
        raise _Problem(problem)
    error = message.get("error")
    # The model is shown the error in place of the content.
    (named or waiting)[0].answer = error if isinstance(error, str) and error else text
