"""A healthy day of a fleet, with all that happens on one: no alert fires in it, and its layer adds up."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.raw_metrics import Machine, Series
from tests.unit.test_monitoring_rules import FIRING, run_rules

STEP, SAMPLES = 5, 288
HOUR = 60 // STEP
RUN = "ada-1128-brave-otter"
At = Callable[[int], float | None]


def text(value: At) -> str:
    """Return the samples of a day; a missing one after another ends the series."""
    found = [value(n) for n in range(SAMPLES)]
    ended = ["stale" if n and found[n - 1] is not None else "_" for n in range(SAMPLES)]
    return " ".join(ended[n] if sample is None else f"{sample:.3f}" for n, sample in enumerate(found))


def phase(n: int) -> str:
    """Return what the GPUs of the worker do: train, write a checkpoint, load data, or nothing for nobody."""
    hour, minute = divmod(n * STEP, 60)
    if 10 <= hour < 11:
        return "free" if minute < 40 else "load"
    return "checkpoint" if minute < 15 and hour != 11 else "train"


def noisy(low: float, high: float) -> At:
    """Return a value that changes at random, the same on each run of the test."""
    draw = random.Random(f"{low}-{high}")  # noqa: S311  a repeatable day, no secret
    row = [draw.uniform(low, high) for _ in range(SAMPLES)]
    return lambda n: row[n]


def works(busy: float, idle: float) -> At:
    """Return a value that is high while the worker trains."""
    noise = noisy(0.97, 1.03)
    return lambda n: (busy * (noise(n) or 1)) if phase(n) == "train" else idle


def growing(step: float) -> At:
    """Return a counter since the boot at noon."""
    return lambda n: (n - SAMPLES // 2 if n >= SAMPLES // 2 else n) * step


def during(start: float, end: float, inside: float | None, outside: float | None) -> At:
    """Return one value within some hours, and another one before and after."""
    return lambda n: inside if start * HOUR <= n < end * HOUR else outside


DISK = "node_filesystem_avail_bytes"
EVENTS: Mapping[str, Mapping[str, At]] = {
    "worker": {
        "DCGM_FI_DEV_GPU_UTIL": works(97, 0),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": works(0.95, 0),
        "DCGM_FI_PROF_SM_ACTIVE": works(0.8, 0),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": works(0.5, 0),
        "DCGM_FI_PROF_DRAM_ACTIVE": works(0.4, 0),
        "DCGM_FI_DEV_POWER_USAGE": works(640, 110),
        "DCGM_FI_DEV_FB_USED": lambda n: 400 if phase(n) == "free" else 60000,
        "DCGM_FI_DEV_SM_CLOCK": noisy(1750, 1980),
        "DCGM_FI_DEV_GPU_TEMP": noisy(45, 78),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda n: n // 40,
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": lambda n: n // 3,
        "bedplate_gpu_owner": lambda n: None if phase(n) == "free" else 1,
        "node_load5": noisy(1, 9),
        "node_memory_MemAvailable_bytes": noisy(1e9, 5e10),
        "node_amazonefa_retrans_pkts": lambda n: n * 900,
    },
    # It is restarted at noon with a new bundle, as one of the last ones, and was idle for no longer than lunch.
    "workbench": {
        "up{job=node}": during(12, 12.05, 0, 1),
        "up{job=gpu}": during(12, 12.05, 0, 1),
        "bedplate_bundle_info{version=b-1}": during(0, 15, 1, None),
        "bedplate_bundle_info{version=b-2}": during(15, 24, 1, None),
        "bedplate_mount_seconds": during(3, 3.1, 2.5, 0.006),
        "bedplate_audit_violations": during(15, 15.1, 1, 0),
        "node_cpu_seconds_total": growing(100),
        "node_network_receive_bytes_total": growing(3e8),
        DISK: lambda n: 40e9 - (n % 144) * 5e7,
        "bedplate_gpu_xid_total{gpu=0,xid=45,action=monitor}": during(9, 24, 3, None),
        "bedplate_gpu_xid_total{gpu=0,xid=63,action=monitor}": during(16, 24, 1, None),
    },
    "gateway": {
        "bedplate_tunnel_up": during(4, 4.05, 0, 1),
        "bedplate_laptops_owed": during(8, 8.1, 1, 0),
        "bedplate_laptops_sessions": noisy(0, 12),
    },
    "control": {
        "bedplate_capacity_desired": during(9, 18, 6, 4),
        "bedplate_capacity_joined": during(9.2, 18, 6, 4),
        "bedplate_capacity_pending_pods": during(9, 9.2, 16, 0),
        "bedplate_capacity_unplaced_pods": during(13, 13.1, 1, 0),
        "bedplate_capacity_silent_pools": during(20, 20.05, 2, 0),
    },
    # The hub is restarted in the evening: its counters begin again.
    "hub": {
        "prometheus_rule_evaluation_failures_total": during(0, 20, 3, 0),
        "alertmanager_notifications_failed_total": during(0, 20, 2, 0),
        "bedplate_fleet_fault": during(20, 20.05, 1, 0),
    },
    "files": {DISK: noisy(3.4e10, 3.5e10)},
}


def fleet() -> Iterator[Series]:
    """Yield the series of the day."""
    for role, events in EVENTS.items():
        gpus = {"worker": 4, "workbench": 2}.get(role, 0)
        person, run = (("ada", RUN) if role == "worker" else ("ben", "")) if gpus else ("", "")
        machine = Machine(role, "lab", role, "train" if gpus else "", gpus, person, run, SAMPLES, STEP)
        rows = machine.series()
        used = set[str]()
        for row in rows:
            labelled = (name for name in events if _matches(name, row))
            name = next(labelled, "")
            used.add(name)
            if "bundle" not in row.metric or name:
                yield Series(row.metric, row.labels, text(events[name]) if name else row.values)
            else:
                bundles = {"b-1": during(0, 13, 1, None), "b-2": during(13, 24, 1, None)}
                yield from (Series(row.metric, {**row.labels, "version": v}, text(at)) for v, at in bundles.items())
        for name in events.keys() - used:
            metric, _, rest = name.partition("{")
            labels = dict(part.split("=") for part in rest.rstrip("}").split(","))
            yield Series(metric, machine.one(metric, labels, 1).labels, text(events[name]))


def _matches(name: str, row: Series) -> bool:
    metric, _, rest = name.partition("{")
    labels = dict(part.split("=") for part in rest.rstrip("}").split(",") if part)
    return metric == row.metric and labels.items() <= row.labels.items()


def never(expr: str) -> dict[str, Any]:
    """Return a check that a query had no series at any time of the day."""
    return {
        "expr": f"last_over_time(({expr})[24h:{STEP}m])",
        "eval_time": f"{(SAMPLES - 1) * STEP}m",
        "exp_samples": [],
    }


@pytest.mark.nightly
def test_no_alert_fires_on_a_healthy_day(tmp_path: Path) -> None:
    """Checkpoints, a restart, a rollout, a slow mount, errors of programs, and a restart of the hub need nobody."""
    states = "count by (instance, gpu) (bedplate:gpu_state) != 1"
    gpus = "abs(sum(bedplate:used_gpus) - 6) > 0"
    # Both machines with GPUs cost 8 US dollars an hour; the workbench is away for five minutes at noon.
    price = 'abs(sum(bedplate:used_usd_per_hour) - sum(bedplate:group_usd_per_hour{group="train"})) > 0.001'
    checks = [never(expr) for expr in (FIRING, states, gpus, price)]
    unique = {entry["series"]: entry for entry in (row.entry() for row in fleet())}
    tests = [{"interval": f"{STEP}m", "input_series": list(unique.values()), "promql_expr_test": checks}]

    assert run_rules(tmp_path, tests, STEP) == ""


@pytest.mark.nightly
def test_the_day_has_each_state_but_stuck(tmp_path: Path) -> None:
    """So that its silence is not that of an empty store: work, a pause, and GPUs of nobody, at their times."""
    at = {"9h30m": "busy", "10h30m": "free", "11h": "busy"}
    checks = [
        {"expr": f'sum(bedplate:used_gpus{{person!="ben", state="{state}"}})', "eval_time": time,
         "exp_samples": [{"labels": "{}", "value": 4}]}
        for time, state in at.items()
    ]  # fmt: skip
    unique = {entry["series"]: entry for entry in (row.entry() for row in fleet())}
    tests = [{"interval": f"{STEP}m", "input_series": list(unique.values()), "promql_expr_test": checks}]

    assert run_rules(tmp_path, tests, STEP) == ""
