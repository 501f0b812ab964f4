"""The decoders refuse each kind of tool, item, block and part of the official clients that the tables of fields do not list."""

import json
import os
import re
import urllib.error
import urllib.request
from typing import Literal, Required, TypedDict, Union

import pytest

import kinds
import known_fields

BASE = os.environ["FLOWGATE_DOUBLE"]
UPDATE = "UPDATE_GOLDEN" in os.environ
NEXT = "; UPDATE_GOLDEN=1 compat/clients/run writes the list anew: read its difference"
PATHS = {"chat-completions": "chat/completions", "responses": "responses", "messages": "messages"}
BEGIN, END = "<!-- kinds that are refused -->\n", "<!-- end of the kinds -->"


def ask(form, body):
    """Returns the message with which the decoder refuses a request."""
    request = urllib.request.Request(f"{BASE}/v1/{PATHS[form]}", json.dumps(body).encode(), {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400
    return json.load(refused.value)["error"]["message"]


@pytest.fixture(scope="module")
def rows():
    return kinds.listed(ask)


def test_each_kind_is_refused(rows):
    """The message names the field. What is accepted instead is either a request of the double's scenario or another one."""
    assert len(rows) > 90
    for row in rows:
        *_, why = row.split(" | ", 4)
        is_named = re.match(r"`(messages|input|tools|tool_choice|thinking|mcp_servers)\b[^`]*` is ", why)
        assert is_named, f"{row}: the decoder does not refuse it. Name its class in known_fields.FORMS, and its fields in the file of the form"


def test_the_list_is_that_of_the_installed_clients(rows):
    text = "".join(f"{row}\n" for row in rows)
    if UPDATE:
        kinds.LIST.write_text(text)
    assert kinds.LIST.read_text() == text, f"the kinds differ{NEXT}"


def test_the_documentation_lists_the_kinds(rows):
    before, rest = kinds.DOCUMENTATION.read_text().split(BEGIN)
    kept, after = rest.split(END)
    if UPDATE:
        kept = kinds.table(rows)
        kinds.DOCUMENTATION.write_text(f"{before}{BEGIN}{kept}{END}{after}")
    assert kept == kinds.table(rows), f"docs/wire-forms.md differs{NEXT}"


@pytest.mark.parametrize("form", known_fields.FORMS)
def test_each_field_of_the_clients_has_an_outcome(form):
    outcomes = kinds.rules(form)
    for title, classes in known_fields.FORMS[form].items():
        missing = [field for field in known_fields.fields(classes) if (title, field) not in outcomes]
        assert not missing, f"{form}, {title}: the decoder refuses {missing} as unknown; give each a rule in the file of the form"


def test_a_new_kind_is_noticed(monkeypatch):
    """A class that no table names, in a place that requests have, is found and asked for."""
    New = TypedDict("New", {"type": Required[Literal["new_tool"]], "text": Required[str]})
    usual = kinds.hints

    def hints(kind):
        return {name: Union[hint, New] if name == "output" else hint for name, hint in usual(kind).items()}

    monkeypatch.setattr(kinds, "hints", hints)
    with pytest.raises(LookupError, match="New in .'output of a call', 'output'.: name the class in"):
        kinds.requests("responses")
    monkeypatch.setattr(kinds, "hints", lambda kind: {name: Union[hint, New] if name == "tools" else hint for name, hint in usual(kind).items()})
    assert any("new_tool" in row for row in kinds.requests("responses"))
