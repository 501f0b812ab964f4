"""The gateway in front of a model, and AgentDojo's client with the gateway as its base URL.

`flowgate serve` runs as a process of its own for each case, with the policies that the guard in this process has: a gateway remembers the
labels of what its clients have written and were shown, and each case of AgentDojo begins with a new environment. The person of the
benchmark answers its questions over the routes for people. A double is served over HTTP on this machine; any other model is the
gateway's upstream itself.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import openai
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM, _message_to_openai  # type: ignore[import-untyped]
from agentdojo.functions_runtime import EmptyEnv, Env, FunctionsRuntime  # type: ignore[import-untyped]
from agentdojo.types import ChatMessage  # type: ignore[import-untyped]

from ...errors import FlowgateError
from .answering import Answerer
from .doubles import LOOK, REFUSALS, is_screening, messages_of_model
from .elements import Ledger, State, ask, serve
from .people import Decide
from .texts import Answer, answers, shown

__all__ = ["Client", "DoubleServer", "Gateway", "GatewaySettings", "WholeChat", "double_server", "stop_gateways"]

# The tools' descriptions come from AgentDojo, as they do in this process.
TOOLS = """
label tool as trusted, public if:
    (tool: Tool)
"""
START_SECONDS = 30
# The methods that can discard a message of the model, a draft, and ask for another one.
DRAFTING = frozenset(["cheapest-first", "provenance"])
FILLER = "You write the value of one argument"

Message = dict[str, Any]


class Client(OpenAILLM):  # type: ignore[misc]
    """AgentDojo's client of OpenAI's API for one case, which keeps the chat that it sends."""

    def __init__(self, gateway: Gateway, model: str, decide: Decide, ledger: Ledger) -> None:
        """Create a client of a gateway, which serves nobody else. `decide` is the person who answers its questions."""
        # A name, so that a request that is sent once more belongs to the same conversation.
        headers = {"x-flowgate-conversation": "case"}
        base_url = f"{gateway.address}/v1"
        client = openai.OpenAI(api_key=gateway.key, base_url=base_url, default_headers=headers, max_retries=0, timeout=600)
        create = client.chat.completions.create

        def counted(**request: Any) -> Any:
            answer = create(**request)
            self._count(answer.usage)
            return answer

        client.chat.completions.create = counted  # type: ignore[method-assign]
        super().__init__(client, model)
        self.gateway, self.ledger, self.is_double = gateway, ledger, False
        self.answerer = Answerer(gateway.address, gateway.person_key, decide, ledger)
        # The chat as it was sent last.
        self.sent: list[Message] = []

    def _count(self, usage: Any) -> None:
        """Count a request with the tokens that the gateway reports. What a double is asked, its server counts."""
        if self.is_double:
            return
        self.ledger.model_calls += 1
        if usage is not None:
            self.ledger.input_tokens += usage.prompt_tokens
            self.ledger.output_tokens += usage.completion_tokens

    def stop(self) -> None:
        """End the gateway. Raises `FlowgateError` if a question could not be answered."""
        try:
            self.answerer.stop()
        finally:
            self.gateway.stop()

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> State:
        """Ask for the next message."""
        self.sent = [_message_to_openai(message, self.model) for message in messages]
        state: State = super().query(query, runtime, env, messages, extra_args)
        return state


class WholeChat:
    """The chat of one case with nothing hidden: what the client sent last, and the calls that the gateway refused.

    It is what `Conversation.view_at` the top is in this process. The client never learns of a refused call, and the answer that the model
    is shown may be hidden: of the calls that the model has written, those that the client was not sent are refused, unless the message was
    a draft that the guard has discarded.
    """

    def __init__(self, client: Any = None, *, has_drafts: bool = True) -> None:
        """Create the chat of a client. Without `has_drafts`, every message of the model stands."""
        self.client, self.has_drafts = client, has_drafts
        # The refused calls with their answers, each with its place in the chat of the client.
        self._refused: list[tuple[int, list[Message]]] = []
        # The last calls of the model, the messages of the model that it was shown then, and the length of the client's chat then.
        self._written: tuple[list[Answer], int, int] = ([], 0, 0)

    def request(self) -> dict[str, Any]:
        """Return the chat as a request."""
        messages = list(self.client.sent) if self.client is not None else []
        for place, refused in reversed(self._refused):
            messages[place:place] = refused
        return {"messages": messages}

    def note_view(self, view: dict[str, Any]) -> None:
        """Find the calls that were refused since the model wrote them."""
        calls, before, place = self._written
        self._written = ([], 0, 0)
        if self.client is None:
            return
        # A view can leave out a message that stands, if it was written at a higher label.
        is_shown = messages_of_model(view) > before
        is_sent = len(self.client.sent) > place
        if self.has_drafts and not is_shown and not is_sent:
            return
        sent = answers({"messages": self.client.sent[place:]})
        for call in calls:
            if not any(call.is_of_call(one) for one in sent):
                self._refused.append((place, _refusal(call, len(self._refused))))

    def note_answer(self, view: dict[str, Any], completion: Any) -> None:
        """Remember the calls that the model has written, given what it was shown. Looks stay between the gateway and the model."""
        calls = [Answer(name, json.loads(arguments), "") for _, name, arguments in completion.calls if name != LOOK]
        self._written = (calls, messages_of_model(view), len(self.client.sent) if self.client is not None else 0)


def _refusal(call: Answer, number: int) -> list[Message]:
    """Return a call and its refusal as messages."""
    function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
    wire = {"id": f"refused_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [wire]},
        {"role": "tool", "tool_call_id": wire["id"], "content": REFUSALS[0]},
    ]


class DoubleServer:
    """A server with one double after the other in place of a model."""

    def __init__(self) -> None:
        """Start the server on a free port of this machine."""
        self.model: Any = None
        self.ledger = Ledger()
        self.chat = WholeChat()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                data = json.dumps(outer.answer(request)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def begin(self, model: Any, ledger: Ledger, client: Client) -> None:
        """Serve the double of the next case, which the client asks through the gateway."""
        self.model, self.ledger, self.chat = model, ledger, WholeChat(client, has_drafts=client.gateway.method in DRAFTING)
        client.is_double = True
        model.full = self.chat.request

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the gateway: for the next message, for the value of a slot, or for what a step needs."""
        if shown(request).lstrip().startswith(FILLER):
            text, calls = str(serve(self.model, "fill", request, self.ledger)), []
        elif is_screening(request):
            completion = serve(self.model, "screen", request, self.ledger)
            text, calls = completion.text, completion.calls
        else:
            self.chat.note_view(request)
            completion = ask(self.model, request, self.ledger)
            self.chat.note_answer(request, completion)
            text, calls = completion.text, completion.calls
        wire = [
            {"id": f"{self.ledger.model_calls}_{call_id}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
        message = {"role": "assistant", "content": text, **({"tool_calls": wire} if wire else {})}
        choice = {"index": 0, "finish_reason": "tool_calls" if wire else "stop", "message": message}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "double", "choices": [choice], "usage": usage}


_running: set[Gateway] = set()


def stop_gateways() -> None:
    """End every gateway that this process has started."""
    for gateway in list(_running):
        gateway.stop()


@dataclass(frozen=True)
class GatewaySettings:
    """What a gateway guards: with which policy and method, in front of which model, and which system prompt it knows."""

    policy: Path
    statements: str
    method: str
    upstream: str
    system: str


class Gateway:
    """A running gateway."""

    def __init__(self, binary: str, settings: GatewaySettings) -> None:
        """Start a gateway, and wait until it listens."""
        self.method = settings.method
        self.folder = tempfile.TemporaryDirectory(prefix="flowgate-bench-")
        root = Path(self.folder.name)
        # An import is relative to the file that imports.
        imported = Path(os.path.relpath(settings.policy.resolve(), root.resolve())).as_posix()
        text = f"import {json.dumps(imported)}\n{TOOLS}{settings.statements}"
        (root / "policy.flow").write_text(text, encoding="utf-8")
        (root / "gateway.toml").write_text(_configuration(settings), encoding="utf-8")
        self.key, self.person_key = secrets.token_hex(16), secrets.token_hex(16)
        environment = {
            **os.environ,
            "BENCH_CLIENT_KEY": self.key,
            "BENCH_PERSON_KEY": self.person_key,
            "BENCH_UPSTREAM_KEY": os.environ.get("OPENAI_API_KEY") or secrets.token_hex(16),
        }
        log = root / "log"
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--config", str(root / "gateway.toml")]
        try:
            with log.open("w") as output:
                self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        except OSError as error:
            message = f"the gateway {binary} cannot be started ({error.strerror}): build it with `cargo build -p flowgate-cli`"
            raise FlowgateError(message) from error
        _running.add(self)
        self.address = self._address(log)

    def _address(self, log: Path) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"http://\S+:\d+", log.read_text()):
                return found.group()
            time.sleep(0.02)
        text = log.read_text()[-800:]
        self.stop()
        message = f"the gateway did not start: {text}"
        raise FlowgateError(message)

    def stop(self) -> None:
        """End the process, at once: what it knows is in memory, and belongs to one case."""
        _running.discard(self)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def _configuration(settings: GatewaySettings) -> str:
    # The person of the benchmark answers every question.
    return f"""
[upstreams.model]
url = {json.dumps(settings.upstream)}
key-from = "BENCH_UPSTREAM_KEY"

[store]
url = "memory"

[people.bench]
key-from = "BENCH_PERSON_KEY"
role = "approver"

[approvals]
wait-seconds = 300
open-questions = 1000000
open-questions-of-conversation = 1000000
questions-an-hour = 1000000
questions-an-hour-of-conversation = 1000000
questions-of-conversation = 1000000
refusals-in-a-row = 1000000
refusals-in-a-row-of-conversation = 1000000

[clients.harness]
key-from = "BENCH_CLIENT_KEY"
upstream = "model"
policy = "policy.flow"
method = {json.dumps(settings.method)}
user-messages = "trust-unmarked-even-if-pasted"
pinned = [{json.dumps(settings.system)}]
requests-per-minute = 1000000
"""


@cache
def double_server() -> DoubleServer:
    """Return the server of doubles, which is started once in a process."""
    return DoubleServer()
