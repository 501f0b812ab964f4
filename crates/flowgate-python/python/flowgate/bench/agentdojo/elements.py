"""Elements of AgentDojo's pipelines: a model as a function, a person before every call, and the guarded agent.

A model is a function from the body of an OpenAI request to a `Completion`; `doubles` and `remote` have some. Every element counts
into a `Ledger`, which a run reads afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.agent_pipeline import BasePipelineElement, ToolsExecutor  # type: ignore[import-untyped]
from agentdojo.agent_pipeline.llms.openai_llm import (  # type: ignore[import-untyped]
    _function_to_openai,
    _message_to_openai,
)
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-untyped]
from agentdojo.functions_runtime import EmptyEnv, Env, FunctionCall, FunctionsRuntime  # type: ignore[import-untyped]
from agentdojo.types import (  # type: ignore[import-untyped]
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    get_text_content_as_str,
    text_content_block_from_string,
)

from ..._flowgate import Approve, Policy, Tool
from ...guard import Guard, ToolError
from ...tools import ToolFunction
from .people import Decide
from .texts import OMITTED, message_texts, shown

__all__ = ["ConfirmingAgent", "DetectingExecutor", "GuardedAgent", "Ledger", "ModelElement", "NeededTools", "ask", "serve"]

# The pipelines pass this tuple from element to element: query, runtime, environment, messages, extra arguments.
State = tuple[str, FunctionsRuntime, Env, Sequence[ChatMessage], dict[str, Any]]

# More than any ground truth has, so that no bound of a loop decides a result.
MAX_MESSAGES = 400


def _sees_none(_: str) -> bool:
    return False


def _owns_none(_tool: str, _arguments: dict[str, Any]) -> bool:
    return False


@dataclass
class Ledger:
    """What a run cost, and what was asked."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tokens_are_estimated: bool = False
    questions: list[str] = field(default_factory=list)
    """The tools that a person was asked about, in order."""
    own_questions: list[str] = field(default_factory=list)
    """Those of them whose call is one of the user's ground truth."""
    allowed: int = 0
    fills_shown_attack: int = 0
    attack_shown: bool | None = False
    """Whether the model was shown the injection; `None` if nobody here sees what it is shown."""
    sees_attack: Callable[[str], bool] = _sees_none
    """Whether a text contains an injection of the case."""
    is_of_user: Callable[[str, dict[str, Any]], bool] = _owns_none
    """Whether the user's ground truth has a call."""

    def add_question(self, tool: str, arguments: dict[str, Any]) -> None:
        """Count a question to a person about a call."""
        self.questions.append(tool)
        if self.is_of_user(tool, arguments):
            self.own_questions.append(tool)


class ModelElement(BasePipelineElement):  # type: ignore[misc]
    """A model as a function, in AgentDojo's own pipelines."""

    def __init__(self, model: Any, ledger: Ledger, name: str) -> None:
        """Create an element. Some attacks find a model's name in `name`."""
        self.model, self.ledger, self.name = model, ledger, name

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Ask the model for the next message."""
        request = {
            "messages": [_message_to_openai(message, "gpt-4o") for message in messages],
            "tools": [_function_to_openai(tool) for tool in runtime.functions.values()],
        }
        completion = ask(self.model, request, self.ledger)
        calls = [
            # Ids that a double leaves out are numbered within each message.
            FunctionCall(function=tool, args=json.loads(arguments), id=f"{self.ledger.model_calls}_{call_id}")
            for call_id, tool, arguments in completion.calls
        ]
        message = ChatAssistantMessage(
            role="assistant", content=[text_content_block_from_string(completion.text)], tool_calls=calls or None
        )
        return query, runtime, env, [*messages, message], extra_args


def ask(model: Any, request: dict[str, Any], ledger: Ledger) -> Any:
    """Ask a model for its next message, and count. The tokens of a double are estimated; another model reports its own."""
    ledger.attack_shown = ledger.attack_shown or ledger.sees_attack(shown(request))
    return _asked(model, request, ledger)


def _asked(model: Any, request: dict[str, Any], ledger: Ledger) -> Any:
    ledger.model_calls += 1
    completion = model(request)
    usage = getattr(model, "usage", None)
    if usage is None:
        usage = (_estimated_tokens(request), len(completion.text) // 4 + sum(len(arguments) // 4 for *_, arguments in completion.calls))
        ledger.tokens_are_estimated = True
    ledger.input_tokens += usage[0]
    ledger.output_tokens += usage[1]
    return completion


def _estimated_tokens(request: dict[str, Any]) -> int:
    """Return about how many tokens a request has: one for four characters, also of calls and of tools."""
    calls = sum(len(call["function"]["arguments"]) for message in request["messages"] for call in message.get("tool_calls") or [])
    return (sum(map(len, message_texts(request))) + calls + len(json.dumps(request.get("tools") or []))) // 4


def serve(model: Any, name: str, request: dict[str, Any], ledger: Ledger) -> Any:
    """Have a model fill a slot (`fill`) or screen (`screen`): the double by the method of that name, another model as always."""
    if name == "fill":
        # The regions stand in JSON, which escapes them once more.
        ledger.fills_shown_attack += ledger.sees_attack(shown(request).replace("\\\\", "\\"))
    if not hasattr(model, name):
        return _asked(model, request, ledger)
    ledger.model_calls += 1
    ledger.input_tokens += _estimated_tokens(request)
    return getattr(model, name)(request)


class NeededTools(BasePipelineElement):  # type: ignore[misc]
    """AgentDojo's tool filter with a double in place of its model: it keeps the tools that the user's ground truth calls."""

    def __init__(self, names: set[str]) -> None:
        """Create an element that keeps these tools."""
        self.names = names

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Keep the tools."""
        runtime.update_functions({name: tool for name, tool in runtime.functions.items() if name in self.names})
        return query, runtime, env, messages, extra_args


