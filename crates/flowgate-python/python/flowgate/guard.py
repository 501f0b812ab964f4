"""The guarded conversation with its driver: models, tools and people as Python functions, synchronous or asynchronous.

The driver serves what the conversation needs, exactly as the driver in Rust does; the conversation decides.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._flowgate import (
    Approve,
    Complete,
    Conversation,
    Fill,
    Label,
    Monitor,
    Policy,
    Run,
    Screen,
    Turn,
)
from ._questions import QuestionBudget, is_approval, is_refusal
from .display import html_of_events
from .errors import FlowgateError
from .tools import Toolset

__all__ = ["Guard", "ToolError", "ToolResult"]

Model = Callable[[dict[str, Any]], Any]
Approver = Callable[[Approve], Any]


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong: the text is an output, which the policy labels.

    Of another exception the model learns only the type.
    """


class ToolResult:
    """What a tool returns if it is more than a value: its structured form, whether it is an error, and a label that it carries."""

    __slots__ = ("content", "is_error", "label", "structured")

    def __init__(
        self,
        content: Any,
        *,
        structured: Any = None,
        is_error: bool = False,
        label: Any = None,
    ) -> None:
        """Create a result. It carries at least `label`, in addition to the label that the policy gives it."""
        self.content, self.structured, self.is_error, self.label = content, structured, is_error, label


