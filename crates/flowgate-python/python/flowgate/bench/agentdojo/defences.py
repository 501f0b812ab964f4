"""The rows of the measurement: defences, and the pipeline of AgentDojo that each is.

Each guard's method is a row under the strict policies of `examples/agentdojo`, and lowest first also under the typed ones. The
rows of RTBAS are what its section 8 says: naive tainting has every region taint what follows; redacting everything shows only
regions that are trusted and public, so nothing needs a person; confirming every call has a person see them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
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

from ..._flowgate import Policy
from ...errors import FlowgateError
from .cases import PIPELINE_NAME, Row, Settings
from .doubles import Double
from .elements import ConfirmingAgent, GuardedAgent, Ledger, ModelElement, NeededTools
from .gateway import Client, Gateway, double_server
from .judging import is_of_user
from .plans import Plan

__all__ = ["DEFAULT_POLICIES", "DEFENCES", "Defence", "check_policies", "decider", "double_of", "pipeline_of", "policy_of", "rows_of"]

DEFAULT_POLICIES = "examples/agentdojo"
DOUBLES = ("obedient", "capable")

# Nothing that is not trusted and public is ever shown to the model.
REDACT = """
require trusted, public if:
    (call: ToolCall) is tool:flowgate/model
"""


@dataclass(frozen=True)
class Defence:
    """A defence: what it does, the method of the guard if it is one, and AgentDojo's name if it is AgentDojo's."""

    doc: str
    method: str = ""
    statements: str = ""
    builtin: str = ""
    needs: str = ""
    judge_obeys: bool = False
    is_gateway: bool = False

    @property
    def asks(self) -> bool:
        """Whether a person may be asked, so that the confirmation policies differ."""
        return (bool(self.method) and not self.is_gateway) or self.builtin == "confirm"


DEFENCES: dict[str, Defence] = {
    "none": Defence("AgentDojo's pipeline without a defence"),
    "agentdojo-tool-filter": Defence("a model chooses the tools before the first call", builtin="tool_filter"),
    "agentdojo-repeat-prompt": Defence("the user's prompt follows every output", builtin="repeat_user_prompt"),
    "agentdojo-spotlighting": Defence("outputs stand between signs", builtin="spotlighting_with_delimiting"),
    "agentdojo-detector": Defence(
        "a classifier of injections", builtin="transformers_pi_detector", needs="transformers, torch and a classifier's weights"
    ),
    "confirm-every-call": Defence("a person sees every call (RTBAS)", builtin="confirm"),
    "naive-tainting": Defence("everything taints what follows (RTBAS)", method="everything"),
    "redact-everything": Defence("what is not trusted and public is never shown (RTBAS)", method="everything", statements=REDACT),
    "judge": Defence("RTBAS with a screener that says what a step needs", method="judge"),
    "judge-obeying": Defence("RTBAS with a screener that obeys what it reads", method="judge", judge_obeys=True),
    "introspection": Defence("the model cites what its next message needs", method="introspection"),
    "provenance": Defence("the regions from which a draft takes its values", method="provenance"),
    "lowest-first": Defence("the strictest requirement; more where the model looks", method="lowest-first"),
    "gateway-lowest-first": Defence("lowest first in the gateway, by base URL", method="lowest-first", is_gateway=True),
    "gateway-provenance": Defence("provenance in the gateway, by base URL", method="provenance", is_gateway=True),
    "cheapest-first": Defence("everything, if all calls are permitted", method="cheapest-first"),
    "confirm-acting": Defence("a person sees every call that acts", method="confirm-acting"),
    "never-look": Defence("the strictest requirement, never more", method="never-look"),
    "tool-filter": Defence("everything, with the tools that a model chooses", method="tool-filter"),
}


def rows_of(names: list[str], policies: list[str], confirmations: list[str], model: str) -> list[Row]:
    """Return the rows of defences. A defence that asks nobody has one row."""
    rows = []
    for name in names:
        defence = DEFENCES[name]
        for kind in policies if defence.method else [""]:
            rows += [Row(name, kind, who, model) for who in (confirmations if defence.asks else ["refuse"])]
    return rows


def _policy_path(folder: str, kind: str, suite: str) -> Path:
    typed = Path(folder) / "typed" / f"{suite}.flow"
    return typed if kind == "typed" and typed.exists() else Path(folder) / f"{suite}.flow"


@lru_cache
def policy_of(folder: str, kind: str, suite: str, statements: str) -> Policy:
    """Return the policy of a suite, with further statements."""
    path = _policy_path(folder, kind, suite)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the policy {path} cannot be read ({error.strerror}): pass the folder with `--policies`"
        raise FlowgateError(message) from error
    policy = Policy(text, path=str(path), read=lambda name: (path.parent / name).read_text(encoding="utf-8"))
    return policy.with_statements(statements) if statements else policy


def check_policies(folder: str, kinds: list[str], suites: list[str], names: list[str]) -> None:
    """Compile every policy that a run needs, so that a mistake ends it before it begins."""
    for name in names:
        for kind in kinds if DEFENCES[name].method else []:
            for suite in suites:
                policy_of(folder, kind, suite, DEFENCES[name].statements)


def decider(confirmation: str, plan: Plan) -> Callable[[str, dict[str, Any]], bool]:
    """Return the person who is asked: one who refuses, one who allows, or one who allows the calls of the user's ground truth."""
    if confirmation == "oracle":
        return lambda tool, arguments: is_of_user(plan, tool, arguments)
    return lambda _tool, _arguments: confirmation == "allow"


