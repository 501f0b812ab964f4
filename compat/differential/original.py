"""Runs invariant-ai on pairs of a policy and a trace, and tells what it found as plain data.

As a program it is a worker: one request in JSON a line in, one outcome a line out. `Pool` starts workers and spreads
requests over them; a worker that takes too long is ended and replaced.
"""

import asyncio
import contextlib
import functools
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

CAP = "1000000000"


class Late(BaseException):
    """The analysis took too long; no handler of errors may take it for one."""


def addresses(value, path, found):
    """Notes for every object of a parsed trace all places where it stands."""
    from pydantic import BaseModel

    from invariant.analyzer.runtime.nodes import Contents

    found.setdefault(str(id(value)), []).append((path, value))
    if isinstance(value, Contents):
        value = value.root
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    elif isinstance(value, BaseModel):
        steps = [(name, getattr(value, name)) for name in type(value).model_fields]
    else:
        steps = []
    for step, inner in steps:
        addresses(inner, f"{path}.{step}", found)


def is_shared(places):
    """Whether Python has one object for all values like this one, so that its identity says nothing of its place."""
    value = places[0][1]
    small = value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 2)
    return small or len(places) > 1


def doubtful(parsed, ranges):
    """The places of those objects behind `ranges` that stand in several places."""
    found = {}
    addresses(parsed, "messages", found)
    shared = {address.object_id for address in ranges if is_shared(found.get(address.object_id, [("", None)]))}
    return sorted({path for object_id in shared for path, _ in found.get(object_id, [])})


def plain(value):
    """A value as JSON has it."""
    return json.loads(json.dumps(value, default=str))


def analyze(policy, request):
    """The findings of a policy, with the places that are doubtful."""
    from invariant.analyzer.runtime.function_cache import FunctionCache
    from invariant.analyzer.runtime.input import Input
    from invariant.analyzer.stdlib.invariant.errors import AnalysisResult

    async def run():
        parsed = Input(request["messages"])
        parameters = {**request.get("parameters", {}), "data": parsed}
        # A cache of its own, for what one analysis or its repairs remember must not reach the next.
        pairs = await policy.rule_set.instance(FunctionCache()).apply(parsed, parameters)
        # The original puts its findings into a model that refuses what is no finding.
        return parsed, AnalysisResult(errors=[error for _, error in pairs]).errors

    parsed, errors = asyncio.run(run())
    outcome = []
    for error in errors:
        ranges = list(error.ranges)
        found = error.to_dict()
        found["ranges"] = sorted(set(found["ranges"]))
        found["doubtful"] = doubtful(parsed.data, ranges)
        outcome.append(plain(found))
    return outcome


def refusal(phase, error):
    """An outcome that is an exception."""
    return {"errors": [], "refused": {"phase": phase, "class": type(error).__name__, "text": str(error)[:300]}}


@functools.lru_cache(maxsize=32)
def parsed(text):
    """A policy, which takes longer to read than to evaluate."""
    from invariant.analyzer.policy import LocalPolicy

    return LocalPolicy.from_string(text)


def judge(request):
    """The outcome of one request: findings, or the class of the exception and where it came from."""
    from invariant.analyzer.runtime.input import Input
    from repairs import Repairs

    with Repairs(request.get("repairs", [])) as repairs:
        try:
            policy = parsed(request["policy"])
        except Exception as error:
            return refusal("load", error)
        try:
            Input(request["messages"])
        except Exception as error:
            return refusal("trace", error) | {"fired": sorted(repairs.fired)}
        try:
            outcome = {"errors": analyze(policy, request), "refused": None}
        except (Exception, SystemExit) as error:
            outcome = refusal("run", error)
    return outcome | {"fired": sorted(repairs.fired), "failures": repairs.failures}


def judge_in_time(request, seconds):
    """`judge`, or a refusal of the class Late."""

    def late(*_):
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return judge(request)
    except Late as error:
        return refusal("time", error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def work(seconds):
    """The worker's loop."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        outcome = judge_in_time(json.loads(line), seconds)
        print(json.dumps(outcome), flush=True)


class Worker:
    """One process that runs the original."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.process = None

    def start(self):
        """Starts the process."""
        command = [sys.executable, str(Path(__file__).resolve()), "--seconds", str(self.seconds)]
        environment = {**os.environ, "INVARIANT_MAX_ITERATIONS": CAP, "LOCAL_POLICY": "1", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )

    def ask(self, request):
        """One outcome; a process that does not answer is ended."""
        if self.process is None:
            self.start()
        watch = threading.Timer(self.seconds + 30, self.process.kill)
        watch.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        if line:
            return json.loads(line)
        self.stop()
        return {"errors": [], "refused": {"phase": "time", "class": "Killed", "text": ""}}

    def stop(self):
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Pool:
    """Workers that share the requests."""

    def __init__(self, workers, seconds):
        self.free = queue.SimpleQueue()
        self.workers = [Worker(seconds) for _ in range(workers)]
        for worker in self.workers:
            self.free.put(worker)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.stop()

    def ask(self, request):
        """One outcome, from whichever worker is free."""
        worker = self.free.get()
        try:
            return worker.ask(request)
        finally:
            self.free.put(worker)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Worker: requests in JSON lines in, outcomes of invariant-ai out.")
    parser.add_argument("--seconds", type=float, default=20.0, help="longest time for one request (default: 20)")
    work(parser.parse_args().seconds)
