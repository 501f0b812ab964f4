"""An interceptor of AGENT-HOOKS-0.1, the contract of `agent-hooks-sdk`, for the Microsoft Agent Framework and other hosts.

    guard = FlowgateInterceptor(policy, approve=ask_a_person)
    bundle = create_agent_hooks_middleware([guard], resolver=guard, timeout=None)
    agent = Agent(client, tools=[read_page, pay], middleware=[bundle])

The interceptor keeps one session for each session of the host. Every call counts as influenced by everything that the host has shown of the
session. A question of the policy is a denial that `approve` may lift: the interceptor is its own approval resolver, since no other resolver
tells it that a person has allowed the call. It never transforms anything.

If the agent uses Flowgate's gateway as its base URL, the interceptor asks the gateway about each call (`gateway`, `key`): a call runs only
if the gateway has handed it over. With the same policy, the interceptor judges the call at the label at which the gateway has judged it.

The host is trusted to show what it does, as the contract says. Where it has not shown something, labels rise: a session whose start was not
seen, a message that no earlier event has shown, and an output that no permitted call has asked for.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from agent_hooks import ApprovalOutcome, ApprovalRequest, ApprovalResolution, Verdict

from .._flowgate import Attribution, AuthorizedCall, Confirm, Event, Permit, Policy
from ..errors import Denied
from ..guard import text_of
from ._handed_calls import HandedCalls, NotHandedOverError
from ._session import AgentSession, refusal

__all__ = ["FlowgateInterceptor", "HookSession"]

_DENIED = "flowgate:denied"
_NOT_HANDED_OVER = "flowgate:not_handed_over"
_QUESTION = "flowgate:question"
_WITHHELD = "flowgate:withheld"
_NOT_JUDGED = "flowgate:not_judged"
_WITHHOLDING_KINDS = frozenset(["rule", "rule-error", "limit"])


class HookSession(AgentSession):
    """One session of a host: what its model was shown, and the calls that run or wait for a person."""

    def __init__(self, policy: Policy, *, is_complete: bool, **settings: Any) -> None:
        """Create a session. `is_complete` says whether its first event was seen; otherwise it is labelled top."""
        super().__init__(policy, **settings)
        self.questions: dict[str, Confirm] = {}
        self.has_seen_messages = False
        # What was said at `input` and `post_model_call`, by role, and how often.
        self.said: Counter[tuple[str, str]] = Counter()
        # The messages and descriptions that were added, by their keys: what was withheld once is withheld whenever it is shown again.
        self.shown: dict[tuple[Any, ...], Event] = {}
        # How many calls have ended under an id, or were refused: each explains one result in the messages.
        self.ended: Counter[str] = Counter()
        # The calls that run, by the id of the host, with their arguments.
        self.running_calls: dict[str, tuple[AuthorizedCall | str, str]] = {}
        self._calls = 0
        if is_complete:
            # The host adds instructions that it does not show.
            self.monitor.message("system", "")
        else:
            self.monitor.message("context/unknown", "", label=policy.top)

    def call_id(self, host_id: str) -> str:
        """Return an id for a call that no other call of the session has."""
        self._calls += 1
        return f"{self._calls}:{host_id}"

    def end_call(self, host_id: str, output: Any, *, is_error: bool) -> Event:
        """Record the output of a call of the host. What no permitted call has asked for is labelled top."""
        self.ended[host_id] += 1
        running, _ = self.running_calls.pop(host_id, (None, ""))
        text = text_of(output)
        if isinstance(running, AuthorizedCall):
            event = running.error(text) if is_error else running.output(text)
        else:
            event = self.monitor.tool_output(running or self.call_id(host_id), text, is_error=is_error)
        if isinstance(text, str):
            # Some hosts show a result without its id.
            self.said["tool", text] += 1
            self.shown["tool", text, self.said["tool", text]] = event
        return event


class FlowgateInterceptor:
    """Judges the events of a host of AGENT-HOOKS-0.1, and asks a person about the calls that need one."""

    def __init__(
        self,
        policy: Policy,
        *,
        approve: Callable[[Confirm], bool | Awaitable[bool]] | None = None,
        gateway: str | None = None,
        key: str | None = None,
        evaluate_only: bool = False,
        max_sessions: int = 1_000,
        **settings: Any,
    ) -> None:
        """Create an interceptor. `approve` decides on questions; without it, a question is a denial that nobody can lift.

        `gateway` is the address of the gateway that the agent uses as its base URL, and `key` the agent's key for it: a call runs only if
        the gateway has handed it over. Without them, the gateway and the interceptor judge calls separately.

        `evaluate_only` must be true if the host only records verdicts: the calls that were denied then run as well. Beyond
        `max_sessions` sessions, the one that was used longest ago is forgotten, and labelled top if the host continues it. The
        other settings are those of `Monitor`.
        """
        if (gateway is None) != (key is None):
            message = "`gateway` and `key` belong together: give both, or neither"
            raise ValueError(message)
        self._handed_calls = HandedCalls(gateway, key, policy) if gateway is not None and key is not None else None
        self._policy, self._settings = policy, settings
        self._approve, self._evaluate_only, self._max_sessions = approve, evaluate_only, max_sessions
        self._sessions: OrderedDict[str, HookSession] = OrderedDict()

    def session(self, session_id: str) -> HookSession | None:
        """Return the session with this id of the host; `None` if it was not seen, or has ended."""
        return self._sessions.get(session_id)

    def intercept(self, context: dict[str, Any], /) -> Verdict | Awaitable[Verdict]:
        """Judge an event. An event that has not the form of the contract raises, which the host takes as a denial.

        The verdict on a call is awaitable if a gateway has to be asked.
        """
        session_id = str(context["session"]["id"])
        session = self._sessions.get(session_id)
        if session is None:
            session = HookSession(self._policy, is_complete=context["sequence"] == 0, **self._settings)
            self._sessions[session_id] = session
            while len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session_id)
        match context["interception_point"]:
            case "agent_startup":
                return Verdict.allow()
            case "agent_shutdown":
                self._sessions.pop(session_id, None)
                return Verdict.allow()
            case "input":
                return self._withhold(session, list(_input(session, context["input"])))
            case "pre_model_call":
                session.has_seen_messages = True
                return self._withhold(session, [*_tools(session, context.get("tools")), *_messages(session, context["messages"])])
            case "post_model_call":
                return self._withhold(session, list(_response(session, context["response"]["content"])))
            case "pre_tool_call":
                if self._handed_calls is not None:
                    return self._ask_and_judge(self._handed_calls, session, context["tool_call"])
                return self._judge(session, context["tool_call"])
            case "post_tool_call":
                return self._end(session, context["tool_call"], context["tool_result"])
            case "output":
                return self._withhold(session, list(_output(session, context["output"]["content"])))
            case point:
                return Verdict.deny(reason=_NOT_JUDGED, message=f"flowgate does not judge the interception point {str(point)[:40]!r}")

    async def resolve(self, request: ApprovalRequest, /) -> ApprovalResolution:
        """Ask a person about a call. A request that is not about a question of this interceptor stays unresolved."""

        def resolution(outcome: ApprovalOutcome, verdict: Verdict | None) -> ApprovalResolution:
            return ApprovalResolution(outcome=outcome, context_identity=request.context_identity, verdict=verdict)

        context = request.context
        session = self._sessions.get(str(context.get("session", {}).get("id")))
        host_id = str(context.get("tool_call", {}).get("id"))
        question = session.questions.pop(host_id, None) if session and request.verdict.reason == _QUESTION else None
        if session is None or question is None or self._approve is None:
            return resolution(ApprovalOutcome.UNRESOLVED, None)
        arguments = _canonical(context["tool_call"]["args"])
        answer = self._approve(question)
        allows = (await answer if inspect.isawaitable(answer) else answer) is True
        try:
            if allows and arguments == _canonical(question.arguments):
                session.running_calls[host_id] = (question.approve().redeem(), arguments)
                return resolution(ApprovalOutcome.APPROVE, Verdict.allow())
        except Denied as denied:
            session.ended[host_id] += 1
            return resolution(ApprovalOutcome.REJECT, Verdict.deny(reason=_DENIED, message=refusal(denied.verdict)))
        session.ended[host_id] += 1
        return resolution(ApprovalOutcome.REJECT, Verdict.deny(reason=_DENIED, message=refusal(question)))

    async def _ask_and_judge(self, handed_calls: HandedCalls, session: HookSession, call: dict[str, Any]) -> Verdict:
        """Judge a call, and deny it if the gateway has not handed it over."""
        try:
            attribution = await asyncio.to_thread(handed_calls.attribution, str(call["id"]), str(call["name"]), call["args"])
        except NotHandedOverError as error:
            return self._judge(session, call, refused=str(error))
        return self._judge(session, call, attribution)

    def _judge(
        self, session: HookSession, call: dict[str, Any], attribution: Attribution | None = None, *, refused: str | None = None
    ) -> Verdict:
        """Judge a call that depends on what `attribution` says, by default on everything. `refused` is why it does not run in any case."""
        host_id, tool, arguments = str(call["id"]), str(call["name"]), call["args"]
        session.questions.pop(host_id, None)
        if not session.has_seen_messages:
            message = "flowgate has not seen what the model was shown: register it for all interception points"
            return Verdict.deny(reason=_NOT_JUDGED, message=message)
        if host_id in session.running_calls:
            return Verdict.deny(reason=_NOT_JUDGED, message="another call with the same id is still running")
        call_id = session.call_id(host_id)
        if self._evaluate_only:
            outcome, reasons, _ = session.monitor.record(tool, arguments, id=call_id, attribution=attribution)
            session.running_calls[host_id] = (call_id, _canonical(arguments))
            if refused is not None:
                return Verdict.deny(reason=_NOT_HANDED_OVER, message=refused)
            why = "; ".join(reason.message for reason in reasons)
            return Verdict.allow() if outcome == "permit" else Verdict.deny(reason=_DENIED if outcome == "deny" else _QUESTION, message=why)
        if refused is not None:
            # The host shows the model the refusal in place of a result.
            session.ended[host_id] += 1
            return Verdict.deny(reason=_NOT_HANDED_OVER, message=refused)
        verdict = session.judge(tool, arguments, call_id, attribution)
        try:
            if isinstance(verdict, Permit):
                session.running_calls[host_id] = (verdict.redeem(), _canonical(arguments))
                return Verdict.allow()
        except Denied as denied:
            return Verdict.deny(reason=_DENIED, message=refusal(denied.verdict))
        if isinstance(verdict, Confirm) and self._approve is not None:
            session.questions[host_id] = verdict
            return Verdict.escalate(reason=_QUESTION, message=refusal(verdict))
        # The host shows the model the refusal in place of a result.
        session.ended[host_id] += 1
        return Verdict.deny(reason=_QUESTION if isinstance(verdict, Confirm) else _DENIED, message=refusal(verdict))

    def _end(self, session: HookSession, call: dict[str, Any], result: dict[str, Any]) -> Verdict:
        host_id = str(call["id"])
        judged = session.running_calls.get(host_id)
        if judged is not None and judged[1] != _canonical(call["args"]):
            # Another interceptor has changed the arguments afterwards, so nobody has judged what has run.
            session.running_calls.pop(host_id)
            session.end_call(host_id, result["value"], is_error=bool(result["is_error"]))
            message = "the arguments changed after flowgate had judged the call: register it after what changes arguments"
            return Verdict.deny(reason=_NOT_JUDGED, message=message)
        event = session.end_call(host_id, result["value"], is_error=bool(result["is_error"]))
        if judged is None:
            return Verdict.deny(reason=_NOT_JUDGED, message="flowgate has not permitted the call that has given this output")
        return self._withhold(session, [event])

    def _withhold(self, session: HookSession, events: list[Event]) -> Verdict:
        """Return a denial if a rule objects to a new event, or if a model must not read it."""
        clearance = session.monitor.clearance("model")
        for event in events:
            objections = [
                found.reason.message
                for found in event.findings
                if found.reason.kind in _WITHHOLDING_KINDS and found.reason.action != "log"
            ]
            if objections:
                return Verdict.deny(reason=_WITHHELD, message=f"the policy withholds this text: {'; '.join(objections)}")
            if clearance is not None and not event.label.flows_to(clearance):
                message = "the policy withholds this text: its label exceeds the clearance of `model`"
                return Verdict.deny(reason=_WITHHELD, message=message)
        return Verdict.allow()


def _input(session: HookSession, payload: dict[str, Any]) -> Iterator[Event]:
    for inner, kind, text in _parts(str(payload["role"]), payload["content"]):
        role = inner if inner in ("user", "system") else "external"
        session.said[role, text] += 1
        yield from _say(session, (role, text, session.said[role, text]), role, kind, text)


def _tools(session: HookSession, tools: list[dict[str, Any]] | None) -> Iterator[Event]:
    for tool in tools or []:
        key = ("tool", _canonical(tool))
        if tool.get("description"):
            if key not in session.shown:
                session.shown[key] = session.monitor.tool_description(tool["name"], tool["description"])
            yield session.shown[key]


def _messages(session: HookSession, messages: list[dict[str, Any]]) -> Iterator[Event]:
    seen: Counter[tuple[str, str]] = Counter()
    results: Counter[str] = Counter()
    for message in messages:
        role = str(message["role"])
        for inner, kind, text in _parts(role, message["content"]):
            if kind == "function_result":
                host_id, value = json.loads(text)
                results[host_id] += 1
                if host_id in session.running_calls:
                    # The host runs the call without an event for its output, or another interceptor has stopped it.
                    yield session.end_call(host_id, value, is_error=False)
                elif results[host_id] > session.ended[host_id]:
                    # An output that no guarded call has given.
                    yield session.end_call(host_id, value, is_error=False)
                continue
            seen[inner, text] += 1
            known = seen[inner, text] <= session.said[inner, text]
            named = inner if known or inner not in ("user", "assistant") else f"context/{inner}"
            yield from _say(session, (inner, text, seen[inner, text]), named, kind, text)


def _response(session: HookSession, content: Any) -> Iterator[Event]:
    for role, kind, text in _parts("assistant", content):
        if kind == "function_result":
            # Of a tool that the provider runs: the next request repeats it.
            session.ended[json.loads(text)[0]] += 1
        session.said[role, text] += 1
        yield from _say(session, (role, text, session.said[role, text]), role, kind, text)


def _output(session: HookSession, content: Any) -> Iterator[Event]:
    seen: Counter[tuple[str, str]] = Counter()
    for role, kind, text in _parts("assistant", content):
        seen[role, text] += 1
        if kind != "function_result" and seen[role, text] > session.said[role, text]:
            # What another component has put in place of what the model has said.
            yield from _say(session, ("output", role, text), f"context/{role}", kind, text)


def _say(session: HookSession, key: tuple[Any, ...], role: str, kind: str, text: str) -> Iterator[Event]:
    """Add a message, unless it was added before, and yield its event.

    What is neither text nor the model's reasoning has a role of its own, which the policy has to label.
    """
    if not text:
        return
    if key not in session.shown:
        content: Any = text if kind == "text" else [{"type": "text", "text": text}]
        session.shown[key] = session.monitor.message(role if kind == "text" else f"{role}/{kind}", content)
    yield session.shown[key]


def _parts(role: str, content: Any) -> Iterator[tuple[str, str, str]]:
    """Return the parts of a content as role, kind and text.

    The kind of a result is `function_result`, and its text the id and the value as JSON. Calls of the host's tools are no parts:
    they are judged when they run.
    """
    match content:
        case None:
            return
        case str():
            yield role, "text", content
        case list():
            for item in content:
                yield from _parts(role, item)
        case {"role": str(inner), "content": parts}:
            yield from _parts(inner, parts)
        case {"type": "text", "text": str(text)}:
            yield role, "text", text
        case {"type": "text_reasoning"}:
            yield role, "text", str(content.get("text") or "")
        case {"type": "function_call"}:
            return
        case {"type": "function_result", "call_id": call_id, **rest}:
            yield role, "function_result", json.dumps([str(call_id), rest.get("result", rest.get("items"))], default=str)
        case {"type": str(kind)}:
            yield role, kind, _canonical(content)
        case _:
            yield role, "value", _canonical(content)


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
