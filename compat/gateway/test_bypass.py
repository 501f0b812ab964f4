"""Every place of an upstream's answer that could contain a call or a withheld text, through every route, streamed or not.

The upstream adds a forbidden call and a marker where a gateway might pass content on unexamined: further choices, log-probabilities, older
and newer kinds of calls, calls inside text, unknown fields, pieces in any order, data after the end. The bytes that the agent receives must
contain neither the marker nor a call of the tool.
"""

import json
import urllib.error
import urllib.request

import pytest

from test_faults import Broken, head
from test_gateway import KEY, POLICY, Gateway

MARK = "LEAK4711"
TOOL = "launch_rocket"
ARGUMENTS = json.dumps({"to": MARK})
CALL = {"id": "c1", "type": "function", "function": {"name": TOOL, "arguments": ARGUMENTS}}


def chat(message=None, finish="stop", other=(), top=None, **choice):
    message = {"role": "assistant", "content": "Fine.", **(message or {})}
    choices = [{"index": 0, "message": message, "finish_reason": finish, **choice}, *other]
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "double", "choices": choices, **(top or {})}


def second(message):
    return [{"index": 1, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "stop"}]


LOGPROBS = {"content": [{"token": MARK, "logprob": -1.0, "bytes": None, "top_logprobs": []}], "refusal": None}
CHAT = {
    "a call": chat({"content": None, "tool_calls": [CALL]}, "tool_calls"),
    "calls beside text": chat({"tool_calls": [CALL, {**CALL, "id": "c2"}]}, "tool_calls"),
    "a call in an answer that has ended": chat({"tool_calls": [CALL]}, "stop"),
    "a call in an answer that was cut off": chat({"tool_calls": [CALL]}, "length"),
    "calls with one id": chat({"tool_calls": [CALL, CALL]}, "tool_calls"),
    "a call without an id": chat({"tool_calls": [{**CALL, "id": ""}]}, "tool_calls"),
    "a second choice with a call": chat(other=second({"tool_calls": [CALL]})),
    "a second choice with text": chat(other=second({"content": MARK})),
    "no choice but the second": {**chat(), "choices": second({"tool_calls": [CALL]})},
    "log-probabilities": chat(logprobs=LOGPROBS),
    "the older kind of call": chat({"function_call": {"name": TOOL, "arguments": ARGUMENTS}}, "function_call"),
    "a custom tool": chat({"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": TOOL, "input": MARK}}]}, "tool_calls"),
    "an unknown kind of call": chat({"tool_calls": [{"id": "c", "type": "mcp", "mcp": {"name": TOOL, "arguments": ARGUMENTS}}]}),
    "arguments that are no text": chat({"tool_calls": [{**CALL, "function": {"name": TOOL, "arguments": {"to": MARK}}}]}, "tool_calls"),
    "arguments with a key twice": chat({"tool_calls": [{**CALL, "function": {"name": TOOL, "arguments": '{"to": 1, "to": "%s"}' % MARK}}]}),
    "arguments that go on": chat({"tool_calls": [{**CALL, "function": {"name": TOOL, "arguments": ARGUMENTS + ARGUMENTS}}]}),
    "a tool that is not on offer": chat({"tool_calls": [{**CALL, "function": {"name": MARK, "arguments": "{}"}}]}, "tool_calls"),
    "thoughts": chat({"reasoning_content": MARK, "reasoning": MARK}),
    "speech": chat({"audio": {"id": "a", "data": "", "expires_at": 0, "transcript": MARK}}),
    "annotations": chat({"annotations": [{"type": "url_citation", "url_citation": {"url": f"https://{MARK}", "title": MARK}}]}),
    "a field of the message": chat({"extra": MARK}),
    "a field of the choice": chat(extra=MARK),
    "a field of the answer": chat(top={"extra": MARK, "system_fingerprint": MARK, "service_tier": MARK}),
    "another role": chat({"role": "tool", "tool_calls": [CALL]}),
    "the reason of the end": chat({}, MARK),
    "its id and model": {**chat(), "id": MARK, "model": MARK},
}


def chunk(delta=None, index=0, finish=None, **more):
    return {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "double",
            "choices": [{"index": index, "delta": delta or {}, "finish_reason": finish, **more}]}


