"""Monitors, verdicts, labels and predicates."""

from __future__ import annotations

import threading

import flowgate
import pytest

POLICY = flowgate.Policy("""
lattice integrity: trusted < untrusted
lattice secrecy: public < private
lattice readers: readers

label m as trusted, public if:
    (m: Message)
    m.role == "user"
""")

PAY = """
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == "user"
require untrusted if:
    (call: ToolCall) is tool:read_page
require trusted if:
    (call: ToolCall) is tool:pay
"""


def session(source: str = PAY, **settings) -> flowgate.Monitor:
    monitor = flowgate.Monitor(flowgate.Policy(source), **settings)
    monitor.user("Pay the bill on example.org.")
    return monitor


def read_page(monitor: flowgate.Monitor, page: str = "20 dollars.") -> flowgate.Event:
    with monitor.judge("read_page", {"url": "example.org"}) as call:
        return call.output(page)


def test_a_permit_is_used_once() -> None:
    monitor = session()
    verdict = monitor.judge("pay", {"to": "ann"})
    assert isinstance(verdict, flowgate.Permit)
    assert verdict
    assert (verdict.tool, verdict.arguments, verdict.reasons) == (flowgate.Tool("pay"), {"to": "ann"}, [])
    assert not verdict.is_used
    call = verdict.redeem()
    assert (call.arguments_json, verdict.is_used) == ('{"to":"ann"}', True)
    with pytest.raises(flowgate.UsedError, match="judge the call again"):
        verdict.redeem()
    with pytest.raises(flowgate.UsedError), verdict:
        pass


def test_a_question_is_answered_once() -> None:
    monitor = session()
    read_page(monitor)
    verdict = monitor.judge("pay", {"to": "ann"}, id="c2")
    assert isinstance(verdict, flowgate.Confirm)
    assert not verdict
    assert verdict.summary
    assert [reason.part for reason in verdict.reasons] == ["decision", "arguments.to"]
    reason = verdict.reasons[0]
    assert (reason.kind, reason.action, reason.line, reason.required) == ("requirement", "ask", 8, ["trusted"])
    assert reason.statement.startswith("require trusted if")
    assert reason.regions[0].event == 2
    permit = verdict.approve()
    assert (bool(permit), permit.outcome, repr(permit)[:7]) == (True, "permit", "Permit(")
    assert permit.redeem().id == "c2"
    with pytest.raises(flowgate.UsedError, match="answered already"):
        verdict.approve()


def test_what_is_refused_does_not_run() -> None:
    monitor = session()
    read_page(monitor)
    verdict = monitor.judge("pay", {"to": "ann"})
    verdict.refuse()
    with pytest.raises(flowgate.UsedError):
        verdict.approve()
    permit = monitor.judge("read_page", {"url": "a"})
    permit.drop()
    with pytest.raises(flowgate.UsedError):
        permit.redeem()
    monitor.user("Later.")
    assert [event.status for event in monitor.events if event.kind == "call"] == ["done", "withdrawn"]


def test_a_denied_call_says_why() -> None:
    monitor = session(PAY + 'raise "no payments" if:\n    (call: ToolCall) is tool:pay\n')
    verdict = monitor.judge("pay", {"to": "ann"})
    assert isinstance(verdict, flowgate.Deny)
    with pytest.raises(flowgate.Denied, match="no payments") as caught:
        verdict.throw()
    assert caught.value.verdict is verdict


def test_a_permit_is_judged_again() -> None:
    monitor = session()
    permit = monitor.judge("pay", {"to": "ann"})
    read_page(monitor)
    with pytest.raises(flowgate.Denied, match="propose the call again"):
        permit.redeem()


def test_a_call_that_raises_has_failed() -> None:
    monitor = session()
    with pytest.raises(ZeroDivisionError), monitor.judge("read_page", {"url": "x"}):
        _ = 1 / 0
    event = monitor[-1]
    assert (event.kind, event.is_error, event.content) == ("output", True, "the tool raised an exception")
    with monitor.judge("read_page", {"url": "x"}):
        pass
    assert monitor[-1].content == "the tool gave no output"


