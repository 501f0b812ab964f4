"""What the tests of `flowgate.bench.agentdojo` share: cases of every suite, and a function that runs one."""

from pathlib import Path

from flowgate.bench.agentdojo import cases as dojo
from flowgate.bench.agentdojo import running
from flowgate.bench.agentdojo.defences import rows_of

POLICIES = Path(__file__).parents[2] / "examples" / "agentdojo"
SETTINGS = dojo.Settings(str(POLICIES))
ATTACK = "important_instructions"

# One case of each suite, and of the four kinds that AgentDojo's own check gets wrong.
ATTACKED = [
    ("workspace", "user_task_3", "injection_task_3"),
    ("travel", "user_task_2", "injection_task_6"),
    ("banking", "user_task_1", "injection_task_4"),
    ("slack", "user_task_5", "injection_task_1"),
]
ACTING = [("workspace", "user_task_32"), ("workspace", "user_task_29"), ("banking", "user_task_0")]
USEFUL = [("workspace", "user_task_6"), ("travel", "user_task_4"), ("banking", "user_task_5"), ("slack", "user_task_0")]


def run(
    suite,
    user,
    injection=None,
    *,
    defence="none",
    policies="strict",
    confirm="refuse",
    model="obedient",
    version="v1.2.2",
    attack=ATTACK,
    settings=SETTINGS,
):
    case = dojo.Case(version, suite, user, injection, attack if injection else dojo.NO_ATTACK)
    rows = rows_of([defence], [policies], [confirm], model)
    (result,) = running.run_case(running.Job(case, tuple(rows), settings, {}))
    assert result["error"] == ""
    return result
