"""`bp top`: runs with what their GPUs do, by a real Prometheus with the normalised series of a day."""

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bedplate.monitoring.layer import groups
from bedplate.programs.hub.rules import check_request
from bedplate.programs.hub.tokens import RefusedError, Token
from tests.testlab.fakes.laptop import FakeHub, Laptop, oldest_python
from tests.testlab.machines.metrics import HUB, Exporter, Watch, free_port
from tests.testlab.metrics import DAY, HOUR, STEP, Machine, Store, Use, last_sample, normalised, store_of
from tests.testlab.network.netlab import until

API = "/api/2.0/mlflow/"
GOOD, HELD, STUCK = "ada-1128-brave-otter", "ada-1128-calm-crane", "ada-1128-keen-eagle"
# A run with a name of its own, and that of its pods.
OF_POD, POD = "ada-1128-big_run", "ada-1128-big-run"


@cache
def _now() -> int:
    """Return the time of the last sample at the first use: a test may run long after it was collected."""
    return last_sample(time.time())


def machines_at(now: int) -> list[Machine]:
    """Return machines: a busy run, one that holds two GPUs for three hours, and one stuck on two machines for two."""
    start, end = now - DAY - HOUR, now + HOUR
    good = (Use(start, end, "busy", "ada", GOOD, 0.9),)
    free = (Use(start, end),)
    held = (
        Use(start, now - 6 * HOUR),
        Use(now - 6 * HOUR, now - 3 * HOUR, "busy", "ada", HELD, 0.5),
        Use(now - 3 * HOUR, end, "held", "ada", HELD),
    )
    stuck = (
        Use(start, now - 8 * HOUR),
        Use(now - 8 * HOUR, now - 2 * HOUR, "busy", "ada", STUCK, 1.0),
        Use(now - 2 * HOUR, end, "stuck", "ada", STUCK, 0.0),
    )
    other = (Use(start, end, "busy", "grace", "grace-1128-fine-fox", 0.4),)
    return [
        Machine("titan-01.cellar", "cellar", "", 0.0, (held, held, free, other)),
        Machine("p5-0.us-west-2", "us-west-2", "train", 10.0, ((Use(start, end, "busy", "ada", POD, 0.6),),)),
        Machine("p5-1.us-west-2", "us-west-2", "train", 80.0, (good,) * 8),
        Machine("p5-2.us-west-2", "us-west-2", "train", 80.0, (stuck,) * 8),
        Machine("p5-3.us-west-2", "us-west-2", "train", 80.0, (stuck,) * 8),
    ]


