"""Guards whole conversations of any client that takes a transport of `httpx` or `httpx2`, in this process.

    client = openai.AsyncOpenAI(http_client=httpx.AsyncClient(transport=AsyncGuardedTransport(policy, trust_user_messages=True)))

The agent changes nothing else. Its requests pass through a guarded conversation, as through the gateway: the model is sent only what the
next step may depend on, hidden text passes through slots and `look`, and the agent receives only calls that were judged. It runs them
and sends their outputs, which the policy labels.

OpenAI's chat completions and responses and Anthropic's messages are guarded; other requests that send something are refused. One
transport has one conversation for each value of the header `x-flowgate-conversation`, and one for requests without it.

A text that provokes questions gets refusals: nobody is asked about a conversation any more after `max_refusals_in_row` refusals without
an approval between them, until its user writes again, or after `max_questions` questions. The user writes again with a request that ends
with a new message of the user, if `trust_user_messages` says that a person types it. Another conversation does not evade this: after
`max_refusals_in_row_of_all` refusals within an hour and without an approval between them, in any conversations, nobody is asked until
the hour is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from .._flowgate import Approve, Complete, Conversation, Fill, Policy, Run, Screen, Turn
from .._questions import QuestionBudget, RecentRefusals, is_approval, is_refusal
from ..errors import FlowgateError

__all__ = ["CONVERSATION", "AsyncGuardedTransport", "GuardedTransport"]

CONVERSATION = "x-flowgate-conversation"
_APIS = {"/chat/completions": "openai", "/responses": "responses", "/messages": "anthropic"}
_MOST_CONVERSATIONS = 10_000

_Step = tuple[str, Any]


def _library(request: Any) -> Any:
    """Return the library that a request belongs to: `httpx`, or its successor with the same interface."""
    return sys.modules[type(request).__module__.partition(".")[0]]


class _Guard:
    """The conversations of a transport, and how a request is answered. It does no I/O."""

    def __init__(
        self,
        policy: Policy,
        *,
        trust_user_messages: bool,
        approve: Callable[[Approve], Any] | None = None,
        pinned: Sequence[str] = (),
        prefixes: Mapping[str, str] | None = None,
        method: str = "lowest-first",
        on_turn: Callable[[str, Turn], None] | None = None,
        max_questions: int = 100,
        max_refusals_in_row: int = 5,
        max_refusals_in_row_of_all: int = 20,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        self._policy, self._approve, self._on_turn = policy, approve, on_turn
        self._trusts_user, self._clock = trust_user_messages, clock
        self._limits = (max_questions, max_refusals_in_row)
        self._budgets: dict[str, QuestionBudget] = {}
        self._refusals_of_all = RecentRefusals(max_refusals_in_row_of_all, clock)
        self._settings = {
            **settings,
            "method": method,
            "trust_user_messages": trust_user_messages,
            "pinned": list(pinned),
            "prefixes": dict(prefixes or {}),
        }
        self._conversations: dict[str, Conversation] = {}

    def conversation(self, name: str = "") -> Conversation:
        """Return the conversation with this name."""
        if name not in self._conversations:
            if len(self._conversations) >= _MOST_CONVERSATIONS:
                message = f"the transport has {_MOST_CONVERSATIONS} conversations: create another one"
                raise RuntimeError(message)
            self._conversations[name] = Conversation(self._policy, [], key=os.urandom(32), **self._settings)
        return self._conversations[name]

    def approve(self, question: Approve) -> Any:
        return self._approve(question) if self._approve is not None else False

    def _budget(self, name: str) -> QuestionBudget:
        """Return the budget of questions of the conversation with this name."""
        return self._budgets.setdefault(name, QuestionBudget(*self._limits))

    def _decide(self, need: Approve, budget: QuestionBudget) -> Generator[_Step, Any, None]:
        """Ask a person within the budget, and pass the decision to the conversation."""
        if budget.takes_refusal(need.digest):
            need.decide(False)
            return
        if self._approve is not None and not (budget.may_ask and self._refusals_of_all.may_ask):
            need.decide("unasked")
            return
        asked = self._clock()
        budget.asked()
        try:
            answer = yield "ask", need
        except GeneratorExit:
            # The approver has failed, or the request was cancelled.
            self._refusals_of_all.refused()
            need.decide("unanswered")
            raise
        late = self._clock() - asked > need.expires
        if is_approval(answer) and not late:
            budget.allowed()
            self._refusals_of_all.allowed()
        else:
            self._refusals_of_all.refused()
            if is_refusal(answer) and not late:
                budget.refused(need.digest, need.times)
        need.decide("unanswered" if late else answer)

    def serve(self, request: Any, body: bytes) -> Generator[_Step, Any, Any]:
        """Answer a request. Yields `("send", request)` for a request to the provider and `("ask", question)` for a person."""
        api = next((api for path, api in _APIS.items() if request.url.path.endswith(path)), None)
        if api is None or request.method != "POST":
            if request.method in ("GET", "HEAD"):
                return (yield "send", request)
            return _error(request, 403, "this request cannot be guarded: only chats are passed to the provider")
        try:
            asked = json.loads(body)
            name = request.headers.get(CONVERSATION, "")
            conversation, budget = self.conversation(name), self._budget(name)
            before = len(conversation.monitor)
            conversation.accept_request(body.decode(), api)
        except ValueError as error:
            return _error(request, 400, str(error))
        except FlowgateError as error:
            return _error(request, 409, str(error))
        if budget.refusals and self._trusts_user and _ends_with_user(conversation, before):
            budget.resume()
        is_first = True
        while not isinstance(need := conversation.need(), Turn):
            match need:
                case Complete() | Screen() | Fill():
                    sent = need.request(api, model=asked.get("model"))
                    if isinstance(need, Complete):
                        budget.next_message()
                    if isinstance(need, Complete) and is_first and "tool_choice" in asked:
                        sent["tool_choice"] = asked["tool_choice"]
                    is_first = False
                    response = yield "send", _forwarded(request, sent)
                    failure = _accept(need, response)
                    if failure is not None:
                        conversation.stop()
                        return failure
                case Approve():
                    yield from self._decide(need, budget)
                case Run():
                    need.hand_over()
        if self._on_turn is not None:
            self._on_turn(name, need)
        head: dict[str, Any] = {"id": f"flowgate-{os.urandom(8).hex()}", "model": str(asked.get("model", ""))}
        head["created"] = int(time.time())
        if not asked.get("stream"):
            return _library(request).Response(200, json=conversation.respond(need, api, **head), request=request)
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        events = conversation.respond_stream(need, api, usage=usage, **head)
        stream = "".join((f"event: {name}\n" if name else "") + f"data: {data}\n\n" for name, data in events)
        return _library(request).Response(
            200, content=stream.encode(), headers={"content-type": "text/event-stream"}, request=request
        )


def _ends_with_user(conversation: Conversation, before: int) -> bool:
    """Return whether the last message that a request has added, after the first `before` events, is the user's."""
    added = conversation.monitor.events[before:]
    # The schema of the reply is an event after the chat.
    roles = [event.role for event in added if event.role != "response_format"]
    return roles[-1:] == ["user"]