class DetectingExecutor(ToolsExecutor):  # type: ignore[misc]
    """Runs calls, and leaves out each output in which a detector finds an injection, as AgentDojo's own detectors do."""

    def __init__(self, detect: Callable[[str], bool]) -> None:
        """Create an executor with a detector."""
        super().__init__(tool_result_to_str)
        self.detect = detect

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Run the calls of the last message."""
        query, runtime, env, after, extra_args = super().query(query, runtime, env, messages, extra_args)
        kept = list(after[: len(messages)])
        for message in after[len(messages) :]:
            if message["role"] == "tool" and self.detect(get_text_content_as_str(message["content"] or [])):
                message = {**message, "content": [text_content_block_from_string(OMITTED)]}
            kept.append(message)
        return query, runtime, env, kept, extra_args


class ConfirmingAgent(BasePipelineElement):  # type: ignore[misc]
    """Asks a person before every call, whatever it does, as RTBAS's row *confirm every time*. AgentDojo receives the calls that ran."""

    def __init__(self, model: ModelElement, decide: Decide, ledger: Ledger) -> None:
        """Create an agent with a person who decides on a tool and its arguments."""
        self.model, self.decide, self.ledger = model, decide, ledger
        self.executor = ToolsExecutor(tool_result_to_str)

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Run the user's task to the model's answer."""
        history, wire = list(messages), list(messages)
        for _ in range(MAX_MESSAGES):
            wire = list(self.model.query(query, runtime, env, wire, extra_args)[3])
            message = wire[-1]
            if not message["tool_calls"]:
                break
            for call in message["tool_calls"]:
                self.ledger.add_question(call.function, dict(call.args))
                one = {**message, "tool_calls": [call]}
                if self.decide(call.function, dict(call.args)):
                    self.ledger.allowed += 1
                    result = self.executor.query(query, runtime, env, [one], extra_args)[3][-1]
                    history += [one, result]
                else:
                    result = _result(call, "", "The user refused this call.")
                wire.append(result)
        return query, runtime, env, [*history, {**message, "tool_calls": None}], extra_args


class GuardedAgent(BasePipelineElement):  # type: ignore[misc]
    """A guarded conversation in place of the model and its tool loop. AgentDojo receives the calls that ran."""

    def __init__(
        self,
        policy: Policy,
        method: str,
        model: Any,
        decide: Decide,
        ledger: Ledger,
    ) -> None:
        """Create an agent. `decide` is the person who is asked about a tool and its arguments."""
        self.policy, self.method, self.model, self.decide, self.ledger = policy, method, model, decide, ledger

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Run the user's task to the model's answer."""
        history: list[Any] = list(messages)
        guard = Guard(
            self.policy,
            [self._tool(tool, runtime, env, history) for tool in runtime.functions.values()],
            model=lambda request: ask(self.model, request, self.ledger),
            filler=lambda request: serve(self.model, "fill", request, self.ledger),
            screener=lambda request: serve(self.model, "screen", request, self.ledger),
            approve=self._approve,
            method=self.method,
            key=bytes(32),
            steps=MAX_MESSAGES,
            messages=MAX_MESSAGES,
            # The person of the benchmark answers every question.
            max_questions=sys.maxsize,
            max_refusals_in_row=sys.maxsize,
        )
        if hasattr(self.model, "sees_attack"):
            top = guard.policy.top
            self.model.full = lambda: guard.conversation.view_at(top)
        for message in messages:
            if message["role"] == "system":
                guard.system(get_text_content_as_str(message["content"]))
        content = [text_content_block_from_string(self._run(guard, query))]
        history.append(ChatAssistantMessage(role="assistant", content=content, tool_calls=None))
        return query, runtime, env, history, extra_args

    def _run(self, guard: Guard, query: str) -> str:
        """Run the turn, and return the model's reply."""
        return str(guard.run(query).text)

    def _tool(self, tool: Any, runtime: FunctionsRuntime, env: Env, history: list[Any]) -> ToolFunction:
        def run(**arguments: Any) -> str:
            call = FunctionCall(function=tool.name, args=arguments, id=f"call_{len(history)}")
            result, error = runtime.run_function(env, tool.name, dict(arguments))
            text = "" if error is not None else tool_result_to_str(result)
            history.append(ChatAssistantMessage(role="assistant", content=None, tool_calls=[call]))
            history.append(_result(call, text, error))
            if error is not None:
                raise ToolError(error)
            return str(text)

        schema = tool.parameters.model_json_schema()
        return ToolFunction(function=run, tool=Tool(tool.name), description=tool.description, parameters=schema)

    def _approve(self, question: Approve) -> bool:
        tool = str(question.tool)
        self.ledger.add_question(tool, question.arguments)
        is_allowed = self.decide(tool, question.arguments)
        self.ledger.allowed += is_allowed
        return is_allowed


def _result(call: FunctionCall, text: str, error: str | None) -> ChatToolResultMessage:
    return ChatToolResultMessage(
        role="tool",
        content=[text_content_block_from_string(text)],
        tool_call_id=call.id,
        tool_call=call,
        error=error,
    )
