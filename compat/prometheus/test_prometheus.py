"""A real Prometheus with the documented configuration, which reads a gateway that agents use."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from agents import ChatCompletions
from test_gateway import KEY, PAGE, Gateway

ROOT = Path(os.environ["FLOWGATE_ROOT"])
PROGRAMS = Path(os.environ["PROMETHEUS"])
TOKEN = "the-token-of-this-gateway-000000"
SECONDS = 300
# Panels that have figures while the agents ask.
FILLED = [
    "flowgate_requests_total[", "flowgate_request_seconds_sum[", "flowgate_calls_total[", "flowgate_hidden_regions_total[", "flowgate_turn_seconds_sum[",
    "flowgate_upstream_seconds_sum[", "flowgate_tokens_total[", "flowgate_connections", "flowgate_value_bytes",
]


def tool(*arguments, folder):
    done = subprocess.run([PROGRAMS / "promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts(folder):
    shutil.copy(ROOT / "deploy/prometheus-alerts.yml", folder)


def test_the_alerts_fire_when_they_should(tmp_path):
    alerts(tmp_path)
    shutil.copy(Path(__file__).parent / "alerts.yml", tmp_path)
    tool("test", "rules", "alerts.yml", folder=tmp_path)


def queries():
    """Returns the queries of the dashboard for Prometheus, by the titles of their panels."""
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m"))
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        if target["datasource"]["type"] == "prometheus"
    ]


class Prometheus:
    """Prometheus with the configuration of the page, for this gateway, every second."""

    def __init__(self, folder, address):
        page = (ROOT / "docs/operations.md").read_text()
        shown = re.search(r"^```yaml\n(# prometheus.yml\n.*?)^```", page, re.MULTILINE | re.DOTALL).group(1)
        token = folder / "token"
        for before, after in [("/etc/prometheus/flowgate-token", str(token)), ("127.0.0.1:8000", address.removeprefix("http://"))]:
            assert before in shown
            shown = shown.replace(before, after)
        (folder / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n{shown}")
        alerts(folder)
        tool("check", "config", "prometheus.yml", folder=folder)
        for _ in range(5):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.log = folder / "prometheus.log"
            options = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder}/data", "--config.file=prometheus.yml"]
            with self.log.open("w") as log:
                self.process = subprocess.Popen([PROGRAMS / "prometheus", *options], cwd=folder, stderr=log, stdout=log)
            self.address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + SECONDS
            while self.process.poll() is None:
                try:
                    urllib.request.urlopen(f"{self.address}/-/ready", timeout=SECONDS).close()
                    return
                except OSError:
                    assert time.monotonic() < until, self.log.read_text()
                    time.sleep(0.1)
            if "address already in use" not in self.log.read_text():
                break
        raise AssertionError(self.log.read_text())

    def get(self, path, **query):
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as response:
                said = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        assert said["status"] == "success", said
        assert not said.get("warnings"), said
        return said["data"]

    def rules(self):
        return {rule["name"]: rule for group in self.get("rules")["groups"] for rule in group["rules"]}

    def wait_for(self, what, isnt_yet):
        """Waits until nothing is left of what is to come."""
        until = time.monotonic() + SECONDS
        while left := isnt_yet():
            assert time.monotonic() < until, f"{what}: {left}\n{self.log.read_text()[-2000:]}"
            time.sleep(0.2)

    def wait_for_alert(self, name, state):
        self.wait_for(name, lambda: (found := self.rules()[name]["state"]) != state and found)

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def running(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    people = '[people.ann]\nkey-from = "ANN_KEY"\nrole = "approver"\n'
    gateway = Gateway(tmp_path, people, options=["--token-file", str(tmp_path / "token")], environment={"ANN_KEY": "the-key-of-ann-who-decides"})
    prometheus = None
    try:
        prometheus = Prometheus(tmp_path, gateway.address)
        yield gateway, prometheus
    finally:
        if prometheus:
            prometheus.stop()
        gateway.process.kill()
        gateway.process.wait()
        gateway.model.shutdown()


def test_a_prometheus_reads_the_gateway(running):
    gateway, prometheus = running
    prometheus.wait_for("the target", lambda: [one["lastError"] or "not read yet" for one in prometheus.get("targets")["activeTargets"] if one["health"] != "up"])
    prometheus.wait_for("the alerts", lambda: {name: rule.get("lastError", "not yet") for name, rule in prometheus.rules().items() if rule["health"] != "ok"})
    assert len(prometheus.rules()) == (ROOT / "deploy/prometheus-alerts.yml").read_text().count("- alert: ")

    filled = [(title, query) for title, query in queries() if any(name in query for name in FILLED) and "/health" not in query and "verdict=~" not in query and "4..|5.." not in query]
    for name in FILLED:
        assert any(name in query for _, query in filled), name

    def without_figures():
        ChatCompletions(gateway.address, KEY, PAGE, False).says("Send Ann what is on https://example.org/news")
        return [query for _, query in filled if not prometheus.get("query", query=query)["result"]]

    prometheus.wait_for("panels without figures", without_figures)
    for title, query in queries():
        assert prometheus.get("query", query=query)["resultType"] == "vector", title

    for _ in range(11):
        request = urllib.request.Request(f"{gateway.address}/ui/api/session", b"", {"authorization": "Bearer the-key-of-nobody-here"})
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=SECONDS)
    prometheus.wait_for_alert("FlowgateGuessedLogins", "firing")

    assert prometheus.rules()["FlowgateDown"]["state"] == "inactive"
    gateway.process.kill()
    prometheus.wait_for_alert("FlowgateDown", "pending")
