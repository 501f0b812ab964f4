"""Tools as Python functions: their schemas, their labels and their requirements.

`@tool` takes the schema of the arguments from the signature, and turns labels and requirements into statements of the policy language,
so that there is one policy and one place that decides. `Toolset.policy_text()` shows the statements.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._flowgate import Tool

__all__ = ["ToolFunction", "Toolset", "tool"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass
class ToolFunction:
    """A function that a model may call, and what the policy has to know about it."""

    function: Callable[..., Any]
    tool: Tool
    description: str
    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    described_by: str = "operator"
    output: str | Mapping[str, str] | None = None
    requires: str | None = None
    payload: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, unguarded: what a guard permits passes through `Guard.run`."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def offer(self) -> dict[str, Any]:
        """Return the description of the tool for a `Conversation`."""
        return {
            "tool": self.tool,
            "description": self.description,
            "parameters": self.parameters,
            "output": self.output_schema,
            "described_by": self.described_by,
        }

    def policy_text(self) -> str:
        """Return the statements that the labels and requirements of the tool mean, in the policy language."""
        name = f"tool:{self.tool}"
        statements = []
        outputs = {"": self.output} if isinstance(self.output, str) else dict(self.output or {})
        for path, label in outputs.items():
            place = f"out.content{_path(path)}"
            statements.append(f"label {place} as {label} if:\n    (out: ToolOutput) is {name}\n")
        if self.requires is not None:
            statements.append(f"require {self.requires} if:\n    (call: ToolCall) is {name}\n")
        statements.extend(
            f"payload call.arguments.{argument} if:\n    (call: ToolCall) is {name}\n" for argument in self.payload
        )
        statements.extend(
            f"role call.arguments.{argument} is {role} if:\n    (call: ToolCall) is {name}\n"
            for argument, role in self.roles.items()
        )
        return "".join(statements)


def _path(path: str) -> str:
    if not path:
        return ""
    return path if path.startswith("[") else f".{path}"


@typing.overload
def tool(function: Callable[..., Any], /) -> ToolFunction: ...
@typing.overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    server: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    output: str | Mapping[str, str] | None = None,
    requires: str | None = None,
    payload: Iterable[str] = (),
    roles: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], ToolFunction]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    server: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    output: str | Mapping[str, str] | None = None,
    requires: str | None = None,
    payload: Iterable[str] = (),
    roles: Mapping[str, str] | None = None,
) -> ToolFunction | Callable[[Callable[..., Any]], ToolFunction]:
    """Make a function a tool.

    `output` is the label of what it returns, or a dict of labels by paths in it; `requires` the greatest label that may flow into a call
    (`"top"` for a harmless reader); `payload` the arguments that untrusted text may choose; `roles` what arguments are for. Without them,
    the policy has to say so, or the tool is closed.
    """

    def make(function: Callable[..., Any]) -> ToolFunction:
        schema = parameters if parameters is not None else schema_of(function)
        known = schema.get("properties", {})
        payload_arguments = tuple(payload)
        for argument in (*payload_arguments, *(roles or {})):
            if argument not in known:
                message = f"{function.__name__}() has no argument `{argument}`; it has: {', '.join(known) or 'none'}"
                raise ValueError(message)
            if not _IDENTIFIER.match(argument):
                message = f"the policy language has no name for the argument {argument!r}: write the statement by hand"
                raise ValueError(message)
        return ToolFunction(
            function=function,
            tool=Tool(name or function.__name__, server),
            description=description if description is not None else inspect.getdoc(function) or "",
            parameters=schema,
            output_schema=output_schema,
            described_by="operator",
            output=output,
            requires=requires,
            payload=payload_arguments,
            roles=dict(roles or {}),
        )

    return make(function) if function is not None else make


class Toolset(Mapping[Tool, ToolFunction]):
    """The tools of an agent, by identity."""

    def __init__(self, tools: Iterable[ToolFunction | Callable[..., Any]] | Mapping[str, Any] = ()) -> None:
        """Create a set of tools: of functions, of functions with `@tool`, or of a dict of either by name."""
        self._tools: dict[Tool, ToolFunction] = {}
        if isinstance(tools, Toolset):
            self._tools.update(tools._tools)
        elif isinstance(tools, Mapping):
            for name, function in tools.items():
                made = self._made(function)
                identity = Tool.parse(name)
                self._tools[identity] = ToolFunction(**{**vars(made), "tool": identity})
        else:
            for function in tools:
                made = self._made(function)
                if made.tool in self._tools:
                    message = f"there are two tools named {made.tool}: give one of them another name or server"
                    raise ValueError(message)
                self._tools[made.tool] = made

    @staticmethod
    def _made(function: Any) -> ToolFunction:
        if isinstance(function, ToolFunction):
            return function
        if not callable(function):
            message = f"a tool is a function, and not {type(function).__name__}"
            raise TypeError(message)
        made: ToolFunction = tool(function)
        return made

    def offers(self) -> list[dict[str, Any]]:
        """Return the descriptions of the tools for a `Conversation`."""
        return [function.offer() for function in self._tools.values()]

    def policy_text(self) -> str:
        """Return the statements of all tools, to be appended to a policy."""
        return "\n".join(text for text in (function.policy_text() for function in self._tools.values()) if text)

    def __getitem__(self, key: Tool | str) -> ToolFunction:
        """Return a tool by its identity, or by a text such as `bank/pay`."""
        return self._tools[Tool.parse(key) if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Tool]:
        """Iterate over the identities."""
        return iter(self._tools)

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._tools)


_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a function, from its signature and type hints."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        message = f"the type hints of {function.__name__}() cannot be read ({error}): pass `parameters=`"
        raise TypeError(message) from error
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            message = f"{function.__name__}() has the parameter `{parameter}`, which a call by name cannot give: pass `parameters=`"
            raise TypeError(message)
        properties[name] = _type_schema(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _type_schema(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if origin is typing.Annotated:
        described = next((note for note in arguments[1:] if isinstance(note, str)), None)
        schema = _type_schema(arguments[0])
        return {**schema, "description": described} if described else schema
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(argument) for argument in arguments]}
    if origin in (list, tuple, set, frozenset) or hint in (list, tuple):
        return {"type": "array", "items": _type_schema(arguments[0])} if arguments else {"type": "array"}
    if origin is dict or hint is dict:
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if hasattr(hint, "model_json_schema"):
        return dict(hint.model_json_schema())
    return {}