def _record(name: str, state: str = "running", **tags: str) -> dict[str, Any]:
    info = {"run_id": name.encode().hex().ljust(32, "0")[:32], "run_name": name, "status": "RUNNING"}
    known = {"id": name, "owner": "ada", "state": state, "gpus": "1", "nodes": "1", **tags}
    return {
        "info": {**info, "start_time": 1_795_798_183_994},
        "data": {"tags": [{"key": f"bedplate.{key}", "value": value} for key, value in known.items()]},
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield a Prometheus with a day of the machines."""
    samples = normalised(
        machines_at(_now()), range(_now() - DAY - HOUR, _now() + 2 * STEP, STEP), gpus_from=_now() - HOUR
    )
    with store_of(tmp_path_factory.mktemp("store"), samples) as store:
        yield store


@pytest.fixture
def hub(tmp_path: Path, store: Store) -> Iterator[FakeHub]:
    """Yield a hub with this Prometheus, and the records of ada: one without GPU, and one that waits."""
    with FakeHub(tmp_path) as hub:
        for name in ("query", "query_range"):
            hub.answers[f"/prometheus/api/v1/{name}"] = lambda: _passed_on(hub, store)
        hub.answer(f"{API}experiments/get-by-name", {"experiment": {"experiment_id": "7"}})
        runs = [
            _record(GOOD, gpus="8"),
            _record(OF_POD, image="torch"),
            _record("ada-1128-small-bee", gpus="0", machine="titan-01.cellar"),
        ]
        runs += [_record("ada-1128-small-bee-1", parent="f" * 32), _record("ada-1128-tune-0001", study="ada-1128-tune")]
        runs += [_record("ada-1128-kind-kite", "queued", machine="titan-01.cellar", gpus="4")]
        hub.answer(f"{API}runs/search", {"runs": runs})
        yield hub


def _passed_on(hub: FakeHub, store: Store) -> tuple[int, dict[str, str], bytes]:
    status, body = store.get(hub.request.target.removeprefix("/prometheus"))
    return status, {"Content-Type": "application/json"}, body


@pytest.fixture
def laptop(tmp_path: Path, hub: FakeHub) -> Laptop:
    """Return ada's laptop."""
    (tmp_path / "laptop").mkdir()
    return Laptop(tmp_path / "laptop", hub, oldest_python())


def test_runs_are_shown_with_what_their_gpus_do(laptop: Laptop) -> None:
    """The most expensive idle one first, with the hours and dollars without work; then what has no GPU, and waits."""
    done = laptop.bp("top")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = {line.split()[0]: line for line in lines[1:6]}
    assert [*rows] == [STUCK, HELD, OF_POD, GOOD, "ada-1128-small-bee"]
    assert rows[STUCK].split()[1:7] == ["ada", "16", "0%", "480/1280", "GiB", "1,600"]
    assert "p5-2.us-west-2 +1" in rows[STUCK]
    assert re.search(r"stuck: 3[2-4]\.\d GPU hours idle since yesterday, 3[2-4]\d\.\d\d USD$", rows[STUCK])
    assert re.search(r"titan-01\.cellar +held: 6\.\d GPU hours idle since yesterday$", rows[HELD])
    assert rows[GOOD].split()[1:4] == ["ada", "8", "90%"]
    assert rows[GOOD].endswith("  " + "▇" * 24 + "  p5-1.us-west-2     busy")
    assert rows["ada-1128-small-bee"].split()[1:] == ["ada", "0", "-", "-", "-", "titan-01.cellar", "-"]
    assert rows[OF_POD].split()[1:4] == ["ada", "1", "60%"]
    assert "small-bee-1" not in done.stdout
    assert "tune" not in done.stdout
    waiting = next(line for line in lines if line.lstrip("- ").startswith("ada-1128-kind-kite"))
    assert waiting.endswith("It waits for GPUs of titan-01.cellar.")


def test_programs_get_the_figures_of_each_machine(laptop: Laptop) -> None:
    """One document; the strip of a run has an entry for each hour of the day, and None before its start."""
    document = json.loads(laptop.bp("top", "--json").stdout)

    stuck = document["runs"][0]
    assert (stuck["run"], stuck["gpus"], stuck["states"]) == (STUCK, 16, {"stuck": 16})
    assert {name: facts["gpus"] for name, facts in stuck["machines"].items()} == {
        "p5-2.us-west-2": 8,
        "p5-3.us-west-2": 8,
    }
    since = (document["time"] - (_now() - 2 * HOUR)) / HOUR
    assert stuck["idle_gpu_hours"] == pytest.approx(16 * since, rel=0.01)
    assert stuck["idle_usd"] == pytest.approx(2 * 80 * since, rel=0.01)
    hours = stuck["hours"]
    assert (len(hours), hours[:15], hours[-1], hours[-4]) == (24, [None] * 15, 0.0, 1.0)
    assert document["unknown"] == []


def test_the_runs_of_all_are_shown_to_everyone(laptop: Laptop) -> None:
    """With their owners; GPUs that nobody has are in no row."""
    document = json.loads(laptop.bp("top", "--all", "--json").stdout)

    owners = {run["run"]: run["person"] for run in document["runs"]}
    assert owners["grace-1128-fine-fox"] == "grace"
    assert owners[STUCK] == "ada"
    assert "" not in owners


def test_figures_that_are_away_leave_the_record(laptop: Laptop, hub: FakeHub) -> None:
    """What is unknown is said, with status 6."""
    refusal = {"error_code": "502", "message": "the hub failed"}
    for name in ("query", "query_range"):
        hub.answer(f"/prometheus/api/v1/{name}", refusal, 400)

    done = laptop.bp("top")

    assert done.returncode == 6
    assert done.stdout.splitlines()[2].split()[:4] == [GOOD, "ada", "8", "-"]
    assert "unknown: figures of GPUs: the hub refuses: the hub failed (400)" in done.stdout
    hub.answer("/prometheus/api/v1/query_range", {"status": "error", "error": "too many samples"}, 422)
    assert "unknown: the day: the hub refuses: too many samples (422)" in laptop.bp("top").stdout
    hub.answer("/prometheus/api/v1/query", {"data": {"result": [{"metric": {}, "value": [1, "x"]}]}})
    assert "unknown: figures of GPUs: the hub's answer is not that of Prometheus" in laptop.bp("top").stdout


def test_a_terminal_gets_frames_until_ctrl_c(laptop: Laptop) -> None:
    """Its lines are at most as wide as the terminal."""
    terminal, end = pty.openpty()
    subprocess.run(("stty", "rows", "30", "cols", "60"), stdin=end, check=True)
    process = laptop.start("top", stdout=end)
    text = b""
    while b"Ctrl-C ends this" not in text and select.select([terminal], [], [], 20)[0]:
        text += os.read(terminal, 65_536)

    os.killpg(process.pid, 2)
    _, errors = process.communicate(timeout=20)
    os.close(terminal)
    os.close(end)

    assert (process.returncode, errors) == (0, "")
    frame = text.decode().partition("\x1b[2J")[2]
    assert frame.startswith("RUN ")
    assert max(map(len, frame.splitlines())) == 60


def test_the_questions_of_a_person_are_answered_at_once(laptop: Laptop, hub: FakeHub) -> None:
    """Two requests to Prometheus, so that a frame needs one round trip."""
    laptop.bp("top")

    assert sorted(line.partition("?")[0] for line, _, _ in hub.requests if "prometheus" in line) == [
        "GET /prometheus/api/v1/query",
        "GET /prometheus/api/v1/query_range",
    ]


_RAW = """DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",Hostname="h"%(pod)s} 97
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-0",Hostname="h"%(pod)s} 0.61
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",Hostname="h"%(pod)s} 10240
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-0",Hostname="h"%(pod)s} 71680
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-0",Hostname="h"%(pod)s} 350
"""


def test_gpus_of_a_workbench_and_of_a_pod_are_shown(laptop: Laptop, hub: FakeHub, tmp_path: Path) -> None:
    """From exporters that a Prometheus with the settings and rules of the hub asks over TLS, to the rows of bp."""
    folder = tmp_path / "watch"
    folder.mkdir()
    watch = Watch(folder, free_port())
    watch.write([{**group, "interval": "1s"} for group in groups()])
    exporters = {name: Exporter(_new_folder(tmp_path / name)) for name in ("node", "workbench", "worker", "hub")}
    # Of two GPUs by the plan one is there.
    own = 'machine="p5.us",place="us-west-2",group="train"'
    exporters[
        "hub"
    ].text = f'bedplate_machine_usd_per_hour{{{own},market="spot"}} 8\nbedplate_expected_gpus{{{own}}} 2\n'
    exporters["node"].text = f'bedplate_gpu_owner{{gpu="0",person="ada",run="{GOOD}",source="lease"}} 1\n'
    exporters["workbench"].text = _RAW % {"pod": ""}
    # A pod of the second node of a run, as NVIDIA's exporter names it.
    exporters["worker"].text = _RAW % {"pod": f',namespace="ada",pod="{POD}-n-0-1-x7f2k",container="run"'}
    at_site = {"place": "cellar", "role": "workbench"}
    in_region = {"place": "us-west-2", "group": "train", "role": "worker"}
    of_hub = {HUB: (exporters["hub"].target, {"place": "us-west-2", "role": "hub"})}
    watch.set_targets("node", titan__cellar=(exporters["node"].target, at_site), **of_hub)
    watch.set_targets(
        "gpu",
        titan__cellar=(exporters["workbench"].target, at_site),
        p5__us=(exporters["worker"].target, in_region),
    )
    for name in ("query", "query_range"):
        hub.answers[f"/prometheus/api/v1/{name}"] = lambda: _passed_on(hub, Store(watch.port))

    with watch.running():
        until(lambda: len(watch.query('bedplate:used_gpus{state="busy",person="ada"}')) == 2, 30, "no figures of GPUs")
        until(lambda: bool(watch.query("bedplate:used_usd_per_hour")), 30, "no price of GPUs")
        prices = [value for name in ("used", "group") for _, value in watch.query(f"bedplate:{name}_usd_per_hour")]
        document = json.loads(laptop.bp("top", "--json").stdout)
    for exporter in exporters.values():
        exporter.end()

    rows = {run["run"]: run for run in document["runs"] if run["busy"] is not None}
    assert {name: [*row["machines"]] for name, row in rows.items()} == {GOOD: ["titan.cellar"], OF_POD: ["p5.us"]}
    for row in rows.values():
        assert (row["gpus"], row["busy"], row["states"], row["power_watts"]) == (1, 0.61, {"busy": 1}, 350)
        assert (row["memory_used_bytes"], row["memory_bytes"]) == (10 * 2**30, 80 * 2**30)
    assert document["unknown"] == []
    assert prices == [4, 8]


def _new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_hub_allows_what_is_asked(laptop: Laptop, hub: FakeHub) -> None:
    """With the token of a person, and not with that of a run; an address is not longer than nginx reads."""
    laptop.bp("top", "--all")

    lines = [line.split() for line, _, _ in hub.requests if "/prometheus/" in line]
    assert lines
    for method, target in lines:
        check_request(Token(20001, 0, "person"), "ada", method, target)
        assert len(target) < 8_000
        with pytest.raises(RefusedError):
            check_request(Token(20001, 0, f"run:{'0' * 32}"), "ada", method, target)
