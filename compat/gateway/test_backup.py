"""Backups that are made by the commands of docs/operations.md while agents ask and a person decides, and what is there after a restore."""

import itertools
import json
import os
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import pytest

import double
from test_faults import ANN, TOOLS, person
from test_gateway import KEY, POLICY, Gateway

OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"
POSTGRES = os.environ.get("FLOWGATE_TEST_POSTGRES")
AGENTS = 6
# How many questions of each kind there are before the first backup (and again before each further one), and the number of backups.
KINDS, BACKUPS = {"kept": 4, "used": 4, "denied": 4}, 3
SECONDS = 300
# What a question may have become, if it was at least in this state before the backup began.
LATER = {"allowed": {"allowed", "used"}, "denied": {"denied"}, "used": {"used"}}


def commands(heading):
    """Returns the commands below a heading of the page, block by block."""
    section = re.search(rf"^### {heading}\n(.*?)^##", OPERATIONS.read_text(), re.MULTILINE | re.DOTALL).group(1)
    blocks = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [[re.sub(r"^[#$] ", "", line) for line in block.splitlines()] for block in blocks]


def shell(command, folder, backup, url):
    """Runs a command of the page, with the folders of this test in the place of those of the machine."""
    for name, path in [("/var/lib/flowgate", folder), ("/etc/flowgate/checked.toml", folder / "gateway.toml"), ("/backup", backup)]:
        command = command.replace(name, str(path))
    command = re.sub(r"^flowgate ", f"{os.environ['FLOWGATE']} ", command).replace("flowgate.dump", str(backup / "flowgate.dump"))
    environment = {**os.environ, "DATABASE_URL": url, "AGENT_KEY": KEY, "ANN_KEY": ANN}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"`{command}` ends with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def mind(body):
    """Pays whom the user names, and stops when it reads a refusal."""
    last = body["messages"][-1]
    if last["role"] == "user":
        return [("send_money", {"to": last["content"].split()[1], "amount": 1})]
    return "Done."


