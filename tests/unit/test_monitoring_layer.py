"""The normalised layer: labels that moved, values that mean nothing, owners by source, and the text of a message."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.monitoring.layer import SAMPLE_LIMIT, groups
from tests.testlab.machines.metrics import Exporter, Watch
from tests.testlab.network.netlab import until
from tests.testlab.raw_metrics import Change, Machine, Series, changed
from tests.testlab.run import need_program
from tests.unit.test_monitoring_rules import run_rules

LENGTH = 3
GPU = Machine("titan-01", "cellar", gpus=1, group="lab", length=LENGTH)
WHERE = 'group="lab",instance="titan-01.cellar",place="cellar"'


def result(folder: Path, series: Iterable[Series], expr: str, *samples: tuple[str, float]) -> str:
    """Return what is wrong with the result of a query after two minutes; empty if it is as wanted."""
    wanted = [{"labels": labels, "value": value} for labels, value in samples]
    unique = {entry["series"]: entry for entry in (row.entry() for row in series)}
    check = {"expr": expr, "eval_time": f"{LENGTH - 1}m", "exp_samples": wanted}
    test = {"interval": "1m", "input_series": list(unique.values()), "promql_expr_test": [check]}
    return run_rules(folder, [test], 1)


def with_changes(**changes: Change) -> list[Series]:
    """Return the series of a machine with one GPU and changes of whole metrics."""
    return list(changed(GPU, changes, 1))


@pytest.mark.parametrize("spelling", ["Hostname", "hostname"])
def test_both_spellings_of_the_exporter_give_one_series(tmp_path: Path, spelling: str) -> None:
    """DCGM's exporter renamed `Hostname`; its other labels do not reach the layer."""
    series = [
        Series(
            row.metric, {spelling if key == "Hostname" else key: text for key, text in row.labels.items()}, row.values
        )
        for row in GPU.series()
    ]

    assert result(tmp_path, series, "bedplate:gpu_busy", (f'bedplate:gpu_busy{{{WHERE},gpu="0"}}', 0.8)) == ""


def test_values_that_mean_unknown_are_none(tmp_path: Path) -> None:
    """DCGM shows 2147483600 and 9.2e18 for what it cannot read; utilisation stands for counters that are missing."""
    blank = {f"DCGM_FI_PROF_{name}_ACTIVE": (0, 9.2e18) for name in ("SM", "PIPE_TENSOR", "DRAM")}
    series = with_changes(**blank, DCGM_FI_DEV_POWER_USAGE=(0, 2147483600), DCGM_FI_DEV_GPU_TEMP=(0, 9.2e18))
    names = "bedplate:gpu_(busy|power_watts|temperature_celsius)"

    assert result(tmp_path, series, f'{{__name__=~"{names}"}}', (f'bedplate:gpu_busy{{{WHERE},gpu="0"}}', 0.97)) == ""


def owner(source: str, person: str, run: str = "") -> Series:
    """Return what a machine says about the owner of its GPU."""
    return GPU.one("bedplate_gpu_owner", {"gpu": "0", "person": person, "run": run, "source": source}, 1)


PODS = [
    Series(row.metric, {**row.labels, "namespace": "cy", "pod": "cy-1128-calm-elk-n-0-1-x7k2p"}, row.values)
    if row.metric.startswith("DCGM") else row
    for row in GPU.series()
]  # fmt: skip
MOVED = [
    Series(row.metric, {{"namespace": "exported_namespace", "pod": "exported_pod"}.get(key, key): value
                        for key, value in row.labels.items()}, row.values)
    for row in PODS
]  # fmt: skip


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ([*PODS, owner("process", "ada"), owner("lease", "ben", "ben-1")], 'person="ben",run="ben-1"'),
        ([*PODS, owner("process", "ada")], 'person="cy",run="cy-1128-calm-elk"'),
        (MOVED, 'person="cy",run="cy-1128-calm-elk"'),
        ([*PODS, owner("pod", "cy", "cy-1128-calm-elk")], 'person="cy",run="cy-1128-calm-elk"'),
        ([*GPU.series(), owner("process", "ada")], 'person="ada"'),
        (list(GPU.series()), ""),
    ],
    ids=["lease", "pod", "renamed labels of a pod", "pod, told twice", "process", "nobody"],
)
def test_a_gpu_has_one_owner(tmp_path: Path, series: list[Series], labels: str) -> None:
    """Of the surest source; each series of the GPU has it, and there is one of each."""
    expr = 'count by (__name__, person, run) ({__name__=~"bedplate:gpu_(busy|state|usd_per_hour)"})'
    names = ("bedplate:gpu_busy", "bedplate:gpu_state", "bedplate:gpu_usd_per_hour")

    assert result(tmp_path, series, expr, *((f"{name}{{{labels}}}", 1) for name in names)) == ""


