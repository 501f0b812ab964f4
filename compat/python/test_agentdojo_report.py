"""The report of `flowgate.bench.agentdojo`: costs, the overview of the cases, and the plots."""

import json
import re

import pytest
from agentdojo_cases import run

import flowgate
from flowgate.bench.agentdojo import figures
from flowgate.bench.agentdojo.page import page


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
    manifest, *rows = figures.summary([{**one, "data": {"agentdojo": "1"}} for one in results])
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
