"""The rules of the hub: the normalised layer and its alerts, by the catalogue of faults and its harmless twins."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.monitoring import alerts, layer
from bedplate.monitoring.alerts import ALERTS, Severity
from tests.testlab.metric_faults import (
    ALONE,
    DAYS,
    DAYS_LENGTH,
    DAYS_ONSET,
    FAULTS,
    LENGTH,
    ONSET,
    SLOW,
    SLOW_LENGTH,
    SLOW_ONSET,
    Fault,
)
from tests.testlab.raw_metrics import Machine, Series, changed, family
from tests.testlab.run import need_program

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
STATES = ("busy", "held", "stuck", "free")
RAW = re.compile(r"(?<![:\w])(DCGM_|node_|up\b|scrape_|bedplate_|prometheus_|alertmanager_)")
FIRING = 'group by (alertname, place, person) (ALERTS{alertstate="firing"})'


def unnamed() -> str:
    """Return a query of firing alerts without a label that their text names: Prometheus would leave its place empty."""
    parts = list[str]()
    for alert in ALERTS:
        names = set(re.findall(r"\{([a-z]+)\}", alert.text)) - {"age", "usd"}
        rest = ",".join(f'{name}!=""' for name in sorted(names))
        own = f'alertname="{alert.name}",alertstate="firing"'
        parts += [f"(ALERTS{{{own}}} unless ALERTS{{{own},{rest}}})"] if names else []
    return " or ".join(parts)


def write_rules(folder: Path) -> list[str]:
    """Write both files of rules as the hub has them; JSON is YAML."""
    files = {"layer.yml": layer.groups(), "alerts.yml": alerts.groups()}
    for name, groups in files.items():
        (folder / name).write_text(json.dumps({"groups": groups}))
    return list(files)


def run_rules(folder: Path, tests: Iterable[Mapping[str, Any]], minutes: int) -> str:
    """Return what promtool says about tests of the rules; empty if all hold."""
    rules = write_rules(folder)
    document = {"rule_files": rules, "evaluation_interval": f"{minutes}m", "tests": list(tests)}
    # The hub evaluates alerts up to an interval after the layer; one order gives one result.
    document |= {"group_eval_order": [group["name"] for group in (*layer.groups(), *alerts.groups())]}
    (folder / "tests.yml").write_text(json.dumps(document))
    need_program("promtool")
    command = ("promtool", "test", "rules", "tests.yml")
    # It ends soon: collecting garbage takes a third of its time.
    environment = {**os.environ, "GOGC": "1000"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else readable(f"{done.stdout}{done.stderr}")


def readable(output: str) -> str:
    """Return promtool's failures as samples that are missing or too many, or all of its output."""
    lines = list[str]()
    for when, wanted, got in re.findall(r"time: (\w+),.*?exp:(.*?)\n\s+got:(.*?)\n", output, re.DOTALL):
        expected, actual = (set(re.findall(r"\{[^}]*\}", text)) for text in (wanted, got))
        lines.append(f"{when}: missing {sorted(expected - actual)}, unexpected {sorted(actual - expected)}")
    return "\n".join(lines) or output


def fleet(faults: Iterable[Fault], *, twin: bool, onset: int, length: int, minutes: int) -> Iterator[Series]:
    """Yield the series of a fleet: a hub and a control plane, and for each fault a place with two machines."""
    faults = tuple(faults)
    for role in ("hub",) if faults[0] in ALONE else ("hub", "control"):
        yield from Machine(role, "home", role=role, length=length, minutes=minutes).series()
    for fault in faults:
        owner = {"person": fault.name, "run": f"{fault.name}-1128-brave-otter"}
        about = {"role": "worker", **owner, **fault.machine, "length": length, "minutes": minutes}
        changes = fault.twin if twin else fault.changes
        # What a fault does not touch is healthy at home.
        families = frozenset(map(family, (*fault.changes, *fault.twin)))
        yield from changed(Machine("one", fault.name, families=families, **about), changes, onset)
        other = about if fault.everywhere else {**about, "role": "worker", "gpus": 0}
        two = Machine("two", fault.name, families=families if fault.everywhere else frozenset(), **other)
        yield from changed(two, changes if fault.everywhere else {}, onset)


def firing(faults: Iterable[Fault], elapsed: int, length: int) -> list[dict[str, Any]]:
    """Return the alerts that fire at a time after the onset, as samples of promtool."""
    found = set()
    for fault in faults:
        if fault.after <= elapsed < (length if fault.until is None else fault.until):
            (alert,) = (alert for alert in ALERTS if alert.name == fault.alert)
            person = fault.name if alert.severity is Severity.PERSON else ""
            found.add((fault.alert, person, fault.name if fault.place == "" else fault.place or ""))
    samples = ({"alertname": name, "person": person, "place": place} for name, person, place in sorted(found))
    texts = (",".join(f'{key}="{value}"' for key, value in sample.items() if value) for sample in samples)
    return [{"labels": f"{{{text}}}", "value": 1} for text in texts]