def test_a_gpu_of_two_processes_has_one_owner(tmp_path: Path) -> None:
    """It is not said which, and it counts once."""
    series = [*GPU.series(), owner("process", "dan"), owner("process", "cleo")]
    expr = 'count by (__name__) ({__name__=~"bedplate:gpu_(busy|state|usd_per_hour)", person=~"dan|cleo"})'
    names = ("bedplate:gpu_busy", "bedplate:gpu_state", "bedplate:gpu_usd_per_hour")

    assert result(tmp_path, series, expr, *((name, 1) for name in names)) == ""


def test_a_gpu_costs_its_part_of_the_machine_that_is_planned(tmp_path: Path) -> None:
    """A GPU that is missing does not make the others dearer."""
    series = list(changed(Machine("big", "cellar", gpus=2, length=LENGTH), {"bedplate_expected_gpus": (4, 4)}, 1))
    labels = 'bedplate:gpu_usd_per_hour{gpu="%d",instance="big.cellar",place="cellar"}'

    assert result(tmp_path, series, "bedplate:gpu_usd_per_hour", *((labels % gpu, 2) for gpu in (0, 1))) == ""


def test_the_message_about_held_gpus_has_what_they_have_cost(tmp_path: Path) -> None:
    """The sum of a day, from the price of the person's GPUs in that state."""
    run = "ada-1128-brave-otter"
    work = ("DEV_GPU_UTIL", *(f"PROF_{name}_ACTIVE" for name in ("SM", "PIPE_TENSOR", "DRAM", "GR_ENGINE")))
    idle: Mapping[str, Change] = {f"DCGM_FI_{name}": (0, 0) for name in work}
    machine = Machine("titan-01", "cellar", gpus=2, person="ada", run=run, length=120)
    entries = {entry["series"]: entry for entry in (row.entry() for row in changed(machine, idle, 1))}
    # An hour is 60 samples here and 240 on the hub: 8 US dollars an hour are 2 for these 61 samples, and a bit.
    text = f"2 GPUs of ada are held and idle ({run}), 2.03 USD today"
    alert: dict[str, Any] = {
        "exp_labels": {"severity": "person", "person": "ada", "run": run},
        "exp_annotations": {"summary": text, "runbook": "gpusheldidle"},
    }
    check = {"alertname": "GpusHeldIdle", "eval_time": "1h", "exp_alerts": [alert]}

    test = {"interval": "1m", "input_series": list(entries.values()), "alert_rule_test": [check]}
    assert run_rules(tmp_path, [test], 1) == ""


@pytest.mark.nightly
def test_prometheus_refuses_a_huge_answer_and_says_how_large_it_was(tmp_path: Path) -> None:
    """The real one: what a huge, an unreadable and an ended exporter leave are three states of the layer."""
    need_program("prometheus")
    need_program("prometheus-alertmanager")
    huge, nonsense, ended = (Exporter(tmp_path) for _ in range(3))
    huge.text = "".join(f'many{{number="{number}"}} 1\n' for number in range(SAMPLE_LIMIT + 1))
    nonsense.text = "<html>it works</html>\n"
    ended.end()
    watch = Watch(tmp_path, 9)
    watch.write(json.loads(json.dumps(groups()).replace('"15s"', '"1s"')))
    names = {"huge": huge, "nonsense": nonsense, "ended": ended}
    watch.set_targets("node", **{name: (one.target, {"place": "cellar"}) for name, one in names.items()})
    watch.set_targets("gpu")

    with watch.running():
        until(lambda: len(watch.query("bedplate:node_up")) == len(names), 30, "no series of the layer")
        until(lambda: watch.query("bedplate:exporter_refused") != [], 30, "no answer is refused")
        refused = [labels["instance"] for labels, _ in watch.query("bedplate:exporter_refused")]
        up = {labels["instance"]: value for labels, value in watch.query("bedplate:node_up")}
        huge.text = "few 1\n"
        until(lambda: not watch.query("bedplate:exporter_refused"), 30, "the answer is still refused")

    assert refused == ["huge"]
    assert up == dict.fromkeys(names, 0)
    for one in (huge, nonsense):
        one.end()
