"""The gateway in front of a model, and AgentDojo's own client with the gateway as its base URL.

`flowgate serve` runs as a process of its own, one for each suite and process, with the policies that the guard in this process has. No
person answers, so questions are refused. A double is served over HTTP on this machine; any other model is the gateway's upstream itself.
"""

from __future__ import annotations

import atexit
import http.server
import json
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import openai
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM  # type: ignore[import-untyped]

from ...errors import FlowgateError
from .elements import Ledger, ask, serve
from .texts import shown

__all__ = ["DoubleServer", "Gateway", "gateway_of"]

# The tools' descriptions come from AgentDojo, as they do in this process.
TOOLS = """
label tool as trusted, public if:
    (tool: Tool)
"""
START_SECONDS = 30
FILLER = "You write the value of one argument"


class DoubleServer:
    """A server with one double after the other in place of a model."""

    def __init__(self) -> None:
        """Start the server on a free port of this machine."""
        self.model: Any = None
        self.ledger = Ledger()
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

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the gateway: for the next message, for the value of a slot, or for what a step needs."""
        if shown(request).lstrip().startswith(FILLER):
            text, calls = str(serve(self.model, "fill", request, self.ledger)), []
        elif any(tool["function"]["name"] in ("needed_regions", "needed_tools") for tool in request.get("tools") or []):
            completion = serve(self.model, "screen", request, self.ledger)
            text, calls = completion.text, completion.calls
        else:
            completion = ask(self.model, request, self.ledger)
            text, calls = completion.text, completion.calls
        wire = [
            {"id": f"{self.ledger.model_calls}_{call_id}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
        message = {"role": "assistant", "content": text, **({"tool_calls": wire} if wire else {})}
        choice = {"index": 0, "finish_reason": "tool_calls" if wire else "stop", "message": message}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "double", "choices": [choice], "usage": usage}


class Gateway:
    """A running gateway. Each case is a conversation of its own."""

    def __init__(self, binary: str, policy: Path, method: str, upstream: str, system: str) -> None:
        """Start a gateway, and wait until it listens."""
        self.folder = tempfile.TemporaryDirectory(prefix="flowgate-bench-")
        root = Path(self.folder.name)
        # An import is relative to the file that imports.
        imported = Path(os.path.relpath(policy.resolve(), root.resolve())).as_posix()
        (root / "policy.flow").write_text(f"import {json.dumps(imported)}\n{TOOLS}", encoding="utf-8")
        (root / "gateway.toml").write_text(_configuration(upstream, method, system), encoding="utf-8")
        self.key, self.conversations = secrets.token_hex(16), 0
        environment = {**os.environ, "BENCH_CLIENT_KEY": self.key, "BENCH_UPSTREAM_KEY": os.environ.get("OPENAI_API_KEY") or self.key}
        log = root / "log"
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--config", str(root / "gateway.toml")]
        try:
            with log.open("w") as output:
                self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        except OSError as error:
            message = f"the gateway {binary} cannot be started ({error.strerror}): build it with `cargo build -p flowgate-cli`"
            raise FlowgateError(message) from error
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

    def client(self, model: str) -> Any:
        """Return AgentDojo's client of OpenAI's API for the next case."""
        self.conversations += 1
        headers = {"x-flowgate-conversation": f"case-{self.conversations}"}
        base_url = f"{self.address}/v1"
        client = openai.OpenAI(api_key=self.key, base_url=base_url, default_headers=headers, max_retries=0, timeout=300)
        return OpenAILLM(client, model)

    def stop(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.folder.cleanup()


def _configuration(upstream: str, method: str, system: str) -> str:
    return f"""
[upstreams.model]
url = {json.dumps(upstream)}
key-from = "BENCH_UPSTREAM_KEY"

[store]
url = "memory"

[clients.harness]
key-from = "BENCH_CLIENT_KEY"
upstream = "model"
policy = "policy.flow"
method = {json.dumps(method)}
user-messages = "trust-unmarked-even-if-pasted"
pinned = [{json.dumps(system)}]
requests-per-minute = 1000000
sessions = 10000
"""


@lru_cache(maxsize=16)
def gateway_of(binary: str, policy: Path, method: str, base_url: str, system: str) -> tuple[Gateway, DoubleServer | None]:
    """Return the gateway with a policy, which is started once in a process. Without `base_url` a double is its model."""
    server = None if base_url else DoubleServer()
    gateway = Gateway(binary, policy, method, base_url or (server.url if server else ""), system)
    atexit.register(gateway.stop)
    return gateway, server
