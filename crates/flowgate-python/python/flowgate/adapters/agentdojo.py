"""An element of AgentDojo's pipelines that judges calls before they run, in place of `ToolsExecutor`.

    loop = ToolsExecutionLoop([GuardedToolsExecutor(policy), llm])
    pipeline = AgentPipeline([SystemMessage(prompt), InitQuery(), llm, loop])

Every call counts as influenced by everything that the agent has seen. `approve` decides on questions, and refuses by default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentdojo.agent_pipeline import ToolsExecutor  # type: ignore[import-untyped]
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-untyped]
from agentdojo.functions_runtime import (  # type: ignore[import-untyped]
    EmptyEnv,
    Env,
    FunctionReturnType,
    FunctionsRuntime,
)
from agentdojo.types import (  # type: ignore[import-untyped]
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from .._flowgate import Confirm, Permit, Policy
from ..errors import Denied
from ._session import AgentSession, refusal

__all__ = ["GuardedToolsExecutor"]


class GuardedToolsExecutor(ToolsExecutor):  # type: ignore[misc]
    """Judges the calls of the last message, and runs what may run."""

    def __init__(
        self,
        policy: Policy,
        *,
        approve: Callable[[Confirm], bool] = lambda _: False,
        tool_output_formatter: Callable[[FunctionReturnType], str] = tool_result_to_str,
        **settings: Any,
    ) -> None:
        """Create an element. The settings are those of `Monitor`."""
        super().__init__(tool_output_formatter)
        self._policy, self._approve, self._settings = policy, approve, settings
        self.session = AgentSession(policy, **settings)
        self.questions: list[Confirm] = []
        self._messages: Sequence[ChatMessage] = []
        self._calls = 0

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = [],
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> tuple[str, FunctionsRuntime, Env, Sequence[ChatMessage], dict[str, Any]]:
        """Judge and run the calls of the last message."""
        if not messages or messages[-1]["role"] != "assistant" or not messages[-1]["tool_calls"]:
            return query, runtime, env, messages, extra_args
        self._see(messages)
        results = []
        for call in messages[-1]["tool_calls"]:
            # Pipelines leave ids out, and repeat them.
            self._calls += 1
            call_id = f"dojo_{self._calls}"
            verdict: Any = self.session.judge(call.function, dict(call.args), call_id)
            try:
                if isinstance(verdict, Confirm):
                    self.questions.append(verdict)
                    if self._approve(verdict) is True:
                        verdict = verdict.approve()
                running = self.session.begin(verdict) if isinstance(verdict, Permit) else None
            except Denied as denied:
                verdict, running = denied.verdict, None
            if running is None:
                content, error = "", refusal(verdict)
            else:
                one = [*messages[:-1], {**messages[-1], "tool_calls": [call]}]
                *_, after, _ = super().query(query, runtime, env, one, extra_args)
                content, error = after[-1]["content"][0]["content"], after[-1]["error"]
                self.session.end(call_id, error if error is not None else content, is_error=error is not None)
            results.append(
                ChatToolResultMessage(
                    role="tool",
                    content=[text_content_block_from_string(content)],
                    tool_call_id=call.id,
                    tool_call=call,
                    error=error,
                )
            )
        self._messages = [*messages, *results]
        return query, runtime, env, self._messages, extra_args

    def _see(self, messages: Sequence[ChatMessage]) -> None:
        """Add what the session has not seen; other beginnings are another task, with a session of its own."""
        known = len(self._messages)
        if known == 0 or list(messages[:known]) != list(self._messages):
            self.session, known = AgentSession(self._policy, **self._settings), 0
        for index, message in enumerate(messages[known:], known):
            text = "\n".join(str(block["content"]) for block in message["content"] or [])
            if message["role"] == "tool":
                self.session.monitor.tool_output(f"foreign_{index}", text, is_error=None)
            else:
                self.session.message(index, message["role"], text)
