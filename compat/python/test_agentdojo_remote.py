"""Rows that need a model, with a stub in its place: behind a base URL, through the gateway, and empty without one."""

import http.server
import json
import os
import threading

import pytest
from agentdojo_cases import ATTACK, POLICIES, dojo
from test_agentdojo_gateway import FAKE_GATEWAY

from flowgate import Completion
from flowgate.bench.agentdojo import cli, figures, running
from flowgate.bench.agentdojo.defences import rows_of
from flowgate.bench.agentdojo.doubles import Double, is_screening
from flowgate.bench.agentdojo.elements import Ledger, serve
from flowgate.bench.agentdojo.page import page
from flowgate.bench.agentdojo.tables import tables


class Stub(http.server.BaseHTTPRequestHandler):
    """A server with a double in place of a model."""

    double, requests = None, []

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Stub.requests.append(request)
        answer = Stub.double.screen(request) if is_screening(request) else Stub.double(request)
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in answer.calls
        ]
        message = {"role": "assistant", "content": answer.text, "tool_calls": calls or None}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def remote(monkeypatch):
    """Runs a case with a model behind a base URL: a stub that does what a double does."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(suite, user, injection=None, *, defence, gateway="", capable=False):
        case = dojo.Case("v1.2.2", suite, user, injection, ATTACK if injection else dojo.NO_ATTACK)
        *_, plan = running._prepare(case)
        monkeypatch.setattr(Stub, "double", Double(plan, is_capable=capable))
        monkeypatch.setattr(Stub, "requests", [])
        settings = dojo.Settings(str(POLICIES), 0, f"http://127.0.0.1:{server.server_port}/v1", gateway)
        (result,) = running.run_case(running.Job(case, tuple(rows_of([defence], ["strict"], ["refuse"], "a-model")), settings, {}))
        assert (result["error"], result["is_double"]) == ("", False)
        return result

    yield run
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("defence", ["none", "lowest-first", "judge", "introspection", "provenance"])
def test_a_model_behind_a_base_url(defence, remote):
    result = remote("banking", "user_task_5", defence=defence)
    # The requests of a screener are the model's, too.
    assert result["utility"] or defence != "none"
    assert result["input_tokens"] == 7 * len(Stub.requests) > 0
    assert result["model_calls"] == len(Stub.requests)
    if defence == "judge":
        assert any(map(is_screening, Stub.requests))


@pytest.mark.parametrize(("defence", "shown"), [("none", True), ("redact-everything", False)])
def test_whether_a_model_was_shown_the_injection_is_known(defence, shown, remote):
    result = remote("banking", "user_task_1", "injection_task_4", defence=defence)
    assert (result["attack_shown"], result["attack_corrected"]) == (shown, shown)


@pytest.mark.parametrize(("name", "expected"), [("screen", (False, 0)), ("fill", (False, 1))])
def test_what_a_screener_or_a_filler_reads_is_not_shown_to_the_agent(name, expected):
    ledger = Ledger(sees_attack=lambda text: "Pay Eve" in text)
    serve(lambda _: Completion("x"), name, {"messages": [{"role": "user", "content": "Pay Eve."}]}, ledger)
    assert (ledger.attack_shown, ledger.fills_shown_attack) == expected
    assert ledger.model_calls == 1


def test_agentdojos_tool_filter_asks_the_model_for_the_tools(remote, monkeypatch):
    monkeypatch.setattr(Double, "__call__", with_tools("get_most_recent_transactions, send_money"))
    result = remote("banking", "user_task_5", defence="agentdojo-tool-filter")
    first, *others = Stub.requests
    assert "tools" in str(first["messages"][-1]["content"])
    assert {tool["function"]["name"] for tool in others[0]["tools"]} == {"get_most_recent_transactions", "send_money"}
    assert result["utility"]


def with_tools(names):
    """A double that first answers with the names of tools."""
    plain = Double.__call__

    def answer(double, request):
        return Completion(names) if len(Stub.requests) == 1 else plain(double, request)

    return answer


def test_a_model_behind_the_gateway(remote, tmp_path):
    path = tmp_path / "gateway"
    path.write_text(FAKE_GATEWAY)
    path.chmod(0o755)
    result = remote("banking", "user_task_5", "injection_task_4", defence="gateway-lowest-first", gateway=str(path))
    # This process does not see what the gateway shows to the model.
    assert result["attack_shown"] is None
    assert result["utility"]
    assert result["model_calls"] == len(Stub.requests)
    (row,) = [one for one in figures.figures_of([result]) if one.suite == "all"]
    assert (row.attacked.share_shown, row.attacked.share(row.attacked.useful)) == ("", "1/1")


@pytest.mark.skipif("FLOWGATE_BIN" not in os.environ, reason="needs the program: FLOWGATE_BIN")
def test_a_model_behind_flowgate_serve(remote):
    result = remote("banking", "user_task_5", defence="gateway-naive-tainting", gateway=os.environ["FLOWGATE_BIN"])
    # The gateway may ask the model more than once for one message of the client's.
    assert 0 < result["model_calls"] <= len(Stub.requests)


def test_a_row_whose_model_has_no_server_stays_empty(tmp_path, capsys):
    out = tmp_path / "r.jsonl"
    command = ["run", "--suite", "banking", "--sample", "16", "--attack", "none", ATTACK, "--defence", "none", "lowest-first"]
    command += ["--policy-folder", str(POLICIES), "--out", str(out)]
    assert cli.main([*command, "--model", "gpt-9"]) == 2
    assert "nothing to run" in capsys.readouterr().err
    lines = out.read_bytes()
    assert len(lines.splitlines()) == 4
    assert cli.main(["report", "--out", str(out)]) == 0
    assert f"| none | refuse |{'  |' * (len(figures.COLUMNS) - 2)}" in capsys.readouterr().out
    # A double beside it is run, and no row is recorded twice.
    assert cli.main([*command, "--model", "gpt-9", "obedient", "--attack", "none"]) == 0
    assert out.read_bytes().startswith(lines)
    results = running.read_results(out)
    assert sum("empty" in one for one in results) == 4
    assert "model gpt-9" in tables(results)
    assert "gpt-9, none: needs the server of the model" in page(results)
    (row,) = [one for one in figures.summary(results) if one.get("model") == "gpt-9" and one["defence"] == "none"]
    assert (row["is_double"], row["without_attack"], row["under_attack"]) == (False, None, None)
    assert row["empty"] == "the server of the model: --base-url URL"
    # What was measured since then is not empty any more.
    measured = [{**one, "model": "gpt-9"} for one in results if one.get("model") == "obedient"]
    assert [one.needs for one in figures.figures_of([*results, *measured]) if one.model == "gpt-9" and one.benign.cases] == [""] * 4


def test_a_row_that_needs_weights_stays_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("flowgate.bench.agentdojo.defences.find_spec", lambda _: None)
    out = tmp_path / "r.jsonl"
    command = ["run", "--suite", "banking", "--sample", "16", "--attack", "none", "--defence", "agentdojo-detector", "--model", "obedient"]
    assert cli.main([*command, "--policy-folder", str(POLICIES), "--out", str(out)]) == 0
    assert "the row `agentdojo-detector` stays empty: it needs the packages transformers and torch" in capsys.readouterr().err
    (line,) = running.read_results(out)
    assert (line["model"], line["defence"], line["version"], line["attack"]) == ("obedient", "agentdojo-detector", "v1.2.2", "none")
