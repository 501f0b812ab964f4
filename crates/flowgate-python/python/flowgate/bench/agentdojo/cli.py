"""The command `python -m flowgate.bench.agentdojo`: runs AgentDojo with defences around a model, and reports."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]

from ...errors import FlowgateError
from .cases import CONFIRMATIONS, NO_ATTACK, SUITES, VERSIONS, Settings, attacks, cases
from .defences import DEFAULT_POLICIES, DEFENCES, DOUBLES, check_policies, rows_of
from .figures import corrections, failures, figures_of, text_table
from .page import page
from .replay_cli import add_replay, run_replay
from .running import Result, pending, read_results, run_jobs

DEFAULT_OUT = "target/agentdojo-results.jsonl"
DEFAULT_DEFENCES = [
    "none",
    "agentdojo-tool-filter",
    "confirm-every-call",
    "naive-tainting",
    "redact-everything",
    "provenance",
    "lowest-first",
]

EPILOG = """\
examples:
  run --sample 50
      A quick look: every 50th case of each suite, with the usual defences and both doubles.
  run --defence lowest-first --policies strict typed --confirm refuse oracle --processes 4
      All cases. Press Ctrl-C at any time: the same command continues where it stopped.
  run --model gpt-4o-2024-05-13 --base-url http://127.0.0.1:8000/v1 --defence none lowest-first
      A model behind an OpenAI-compatible server; its key is OPENAI_API_KEY.
  run --defence gateway-lowest-first --model capable --gateway target/debug/flowgate
      AgentDojo's own client with the gateway as its base URL.
  report --html report.html
      The tables, and a page with plots and every corrected case.
  replay runs/gpt-4o-2024-05-13 --version v1.1.2
      Recorded runs of a real model, with a defence around their calls. The loop is open: see `replay --help`.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="python -m flowgate.bench.agentdojo",
        description="AgentDojo, judged by AgentDojo: its tasks, attacks and checks, with defences around a model. Without --base-url no\n"
        "language model takes part: the models `obedient` and `capable` are test doubles, whose figures are bounds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run cases and keep the results, leaving out what the file has")
    _add_cases(run)
    _add_rows(run)
    run.add_argument("--processes", type=int, default=1, metavar="N", help="cases at a time (default: 1)")
    report = commands.add_parser("report", help="print the tables of results")
    report.add_argument("--html", metavar="FILE", help="write the report as one page")
    for command in (run, report):
        command.add_argument("--out", default=DEFAULT_OUT, metavar="FILE", help=f"the results, JSON lines (default: {DEFAULT_OUT})")
    add_replay(commands)
    commands.add_parser("list", help="list defences and attacks")
    return top


def _add_cases(run: argparse.ArgumentParser) -> None:
    versions = f"versions of the tasks, such as {', '.join(VERSIONS)} (default: v1.2.2)"
    run.add_argument("--version", nargs="+", default=["v1.2.2"], metavar="V", help=versions)
    suites = f"of {', '.join(SUITES)} (default: all)"
    run.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES), metavar="SUITE", help=suites)
    attack = "`none`, or attacks of the package: see `list` (default: none important_instructions)"
    run.add_argument("--attack", nargs="+", default=[NO_ATTACK, "important_instructions"], metavar="ATTACK", help=attack)
    run.add_argument("--sample", type=int, default=1, metavar="N", help="every N-th case of each suite (default: all)")


