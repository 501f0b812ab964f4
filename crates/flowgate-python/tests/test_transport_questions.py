"""The budget of questions of a transport that guards whole conversations, with doubles of the HTTP client's library and of the provider."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import flowgate
from flowgate.adapters.transport import CONVERSATION, AsyncGuardedTransport, GuardedTransport

POLICY = flowgate.Policy("""
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
label out.content as trusted if:
    (out: ToolOutput) is tool:pay
require trusted if:
    (call: ToolCall) is tool:pay
ask "payments are confirmed" if:
    (call: ToolCall) is tool:pay
""")
TOOLS = [{"type": "function", "function": {"name": "pay", "description": "Pays.", "parameters": {"type": "object"}}}]


class Url:
    path = "/v1/chat/completions"


class Request:
    """A request, as far as a transport reads it."""

    def __init__(self, method: str, url: Any, *, headers: Any = None, json: Any = None, extensions: Any = None) -> None:
        self.method, self.url, self.headers, self.extensions = method, url, dict(headers or {}), extensions
        self.body = _json(json)

    def read(self) -> bytes:
        return self.body

    async def aread(self) -> bytes:
        return self.body


class Response:
    """A response, as far as a transport and its client read it."""

    def __init__(self, status_code: int, *, json: Any = None, request: Any = None) -> None:
        self.status_code, self.body, self.request = status_code, json, request

    def json(self) -> Any:
        return self.body

    def read(self) -> None: ...

    async def aread(self) -> None: ...


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


class Provider:
    """A model that makes so many different payments, one for each message, and then says that it is done. It makes each `copies` times."""

    def __init__(self) -> None:
        self.left = self.paid = 0
        self.copies = 1
        self.shown = ""

    def handle_request(self, request: Request) -> Response:
        self.shown = request.body.decode()
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if self.left:
            self.left, self.paid = self.left - 1, self.paid + 1
            function = {"name": "pay", "arguments": json.dumps({"amount": self.paid})}
            calls = [{"id": f"c{self.paid}_{copy}", "type": "function", "function": function} for copy in range(self.copies)]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        reason = "tool_calls" if message["content"] is None else "stop"
        return Response(200, json={"choices": [{"index": 0, "message": message, "finish_reason": reason}]})

    async def handle_async_request(self, request: Request) -> Response:
        return self.handle_request(request)


class Agent:
    """An agent behind a transport, and the person who is asked."""

    def __init__(self, answers: list[Any], *, trust: bool = True, **limits: int) -> None:
        self.now, self.answers, self.questions = 0.0, answers, 0
        self.provider = Provider()
        self.chats: dict[str, list[Any]] = {}
        self.transport = GuardedTransport(
            POLICY,
            trust_user_messages=trust,
            transport=self.provider,
            approve=self.approve,
            clock=lambda: self.now,
            **limits,
        )

    def approve(self, question: flowgate.Approve) -> Any:
        """Give the next answer; a number is a yes after so many seconds. Without further answers, refuse."""
        self.questions += 1
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, Exception):
            raise answer
        if type(answer) is int:
            self.now += answer
            return True
        return answer

    def says(self, name: str, text: str | None, payments: int) -> int:
        """Send a message of the user, or with `None` the same chat again. Return how many questions are asked."""
        chat = self.chats.setdefault(name, [])
        if text is not None:
            chat.append({"role": "user", "content": text})
        self.provider.left, before = payments, self.questions
        body = {"model": "m", "messages": chat, "tools": TOOLS}
        request = Request("POST", Url(), headers={CONVERSATION: name}, json=body)
        try:
            answer = self.transport.handle_request(request).body["choices"][0]["message"]
        except OSError:
            return self.questions - before
        # The agent runs the payments that it is handed over, and continues.
        while answer.get("tool_calls"):
            chat.append(answer)
            chat += [{"role": "tool", "tool_call_id": call["id"], "content": "paid"} for call in answer["tool_calls"]]
            request = Request("POST", Url(), headers={CONVERSATION: name}, json=body)
            answer = self.transport.handle_request(request).body["choices"][0]["message"]
        if text is not None:
            chat.append(answer)
        return self.questions - before


LIMIT = {"max_refusals_in_row": 3}
LATE = 10**9


@pytest.mark.parametrize(
    ("steps", "answers", "settings", "expected"),
    [
        ([("a", "Pay.", 5)], [], LIMIT, [3]),
        # The default.
        ([("a", "Pay.", 9)], [], {}, [5]),
        # A message of the user ends the row, if a person types it.
        ([("a", "Pay.", 5), ("a", "Again.", 5)], [], LIMIT, [3, 3]),
        ([("a", "Pay.", 5), ("a", "Again.", 5)], [], {**LIMIT, "trust": False}, [3, 0]),
        # The same chat again does not.
        ([("a", "Pay.", 5), ("a", None, 5)], [], LIMIT, [3, 0]),
        # An approval does; then three more are asked.
        ([("a", "Pay.", 9)], [False, False, True], LIMIT, [6]),
        ([("a", "Pay.", 9)], [False, False, "allow"], LIMIT, [6]),
        # What is no approval is a refusal: a late answer, and an approver that fails.
        ([("a", "Pay.", 9)], [False, False, LATE], LIMIT, [3]),
        ([("a", "Pay.", 9), ("a", None, 9), ("a", None, 9)], [OSError(), False, OSError()], LIMIT, [1, 2, 0]),
        # The number of questions stays used up.
        ([("a", "Pay.", 5), ("a", "Again.", 5)], [True] * 9, {"max_questions": 2}, [2, 0]),
        # Another conversation has a row of its own, and does not evade the one of all conversations.
        ([("a", "Pay.", 5), ("b", "Pay.", 5)], [], LIMIT, [3, 3]),
        ([(name, "Pay.", 5) for name in "abc"], [], {**LIMIT, "max_refusals_in_row_of_all": 7}, [3, 3, 1]),
        ([(str(name), "Pay.", 9) for name in range(6)], [], {}, [5, 5, 5, 5, 0, 0]),
        ([("a", "Pay.", 3), ("a", "Again.", 3)], [], {**LIMIT, "max_refusals_in_row_of_all": 3}, [3, 0]),
        (
            [("a", "Pay.", 4), ("b", "Pay.", 9)],
            [False, False, False, False, True],
            {"max_refusals_in_row_of_all": 5},
            [4, 6],
        ),
    ],
)
def test_a_flood_of_questions_gets_refusals(
    steps: list[Any], answers: list[Any], settings: dict[str, Any], expected: list[int]
) -> None:
    agent = Agent(list(answers), **settings)
    assert [agent.says(*step) for step in steps] == expected


def test_a_refusal_covers_the_equal_calls_of_a_message() -> None:
    agent = Agent([False, True, True, True, False])
    agent.provider.copies = 3
    # A refusal covers all three, and an approval one.
    assert (agent.says("a", "Pay.", 1), agent.says("a", "Pay.", 1), agent.says("a", "Pay.", 1)) == (1, 3, 1)


def test_people_are_asked_again_after_an_hour() -> None:
    agent = Agent([], max_refusals_in_row_of_all=2)
    assert agent.says("a", "Pay.", 5) == 2
    agent.now = 3599.0
    assert agent.says("b", "Pay.", 5) == 0
    agent.now = 3600.0
    assert agent.says("c", "Pay.", 5) == 2


def test_the_model_learns_that_nobody_was_asked() -> None:
    agent = Agent([], max_refusals_in_row=1)
    agent.says("a", "Pay.", 2)
    assert "no person was asked, because there were too many questions" in agent.provider.shown


def test_questions_of_several_conversations_at_the_same_time() -> None:
    """What is asked already can still be answered; afterwards the refusals of all conversations count together."""
    provider, questions = Provider(), []
    limits = {"max_refusals_in_row_of_all": 2}

    async def approve(question: flowgate.Approve) -> bool:
        questions.append(question)
        await asyncio.sleep(0)
        return False

    transport = AsyncGuardedTransport(POLICY, trust_user_messages=True, transport=provider, approve=approve, **limits)

    async def says(name: str) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "Pay."}], "tools": TOOLS}
        await transport.handle_async_request(Request("POST", Url(), headers={CONVERSATION: name}, json=body))

    async def all_of_them() -> None:
        provider.left = 12
        await asyncio.gather(*(says(name) for name in "abcd"))
        # Two refusals, and what was asked before the second one.
        asked = len(questions)
        assert 2 <= asked <= 2 + 3
        provider.left = 5
        await says("e")
        assert len(questions) == asked

    asyncio.run(all_of_them())
