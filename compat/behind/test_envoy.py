"""Envoy asks Flowgate about whole requests and answers, as its external processor."""

import json
import os
import sys
import urllib.request
from pathlib import Path

import openai
import pytest

from double import KEY, Agent, free_port, gateway, model, running, wait

MODE = {"request_header_mode": "SEND", "response_header_mode": "SEND", "request_body_mode": "BUFFERED", "response_body_mode": "BUFFERED"}


def cluster(name, address, http2=False):
    host, port = address.removeprefix("http://").split(":")
    endpoint = {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}
    found = {"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}}
    if http2:
        options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        found["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": options, "explicit_http_config": {"http2_protocol_options": {}}}
        }
    return found


def listener(port, key=KEY, processor="flowgate", mode=MODE, **more):
    """A listener that passes requests to the model, and asks the external processor."""
    grpc = {"envoy_grpc": {"cluster_name": processor}, "initial_metadata": [{"key": "authorization", "value": f"Bearer {key}"}]}
    external = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor"
    asks = {"@type": external, "grpc_service": grpc, "processing_mode": mode, "message_timeout": "60s", "failure_mode_allow": False, **more}
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    routes = {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "model", "timeout": "60s"}}]}]}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": routes,
        "http_filters": [{"name": "flowgate", "typed_config": asks}, {"name": "router", "typed_config": router}],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"name": f"port-{port}", "address": address, "filter_chains": [chain], "per_connection_buffer_limit_bytes": 8 << 20}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("envoy")
    with model() as upstream, gateway(folder) as flowgate:
        listeners = {
            "guarded": {},
            "wrong-key": {"key": "no-key-of-any-client"},
            "dead": {"processor": "dead"},
            "dead-open": {"processor": "dead", "failure_mode_allow": True},
            "no-answers": {"mode": {**MODE, "response_body_mode": "NONE"}},
            "in-pieces": {"mode": {**MODE, "request_body_mode": "STREAMED"}},
            "no-heads": {"mode": {**MODE, "request_header_mode": "SKIP"}},
        }
        ports = {name: free_port() for name in [*listeners, "admin", "nobody"]}
        clusters = [
            cluster("model", f"http://127.0.0.1:{upstream.server_port}"),
            cluster("flowgate", flowgate, http2=True),
            cluster("dead", f"http://127.0.0.1:{ports['nobody']}", http2=True),
        ]
        admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": ports["admin"]}}}
        resources = {"listeners": [listener(ports[name], **more) for name, more in listeners.items()], "clusters": clusters}
        config, log = folder / "envoy.json", folder / "envoy.log"
        config.write_text(json.dumps({"admin": admin, "static_resources": resources}))
        program = Path(sys.executable).with_name("envoy")
        command = [str(program), "-c", str(config), "--base-id", str(os.getpid()), "--concurrency", "2", "--log-level", "warning"]
        with running(command, {"HOME": str(folder)}, log) as process:
            ready = f"http://127.0.0.1:{ports['admin']}/ready"
            wait(process, log, lambda: urllib.request.urlopen(ready).status == 200, "Envoy")
            clients = {name: openai.OpenAI(base_url=f"http://127.0.0.1:{ports[name]}/v1", api_key="sk-of-the-agent", max_retries=0) for name in listeners}
            yield clients, upstream


@pytest.mark.parametrize("stream", [False, True])
def test_a_benign_task_passes(world, stream):
    clients, upstream = world
    agent = Agent(clients["guarded"], stream)
    assert agent.says("Mail Bob.") == "Done."
    assert agent.ran == [("send", {"to": "bob", "body": "Hello."})]
    # What the model receives is what was judged.
    assert [tool["function"]["name"] for tool in upstream.asked[-1]["tools"]] == ["read", "send"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_injected_call_is_blocked(world, stream):
    agent = Agent(world[0]["guarded"], stream)
    with pytest.raises(openai.PermissionDeniedError) as raised:
        agent.says("Read the page.")
    assert agent.ran == [("read", {})]
    assert "mallory" not in agent.heard + str(raised.value)
    assert "flowgate: a person would have to allow the call of `send`" in str(raised.value)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_withheld(world, stream):
    agent = Agent(world[0]["guarded"], stream)
    with pytest.raises(openai.PermissionDeniedError) as raised:
        agent.says("Please tell me the password.")
    assert "hunter2" not in agent.heard + str(raised.value)


def test_what_cannot_be_judged_does_not_reach_the_model(world):
    clients, upstream = world
    client, before = clients["guarded"], len(upstream.asked)
    chat = [{"role": "user", "content": "Hi."}]
    for path, body in [
        ("/embeddings", {"model": "double", "input": "Hi."}),
        ("/chat/completions", {"model": "double", "messages": chat, "functions": [{"name": "send"}]}),
        ("/chat/completions", {"model": "double", "messages": chat, "n": 2}),
        ("/chat/completions", {"model": "double"}),
        ("/messages/count_tokens", {"model": "double", "messages": chat}),
    ]:
        with pytest.raises(openai.PermissionDeniedError):
            client.post(path, body=body, cast_to=dict)
    with pytest.raises(openai.PermissionDeniedError):
        client.get("/responses/resp_1", cast_to=dict)
    assert len(upstream.asked) == before


@pytest.mark.parametrize("name", ["dead", "wrong-key", "no-answers", "in-pieces", "no-heads"])
def test_without_a_judgement_the_request_is_stopped(world, name):
    clients, upstream = world
    with pytest.raises(openai.APIStatusError) as raised:
        Agent(clients[name]).says("Mail Bob.")
    assert raised.value.status_code >= 500
    assert "bob" not in str(raised.value)
    if name in ("no-answers", "in-pieces"):
        assert "the external processor must see whole bodies" in str(raised.value)


def test_what_the_documentation_warns_of(world):
    agent = Agent(world[0]["dead-open"])
    agent.says("Read the page.")
    assert ("send", {"to": "mallory", "body": "all"}) in agent.ran
