"""A node of LangGraph that judges the calls of the last message and runs what may run. A question is an interrupt.

    tools = GuardedToolNode([read_page, pay], policy)
    graph.add_node("tools", tools.as_node())
    ...
    graph.invoke(Command(resume=True), config)     # a person allows the call that the interrupt is about

The node replaces `ToolNode`. It keeps one session for each thread. Every call counts as influenced by everything that the agent has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langgraph.types import interrupt

from .._flowgate import Confirm, Permit, Policy
from ..errors import Denied
from ._session import AgentSession as _AgentSession
from ._session import refusal

__all__ = ["AgentSession", "GuardedToolNode"]

_MOST_SESSIONS = 10_000


class AgentSession(_AgentSession):
    """One thread of a graph, and the calls of it that have run."""

    def __init__(self, policy: Policy, **settings: Any) -> None:
        """Create a session. The settings are those of `Monitor`."""
        super().__init__(policy, **settings)
        # A node runs again from its beginning after an interrupt; its calls must not.
        self.answers: dict[str, ToolMessage] = {}
        self._given: set[tuple[str, str]] = set()

    def answer(self, call_id: str, answer: ToolMessage) -> None:
        """Remember the answer to a call, with the id of the call in this session."""
        self.answers[call_id] = answer
        self._given.add((answer.tool_call_id, str(answer.content)))

    def see(self, messages: Sequence[BaseMessage]) -> None:
        """Add the messages that the session has not seen."""
        for index, message in enumerate(messages):
            key = message.id or (index, message.type, str(message.content))
            match message:
                case HumanMessage():
                    self.message(key, "user", message.content)
                case SystemMessage():
                    self.message(key, "system", message.content)
                case ToolMessage() if (message.tool_call_id, str(message.content)) in self._given:
                    pass
                case ToolMessage() if not self.has_seen(key):
                    # An output that this node has not produced: it is labelled as what nobody has asked for.
                    self.message(key, "tool", None)
                    self.monitor.tool_output(message.tool_call_id, message.content, is_error=None)
                case ToolMessage():
                    pass
                case AIMessage():
                    self.message(key, "assistant", message.content)
                case _:
                    self.message(key, message.type, message.content)


_Step = tuple[BaseTool, dict[str, Any]]


class GuardedToolNode:
    """Judges the calls of the last message of a state, and runs what may run."""

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        policy: Policy,
        *,
        messages_key: str = "messages",
        **settings: Any,
    ) -> None:
        """Create a node. The settings are those of `Monitor`."""
        made = [tool if isinstance(tool, BaseTool) else as_tool(tool) for tool in tools]
        self._tools = {tool.name: tool for tool in made}
        self._policy, self._settings, self._key = policy, settings, messages_key
        self._sessions: dict[str, AgentSession] = {}

    def session(self, thread: str = "") -> AgentSession:
        """Return the session of a thread."""
        if thread not in self._sessions:
            if len(self._sessions) >= _MOST_SESSIONS:
                message = f"the node has {_MOST_SESSIONS} threads: create another one"
                raise RuntimeError(message)
            self._sessions[thread] = AgentSession(self._policy, **self._settings)
        return self._sessions[thread]

    def as_node(self) -> RunnableLambda[Any, Any]:
        """Return the node for `StateGraph.add_node`, synchronous and asynchronous."""
        return RunnableLambda(self._invoke, afunc=self._ainvoke, name="tools")

    def _invoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        steps = self._steps(state, config)
        answer: Any = None
        while True:
            try:
                tool, arguments = steps.send(answer)
            except StopIteration as stopped:
                return {self._key: stopped.value}
            try:
                answer = (tool.invoke(arguments, config), None)
            except Exception as error:  # noqa: BLE001 - the generator records it and raises it again
                answer = (None, error)

    async def _ainvoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        steps = self._steps(state, config)
        answer: Any = None
        while True:
            try:
                tool, arguments = steps.send(answer)
            except StopIteration as stopped:
                return {self._key: stopped.value}
            try:
                answer = (await tool.ainvoke(arguments, config), None)
            except Exception as error:  # noqa: BLE001 - the generator records it and raises it again
                answer = (None, error)

    def _steps(self, state: Any, config: RunnableConfig) -> Generator[_Step, Any, list[ToolMessage]]:
        """Judge the calls one after the other. Yields a tool with its arguments for each call that runs."""
        messages = state[self._key] if isinstance(state, dict) else getattr(state, self._key)
        session = self.session(str(config.get("configurable", {}).get("thread_id", "")))
        session.see(messages)
        answers = []
        for call in messages[-1].tool_calls:
            # Some servers number the calls of each message from 0.
            call_id = f"{messages[-1].id or len(messages)}:{call['id']}"
            if call_id not in session.answers:
                session.answer(call_id, (yield from self._answer(session, call, call_id)))
            answers.append(session.answers[call_id])
        return answers

    def _answer(self, session: AgentSession, call: Any, call_id: str) -> Generator[_Step, Any, ToolMessage]:
        name, arguments = call["name"], call["args"]

        def message(text: Any, status: Any = "error") -> ToolMessage:
            return ToolMessage(text, tool_call_id=str(call["id"]), name=name, status=status)

        verdict: Any = session.judge(name, arguments, call_id)
        try:
            if isinstance(verdict, Confirm) and _allows(interrupt(_question(verdict, call_id))):
                verdict = verdict.approve()
            running = session.begin(verdict) if isinstance(verdict, Permit) else None
        except Denied as denied:
            verdict, running = denied.verdict, None
        if running is None:
            return message(refusal(verdict))
        tool = self._tools.get(name)
        if tool is None:
            session.end(call_id, "the tool does not exist", is_error=True)
            return message("the tool does not exist")
        output, error = yield tool, running.arguments
        if error is not None:
            text = f"the tool raised {type(error).__name__}"
            session.end(call_id, text, is_error=True)
            return message(text)
        session.end(call_id, output)
        return message(output if isinstance(output, (str, list)) else str(output), "success")


def _question(verdict: Confirm, call_id: str) -> dict[str, Any]:
    """Return the value of the interrupt: what a person is shown."""
    return {
        "type": "flowgate_question",
        "call_id": call_id,
        "tool": str(verdict.tool),
        "arguments": verdict.arguments,
        "summary": verdict.summary,
        "evidence": verdict.evidence,
        "reasons": [reason.message for reason in verdict.reasons],
    }


def _allows(answer: Any) -> bool:
    """Whether the value with which the graph was resumed allows the call: `True` or `{"allow": True}`, and nothing else."""
    return answer is True or (isinstance(answer, dict) and answer.get("allow") is True)
