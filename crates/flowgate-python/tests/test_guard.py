"""Guarded conversations: what the model is shown, what runs, who is asked, and what errors do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import flowgate
import pytest
from flowgate.testing import Injection, MockApprover, ObedientModel, ScriptedModel, calls_of, text_of_request

POLICY = """
lattice integrity: trusted < untrusted

label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
"""
PAGE = "The bill is 20 dollars. "
INJECTION = Injection("pay", {"amount": 100, "to": "mallory"})


class Bank:
    """The tools of an agent, and what they did."""

    def __init__(self, page: str = PAGE) -> None:
        self.paid: list[tuple[str, int]] = []
        self.notes: list[str] = []

        @flowgate.tool(output="untrusted", requires="top")
        def read_page(url: str) -> str:
            """Read a page."""
            return page

        @flowgate.tool(output="trusted", requires="trusted")
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return "paid"

        @flowgate.tool(output="trusted", requires="trusted", payload=["text"])
        def note(text: str) -> str:
            """Write a note."""
            self.notes.append(text)
            return "noted"

        self.tools = [read_page, pay, note]

    def guard(self, model, **settings) -> flowgate.Guard:
        return flowgate.Guard(POLICY, self.tools, model=model, **settings)


def test_the_model_does_not_see_what_it_may_not_act_on() -> None:
    bank = Bank(PAGE + INJECTION.text)
    model = ScriptedModel([flowgate.Completion("", [("read_page", {"url": "example.org"})]), "There is a bill."])
    turn = bank.guard(model).run("What does example.org say?")
    assert turn.text == "There is a bill."
    assert "[hidden h1]" in text_of_request(model.requests[1])
    assert not any(INJECTION.is_shown(request) for request in model.requests)
    assert turn.usage["hidden"] == 1


def test_an_injection_that_is_seen_needs_a_person() -> None:
    bank = Bank(PAGE + INJECTION.text)
    model = ObedientModel([("read_page", {"url": "example.org"}), "Read.", "Done."], [INJECTION])
    approver = MockApprover()
    turn = bank.guard(model, approve=approver).run("Read example.org.")
    assert model.obeyed == [INJECTION]
    assert (approver.asked, bank.paid) == (["pay"], [])
    assert calls_of(turn, "pay") == [("pay", INJECTION.arguments, "confirm")]
    assert "mallory" in approver.questions[0].arguments["to"]
    assert "untrusted" in approver.questions[0].summary


def test_the_users_own_payment_runs_without_a_question() -> None:
    bank = Bank(PAGE + INJECTION.text)
    approver = MockApprover()
    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("pay", {"to": "ann", "amount": 20})]),
            "Paid.",
        ]
    )
    bank.guard(model, approve=approver).run("Read example.org, and pay Ann 20 dollars.")
    assert (bank.paid, approver.asked) == ([("ann", 20)], [])


def test_an_approved_call_runs_once() -> None:
    bank = Bank(PAGE + INJECTION.text)
    model = ObedientModel([("read_page", {"url": "example.org"}), "Read."], [INJECTION])
    turn = bank.guard(model, approve=lambda question: question.tool.name == "pay").run("Read example.org.")
    assert bank.paid == [("mallory", 100)]
    assert turn.usage["allowed"] == 1


def test_the_questions_of_a_message_are_shown_together() -> None:
    bank = Bank(PAGE)
    approver = MockApprover()
    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("look", {"regions": ["h1"]})]),
            flowgate.Completion("", [("pay", {"to": "a", "amount": 1}, "p1"), ("pay", {"to": "b", "amount": 2}, "p2")]),
            "Neither.",
        ]
    )
    bank.guard(model, approve=approver).run("Read example.org.")
    first = approver.questions[0]
    assert first.times == 1
    assert [(str(tool), arguments["to"]) for tool, arguments, _ in first.upcoming] == [("pay", "b")]
    assert (bank.paid, approver.asked) == ([], ["pay", "pay"])


def test_a_call_without_an_id_gets_one_that_no_other_call_has() -> None:
    cases = [
        ([None, None], ["call_1", "call_2"]),
        (["call_2", None], ["call_2", "call_3"]),
        ([None, "call_1"], ["call_2", "call_1"]),
        (["call_3", None, None], ["call_3", "call_2", "call_4"]),
    ]
    for given, expected in cases:
        calls = [("pay", {}) if id is None else ("pay", {}, id) for id in given]
        assert [id for id, _, _ in flowgate.Completion("", calls).calls] == expected


def test_hidden_text_passes_through_a_slot() -> None:
    bank = Bank("A fine day.")
    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("note", {"text": {"$slot": {"regions": ["h1"]}}})]),
            "Noted.",
        ]
    )
    approver = MockApprover()
    bank.guard(model, approve=approver).run("Note what example.org says.")
    assert (bank.notes, approver.asked) == (["A fine day."], [])
    assert "fine day" not in "".join(map(text_of_request, model.requests))


def test_a_slot_is_filled_by_another_model_without_tools() -> None:
    bank = Bank("A fine day.")
    filler = ScriptedModel(["It is fine."])
    slot = {"$slot": {"regions": ["h1"], "fill": "a summary"}}
    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("note", {"text": slot})]),
            "Noted.",
        ]
    )
    bank.guard(model, filler=filler).run("Note what example.org says.")
    assert bank.notes == ["It is fine."]
    assert "fine day" in text_of_request(filler.requests[0])
    assert not filler.requests[0].get("tools")


def test_look_raises_the_label() -> None:
    bank = Bank()
    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("look", {"regions": ["h1"]})]),
            "The bill is 20 dollars.",
        ]
    )
    guard = bank.guard(model)
    turn = guard.run("What does example.org say?")
    assert PAGE.strip() in text_of_request(model.requests[2])
    assert turn.replies[-1].label == ["untrusted"]
    assert str(guard.reply_label) == "untrusted"
    assert turn.usage["looks"] == 1


def test_asynchronous_models_tools_and_people() -> None:
    bank, paid = Bank(INJECTION.text), []

    @flowgate.tool(output="trusted", requires="trusted")
    async def pay(to: str, amount: int) -> str:
        await asyncio.sleep(0)
        paid.append((to, amount))
        return "paid"

    obedient = ObedientModel([("read_page", {"url": "x"}), "Read."], [INJECTION])

    async def model(request: dict) -> flowgate.Completion:
        await asyncio.sleep(0)
        return obedient(request)

    async def approve(question: flowgate.Approve) -> bool:
        await asyncio.sleep(0)
        return question.arguments == INJECTION.arguments

    guard = flowgate.Guard(POLICY, [bank.tools[0], pay], model=model, approve=approve)
    turn = asyncio.run(guard.arun("Read x."))
    assert (paid, turn.usage["questions"]) == ([("mallory", 100)], 1)


def test_an_asynchronous_function_needs_arun() -> None:
    async def model(request: dict) -> str:
        return "Hello."

    guard = flowgate.Guard(POLICY, model=model)
    with pytest.raises(TypeError, match=r"use `await guard.arun\(...\)`"):
        guard.run("Hello.")
    assert guard.conversation.is_turn_over


def test_a_model_that_fails_ends_the_turn_and_the_guard_goes_on() -> None:
    class Unavailable(Exception):
        pass

    def model(request: dict) -> str:
        raise Unavailable

    guard = Bank().guard(model)
    with pytest.raises(Unavailable):
        guard.run("Hello.")
    assert guard.run("Hello again.", model=ScriptedModel(["Hi."])).text == "Hi."


def test_a_model_that_fails_on_hidden_text_does_not_reveal_it() -> None:
    bank = Bank()

    def fail(request: dict) -> str:
        raise RuntimeError("the text is not acceptable")

    model = ScriptedModel(
        [
            flowgate.Completion("", [("read_page", {"url": "example.org"})]),
            flowgate.Completion("", [("look", {"regions": ["h1"], "then_return": True})]),
            fail,
            "I could not read it.",
        ]
    )
    turn = bank.guard(model).run("What does example.org say?")
    assert turn.text.endswith("I could not read it.")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("Pay mallory"), "the tool raised ValueError"),
        (flowgate.ToolError("no such account"), "no such account"),
    ],
)
def test_a_tool_that_fails(error: Exception, shown: str) -> None:
    @flowgate.tool(output="trusted", requires="trusted")
    def pay(to: str) -> str:
        raise error

    call = flowgate.Completion("", [("pay", {"to": "ann"})])
    guard = flowgate.Guard(POLICY, [pay], model=(model := ScriptedModel([call, "It failed."])))
    guard.run("Pay Ann.")
    # The policy's labels for results do not apply to errors.
    assert shown not in text_of_request(model.requests[1])
    [output] = [event for event in guard.monitor.events if event.kind == "output"]
    assert (output.is_error, output.content, str(output.label)) == (True, shown, "untrusted")

    errors = "label out.content as trusted if:\n    (out: ToolOutput) is tool:pay\n    out.is_error\n"
    model = ScriptedModel([call, "It failed."])
    flowgate.Guard(POLICY + errors, [pay], model=model).run("Pay Ann.")
    assert shown in text_of_request(model.requests[1])
    assert "mallory" not in text_of_request(model.requests[1])


def test_an_approver_that_fails_has_not_approved() -> None:
    bank = Bank(INJECTION.text)

    def approve(question: flowgate.Approve) -> bool:
        raise ConnectionError

    guard = bank.guard(ObedientModel([("read_page", {"url": "x"}), "Read."], [INJECTION]), approve=approve)
    with pytest.raises(ConnectionError):
        guard.run("Read x.")
    assert bank.paid == []


def test_a_decision_that_is_none_decides_nothing() -> None:
    bank = Bank(INJECTION.text)
    guard = bank.guard(ObedientModel([("read_page", {"url": "x"}), "Read."], [INJECTION]), approve=lambda _: None)
    with pytest.raises(ValueError, match="a decision must be True, False"):
        guard.run("Read x.")
    assert bank.paid == []


def test_a_late_decision_is_none() -> None:
    times = iter([0.0, 11.0])
    bank = Bank(INJECTION.text)
    model = ObedientModel([("read_page", {"url": "x"}), "Read."], [INJECTION])
    guard = bank.guard(model, approve=lambda _: True, expires=10.0, clock=lambda: next(times))
    guard.run("Read x.")
    assert bank.paid == []


def test_needs_are_answered_once() -> None:
    bank = Bank()
    conversation = bank.guard(None).conversation
    conversation.user("Pay Ann.")
    first = conversation.need()
    first.accept(flowgate.Completion("", [("pay", {"to": "ann", "amount": 1})]))
    with pytest.raises(flowgate.UsedError):
        first.accept("Again.")
    run = conversation.need()
    assert isinstance(run, flowgate.Run)
    run.output("paid")
    with pytest.raises(flowgate.UsedError, match="no longer waits"):
        run.output("paid again")
    stale = conversation.need()
    conversation.need()
    with pytest.raises(flowgate.UsedError):
        stale.accept("Late.")


def test_a_stale_call_is_not_handed_over() -> None:
    conversation = Bank().guard(None).conversation
    conversation.user("Pay Ann.")
    conversation.need().accept(flowgate.Completion("", [("pay", {"to": "ann", "amount": 1})]))
    stale = conversation.need()
    conversation.need()
    for _ in range(2):
        with pytest.raises(flowgate.UsedError, match="no longer waits"):
            stale.hand_over()


def test_an_unknown_form_is_refused_and_the_answer_can_be_sent() -> None:
    conversation = Bank().guard(None).conversation
    conversation.accept_request({"model": "m", "messages": [{"role": "user", "content": "Hello."}]})
    conversation.need().accept("Hello, too.")
    turn = conversation.need()
    for answer in [conversation.respond, conversation.respond_stream]:
        with pytest.raises(ValueError, match="`api` must be"):
            answer(turn, "morse")
    assert conversation.respond(turn)["choices"][0]["message"]["content"] == "Hello, too."


def question_about_payment() -> tuple[flowgate.Conversation, flowgate.Approve]:
    conversation = Bank().guard(None, method="everything").conversation
    conversation.user("Read x.")
    conversation.need().accept(flowgate.Completion("", [("read_page", {"url": "x"})]))
    conversation.need().output(INJECTION.text)
    conversation.need().accept(flowgate.Completion("", [("pay", INJECTION.arguments)]))
    question = conversation.need()
    assert isinstance(question, flowgate.Approve)
    return conversation, question


def test_only_the_open_question_can_be_postponed() -> None:
    _, question = question_about_payment()
    assert question.postpone().ended == "asked"
    question.decide(False)
    with pytest.raises(flowgate.UsedError, match="no longer waits"):
        question.postpone()
    conversation, stale = question_about_payment()
    conversation.need()
    with pytest.raises(flowgate.UsedError, match="no longer waits"):
        stale.postpone()


def test_answers_of_providers_are_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "ann", "amount": 1}'}}
    openai = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    block = {"type": "tool_use", "id": "c1", "name": "pay", "input": {"to": "ann", "amount": 1}}
    anthropic = {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use", "usage": {}}
    item = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": '{"to": "ann", "amount": 1}'}
    responses = {"status": "completed", "output": [item]}
    for api, answer in [
        ("openai", openai),
        ("openai", {"role": "assistant", "content": "", "tool_calls": [call]}),
        ("anthropic", anthropic),
        ("responses", responses),
    ]:
        bank = Bank()
        bank.guard(ScriptedModel([answer, "Paid."]), api=api).run("Pay Ann 1 dollar.")
        assert bank.paid == [("ann", 1)], answer


def test_requests_have_the_format_of_the_provider() -> None:
    for api, keys in [
        ("openai", {"messages", "tools"}),
        ("responses", {"input", "tools"}),
        ("anthropic", {"messages", "tools", "max_tokens"}),
    ]:
        model = ScriptedModel(["Hi."])
        Bank().guard(model, api=api).run("Hello.")
        assert keys <= model.requests[0].keys(), json.dumps(model.requests[0])
        assert "model" not in model.requests[0]


def test_every_method_has_a_name() -> None:
    names = [name for name, _ in flowgate.methods()]
    assert names[0] == "lowest-first"
    for name in names:
        flowgate.Guard(POLICY, Bank().tools, method=name)
    with pytest.raises(ValueError, match="did you mean `everything`"):
        flowgate.Guard(POLICY, method="Everything")


def test_a_method_in_python() -> None:
    class ShowAll:
        name, doc = "python-show-all", "shows everything and confirms every call that is not harmless"
        shows_everything = True

        @staticmethod
        def confirms(label: list[str], is_harmless: bool) -> bool:
            return not is_harmless

    flowgate.register_method(ShowAll())
    with pytest.raises(ValueError, match="already registered"):
        flowgate.register_method(ShowAll())
    bank = Bank(PAGE)
    approver = MockApprover(True)
    model = ScriptedModel(
        [
            flowgate.Completion("", [("pay", {"to": "ann", "amount": 20})]),
            flowgate.Completion("", [("read_page", {"url": "x"})]),
            "Done.",
        ]
    )
    bank.guard(model, method="python-show-all", approve=approver).run("Pay Ann, then read x.")
    assert PAGE.strip() in text_of_request(model.requests[2])
    assert approver.asked == ["pay"]


def test_a_screener_in_python() -> None:
    class Named:
        name, doc = "python-screener", "asks a model which regions are needed"

        class screener:
            @staticmethod
            def instructions(names: list[str], nonce: str) -> str:
                return f"Which of {', '.join(names)} are needed?"

            @staticmethod
            def parse(text: str) -> list[str]:
                return text.split()

    flowgate.register_method(Named())
    bank = Bank(PAGE)
    screener = ScriptedModel([lambda request: "1" if "REGION" in text_of_request(request) else "none"])
    model = ScriptedModel([flowgate.Completion("", [("read_page", {"url": "x"})]), "Done."])
    bank.guard(model, method="python-screener", screener=screener).run("Read x.")
    assert "are needed?" in text_of_request(screener.requests[0])


def test_tools_change_between_turns() -> None:
    bank = Bank()
    guard = bank.guard(ScriptedModel(["Hi.", "Hi again."]))
    guard.run("Hello.")

    def other(text: str) -> str:
        return text

    guard.run("Hello.", tools=[other])
    assert [str(tool) for tool in guard.tools] == ["other"]
    with pytest.raises(flowgate.FlowgateError, match="changes the policy"):
        guard.run("Hello.", tools=bank.tools)


def test_a_call_of_a_tool_without_an_implementation_is_an_error_for_the_model() -> None:
    policy = POLICY + "require top if:\n    (call: ToolCall) is tool:pay\n"
    guard = flowgate.Guard(policy, {"pay": lambda: "paid"})
    guard.tools = flowgate.Toolset()
    model = ScriptedModel([flowgate.Completion("", [("pay", {})]), "Done."])
    guard.run("Pay.", model=model)
    assert calls_of(guard.run("Again.", model=ScriptedModel(["Done."]))) == []


def test_observers_see_needs() -> None:
    kinds: list[str] = []
    bank = Bank()
    model = ScriptedModel([flowgate.Completion("", [("pay", {"to": "ann", "amount": 1})]), "Paid."])
    bank.guard(model, on_event=lambda kind, _: kinds.append(kind)).run("Pay Ann.")
    assert kinds == ["complete", "run", "complete", "user"]


def test_another_agent_carries_the_label_of_its_caller() -> None:
    guard = Bank().guard(ScriptedModel([flowgate.Completion("", [("pay", {"to": "ann", "amount": 1})]), "Done."]))
    guard.conversation.task("Pay Ann.", "untrusted")
    turn = guard.run()
    assert [outcome for _, _, outcome in calls_of(turn)] != ["permit"]


def test_a_flood_of_questions_gets_refusals() -> None:
    asking = POLICY + '\nask "payments are confirmed" if:\n    (call: ToolCall) is tool:pay\n'

    def asked(answers: list[bool], **limits: int) -> int:
        """Let the model pay five times, and return how many questions are asked."""
        bank = Bank()
        questions: list[flowgate.Approve] = []

        def approve(question: flowgate.Approve) -> bool:
            questions.append(question)
            return answers[len(questions) - 1]

        payments = [flowgate.Completion("", [("pay", {"to": "ann", "amount": number})]) for number in range(6)]
        model = ScriptedModel([*payments[:5], "Done.", payments[5], "Done."])
        guard = flowgate.Guard(asking, bank.tools, model=model, approve=approve, **limits)
        guard.run("Pay Ann.")
        before = len(questions)
        assert len(bank.paid) == sum(answers[:before])
        # A message of the user ends the row of refusals, and leaves the budget used up.
        guard.run("Again.")
        assert len(questions) == before + (0 if before >= limits.get("max_questions", 100) else 1)
        return before

    assert asked([False] * 9, max_refusals_in_row=3) == 3
    assert asked([False, False, True, False, False, True], max_refusals_in_row=3) == 5
    assert asked([True] * 9, max_questions=2) == 2


@pytest.mark.parametrize(
    ("payments", "answers", "asked", "paid"),
    [
        # A refusal covers the equal calls of the message, also if another call stands between them.
        ([["ann", "ann", "ann"]], [False], 1, 0),
        ([["ann", "bob", "ann"]], [False, False], 2, 0),
        ([["ann", "bob", "ann"]], ["deny", True], 2, 1),
        # An approval covers one call, and an answer that is none covers none.
        ([["ann", "ann"]], [True, True], 2, 2),
        ([["ann", "ann"]], [True, False], 2, 1),
        ([["ann", "ann"]], ["unanswered", False], 2, 0),
        # Another message is another question.
        ([["ann", "ann"], ["ann"]], [False, False], 2, 0),
        ([["ann", "ann"], ["ann", "ann"]], [False, True, True], 3, 2),
    ],
)
def test_a_refusal_covers_the_equal_calls_of_a_message(payments: list[list[str]], answers: list[Any], asked: int, paid: int) -> None:
    asking = POLICY + '\nask "payments are confirmed" if:\n    (call: ToolCall) is tool:pay\n'
    bank = Bank()
    questions: list[flowgate.Approve] = []

    def approve(question: flowgate.Approve) -> Any:
        questions.append(question)
        return answers[len(questions) - 1]

    messages = [flowgate.Completion("", [("pay", {"to": to, "amount": 1}) for to in message]) for message in payments]
    flowgate.Guard(asking, bank.tools, model=ScriptedModel([*messages, "Done."]), approve=approve).run("Pay them.")
    assert (len(questions), len(bank.paid)) == (asked, paid)
