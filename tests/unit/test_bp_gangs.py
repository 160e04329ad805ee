"""`bp run` with several nodes, priorities and predecessors: where they go, what starts, and what is refused."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.fakes.laptop import TOKEN, FakeHub, Laptop
from tests.testlab.fakes.runs import wait_for
from tests.unit.test_bp_run import (
    FLEET,
    IMAGE,
    MACHINES,
    RUN_TOKEN,
    Record,
    created,
    laptop_at_work,
    program,
    stand_in_for_the_cluster,
)

# Each machine keeps what it is given, and has a program of its own, or that of all.
_SSH = f"""
for word; do case "$word" in HostKeyAlias=*) name="${{word#HostKeyAlias=}}"; name="${{name%.lab.internal}}";; esac; done
case "$*" in
*bp-token*) case "$*$(cat)" in *run:*) echo {RUN_TOKEN};; *) echo {TOKEN};; esac;;
*"bedplate-agent stop"*) echo "$name" >>"$here/stopped"; [ ! -e "$here/gone.$name" ] || exit 255;;
*bedplate-agent*)
    cat >"$here/given.$name"
    # As the agent does with what is no document: the connection was made early, and is closed.
    [ -s "$here/given.$name" ] || exit 204
    echo "$name ${{*##*bedplate-agent }}" >>"$here/started"
    [ ! -e "$here/refuses.$name" ] || {{ echo "no disk" >&2; exit 204; }}
    echo '{{"unit": "bp-x", "machine": "x"}}'
    case "$*" in *--follow*) . "$here/program";; esac;;
esac
"""
_STORES: Mapping[str, Any] = {**FLEET, "checkpoints": {"": "/home", "cellar": "/home"}}


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Yield the record of a hub of a fleet with stores."""
    with FakeHub(tmp_path) as hub:
        record = Record(hub)
        hub.answer("/fleet.json", _STORES)
        yield record


