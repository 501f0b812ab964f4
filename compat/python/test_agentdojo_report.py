"""The report of `flowgate.bench.agentdojo`: costs, the overview of the cases, and the plots."""

import json
import re
import shlex
from dataclasses import asdict

import pytest
import recorded_rows
from agentdojo_cases import dojo, run

import flowgate
from flowgate.bench.agentdojo import cli, figures
from flowgate.bench.agentdojo.commands import commands_of
from flowgate.bench.agentdojo.defences import rows_of
from flowgate.bench.agentdojo.page import page
from flowgate.bench.agentdojo.tables import tables


@pytest.fixture(scope="module")
def results():
    rows = [("none", "strict"), ("lowest-first", "strict")]
    found = [run("banking", "user_task_5", defence=defence, policies=policies) for defence, policies in rows]
    found += [run("banking", "user_task_5", "injection_task_4", defence=defence, policies=policies) for defence, policies in rows]
    found += [run("slack", "user_task_0", "injection_task_1", defence=defence, policies=policies) for defence, policies in rows]
    return found


@pytest.fixture(scope="module")
def measured_model(results):
    """The same results as if a model had given them, with known tokens."""
    return [{**one, "model": "a-model", "is_double": False, "input_tokens": 2000, "output_tokens": 500, "seconds": 1.5} for one in results]


def test_costs_have_the_form_of_table_four(measured_model):
    prices = {"a-model": (2.5, 10.0)}
    ((title, rows),) = figures.cost_rows(figures.figures_of(measured_model), prices)
    assert title == "v1.2.2, model a-model"
    assert [row[:4] for row in rows] == [
        ["lowest-first, strict (refuse)", "0.010000", "1.50", "2500.00"],
        ["none (refuse)", "0.010000", "1.50", "2500.00"],
    ]
    ((_, unpriced),) = figures.cost_rows(figures.figures_of(measured_model), {})
    assert {row[1] for row in unpriced} == {""}


def test_a_doubles_tokens_are_estimated(results):
    assert all(one["tokens_are_estimated"] and one["input_tokens"] > 100 for one in results)
    ((title, _),) = figures.cost_rows(figures.figures_of(results), {})
    assert "tokens are estimated" in title


def test_the_overview_has_the_form_of_table_one(results):
    ((version, rows),) = figures.overview_rows(results)
    assert version == "v1.2.2"
    assert [row[:4] for row in rows] == [["banking", "1", "1", "11"], ["slack", "1", "1", "11"]]
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d", row[5]) for row in rows)


def test_the_plots_have_a_panel_for_each_suite(results):
    text = page(results)
    for panel in ("banking", "slack", "all, weighted by cases"):
        assert f'font-weight="600">{panel}</text>' in text
    assert text.count("utility under attack over attacks that fail") == 1
    assert text.count('aria-label="utility without attack"') == 1
    # Two rows in three panels.
    assert text.count("<circle") == 6
    assert "NaN" not in text
    assert "<script" not in text


