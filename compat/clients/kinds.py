"""Finds the kinds of objects that requests of the official clients can contain: types of tools, items, blocks and parts.

`known_fields.FORMS` names the classes whose fields are listed. This module follows the fields that `docs/wire-forms.md` calls accepted, from
the request down, and finds every other class that a client can put there. The decoder must refuse an object of such a class:
`test_kinds.py` asks it. So a kind of tool or block that a new version of a client adds is a visible change.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

import typing_extensions

import known_fields

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "crates/flowgate-lm/tests/client-kinds.txt"
DOCUMENTATION = ROOT / "docs/wire-forms.md"
# A schema is one value. Google's client replaces these objects before it sends a request.
NO_KINDS = {"InputSchemaTyped", "File"}
SAY = {"role": "user", "content": "x"}


def rules(form):
    """Returns the outcomes of the fields of a form in the documentation, by object and field."""
    text = DOCUMENTATION.read_text().split(f"<!-- fields of {form} -->")[1].split("<!-- end of the fields -->")[0]
    return {(title, field): outcome for title, field, outcome in re.findall(r"^\| (.+?) \| `(.+?)` \| (.+?) \|", text, re.M)}


def is_object(kind):
    return isinstance(kind, type) and (hasattr(kind, "__required_keys__") or hasattr(kind, "model_fields"))


def classes(kind):
    """Returns the classes of objects in the type of a field: the members of a union, the elements of a list."""
    if is_object(kind):
        return [kind]
    if get_origin(kind) is Literal:
        return []
    return [member for part in get_args(kind) for member in classes(part)]


def hints(kind):
    """Returns the types of the fields of a class, by the names that requests contain."""
    if hasattr(kind, "model_fields"):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return typing_extensions.get_type_hints(kind)


def literals(kind):
    """Returns the strings that a field of this type can be, `None` if it can be any."""
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str)]
    found = [literals(part) for part in get_args(kind) if part is not type(None)]
    return [value for values in found for value in values or []]


def unlisted(form):
    """Returns the classes that the fields of a form can contain and `FORMS` does not name, each with the field (object, name)."""
    outcomes, objects = rules(form), known_fields.FORMS[form]
    titles = {}
    for title, kinds in objects.items():
        for kind in kinds:
            for member in classes(kind):
                titles.setdefault(member, []).append(title)
    waiting, seen, found = [(member, None) for kind in objects["request"] for member in classes(kind)], set(), []
    while waiting:
        kind, place = waiting.pop(0)
        if kind in seen or kind.__name__ in NO_KINDS:
            continue
        seen.add(kind)
        if kind not in titles:
            found.append((kind, place))
            continue
        for name, hint in hints(kind).items():
            for title in titles[kind]:
                if outcomes.get((title, name)) == "accepted":
                    waiting += [(member, (title, name)) for member in classes(hint)]
    return found


def sample(kind):
    """Returns a value of a type, of an object only the required fields."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_object(kind):
        # The classes name their types by strings, so that Python itself does not know what is required.
        known = {} if hasattr(kind, "model_fields") else typing_extensions.get_type_hints(kind, include_extras=True)
        needed = [name for name, hint in known.items() if get_origin(hint) is typing_extensions.Required]
        return {name: sample(hints(kind)[name]) for name in needed}
    if origin is Literal:
        return parts[0]
    if isinstance(origin, type) and issubclass(origin, (Mapping, dict)) or kind in (dict, object):
        return {}
    if isinstance(origin, type) and issubclass(origin, (Iterable, Sequence)):
        return [sample(parts[0])]
    if parts:
        # A union, of which the first member is as good as any, or an annotation.
        return sample(next(part for part in parts if part is not type(None)))
    return {int: 1, float: 1.0, bool: True}.get(kind, "x")


def names(kind):
    """Returns the field that tells a class from others, and its values: `type`, or `role`."""
    for name in ("type", "role"):
        if values := literals(hints(kind).get(name)):
            return name, values
    return None, [kind.__name__]


# For each form, a request with an object in the place of a field.
PLACES = {
    "chat-completions": {
        ("request", "messages"): lambda value: {"messages": [SAY, value]},
        ("request", "tools"): lambda value: {"messages": [SAY], "tools": [value]},
        ("request", "tool_choice"): lambda value: {"messages": [SAY], "tool_choice": value},
        ("message of the user", "content"): lambda value: {"messages": [{"role": "user", "content": [value]}]},
        ("message of the model", "tool_calls"): lambda value: {"messages": [SAY, {"role": "assistant", "tool_calls": [value]}]},
    },
    "responses": {
        ("request", "input"): lambda value: {"input": [SAY, value]},
        ("request", "tools"): lambda value: {"input": [SAY], "tools": [value]},
        ("request", "tool_choice"): lambda value: {"input": [SAY], "tool_choice": value},
        ("message of the user", "content"): lambda value: {"input": [{"role": "user", "content": [value]}]},
        ("message of the model or the system", "content"): lambda value: {"input": [{"role": "assistant", "content": [value]}]},
    },
    "messages": {
        ("request", "messages"): lambda value: {"messages": [SAY, value]},
        ("request", "tools"): lambda value: {"messages": [SAY], "tools": [value]},
        ("request", "tool_choice"): lambda value: {"messages": [SAY], "tool_choice": value},
        ("request", "thinking"): lambda value: {"messages": [SAY], "thinking": value},
        ("request", "mcp_servers"): lambda value: {"messages": [SAY], "mcp_servers": [value]},
        ("message of the user", "content"): lambda value: {"messages": [{"role": "user", "content": [value]}]},
        ("message of the model or the system", "content"): lambda value: {"messages": [SAY, {"role": "system", "content": [value]}]},
        ("tool result block", "content"): lambda value: {
            "messages": [
                SAY,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "x", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [value]}]},
            ],
        },
    },
}
MORE = {"messages": {"max_tokens": 1}}


def requests(form):
    """Returns the requests with each kind of object that is not listed: (object and field, kind, request)."""
    found = {}
    for kind, place in unlisted(form):
        if place not in PLACES.get(form, {}):
            raise LookupError(f"{form}: {kind.__name__} in {place}: name the class in known_fields.FORMS, or the place in kinds.PLACES")
        name, values = names(kind)
        for value in values:
            body = PLACES[form][place]({**sample(kind), **({name: value} if name else {})})
            found.setdefault((" | ".join(place), value), {"model": "text", **MORE.get(form, {}), **body})
    return [(place, value, body) for (place, value), body in found.items()]


def listed(ask):
    """Returns the rows of the list: form, object, field, kind, and why the decoder refuses it. `ask` sends a request of a form, and returns the message of the error."""
    return [f"{form} | {place} | {kind} | {ask(form, body)}" for form in known_fields.FORMS for place, kind, body in requests(form)]


def table(rows):
    """Returns the table of the documentation: kinds that are refused for the same reason are one row."""
    grouped = {}
    for row in rows:
        form, title, field, kind, why = row.split(" | ", 4)
        path, reason = why.removeprefix("`").split("`", 1)
        last = path.rsplit(".", 1)[-1]
        why = reason.strip() if last in ("type", "role") else f"`{last}`{reason}"
        grouped.setdefault((form, title, field, why), []).append(f"`{kind}`")
    lines = [f"| {form} | {title} | `{field}` | {', '.join(kinds)} | {why} |" for (form, title, field, why), kinds in grouped.items()]
    return "\n".join(["| form | object | field | kinds | why |", "|---|---|---|---|---|", *lines]) + "\n"
