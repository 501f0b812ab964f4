"""Runs the specifications of the core, `crates/flowgate/spec`, through the Python package.

`crates/flowgate/tests/spec.rs` runs the same files in Rust: the same policies, events and expected verdicts. `spec/README.md` describes the
format.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import flowgate
import pytest

SPEC = Path(__file__).resolve().parents[3] / "crates/flowgate/spec"
# The arguments for which the first list of sources holds.
ARGUMENTS = ("to", "amount", "subject", "body", "url", "day", "id", "text", "city", "code", "n")


@dataclass
class Block:
    """A code block of a file: its language, its text and the line after its fence."""

    language: str
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    is_open = False
    for number, line in enumerate(text.splitlines()):
        if line.startswith("```"):
            is_open = not is_open
            if is_open:
                found.append(Block(line[3:].strip(), number + 2))
        elif is_open:
            found[-1].lines.append(line)
    return found


FILES = sorted(path for path in SPEC.rglob("*.md") if path.name != "README.md")


def policy_of(block: Block, imported: dict[str, str]) -> flowgate.Policy | str:
    """Return the policy, or its diagnostics, one a line."""

    def read(path: str) -> str:
        if path not in imported:
            raise FileNotFoundError("there is no such file")
        return imported[path]

    try:
        return flowgate.Policy(block.text, read=read)
    except flowgate.PolicyError as error:
        return "\n".join(
            f"{found.file + ':' if found.file else ''}{found.line}:{found.column} {found.code}: {found.message}" + (f"; help: {found.hint}" if found.hint else "")
            for found in error.diagnostics
        )


class Session:
    """One trace block under a policy."""

    def __init__(self, policy: flowgate.Policy, fuel: int | None) -> None:
        self.monitor = flowgate.Monitor(policy, fuel=fuel)
        self.permits: dict[str, list[flowgate.Permit]] = {}
        self.questions: dict[str, list[flowgate.Confirm]] = {}
        self.running: dict[str, flowgate.AuthorizedCall] = {}
        self.last: flowgate.Event | None = None

    def step(self, line: str) -> None:
        standing, line = standing_of(line)
        head, separator, name = line.rpartition(" @")
        if separator and " " not in name:
            line, standing["name"] = head, name
        word, _, rest = line.partition(" ")
        if word in ("system:", "user:", "assistant:"):
            self.push(rest, lambda text, _: self.monitor.message(word[:-1], text, **standing))
        elif word in ("out", "error"):
            call_id, separator, text = rest.partition(": ")
            call_id = call_id if separator else rest.rstrip(":")
            self.push(
                text,
                lambda text, twin: self.monitor.tool_output(
                    call_id, text, structured=twin, is_error=word == "error", **standing
                ),
            )
        elif word in ("call", "judge"):
            call_id, _, rest = rest.partition(" ")
            body, separator, expected = rest.partition(" # ")
            assert separator, "a call says what is expected"
            body, separator, sources = body.partition(" from ")
            attribution = self.attribution(sources) if separator else None
            tool, _, arguments = body.strip().partition("(")
            verdict = self.monitor.judge(
                tool, arguments.removesuffix(")"), id=call_id, attribution=attribution, **standing
            )
            self.judged(call_id, verdict, expected, runs=word == "call")
        elif word == "redeem":
            call_id, _, expected = rest.partition(" # ")
            self.ran(call_id, self.permits[call_id].pop(0), expected)
        elif word == "drop":
            self.permits[rest].pop(0).drop()
        elif word in ("approve", "grant"):
            call_id, _, expected = rest.partition(" # ")
            call_id, _, people = call_id.partition(" by ")
            question = self.questions[call_id].pop(0)
            try:
                permit = question.approve(
                    for_session=word == "grant", by=people.split(", ") if people else None
                )
            except flowgate.Denied as denied:
                check_outcome("deny", denied.verdict.why, expected)
            else:
                self.ran(call_id, permit, expected)
        elif word == "runs":
            call_id, _, expected = rest.partition(" ")
            assert self.running[call_id].arguments_json == expected
        elif word == "label":
            path, _, expected = rest.partition(": ")
            assert self.last is not None
            assert ", ".join(self.last.label_of(path).description) == expected
        elif word == "tools":
            self.monitor.declare_tools(rest.split())
        else:
            pytest.fail(f"unknown word `{word}`")

    def push(self, text: str, push) -> None:
        head, separator, expected = text.rpartition(" # finding ")
        text = head if separator else text
        text, twin_separator, twin = text.partition(" ~~ ")
        self.last = push(text, json.loads(twin) if twin_separator else None)
        found = "; ".join(finding.message for finding in self.last.findings)
        if separator:
            assert expected.strip() in found
        else:
            assert not found

    def judged(self, call_id: str, verdict: flowgate.Verdict, expected: str, *, runs: bool) -> None:
        match verdict:
            case flowgate.Permit() if runs:
                self.note(call_id, verdict.redeem())
            case flowgate.Permit():
                self.permits.setdefault(call_id, []).append(verdict)
            case flowgate.Confirm():
                self.questions.setdefault(call_id, []).append(verdict)
        assert bool(verdict) == (verdict.outcome == "permit")
        check_outcome(verdict.outcome, verdict.why, expected)

    def ran(self, call_id: str, permit: flowgate.Permit, expected: str) -> None:
        try:
            self.note(call_id, permit.redeem())
        except flowgate.Denied as denied:
            check_outcome("deny", denied.verdict.why, expected)
        else:
            check_outcome("permit", "", expected)

    def note(self, call_id: str, call: flowgate.AuthorizedCall) -> None:
        self.running[call_id] = call
        self.last = self.monitor[call.event]

    def attribution(self, text: str) -> flowgate.Attribution:
        decision, arguments = None, {}
        for index, part in enumerate(text.split(";")):
            name, separator, sources = part.partition("=")
            if separator:
                arguments[name.strip()] = self.sources(sources)
            else:
                assert index == 0, part
                decision = self.sources(part)
                arguments.update(dict.fromkeys(ARGUMENTS, decision))
        return flowgate.Attribution(decision if decision is not None else "everything", arguments, method="spec")

    def sources(self, text: str) -> list[tuple[int, str]]:
        regions = []
        for source in (part.strip() for part in text.split(",")):
            if source == "nowhere":
                continue
            name, _, path = source.partition(".")
            events = [
                event
                for event in self.monitor.events
                if (event.kind == "message" and event.role == name) or (event.kind == "output" and event.call_id == name)
            ]
            regions.append((events[-1].index, path or "content"))
        return regions


def standing_of(line: str) -> tuple[dict, str]:
    """Split `[agent < parent, parent] line`."""
    if not line.startswith("[") or "] " not in line:
        return {}, line
    head, _, rest = line[1:].partition("] ")
    agent, _, parents = head.partition("<")
    agent = agent.strip()
    standing = {"parents": [parent.strip() for parent in parents.split(",") if parent.strip()]}
    if agent and agent != "main":
        standing["agent"] = agent
    return standing, rest


def check_outcome(outcome: str, why: str, expected: str) -> None:
    word, _, reason = expected.strip().partition(": ")
    assert (outcome, reason in why) == (word, True), f"expected {expected!r}, found {outcome}: {why}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_specification(path: Path) -> None:
    policy: flowgate.Policy | str | None = None
    imported: dict[str, str] = {}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "flow":
            policy = policy_of(block, imported)
        elif block.language.startswith("flow "):
            imported[block.language.removeprefix("flow ")] = block.text
        elif block.language == "error":
            assert policy == block.text.strip(), f"{path.name}:{block.line}"
        elif block.language == "trace":
            assert isinstance(policy, flowgate.Policy), f"{path.name}:{block.line}: {policy}"
            run_block(policy, block, path.name)
        else:
            assert block.language in ("", "text")


def run_block(policy: flowgate.Policy, block: Block, name: str) -> None:
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(block.lines):
        if line.startswith("    ") and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + "\n" + line[4:])
        elif line.strip() and not line.startswith("#"):
            lines.append((block.line + number, line))
    fuel = int(lines.pop(0)[1][5:]) if lines and lines[0][1].startswith("fuel ") else None
    session = Session(policy, fuel)
    for number, line in lines:
        try:
            session.step(line)
        except Exception as error:
            message = f"{name}:{number}: {line}"
            raise AssertionError(message) from error


def test_all_traces_are_run() -> None:
    traces = sum(block.language == "trace" for path in FILES for block in blocks(path.read_text(encoding="utf-8")))
    assert traces >= 100
