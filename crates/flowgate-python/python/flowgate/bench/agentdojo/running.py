"""Runs cases in processes, and keeps every result.

Results are JSON lines, appended as they come, each with what decides it under `key`. A second run leaves out what the file has,
so an interrupted one continues where it stopped; a last line that was cut off is removed. Every process starts with the same hash
seed, since AgentDojo makes lists from sets.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from agentdojo.agent_pipeline import AgentPipeline  # type: ignore[import-untyped]
from agentdojo.attacks import load_attack  # type: ignore[import-untyped]
from agentdojo.task_suite.task_suite import TaskSuite, read_suite_file  # type: ignore[import-untyped]
from agentdojo.types import get_text_content_as_str  # type: ignore[import-untyped]
from pydantic_core import to_jsonable_python

from .cases import NO_ATTACK, PIPELINE_NAME, Case, Row, Settings, attacks, suite_of
from .defences import adopt_defences, model_of, pipeline_of, unsafe_endorsements
from .elements import Ledger
from .gateway import Client, stop_gateways
from .judging import attack_finder, has_attack, is_of_user, judge
from .plans import Call, Plan, plan_of
from .provenance import data_of, endpoint_of, key_of
from .reasons import Trial, reason_of
from .registry import DEFENCES, is_double, load_plugins
from .texts import as_read

__all__ = ["Job", "Recorder", "add_empty", "environment_of", "handle_signals", "read_results", "run_case", "run_jobs"]

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """The rows that a case is to be run with."""

    case: Case
    rows: tuple[Row, ...]
    settings: Settings
    data: dict[str, str]
    """What the results are measured with, as the parent found it: files may change during a run."""


@lru_cache(maxsize=8)
def _attack(benchmark_version: str, suite: str, name: str) -> Any:
    target = AgentPipeline([])
    target.name = PIPELINE_NAME
    return load_attack(name, suite_of(benchmark_version, suite), target)


def environment_of(suite: Any, injections: dict[str, str]) -> Any:
    """Return what AgentDojo's `load_and_inject_default_environment` does, with libyaml's parser where there is one."""
    if type(suite).load_and_inject_default_environment is not TaskSuite.load_and_inject_default_environment:
        return suite.load_and_inject_default_environment(injections)
    text = read_suite_file(suite.name, "environment.yaml", suite.data_path)
    filled = text.format(**{**_vectors(suite), **injections})
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return suite.environment_type.model_validate(yaml.load(filled, loader))


@lru_cache
def _vectors(suite: Any) -> dict[str, str]:
    return dict(suite.get_injection_vector_defaults())


def _prepare(case: Case) -> tuple[Any, Any, dict[str, str], Any, Plan]:
    suite = suite_of(case.version, case.suite)
    user = suite.user_tasks[case.user_task]
    injection = suite.injection_tasks[case.injection_task] if case.injection_task else None
    injections: dict[str, str] = {}
    if injection is not None:
        injections = _attack(case.version, case.suite, case.attack).attack(user, injection)
    environment = environment_of(suite, injections)
    started = user.init_environment(environment.model_copy(deep=True))
    denies = attacks().get(case.attack, False)
    plan = plan_of(user, injection, injections, started, suite=case.suite, denies_service=denies)
    return user, injection, injections, environment, plan


def run_case(job: Job) -> list[Result]:
    """Run one case with each row, and return the results."""
    warnings.simplefilter("ignore")
    load_plugins(job.settings.plugins)
    adopt_defences()
    prepared = _prepare(job.case)
    return [_run_row(job, row, prepared) for row in job.rows]


def _run_row(job: Job, row: Row, prepared: tuple[Any, Any, dict[str, str], Any, Plan]) -> Result:
    case, settings = job.case, job.settings
    user, injection, injections, environment, plan = prepared
    ledger = Ledger(sees_attack=attack_finder(plan), is_of_user=partial(is_of_user, plan))
    started = time.monotonic()
    model = model_of(row, plan, settings)
    pipeline = Recorder(pipeline_of(row, case.suite, plan, model, ledger, settings), is_guarded=bool(DEFENCES[row.defence].method))
    utility, raw, error = False, False, ""
    try:
        utility, raw = suite_of(case.version, case.suite).run_task_with_pipeline(
            pipeline, user, injection, injections, environment=environment.model_copy(deep=True)
        )
    except Exception as failure:  # noqa: BLE001 - one case that fails must not end a run of thousands
        error = f"{type(failure).__name__}: {failure}"[:400]
    finally:
        pipeline.close()
    if plan.denies_service and not error:
        # As AgentDojo's `benchmark` does: an attack that denies service succeeds if the task is not done.
        raw = not utility
    result = {
        "key": key_of(case, row, settings, job.data),
        **asdict(case),
        **asdict(row),
        "is_double": is_double(row.model),
        "unsafe": unsafe_endorsements(settings.policies, row.policies, case.suite),
        "base_url": endpoint_of(row, settings),
        "seed": settings.seed,
        "data": job.data,
        "error": error,
        "utility": bool(utility),
        "questions": len(ledger.questions),
        "allowed": ledger.allowed,
        "asked": ledger.questions,
        "asked_own": ledger.own_questions,
        "own_ran": [call.tool for call in pipeline.calls_that_ran() if is_of_user(plan, call.tool, call.arguments)],
        "model_calls": ledger.model_calls,
        "input_tokens": ledger.input_tokens,
        "output_tokens": ledger.output_tokens,
        "tokens_are_estimated": ledger.tokens_are_estimated,
        "messages": len(pipeline.messages),
        "seconds": round(time.monotonic() - started, 4),
    }
    if injection is None:
        return result
    is_done_alone = not (plan.denies_service and raw) or _is_done_alone(job, row)
    suite = suite_of(case.version, case.suite)
    trial = Trial(suite, user, injection, plan, environment, lambda: environment_of(suite, {}))
    return {**result, **_attack_result(trial, pipeline, ledger, raw=bool(raw), is_done_alone=is_done_alone)}


def _is_done_alone(job: Job, row: Row) -> bool:
    """Run a case without its attack, and return whether the task is done. An error counts as done: it excuses no attack."""
    case = replace(job.case, injection_task=None, attack=NO_ATTACK)
    result = _run_row(replace(job, case=case), row, _prepare(case))
    return bool(result["utility"] or result["error"])


def _attack_result(trial: Trial, pipeline: Recorder, ledger: Ledger, *, raw: bool, is_done_alone: bool) -> Result:
    plan, ran = trial.plan, pipeline.calls_that_ran()
    judgement = judge(plan, ran, raw=raw, fills_shown_attack=ledger.fills_shown_attack, is_done_alone=is_done_alone)
    return {
        "attack_shown": ledger.attack_shown,
        "is_in_users_values": any(has_attack(plan, json.dumps(call.arguments, ensure_ascii=False)) for call in plan.calls),
        "attack_raw": raw,
        "attack_corrected": judgement.succeeded,
        "reason": reason_of(judgement, trial, ran, pipeline.calls_that_failed(), pipeline.reply()),
        "partial": judgement.is_partial,
        "payload_only": judgement.is_payload_only,
        "harmful": judgement.harmful,
    }


class Recorder:
    """A pipeline that keeps its last messages. AgentDojo is given a guard's reply as a person reads it."""

    def __init__(self, pipeline: Any, *, is_guarded: bool) -> None:
        self.pipeline, self.name, self.is_guarded = pipeline, pipeline.name, is_guarded
        self.messages: list[Any] = []

    def query(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pipeline, and keep its messages."""
        state = self.pipeline.query(*args, **kwargs)
        self.messages = list(state[3])
        if self.is_guarded:
            last = self.messages[-1]
            content = [{**block, "content": as_read(str(block["content"]))} for block in last["content"] or []]
            self.messages[-1] = {**last, "content": content}
        return (*state[:3], self.messages, state[4])

    def close(self) -> None:
        """End what runs for this case alone."""
        for element in self.pipeline.elements:
            if isinstance(element, Client):
                element.stop()

    def calls_that_ran(self) -> list[Call]:
        """Return the calls that ran without an error."""
        return self._calls(failed=False)

    def calls_that_failed(self) -> list[Call]:
        """Return the calls that ended with an error."""
        return self._calls(failed=True)

    def _calls(self, *, failed: bool) -> list[Call]:
        return [
            Call(message["tool_call"].function, to_jsonable_python(dict(message["tool_call"].args)))
            for message in self.messages
            if message["role"] == "tool" and (message["error"] is not None) is failed
        ]

    def reply(self) -> str:
        """Return the text of the last message; empty if there is none."""
        content = self.messages[-1]["content"] if self.messages else None
        return get_text_content_as_str(content) if content else ""


def read_results(path: Path) -> list[Result]:
    """Read results. A last line that was cut off is left out; another line that is no result is an error."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    results = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            result = json.loads(line)
            if not isinstance(result, dict) or "key" not in result:
                raise ValueError
        except ValueError:
            if number == len(lines):
                break
            message = f"{path}, line {number}: not a result of this command: name another file with `--out`"
            raise SystemExit(message) from None
        results.append(result)
    return results


def _mend(path: Path) -> None:
    """Remove a last line that was cut off, so that what is appended begins a line."""
    if path.exists():
        whole = path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end != len(whole):
            os.truncate(path, end)


def add_empty(path: Path, versions: list[str], attacks_of: list[str], rows: list[Row], needs: str) -> None:
    """Record that rows stay empty, with what they need, once for each version and attack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _mend(path)
    known = {result["key"] for result in read_results(path)}
    with path.open("a", encoding="utf-8") as output:
        for row, version, attack in product(rows, versions, attacks_of):
            key = f"empty {version} {attack} {row.model} {row.name} {row.confirmation}"
            if key not in known:
                line = {"key": key, "version": version, "attack": attack, **asdict(row), "empty": needs}
                output.write(json.dumps(line) + "\n")


def run_jobs(jobs: list[Job], path: Path, processes: int, progress: Callable[[Result], None]) -> bool:
    """Run jobs and append their results; return whether all were run. Ctrl-C ends the run, and loses at most what was under way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _mend(path)
    os.environ["PYTHONHASHSEED"] = "0"
    with path.open("ab") as output, multiprocessing.get_context("spawn").Pool(processes, handle_signals) as pool:
        try:
            for results in pool.imap_unordered(run_case, jobs):
                for result in results:
                    output.write(json.dumps(result, ensure_ascii=False).encode() + b"\n")
                    progress(result)
                output.flush()
        except KeyboardInterrupt:
            pool.terminate()
            return False
    return True


def handle_signals() -> None:
    """Leave Ctrl-C to the parent, which ends the others. What a process has started ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: Any) -> None:
    # An exception would not end the process: AgentDojo's client catches all, and tries again.
    stop_gateways()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def pending(cases: Iterator[Case], rows: list[Row], settings: Settings, done: set[str]) -> list[Job]:
    """Return the jobs that are left, each with the rows that a case still lacks."""
    data = data_of(settings)
    jobs = []
    for case in cases:
        left = tuple(row for row in rows if key_of(case, row, settings, data) not in done)
        if left:
            jobs.append(Job(case, left, settings, data))
    return jobs
