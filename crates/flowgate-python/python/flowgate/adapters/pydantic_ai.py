"""A toolset of Pydantic AI that judges calls before they run. A question is one of its deferred approvals.

    toolset = GuardedToolset(FunctionToolset([read_page, pay]), session=AgentSession(policy))
    agent = Agent(..., toolsets=[toolset], output_type=[str, DeferredToolRequests])

Every call counts as influenced by everything that the agent has seen. `flowgate.adapters.transport` hides from the model what a call may
not depend on, and guards agents of Pydantic AI as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai import ApprovalRequired, RunContext
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from .._flowgate import Confirm, Permit
from ..errors import Denied
from ._session import AgentSession, refusal

__all__ = ["AgentSession", "GuardedToolset"]


@dataclass(kw_only=True)
class GuardedToolset(WrapperToolset[Any]):
    """Judges the calls of the tools that it wraps, and runs what may run."""

    session: AgentSession

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Judge a call, and run it if it may run."""
        self._see(ctx)
        call_id = str(ctx.tool_call_id)
        verdict: Any = self.session.judge(name, tool_args, call_id)
        if isinstance(verdict, Confirm) and not ctx.tool_call_approved:
            raise ApprovalRequired(
                metadata={
                    "summary": verdict.summary,
                    "evidence": verdict.evidence,
                    "reasons": [reason.message for reason in verdict.reasons],
                }
            )
        try:
            if isinstance(verdict, Confirm):
                verdict = verdict.approve()
            running = self.session.begin(verdict) if isinstance(verdict, Permit) else None
        except Denied as denied:
            verdict, running = denied.verdict, None
        self.session.message(("output", call_id), "tool", None)
        if running is None:
            return refusal(verdict)
        try:
            output = await super().call_tool(name, tool_args, ctx, tool)
        except BaseException as error:
            self.session.end(call_id, f"the tool raised {type(error).__name__}", is_error=True)
            raise
        self.session.end(call_id, output)
        return output

    def _see(self, ctx: RunContext[Any]) -> None:
        """Add the messages that the session has not seen."""
        for index, message in enumerate(ctx.messages):
            if isinstance(message, ModelRequest) and getattr(message, "instructions", None):
                self.session.message(("instructions", message.instructions), "system", message.instructions)
            for number, part in enumerate(message.parts):
                key = (index, number, type(part).__name__, str(getattr(part, "content", "")))
                match part:
                    case SystemPromptPart():
                        self.session.message(key, "system", part.content)
                    case UserPromptPart():
                        content = part.content if isinstance(part.content, str) else [_block(item) for item in part.content]
                        self.session.message(key, "user", content)
                    case ToolReturnPart() if not self.session.has_seen(("output", part.tool_call_id)):
                        # An output that this toolset has not produced: it is labelled as what nobody has asked for.
                        self.session.message(("output", part.tool_call_id), "tool", None)
                        content = part.model_response_str()
                        self.session.monitor.tool_output(part.tool_call_id, content, is_error=None)
                    case TextPart() if isinstance(message, ModelResponse):
                        self.session.message(key, "assistant", part.content)


def _block(item: Any) -> dict[str, Any]:
    text = item if isinstance(item, str) else f"[{type(item).__name__}]"
    return {"type": "text", "text": text}
