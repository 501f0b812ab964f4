"""Fault injection: nothing is sent that was not judged, nothing hangs, and the gateway recovers."""

import json
import os
import resource
import socket
import sqlite3
import struct
import threading
import time
import urllib.error
import urllib.request

import pytest

from test_gateway import KEY, POLICY, Gateway

ANN = "the-key-of-ann-who-decides"
CALL = {"id": "x", "type": "function", "function": {"name": "send_money", "arguments": '{"to": "mallory", "amount": 500}'}}
ANSWER = {"id": "1", "object": "chat.completion", "created": 0, "model": "double", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
         for name in ("send_money", "send_mail", "read_page")]


def head(status, length=None, kind="application/json"):
    size = f"content-length: {length}\r\n" if length is not None else ""
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{size}connection: close\r\n\r\n".encode()


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


WHOLE = json.dumps(ANSWER).encode()
CHUNK = b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"double","choices":[{"index":0,"delta":%s}]}\n\n'
BEGUN = CHUNK % json.dumps({"role": "assistant", "tool_calls": [{"index": 0, **CALL}]}).encode()

# The behaviour of the upstream, and the permitted statuses of the gateway's answer.
UPSTREAMS = {
    "hangs": (lambda c: time.sleep(8), {504}),
    "resets": (reset, {502}),
    "closes": (lambda c: None, {502}),
    "sends garbage": (lambda c: c.sendall(os.urandom(4096)), {502}),
    "sends no JSON": (lambda c: c.sendall(head("200 OK", 5) + b"<xml>"), {502}),
    "sends another shape": (lambda c: c.sendall(head("200 OK", 2) + b"[]"), {502}),
    "fails": (lambda c: c.sendall(head("500 Oh no", 0)), {502}),
    "is busy": (lambda c: c.sendall(head("429 Too Many Requests", 0)), {502}),
    "stops in the middle": (lambda c: c.sendall(head("200 OK", len(WHOLE)) + WHOLE[:-40]), {502}),
    "resets in the middle": (lambda c: (c.sendall(head("200 OK", len(WHOLE)) + WHOLE[:-40]), reset(c)), {502}),
    "stops in the middle of a stream": (lambda c: c.sendall(head("200 OK", kind="text/event-stream") + BEGUN), {502}),
    "drips": (lambda c: [c.sendall(b" ") or time.sleep(0.2) for _ in range(40)], {502, 504}),
    "never ends": (lambda c: (c.sendall(head("200 OK")), [c.sendall(b"x" * 65536) for _ in range(4096)]), {502, 504}),
}


class Broken:
    """A server that performs one action on every connection."""

    def __init__(self, act):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.server_port = self.listener.getsockname()[1]
        self.act = act
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with connection:
            try:
                connection.recv(1 << 20)
                self.act(connection)
            except OSError:
                pass

    def shutdown(self):
        # Before the descriptor is free, the thread must have ended: it could otherwise accept on the next server that receives the number.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(more="", model=None, options=(), shell=None):
        started.append(Gateway(tmp_path, more, model, options, shell, {"ANN_KEY": ANN}))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        one.model.shutdown()


def ask(gateway, text="Pay.", stream=False, name=None, timeout=20, before=()):
    messages = [*before, {"role": "user", "content": text}]
    body = {"model": "double", "messages": messages, "tools": TOOLS, "stream": stream}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    if name:
        headers["x-flowgate-conversation"] = name
    request = urllib.request.Request(f"{gateway.address}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", UPSTREAMS)
def test_an_upstream(start, what, stream):
    act, statuses = UPSTREAMS[what]
    gateway = start(model=Broken(act), options=["--turn-time", "3"])
    begun = time.monotonic()
    status, text = ask(gateway, stream=stream)
    assert status in statuses, text
    assert "mallory" not in text and time.monotonic() - begun < 15
    assert json.loads(text)["error"]["message"]
    # The conversation and the gateway remain usable.
    gateway.model.act = lambda c: c.sendall(head("200 OK", len(FINE)) + FINE)
    status, text = ask(gateway)
    assert (status, "Fine." in text) == (200, True), text


