"""Embeddings through the gateway with the clients of OpenAI and LangChain, changed only by their base URL and key."""

import base64
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from gateway_process import KEY, running
from langchain_openai import OpenAIEmbeddings

POLICY = """
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role == "embedding"
require trusted if:
    (call: ToolCall) is tool:embeddings
raise "no keys" if:
    (message: Message)
    message.role == "embedding"
    match(r"(.|\\n)*sk-[a-z0-9]{8}", message.content)
"""


# The texts of each request that the double was sent.
SEEN: list[list[str]] = []


class Double(BaseHTTPRequestHandler):
    """Embeds a text as its length and a constant."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        SEEN.append(body["input"])
        vectors = [[float(len(text)), 0.5] for text in body["input"]]
        if body.get("encoding_format") == "base64":
            vectors = [base64.b64encode(struct.pack("<2f", *vector)).decode() for vector in vectors]
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        reply = json.dumps({"object": "list", "data": data, "model": body["model"], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def gateway(tmp_path):
    """The base URL of a gateway in front of the double."""
    SEEN.clear()
    model = ThreadingHTTPServer(("127.0.0.1", 0), Double)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    (tmp_path / "policy.flow").write_text(POLICY)
    config = f"""
[upstreams.double]
url = "http://127.0.0.1:{model.server_port}/v1"
[clients.agent]
key-from = "AGENT_KEY"
upstream = "double"
policy = "policy.flow"
"""
    with running(tmp_path, config) as address:
        yield f"{address}/v1"
    model.shutdown()


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_openai(gateway, encoding):
    client = openai.OpenAI(base_url=gateway, api_key=KEY, max_retries=0)
    more = {} if encoding is None else {"encoding_format": encoding}
    reply = client.embeddings.create(model="e", input=["one", "three"], **more)
    vectors = [item.embedding for item in reply.data]
    if encoding == "base64":
        vectors = [list(struct.unpack("<2f", base64.b64decode(vector))) for vector in vectors]
    assert vectors == [[3.0, 0.5], [5.0, 0.5]]
    with pytest.raises(openai.PermissionDeniedError, match="no keys"):
        client.embeddings.create(model="e", input=["the key is sk-0123abcd"], **more)
    with pytest.raises(openai.BadRequestError, match="tokens cannot be judged"):
        client.embeddings.create(model="e", input=[[1, 2, 3]], **more)
    assert SEEN == [["one", "three"]]


def test_langchain(gateway):
    embeddings = OpenAIEmbeddings(model="e", base_url=gateway, api_key=KEY, check_embedding_ctx_length=False, max_retries=0)
    assert embeddings.embed_documents(["one", "three"]) == [[3.0, 0.5], [5.0, 0.5]]
    assert embeddings.embed_query("one") == [3.0, 0.5]
    with pytest.raises(openai.PermissionDeniedError, match="no keys"):
        embeddings.embed_query("sk-0123abcd")
