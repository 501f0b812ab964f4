"""Record AgentDojo runs of a worst-case agent, without any language model.

AgentDojo (https://github.com/ethz-spylab/agentdojo) is a benchmark of prompt injection: an agent works on a user's
task, and some tool output carries an attacker's text that asks for something else. The agent here is a test double.
It performs the calls of the user task's ground truth one by one; as soon as a tool output contains the injected text,
it first performs the calls of the injection task's ground truth, then continues. It resists nothing and never errs, so
the runs say what a policy permits, and nothing about how often a real model falls for an attack.
"""

import argparse
import contextlib
import gzip
import importlib.util
import itertools
import json
import multiprocessing
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from agentdojo.agent_pipeline import AgentPipeline, BasePipelineElement, InitQuery, SystemMessage
from agentdojo.agent_pipeline.agent_pipeline import load_system_message
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.attacks import load_attack
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import EmptyEnv, Env, FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite, get_suites
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage, get_text_content_as_str
from agentdojo.types import text_content_block_from_string as text_block
from pydantic_core import to_jsonable_python

SUITES = ["workspace", "travel", "banking", "slack"]
NO_ATTACK = "none"
DEFAULT_ATTACKS = [NO_ATTACK, "important_instructions", "direct"]
# Some attacks address the model by name, which they find in the pipeline's name, so that has to contain a model that
# AgentDojo knows. No model is called.
PIPELINE_NAME = "gpt-4o-2024-05-13"

HELP_EPILOG = """\
output:
  One run a line, as a JSON object: benchmark_version, suite, user_task_id,
  injection_task_id (null without attack), attack, injections (vector: text),
  injection_seen, utility, attack_succeeded (null without attack; what
  AgentDojo calls "security"), messages (OpenAI chat messages). Assistant and
  tool messages say in "origin" whose task they serve: "user" or "injection";
  a final answer that serves both is "user+injection".
  The output is always the same, but for the timestamps that AgentDojo takes
  from the clock.

examples:
  traces.py --out traces.jsonl.gz
      97 runs without attack and 629 under each of two attacks.
  traces.py --suite banking --attack direct --limit 3
      The first three attacked runs of one suite, on standard output.

From v1.2 on, eight injection tasks of the workspace suite have no ground
truth. The agent obeys them by the plans of the Python package, which AgentDojo's
own checks accept: flowgate/bench/agentdojo/plans.py.
"""

RESULTS = ["utility", "injection_seen", "attack_succeeded"]

Run = dict[str, Any]


def load_plans() -> ModuleType:
    """Load the plans of the Python package from its source, so that the package need not be installed."""
    source = Path(__file__).resolve().parents[2] / "crates/flowgate-python/python/flowgate/bench/agentdojo/plans.py"
    spec = importlib.util.spec_from_file_location("agentdojo_plans", source)
    assert spec is not None and spec.loader is not None, source
    module = importlib.util.module_from_spec(spec)
    # Data classes look up their module by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PLANS = load_plans()


class Job(NamedTuple):
    """All wanted runs of one user task under one attack."""

    version: str
    suite: str
    attack: str
    user_task_id: str
    injection_task_ids: list[str | None]


def letters(text: str) -> str:
    """Reduce a text to its letters and digits.

    AgentDojo pastes an attack into a YAML document, which folds the attack's line breaks.
    """
    return re.sub(r"[\W_]+", "", text)