def _add_rows(run: argparse.ArgumentParser) -> None:
    defence = "see `list` (default: those of RTBAS's figures)"
    run.add_argument("--defence", nargs="+", choices=list(DEFENCES), default=DEFAULT_DEFENCES, metavar="DEFENCE", help=defence)
    policies = "strict, or typed: with endorsements by form (default: strict)"
    run.add_argument("--policies", nargs="+", choices=["strict", "typed"], default=["strict"], metavar="KIND", help=policies)
    confirm = "who is asked: refuse, allow, or an oracle that allows the calls of the user's ground truth (default: refuse)"
    run.add_argument("--confirm", nargs="+", choices=CONFIRMATIONS, default=["refuse"], metavar="WHO", help=confirm)
    model = "`obedient`, `capable`, or a model's name with --base-url (default: both doubles)"
    run.add_argument("--model", nargs="+", default=list(DOUBLES), metavar="MODEL", help=model)
    run.add_argument("--base-url", default="", metavar="URL", help="an OpenAI-compatible server for models that are no doubles")
    run.add_argument("--gateway", default="", metavar="PATH", help="the program `flowgate`, for the rows through the gateway")
    folder = f"the policies of the suites (default: {DEFAULT_POLICIES})"
    run.add_argument("--policy-folder", default=DEFAULT_POLICIES, metavar="DIR", help=folder)
    run.add_argument("--seed", type=int, default=0, metavar="N", help="the seed that a server is sent (default: 0)")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status: 0, 1 for an error of a case, 2 for a mistake of the caller, 130 after Ctrl-C."""
    top = parser()
    chosen = top.parse_args(arguments)
    try:
        if chosen.command == "list":
            return _list()
        if chosen.command == "report":
            return _report(chosen)
        if chosen.command == "replay":
            return run_replay(top, chosen)
        return _run(top, chosen)
    except FlowgateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _list() -> int:
    for name, defence in DEFENCES.items():
        print(f"{name:26}{defence.doc}{f' (needs {defence.needs})' if defence.needs else ''}")
    print(f"\nattacks: {', '.join([NO_ATTACK, *attacks()])}")
    return 0


def _run(top: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    _check(top, chosen)
    names = list(dict.fromkeys(chosen.defence))
    doubles = [model for model in chosen.model if model in DOUBLES]
    lacking = [name for name in names if DEFENCES[name].needs]
    for name in lacking:
        print(f"the row `{name}` stays empty: it needs {DEFENCES[name].needs}", file=sys.stderr)
        names.remove(name)
    check_policies(chosen.policy_folder, chosen.policies, chosen.suite, names)
    rows = [row for model in chosen.model for row in rows_of(names, chosen.policies, chosen.confirm, model)]
    settings = Settings(chosen.policy_folder, chosen.seed, chosen.base_url, chosen.gateway)
    path = Path(chosen.out)
    done = {result["key"] for result in read_results(path)}
    jobs = []
    for version in chosen.version:
        for attack in chosen.attack:
            jobs += pending(cases(version, tuple(chosen.suite), attack, chosen.sample), rows, settings, done)
    total = sum(len(job.rows) for job in jobs)
    print(f"{total} runs of {len(jobs)} cases; {len(done)} results are in {path}", file=sys.stderr)
    if doubles:
        print("the models `obedient` and `capable` are test doubles: their figures are bounds", file=sys.stderr)
    progress = _Progress(total)
    is_complete = run_jobs(jobs, path, chosen.processes, progress)
    progress.end()
    if not is_complete:
        print("interrupted: the same command continues where it stopped", file=sys.stderr)
        return 130
    print(text_table([figures for figures in figures_of(read_results(path)) if figures.suite == "all"]))
    return 1 if progress.errors else 0


def _check(top: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    known = {NO_ATTACK, *attacks()}
    for attack in chosen.attack:
        if attack not in known:
            top.error(f"there is no attack `{attack}`; there are: {', '.join(sorted(known))}")
    for version in chosen.version:
        if not get_suites(version):
            top.error(f"AgentDojo has no benchmark version `{version}`; there are {', '.join(VERSIONS)} among others")
    remote = [model for model in chosen.model if model not in DOUBLES]
    if remote and not chosen.base_url:
        top.error(f"`{remote[0]}` is no double: name its server with --base-url URL, or use --model {' '.join(DOUBLES)}")
    through = [name for name in chosen.defence if DEFENCES[name].is_gateway]
    if through and not chosen.gateway:
        top.error(f"the row `{through[0]}` needs the program: name it with --gateway PATH, such as target/debug/flowgate")
    for name in ("sample", "processes"):
        if getattr(chosen, name) < 1:
            top.error(f"--{name} wants a positive number")


def _report(chosen: argparse.Namespace) -> int:
    results = read_results(Path(chosen.out))
    if not results:
        print(f"error: {chosen.out} has no results: begin with `run --sample 50`", file=sys.stderr)
        return 2
    print(text_table(figures_of(results)))
    for version, model, row, reason, number, _ in corrections(results):
        print(f"corrected: {version}, {model}, {row}: {number} because {reason}")
    for error, number in failures(results).most_common(20):
        print(f"error in {number} cases: {error}")
    if chosen.html:
        Path(chosen.html).write_text(page(results), encoding="utf-8")
        print(f"wrote {chosen.html}", file=sys.stderr)
    return 0


class _Progress:
    """Says how far a run is, at most every second on a terminal and every half minute elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.errors = total, 0, 0
        self.started = self.last = time.monotonic()
        self.is_terminal = sys.stderr.isatty()

    def __call__(self, result: Result) -> None:
        self.done += 1
        self.errors += bool(result["error"])
        now = time.monotonic()
        if now - self.last < (1 if self.is_terminal else 30):
            return
        self.last = now
        left = (now - self.started) / self.done * (self.total - self.done)
        end = "\r" if self.is_terminal else "\n"
        errors = f", {self.errors} errors" if self.errors else ""
        print(f"{self.done} of {self.total} runs{errors}, about {left / 60:.0f} min left   ", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        errors = f", {self.errors} of them with an error" if self.errors else ""
        print(f"{self.done} of {self.total} runs in {time.monotonic() - self.started:.0f} s{errors}", file=sys.stderr)
