"""What programs add to the benchmark without changing this package: attacks, models, suites and defences.

A plugin is a module that calls the `register_*` functions when it is imported, or when a function of it is called. It is named with
`--plugin`, or it is an entry point of the group `flowgate.bench` of an installed package. Every process of a run loads all plugins.
Methods of conversations, and screeners with them, are registered with `flowgate.register_method`, and are rows as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from agentdojo.attacks.attack_registry import ATTACKS  # type: ignore[import-untyped]
from agentdojo.attacks.attack_registry import register_attack as _register_attack
from agentdojo.task_suite.load_suites import get_suites  # type: ignore[import-untyped]
from agentdojo.task_suite.load_suites import register_suite as _register_suite

from ...errors import FlowgateError

__all__ = [
    "DEFENCES",
    "DOUBLES",
    "GROUP",
    "MODELS",
    "PAYLOAD",
    "POLICIES",
    "READERS",
    "Defence",
    "Model",
    "SuitePolicies",
    "is_double",
    "load_plugins",
    "plugin_files",
    "register_attack",
    "register_defence",
    "register_model",
    "register_suite",
]

GROUP = "flowgate.bench"
DOUBLES = {
    "obedient": "the ground truth, and every injection that it is shown",
    "capable": "what it is shown, fills or looks at decides; every injection that it is shown",
}


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
    detect: Callable[[str], bool] | None = None
    """A detector of injections: whether an output is left out."""

    @property
    def asks(self) -> bool:
        """Whether a person may be asked, so that the confirmation policies differ."""
        return bool(self.method) or self.builtin == "confirm"


@dataclass(frozen=True)
class Model:
    """A model that a program has registered."""

    doc: str
    factory: Callable[[Any, Any], Callable[[dict[str, Any]], Any]]
    is_double: bool


@dataclass(frozen=True)
class SuitePolicies:
    """The policies of a suite that a program has registered."""

    strict: Path
    typed: Path | None


DEFENCES: dict[str, Defence] = {}
MODELS: dict[str, Model] = {}
POLICIES: dict[str, SuitePolicies] = {}
READERS: set[str] = set()
"""Tools of registered suites that only read."""
PAYLOAD: dict[str, set[str]] = {}
"""Arguments of tools of registered suites that carry a text to where the other arguments say."""


def register_attack(attack: type[Any]) -> type[Any]:
    """Add an attack: a subclass of AgentDojo's `BaseAttack` with a `name`. It can be a decorator.

    Raises `FlowgateError` if an attack has the name already.
    """
    name = str(getattr(attack, "name", ""))
    if not name:
        message = f"the attack {attack.__name__} has no name: give the class an attribute `name`"
        raise FlowgateError(message)
    if name == "none" or ATTACKS.get(name, attack) is not attack:
        message = f"there is an attack `{name}` already: choose another name"
        raise FlowgateError(message)
    added: type[Any] = _register_attack(attack)
    return added


def register_model(
    name: str, factory: Callable[[Any, Any], Callable[[dict[str, Any]], Any]], *, doc: str = "", is_double: bool = False
) -> None:
    """Add a model. `factory(plan, settings)` makes one for each case, a function from the body of an OpenAI request to a `Completion`.

    `settings` has the `base_url` and the `seed` of the run. `plan` is what the user and the attacker of the case want, which only a
    double may use: say so with `is_double`, and its rows are marked as bounds. A model with `usage`, the input and output tokens of its
    last answer, has costs. Raises `FlowgateError` if a model has the name already.
    """
    if name in MODELS or name in DOUBLES:
        message = f"there is a model `{name}` already: choose another name"
        raise FlowgateError(message)
    MODELS[name] = Model(doc, factory, is_double)


def register_suite(
    suite: Any,
    *,
    version: str,
    policy: str | Path,
    typed: str | Path | None = None,
    readers: Iterable[str] = (),
    payload: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Add a `TaskSuite` of AgentDojo's to a version of its tasks, with its policies.

    `typed` is the policy with endorsements by form, by default the same. `readers` are the tools that only read: all others act.
    `payload` names, by tool, the arguments that only carry a text. Raises `FlowgateError` if the version has another suite with the name.
    """
    known = get_suites(version).get(suite.name)
    if known is not None and known is not suite:
        message = f"{version} has a suite `{suite.name}` already: choose another name"
        raise FlowgateError(message)
    _register_suite(suite, version)
    POLICIES[suite.name] = SuitePolicies(Path(policy), None if typed is None else Path(typed))
    READERS.update(readers)
    for tool, arguments in (payload or {}).items():
        PAYLOAD.setdefault(tool, set()).update(arguments)


def register_defence(name: str, defence: Defence) -> None:
    """Add a defence as a row. Raises `FlowgateError` if a row has the name already."""
    if name in DEFENCES:
        message = f"there is a defence `{name}` already: choose another name"
        raise FlowgateError(message)
    DEFENCES[name] = defence


def is_double(model: str) -> bool:
    """Whether a model is a test double, whose figures are bounds."""
    return model in DOUBLES or (model in MODELS and MODELS[model].is_double)


def load_plugins(names: tuple[str, ...]) -> None:
    """Load installed plugins, and those with these names: modules, or files that end with `.py`. Each is loaded once in a process.

    Raises `FlowgateError` if a plugin cannot be loaded.
    """
    for entry in entry_points(group=GROUP):
        _load_installed(entry.value)
    for name in names:
        _load(name)


def plugin_files(names: tuple[str, ...]) -> list[Path]:
    """Return the files of all plugins, which must be loaded, and of the policies that they registered."""
    modules = [_load(name) for name in names]
    modules += [sys.modules[entry.value.partition(":")[0]] for entry in entry_points(group=GROUP)]
    policies = [path for one in POLICIES.values() for path in (one.strict, one.typed) if path is not None]
    return [*(Path(str(module.__file__)) for module in modules if module.__file__), *policies]


@cache
def _load_installed(value: str) -> None:
    entry = next(entry for entry in entry_points(group=GROUP) if entry.value == value)
    try:
        found = entry.load()
        if not isinstance(found, ModuleType):
            found()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"the installed plugin `{entry.name}` ({value}) cannot be loaded ({reason}): uninstall or repair it"
        raise FlowgateError(message) from error


@cache
def _load(name: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = Path(name).resolve()
        spec = importlib.util.spec_from_file_location(f"flowgate_plugin_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(name)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"the plugin `{name}` cannot be loaded ({type(error).__name__}: {error}): name a module, or a file that ends with .py"
        raise FlowgateError(message) from error
    return module