def turn(gateway, to):
    """Asks for a payment in the conversation of this recipient; returns whether the agent received the call."""
    body = {"model": "double", "messages": [{"role": "user", "content": f"Pay {to} 1."}], "tools": TOOLS}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", "x-flowgate-conversation": to}
    request = urllib.request.Request(f"{gateway.address}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        message = json.load(response)["choices"][0]["message"]
    return bool(message.get("tool_calls"))


def uses_approval(to):
    """Returns whether the agent asks again when the payment was allowed: it leaves every second approval unused."""
    return int(to.split("-")[1]) % 2 == 0


class Load:
    """Agents that ask for payments and a person who answers, until the gateway ends."""

    def __init__(self, gateway):
        self.gateway, self.stopping, self.lock = gateway, False, threading.Lock()
        self.states = {}  # of each question that was decided or used: what the gateway has confirmed
        self.question_of = {}
        self.failures = []
        self.threads = [threading.Thread(target=self.guarded, args=[self.agent, number]) for number in range(AGENTS)]
        self.threads.append(threading.Thread(target=self.guarded, args=[self.approver]))
        for thread in self.threads:
            thread.start()

    def guarded(self, act, *arguments):
        try:
            act(*arguments)
        except Exception as error:
            # After the gateway was killed, this is what is expected.
            if not self.stopping:
                self.failures.append(error)
            self.stopping = True

    def agent(self, number):
        for count in itertools.count():
            to = f"p{number}-{count}"
            assert not turn(self.gateway, to), "nobody has allowed it yet"
            until = time.monotonic() + SECONDS
            while not self.stopping and self.state_of(to) not in ("allowed", "denied", "left"):
                assert time.monotonic() < until, f"nobody decides about {to}"
                time.sleep(0.01)
            if self.stopping:
                return
            if self.state_of(to) == "allowed" and uses_approval(to):
                assert turn(self.gateway, to), "it was allowed"
                with self.lock:
                    self.states[self.question_of[to]] = "used"

    def state_of(self, to):
        with self.lock:
            return self.states.get(self.question_of.get(to))

    def approver(self):
        decisions = itertools.cycle(["allow", "deny", "allow", "leave"])
        seen = set()
        while not self.stopping:
            for question in person(self.gateway, "/api/v1/approvals")["questions"]:
                if question["id"] in seen or question["state"] != "open":
                    continue
                seen.add(question["id"])
                to = question["call"]["arguments"]["to"]
                decision, state = next(decisions), "left"
                if decision != "leave":
                    body = {"decision": decision, "digest": question["digest"]}
                    state = person(self.gateway, f"/api/v1/approvals/{question['id']}", body)["state"]
                with self.lock:
                    assert to not in self.question_of, f"{to} was asked about twice"
                    self.question_of[to] = question["id"]
                    self.states[question["id"]] = state
            time.sleep(0.01)

    def confirmed(self):
        with self.lock:
            return {one: state for one, state in self.states.items() if state != "left"}

    def kinds(self):
        """Returns how many questions were denied, were allowed and used, and were allowed and will never be used."""
        with self.lock:
            kept = [one for to, one in self.question_of.items() if not uses_approval(to)]
            return {
                "kept": sum(self.states[one] == "allowed" for one in kept),
                **{state: sum(one == state for one in self.states.values()) for state in ("used", "denied")},
            }

    def wait_for(self, reached):
        """Waits until what the load has done is enough."""
        until = time.monotonic() + SECONDS
        while not reached():
            assert not self.failures, self.failures
            assert time.monotonic() < until, "the load makes no progress"
            time.sleep(0.01)

    def kill(self):
        self.stopping = True
        self.gateway.process.kill()
        self.gateway.process.wait()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures


def start(folder, url):
    policy = folder / "asks.flow"
    policy.write_text(POLICY.read_text() + '\nask "payments" if:\n    (call: ToolCall) is tool:send_money\n')
    tables = f'''policy = "{policy}"
requests-per-minute = 1000000
parallel = 64
sessions = 400
[people.ann]
key-from = "ANN_KEY"
role = "approver"
[approvals]
wait-seconds = 0
questions-an-hour = 100000
open-questions = 100000
[store]
url = "{url}"
[audit]
file = "{folder}/audit.jsonl"
'''
    return Gateway(folder, tables, model=double.start(mind), environment={"ANN_KEY": ANN})


@pytest.fixture
def running():
    gateways = []
    yield gateways
    for gateway in gateways:
        if gateway.process.poll() is None:
            gateway.process.kill()
        gateway.process.wait()
        gateway.model.shutdown()


@pytest.mark.parametrize("store", ["SQLite", "PostgreSQL"])
def test_a_backup_made_under_load_is_whole(store, tmp_path, running):
    if store == "PostgreSQL" and not POSTGRES:
        pytest.skip("FLOWGATE_TEST_POSTGRES is not set: `compat/postgres/run compat/gateway/run` sets it")
    folder = tmp_path / "flowgate"
    folder.mkdir()
    url = f"sqlite:{folder}/flowgate.db"
    if store == "PostgreSQL":
        name = f"backup_{uuid.uuid4().hex}"
        subprocess.run(["psql", "--quiet", POSTGRES, "--command", f"CREATE DATABASE {name}"], check=True)
        url = urllib.parse.urlparse(POSTGRES)._replace(path=f"/{name}").geturl()
    blocks = commands(store)
    if store == "SQLite":
        make, restore = blocks[0], [line for line in blocks[1] if not re.match("systemctl|chown", line)]
    else:
        make, restore = blocks[0][:1], blocks[0][1:]
    assert make and restore
    verify = commands("SQLite")[2][0]

    running.append(start(folder, url))
    load = Load(running[0])
    backups = []
    for number in range(BACKUPS):
        load.wait_for(lambda: all(load.kinds()[kind] >= least * (number + 1) for kind, least in KINDS.items()))
        backup = tmp_path / f"backup{number}"
        backup.mkdir()
        confirmed = load.confirmed()
        for command in make:
            shell(command, folder, backup, url)
        backups.append((backup, confirmed))
        # The agents have not stopped: the load continues after the backup, too.
        after = len(load.confirmed())
        load.wait_for(lambda: len(load.confirmed()) > after)
    load.kill()

    question_to = {question: to for to, question in load.question_of.items()}
    for backup, confirmed in backups:
        for command in restore:
            shell(command, folder, backup, url)
        shell(verify, folder, backup, url)
        gateway = start(folder, url)
        running.append(gateway)
        # No approval is lost, and none has another answer.
        restored = {one: person(gateway, f"/api/v1/approvals/{one}")["state"] for one in confirmed}
        wrong = {one: (state, restored[one]) for one, state in confirmed.items() if restored[one] not in LATER[state]}
        assert not wrong, wrong
        assert set(restored.values()) >= {"allowed", "used", "denied"}
        # And none is doubled: what is allowed runs once, and what was denied or has run does not run again.
        for one, state in restored.items():
            runs = [turn(gateway, question_to[one]) for _ in range(2)]
            assert runs == [state == "allowed", False], (question_to[one], state, runs)
            assert person(gateway, f"/api/v1/approvals/{one}")["state"] == {"allowed": "used"}.get(state, state)
        gateway.process.kill()
        gateway.process.wait()
        shell(verify, folder, backup, url)
