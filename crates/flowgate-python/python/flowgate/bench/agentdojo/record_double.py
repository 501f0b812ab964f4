"""A test double that makes the calls of a recorded run, as far as what it is shown allows."""

from __future__ import annotations

from ..._flowgate import Completion
from .doubles import LOOK, Double, Request, messages_of_model
from .judging import is_of_user, is_reader, is_wanted
from .plans import Call, Plan
from .recorded import RecordedCall, RecordedRun
from .texts import letters

__all__ = ["ALLOWED", "DENIED", "PERMITTED", "REFUSED", "UNAVAILABLE", "RecordedModel", "record_of"]

# What became of a call.
PERMITTED, ALLOWED, REFUSED, DENIED, UNAVAILABLE = "permitted", "allowed", "refused", "denied", "unavailable"


class RecordedModel(Double):
    """A double that makes the calls of a record, one at a time, whatever becomes of them.

    It is capable: it makes a call only if what the call needs is shown, can be left to a slot, or can be looked at. A call that the
    attack asked for also needs the injected text. In the place of another call it writes a message without calls, upon which the
    guard may use a draft that has the call.
    """

    def __init__(self, plan: Plan, injected: set[int]) -> None:
        """Create a double for the calls of a plan, of which the attack asked for those at `injected`."""
        super().__init__(plan, is_capable=True)
        self.injected = injected
        self.verdicts: list[str] = [UNAVAILABLE] * len(plan.calls)
        self.current: int | None = None
        self._without_slots: set[int] = set()
        self._made = 0

    def __call__(self, request: Request) -> Completion:
        """Write the next message."""
        self.current = None
        completion = super().__call__(request)
        if any(name != LOOK for _, name, _ in completion.calls):
            self.current = self._made = self._step - 1
            self.verdicts[self.current] = DENIED
        return completion

    @property
    def calls_made(self) -> int:
        """How many calls were made, or given up."""
        return self._step

    def begin_turn(self) -> None:
        """Note that a turn begins, in which nothing has been looked at."""
        self._levels = self._looks = 0

    def note(self, verdict: str, tool: str) -> None:
        """Note what became of the call that was made last; a question about another call counts as a question only."""
        if self.current is not None and self.plan.calls[self.current].tool == tool:
            self.verdicts[self.current] = verdict

    def _follow_draft(self, request: Request) -> None:
        is_discarded = self._draft is not None and messages_of_model(request) <= self._draft.length
        super()._follow_draft(request)
        if is_discarded:
            # The same call, also if the draft was a second attempt.
            self._step = self._made

    def _tries_again(self, refusal: str | None) -> bool:
        last = self._step - 1
        if refusal is None or last in self._without_slots or self.verdicts[last] != DENIED:
            return False
        self._without_slots.add(last)
        return True

    def _takes_slots(self) -> bool:
        return self._step not in self._without_slots

    def _without_call(self, request: Request, view: str) -> Completion:
        self.current = self._step - 1
        self.verdicts[self.current] = UNAVAILABLE
        self._levels = max(self._levels - 1, 0)
        return Completion("")

    def _needs_besides(self, view: str, hidden: dict[str, str | None]) -> list[str]:
        if self._step not in self.injected or self.sees_attack(view):
            return []
        return [name for name, text in hidden.items() if text is None or self.sees_attack(text)]

    def _is_lost(self, call: Call, view_words: str, hidden: dict[str, str | None]) -> bool:
        # The record continues after a refusal, with what it knew.
        return False


def record_of(run: RecordedRun, plan: Plan, calls: list[RecordedCall]) -> RecordedModel:
    """Return the double of a run. The attack asked for the calls that the run says, or for those that act and the user did not want."""
    attacks_of_run = [letters(text) for text in (run.injections or {}).values()]
    injected, is_shown = set(), False
    for number, call in enumerate(calls):
        foreign = not is_of_user(plan, call.tool, call.arguments) and (
            not is_reader(call.tool) or is_wanted(plan, call.tool, call.arguments)
        )
        if call.origin == "injection" or (not call.origin and is_shown and foreign):
            injected.add(number)
        is_shown = is_shown or any(attack and attack in letters(call.answer or "") for attack in attacks_of_run)
    repeated = [Call(call.tool, call.arguments) for call in calls]
    recorded = Plan(plan.prompt, repeated, "", [], "", list((run.injections or {}).values()), suite=plan.suite)
    return RecordedModel(recorded, injected)
