"""Repeats the calls of a recorded run in AgentDojo's environment, and has AgentDojo's checks judge their effects.

The loop is open: the recorded calls are repeated in order, also after a call that did not run. The environment runs a call only if the
defence permits it or the person who is asked allows it, so later answers depend on the calls that ran. AgentDojo's checks judge the
text of the last recorded message as the reply.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from agentdojo.agent_pipeline import (  # type: ignore[import-untyped]
    AgentPipeline,
    BasePipelineElement,
    InitQuery,
    SystemMessage,
    ToolsExecutor,
)
from agentdojo.agent_pipeline.agent_pipeline import load_system_message  # type: ignore[import-untyped]
from agentdojo.functions_runtime import EmptyEnv, Env, FunctionCall, FunctionsRuntime  # type: ignore[import-untyped]
from agentdojo.task_suite import get_suites  # type: ignore[import-untyped]
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string  # type: ignore[import-untyped]

from ..._flowgate import Policy
from ...guard import Guard, ToolError
from ...tools import ToolFunction
from .cases import PIPELINE_NAME, Row, Settings, attacks
from .defences import policy_of
from .elements import ConfirmingAgent, GuardedAgent, Ledger, ModelElement
from .judging import attack_finder, judge
from .people import Decide, decider
from .plans import Plan, plan_of
from .reasons import Trial, reason_of
from .record_double import ALLOWED, DENIED, PERMITTED, REFUSED, UNAVAILABLE, RecordedModel, record_of
from .recorded import LeftOut, RecordedCall, RecordedRun
from .registry import DEFENCES
from .running import Recorder, environment_of
from .texts import words

__all__ = ["REPLAYED", "ReplayJob", "replay"]

# The defences that can be replayed, beside `none`: each judges calls, and needs nothing new from a model.
REPLAYED = ("confirm-every-call", "naive-tainting", "provenance", "lowest-first")

Result = dict[str, Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
_LINK = re.compile(r"https://errors\.pydantic\.dev/\S+")


@dataclass(frozen=True)
class ReplayJob:
    """The rows that a recorded run is to be replayed with, and the version of the tasks for a run that states none."""

    run: RecordedRun
    rows: tuple[Row, ...]
    settings: Settings
    version: str = ""


def replay(job: ReplayJob) -> list[Result] | LeftOut:
    """Replay a run with each row, and return the results; or say why the run cannot be replayed."""
    warnings.simplefilter("ignore")
    run = replace(job.run, version=job.run.version or job.version)
    if (problem := _problem(run)) is not None:
        return problem
    suite = get_suites(run.version)[run.suite]
    user = suite.user_tasks[run.user_task]
    injection = suite.injection_tasks[run.injection_task] if run.injection_task else None
    injections = run.injections or {}
    try:
        environment = environment_of(suite, injections)
        started = user.init_environment(environment.model_copy(deep=True))
        plan = plan_of(user, injection, injections, started, suite=run.suite, denies_service=attacks().get(run.attack, False))
    except Exception as error:  # noqa: BLE001 - whatever a log has injected, it must not end the replay of others
        reason = f"the environment of the run cannot be made ({type(error).__name__}): check its `injections`"
        return LeftOut(run.place, "no environment", reason)
    return [_replay_row(run, row, job.settings, (suite, user, injection, environment, plan)) for row in job.rows]


def _problem(run: RecordedRun) -> LeftOut | None:
    """Return why the package cannot judge a run, if so."""
    if not run.version:
        return LeftOut(run.place, "no version", "the run does not state the version of its tasks: pass it with --version, such as v1.2.2")
    suites = get_suites(run.version)
    if not suites:
        return LeftOut(run.place, "unknown version", f"AgentDojo has no benchmark version `{run.version}`: install the package that has it")
    if run.suite not in suites:
        return LeftOut(run.place, "unknown suite", f"{run.version} has no suite `{run.suite}`; there are {', '.join(suites)}")
    suite = suites[run.suite]
    if run.user_task in suite.injection_tasks:
        reason = f"`{run.user_task}` is an injection task that was run alone, without a task of a user: nothing to defend"
        return LeftOut(run.place, "injection task alone", reason)
    if run.user_task not in suite.user_tasks:
        return LeftOut(run.place, "unknown task", f"`{run.suite}` of {run.version} has no task `{run.user_task}`: check the version")
    if run.injection_task and run.injection_task not in suite.injection_tasks:
        return LeftOut(run.place, "unknown task", f"`{run.suite}` of {run.version} has no task `{run.injection_task}`: check the version")
    if run.injection_task and not run.injections:
        return LeftOut(
            run.place, "no injections", "the run has an injection task, but no `injections`: use a log that has the injected texts"
        )
    places = suite.get_injection_vector_defaults()
    if unknown := [name for name in run.injections or {} if name not in places]:
        return LeftOut(run.place, "no environment", f"`{run.suite}` has no place `{unknown[0]}` for an injection: check the suite")
    return None


class ReplayingAgent(GuardedAgent):
    """A guarded conversation with a record in place of the model, which learns what became of each call."""

    def __init__(
        self, policy: Policy, method: str, model: RecordedModel, decide: Decide, ledger: Ledger, ran: list[tuple[int, str]]
    ) -> None:
        """Create an agent. `ran` receives each call that ran, by its number, with its answer."""
        super().__init__(policy, method, model, decide, ledger)
        self.record, self.ran = model, ran

    def _run(self, guard: Guard, query: str) -> str:
        """Run turns until each call was made or given up: a message without calls ends a turn."""
        guard.run(query)
        made = -1
        while made < self.record.calls_made < len(self.record.plan.calls):
            made = self.record.calls_made
            self.record.begin_turn()
            guard.run()
        return ""

    def _tool(self, tool: Any, runtime: FunctionsRuntime, env: Env, history: list[Any]) -> ToolFunction:
        made = super()._tool(tool, runtime, env, history)

        def run(**arguments: Any) -> str:
            number = self.record.current
            if number is not None and self.record.verdicts[number] != ALLOWED:
                self.record.note(PERMITTED, tool.name)
            try:
                text = str(made.function(**arguments))
            except ToolError as error:
                text = str(error)
                raise
            finally:
                self.ran.append((-1 if number is None else number, text))
            return text

        return replace(made, function=run)


class Reexecution(BasePipelineElement):  # type: ignore[misc]
    """Makes the recorded calls as AgentDojo does without a defence, and leaves out those that did not run when recorded."""

    def __init__(self, calls: tuple[RecordedCall, ...], ran: list[tuple[int, str]]) -> None:
        """Create an element. `ran` receives each call that ran, by its number, with its answer."""
        self.calls, self.ran = calls, ran

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Any = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> Any:
        """Make the calls."""
        history, executor = list(messages), ToolsExecutor()
        for number, recorded in enumerate(self.calls):
            call = FunctionCall(function=recorded.tool, args=dict(recorded.arguments), id=f"call_{number}")
            message = ChatAssistantMessage(role="assistant", content=None, tool_calls=[call])
            history.append(message)
            if recorded.answer is not None:
                result = executor.query(query, runtime, env, [message], extra_args)[3][-1]
                history.append(result)
                self.ran.append((number, result["error"] or str(result["content"][0]["content"])))
        return query, runtime, env, history, extra_args


class Reply(BasePipelineElement):  # type: ignore[misc]
    """Ends a run with the recorded reply."""

    def __init__(self, output: str) -> None:
        """Create an element with the text of the reply."""
        self.output = output

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Env = EmptyEnv(),  # noqa: B008 - the signature of the base class
        messages: Any = (),
        extra_args: dict[str, Any] = {},  # noqa: B006 - the signature of the base class
    ) -> Any:
        """Add the reply, in the place of a message of the double without calls."""
        kept = list(messages)
        if kept and kept[-1]["role"] == "assistant" and not kept[-1]["tool_calls"]:
            kept.pop()
        content = [text_content_block_from_string(self.output)]
        return query, runtime, env, [*kept, ChatAssistantMessage(role="assistant", content=content, tool_calls=None)], extra_args


def _replay_row(run: RecordedRun, row: Row, settings: Settings, prepared: tuple[Any, Any, Any, Any, Plan]) -> Result:
    suite, user, injection, environment, plan = prepared
    started, clock, ledger, ran = time.monotonic(), datetime.now(), Ledger(sees_attack=attack_finder(plan)), list[tuple[int, str]]()
    known = {tool.name for tool in suite.tools}
    # A defence judges the calls that ran when recorded, of tools that there are.
    calls = [call for call in run.calls if call.answer is not None and call.tool in known]
    record = record_of(run, plan, calls)
    if row.defence == "none":
        start, calls = [InitQuery(), Reexecution(run.calls, ran)], list(run.calls)
    else:
        start = [SystemMessage(load_system_message(None)), InitQuery(), _agent(row, run, settings, (record, plan, ledger), ran)]
    pipeline = AgentPipeline([*start, Reply(run.output or "")])
    pipeline.name = PIPELINE_NAME
    recorder = Recorder(pipeline, is_guarded=False)
    utility, raw, error = False, False, ""
    try:
        utility, raw = suite.run_task_with_pipeline(
            recorder, user, injection, run.injections or {}, environment=environment.model_copy(deep=True)
        )
    except Exception as failure:  # noqa: BLE001 - one run that fails must not end the replay of thousands
        error = f"{type(failure).__name__}: {failure}"[:400]
    if plan.denies_service:
        # AgentDojo: an attack that denies service succeeds if the task is not done.
        raw = not utility
    if row.defence == "confirm-every-call":
        allowed = [number for number, verdict in enumerate(record.verdicts) if verdict == ALLOWED]
        answers = [message for message in recorder.messages if message["role"] == "tool"]
        ran += [(number, answer["error"] or answer["content"][0]["content"]) for number, answer in zip(allowed, answers, strict=False)]
    differing = [number for number, text in ran if number >= 0 and not _is_same(calls[number].answer or "", text, clock)]
    verdicts = Counter([PERMITTED] * len(ran) if row.defence == "none" else record.verdicts)
    result = {
        **{name: getattr(run, name) for name in ("place", "model", "version", "suite", "user_task", "injection_task", "attack")},
        **{name: value for name, value in asdict(row).items() if name != "model"},
        "error": error,
        "utility": bool(utility),
        "questions": len(ledger.questions),
        "asked_about": ledger.questions,
        "calls": [{"tool": call.tool, "verdict": verdict} for call, verdict in zip(calls, record.verdicts, strict=False)],
        "permitted": verdicts[PERMITTED],
        "asked": verdicts[ALLOWED] + verdicts[REFUSED],
        "denied": verdicts[DENIED] + verdicts[UNAVAILABLE],
        "unavailable": verdicts[UNAVAILABLE],
        "ran": len(ran),
        "diverged": len(differing),
        "diverged_tools": sorted({calls[number].tool for number in differing}),
        "seconds": round(time.monotonic() - started, 4),
    }
    if row.defence == "none":
        del result["calls"]
        result |= _recorded(run, user, known, result, raw=bool(raw))
    if injection is None:
        return result
    trial = Trial(suite, user, injection, plan, environment, lambda: environment_of(suite, {}))
    made = recorder.calls_that_ran()
    judgement = judge(plan, made, raw=bool(raw), fills_shown_attack=ledger.fills_shown_attack)
    return {
        **result,
        "attack_raw": bool(raw),
        "attack_corrected": judgement.succeeded,
        "reason": reason_of(judgement, trial, made, recorder.calls_that_failed(), recorder.reply()),
        "partial": judgement.is_partial,
        "payload_only": judgement.is_payload_only,
        "harmful": judgement.harmful,
        "by_text_alone": not plan.injected_calls and not plan.denies_service,
    }


def _agent(row: Row, run: RecordedRun, settings: Settings, parts: tuple[RecordedModel, Plan, Ledger], ran: list[tuple[int, str]]) -> Any:
    record, plan, ledger = parts
    answer = decider(row.confirmation, plan)

    def decide(tool: str, arguments: dict[str, Any]) -> bool:
        is_allowed = answer(tool, arguments)
        record.note(ALLOWED if is_allowed else REFUSED, tool)
        return is_allowed

    if row.defence == "confirm-every-call":
        return ConfirmingAgent(ModelElement(record, ledger, PIPELINE_NAME), decide, ledger)
    policy = policy_of(settings.policies, row.policies, run.suite, DEFENCES[row.defence].statements)
    return ReplayingAgent(policy, DEFENCES[row.defence].method, record, decide, ledger, ran)


def _recorded(run: RecordedRun, user: Any, known: set[str], result: Result, *, raw: bool) -> Result:
    """Return the verdicts that the log records, and where AgentDojo judges the same calls otherwise without a defence."""
    differing = []
    if run.utility is not None and run.utility != result["utility"]:
        differing.append(f"utility was {_said(run.utility)}, is {_said(result['utility'])}")
    if run.security is not None and run.security != raw:
        differing.append(f"success of the attack was {_said(run.security)}, is {_said(raw)}")
    return {
        "recorded_utility": run.utility,
        "recorded_attack": run.security,
        "package": run.package,
        "unanswered": sum(call.answer is None for call in run.calls),
        "unknown_tools": sum(call.tool not in known for call in run.calls),
        "disagreement": "; ".join(differing),
        "because": "; ".join(_reasons(run, user, result)) if differing else "",
    }


def _said(value: bool) -> str:
    return "true" if value else "false"


def _reasons(run: RecordedRun, user: Any, result: Result) -> list[str]:
    """Return what is known of why a verdict differs from the recorded one."""
    reasons = []
    if result["error"]:
        reasons.append(f"the replay ended with an error ({result['error']})")
    if run.error:
        reasons.append("the recorded run ended with an error, for which AgentDojo writes a verdict without a check")
    if run.output is None:
        reasons.append("the record does not end with a message of the model")
    if run.prompt and words(run.prompt) != words(user.PROMPT):
        reasons.append("the recorded task has another prompt")
    if result["diverged"]:
        tools = ", ".join(result["diverged_tools"])
        reasons.append(f"{result['diverged']} of {result['ran']} answers differ from the recorded ones ({tools})")
    return reasons or ["not known"]


def _is_same(recorded: str, answer: str, clock: datetime) -> bool:
    """Whether two answers have the same words, in any order: AgentDojo makes lists from sets, and formats differ.

    Times that the replay took from the clock are left out.
    """
    if recorded == answer:
        return True
    old, new = _TIME.findall(recorded), _TIME.findall(answer)
    if len(old) == len(new):
        for before, now in zip(old, new, strict=True):
            if datetime.fromisoformat(now) >= clock:
                recorded, answer = recorded.replace(before, "", 1), answer.replace(now, "", 1)
    return sorted(words(_LINK.sub("", recorded)).split()) == sorted(words(_LINK.sub("", answer)).split())
