"""The dashboard, decoded and encoded again by Grafana's own types, which are generated from the schemas of Grafana."""

import json
import os
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime, UnknownDataquery
from grafana_foundation_sdk.models.dashboard import Dashboard

DASHBOARD = json.loads((Path(os.environ["FLOWGATE_ROOT"]) / "deploy/grafana-dashboard.json").read_text())


def lost(before, after, place="dashboard"):
    """Returns the fields of a value that are missing or different after it was decoded and encoded. Further fields are defaults."""
    if isinstance(before, dict) and isinstance(after, dict):
        missing = [f"{place}.{key}" for key in before if key not in after]
        return missing + [field for key in before if key in after for field in lost(before[key], after[key], f"{place}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [field for index, pair in enumerate(zip(before, after)) for field in lost(*pair, f"{place}[{index}]")]
    return [] if before == after else [place]


def problems(dashboard):
    """Returns what Grafana's types do not know of a dashboard: lost fields, kinds of panels, and queries."""
    register_default_plugins()
    decoded = Dashboard.from_json(dashboard)
    found = lost(dashboard, json.loads(JSONEncoder().encode(decoded)))
    for panel in decoded.panels:
        name = panel.title or panel.id_val
        if panel.type_val != "row" and Runtime().panelcfg_config(panel.type_val) is None:
            found.append(f"{name}: no panel {panel.type_val}")
        # A row has its panels in place of queries.
        targets = getattr(panel, "targets", None) or []
        found.extend(f"{name}: no query" for query in targets if isinstance(query, UnknownDataquery))
    return found


def test_grafana_knows_every_field_of_the_dashboard():
    assert len(DASHBOARD["panels"]) > 20
    assert problems(DASHBOARD) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda panel: panel.update(legned={}), ".legned"),
        (lambda panel: panel["fieldConfig"]["defaults"].update(unitt="s"), ".unitt"),
        (lambda panel: panel["targets"][0].update(expression="up"), ".expression"),
        (lambda panel: panel.update(type="timeserie"), "no panel timeserie"),
        (lambda panel: (panel["targets"][0]["datasource"].update(type="promql"), panel.pop("datasource", None)), "no query"),
    ],
)
def test_what_grafana_does_not_know_is_found(change, expected):
    changed = json.loads(json.dumps(DASHBOARD))
    change(next(panel for panel in changed["panels"] if panel["type"] == "timeseries"))
    found = problems(changed)
    assert any(expected in problem for problem in found), found
