"""Labelled traces as HTML, and the pytest plugin."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import flowgate
import pytest
from flowgate.testing import Injection, MockApprover, ScriptedModel

pytest_plugins = ["pytester"]

POLICY = """
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == "user"
require trusted if:
    (call: ToolCall) is tool:pay
require top if:
    (call: ToolCall) is tool:read_page
"""
SCRIPT = '<script>alert("x")</script><img src=x onerror=y>'


AGENT_TESTS = f'POLICY = """{POLICY}"""\n' + '''
import flowgate

def agent(page, model, approver):
    paid = []

    @flowgate.tool(output="untrusted")
    def read_page(url: str) -> str:
        return page

    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    guard = flowgate.Guard(POLICY, [read_page, pay], model=model, approve=approver)
    return guard, paid

def test_this_injection_is_stopped(flowgate_approver, flowgate_obedient_model, flowgate_injection):
    injection = flowgate_injection("pay", to="mallory")
    model = flowgate_obedient_model([("read_page", {"url": "x"}), "Read.", "Done."], [injection])
    guard, paid = agent(injection.text, model, flowgate_approver)
    guard.run("Read x.")
    assert model.obeyed == [injection]
    assert paid == []
    assert flowgate_approver.asked == ["pay"]

def test_the_user_may_pay(flowgate_approver, flowgate_model):
    model = flowgate_model(flowgate.Completion("", [("pay", {"to": "ann"})]), "Done.")
    guard, paid = agent("", model, flowgate_approver)
    guard.run("Pay Ann.")
    assert (paid, flowgate_approver.asked) == (["ann"], [])

def test_that_fails(flowgate_approver, flowgate_obedient_model, flowgate_injection):
    injection = flowgate_injection("pay", to="mallory")
    model = flowgate_obedient_model([("read_page", {"url": "x"}), "Read.", "Done."], [injection])
    guard, paid = agent(injection.text, model, flowgate_approver)
    guard.run("Read x.")
    assert paid == ["mallory"]
'''


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(not name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_what_an_agent_has_read_is_text_in_a_notebook() -> None:
    monitor = flowgate.Monitor(flowgate.Policy(POLICY))
    monitor.user(SCRIPT)
    with monitor.judge("read_page", {SCRIPT: SCRIPT}) as call:
        output = call.output(SCRIPT)
    question = monitor.judge("pay", {"to": SCRIPT})
    for shown in (monitor, output, question):
        page = Tags(shown._repr_html_())
        assert page.tags <= {"style", "div", "table", "tr", "th", "td", "span", "p", "br", "b", "ul", "li"}
    assert any(SCRIPT in text for text in Tags(monitor._repr_html_()).texts)


def test_every_display_shows_labels() -> None:
    trace = flowgate.Trace().user("Hi.").tool_call("pay", {"to": "ann"})
    replay = trace.replay(flowgate.Policy(POLICY))
    assert "permit" in replay._repr_html_()
    guard = flowgate.Guard(POLICY, {"pay": lambda to: "paid"}, model=ScriptedModel(["Hello."]))
    turn = guard.run("Hi.")
    assert "Hello." in turn._repr_html_()
    assert "trusted" in guard._repr_html_()


def test_long_texts_and_many_parts_are_shortened() -> None:
    monitor = flowgate.Monitor(flowgate.Policy(POLICY))
    monitor.user("x" * 100_000)
    assert len(monitor._repr_html_()) < 10_000
    with monitor.judge("read_page") as call:
        call.output(str(list(range(5_000))))
    assert len(monitor._repr_html_()) < 100_000


def test_the_plugin_shows_what_was_asked(pytester) -> None:
    pytester.makepyfile(AGENT_TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*questions that the guard asked*", "pay: *"])


def test_an_injection_is_recognized_where_it_is_quoted() -> None:
    injection = Injection("pay", {"to": 'a "quoted" name'})
    quoted = json.dumps({"page": injection.text})
    for text in (injection.text, quoted, json.dumps({"quotation": quoted})):
        assert injection.is_shown({"messages": [{"role": "tool", "content": text}]}), text
    assert not injection.is_shown({"messages": [{"role": "tool", "content": "[hidden h1]"}]})


def test_a_scripted_model_that_has_no_answer_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="no answer for its request number 2"):
        flowgate.Guard(
            POLICY, {"pay": lambda to: "paid"}, model=ScriptedModel([flowgate.Completion("", [("pay", {"to": "a"})])])
        ).run("Pay.")


def test_a_mock_approver_allows_what_it_is_told() -> None:
    approver = MockApprover().allow("pay")
    question = type("Question", (), {"tool": "pay"})()
    other = type("Question", (), {"tool": "send"})()
    assert (approver(question), approver(other)) == (True, False)
    assert approver.asked == ["pay", "send"]
