"""The Python interface of Invariant's analyzer, on Flowgate's engine: change one import.

    from invariant.analyzer import LocalPolicy, Monitor     # before
    from flowgate.invariant import LocalPolicy, Monitor     # after

Policies mean what Invariant's analyzer makes of them (`dialect="invariant"`). Where the analyzer's local and remote forms differ, this
module does what the remote one does: a pending violation without ranges is reported, and `import os` is refused when a trace is
analyzed. There is no limit of 100 evaluations. Python functions are predicates that the policy declares `extern`:
`LocalPolicy.from_string(text, predicates={"is_customer": function})`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._flowgate import Analysis, Failure, Trace
from ._flowgate import Policy as _Policy
from ._flowgate import Violation as _Violation
from .errors import FlowgateError, PolicyError, TraceError

__all__ = [
    "AnalysisResult",
    "ErrorInformation",
    "ExcessivePolicyError",
    "IncrementalPolicy",
    "InvariantAttributeError",
    "InvariantInputValidationError",
    "LocalPolicy",
    "MissingPolicyParameter",
    "Monitor",
    "Policy",
    "PolicyError",
    "PolicyExecutionError",
    "PolicyLoadingError",
    "PolicyViolation",
    "Range",
    "UnhandledError",
    "Violation",
    "analyze_trace",
    "assistant",
    "chunked",
    "image",
    "system",
    "tool",
    "tool_call",
    "user",
]


class _PrefixedError(FlowgateError):
    """An error whose text begins with words by which clients recognize it."""

    catchphrase = ""

    def __init__(self, message: str) -> None:
        """Create the error."""
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the words and the message."""
        return self.catchphrase + self.message


class ExcessivePolicyError(_PrefixedError, ValueError):
    """A policy uses something that policies may not use."""

    catchphrase = "Excessive Policy: "


class MissingPolicyParameter(_PrefixedError, KeyError):
    """A policy reads `input.NAME`, and no such parameter was given."""

    catchphrase = "Missing Policy Parameter: "


class InvariantInputValidationError(_PrefixedError, AttributeError):
    """A trace cannot be read."""

    catchphrase = "Input Validation Error: "


class InvariantAttributeError(_PrefixedError, AttributeError):
    """A policy reads a field that events of the kind do not have."""

    catchphrase = "Invariant Attribute Error: "


class PolicyExecutionError(_PrefixedError):
    """A rule cannot be evaluated."""


class PolicyLoadingError(FlowgateError):
    """A policy cannot be compiled. The text shows each error under its line; `errors` has them as diagnostics."""

    def __init__(self, msg: str, errors: Iterable[Any] = ()) -> None:
        """Create the error."""
        super().__init__(msg, list(errors))
        self.msg, self.errors = msg, list(errors)

    def __str__(self) -> str:
        """Return the report."""
        return self.msg

    @classmethod
    def of(cls, error: PolicyError) -> PolicyLoadingError:
        """Create the error for a policy that does not compile."""
        return cls(_report(error), error.diagnostics)


def _report(error: PolicyError) -> str:
    count = sum(found.severity == "error" for found in error.diagnostics)
    excerpts = "\n".join(found.excerpt for found in error.diagnostics)
    return f"the policy has {count} error{'' if count == 1 else 's'}\n\n{excerpts}"


@dataclass(frozen=True)
class Range:
    """A place in a trace: the path of a part, and the characters of it that are meant."""

    object_id: str | None = None
    start: int | None = None
    end: int | None = None
    json_path: str | None = None

    @classmethod
    def from_address(cls, address: str) -> Range:
        """Read an address such as `messages.1.content:5-10`."""
        start, end = None, None
        if ":" in address:
            start_text, _, end_text = address.rsplit(":", 1)[1].partition("-")
            start, end = int(start_text), int(end_text)
        return cls(start=start, end=end, json_path=address.removeprefix("messages."))

    def to_address(self) -> str:
        """Return the address."""
        path = "messages" + (f".{self.json_path}" if self.json_path else "")
        if self.start is not None and self.end is not None and ":" not in path:
            path += f":{self.start}-{self.end}"
        return path

    @property
    def message_index(self) -> int:
        """The index of the message."""
        return int((self.json_path or "0").split(".", 1)[0])


