"""Agents of the OpenAI Agents SDK: calls are judged by tool guardrails, and questions are the SDK's approvals.

    session = AgentSession(policy)
    agent = Agent(..., tools=guard_tools([read_page, pay], session))
    result = await Runner.run(agent, "Pay the bill.", hooks=FlowgateHooks(session))
    for question in result.interruptions:        # a person decides
        print(session.question(question).summary)
        state = result.to_state()
        state.approve(question)

Every call counts as influenced by everything that the agent has seen. `flowgate.adapters.transport` hides from the model what a call may
not depend on, and guards agents of this SDK as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    RunHooks,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
)

from .._flowgate import Attribution, Confirm, Deny, Permit, Policy
from ..errors import Denied, FlowgateError
from ._session import AgentSession as _AgentSession
from ._session import refusal

__all__ = ["AgentSession", "FlowgateHooks", "guard_tools"]


class AgentSession(_AgentSession):
    """One run of an agent, and the questions that it waits for."""

    def __init__(self, policy: Policy, **settings: Any) -> None:
        """Create a session. The settings are those of `Monitor`."""
        super().__init__(policy, **settings)
        self.questions: dict[str, Confirm] = {}

    def judge(self, tool: str, arguments: Any, call_id: str, attribution: Attribution | None = None) -> Permit | Confirm | Deny:
        """Judge a call as influenced by everything that the agent has seen, unless an attribution says otherwise."""
        if len(self.monitor) == 0:
            message = "the session has seen no message: pass `hooks=FlowgateHooks(session)` to the runner"
            raise FlowgateError(message)
        return super().judge(tool, arguments, call_id, attribution)

    def question(self, interruption: Any) -> Confirm:
        """Return the question for an interruption of a run: its summary, evidence and reasons."""
        return self.questions[interruption.raw_item.call_id]


class FlowgateHooks(RunHooks[Any]):
    """Tells a session what the model of an agent is shown."""

    def __init__(self, session: AgentSession) -> None:
        """Create the hooks of a session."""
        self.session = session

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[Any],
    ) -> None:
        """Add the messages that the session has not seen."""
        del context, agent
        if system_prompt:
            self.session.message(("system", system_prompt), "system", system_prompt)
        seen: Counter[str] = Counter()
        for item in input_items:
            text = json.dumps(item, sort_keys=True, default=str)
            # The same message may be said twice.
            seen[text] += 1
            self._add((text, seen[text]), item)

    def _add(self, key: tuple[str, int], item: Any) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self.session.message(key, item.get("role", "user"), _content(item.get("content")))
        elif kind == "function_call_output" and not self.session.has_seen(("output", item.get("call_id"))):
            # An output that no guarded call has given: it is labelled as what nobody has asked for.
            self.session.monitor.tool_output(str(item.get("call_id")), _content(item.get("output")), is_error=None)
            self.session.message(("output", item.get("call_id")), "tool", None)


def _content(content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": block["text"]} if "text" in block else dict(block) for block in content]
    return content if isinstance(content, str) else json.dumps(content, default=str)


def guard_tools(tools: Iterable[Any], session: AgentSession) -> list[Any]:
    """Return the tools of an agent, each with a guardrail and approvals. Tools that the provider runs cannot be guarded."""
    return [_guarded(tool, session) for tool in tools]


def _guarded(tool: Any, session: AgentSession) -> FunctionTool:
    if not isinstance(tool, FunctionTool):
        message = f"{type(tool).__name__} does not run in this process, so its calls cannot be judged"
        raise TypeError(message)

    async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        del context
        verdict = session.judge(tool.name, arguments, call_id)
        match verdict:
            case Confirm():
                session.questions[call_id] = verdict
                return True
            case Permit():
                # It is judged again when it runs.
                verdict.drop()
        return False

    def before(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        context = data.context
        call_id = context.tool_call_id
        verdict: Any = session.questions.get(call_id)
        is_approved = context.is_tool_approved(tool_name=tool.name, call_id=call_id) is True
        if verdict is None or not is_approved:
            verdict = session.judge(tool.name, context.tool_arguments, call_id)
        try:
            if isinstance(verdict, Confirm) and is_approved:
                session.questions.pop(call_id, None)
                verdict = verdict.approve()
            if isinstance(verdict, Permit):
                session.begin(verdict)
                session.message(("output", call_id), "tool", None)
                return ToolGuardrailFunctionOutput.allow()
        except Denied as denied:
            verdict = denied.verdict
        session.message(("output", call_id), "tool", None)
        return ToolGuardrailFunctionOutput.reject_content(refusal(verdict))

    def after(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        session.end(data.context.tool_call_id, data.output)
        return ToolGuardrailFunctionOutput.allow()

    return dataclasses.replace(
        tool,
        needs_approval=needs_approval,
        tool_input_guardrails=[*(tool.tool_input_guardrails or []), ToolInputGuardrail(before, name="flowgate")],
        # The label of an output is recorded before another guardrail can drop it.
        tool_output_guardrails=[ToolOutputGuardrail(after, name="flowgate"), *(tool.tool_output_guardrails or [])],
    )