@pytest.fixture
def laptop(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return ada's laptop, whose ssh tells machines apart."""
    laptop = laptop_at_work(record.hub, tmp_path)
    laptop.ssh_answers(_SSH)
    monkeypatch.chdir(tmp_path / "work")
    return laptop


@pytest.fixture
def api(laptop: Laptop, tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a stand-in for the API of the cluster."""
    with stand_in_for_the_cluster(laptop, tmp_path / "cluster") as api:
        yield api


def _given(laptop: Laptop, machine: str) -> Any:  # noqa: ANN401  a document
    return json.loads((laptop.programs / f"given.{machine}").read_text())


def _has_started(laptop: Laptop, machine: str) -> bool:
    file = laptop.programs / f"given.{machine}"
    return file.exists() and file.stat().st_size > 0


def _lines(laptop: Laptop, name: str) -> list[str]:
    file = laptop.programs / name
    return file.read_text().splitlines() if file.exists() else []


def test_two_machines_are_one_run(laptop: Laptop, record: Record) -> None:
    """Each knows its rank and the first, which starts last, and whose output and exit code are those of bp."""
    done = laptop.bp("run", "--nodes", "2", "--restarts", "3", "--", "python", "train.py")

    assert (done.returncode, done.stdout) == (3, "loss 0.5\n"), done.stderr
    assert "on 2 machines: small.cellar, titan-03.cellar of cellar, without a known price" in done.stderr
    first, second = (_given(laptop, name) for name in ("small.cellar", "titan-03.cellar"))
    assert (first["rank"], second["rank"], first["machine"], second["machine"]) == (
        0,
        1,
        "small.cellar",
        "titan-03.cellar",
    )
    assert {first["master"], second["master"]} == {MACHINES["small.cellar"]["address"]}
    assert first["port"] == second["port"] in range(20_000, 32_768)
    assert (first["nodes"], first["restarts"], first["token"]) == (2, 3, second["token"])
    assert first["checkpoints"] == f"/home/ada/.bedplate/checkpoints/{record.tags['id']}"
    started = [line.split()[0] for line in _lines(laptop, "started")]
    assert started == ["titan-03.cellar", "small.cellar"]
    expected = {"nodes": "2", "node.0": "small.cellar", "node.1": "titan-03.cellar", "machine": "small.cellar"}
    assert record.tags.items() >= expected.items()


def test_a_gang_that_cannot_start_whole_does_not_start(laptop: Laptop, record: Record) -> None:
    """The first machine gets nothing, the others are stopped, and the record says why."""
    (laptop.programs / "refuses.titan-03.cellar").touch()

    done = laptop.bp("run", "--nodes", "3", "--", "true")

    assert done.returncode == 244, done.stderr
    assert "no disk" in done.stderr
    assert "titan-03.cellar does not start the run: status 204" in done.stderr
    assert not _has_started(laptop, "small.cellar")
    assert {*_lines(laptop, "stopped")} == {"titan-03.cellar", "twin.cellar"}
    assert (record.tags["state"], "it did not start: titan-03.cellar" in record.tags["cause"]) == ("ended", True)


def test_a_gang_whose_first_machine_refuses_is_stopped(laptop: Laptop, record: Record) -> None:
    """The others wait for it, and would do so for minutes."""
    (laptop.programs / "refuses.small.cellar").touch()

    assert laptop.bp("run", "--nodes", "2", "--", "true").returncode == 244

    assert _lines(laptop, "stopped") == ["titan-03.cellar"]
    assert record.tags["state"] == "ended"


def test_each_machine_of_a_run_is_stopped(laptop: Laptop, record: Record) -> None:
    """One that answers is enough: its agent tells the others."""
    program(laptop, "")
    laptop.bp("run", "-d", "--nodes", "2", "--", "true")
    name = record.tags["id"]
    (laptop.programs / "gone.small.cellar").touch()

    assert laptop.bp("stop", name).returncode == 0

    assert {*_lines(laptop, "stopped")} == {"small.cellar", "titan-03.cellar"}
    (laptop.programs / "gone.titan-03.cellar").touch()
    done = laptop.bp("stop", name)
    assert (done.returncode, "small.cellar does not answer" in done.stderr) == (4, True), done.stderr


@pytest.mark.parametrize(
    ("words", "sentence", "fix"),
    [
        (["--nodes", "2", "--on", "titan-03"], "--on names one machine", "write --group G"),
        (["--nodes", "5", "--gpus", "4"], "no group has 5 machines with 4 GPUs", "at most 4, of batch"),
        (["--nodes", "5", "--group", "batch"], "no group has 5 machines with 0 GPUs", "at most 4, of batch"),
        (["--nodes", "0"], "argument --nodes", ""),
        (["--priority", "spare"], "--priority is for the cluster, and small.cellar is a machine for SSH", "--group"),
        (["--priority", "high"], "argument --priority", "interactive, normal"),
        (["--group", "batch", "--priority", "interactive", "--gpus", "8", "--nodes", "2"], "at most 8 GPUs", "normal"),
        (["--group", "batch", "--priority", "interactive", "--for", "5h"], "at most 225m", "write --for 225m"),
        (["--group", "batch", "--after", "ada-1127-none"], "no run is named ada-1127-none", ""),
        (["--group", "batch", "--after", "x:later"], "argument --after", ""),
        (["--restarts", "-1"], "argument --restarts", ""),
    ],
)
def test_what_no_gang_can_be_is_refused(
    words: list[str], sentence: str, fix: str, laptop: Laptop, record: Record
) -> None:
    """Status 242, with the nearest right value; nothing is recorded."""
    record.hub.answer("/fleet.json", {**_STORES, "machines": {name: MACHINES[name] for name in _FEW}})

    done = laptop.bp("run", *words, "--", "true")

    assert (done.returncode, sentence in done.stderr, fix in done.stderr) == (242, True, True), done.stderr
    assert not record.runs


_FEW = ("small.cellar", "titan-03.cellar")


@pytest.mark.parametrize(
    ("words", "launch"),
    [
        (["--", "/opt/bin/mpirun", "true"], "mpi"),
        (["--", "mpiexec", "true"], "mpi"),
        (["--", "torchrun", "a.py"], "program"),
        (["--launch", "mpi", "--", "sh", "solve.sh"], "mpi"),
        (["--launch", "program", "--", "mpirun", "true"], "program"),
    ],
)
def test_mpirun_starts_on_the_first_node_only(words: list[str], launch: str, laptop: Laptop, record: Record) -> None:
    """It starts its ranks on all of them."""
    laptop.bp("run", "-d", "--nodes", "2", *words)

    assert {_given(laptop, name)["launch"] for name in ("small.cellar", "titan-03.cellar")} == {launch}
    assert record.tags["launch"] == launch


def test_several_nodes_need_a_store(laptop: Laptop, record: Record) -> None:
    """A machine that is lost takes its checkpoints along, unless the program may start from the beginning."""
    record.hub.answer("/fleet.json", {**FLEET, "checkpoints": {"attic": "/home"}})

    done = laptop.bp("run", "--nodes", "2", "--", "true")

    assert (done.returncode, "cellar has no shared store for checkpoints" in done.stderr) == (242, True), done.stderr
    assert "jobs.checkpoints" in done.stderr
    assert laptop.bp("run", "--nodes", "2", "--scratch-ok", "--", "true").returncode == 3
    assert (_given(laptop, "small.cellar")["scratch_ok"], record.tags["scratch_ok"]) == ("1", "1")


def test_a_gang_in_the_cluster_is_one_jobset(laptop: Laptop, record: Record, api: FakeHub) -> None:
    """Its price is that of all nodes, before the start."""
    words = ("--nodes", "3", "--gpus", "16", "--priority", "spare", "--for", "1h", "-d")
    done = laptop.bp("run", *words, "--", "true")

    assert done.returncode == 0, done.stderr
    assert "on 3 machines: batch in the cluster, 6.00 USD an hour, at most 6.00 USD" in done.stderr
    jobset = created(api)
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], jobset["metadata"]["labels"]["kueue.x-k8s.io/priority-class"]) == (3, "spare")
    assert (record.tags["nodes"], record.tags["priority"], record.tags["price"]) == ("3", "spare", "2.0")
    assert "machine" not in record.tags


def test_a_run_starts_after_another(laptop: Laptop, record: Record, api: FakeHub) -> None:
    """It is held until the other one ends; one that has ended decides at once."""
    laptop.bp("run", "-d", "--image", IMAGE, "--group", "batch", "--name", "first", "--", "true")
    first = record.tags["id"]
    api.requests.clear()

    assert laptop.bp("run", "-d", "--group", "batch", "--after", first, "--", "true").returncode == 0

    assert created(api)["metadata"]["annotations"] == {"bedplate/after": f"{first}:ok"}
    assert record.tags["after"] == f"{first}:ok"
    run = record.runs[0]
    run["data"]["tags"] += [{"key": "bedplate.state", "value": "ended"}, {"key": "bedplate.cause", "value": "a bug"}]
    run["info"]["status"] = "FAILED"
    refused = laptop.bp("run", "-d", "--group", "batch", "--after", first, "--", "true")
    assert (refused.returncode, f"{first} has not succeeded: a bug" in refused.stderr) == (242, True), refused.stderr
    api.requests.clear()
    assert laptop.bp("run", "-d", "--group", "batch", "--after", f"{first}:any", "--", "true").returncode == 0
    assert created(api)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"


def test_a_run_on_machines_starts_after_any_other(laptop: Laptop, record: Record) -> None:
    """Its agents ask the record, so the other one may be in the cluster or not; that of a colleague is refused."""
    laptop.bp("run", "-d", "--on", "small", "--name", "first", "--", "true")
    first = record.tags["id"]

    done = laptop.bp("run", "-d", "--nodes", "2", "--after", f"{first}:any", "--", "true")

    assert done.returncode == 0, done.stderr
    for machine in ("small.cellar", "titan-03.cellar"):
        given = _given(laptop, machine)
        assert (given["after"], given["predecessor"]) == (f"{first}:any", record.runs[0]["info"]["run_id"])
    assert record.tags["after"] == f"{first}:any"
    record.runs[0]["data"]["tags"] += [{"key": "bedplate.owner", "value": "grace"}]
    refused = laptop.bp("run", "-d", "--after", first, "--", "true")
    assert (refused.returncode, f"{first} is no run of yours" in refused.stderr) == (242, True), refused.stderr


def test_a_run_that_nothing_would_start_is_refused(laptop: Laptop, record: Record) -> None:
    """The capacity controller starts followers, and a fleet without groups of instances for the cluster has none."""
    record.hub.answer("/fleet.json", {**_STORES, "after": False})

    done = laptop.bp("run", "-d", "--image", IMAGE, "--group", "batch", "--after", "ada-1127-x", "--", "true")

    assert (done.returncode, "leave --after out" in done.stderr) == (242, True), done.stderr


@pytest.mark.parametrize(("status", "text"), [(403, '{"message": "exceeded quota"}'), (200, "<html>")])
def test_a_run_without_its_secret_leaves_no_jobset(
    laptop: Laptop, record: Record, api: FakeHub, status: int, text: str
) -> None:
    """Its pods would hold machines and wait for ever: the quota has refused the Secret, or the answer was lost."""
    api.answers["/api/v1/namespaces/ada/secrets"] = (status, {}, text.encode())

    done = laptop.bp("run", "-d", "--image", IMAGE, "--group", "batch", "--", "true")

    assert done.returncode != 0
    assert any(line.startswith("DELETE") and "/jobsets/" in line for line, _, _ in api.requests), done.stderr
    assert record.tags["cause"].startswith("it did not start")


def test_a_cluster_without_queue_is_said(laptop: Laptop, record: Record, api: FakeHub) -> None:
    """With what the operator has to add; the record has an end."""
    del api.answers["/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets"]

    done = laptop.bp("run", "--group", "batch", "--", "true")

    assert (done.returncode, "the cluster has no queue for runs" in done.stderr) == (244, True), done.stderr
    assert record.tags["state"] == "ended"


def test_a_gang_is_repeated_as_it_was(laptop: Laptop, record: Record) -> None:
    """Nodes, restarts and what it may do; machines of a site are chosen again."""
    program(laptop, "")
    laptop.bp("run", "-d", "--nodes", "2", "--restarts", "1", "--scratch-ok", "--", "true")

    done = laptop.bp("again", record.tags["id"], "-d")

    assert done.returncode == 0, done.stderr
    again = _given(laptop, "titan-03.cellar")
    assert (again["nodes"], again["restarts"], again["scratch_ok"], again["id"]) == (2, 1, "1", record.tags["id"])


@pytest.mark.nightly
def test_ctrl_c_before_the_start_of_all_stops_all(laptop: Laptop, record: Record) -> None:
    """A gang that is half started would wait for the rest."""
    laptop.ssh_answers(_SSH.replace('cat >"$here/given.$name"', 'cat >"$here/given.$name"; exec sleep 30'))
    process = laptop.start("run", "--nodes", "2", "--", "true")
    wait_for(lambda: _has_started(laptop, "titan-03.cellar"))

    process.send_signal(2)
    _, errors = process.communicate(timeout=40)

    assert process.returncode not in {0, 3}, errors
    assert not _has_started(laptop, "small.cellar")
    assert record.tags["cause"].startswith("it did not start: Ctrl-C")