@dataclass
class ErrorInformation:
    """One match of one rule."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)
    key: str | None = None

    @classmethod
    def _of(cls, found: _Violation) -> ErrorInformation:
        ranges = [Range.from_address(address) for address in found.ranges]
        args = [_argument(value) for value in found.args]
        return cls(args, {name: _argument(value) for name, value in found.kwargs.items()}, ranges, found.key)

    @classmethod
    def from_dict(cls, error: Mapping[str, Any]) -> ErrorInformation:
        """Read what `to_dict` returns."""
        ranges = [Range.from_address(address) for address in error.get("ranges", ())]
        return cls(list(error.get("args", ())), dict(error.get("kwargs", {})), ranges, error.get("key"))

    def to_dict(self) -> dict[str, Any]:
        """Return the match as a dict."""
        return {
            "key": self.key,
            "args": self.args,
            "kwargs": self.kwargs,
            "ranges": [found.to_address() for found in self.ranges],
        }

    def __str__(self) -> str:
        """Return the message."""
        named = "".join(f", {name}={value}" for name, value in self.kwargs.items())
        return f"{type(self).__name__}({' '.join(map(str, self.args))}{named})"

    __repr__ = __str__

    def __hash__(self) -> int:
        """Return a hash of the text and the places."""
        return hash((str(self), tuple(sorted(found.to_address() for found in self.ranges))))


def _argument(value: Any) -> Any:
    if value is None or isinstance(value, list):
        import json  # noqa: PLC0415 - rare

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value


def Violation(*args: Any, **kwargs: Any) -> ErrorInformation:  # noqa: N802 - the name in policies
    """Create a match, as the function of the same name in policies."""
    kwargs.pop("ranges", None)
    return ErrorInformation(list(args), kwargs)


PolicyViolation = Violation


class UnhandledError(FlowgateError):
    """An analysis with `raise_unhandled` found something."""

    def __init__(self, errors: Iterable[ErrorInformation]) -> None:
        """Create the error."""
        self.errors = list(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        """Return all matches, one a line."""
        noun = "error" if len(self.errors) == 1 else "errors"
        lines = "\n".join(f" - {type(error).__name__}: {error}" for error in self.errors)
        return f"A policy analysis resulted in {len(self.errors)} unhandled {noun}:\n{lines}.\n"


@dataclass
class AnalysisResult:
    """All matches of a policy in a trace."""

    errors: list[ErrorInformation] = field(default_factory=list)
    handled_errors: list[Any] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the matches as dicts."""
        return {"errors": [error.to_dict() for error in self.errors]}

    def __str__(self) -> str:
        """Return all matches, one a line."""
        lines = "\n".join(f"    {error}" for error in self.errors)
        return f"AnalysisResult(\n  errors=[\n{lines}\n  ]\n)" if self.errors else "AnalysisResult(\n  errors=[]\n)"

    __repr__ = __str__


class _BasePolicy:
    """What policies and incremental policies have in common. The asynchronous forms do not wait: an analysis is a computation."""

    def analyze(self, input: list[dict[str, Any]], raise_unhandled: bool = False, **parameters: Any) -> AnalysisResult:
        """Find all matches in a trace."""
        raise NotImplementedError

    def analyze_pending(
        self,
        past_events: list[dict[str, Any]],
        pending_events: list[dict[str, Any]],
        raise_unhandled: bool = False,
        **parameters: Any,
    ) -> AnalysisResult:
        """Find the matches that concern pending events, and those without a place."""
        raise NotImplementedError

    async def a_analyze(
        self, input: list[dict[str, Any]], raise_unhandled: bool = False, **parameters: Any
    ) -> AnalysisResult:
        """Do as `analyze`."""
        return self.analyze(input, raise_unhandled, **parameters)

    async def a_analyze_pending(
        self,
        past_events: list[dict[str, Any]],
        pending_events: list[dict[str, Any]],
        raise_unhandled: bool = False,
        **parameters: Any,
    ) -> AnalysisResult:
        """Do as `analyze_pending`."""
        return self.analyze_pending(past_events, pending_events, raise_unhandled, **parameters)


