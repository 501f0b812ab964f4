"""What adapters that judge calls have in common: one monitor for one run of an agent, and the messages that it has seen."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from .._flowgate import Attribution, AuthorizedCall, Confirm, Deny, Monitor, Permit, Policy
from ..guard import text_of

__all__ = ["AgentSession", "refusal"]


def refusal(verdict: Confirm | Deny) -> str:
    """Return the notice that the model receives instead of the result of a call that does not run. It quotes no content."""
    if isinstance(verdict, Deny):
        return f"The call did not run: the policy forbids it. {verdict.why}"
    return f"The call did not run: a person would have to allow it. {verdict.why}"


class AgentSession:
    """One run of an agent under a policy."""

    def __init__(self, policy: Policy, **settings: Any) -> None:
        """Create a session. The settings are those of `Monitor`."""
        self.monitor = Monitor(policy, **settings)
        self._seen: set[Hashable] = set()
        self.running: dict[str, AuthorizedCall] = {}

    def message(self, key: Hashable, role: str, content: Any) -> None:
        """Add a message, unless one with this key was added before."""
        if key in self._seen:
            return
        self._seen.add(key)
        if content not in (None, "", []):
            self.monitor.message(role, content)

    def has_seen(self, key: Hashable) -> bool:
        """Whether a message with this key was added."""
        return key in self._seen

    def judge(self, tool: str, arguments: Any, call_id: str, attribution: Attribution | None = None) -> Permit | Confirm | Deny:
        """Judge a call as influenced by everything that the agent has seen, unless an attribution says otherwise."""
        return self.monitor.judge(tool, arguments, id=call_id, attribution=attribution)

    def begin(self, permit: Permit) -> AuthorizedCall:
        """Redeem a permit: the call runs now."""
        call = permit.redeem()
        self.running[call.id] = call
        return call

    def end(self, call_id: str, output: Any, *, is_error: bool = False) -> None:
        """Record the output of a call that runs. What no call has asked for is labelled top."""
        call = self.running.pop(call_id, None)
        text = text_of(output)
        if call is None:
            self.monitor.tool_output(call_id, text, is_error=is_error)
        elif is_error:
            call.error(text)
        else:
            call.output(text)

    def run(self, permit: Permit, function: Callable[[], Any]) -> Any:
        """Run a call, and record its output. An exception is recorded without its text, and raised again."""
        call = self.begin(permit)
        try:
            output = function()
        except BaseException as error:
            self.running.pop(call.id, None)
            call.error(f"the tool raised {type(error).__name__}")
            raise
        self.end(call.id, output)
        return output
