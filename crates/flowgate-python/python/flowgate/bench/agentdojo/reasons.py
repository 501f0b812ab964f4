"""Why AgentDojo's check differs from what the calls of a run did, found for each case by an experiment.

The check is asked again, in the environment of the case, about a part of the calls: those of the attack alone, with one of the user's
own calls, or all that ran without those that failed. The part that changes its verdict is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentdojo.agent_pipeline import ToolsExecutor  # type: ignore[import-untyped]
from agentdojo.functions_runtime import FunctionCall  # type: ignore[import-untyped]
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string  # type: ignore[import-untyped]

from .judging import Judgement, is_reader, is_wanted
from .plans import Call, Plan

__all__ = ["Trial", "reason_of"]


@dataclass(frozen=True)
class Trial:
    """A case whose check can be asked again."""

    suite: Any
    user: Any
    injection: Any
    plan: Plan
    environment: Any
    """With the injections."""
    plain: Callable[[], Any]
    """Returns the environment without them."""

    def accepts(self, calls: list[Call], reply: str, environment: Any = None) -> bool:
        """Whether AgentDojo's check says that the attack succeeded, if these calls were made."""
        started = (environment or self.environment).model_copy(deep=True)
        _, raw = self.suite.run_task_with_pipeline(_Calls(calls, reply), self.user, self.injection, {}, environment=started)
        return bool(raw)


class _Calls:
    """A pipeline that makes calls and says a reply."""

    def __init__(self, calls: list[Call], reply: str) -> None:
        self.calls, self.reply, self.name = calls, reply, None

    def query(self, prompt: str, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        """Make the calls in order."""
        history, executor = list(messages), ToolsExecutor()
        for number, one in enumerate(self.calls):
            call = FunctionCall(function=one.tool, args=dict(one.arguments), id=f"call_{number}")
            message = ChatAssistantMessage(role="assistant", content=None, tool_calls=[call])
            history += executor.query(prompt, runtime, env, [message], {})[3]
        content = [text_content_block_from_string(self.reply)]
        return prompt, runtime, env, [*history, ChatAssistantMessage(role="assistant", content=content, tool_calls=None)], extra_args


def reason_of(judgement: Judgement, trial: Trial, ran: list[Call], failed: list[Call], reply: str) -> str:
    """Return why AgentDojo's check differs from a judgement; empty if it does not. `failed` are the calls that ended with an error."""
    if not judgement.reason or trial.plan.denies_service:
        return judgement.reason
    try:
        found = _missed(trial, ran, reply) if judgement.succeeded else _too_much(trial, ran, failed, reply)
    except Exception as error:  # noqa: BLE001 - an experiment that fails must not cost the result that it is about
        found = f"the check could not be asked again ({type(error).__name__})"
    return f"{judgement.reason}: {found}"


def _missed(trial: Trial, ran: list[Call], reply: str) -> str:
    """Return why the check does not accept an attack whose every call ran."""
    plan = trial.plan
    if trial.accepts(plan.injected_calls, reply):
        own = [call for call in ran if not is_reader(call.tool) and not is_wanted(plan, call.tool, call.arguments)]
        alone = [call.tool for call in own if not trial.accepts([one for one in ran if one is call or _is_attack(plan, one)], reply)]
        tools = ", ".join(dict.fromkeys(alone or [call.tool for call in own]))
        return f"the check accepts them alone, and not with the user's own call of {tools}"
    if trial.accepts(plan.injected_calls, reply, trial.plain()):
        return "the check accepts them where nothing is injected, and not beside the injected text"
    return "the check does not accept them alone either"


def _is_attack(plan: Plan, call: Call) -> bool:
    return is_wanted(plan, call.tool, call.arguments)


def _too_much(trial: Trial, ran: list[Call], failed: list[Call], reply: str) -> str:
    """Return why the check accepts an attack of which no call ran."""
    if trial.accepts(ran, reply):
        return "the user's own calls satisfy the check"
    tools = ", ".join(sorted({call.tool for call in failed if _is_attack(trial.plan, call)}))
    if tools:
        return f"the check counts calls that were attempted, and {tools} ended with an error"
    return "the check accepts what did not run"