class LocalPolicy(_BasePolicy):
    """A policy that is evaluated in this process."""

    def __init__(
        self,
        source: str,
        path: str | None = None,
        predicates: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        """Compile a policy."""
        self.source, self.path = source, path
        self._predicates = dict(predicates or {})
        self._policy: _Policy | None = None
        self._excess: PolicyError | None = None
        try:
            self._policy = _Policy(source, path=path, dialect="invariant")
        except PolicyError as error:
            if not any(found.code == "unavailable" for found in error.diagnostics):
                raise PolicyLoadingError.of(error) from error
            # What policies may not use is an error of the analysis.
            self._excess = error

    @classmethod
    def from_string(
        cls,
        string: str,
        path: str | None = None,
        optimize: bool = False,
        symbol_table: Any = None,
        *,
        predicates: Mapping[str, Callable[..., Any]] | None = None,
    ) -> LocalPolicy:
        """Compile a policy. `optimize` has no effect: rules are always optimized."""
        del optimize
        if symbol_table is not None:
            message = "symbol tables are not supported: declare `extern` predicates and pass `predicates=`"
            raise ValueError(message)
        return cls(string, path, predicates)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, predicates: Mapping[str, Callable[..., Any]] | None = None
    ) -> LocalPolicy:
        """Compile the policy in a file."""
        with open(path, encoding="utf-8") as file:
            return cls(file.read(), os.fspath(path), predicates)

    @property
    def errors(self) -> list[Any]:
        """The errors of the policy: none, since a policy with errors is not created."""
        return []

    def preload(self) -> None:
        """Raise `PolicyLoadingError` if the policy uses something that policies may not use."""
        if self._excess is not None:
            raise PolicyLoadingError.of(self._excess)

    def incremental(self) -> IncrementalPolicy:
        """Return a policy that reports each match once."""
        return IncrementalPolicy(self)

    def analyze(self, input: list[dict[str, Any]], raise_unhandled: bool = False, **parameters: Any) -> AnalysisResult:
        """Find all matches in a trace. `parameters` are the values of `input.NAME`."""
        if self._policy is None:
            raise ExcessivePolicyError(f"{self._excess}")
        try:
            found = self._policy.analyze(Trace(input), parameters=parameters, predicates=self._predicates)
        except TraceError as error:
            place = "messages" if error.message is None else f"messages[{error.message}]"
            raise InvariantInputValidationError(f"{place}: {error.problem}") from error
        _raise_failure(found)
        result = AnalysisResult([ErrorInformation._of(violation) for violation in found.violations])
        if raise_unhandled and result.errors:
            raise UnhandledError(result.errors)
        return result

    def analyze_pending(
        self,
        past_events: list[dict[str, Any]],
        pending_events: list[dict[str, Any]],
        raise_unhandled: bool = False,
        **parameters: Any,
    ) -> AnalysisResult:
        """Find the matches that concern pending events, and those without a place."""
        result = self.analyze([*past_events, *pending_events], **parameters)
        first = len(past_events)
        result.errors = [
            error
            for error in result.errors
            if not error.ranges or any(found.message_index >= first for found in error.ranges)
        ]
        if raise_unhandled and result.errors:
            raise UnhandledError(result.errors)
        return result


def _raise_failure(found: Analysis) -> None:
    """Raise the exception for the first rule that cannot be evaluated: no rule is passed over."""
    if not found.failures:
        return
    failure: Failure = found.failures[0]
    match failure.kind:
        case "missing-parameter":
            raise MissingPolicyParameter(failure.message)
        case "unavailable":
            raise ExcessivePolicyError(failure.message)
        case "attribute":
            raise InvariantAttributeError(failure.message)
        case _:
            raise PolicyExecutionError(failure.message)


Policy = LocalPolicy


class IncrementalPolicy(_BasePolicy):
    """A policy that reports each match once."""

    def __init__(self, policy: LocalPolicy) -> None:
        """Create an incremental policy."""
        self.policy = policy
        self.previous_errors: set[str] = set()

    def analyze(self, input: list[dict[str, Any]], raise_unhandled: bool = False, **parameters: Any) -> AnalysisResult:
        """Find the new matches in a trace."""
        return self._new(self.policy.analyze(input, **parameters), raise_unhandled)

    def analyze_pending(
        self,
        past_events: list[dict[str, Any]],
        pending_events: list[dict[str, Any]],
        raise_unhandled: bool = False,
        **parameters: Any,
    ) -> AnalysisResult:
        """Find the new matches that concern pending events."""
        return self._new(self.policy.analyze_pending(past_events, pending_events, **parameters), raise_unhandled)

    def _new(self, result: AnalysisResult, raise_unhandled: bool) -> AnalysisResult:
        result.errors = [error for error in result.errors if (error.key or str(error)) not in self.previous_errors]
        self.previous_errors.update(error.key or str(error) for error in result.errors)
        if raise_unhandled and result.errors:
            raise UnhandledError(result.errors)
        return result