def checks(faults: tuple[Fault, ...], *, twin: bool, onset: int, length: int, minutes: int) -> Mapping[str, Any]:
    """Return a test of promtool: at each time all alerts that fire, and no other."""
    moments = {moment for fault in faults for moment in (fault.after, fault.until) if moment is not None}
    times = {-1, length - onset - 1, *moments, *(moment - 1 for moment in moments)}
    series = fleet(faults, twin=twin, onset=onset, length=length, minutes=minutes)
    unique = {entry["series"]: entry for entry in (row.entry() for row in series)}
    return {
        "interval": f"{minutes}m",
        "input_series": list(unique.values()),
        "promql_expr_test": [
            {"expr": FIRING, "eval_time": f"{(onset + time) * minutes}m",
             "exp_samples": [] if twin else firing(faults, time, length)}
            for time in sorted(times)
        ]
        + [{"expr": unnamed(), "eval_time": f"{(length - 1) * minutes}m", "exp_samples": []}],
    }  # fmt: skip


QUICK = tuple(fault for fault in FAULTS if fault not in (*SLOW, *DAYS, *ALONE))
WORLDS = (QUICK, ALONE)
MINUTES = {"onset": ONSET, "length": LENGTH, "minutes": 1}
HALF_HOURS = {"onset": SLOW_ONSET, "length": SLOW_LENGTH, "minutes": 30}
QUARTER_DAYS = {"onset": DAYS_ONSET, "length": DAYS_LENGTH, "minutes": 360}


def test_each_fault_fires_its_alert_in_time_and_no_other(tmp_path: Path) -> None:
    """At each minute in which an alert begins, and the one before, exactly the alerts of the catalogue fire."""
    tests = [checks(faults, twin=False, **MINUTES) for faults in WORLDS]

    assert run_rules(tmp_path, tests, 1) == ""


def test_no_twin_of_a_fault_fires(tmp_path: Path) -> None:
    """Pauses, counters that stand still, and values of the same kind below a limit need nobody."""
    assert run_rules(tmp_path, [checks((*QUICK, *ALONE), twin=True, **MINUTES)], 1) == ""


@pytest.mark.parametrize("twin", [False, True], ids=["faults", "twins"])
def test_slow_faults_fire_within_days(tmp_path: Path, *, twin: bool) -> None:
    """Disks that fill, old bundles and idle GPUs: the same in steps of half an hour."""
    assert run_rules(tmp_path, [checks(SLOW, twin=twin, **HALF_HOURS)], 30) == ""
    assert run_rules(tmp_path, [checks(DAYS, twin=twin, **QUARTER_DAYS)], 360) == ""


def sections() -> dict[str, str]:
    """Return the runbook sections of the page, by name."""
    parts = re.split(r"^#### (\w+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_each_alert_has_a_runbook_with_its_kind_and_its_wait() -> None:
    """And each section has an alert, so a page of night duty is not about an alert of before."""
    heads = {name: re.search(r"\*(\w+), after (\w+)\.\*", text) for name, text in sections().items()}

    found = {name: (head[1], head[2]) for name, head in heads.items() if head}
    assert found == {alert.name: (alert.severity.value, alert.wait) for alert in ALERTS}


def test_each_runbook_says_what_to_do() -> None:
    """After the meaning there are numbered steps."""
    assert [name for name, text in sections().items() if "\n\n1. " not in text] == []


def test_each_alert_has_a_fault() -> None:
    """A fault has a twin, so an alert without a fault and a twin fails here; the catalogue has at least 30."""
    assert {fault.alert for fault in FAULTS} == {alert.name for alert in ALERTS}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


def test_the_page_has_each_series_of_the_layer() -> None:
    """Its table is what dashboards and scripts may rely on."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert [row for row in rows if row[0] not in STATES] == [(record.name, record.about) for record in layer.RECORDS]


def test_a_group_of_the_layer_reads_its_own_series_and_earlier_ones() -> None:
    """Groups run beside each other, so a series of another one would be that of before."""
    for group in layer.groups():
        recorded = set[str]()
        for rule in group["rules"]:
            assert set(re.findall(r"bedplate:\w+", rule["expr"])) <= recorded, rule["record"]
            recorded.add(rule["record"])


def test_alerts_read_only_the_layer() -> None:
    """And only series that it has."""
    names = {name for alert in ALERTS for name in re.findall(r"[a-z_]+:[a-z_]+", alert.expr)}
    raw = [alert.name for alert in ALERTS if RAW.search(alert.expr)]

    assert names <= {f"bedplate:{record.name}" for record in layer.RECORDS}
    assert raw == []