def double_of(row: Row, plan: Plan) -> Double:
    """Return the double of a row."""
    return Double(plan, is_capable=row.model == "capable", judge_obeys=DEFENCES[row.defence].judge_obeys)


def pipeline_of(row: Row, suite: str, plan: Plan, model: Any, ledger: Ledger, settings: Settings) -> Any:
    """Return the pipeline of a row for one case."""
    defence = DEFENCES[row.defence]
    if defence.needs and not isinstance(model, Double):
        message = f"the row `{row.defence}` needs {defence.needs}, which this package does not install"
        raise FlowgateError(message)
    element = ModelElement(model, ledger, PIPELINE_NAME)
    start = [SystemMessage(load_system_message(None)), InitQuery()]
    decide = decider(row.confirmation, plan)
    if defence.is_gateway:
        config = _config(_gateway_client(row, suite, model, ledger, settings))
        pipeline = AgentPipeline.from_config(config)
    elif defence.method:
        policy = policy_of(settings.policies, row.policies, suite, defence.statements)
        pipeline = AgentPipeline([*start, GuardedAgent(policy, defence.method, model, decide, ledger)])
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


def _gateway_client(row: Row, suite: str, model: Any, ledger: Ledger, settings: Settings) -> Any:
    """Return a client with a gateway of its own, whose model is the double of this case or the server of a model."""
    path = _policy_path(settings.policies, row.policies, suite)
    server = double_server() if isinstance(model, Double) else None
    upstream = settings.base_url if server is None else server.url
    gateway = Gateway(settings.gateway, path, DEFENCES[row.defence].method, upstream, load_system_message(None))
    client = Client(gateway, row.model if server is None else PIPELINE_NAME)
    if server is not None:
        server.begin(model, ledger, client)
    client.name = PIPELINE_NAME
    return client


def _with_tool_filter(plan: Plan, model: Any, element: ModelElement, start: list[Any]) -> Any:
    if isinstance(model, Double):
        chosen: Any = NeededTools({call.tool for call in plan.calls})
    else:
        chosen = OpenAILLMToolFilter(TOOL_FILTER_PROMPT, model.client, model.model)
    return AgentPipeline([*start, chosen, element, ToolsExecutionLoop([ToolsExecutor(), element])])