def _accept(need: Complete | Screen | Fill, response: Any) -> Any:
    """Pass a provider's answer to the conversation. Returns the answer for the client if the turn has failed."""
    problem = response if response.status_code >= 400 else None
    if problem is None:
        try:
            need.accept(response.json())
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the answer, the provider sent it
            problem = _error(response.request, 502, f"the answer of the provider cannot be read: {error}")
        else:
            return None
    match need:
        case Complete():
            return None if need.fail() else problem
        case Fill():
            need.fail()
            return None
        case _:
            return problem


def _forwarded(request: Any, body: Mapping[str, Any]) -> Any:
    """Return the request to the provider: with the client's headers, and what the model may be shown."""
    kept = {
        name: value
        for name, value in request.headers.items()
        if name not in ("content-length", "content-type", "transfer-encoding", CONVERSATION)
    }
    create = _library(request).Request
    return create(request.method, request.url, headers=kept, json=dict(body), extensions=request.extensions)


def _error(request: Any, status: int, message: str) -> Any:
    error = {"type": "error", "error": {"type": "flowgate", "message": message}}
    return _library(request).Response(status, json=error, request=request)


class GuardedTransport:
    """A synchronous transport that guards conversations."""

    def __init__(
        self,
        policy: Policy,
        *,
        trust_user_messages: bool,
        transport: Any = None,
        **settings: Any,
    ) -> None:
        """Create a transport.

        `trust_user_messages` says whether what the client sends as the user's is typed by a person, for the policy to trust; an agent
        that pastes pages into the user's messages must say False. `approve` decides on questions and refuses by default; `pinned` are
        messages of the operator, word for word; `prefixes` the servers of tools by the prefixes of their names. `transport` reaches the
        provider. `max_questions`, `max_refusals_in_row` and `max_refusals_in_row_of_all` limit what people are asked. Further settings are
        those of `Conversation`.
        """
        self._guard = _Guard(policy, trust_user_messages=trust_user_messages, **settings)
        self._transport = transport
        self._lock = threading.Lock()

    def conversation(self, name: str = "") -> Conversation:
        """Return the conversation with this name."""
        return self._guard.conversation(name)

    def handle_request(self, request: Any) -> Any:
        """Answer a request; one at a time."""
        with self._lock:
            if self._transport is None:
                self._transport = _library(request).HTTPTransport()
            with contextlib.closing(self._guard.serve(request, request.read())) as steps:
                answer = None
                while True:
                    try:
                        kind, asked = steps.send(answer)
                    except StopIteration as stopped:
                        return stopped.value
                    if kind == "ask":
                        answer = self._guard.approve(asked)
                    else:
                        answer = self._transport.handle_request(asked)
                        answer.request = asked
                        answer.read()

    def close(self) -> None:
        """Close the transport that reaches the provider."""
        if self._transport is not None:
            self._transport.close()

    def __enter__(self) -> GuardedTransport:
        """Enter the context of a client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the context of a client."""
        self.close()


