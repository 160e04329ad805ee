"""The dashboards: as committed, on the layer only, and with series for each query on a fleet with faults."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.monitoring import layer
from docs.generator.dashboards import BOARDS, FOLDER, board_text
from roles.grafana.role import SOURCE
from tests.testlab.metric_faults import LENGTH, ONSET
from tests.testlab.raw_metrics import Machine, changed
from tests.unit.test_monitoring_rules import RAW, WORLDS, fleet, run_rules

NAMES = {f"bedplate:{record.name}" for record in layer.RECORDS} | {"ALERTS"}
# Of a run on a hot GPU.
PERSON, RUN = "throttled-by-heat", "throttled-by-heat-1128-brave-otter"
CHOICES = {"$person": PERSON, "$run": RUN, "$place": ".*", "$group": ".*"}
# Machines without a group, and GPUs that nobody has, are shown with an empty name.
OPTIONAL = {"group", "person"}


def targets(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the title of the panel and each query of a committed dashboard."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    for panel in document["panels"]:
        for target in panel["targets"]:
            yield f"{name}: {panel['title']}", target


def chosen(expr: str) -> str:
    """Return a query with choices in place of variables."""
    for variable, choice in CHOICES.items():
        expr = expr.replace(variable, choice)
    return expr


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_as_the_code_says(name: str) -> None:
    """`make docs` writes them; a change by hand would be lost."""
    assert (FOLDER / f"{name}.json").read_text() == board_text(name, BOARDS[name])


def test_no_other_dashboard_is_provisioned() -> None:
    """One that the code has no more would stay on each hub."""
    assert {path.stem for path in FOLDER.iterdir()} == set(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_reads_the_layer(name: str) -> None:
    """And series that it has, from the data source that the role provisions; nobody can save it."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    exprs = [target["expr"] for _, target in targets(name)]

    assert {found for expr in exprs for found in re.findall(r"ALERTS|\w+:\w+", expr)} <= NAMES
    assert [expr for expr in exprs if RAW.search(expr)] == []
    assert set(re.findall(r'"uid": "(\w+)"', json.dumps(document["panels"]))) == {SOURCE}
    assert not document["editable"]


@pytest.mark.parametrize("name", BOARDS)
def test_choices_of_a_dashboard_are_used_and_exist(name: str) -> None:
    """A variable that no query has would do nothing."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    variables = {variable["name"] for variable in document["templating"].get("list", [])}

    assert variables == {found for _, target in targets(name) for found in re.findall(r"\$(\w+)", target["expr"])}
    assert variables == set(BOARDS[name].variables)
    assert {f"bedplate:{series}" for series in BOARDS[name].variables.values()} <= NAMES


def query_checks() -> Iterator[dict[str, Any]]:
    """Yield a check of each query: it has series, and each has the labels that its legend names, with a value."""
    for name in BOARDS:
        for _, target in targets(name):
            expr, labels = chosen(target["expr"]), set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - OPTIONAL
            for label in labels:
                expr = f'label_replace({expr}, "has_{label}", "yes", "{label}", ".+")'
            marks = ", ".join(f"has_{label}" for label in labels)
            # A new error is one of the last ten minutes; a GPU is stuck after ten.
            minute = ONSET + (5 if "xid_new" in expr else 12)
            named = ",".join(f'has_{label}="yes"' for label in sorted(labels))
            yield {
                "expr": f"count by ({marks}) ({expr}) > bool 0",
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f"{{{named}}}", "value": 1}],
            }


def entries() -> list[Any]:
    """Return the series of the fleet with each fault of the catalogue, and of a whole machine of the run."""
    own = Machine("three", PERSON, gpus=2, group="train", person=PERSON, run=RUN, length=LENGTH)
    series = [*fleet(WORLDS[0], twin=False, onset=ONSET, length=LENGTH, minutes=1)]
    hot = {"DCGM_EXP_CLOCK_EVENTS_COUNT{clock_event=hw_thermal}": (0, 20)}
    return list(
        {entry["series"]: entry for entry in (row.entry() for row in (*series, *changed(own, hot, ONSET)))}.values()
    )


def test_each_query_returns_series_with_the_labels_of_its_legend(tmp_path: Path) -> None:
    """A panel is never empty by a wrong name, and its legend never `{}`; the variables have values."""
    choices = [
        {"expr": f'count(bedplate:{series}{{{label}!=""}}) > bool 0', "eval_time": f"{ONSET}m",
         "exp_samples": [{"labels": "{}", "value": 1}]}
        for board in BOARDS.values() for label, series in board.variables.items()
    ]  # fmt: skip
    checks = list(query_checks())

    assert len(checks) >= 60
    tests = [{"interval": "1m", "input_series": entries(), "promql_expr_test": [*choices, *checks]}]
    assert run_rules(tmp_path, tests, 1) == ""