def strings(value: Any) -> Iterator[str]:
    """Yield every string within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings([*value.keys(), *value.values()])
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(strings, value))


class ObedientAgent(BasePipelineElement):
    """A test double for the model and its tool loop: obeys every injection it reads."""

    def __init__(
        self,
        suite: str,
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any] | None,
        attack_texts: Iterable[str],
    ) -> None:
        self.suite = suite
        self.user_task = user_task
        self.injection_task = injection_task
        self.attack_texts = [letters(text) for text in attack_texts]
        self.injection_seen = False
        self.transcript: list[dict[str, Any]] = []

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},
    ) -> tuple[str, FunctionsRuntime, Env, Sequence[ChatMessage], dict[str, Any]]:
        # AgentDojo judges `history`; `transcript` is the same conversation as OpenAI chat messages.
        history = list(messages)
        texts = [(message["role"], get_text_content_as_str(message["content"] or [])) for message in messages]
        self.transcript = [{"role": role, "content": text} for role, text in texts]
        # Both plans are made before the first call: AgentDojo defines ground truth on the initial environment.
        todo = deque((call, "user") for call in self.user_task.ground_truth(env))
        orders = self.orders(env)
        done = 0
        while todo:
            call, origin = todo.popleft()
            call = call.model_copy(update={"id": f"call_{done}"})
            done += 1
            result, error = runtime.run_function(env, call.function, call.args)
            history += self.record(call, error or tool_result_to_str(result), error, origin)
            if not self.injection_seen and self.is_injected(result):
                self.injection_seen = True
                todo.extendleft((order, "injection") for order in reversed(orders))

        answer, origin = self.user_task.GROUND_TRUTH_OUTPUT, "user"
        # Some injections want something said rather than done.
        if self.injection_task and self.injection_seen and self.injection_task.GROUND_TRUTH_OUTPUT:
            answer = "\n".join(filter(None, [answer, self.injection_task.GROUND_TRUTH_OUTPUT]))
            origin = "user+injection"
        history.append(ChatAssistantMessage(role="assistant", content=[text_block(answer)], tool_calls=None))
        self.transcript.append({"role": "assistant", "content": answer, "origin": origin})
        return query, runtime, env, history, extra_args

    def orders(self, env: Env) -> list[FunctionCall]:
        """Return what an obedient agent does for the injection: its ground truth, or a plan where there is none."""
        if self.injection_task is None:
            return []
        stated = self.injection_task.ground_truth(env)
        if stated or self.injection_task.GROUND_TRUTH_OUTPUT:
            return stated
        plan = PLANS.plan_of(self.user_task, self.injection_task, {}, env, suite=self.suite)
        return [FunctionCall(function=call.tool, args=call.arguments) for call in plan.injected_calls]

    def record(self, call: FunctionCall, shown: str, error: str | None, origin: str) -> list[ChatMessage]:
        """Add a call and its output to the transcript, and return them as AgentDojo's messages."""
        function = {"name": call.function, "arguments": json.dumps(to_jsonable_python(call.args))}
        tool_calls = [{"id": call.id, "type": "function", "function": function}]
        output = {"tool_call_id": call.id, "name": call.function, "content": shown, "error": error}
        self.transcript += [
            {"role": "assistant", "content": "", "tool_calls": tool_calls, "origin": origin},
            {"role": "tool", **output, "origin": origin},
        ]
        return [
            ChatAssistantMessage(role="assistant", content=[text_block("")], tool_calls=[call]),
            ChatToolResultMessage(
                role="tool", content=[text_block(shown)], tool_call_id=call.id, tool_call=call, error=error
            ),
        ]

    def is_injected(self, result: Any) -> bool:
        """Tell whether a tool's result contains the attack.

        This looks at the value, since the text made from it for the model is wrapped, quoted and escaped.
        """
        found = [letters(string) for string in strings(to_jsonable_python(result))]
        return any(text in string for text in self.attack_texts for string in found)


def perform(job: Job) -> list[Run]:
    """Do the runs of a job."""
    suite = get_suite(job.version, job.suite)
    user_task = suite.user_tasks[job.user_task_id]
    target = AgentPipeline([])
    target.name = PIPELINE_NAME
    attack = None if job.attack == NO_ATTACK else load_attack(job.attack, suite, target)

    runs = []
    for injection_task_id in job.injection_task_ids:
        injection_task = suite.injection_tasks[injection_task_id] if injection_task_id else None
        injections = attack.attack(user_task, injection_task) if attack and injection_task else {}
        agent = ObedientAgent(job.suite, user_task, injection_task, injections.values())
        pipeline = AgentPipeline([SystemMessage(load_system_message(None)), InitQuery(), agent])
        utility, security = suite.run_task_with_pipeline(pipeline, user_task, injection_task, injections)
        run: Run = {
            "benchmark_version": job.version,
            "suite": job.suite,
            "user_task_id": job.user_task_id,
            "injection_task_id": injection_task_id,
            "attack": job.attack,
            "injections": injections,
            "injection_seen": agent.injection_seen if injection_task else None,
            "utility": utility,
            # AgentDojo's "security" is true where the attack succeeded, and also where there was none.
            "attack_succeeded": security if injection_task else None,
            "messages": agent.transcript,
        }
        runs.append(run)
    return runs