FINE = json.dumps({**ANSWER, "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}]}).encode()


def test_a_client_that_sends_slowly(start):
    gateway = start()
    host, port = gateway.address.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert ask(gateway, "Hello!")[0] == 200
    begun = time.monotonic()
    for connection in slow:
        connection.settimeout(30)
        while connection.recv(4096):
            pass
    assert time.monotonic() - begun < 20, "they are cut off"


def test_a_body_that_is_too_large(start):
    gateway = start(options=["--max-body", "1"])
    status, text = ask(gateway, "x" * (2 << 20))
    assert (status, "larger than" in text) == (413, True), text
    assert ask(gateway, "Hello!")[0] == 200


ASKS = f"""
[people.ann]
key-from = "ANN_KEY"
role = "admin"
[approvals]
wait-seconds = 3
"""


def person(gateway, path, body=None):
    data = json.dumps(body).encode() if body else None
    headers = {"authorization": f"Bearer {ANN}", "content-type": "application/json"}
    request = urllib.request.Request(gateway.address + path, data, headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def first_question(gateway):
    for _ in range(100):
        questions = person(gateway, "/api/v1/approvals")["questions"]
        if questions:
            return questions[0]
        time.sleep(0.05)
    raise AssertionError("nobody was asked")


def decide(gateway, question, decision):
    body = {"decision": decision, "digest": question["digest"]}
    return person(gateway, f"/api/v1/approvals/{question['id']}", body)


def paying(start, tmp_path, **more):
    policy = tmp_path / "asks.flow"
    policy.write_text(POLICY.read_text() + '\nask "payments" if:\n    (call: ToolCall) is tool:send_money\n')
    return start(f'policy = "{policy}"\n{ASKS}', model=Broken(lambda c: c.sendall(head("200 OK", len(WHOLE)) + WHOLE)), **more)


def test_killed_in_the_middle_of_a_question(start, tmp_path):
    gateway = paying(start, tmp_path)
    waits = threading.Thread(target=lambda: pytest.raises(Exception, ask, gateway, name="one"))
    waits.start()
    question = first_question(gateway)
    gateway.process.kill()
    waits.join()
    gateway.process.wait()

    gateway = paying(start, tmp_path)
    assert first_question(gateway)["id"] == question["id"]
    assert decide(gateway, question, "allow")["state"] == "allowed"
    gateway.process.kill()
    gateway.process.wait()

    # The decision is stored and used once; after that the question is asked again.
    gateway = paying(start, tmp_path)
    assert "mallory" in ask(gateway, name="one")[1]
    again = threading.Thread(target=lambda: pytest.raises(Exception, ask, gateway, name="one", timeout=2))
    again.start()
    assert first_question(gateway)["id"] != question["id"]
    again.join()
    assert person(gateway, f"/api/v1/approvals/{question['id']}")["state"] == "used"


@pytest.mark.parametrize("jump", [-86_400_000, 86_400_000])
def test_a_clock_that_jumps(start, tmp_path, jump):
    """The clock is set back or forward by a day: all stored times are off by a day."""
    gateway = paying(start, tmp_path)
    ask(gateway, "Hello!", name="other", timeout=15)
    question = first_question(gateway)
    decide(gateway, question, "allow")
    gateway.process.kill()
    gateway.process.wait()
    with sqlite3.connect(tmp_path / "flowgate.db") as store:
        store.execute("UPDATE questions SET asked = asked - ?, expires = expires - ?", (jump, jump))
        store.execute("UPDATE conversations SET used = used - ?, held_until = held_until - ?", (jump, jump))
    store.close()
    gateway = paying(start, tmp_path)
    # The age of the question is unknown: it is expired, and permits nothing.
    assert person(gateway, f"/api/v1/approvals/{question['id']}")["state"] == "expired"
    status, text = ask(gateway, "continue", name="other", timeout=30)
    assert (status, "mallory" in text) == (200, False), text


def health(gateway):
    try:
        with urllib.request.urlopen(f"{gateway.address}/health", timeout=15) as response:
            return response.status, json.load(response)["failing"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["failing"]


def until(what, expected):
    """Polls the health endpoint until it has the expected result; a result may be cached for a second."""
    for _ in range(100):
        found = what()
        if found == expected:
            return
        time.sleep(0.1)
    raise AssertionError(f"{found} is not {expected}")


@pytest.mark.parametrize("run", range(3))
def test_a_disk_that_is_full(start, tmp_path, run):
    """Files may not grow beyond 1 MB, and then they may: the gateway recovers without a restart."""
    shell = f"trap '' XFSZ; ulimit -S -f {1000 + 100 * run}; exec \"$@\""
    gateway = start(model=Broken(lambda c: c.sendall(head("200 OK", len(FINE)) + FINE)), shell=shell)
    assert health(gateway) == (200, [])
    statuses = []

    def fill(number):
        # Every other chat contains remembered text, which is stored over another connection.
        page = [{"role": "assistant", "content": f"I read page {number}."}] * (number % 2)
        status, text = ask(gateway, f"{number} " + "x" * 5000, name=str(number), before=page)
        assert status == 200 or (status, "database failed" in text) == (503, True), text
        assert status == 200 or "Fine." not in text
        statuses.append(status)

    # Space that is reused in the write-ahead log suffices for some turns after the first failure.
    for number in range(900):
        fill(number)
        if statuses[-20:] == [503] * 20:
            break
    assert statuses[0] == 200 and statuses[-20:] == [503] * 20, statuses
    until(lambda: health(gateway), (503, ["store"]))
    threads = [threading.Thread(target=fill, args=[number]) for number in range(1000, 1032)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: health(gateway), (200, []))
    for number in range(2000, 2008):
        assert ask(gateway, f"{number}", name=str(number))[0] == 200
    assert ask(gateway, "again", name="0")[0] == 200
    gateway.process.terminate()
    gateway.process.wait()
    with sqlite3.connect(tmp_path / "flowgate.db") as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        count = "SELECT COUNT(*) FROM conversations JOIN turns ON conversation = id WHERE name = '0'"
        assert store.execute(count).fetchone() == (2,)
    store.close()


def test_an_audit_log_that_cannot_be_written(start):
    """Files may not grow beyond 40 kB, and the store is in memory. With space again, requests are recorded and answered."""
    shell = "trap '' XFSZ; ulimit -S -f 40; exec \"$@\""
    more = '[store]\nurl = "memory"\n[audit]\nfile = "audit.jsonl"\n'
    gateway = start(more, model=Broken(lambda c: c.sendall(head("200 OK", len(WHOLE)) + WHOLE)), shell=shell)
    answers = [ask(gateway, f"{number}") for number in range(150)]
    statuses = [status for status, _ in answers]
    assert statuses[0] == 200 and "mallory" in answers[0][1]
    assert statuses[-1] == 503 and "the audit log cannot be written" in answers[-1][1], answers[-1]
    assert not any("mallory" in text for status, text in answers if status == 503)
    resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: health(gateway), (200, []))
    assert ask(gateway, "again")[0] == 200


def test_a_stream_that_breaks_off_after_text_went_out(start):
    said = CHUNK % json.dumps({"role": "assistant", "content": "Once upon a time there was a long sentence. And then"}).encode()

    def act(connection):
        connection.sendall(head("200 OK", kind="text/event-stream") + said)
        time.sleep(0.5)
        connection.sendall(BEGUN)
        reset(connection)

    status, text = ask(start(model=Broken(act)), stream=True)
    assert (status, "Once upon" in text, '"error"' in text) == (200, True, True), text
    assert "mallory" not in text and "[DONE]" not in text, text


def test_clients_that_go_away(start):
    gateway = start(model=Broken(lambda c: time.sleep(1)))
    host, port = gateway.address.removeprefix("http://").split(":")
    for _ in range(50):
        connection = socket.create_connection((host, int(port)))
        body = json.dumps({"model": "double", "messages": [{"role": "user", "content": "Hello!"}]}).encode()
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                           + f"authorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        reset(connection)
        connection.close()
    gateway.model.act = lambda c: c.sendall(head("200 OK", len(FINE)) + FINE)
    # Their turns end, and release their slots, when the model server has answered.
    statuses = []
    until = time.monotonic() + 30
    while statuses[-1:] != [200] and time.monotonic() < until:
        statuses.append(ask(gateway, "Still there?")[0])
        time.sleep(0.05)
    assert set(statuses) <= {429, 200} and statuses[-1] == 200, statuses