class Guard:
    """A guarded conversation, the tools that it may call, and what drives it.

    `model` is a function from the body of a request to what the model wrote; `approve` decides on questions and refuses everything by
    default. Either may be asynchronous, and so may tools: then use `arun`.
    """

    def __init__(
        self,
        policy: Policy | str,
        tools: Iterable[Any] | Mapping[str, Any] = (),
        *,
        model: Model | None = None,
        approve: Approver | None = None,
        filler: Model | None = None,
        screener: Model | None = None,
        method: str = "lowest-first",
        api: str = "openai",
        key: bytes | None = None,
        on_event: Callable[[str, Any], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        max_questions: int = 100,
        max_refusals_in_row: int = 5,
        **settings: Any,
    ) -> None:
        """Create a guarded conversation.

        `policy` is a `Policy` or its text; the statements of tools with `@tool` are appended to it. `filler` and `screener` are models
        for slots and for screening, `model` by default. `method` chooses what a step is shown: see `flowgate.methods()`. `api` is the
        format of requests: `openai`, `responses` or `anthropic`. `on_event(kind, need)` observes each need. The other settings are those
        of `Conversation`: `predicates`, `parameters`, `steps`, `expires`, `sampling` and so on.

        Nobody is asked any more after `max_refusals_in_row` refusals without an approval between them, until the user writes again, or
        after `max_questions` questions. Such calls are refused, so that a text that provokes questions gets no tired yes.
        """
        self.tools = Toolset(tools)
        self.policy = _with_tools(policy, self.tools)
        self.model, self.approve = model, approve
        self.filler, self.screener = filler, screener
        self.api, self._on_event, self._clock = api, on_event, clock
        self._budget = QuestionBudget(max_questions, max_refusals_in_row)
        self.conversation = Conversation(
            self.policy, self.tools.offers(), key=key or os.urandom(32), method=method, **settings
        )

    @property
    def monitor(self) -> Monitor:
        """The session as a `Monitor`: events with their labels, grants and consents."""
        return self.conversation.monitor

    @property
    def reply_label(self) -> Label:
        """The label of the last reply, for an agent that called this one."""
        return self.conversation.reply_label

    def system(self, content: Any) -> None:
        """Add the operator's instructions."""
        self.conversation.system(content)

    def context(self, role: str, content: Any) -> None:
        """Add other context, such as retrieved memory. The policy labels it."""
        self.conversation.context(role, content)

    def run(
        self,
        content: Any = None,
        *,
        model: Model | None = None,
        tools: Iterable[Any] | Mapping[str, Any] | None = None,
        approve: Approver | None = None,
    ) -> Turn:
        """Run one turn: from a message of the user to the model's reply. Without `content`, the turn continues."""
        self._begin(content, tools)
        while not isinstance(need := self.conversation.need(), Turn):
            self._observe(need)
            answer = self._ask(need, model, approve)
            _refuse_awaitable(answer)
            self._serve(need, answer)
        self._observe(need)
        return need

    async def arun(
        self,
        content: Any = None,
        *,
        model: Model | None = None,
        tools: Iterable[Any] | Mapping[str, Any] | None = None,
        approve: Approver | None = None,
    ) -> Turn:
        """Run one turn as `run` does; the model, the tools and the approver may be asynchronous."""
        self._begin(content, tools)
        while not isinstance(need := self.conversation.need(), Turn):
            self._observe(need)
            answer = self._ask(need, model, approve)
            if inspect.isawaitable(answer.value):
                answer = await _awaited(answer)
            self._serve(need, answer)
        self._observe(need)
        return need

    def _begin(self, content: Any, tools: Iterable[Any] | Mapping[str, Any] | None) -> None:
        if tools is not None:
            toolset = Toolset(tools)
            if toolset.policy_text():
                message = "a tool with labels or requirements changes the policy: pass it to `Guard(...)`"
                raise FlowgateError(message)
            self.tools = toolset
            self.conversation.offer_tools(toolset.offers())
        if content is not None:
            self.conversation.user(content)
            self._budget.resume()

    def _observe(self, need: Any) -> None:
        if self._on_event is not None:
            self._on_event(need.kind, need)

    def _ask(self, need: Any, model: Model | None, approve: Approver | None) -> _Answer:
        """Ask the function that serves the need. The answer may be awaitable."""
        model = model or self.model
        match need:
            case Complete():
                self._budget.next_message()
                return _Answer.of(_required(model, "model"), need.request(self.api))
            case Screen():
                return _Answer.of(self.screener or _required(model, "model"), need.request(self.api))
            case Fill():
                return _Answer.of(self.filler or _required(model, "model"), need.request(self.api))
            case Approve():
                function = approve or self.approve
                if self._budget.takes_refusal(need.digest):
                    return _Answer(_REFUSED)
                if function is not None and not self._budget.may_ask:
                    return _Answer(_UNASKED)
                asked = self._clock()
                answer = _Answer.of(function or _refuse, need)
                answer.asked = asked
                return answer
            case Run():
                tool = self.tools.get(need.tool)
                if tool is None:
                    return _Answer(ToolResult("the tool has no implementation in this program", is_error=True))
                return _Answer.of(tool.function, **need.arguments)
        message = f"an unknown need: {need!r}"
        raise FlowgateError(message)

    def _serve(self, need: Any, answer: _Answer) -> None:
        """Pass an answer to the conversation."""
        match need:
            case Complete():
                # A model that fails on hidden text reveals a fact about that text, so the failure stays inside.
                if answer.error is None:
                    need.accept(answer.value)
                elif not (isinstance(answer.error, Exception) and need.fail()):
                    self.conversation.stop()
                    raise answer.error
            case Screen():
                self._raise(answer)
                need.accept(answer.value)
            case Fill():
                if answer.error is None:
                    need.accept(answer.value)
                elif isinstance(answer.error, Exception):
                    need.fail()
                else:
                    self._raise(answer)
            case Approve():
                self._decide(need, answer)
            case Run():
                self._output(need, answer)

    def _raise(self, answer: _Answer) -> None:
        if answer.error is not None:
            self.conversation.stop()
            raise answer.error

    def _decide(self, need: Approve, answer: _Answer) -> None:
        if answer.value is _UNASKED:
            need.decide("unasked")
            return
        if answer.value is _REFUSED:
            need.decide(False)
            return
        self._budget.asked()
        if answer.error is not None:
            # An approver that fails has not approved.
            need.decide("unanswered")
            raise answer.error
        late = self._clock() - answer.asked > need.expires
        digest, times = need.digest, need.times
        need.decide("unanswered" if late else answer.value)
        if not late and is_approval(answer.value):
            self._budget.allowed()
        elif not late and is_refusal(answer.value):
            self._budget.refused(digest, times)

    def _output(self, need: Run, answer: _Answer) -> None:
        if answer.error is not None:
            # The text of an exception may come from anywhere, also where the policy trusts what the tool returns.
            text = str(answer.error) if isinstance(answer.error, ToolError) else ""
            need.error(text or f"the tool raised {type(answer.error).__name__}")
            if not isinstance(answer.error, Exception):
                self.conversation.stop()
                raise answer.error
            return
        result = answer.value if isinstance(answer.value, ToolResult) else ToolResult(answer.value)
        need.output(
            text_of(result.content),
            structured=result.structured,
            is_error=result.is_error,
            label=result.label,
        )

    def _repr_html_(self) -> str:
        """Display the labelled events in a notebook."""
        return html_of_events(self.monitor.events)

    def __repr__(self) -> str:
        """Return the tools and the number of events."""
        tools = ", ".join(str(tool) for tool in self.tools)
        return f"Guard({len(self.monitor)} events; tools: {tools or 'none'})"


_UNASKED: Any = object()
"""The answer to a question that nobody is asked, since the budget of questions is used up."""

_REFUSED: Any = object()
"""The answer to a question that nobody is asked, since a person has refused an equal call of the message."""


class _Answer:
    """What a function answered: a value, which may be awaitable, or the exception that it raised."""

    __slots__ = ("asked", "error", "value")

    def __init__(self, value: Any, error: BaseException | None = None, asked: float = 0.0) -> None:
        self.value, self.error, self.asked = value, error, asked

    @classmethod
    def of(cls, function: Callable[..., Any], *args: Any, **kwargs: Any) -> _Answer:
        try:
            return cls(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the caller decides what it means
            return cls(None, error)


async def _awaited(answer: _Answer) -> _Answer:
    try:
        return _Answer(await answer.value, None, answer.asked)
    except BaseException as error:  # noqa: BLE001 - the caller decides what it means
        return _Answer(None, error, answer.asked)


def _refuse_awaitable(answer: _Answer) -> None:
    if inspect.isawaitable(answer.value):
        if inspect.iscoroutine(answer.value):
            answer.value.close()
        answer.error = TypeError("the function is asynchronous: use `await guard.arun(...)`")
        answer.value = None


def _refuse(_: Approve) -> bool:
    """Refuse, for a guard without an approver."""
    return False


def _required(function: Model | None, name: str) -> Model:
    if function is None:
        message = f"the guard has no {name}: pass `{name}=` to `Guard(...)` or to `run(...)`"
        raise FlowgateError(message)
    return function


def _with_tools(policy: Policy | str, tools: Toolset) -> Policy:
    """Return the policy with the statements of the tools appended."""
    statements = tools.policy_text()
    compiled = Policy(policy) if isinstance(policy, str) else policy
    return compiled.with_statements(statements) if statements else compiled


def text_of(value: Any) -> Any:
    """Return a tool's value as an output: a text, or a list of content blocks; anything else becomes JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, dict) and "type" in item for item in value):
        return value
    if value is None:
        return ""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return json.dumps(value, ensure_ascii=False, default=str)