@pytest.mark.parametrize("text", ["", "[]", '{"m": 3}', '{"m": {"input": "x", "output": 1}}', '{"m": {"input": 1}}'])
def test_a_table_of_prices_has_one_form(text, tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(flowgate.FlowgateError, match="no table of prices") as error:
        figures.read_prices(path)
    assert '{"MODEL": {"input": 2.5, "output": 10}}' in str(error.value)
    path.write_text(json.dumps({"m": {"input": 1, "output": 2}}))
    assert figures.read_prices(path) == {"m": (1.0, 2.0)}


def test_the_summary_has_a_line_for_each_row(results):
    manifest, *lines = figures.summary([{**one, "data": {"agentdojo": "1"}} for one in results])
    rows = [line for line in lines if line["type"] == "row"]
    assert (manifest["type"], manifest["seeds"], manifest["data"]) == ("manifest", [0], [{"agentdojo": "1"}])
    assert [(row["defence"], row["model"], row["is_double"]) for row in rows] == [
        ("lowest-first, strict", "obedient", True),
        ("none", "obedient", True),
    ]
    assert rows[1]["under_attack"]["cases"] == 2
    assert rows[1]["under_attack"]["raw"] == 2
    assert rows[0]["under_attack"]["corrected"] == 0
    assert "seconds" not in rows[0]["under_attack"]


def test_a_utility_that_an_attack_changes_is_listed_with_its_reason():
    """The name of a channel that the user means is an injection: no guard can let the task be done as before."""
    row = {"defence": "lowest-first", "model": "capable", "policies": "typed"}
    found = [run("slack", "user_task_7", **row), run("slack", "user_task_7", "injection_task_1", **row)]
    assert [one["utility"] for one in found] == [True, False]
    ((*_, reason, number, cases),) = figures.differences(found)
    assert (reason, number) == ("the values of the user's own calls contain the injection", 1)
    assert cases == ["slack user_task_7 injection_task_1 (important_instructions)"]
    assert "Where the utility under attack differs" in page(found)
    assert figures.differences(found[:1]) == []


def test_a_detector_that_costs_utility_is_the_reason():
    found = [run("banking", "user_task_0", injection, defence="detector", model="capable") for injection in (None, "injection_task_0")]
    assert [one["utility"] for one in found] == [True, False]
    ((*_, reason, number, _),) = figures.differences(found)
    assert (reason, number) == ("the defence left out the outputs with the injection", 1)


@pytest.mark.parametrize(
    ("suite", "user", "tool", "is_asked", "reason"),
    [
        (
            "workspace",
            "user_task_6",
            "create_calendar_event",
            True,
            "a person was asked about the user's own call of create_calendar_event, and not without the attack",
        ),
        (
            "banking",
            "user_task_14",
            "update_password",
            False,
            "the user's own call of update_password did not run, and ran without the attack",
        ),
    ],
)
def test_a_call_of_the_user_that_an_attack_stops_is_the_reason(suite, user, tool, is_asked, reason):
    """Under provenance, the double obeys the injection first, and the refused call costs the user's own calls nothing."""
    row = {"defence": "provenance", "model": "capable"}
    alone, attacked = (run(suite, user, injection, **row) for injection in (None, "injection_task_0"))
    assert attacked["questions"] > alone["questions"]
    assert [(one["utility"], one["asked_own"], one["own_ran"]) for one in (alone, attacked)] == [(True, [], alone["own_ran"])] * 2
    assert tool in alone["own_ran"]
    assert figures.differences([alone, attacked]) == []
    # As if the attack had cost the user's own call.
    own_ran = [one for one in alone["own_ran"] if one != tool]
    stopped = {**attacked, "utility": False, "asked_own": [tool] if is_asked else [], "own_ran": own_ran}
    ((*_, why, number, _),) = figures.differences([alone, stopped])
    assert (why, number) == (reason, 1)


def test_rows_are_marked_with_the_unsafe_endorsements_of_their_policies():
    row = {"defence": "lowest-first", "model": "capable"}
    found = [run(suite, "user_task_0", **row, policies=kind) for suite in ("banking", "workspace") for kind in ("strict", "typed")]
    lines = [line for line in figures.summary(found) if line["type"] == "row"]
    assert [(line["defence"], line["unsafe_endorsements"]) for line in lines] == [("lowest-first, strict", 0), ("lowest-first, typed", 3)]
    for text in (tables(found), page(found)):
        assert "lowest-first, typed (3 unsafe)" in text
        assert re.search(r"lowest-first, strict \(\d", text) is None


def test_tasks_that_are_done_without_a_question_are_counted():
    row = {"defence": "confirm-every-call", "confirm": "oracle"}
    asked, unasked = run("banking", "user_task_5", **row), run("banking", "user_task_5", "injection_task_4", defence="none")
    total = figures.Total()
    for one in (asked, unasked, {**unasked, "utility": False}):
        total.add(one)
    assert (total.useful, total.unasked, total.useful_unasked) == (2, 2, 1)
    found = [asked, run("banking", "user_task_5", defence="none")]
    lines = [line for line in figures.summary(found) if line["type"] == "row"]
    assert [(line["defence"], line["without_attack"]["useful"], line["without_attack"]["useful_unasked"]) for line in lines] == [
        ("confirm-every-call", 1, 0),
        ("none", 1, 1),
    ]
    column = figures.COLUMNS.index("useful unasked")
    assert [figures.cells(one, {})[column] for one in figures.figures_of(found) if one.suite == "all"] == ["0/1", "1/1"]
    text = tables(found)
    assert "| confirm-every-call | oracle | 1/1 |  |  |  |  |  |  | " in text
    assert "| useful unasked |" in text


def test_the_summary_has_every_corrected_case_and_every_difference():
    row = {"defence": "lowest-first", "model": "capable", "policies": "typed"}
    found = [run("slack", "user_task_7", **row), run("slack", "user_task_7", "injection_task_1", **row)]
    found.append(run("workspace", "user_task_14", "injection_task_0"))
    lines = figures.summary(found)
    (corrected,) = [line for line in lines if line["type"] == "correction"]
    (differing,) = [line for line in lines if line["type"] == "difference"]
    assert (corrected["user_tasks"], corrected["attack_raw"], corrected["attack_corrected"]) == (["user_task_14"], False, True)
    assert corrected["reason"] == found[2]["reason"] != ""
    assert (differing["defence"], differing["injection_task"], differing["utility"]) == ("lowest-first, typed", "injection_task_1", False)
    assert differing["reason"] == "the values of the user's own calls contain the injection"
    text = tables(found)
    assert f"| `workspace`, `injection_task_0` | 1 | 14 | {corrected['reason']} |" in text
    assert f"| `slack`, `injection_task_1` | 1 | 7 | {differing['reason']} |" in text


def test_results_of_both_forms_are_compared(results):
    through = [{**one, "defence": "gateway-lowest-first"} for one in results if one["defence"] == "lowest-first"]
    through[0] = {**through[0], "utility": not through[0]["utility"]}
    found = figures.pairs([*results, *through])
    assert [(one["attack"], one["pairs"], one["differing"]) for one in found] == [
        ("important_instructions", 2, {}),
        ("none", 1, {"utility": 1}),
    ]
    assert "what differs: utility in 1" in tables([*results, *through])
    assert figures.pairs(through) == []


def test_repeated_rows_are_compared_with_recorded_ones(results):
    recorded = figures.summary(results)
    assert recorded_rows.differences(recorded, recorded) == []
    row = next(line for line in recorded if line["type"] == "row" and line["under_attack"])
    name = f"{', '.join(row[name] for name in recorded_rows.KEY)}, under attack"
    useful = row["under_attack"]["useful"]
    changed = [{**row, "under_attack": {**row["under_attack"], "useful": useful + 1}}]
    assert recorded_rows.differences(changed, recorded) == [f"{name}: useful is {useful + 1}, recorded {useful}"]
    # Tokens change with every word of a prompt.
    reworded = [{**row, "under_attack": {**row["under_attack"], "input_tokens": 1, "output_tokens": 2}}]
    assert recorded_rows.differences(reworded, recorded) == []
    # What was not measured is not compared; what was not recorded is said.
    assert recorded_rows.differences([{**row, "under_attack": None}], recorded) == []
    assert f"{name}: measured, but not recorded" in recorded_rows.differences([row], [])


# What a report says that it was measured by


def measured_by(*arguments):
    """The results that a command would have, without their verdicts."""
    chosen = cli.parser().parse_args(["run", *arguments])
    rows = [row for model in chosen.model for row in rows_of(chosen.defence, chosen.policies, chosen.confirm, model)]
    return [
        {**asdict(case), **asdict(row), "seed": chosen.seed, "base_url": chosen.base_url if row.model == "a-model" else ""}
        for version in chosen.version
        for attack in chosen.attack
        for case in dojo.cases(version, tuple(chosen.suite or dojo.SUITES), attack, chosen.sample)
        for row in rows
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--defence", "none"],
        ["--model", "capable", "--defence", "none", "lowest-first", "confirm-every-call", "--policies", "strict", "typed"],
        ["--version", "v1.1.2", "v1.2.2", "--attack", "none", "dos", "direct", "--confirm", "refuse", "oracle", "--defence", "provenance"],
        ["--model", "capable", "--sample", "20", "--suite", "slack", "banking"],
        ["--model", "capable", "--gateway", "PATH", "--defence", "gateway-lowest-first", "lowest-first", "--seed", "7"],
        ["--model", "a-model", "--base-url", "http://127.0.0.1:1/v1", "--defence", "none", "--attack", "none"],
    ],
)
def test_the_commands_of_results_measure_them(arguments):
    results = measured_by(*arguments)
    commands = commands_of(results)
    assert len(commands) <= 3
    again = [one for command in commands for one in measured_by(*shlex.split(command)[1:])]
    key = lambda one: sorted((name, str(value)) for name, value in one.items())  # noqa: E731 - for two sorts
    assert sorted(again, key=key) == sorted(results, key=key)


def test_a_part_of_the_cases_is_said_to_be_one():
    results = measured_by("--model", "capable", "--defence", "none", "--attack", "none")
    assert commands_of(results[:-1]) == ["run --version v1.2.2 --attack none --model capable --defence none  # 96 of 97 cases"]
    assert commands_of(results) == ["run --version v1.2.2 --attack none --model capable --defence none"]


def test_a_report_writes_its_tables(results, tmp_path, capsys):
    out, path, jsonl = tmp_path / "r.jsonl", tmp_path / "tables.md", tmp_path / "s.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in results))
    assert cli.main(["report", "--out", str(out), "--tables", str(path), "--jsonl", str(jsonl)]) == 0
    assert path.read_text() == tables(results)
    assert "measured by: run --version v1.2.2" in capsys.readouterr().out
    manifest = json.loads(jsonl.read_text().splitlines()[0])
    assert f"$ python -m flowgate.bench.agentdojo {manifest['commands'][0]}" in path.read_text()
