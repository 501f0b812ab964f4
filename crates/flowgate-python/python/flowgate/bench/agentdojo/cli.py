"""The command `python -m flowgate.bench.agentdojo`: runs AgentDojo with defences around a model, and reports."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]

from ...errors import FlowgateError
from .cases import CONFIRMATIONS, NO_ATTACK, SUITES, VERSIONS, Settings, attacks, cases
from .commands import commands_of
from .defences import DEFAULT_POLICIES, adopt_defences, check_policies, lacks, rows_of
from .figures import (
    COST_COLUMNS,
    OVERVIEW_COLUMNS,
    corrections,
    cost_rows,
    differences,
    failures,
    figures_of,
    markdown,
    measured,
    newest,
    overview_rows,
    read_prices,
    summary,
    text_table,
)
from .page import page
from .registry import DEFENCES, DOUBLES, MODELS, is_double, load_plugins
from .replay_cli import add_replay, run_replay
from .running import Result, add_empty, pending, read_results, run_jobs
from .tables import tables

DEFAULT_OUT = "target/agentdojo-results.jsonl"
NEEDS_SERVER = "the server of the model: --base-url URL"
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
  run --plugin my_attacks.py --attack my_attack --model my_model --base-url http://127.0.0.1:8000/v1
      Attacks, models, suites and defences of a program's own: see docs/agentdojo.md. `list --plugin my_attacks.py` shows them.
  report --html report.html --prices prices.json
      The tables, and a page with plots and every corrected case. The prices are {"MODEL": {"input": 2.5, "output": 10}}, in
      dollars for a million tokens.
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
    jsonl = "write the commands, the figures of each row, every corrected case and every difference as JSON lines"
    report.add_argument("--jsonl", metavar="FILE", help=jsonl)
    report.add_argument("--tables", metavar="FILE", help="write the tables over all suites, with cases and commands, as Markdown")
    report.add_argument("--prices", metavar="FILE", help="what tokens of models cost, as JSON, for the columns with prices")
    for command in (run, report):
        command.add_argument("--out", default=DEFAULT_OUT, metavar="FILE", help=f"the results, JSON lines (default: {DEFAULT_OUT})")
    add_replay(commands)
    listing = commands.add_parser("list", help="list defences, models, suites and attacks, also those of plugins")
    for command in (run, listing):
        command.add_argument("--plugin", nargs="+", default=[], metavar="MODULE", help="modules, or files with Python, that register more")
    return top


def _add_cases(run: argparse.ArgumentParser) -> None:
    versions = f"versions of the tasks, such as {', '.join(VERSIONS)} (default: v1.2.2)"
    run.add_argument("--version", nargs="+", default=["v1.2.2"], metavar="V", help=versions)
    suites = f"such as {', '.join(SUITES)} (default: all of the version)"
    run.add_argument("--suite", nargs="+", default=[], metavar="SUITE", help=suites)
    attack = "`none`, or attacks of the package: see `list` (default: none important_instructions)"
    run.add_argument("--attack", nargs="+", default=[NO_ATTACK, "important_instructions"], metavar="ATTACK", help=attack)
    run.add_argument("--sample", type=int, default=1, metavar="N", help="about every N-th case of each suite (default: all)")


def _add_rows(run: argparse.ArgumentParser) -> None:
    defence = "see `list` (default: those of RTBAS's figures)"
    run.add_argument("--defence", nargs="+", default=DEFAULT_DEFENCES, metavar="DEFENCE", help=defence)
    policies = "strict, or typed: with endorsements by form (default: strict)"
    run.add_argument("--policies", nargs="+", choices=["strict", "typed"], default=["strict"], metavar="KIND", help=policies)
    confirm = "who is asked: refuse, allow, or an oracle that allows the calls of the user's ground truth (default: refuse)"
    run.add_argument("--confirm", nargs="+", choices=CONFIRMATIONS, default=["refuse"], metavar="WHO", help=confirm)
    model = "`obedient`, `capable`, a registered model, or a model's name with --base-url (default: both doubles)"
    run.add_argument("--model", nargs="+", default=list(DOUBLES), metavar="MODEL", help=model)
    run.add_argument("--base-url", default="", metavar="URL", help="an OpenAI-compatible server for models that are no doubles")
    run.add_argument("--gateway", default="", metavar="PATH", help="the program `flowgate`, for the rows through the gateway")
    folder = f"the policies of the suites (default: {DEFAULT_POLICIES})"
    run.add_argument("--policy-folder", default=DEFAULT_POLICIES, metavar="DIR", help=folder)
    run.add_argument("--seed", type=int, default=0, metavar="N", help="the seed that a server is sent (default: 0)")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status: 0, 1 for an error of a case, 2 for a mistake of the caller, 130 after Ctrl-C."""
    top = parser()
    given = sys.argv[1:] if arguments is None else arguments
    chosen = top.parse_args(["list", *given[1:]] if given[:1] == ["--list"] else given)
    try:
        load_plugins(tuple(getattr(chosen, "plugin", ())))
        adopt_defences()
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
    print("defences:")
    for name, defence in DEFENCES.items():
        print(f"  {name:28}{defence.doc}{f' (needs {defence.needs})' if defence.needs else ''}")
    print("models, beside any with --base-url:")
    for name, doc in {**DOUBLES, **{name: model.doc for name, model in MODELS.items()}}.items():
        print(f"  {name:28}{doc}{' (a test double)' if is_double(name) else ''}")
    print("suites:")
    for version in VERSIONS:
        print(f"  {version:28}{', '.join(get_suites(version))}")
    print(f"attacks: {', '.join([NO_ATTACK, *attacks()])}")
    return 0


