"""Middleware of the Microsoft Agent Framework that judges calls before they run.

    guard = FlowgateMiddleware(policy, approve=ask_a_person)
    agent = Agent(client, tools=[read_page, pay], middleware=guard.middleware)

Every call counts as influenced by everything that the agent has seen. `approve` decides on questions, may be asynchronous, and refuses by
default. One object guards one run of an agent.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import ChatContext, ChatMiddleware, FunctionInvocationContext, FunctionMiddleware, Message

from .._flowgate import Confirm, Permit, Policy
from ..errors import Denied, FlowgateError
from ._session import AgentSession, refusal

__all__ = ["FlowgateMiddleware"]


class FlowgateMiddleware:
    """The middleware of one run, and its session."""

    def __init__(
        self,
        policy: Policy,
        *,
        approve: Callable[[Confirm], bool | Awaitable[bool]] = lambda _: False,
        **settings: Any,
    ) -> None:
        """Create the middleware of one run. The settings are those of `Monitor`."""
        self.session = AgentSession(policy, **settings)
        self._approve = approve

    @property
    def middleware(self) -> list[Any]:
        """The middleware to pass to an agent."""
        return [_Chat(self.session), _Calls(self.session, self._approve)]


class _Chat(ChatMiddleware):
    """Tells the session what the model is shown."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Add the messages that the session has not seen."""
        seen: Counter[tuple[str, str]] = Counter()
        instructions = (context.options or {}).get("instructions")
        if instructions:
            self._session.message(("instructions", instructions), "system", instructions)
        for message in context.messages:
            for content in message.contents:
                self._see(message, content, seen)
        await call_next()

    def _see(self, message: Message, content: Any, seen: Counter[tuple[str, str]]) -> None:
        match content.type:
            case "text":
                # The same text may be said twice.
                key = (str(message.role), str(content.text))
                seen[key] += 1
                self._session.message((*key, seen[key]), str(message.role), content.text)
            case "function_call":
                pass
            case "function_result":
                if not self._session.has_seen(("output", content.call_id)):
                    # An output that no guarded call has given: it is labelled as what nobody has asked for.
                    self._session.message(("output", content.call_id), "tool", None)
                    self._session.monitor.tool_output(str(content.call_id), str(content.result), is_error=None)
            case kind:
                text = json.dumps(content.to_dict(), default=str, sort_keys=True)
                self._session.message((str(message.role), text), str(message.role), [{"type": str(kind), "text": text}])


class _Calls(FunctionMiddleware):
    """Judges calls."""

    def __init__(self, session: AgentSession, approve: Callable[[Confirm], Any]) -> None:
        self._session, self._approve = session, approve

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Judge a call, and run it if it may run."""
        if len(self._session.monitor) == 0:
            message = "the session has seen no message: pass all of `FlowgateMiddleware.middleware` to the agent"
            raise FlowgateError(message)
        call_id = str(context.metadata["call_id"])
        arguments = context.arguments
        verdict: Any = self._session.judge(context.function.name, arguments, call_id)
        self._session.message(("output", call_id), "tool", None)
        try:
            if isinstance(verdict, Confirm) and await self._allows(verdict):
                verdict = verdict.approve()
            running = self._session.begin(verdict) if isinstance(verdict, Permit) else None
        except Denied as denied:
            verdict, running = denied.verdict, None
        if running is None:
            context.result = refusal(verdict)
            return
        try:
            await call_next()
        except BaseException as error:
            self._session.end(call_id, f"the tool raised {type(error).__name__}", is_error=True)
            raise
        self._session.end(call_id, _text(context.result))

    async def _allows(self, question: Confirm) -> bool:
        answer = self._approve(question)
        return (await answer if inspect.isawaitable(answer) else answer) is True


def _text(result: Any) -> str:
    if isinstance(result, list):
        return "\n".join(str(getattr(item, "text", None) or item) for item in result)
    return str(result)