FINE = [chunk({"role": "assistant", "content": "Fine."}), chunk(finish="stop")]
NAME = {"index": 0, "id": "c1", "type": "function", "function": {"name": TOOL, "arguments": ""}}
PIECE = {"index": 0, "function": {"arguments": ARGUMENTS}}
STREAMS = {
    "a call in pieces": [chunk({"role": "assistant", "tool_calls": [NAME]}), chunk({"tool_calls": [PIECE]}), chunk(finish="tool_calls")],
    "its name after its arguments": [chunk({"tool_calls": [PIECE]}), chunk({"tool_calls": [NAME]}), chunk(finish="tool_calls")],
    "one call letter by letter": [chunk({"tool_calls": [NAME]}), *[chunk({"tool_calls": [{"index": 0, "function": {"arguments": c}}]}) for c in ARGUMENTS],
                                  chunk(finish="tool_calls")],
    "two calls interleaved": [chunk({"tool_calls": [NAME, {**NAME, "index": 1, "id": "c2"}]}),
                              chunk({"tool_calls": [{**PIECE, "index": 1}]}), chunk({"tool_calls": [PIECE]}), chunk(finish="tool_calls")],
    "a gap in the numbers": [chunk({"tool_calls": [{**NAME, "index": 7}]}), chunk({"tool_calls": [{**PIECE, "index": 7}]}), chunk(finish="tool_calls")],
    "another choice": [chunk({"tool_calls": [NAME]}, 1), chunk({"tool_calls": [PIECE]}, 1), *FINE],
    "text of another choice": [chunk({"content": MARK}, 1), *FINE],
    "choices in one piece": [{**chunk(), "choices": [chunk({"content": "Fine."})["choices"][0], chunk({"content": MARK}, 1)["choices"][0]]}, FINE[1]],
    "after the end": [*FINE, chunk({"tool_calls": [{**NAME, "function": {"name": TOOL, "arguments": ARGUMENTS}}]})],
    "text after the end": [*FINE, chunk({"content": MARK})],
    "log-probabilities": [chunk({"content": "Fine."}, logprobs=LOGPROBS), chunk(finish="stop")],
    "the older kind of call": [chunk({"function_call": {"name": TOOL, "arguments": ARGUMENTS}}), chunk(finish="function_call")],
    "thoughts": [chunk({"reasoning_content": MARK}), *FINE],
    "fields": [{**FINE[0], "extra": MARK}, chunk(finish="stop", extra=MARK)],
    "another event": [*FINE[:1], {"type": "response.output_item.done", "item": {"type": "function_call", "name": TOOL, "arguments": ARGUMENTS}}, FINE[1]],
    "behind [DONE]": [*FINE, None, chunk({"content": MARK})],
}

ROUTES = ["/v1/chat/completions", "/v1/responses", "/v1/messages"]


def request(route, stream):
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    if route.endswith("responses"):
        return {"model": "double", "input": "Hello!", "stream": stream, "store": False,
                "tools": [{"type": "function", "name": TOOL, "parameters": schema, "strict": False}]}
    messages = [{"role": "user", "content": "Hello!"}]
    if route.endswith("messages"):
        return {"model": "double", "max_tokens": 100, "messages": messages, "stream": stream,
                "tools": [{"name": TOOL, "input_schema": schema}]}
    return {"model": "double", "messages": messages, "stream": stream,
            "tools": [{"type": "function", "function": {"name": TOOL, "parameters": schema}}]}


class Upstream(Broken):
    """A server that returns a configured answer."""

    def __init__(self):
        super().__init__(self.answer)
        self.body = None
        self.stream = None

    def answer(self, connection):
        if self.stream is None:
            body = json.dumps(self.body).encode()
            connection.sendall(head("200 OK", len(body)) + body)
            return
        lines = ["data: [DONE]" if event is None else f"data: {json.dumps(event)}" for event in self.stream]
        text = "\n\n".join([*lines, "data: [DONE]", ""]) + "\n"
        connection.sendall(head("200 OK", kind="text/event-stream") + text.encode())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bypass")
    policy = folder / "never.flow"
    never = f'\nraise "never" if:\n    (call: ToolCall) is tool:{TOOL}\n'
    policy.write_text(POLICY.read_text() + never)
    gateway = Gateway(folder, f'policy = "{policy}"\nrequests-per-minute = 100000', Upstream())
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("what", [*CHAT, *[f"streamed: {what}" for what in STREAMS]])
def test_nothing_hides(gateway, what, route, stream):
    upstream = gateway.model
    upstream.body, upstream.stream = CHAT.get(what), STREAMS.get(what.removeprefix("streamed: "))
    if upstream.body is not None:
        upstream.stream = None
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    asked = urllib.request.Request(gateway.address + route, json.dumps(request(route, stream)).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            status, text, sent = response.status, response.read().decode(), str(response.headers)
    except urllib.error.HTTPError as error:
        status, text, sent = error.code, error.read().decode(), str(error.headers)
    assert status in {200, 502}, text
    assert MARK not in text + sent and TOOL not in text, text
