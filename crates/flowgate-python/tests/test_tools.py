"""Tools as functions: their schemas, and the statements that their labels and requirements mean."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import pytest

import flowgate
from flowgate.tools import schema_of


class Colour(enum.Enum):
    """A choice."""

    RED = "red"


def paint(
    what: str,
    times: int = 1,
    share: float | None = None,
    colour: Colour = Colour.RED,
    size: Literal["s", "l"] = "s",
    tags: list[str] = [],  # noqa: B006 - a default of a tool
    note: Annotated[str, "what to remember"] = "",
    more: dict | None = None,
) -> str:
    """Paint something."""
    return what


def test_a_schema_follows_from_the_signature() -> None:
    schema = schema_of(paint)
    assert schema["required"] == ["what"]
    assert schema["properties"] == {
        "what": {"type": "string"},
        "times": {"type": "integer"},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "colour": {"enum": ["red"]},
        "size": {"enum": ["s", "l"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string", "description": "what to remember"},
        "more": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    }
    assert flowgate.tool(paint).description == "Paint something."


def test_functions_that_a_call_by_name_cannot_call() -> None:
    with pytest.raises(TypeError, match=r"has the parameter `\*args`, which a call by name cannot give"):
        flowgate.tool(lambda *args: None)

    def unknown(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    with pytest.raises(TypeError, match="type hints of unknown"):
        flowgate.tool(unknown)


def test_labels_and_requirements_are_statements() -> None:
    @flowgate.tool(
        name="send",
        server="mail",
        output={"": "untrusted", "id": "trusted", "[*].from": "trusted"},
        requires="trusted",
        payload=["body"],
        roles={"to": "recipient"},
    )
    def send(to: str, body: str) -> str:
        return "sent"

    lattice = "lattice integrity: trusted < untrusted\n"
    guard = flowgate.Guard(lattice, [send])
    text = guard.policy.source.removeprefix(lattice.rstrip()).strip()
    assert text == "\n".join(
        [
            "label out.content as untrusted if:",
            "    (out: ToolOutput) is tool:mail/send",
            "label out.content.id as trusted if:",
            "    (out: ToolOutput) is tool:mail/send",
            "label out.content[*].from as trusted if:",
            "    (out: ToolOutput) is tool:mail/send",
            "require trusted if:",
            "    (call: ToolCall) is tool:mail/send",
            "payload call.arguments.body if:",
            "    (call: ToolCall) is tool:mail/send",
            "role call.arguments.to is recipient if:",
            "    (call: ToolCall) is tool:mail/send",
        ]
    )
    assert guard.policy.argument_role("mail/send", "to") == "recipient"
    assert guard.monitor.argument_rights("mail/send")["payload"] == ["body"]
    assert send("a", "b") == "sent"


def test_what_a_tool_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"paint\(\) has no argument `body`; it has: what, times"):
        flowgate.tool(payload=["body"])(paint)
    with pytest.raises(ValueError, match="there are two tools named paint"):
        flowgate.Toolset([paint, paint])
    with pytest.raises(TypeError, match="a tool is a function, and not int"):
        flowgate.Toolset([3])
    with pytest.raises(flowgate.PolicyError, match="untrsted"):
        flowgate.Guard("lattice integrity: trusted < untrusted\n", [flowgate.tool(output="untrsted")(paint)])


def test_tools_by_name() -> None:
    tools = flowgate.Toolset({"bank/pay": lambda to: to})
    assert [str(tool) for tool in tools] == ["bank/pay"]
    assert tools["bank/pay"].function("x") == "x"
    assert tools.get(flowgate.Tool("pay", "bank")) is not None
    assert flowgate.Tool.parse("bank/pay") == flowgate.Tool("pay", "bank") != flowgate.Tool("pay")
    assert len({flowgate.Tool("pay"), flowgate.Tool("pay")}) == 1
