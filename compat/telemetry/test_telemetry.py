"""The gateway's spans, decoded by OpenTelemetry's own types: their tree, and names that its conventions have."""

import gzip
import http.server
import importlib
import json
import os
import pkgutil
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
import pytest
import rotel
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

KEY = "key-of-the-test-client"
POLICY = """
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted if:
    (tool: Tool)
require trusted if:
    (call: ToolCall) is tool:read
"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        kind, answer = self.server.answer(self.headers, body)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def serve(answer):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.answer = answer
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


def model(_, body):
    """Calls the tool, and then is done."""
    request = json.loads(body)
    is_answered = any(message["role"] == "tool" for message in request["messages"])
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "SECRET"}'}}
    message = {"role": "assistant", "content": "SECRET"} if is_answered else {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if is_answered else "tool_calls"}
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    answer = {"id": "a", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice], "usage": usage}
    return "application/json", json.dumps(answer).encode()


def conventions():
    """The names of attributes in OpenTelemetry's conventions."""
    names = set()
    for package in (incubating, stable):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, str):
                    names.add(value)
    return names


def plain(value):
    kind = value.WhichOneof("value")
    content = getattr(value, kind)
    return [plain(item) for item in content.values] if kind == "array_value" else content


class Span:
    def __init__(self, span):
        self.span = span
        self.attributes = {attribute.key: plain(attribute.value) for attribute in span.attributes}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rotel:
    """A collector by others: it receives spans over HTTP, and sends them on to `target`."""

    def __init__(self, folder, target):
        port, others = free_port(), free_port()
        program = pathlib.Path(rotel.__file__).parent / "rotel-agent"
        files = ["--pid-file", str(folder / "rotel.pid"), "--log-file", str(folder / "rotel.log")]
        receives = ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{others}"]
        sends = ["--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", target, "--otlp-exporter-compression", "none"]
        self.output = open(folder / "rotel.out", "w+b")
        environment = {"PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        self.process = subprocess.Popen([program, "start", *files, *receives, *sends], env=environment, stdout=self.output, stderr=self.output)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert self.process.poll() is None, self.said()
            time.sleep(0.1)
        raise AssertionError(self.said())

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.said()


@pytest.mark.parametrize("through", ["", "rotel"])
@pytest.mark.parametrize("compression", ["", "gzip"])
def test_spans_are_read_by_others(tmp_path, compression, through):
    received = []

    def collect(headers, body):
        assert headers["content-type"] == "application/x-protobuf"
        # A collector in between has the gateway's header, and sends the spans in its own form.
        if not through:
            assert headers["x-token"] == "key-of-the-collector"
            assert headers.get("content-encoding", "") == compression
        received.append(gzip.decompress(body) if headers.get("content-encoding") else body)
        return "application/x-protobuf", ExportTraceServiceResponse().SerializeToString()

    (_, upstream), (_, collector) = serve(model), serve(collect)
    between = Rotel(tmp_path, collector) if through else None
    collector = between.url if between else collector
    (tmp_path / "policy.flow").write_text(POLICY)
    (tmp_path / "gateway.toml").write_text(
        f'[upstreams.double]\nurl = "{upstream}/v1"\nmodels = ["small"]\n'
        '[clients.agent]\nkey-from = "AGENT"\nupstream = "double"\npolicy = "policy.flow"\n'
        'user-messages = "trust-unmarked-even-if-pasted"\n'
        f'[telemetry]\nendpoint = "{collector}"\n'
    )
    environment = {
        "AGENT": KEY,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-token=key-of-the-collector",
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "PATH": os.environ["PATH"],
    }
    command = [os.environ["FLOWGATE"], "serve", "--config", str(tmp_path / "gateway.toml"), "--listen", "127.0.0.1:0"]
    checked = subprocess.run([*command, "--check"], env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    gateway = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        address = next(line.split("listening on ")[1].split(";")[0] for line in gateway.stderr if "listening on " in line)
        threading.Thread(target=gateway.stderr.read, daemon=True).start()
        tracer = TracerProvider().get_tracer("agent")
        with tracer.start_as_current_span("task") as task:
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
            TraceContextTextMapPropagator().inject(headers)
            tool = {"type": "function", "function": {"name": "read", "description": "SECRET", "parameters": {"type": "object"}}}
            body = {"model": "small", "messages": [{"role": "user", "content": "SECRET"}], "tools": [tool]}
            request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), headers)
            answer = json.load(urllib.request.urlopen(request))
            assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read"
    finally:
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(60) == 0
        # It sends what it has received before it ends.
        if between:
            between.stop()
    exports = [ExportTraceServiceRequest.FromString(body) for body in received]
    resources = [resource for export in exports for resource in export.resource_spans]
    resource = {attribute.key: plain(attribute.value) for attribute in resources[0].resource.attributes}
    assert resource["service.name"] == "flowgate" and resource["deployment.environment.name"] == "test"
    spans = [Span(span) for resource in resources for scope in resource.scope_spans for span in scope.spans]
    names = {(span.span.name, span.span.kind): span for span in spans}
    assert set(names) == {("chat small", 2), ("chat small", 3), ("execute_tool read", 1)}
    turn, asked, call = names["chat small", 2], names["chat small", 3], names["execute_tool read", 1]
    context = task.get_span_context()
    assert all(span.span.trace_id == context.trace_id.to_bytes(16, "big") for span in spans)
    assert turn.span.parent_span_id == context.span_id.to_bytes(8, "big")
    assert asked.span.parent_span_id == call.span.parent_span_id == turn.span.span_id
    assert (turn.attributes["gen_ai.usage.input_tokens"], turn.attributes["gen_ai.usage.output_tokens"]) == (11, 5)
    assert turn.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert call.attributes["flowgate.verdict"] == "permit"
    known = conventions()
    foreign = {name for span in spans for name in span.attributes if not name.startswith("flowgate.")}
    assert len(foreign) > 8 and foreign <= known, foreign - known
    assert not any(secret in body for body in received for secret in (b"SECRET", KEY.encode()))


def test_a_section_that_cannot_be_used_is_reported(tmp_path):
    (tmp_path / "policy.flow").write_text(POLICY)
    (tmp_path / "gateway.toml").write_text(
        '[upstreams.double]\nurl = "http://127.0.0.1:1/v1"\n'
        '[clients.agent]\nkey-from = "AGENT"\nupstream = "double"\npolicy = "policy.flow"\n'
        '[telemetry]\nendpoint = "localhost:4318"\n'
    )
    command = [os.environ["FLOWGATE"], "serve", "--config", str(tmp_path / "gateway.toml"), "--check"]
    checked = subprocess.run(command, env={"AGENT": KEY}, capture_output=True, text=True)
    assert checked.returncode != 0 and "telemetry: endpoint: the address must begin" in checked.stderr, checked.stderr