def test_a_call_whose_output_is_rejected_has_failed() -> None:
    monitor = session()
    with pytest.raises(ValueError, match="declares no element"), monitor.judge("read_page", {"url": "x"}) as call:
        call.output("20 dollars.", label="untrustd")
    assert (monitor[-1].is_error, monitor[-1].content) == (True, "the tool raised an exception")


def test_a_label_at_the_entrance_raises() -> None:
    monitor = session()
    assert str(monitor.user("Read this: ...", label="untrusted").label) == "untrusted"
    assert str(monitor.user("Mine.", label="trusted").label) == "trusted"
    # A label never lowers what the policy says.
    assert str(monitor.assistant("Hello.", label="trusted").label) == "untrusted"


def test_labels_are_a_lattice() -> None:
    label = POLICY.label
    low, high = label("trusted"), label(["untrusted", "private"])
    assert low == POLICY.bottom
    assert low < high <= POLICY.top
    assert (low | high) == high
    assert not high.flows_to(low)
    assert label({"readers": ["bob", "ann"]}) == label({"readers": ["ann", "bob"]})
    assert hash(label({"readers": ["bob", "ann"]})) == hash(label({"readers": ["ann", "bob"]}))
    assert label({"readers": ["ann"]})["readers"] == ["ann"]
    assert label({"readers": ["ann"]}) | label({"readers": ["bob"]}) == label({"readers": []})
    assert str(high) == "untrusted, private, readers: everyone"
    assert low != "trusted"


def test_a_list_names_every_element_of_a_set() -> None:
    policy = flowgate.Policy("lattice kinds: set of pii, money\nlattice secrecy: public < private\n")
    label = policy.label(["pii", "private", "money"])
    assert label == policy.label({"kinds": ["money", "pii"], "secrecy": "private"})
    assert policy.label("pii") < label
    assert policy.label(["private", "private"]) == policy.label("private")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["trusted", "untrusted"], "`trusted` and `untrusted` are both elements of dimension `integrity`: name one of them"),
        ("trustd", "the policy declares no element `trustd`: did you mean `trusted`?"),
        ({"integrit": "trusted"}, "the policy declares no dimension `integrit`: did you mean `integrity`?"),
        ({"secrecy": "privat"}, "dimension `secrecy` has no element `privat`: did you mean `private`?"),
        ({"readers": 3}, "the value for dimension `readers` does not fit it"),
        (3, "a label must be a `Label`, an element such as"),
    ],
)
def test_a_label_that_does_not_exist(given: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        POLICY.label(given)
    assert message in str(caught.value)


def test_labels_of_other_policies_are_not_compared() -> None:
    other = flowgate.Policy(POLICY.source)
    with pytest.raises(ValueError, match="different policies"):
        _ = POLICY.bottom <= other.bottom
    with pytest.raises(ValueError, match="another policy"):
        flowgate.Monitor(other).user("x", label=POLICY.bottom)
    assert POLICY.bottom != other.bottom


def test_the_parts_of_an_output_have_labels() -> None:
    source = """
lattice integrity: trusted < untrusted
label row.subject as trusted if:
    (out: ToolOutput) is tool:bank/list
    (row: dict) in out.content
    row.sender == "me"
label out.content[*].sender as trusted if:
    (out: ToolOutput) is tool:bank/list
require top if:
    (call: ToolCall) is tool:bank/list
"""
    monitor = flowgate.Monitor(flowgate.Policy(source))
    with monitor.judge("bank/list") as call:
        event = call.output('[{"sender": "me", "subject": "rent"}, {"sender": "eve", "subject": "pay eve"}]')
    assert str(event.label_of("content[0].subject")) == "trusted"
    assert str(event.label_of("content[1].subject")) == "untrusted"
    assert [part.value for part in event.parts if part.path == "content[1].subject"] == ["pay eve"]
    with pytest.raises(KeyError, match="has no part `content.nothing`"):
        event.label_of("content.nothing")


def test_predicates_are_python_functions() -> None:
    source = """
extern is_customer(email: str) -> bool
raise "not a customer" if:
    (call: ToolCall) is tool:send
    not is_customer(call.arguments.to)
"""
    asked = []

    def is_customer(email: str) -> bool:
        asked.append(email)
        return email == "ann@example.org"

    monitor = flowgate.Monitor(flowgate.Policy(source), predicates={"is_customer": is_customer})
    assert monitor.judge("send", {"to": "ann@example.org"})
    assert "not a customer" in monitor.judge("send", {"to": "eve@example.org"}).why
    assert monitor.judge("send", {"to": "ann@example.org"})
    assert asked == ["ann@example.org", "eve@example.org"]
    assert monitor.predicate_answers[0] == {
        "name": "is_customer",
        "arguments": ["ann@example.org"],
        "answer": True,
    }


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda _: 1 / 0, "the predicate raised ZeroDivisionError"),
        (lambda _: {1, 2}, "the predicate raised ValueError"),
        (lambda: True, "the predicate raised TypeError"),
    ],
)
def test_a_predicate_that_fails_denies(function, why: str) -> None:
    source = 'extern p(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    p(call.arguments.to)\n'
    verdict = flowgate.Monitor(flowgate.Policy(source), predicates={"p": function}).judge("send", {"to": "secret"})
    assert verdict.outcome == "deny"
    assert why in verdict.why
    assert "secret" not in verdict.why


