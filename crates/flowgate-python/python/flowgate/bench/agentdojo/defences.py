"""The rows of the measurement: defences, and the pipeline of AgentDojo that each is.

Each guard's method is a row under the strict policies of `examples/agentdojo`, and lowest first also under the typed ones. The
rows of RTBAS are what its section 8 says: naive tainting has every region taint what follows; redacting everything shows only
regions that are trusted and public, so nothing needs a person; confirming every call has a person see them all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentdojo.agent_pipeline import (  # type: ignore[import-untyped]
    AgentPipeline,
    InitQuery,
    PipelineConfig,
    SystemMessage,
    ToolsExecutionLoop,
    ToolsExecutor,
)
from agentdojo.agent_pipeline.agent_pipeline import TOOL_FILTER_PROMPT, load_system_message  # type: ignore[import-untyped]
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLMToolFilter  # type: ignore[import-untyped]

from ..._flowgate import Policy, methods
from ...detectors import prompt_injection
from ...errors import FlowgateError
from .cases import PIPELINE_NAME, Row, Settings
from .doubles import Double
from .elements import ConfirmingAgent, DetectingExecutor, GuardedAgent, Ledger, ModelElement, NeededTools
from .gateway import Client, Gateway, GatewaySettings, double_server
from .people import decider
from .plans import Plan
from .registry import DEFENCES, DOUBLES, MODELS, POLICIES, Defence
from .remote import RemoteModel

__all__ = [
    "DEFAULT_POLICIES",
    "adopt_defences",
    "check_policies",
    "lacks",
    "model_of",
    "pipeline_of",
    "policy_of",
    "rows_of",
    "unsafe_endorsements",
]

DEFAULT_POLICIES = "examples/agentdojo"
# The least score at which `prompt_injection` has found one, as in `flowgate bench detectors`.
INJECTION_SCORE = 0.5

# Nothing that is not trusted and public is ever shown to the model.
REDACT = """
require trusted, public if:
    (call: ToolCall) is tool:flowgate/model