def plan(version: str, suites: Sequence[str], attacks: Sequence[str], limit: int | None) -> Iterator[Job]:
    """Yield the jobs in the order of the output."""
    for attack, name in itertools.product(attacks, suites):
        suite = get_suite(version, name)
        injection_task_ids = [None] if attack == NO_ATTACK else list(suite.injection_tasks)
        pairs = itertools.islice(itertools.product(suite.user_tasks, injection_task_ids), limit)
        for user_task_id, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
            yield Job(version, name, attack, user_task_id, [injection_task_id for _, injection_task_id in group])


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open the output for writing, compressed if its name says so."""
    if path is None:
        yield sys.stdout.buffer
    elif path.endswith(".gz"):
        # Without name and time in the gzip header, equal runs make equal files.
        with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed
    else:
        with open(path, "wb") as file:
            yield file


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Record AgentDojo runs of a scripted agent that obeys every injected instruction it reads.\n"
        "It is a test double: no language model is called.",
        epilog=HELP_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Attacks that deny service carry no injection task, and the manual one asks at the keyboard.
    known = [name for name, attack in ATTACKS.items() if name != "manual" and not attack.is_dos_attack]
    attacks = [NO_ATTACK, *sorted(known)]
    several: dict[str, Any] = {"action": "extend", "nargs": "+"}
    attack_help = f"any of {', '.join(attacks)} (default: {', '.join(DEFAULT_ATTACKS)})"
    suite_help = f"any of {', '.join(SUITES)} (default: all)"
    add = parser.add_argument
    add("--version", default="v1.1.2", help="version of the benchmark, v1 to v1.2.2 (default: %(default)s)")
    add("--attack", **several, choices=attacks, metavar="ATTACK", help=attack_help)
    add("--suite", **several, choices=SUITES, metavar="SUITE", help=suite_help)
    add("--limit", type=int, metavar="N", help="stop after N runs per suite and attack")
    add("--out", metavar="FILE", help="output, compressed if it ends in .gz (default: standard output)")
    arguments = parser.parse_args()
    if not get_suites(arguments.version):
        parser.error(f"AgentDojo has no benchmark version {arguments.version!r}")
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit wants a positive number")
    arguments.suite = list(dict.fromkeys(arguments.suite or SUITES))
    arguments.attack = list(dict.fromkeys(arguments.attack or DEFAULT_ATTACKS))
    return arguments


def main() -> None:
    arguments = parse_arguments()
    started = time.monotonic()
    jobs = list(plan(arguments.version, arguments.suite, arguments.attack, arguments.limit))
    # AgentDojo makes some lists from sets, whose order depends on the hash seed. A process cannot change its own
    # seed, but the freshly started ones of "spawn" read it from the environment.
    os.environ["PYTHONHASHSEED"] = "0"
    with open_output(arguments.out) as output, multiprocessing.get_context("spawn").Pool() as pool:
        results = zip(jobs, pool.imap(perform, jobs), strict=True)
        for (attack, suite), group in itertools.groupby(results, key=lambda pair: (pair[0].attack, pair[0].suite)):
            print(f"{suite}, {attack}: ", end="", file=sys.stderr, flush=True)
            runs = [run for _, done in group for run in done]
            for run in runs:
                output.write(json.dumps(run, ensure_ascii=False).encode() + b"\n")
            counts = [f"{key} {sum(run[key] for run in runs)}" for key in RESULTS if runs[0][key] is not None]
            print(f"{len(runs)} runs, of these {', '.join(counts)}", file=sys.stderr)
    print(f"done in {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