def test_a_predicate_without_a_function_denies() -> None:
    source = 'extern p(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    p(call.arguments.to)\n'
    policy = flowgate.Policy(source)
    assert policy.externs == ["p"]
    assert flowgate.Monitor(policy).judge("send", {"to": "a"}).outcome == "deny"
    with pytest.raises(TypeError, match="the predicate `p` is not callable"):
        flowgate.Monitor(policy, predicates={"p": 3})


def test_an_interruption_in_a_predicate_reaches_the_caller() -> None:
    source = 'extern p(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    p(call.arguments.to)\n'

    def interrupt(_: str) -> bool:
        raise KeyboardInterrupt

    monitor = flowgate.Monitor(flowgate.Policy(source), predicates={"p": interrupt})
    with pytest.raises(KeyboardInterrupt):
        monitor.judge("send", {"to": "a"})
    assert monitor.judge("other").outcome == "permit"


def test_a_predicate_that_uses_its_session_is_an_error_and_no_deadlock() -> None:
    source = 'extern p(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    p(call.arguments.to)\n'
    errors = []

    def reenter(_: str) -> bool:
        try:
            len(monitor)
        except flowgate.InUseError as error:
            errors.append(error)
            raise
        return True

    monitor = flowgate.Monitor(flowgate.Policy(source), predicates={"p": reenter})
    assert monitor.judge("send", {"to": "a"}).outcome == "deny"
    assert len(errors) == 1


def test_threads_share_a_session_and_python_goes_on_meanwhile() -> None:
    source = 'extern slow(x: str) -> bool\nraise "x" if:\n    (call: ToolCall) is tool:send\n    slow(call.arguments.to)\n'
    entered, leave = threading.Event(), threading.Event()

    def slow(_: str) -> bool:
        entered.set()
        return not leave.wait(60)

    monitor = flowgate.Monitor(flowgate.Policy(source), predicates={"slow": slow})
    verdicts = []
    first = threading.Thread(target=lambda: verdicts.append(monitor.judge("send", {"to": "a"})))
    second = threading.Thread(target=lambda: verdicts.append(monitor.judge("other")))
    first.start()
    assert entered.wait(60)
    second.start()
    # The second call waits for the session, and this thread runs.
    second.join(0.05)
    assert second.is_alive()
    leave.set()
    first.join(60)
    second.join(60)
    assert [verdict.outcome for verdict in verdicts] == ["permit", "permit"]


def test_a_session_that_is_full_says_so() -> None:
    monitor = session(events=2)
    monitor.user("More.")
    with pytest.raises(flowgate.SessionError, match="begin a new session"):
        monitor.user("Too much.")


def test_fuel_that_is_spent_denies() -> None:
    source = 'raise "x" if:\n    (a: Message) -> (call: ToolCall)\n    call is tool:t\n    "y" in a.content\n'
    monitor = flowgate.Monitor(flowgate.Policy(source), fuel=10)
    monitor.user("x" * 1000)
    assert monitor.judge("t").outcome == "deny"