class AsyncGuardedTransport:
    """An asynchronous transport that guards conversations. The approver may be asynchronous."""

    def __init__(
        self,
        policy: Policy,
        *,
        trust_user_messages: bool,
        transport: Any = None,
        **settings: Any,
    ) -> None:
        """Create a transport; the arguments are those of `GuardedTransport`."""
        self._guard = _Guard(policy, trust_user_messages=trust_user_messages, **settings)
        self._transport = transport
        self._locks: dict[str, Any] = {}

    def conversation(self, name: str = "") -> Conversation:
        """Return the conversation with this name."""
        return self._guard.conversation(name)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request; one at a time for each conversation."""
        if self._transport is None:
            self._transport = _library(request).AsyncHTTPTransport()
        lock = self._locks.setdefault(request.headers.get(CONVERSATION, ""), asyncio.Lock())
        body = await request.aread()
        async with lock:
            with contextlib.closing(self._guard.serve(request, body)) as steps:
                answer = None
                while True:
                    try:
                        kind, asked = steps.send(answer)
                    except StopIteration as stopped:
                        return stopped.value
                    if kind == "ask":
                        answer = self._guard.approve(asked)
                        if inspect.isawaitable(answer):
                            answer = await answer
                    else:
                        answer = await self._transport.handle_async_request(asked)
                        answer.request = asked
                        await answer.aread()

    async def aclose(self) -> None:
        """Close the transport that reaches the provider."""
        if self._transport is not None:
            await self._transport.aclose()

    async def __aenter__(self) -> AsyncGuardedTransport:
        """Enter the context of a client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the context of a client."""
        await self.aclose()
