"""A model server and an MCP server behind TLS, with certificates of a private authority."""

import json
import ssl
import time

import openai
import pytest
import trustme

import double
from agents import ChatCompletions
from clerk import clerk
from desk import Desk
from desk_agent import DeskAgent
from test_gateway import KEY, PAGE, Gateway
from test_servers import PAID, POLICY, TASK, STEALS, says


class Streams(double.Handler):
    """Streams its answers, and delays the end of the stream."""

    def setup(self):
        super().setup()
        self.server.connections += 1

    def chunk(self, text):
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert body["stream"]
        self.server.asked.append(body)
        said = self.server.mind(body)
        if isinstance(said, str):
            deltas = [{"content": letter} for letter in said]
        else:
            calls = [
                {"index": index, "id": f"x{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for index, (name, arguments) in enumerate(said)
            ]
            deltas = [{"tool_calls": calls}]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            self.chunk(f"data: {json.dumps({'id': 'r', 'object': 'chat.completion.chunk', 'created': 0, 'model': 'double', 'choices': [choice]})}\n\n")
        end = {"index": 0, "delta": {}, "finish_reason": "stop" if isinstance(said, str) else "tool_calls"}
        self.chunk(f"data: {json.dumps({'id': 'r', 'object': 'chat.completion.chunk', 'created': 0, 'model': 'double', 'choices': [end]})}\n\n")
        self.chunk("data: [DONE]\n\n")
        # The client does not wait for the end after the answer is complete.
        time.sleep(0.05)
        self.chunk("")


class Trust:
    """A certificate authority, and a server's certificate from it."""

    def __init__(self, folder, host="127.0.0.1"):
        authority, folder = trustme.CA(), folder / f"trust-{time.monotonic_ns()}"
        folder.mkdir()
        self.file, self.certificate = folder / "ca.pem", folder / "server.pem"
        authority.cert_pem.write_to_path(self.file)
        authority.issue_cert(host).private_key_and_cert_chain_pem.write_to_path(self.certificate)

    def model(self):
        server = double.start(handler=Streams)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        server.connections = 0
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server


@pytest.fixture
def start(tmp_path):
    stops = []

    def started(*arguments, **more):
        gateway = Gateway(tmp_path, *arguments, **more)
        stops.append(gateway.stop)
        return gateway

    yield started
    for stop in stops:
        stop()


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_behind_tls(start, tmp_path, stream):
    trust = Trust(tmp_path)
    gateway = start("", model=trust.model(), tls=f'ca-file = "{trust.file}"')
    agent = ChatCompletions(gateway.address, KEY, PAGE, stream)
    assert agent.says("Send Ann what is on https://example.org/news") == "Done."
    assert [name for name, _ in agent.ran] == ["read_page", "send_mail"]
    # After the end of the stream, the connection is used for the next request.
    time.sleep(0.5)
    connections = gateway.model.connections
    assert agent.says("Thanks!") == "Done."
    assert gateway.model.connections == connections


@pytest.mark.parametrize("told", ["nothing", "another authority", "another host"])
def test_whom_nobody_vouches_for_is_told_nothing(start, tmp_path, told):
    trust = Trust(tmp_path, "example.org" if told == "another host" else "127.0.0.1")
    trusted = Trust(tmp_path).file if told == "another authority" else trust.file
    gateway = start("", model=trust.model(), tls="" if told == "nothing" else f'ca-file = "{trusted}"')
    with pytest.raises(openai.APIStatusError, match="the log of the gateway has the reason"):
        ChatCompletions(gateway.address, KEY, PAGE, False).says("Hello!")
    assert "is not trusted" in gateway.logged("upstream")
    assert not gateway.model.asked


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_server_behind_tls(start, tmp_path, is_trusted):
    trust = Trust(tmp_path)
    desk = Desk(STEALS, certificate=trust.certificate)
    try:
        ca_file = f'ca-file = "{trust.file}"\n' if is_trusted else ""
        tables = f'mcp = ["desk"]\npolicy = "{POLICY}"\n[mcp.desk]\nurl = "{desk.address}"\nprefix = "mcp__desk__"\n{ca_file}'
        gateway = start(tables, model=double.start(clerk))
        agent = DeskAgent(gateway.address, f"{gateway.address}/mcp/desk", KEY, "one", False, "auto")
        if is_trusted:
            assert says(agent, TASK) == "Done."
            assert desk.did == [PAID, ("send_mail", "ann@example.org", "Otters are back.")]
        else:
            with pytest.raises(Exception) as failed:
                says(agent, TASK)
            assert "no answer is shown" in "".join(map(str, flattened(failed.value)))
            assert "the certificate of the MCP server is not trusted" in gateway.logged("upstream")
            assert not desk.did
    finally:
        desk.stop()


def flattened(error):
    """Yields an error, or the members of an exception group."""
    for inner in getattr(error, "exceptions", ()):
        yield from flattened(inner)
    yield error