def _run(top: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    _check(top, chosen)
    names = list(dict.fromkeys(chosen.defence))
    path = Path(chosen.out)
    for name in [name for name in names if lacks(name)]:
        print(f"the row `{name}` stays empty: it needs {lacks(name)}", file=sys.stderr)
        rows = [row for model in chosen.model for row in rows_of([name], chosen.policies, chosen.confirm, model)]
        add_empty(path, chosen.version, chosen.attack, rows, lacks(name))
        names.remove(name)
    models = list(dict.fromkeys(chosen.model))
    for model in [model for model in models if not chosen.base_url and model not in DOUBLES and model not in MODELS]:
        print(f"the rows of `{model}` stay empty: it is no double: name its server with --base-url URL", file=sys.stderr)
        add_empty(path, chosen.version, chosen.attack, rows_of(names, chosen.policies, chosen.confirm, model), NEEDS_SERVER)
        models.remove(model)
    if not models:
        print(f"error: nothing to run: use --base-url URL, or --model {' '.join(DOUBLES)}", file=sys.stderr)
        return 2
    suites = {version: chosen.suite or list(get_suites(version)) for version in chosen.version}
    check_policies(chosen.policy_folder, chosen.policies, list(dict.fromkeys(name for names in suites.values() for name in names)), names)
    rows = [row for model in models for row in rows_of(names, chosen.policies, chosen.confirm, model)]
    settings = Settings(chosen.policy_folder, chosen.seed, chosen.base_url, chosen.gateway, tuple(chosen.plugin))
    done = {result["key"] for result in measured(read_results(path))[0]}
    jobs = []
    for version in chosen.version:
        for attack in chosen.attack:
            jobs += pending(cases(version, tuple(suites[version]), attack, chosen.sample), rows, settings, done)
    total = sum(len(job.rows) for job in jobs)
    print(f"{total} runs of {len(jobs)} cases; {len(done)} results are in {path}", file=sys.stderr)
    if doubles := [model for model in models if is_double(model)]:
        print(f"test doubles, whose figures are bounds: {', '.join(doubles)}", file=sys.stderr)
    progress = _Progress(total)
    is_complete = run_jobs(jobs, path, chosen.processes, progress)
    progress.end()
    if not is_complete:
        print("interrupted: the same command continues where it stopped", file=sys.stderr)
        return 130
    print(text_table([figures for figures in figures_of(read_results(path)) if figures.suite == "all"], {}))
    return 1 if progress.errors else 0


def _check(top: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    known = {NO_ATTACK, *attacks()}
    for attack in chosen.attack:
        if attack not in known:
            top.error(f"there is no attack `{attack}`; there are: {', '.join(sorted(known))}")
    for version in chosen.version:
        if not get_suites(version):
            top.error(f"AgentDojo has no benchmark version `{version}`; there are {', '.join(VERSIONS)} among others")
        for suite in chosen.suite:
            if suite not in get_suites(version):
                top.error(f"{version} has no suite `{suite}`; there are {', '.join(get_suites(version))}")
    for name in chosen.defence:
        if name not in DEFENCES:
            top.error(f"there is no defence `{name}`: see `list`")
    through = [name for name in chosen.defence if DEFENCES[name].is_gateway]
    if through and not chosen.gateway:
        top.error(f"the row `{through[0]}` needs the program: name it with --gateway PATH, such as target/debug/flowgate")
    for name in ("sample", "processes"):
        if getattr(chosen, name) < 1:
            top.error(f"--{name} wants a positive number")


def _report(chosen: argparse.Namespace) -> int:
    results = read_results(Path(chosen.out))
    prices = read_prices(Path(chosen.prices)) if chosen.prices else {}
    if not results:
        print(f"error: {chosen.out} has no results: begin with `run --sample 50`", file=sys.stderr)
        return 2
    figures = figures_of(results)
    for version, rows in overview_rows(results):
        print(markdown(f"the cases of {version}", OVERVIEW_COLUMNS, rows))
    print(text_table(figures, prices))
    for title, rows in cost_rows(figures, prices):
        print(markdown(f"what the tasks of banking cost without attack: {title}", COST_COLUMNS, rows))
    for row, needs in measured(results)[1].items():
        print(f"empty: {row}: it needs {needs}")
    for version, model, row, reason, number, _ in corrections(results):
        print(f"corrected: {version}, {model}, {row}: {number} because {reason}")
    for version, model, row, reason, number, cases_of in differences(results):
        print(f"utility under attack differs: {version}, {model}, {row}: {number} because {reason}: {'; '.join(cases_of[:20])}")
    for error, number in failures(results).most_common(20):
        print(f"error in {number} cases: {error}")
    for command in commands_of(newest(results)):
        print(f"measured by: {command}")
    if chosen.tables:
        Path(chosen.tables).write_text(tables(results), encoding="utf-8")
        print(f"wrote {chosen.tables}", file=sys.stderr)
    if chosen.jsonl:
        lines = "".join(json.dumps(line) + "\n" for line in summary(results))
        Path(chosen.jsonl).write_text(lines, encoding="utf-8")
        print(f"wrote {chosen.jsonl}", file=sys.stderr)
    if chosen.html:
        Path(chosen.html).write_text(page(results, prices), encoding="utf-8")
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