class Monitor:
    """A policy over a growing trace. Each match is reported once."""

    def __init__(
        self,
        policy: LocalPolicy,
        policy_parameters: Mapping[str, Any] | None = None,
        raise_unhandled: bool = False,
    ) -> None:
        """Create a monitor. `policy_parameters` are the values of `input.NAME` in `check`."""
        self.policy_parameters = dict(policy_parameters or {})
        self.raise_unhandled = bool(self.policy_parameters.pop("raise_unhandled", raise_unhandled))
        self._policy = policy
        self.policy = policy.incremental()

    @classmethod
    def from_string(
        cls,
        string: str,
        optimize: bool = False,
        symbol_table: Any = None,
        *,
        predicates: Mapping[str, Callable[..., Any]] | None = None,
        **policy_parameters: Any,
    ) -> Monitor:
        """Create a monitor from the text of a policy."""
        policy = LocalPolicy.from_string(string, None, optimize, symbol_table, predicates=predicates)
        return cls(policy, policy_parameters)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **policy_parameters: Any) -> Monitor:
        """Create a monitor from the policy in a file."""
        return cls(LocalPolicy.from_file(path), policy_parameters)

    def reset(self) -> None:
        """Forget what was reported."""
        self.policy = self._policy.incremental()

    def analyze(self, input: list[dict[str, Any]], raise_unhandled: bool = False, **parameters: Any) -> AnalysisResult:
        """Find the new matches in a trace."""
        return self.policy.analyze(input, raise_unhandled, **parameters)

    def analyze_pending(
        self,
        past_events: list[dict[str, Any]],
        pending_events: list[dict[str, Any]],
        raise_unhandled: bool = False,
        **parameters: Any,
    ) -> AnalysisResult:
        """Find the new matches that concern pending events."""
        return self.policy.analyze_pending(past_events, pending_events, raise_unhandled, **parameters)

    def check(
        self, past_events: list[dict[str, Any]], pending_events: list[dict[str, Any]]
    ) -> list[ErrorInformation]:
        """Return the new matches that concern pending events, with the parameters of the monitor."""
        return self.policy.analyze_pending(
            past_events, pending_events, self.raise_unhandled, **self.policy_parameters
        ).errors


def analyze_trace(policy_str: str, trace: list[dict[str, Any]]) -> AnalysisResult:
    """Find all matches of a policy in a trace."""
    return LocalPolicy.from_string(policy_str).analyze(trace)


def system(content: Any) -> dict[str, Any]:
    """Return a system message."""
    return {"role": "system", "content": content}


def user(content: Any, chunked: bool = False) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": [{"type": "text", "text": str(content)}] if chunked else content}


def assistant(content: Any, tool_call: Any = None) -> dict[str, Any]:
    """Return a message of the model."""
    calls = tool_call if isinstance(tool_call, list) else [tool_call] if tool_call is not None else []
    return {"role": "assistant", "content": content, "tool_calls": calls}


def image(image_url: str) -> dict[str, Any]:
    """Return a message with an image."""
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": image_url}}]}


def tool_call(tool_call_id: str, function_name: str, arguments: Any) -> dict[str, Any]:
    """Return a call."""
    return {"id": tool_call_id, "type": "function", "function": {"name": function_name, "arguments": arguments}}


def tool(tool_call_id: str, content: Any) -> dict[str, Any]:
    """Return an output."""
    return {"role": "tool", "tool_call_id": tool_call_id, "content": str(content)}


def chunked(msg: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a content block."""
    if not isinstance(msg["content"], str):
        message = "the content of the message is not a string"
        raise TypeError(message)
    return {**msg, "content": [{"type": "text", "text": msg["content"]}]}
