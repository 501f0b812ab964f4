"""The command `replay`: recorded runs of real models, with a defence around their calls."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]

from .cases import CONFIRMATIONS, SUITES, Row, Settings
from .defences import DEFAULT_POLICIES, check_policies, rows_of
from .recorded import LeftOut, RecordedRun, read_runs
from .replay_figures import OPEN_LOOP, per_run, report
from .replaying import REPLAYED, ReplayJob, replay
from .running import handle_signals

__all__ = ["add_replay", "run_replay"]

DESCRIPTION = f"""\
Repeats the calls of recorded runs in AgentDojo's environments, and has AgentDojo's own checks judge the result: without a
defence, to compare with what the log says, and with each defence, which decides what runs.

{OPEN_LOOP}"""

EPILOG = """\
input:
  Logs of AgentDojo (runs/MODEL/SUITE/TASK/ATTACK/INJECTION.json), or JSON lines of runs with the same fields and messages of
  AgentDojo or OpenAI; compressed or not. A folder is walked.

exit status: 0; 1 if a run was left out or ended with an error; 2 if no run could be replayed; 130 after Ctrl-C.

examples:
  replay runs/gpt-4o-2024-05-13 --version v1.1.2
      Logs that do not state the version of their tasks are those of v1.1.2.
  replay runs/gpt-4o-2024-05-13/banking --defence lowest-first --policies strict typed --confirm refuse oracle --per-run
"""


def add_replay(commands: Any) -> None:
    """Add the command to the others."""
    command = commands.add_parser(
        "replay",
        help="repeat the calls of recorded runs with defences (open loop)",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("runs", nargs="+", metavar="RUNS", help="files or folders of recorded runs")
    command.add_argument("--version", default="", metavar="V", help="the version of the tasks, for runs that do not state it")
    defence = f"of {', '.join(REPLAYED)} (default: naive-tainting provenance lowest-first)"
    default = ["naive-tainting", "provenance", "lowest-first"]
    command.add_argument("--defence", nargs="+", choices=REPLAYED, default=default, metavar="DEFENCE", help=defence)
    policies = "strict, or typed: with endorsements by form (default: strict)"
    command.add_argument("--policies", nargs="+", choices=["strict", "typed"], default=["strict"], metavar="KIND", help=policies)
    confirm = "who is asked: refuse, allow, or an oracle that allows the calls of the user's ground truth (default: refuse)"
    command.add_argument("--confirm", nargs="+", choices=CONFIRMATIONS, default=["refuse"], metavar="WHO", help=confirm)
    folder = f"the policies of the suites (default: {DEFAULT_POLICIES})"
    command.add_argument("--policy-folder", default=DEFAULT_POLICIES, metavar="DIR", help=folder)
    command.add_argument("--processes", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    command.add_argument("--per-run", action="store_true", help="print a line for each run and defence")
    command.add_argument("--out", metavar="FILE", help="write the result of each run and defence as JSON lines")


def run_replay(top: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    if chosen.version and not get_suites(chosen.version):
        top.error(f"AgentDojo has no benchmark version `{chosen.version}`: name one such as v1.2.2")
    if chosen.processes < 1:
        top.error("--processes wants a positive number")
    names = list(dict.fromkeys(chosen.defence))
    check_policies(chosen.policy_folder, chosen.policies, list(SUITES), names)
    rows = [Row("none", "", "refuse", ""), *rows_of(names, chosen.policies, chosen.confirm, "")]
    settings = Settings(chosen.policy_folder)
    results: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    is_interrupted = False
    with ExitStack() as stack:
        output = stack.enter_context(Path(chosen.out).open("w", encoding="utf-8")) if chosen.out else None
        try:
            for one in _outcomes(_jobs(chosen, tuple(rows), settings, left_out), chosen.processes):
                if isinstance(one, LeftOut):
                    _leave_out(one, left_out)
                else:
                    _keep(one, results, output, is_listed=chosen.per_run)
        except KeyboardInterrupt:
            is_interrupted = True
    if results:
        print(report(results, left_out))
    else:
        print("error: no run could be replayed: name logs of AgentDojo, and the version of their tasks with --version", file=sys.stderr)
    if is_interrupted:
        print("interrupted: the figures are those of the runs so far", file=sys.stderr)
        return 130
    if not results:
        return 2
    return 1 if any(result["error"] for result in results) or any(one.kind != "injection task alone" for one in left_out) else 0


def _jobs(chosen: argparse.Namespace, rows: tuple[Row, ...], settings: Settings, left_out: list[LeftOut]) -> Iterator[ReplayJob]:
    for run in read_runs(chosen.runs):
        if isinstance(run, RecordedRun):
            yield ReplayJob(run, rows, settings, chosen.version)
        else:
            _leave_out(run, left_out)


def _outcomes(jobs: Iterator[ReplayJob], processes: int) -> Iterator[list[dict[str, Any]] | LeftOut]:
    if processes == 1:
        yield from map(replay, jobs)
        return
    os.environ["PYTHONHASHSEED"] = "0"
    with multiprocessing.get_context("spawn").Pool(processes, handle_signals) as pool:
        yield from pool.imap(replay, jobs)


def _leave_out(one: LeftOut, left_out: list[LeftOut]) -> None:
    left_out.append(one)
    print(f"left out: {one}", file=sys.stderr)


def _keep(found: list[dict[str, Any]], results: list[dict[str, Any]], output: TextIO | None, *, is_listed: bool) -> None:
    results += found
    for result in found:
        if output is not None:
            output.write(json.dumps(result, ensure_ascii=False) + "\n")
        if is_listed:
            print(per_run(result), flush=True)