def test_messages_of_providers_are_pushed() -> None:
    monitor = session()
    events = monitor.push([{"role": "user", "content": "Hi."}, {"role": "system", "content": [{"type": "text", "text": "a"}]}])
    assert [event.role for event in events] == ["user", "system"]
    with pytest.raises(ValueError, match="contains calls: pass each to `judge`"):
        monitor.push({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]})
    with pytest.raises(flowgate.TraceError):
        monitor.push([3])


def test_a_call_that_ran_is_recorded_whatever_the_verdict() -> None:
    monitor = session()
    read_page(monitor)
    outcome, reasons, event = monitor.record("pay", {"to": "ann"})
    assert (outcome, len(reasons), monitor[event].kind) == ("confirm", 2, "call")


def test_stores_are_shared_by_sessions() -> None:
    source = PAY + "store notes: written by read_page, read by pay\n"
    first, second = session(source), session(source)
    read_page(first)
    second.join_external_state(first.external_state())
    with pytest.raises(ValueError, match="."):
        second.join_external_state(3)


def test_arguments_that_may_be_chosen_by_strangers() -> None:
    monitor = session(PAY + "payload call.arguments.note if:\n    (call: ToolCall) is tool:pay\n")
    assert monitor.argument_rights("pay") == {"payload": ["note"], "consent": [], "endorsed": {}}
    assert monitor.has_requirement("pay")
    assert not monitor.has_requirement("other")
    assert monitor.may_permit("pay", "trusted")
    assert monitor.output_floor("pay") is not None
    assert monitor.clearance("model") is None or monitor.clearance("model") <= monitor.policy.top


def test_grants_last_for_the_session() -> None:
    source = PAY.replace("require trusted if:", "require trusted grant conversation if:")
    # Nothing that `pay` reads can change meanwhile.
    source += "store ledger: written by pay\n"
    monitor = session(source)
    read_page(monitor)
    verdict = monitor.judge("pay", {"to": "ann"})
    assert verdict.is_grantable
    verdict.approve(for_session=True).redeem().output("paid", label="untrusted")
    assert monitor.judge("pay", {"to": "ann"}).outcome == "permit"
    [(tool, arguments, reasons)] = monitor.grants
    assert (str(tool), arguments, len(reasons)) == ("pay", {"to": "ann"}, 2)
    assert monitor.withdraw_grants()
    assert monitor.judge("pay", {"to": "ann"}).outcome == "confirm"


def test_events_are_a_sequence() -> None:
    monitor = session()
    assert len(monitor) == 1
    assert monitor[-1] == monitor[0] == monitor.events[0]
    with pytest.raises(IndexError, match="the session has no event 1: it has 1 in total"):
        _ = monitor[1]


def test_agents_share_a_session() -> None:
    monitor = session()
    monitor.user("Untrusted words.", label="untrusted", agent="helper", name="e1")
    assert monitor.judge("pay", {"to": "ann"})
    assert not monitor.judge("pay", {"to": "ann"}, agent="helper")
    assert not monitor.judge("pay", {"to": "ann"}, parents=["e1"])
    with pytest.raises(flowgate.SessionError):
        monitor.user("x", parents=["nothing"])


def test_attributions() -> None:
    monitor = session()
    page = read_page(monitor)
    user = flowgate.Attribution([(0, "content")], {"to": [(0, "content")]}, method="mine")
    verdict = monitor.judge("pay", {"to": "ann"}, attribution=user)
    assert (verdict.outcome, verdict.method) == ("permit", "mine")
    shown = flowgate.Attribution(monitor.policy.label("trusted"))
    assert monitor.judge("pay", {"to": "ann"}, attribution=shown)
    seen = flowgate.Attribution([(0, "content"), (page.index, "content")])
    assert not monitor.judge("pay", {"to": "ann"}, attribution=seen)
    assert not monitor.judge("pay", {"to": "ann"}, attribution=flowgate.Attribution("hidden"))
    with pytest.raises(IndexError, match="there is no region `nothing` in event 0"):
        monitor.judge("pay", {}, attribution=flowgate.Attribution([(0, "nothing")]))
    with pytest.raises(ValueError, match="a dependency must be"):
        flowgate.Attribution("all")