"""


def _is_injection(output: str) -> bool:
    return prompt_injection(output)[0] >= INJECTION_SCORE


BUILTIN: dict[str, Defence] = {
    "none": Defence("AgentDojo's pipeline without a defence"),
    "agentdojo-tool-filter": Defence("a model chooses the tools before the first call", builtin="tool_filter"),
    "agentdojo-repeat-prompt": Defence("the user's prompt follows every output", builtin="repeat_user_prompt"),
    "agentdojo-spotlighting": Defence("outputs stand between signs", builtin="spotlighting_with_delimiting"),
    "detector": Defence("an output with an injection, as this package's detector says, is left out", detect=_is_injection),
    "agentdojo-detector": Defence(
        "a classifier of injections",
        builtin="transformers_pi_detector",
        needs="the packages transformers and torch, and a classifier's weights",
    ),
    "confirm-every-call": Defence("a person sees every call (RTBAS)", builtin="confirm"),
    "naive-tainting": Defence("everything taints what follows (RTBAS)", method="everything"),
    "redact-everything": Defence("what is not trusted and public is never shown (RTBAS)", method="everything", statements=REDACT),
    "judge": Defence("RTBAS with a screener that says what a step needs", method="judge"),
    "judge-obeying": Defence("RTBAS with a screener that obeys what it reads", method="judge", judge_obeys=True),
    "introspection": Defence("the model cites what its next message needs", method="introspection"),
    "introspection-obeying": Defence("the model cites as an injection asks it to", method="introspection", judge_obeys=True),
    "attention": Defence("RTBAS with a screener that reads attention", needs="a local model, whose attention the screener reads"),
    "provenance": Defence("the regions from which a draft takes its values", method="provenance"),
    "lowest-first": Defence("the strictest requirement; more where the model looks", method="lowest-first"),
    "cheapest-first": Defence("everything, if all calls are permitted", method="cheapest-first"),
    "confirm-acting": Defence("a person sees every call that acts", method="confirm-acting"),
    "never-look": Defence("the strictest requirement, never more", method="never-look"),
    "tool-filter": Defence("everything, with the tools that a model chooses", method="tool-filter"),
}


def adopt_defences() -> None:
    """Make rows of all defences of this package, of each in the gateway as well, and of methods that a program has registered."""
    for name, defence in BUILTIN.items():
        DEFENCES.setdefault(name, defence)
        if defence.method:
            doc = f"{name} in the gateway, by base URL"
            DEFENCES.setdefault(f"gateway-{name}", replace(defence, doc=doc, is_gateway=True))
    used = {defence.method for defence in BUILTIN.values()}
    for name, doc in methods():
        if name not in used:
            DEFENCES.setdefault(name, Defence(doc, method=name))


adopt_defences()


def lacks(name: str) -> str:
    """Return what a row needs that is not installed; empty if it can be run."""
    defence = DEFENCES[name]
    if defence.builtin != "transformers_pi_detector":
        return defence.needs
    return defence.needs if any(find_spec(package) is None for package in ("transformers", "torch")) else ""


def rows_of(names: list[str], policies: list[str], confirmations: list[str], model: str) -> list[Row]:
    """Return the rows of defences. A defence that asks nobody has one row."""
    rows = []
    for name in names:
        defence = DEFENCES[name]
        for kind in policies if defence.method else [""]:
            rows += [Row(name, kind, who, model) for who in (confirmations if defence.asks else ["refuse"])]
    return rows


def _policy_path(folder: str, kind: str, suite: str) -> Path:
    if (own := POLICIES.get(suite)) is not None:
        return own.typed if kind == "typed" and own.typed is not None else own.strict
    typed = Path(folder) / "typed" / f"{suite}.flow"
    return typed if kind == "typed" and typed.exists() else Path(folder) / f"{suite}.flow"


@lru_cache
def policy_of(folder: str, kind: str, suite: str, statements: str) -> Policy:
    """Return the policy of a suite, with further statements."""
    path = _policy_path(folder, kind, suite)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the policy {path} cannot be read ({error.strerror}): pass the folder with `--policy-folder`"
        raise FlowgateError(message) from error
    policy = Policy(text, path=str(path), read=lambda name: (path.parent / name).read_text(encoding="utf-8"))
    return policy.with_statements(statements) if statements else policy


@lru_cache
def unsafe_endorsements(folder: str, kind: str, suite: str) -> int:
    """Return how many statements `unsafe endorse` the policy of a suite has, with what it imports; 0 for a row without a policy."""
    left, seen, found = [_policy_path(folder, kind, suite)] if kind else [], set[Path](), 0
    while left:
        path = left.pop().resolve()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        found += len(re.findall(r"^unsafe\s+endorse\b", text, re.MULTILINE))
        left += [path.parent / name for name in re.findall(r'^import\s+"([^"]+)"', text, re.MULTILINE)]
    return found


def check_policies(folder: str, kinds: list[str], suites: list[str], names: list[str]) -> None:
    """Compile every policy that a run needs, so that a mistake ends it before it begins."""
    for name in names:
        for kind in kinds if DEFENCES[name].method else []:
            for suite in suites:
                policy_of(folder, kind, suite, DEFENCES[name].statements)


def model_of(row: Row, plan: Plan, settings: Settings) -> Any:
    """Return the model of a row for one case: a double, a registered model, or one behind the base URL."""
    if row.model in DOUBLES:
        return Double(plan, is_capable=row.model == "capable", judge_obeys=DEFENCES[row.defence].judge_obeys)
    if row.model in MODELS:
        return MODELS[row.model].factory(plan, settings)
    return RemoteModel(settings.base_url, row.model, seed=settings.seed)


def pipeline_of(row: Row, suite: str, plan: Plan, model: Any, ledger: Ledger, settings: Settings) -> Any:
    """Return the pipeline of a row for one case."""
    defence = DEFENCES[row.defence]
    if lacks(row.defence):
        message = f"the row `{row.defence}` needs {defence.needs}, which this package does not install"
        raise FlowgateError(message)
    element = ModelElement(model, ledger, PIPELINE_NAME)
    start = [SystemMessage(load_system_message(None)), InitQuery()]
    decide = decider(row.confirmation, plan)
    if defence.is_gateway:
        client = _gateway_client(row, suite, model, decide, ledger, settings)
        pipeline = AgentPipeline.from_config(_config(client))
    elif defence.method:
        policy = policy_of(settings.policies, row.policies, suite, defence.statements)
        pipeline = AgentPipeline([*start, GuardedAgent(policy, defence.method, model, decide, ledger)])
    elif defence.detect is not None:
        loop = ToolsExecutionLoop([DetectingExecutor(defence.detect), element])
        pipeline = AgentPipeline([*start, element, loop])
    elif defence.builtin == "confirm":
        pipeline = AgentPipeline([*start, ConfirmingAgent(element, decide, ledger)])
    elif defence.builtin == "tool_filter":
        pipeline = _with_tool_filter(plan, model, element, start)
    else:
        pipeline = AgentPipeline.from_config(_config(element, defence.builtin))
    for part in pipeline.elements:
        if hasattr(part, "max_iters"):
            # AgentDojo's bound of 15 rounds would end long ground truths.
            part.max_iters = max(part.max_iters, 60)
    pipeline.name = PIPELINE_NAME
    return pipeline


def _config(llm: Any, builtin: str = "") -> Any:
    return PipelineConfig(llm=llm, model_id=None, defense=builtin or None, system_message_name=None, system_message=None)


def _gateway_client(row: Row, suite: str, model: Any, decide: Any, ledger: Ledger, settings: Settings) -> Any:
    """Return a client with a gateway of its own, whose model is the double of this case or the server of a model."""
    defence = DEFENCES[row.defence]
    server = None if isinstance(model, RemoteModel) else double_server()
    gateway = Gateway(
        settings.gateway,
        GatewaySettings(
            policy=_policy_path(settings.policies, row.policies, suite),
            statements=defence.statements,
            method=defence.method,
            upstream=settings.base_url if server is None else server.url,
            system=load_system_message(None),
        ),
    )
    client = Client(gateway, row.model if server is None else PIPELINE_NAME, decide, ledger)
    if server is None:
        # What the gateway shows to a model elsewhere is not seen here.
        ledger.attack_shown = None
    else:
        server.begin(model, ledger, client)
    client.name = PIPELINE_NAME
    return client


def _with_tool_filter(plan: Plan, model: Any, element: ModelElement, start: list[Any]) -> Any:
    if not isinstance(model, RemoteModel):
        chosen: Any = NeededTools({call.tool for call in plan.calls})
    else:
        chosen = OpenAILLMToolFilter(TOOL_FILTER_PROMPT, model.client, model.model)
    return AgentPipeline([*start, chosen, element, ToolsExecutionLoop([ToolsExecutor(), element])])
