"""`bp queue`: the waiting runs of a person and of all, with their places and reasons."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.bp.cluster import Api
from bedplate.programs.bp.jobset import Cluster
from bedplate.programs.bp.queue import waiting_lines
from tests.testlab.fakes.laptop import FakeHub, Laptop, oldest_python

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ada/workloads"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
OWN_LINE = f"{VISIBILITY}/namespaces/ada/localqueues/default/pendingworkloads"
LINE = f"{VISIBILITY}/clusterqueues/fleet/pendingworkloads"
CREATED = "2026-11-27T05:00:00Z"
FRAGMENTED = "It has no place yet: train: at its maximum of 2."


def jobset(
    name: str, nodes: int = 2, notes: Mapping[str, str] | None = None, queue: str = "default", **spec: object
) -> dict[str, Any]:
    """Return a JobSet of bp that waits."""
    labels = {"bedplate/run": name, "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": "spare"}
    metadata = {"name": name, "namespace": "ada", "uid": name, "labels": labels, "annotations": notes or {}}
    pod = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    job = {"replicas": 1, "template": {"spec": {"parallelism": nodes, "template": pod}}}
    return {
        "metadata": {**metadata, "creationTimestamp": CREATED},
        "spec": {"suspend": True, "replicatedJobs": [job], **spec},
    }


def entry(name: str, place: int, namespace: str = "ada") -> dict[str, Any]:
    """Return an entry of Kueue's line."""
    owners = [{"kind": "JobSet", "name": name}]
    metadata = {"name": f"jobset-{name}", "namespace": namespace, "ownerReferences": owners}
    facts = {"priority": 0, "localQueueName": "default", "positionInClusterQueue": place, "positionInLocalQueue": 0}
    return {"metadata": {**metadata, "creationTimestamp": CREATED}, **facts}


def workload(message: str) -> dict[str, Any]:
    """Return a Workload that Kueue has looked at."""
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    return {"status": {"conditions": [condition]}}


OWN = [
    jobset("late", notes={"bedplate/waits": FRAGMENTED}),
    jobset("soon", nodes=1),
    jobset("then", queue="held", notes={"bedplate/after": "soon:ok"}),
    jobset("runs", suspend=False),
    {**jobset("ended"), "status": {"terminalState": "Failed"}},
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a cluster in which ada has two runs in the line, one that follows another, and two that do not wait."""
    with FakeHub(tmp_path, "localhost") as hub:
        hub.answer(JOBSETS, {"items": [OWN[2]]})
        for item in OWN:
            hub.answer(f"{JOBSETS}/{item['metadata']['name']}", item)
        hub.answer(f"{WORKLOADS}/jobset-soon", workload("no quota for nvidia.com/gpu\x1b[2J"))
        hub.answer(f"{WORKLOADS}/jobset-late", workload("no room"))
        hub.answer(LINE, {"items": [entry("soon", 2), entry("late", 17)]})
        yield hub


@pytest.fixture
def laptop(tmp_path: Path, hub: FakeHub) -> Laptop:
    """Return ada's laptop."""
    (tmp_path / "laptop").mkdir()
    laptop = Laptop(tmp_path / "laptop", hub, oldest_python())
    laptop.set(cluster=hub.cluster_of("ada"))
    return laptop


def test_waiting_runs_are_listed_by_their_place(laptop: Laptop) -> None:
    """A line each with GPUs, machines and the reason: the planner's, else Kueue's, else the run before it."""
    done = laptop.bp("queue")

    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[:6] for row in rows[1:4]] == [
        ["3", "soon", "ada", "spare", "8", "1"],
        ["18", "late", "ada", "spare", "16", "2"],
        ["-", "then", "ada", "spare", "16", "2"],
    ]
    assert [" ".join(row[8:]) for row in rows[1:4]] == [
        "no quota for nvidia.com/gpu?[2J",
        FRAGMENTED,
        "It starts when soon has ended well.",
    ]
    assert rows[4][:2] == ["`bp", "gpus`"]


def test_the_line_of_all_has_what_the_cluster_shows(laptop: Laptop, hub: FakeHub) -> None:
    """Runs of others have a place and a priority, and nothing else."""
    hub.answer(LINE, {"items": [entry("grace-1", 0, "grace"), entry("soon", 2), entry("late", 17)]})

    document = json.loads(laptop.bp("queue", "--all", "--json").stdout)

    assert [(run["place"], run["owner"], run["name"]) for run in document["runs"]][:2] == [
        (1, "grace", "grace-1"),
        (3, "ada", "soon"),
    ]
    assert document["runs"][0]["gpus"] is None
    assert document["runs"][0]["since"] == 1_795_755_600_000
    assert document["unknown"] == ""


def test_a_line_that_nobody_may_see_is_unknown(laptop: Laptop, hub: FakeHub) -> None:
    """The person's own runs are shown all the same."""
    hub.answer(LINE, {"message": "clusterqueues is forbidden"}, 403)

    hub.answer(JOBSETS, {"items": OWN})
    done = laptop.bp("queue")

    assert done.stdout.splitlines()[1].split()[:2] == ["-", "late"]
    assert "Places in the line are unknown: the cluster refuses: clusterqueues is forbidden (403)." in done.stdout


def test_no_waiting_run_is_said(laptop: Laptop, hub: FakeHub) -> None:
    """An empty table would look like a failure."""
    hub.answer(JOBSETS, {"items": []})
    hub.answer(LINE, {"items": []})

    assert laptop.bp("queue").stdout.splitlines()[0] == "No run waits in the cluster."


def test_a_cluster_without_queue_is_said(laptop: Laptop, hub: FakeHub) -> None:
    """The operator knows the key that adds it."""
    del hub.answers[JOBSETS], hub.answers[LINE]

    done = laptop.bp("queue")

    assert done.returncode != 0
    assert "no queue for runs\n  fix  ask your operator: `jobs`" in done.stderr, done.stderr


def test_a_run_without_a_place_has_kueues_words(hub: FakeHub) -> None:
    """Kueue waits before it puts a run back whose pods did not get ready; what is held by hand says that."""
    hub.answer(OWN_LINE, {"items": []})
    hub.answer(WORKLOADS, {"items": [workload("pods were not ready")]})
    hub.answer(f"{JOBSETS}/kept", jobset("kept", queue="held"))

    with closing(Api(Cluster(**hub.cluster_of("ada")))) as api:  # type: ignore[arg-type]
        assert waiting_lines(api, "soon")[-1] == "pods were not ready"
        assert waiting_lines(api, "kept") == ["It is held until its label kueue.x-k8s.io/queue-name is `default`."]


def test_a_fleet_without_a_cluster_has_no_queue(laptop: Laptop) -> None:
    """Its machines have lines, which `bp gpus` shows."""
    laptop.set(cluster={})

    assert laptop.bp("queue").stdout.splitlines()[1:] == [
        "This fleet has no cluster.",
        "`bp gpus` shows who waits for machines with SSH.",
    ]


def test_the_start_of_a_run_says_why_it_waits(hub: FakeHub) -> None:
    """Place and priority, the planner's reason and Kueue's; nothing once it has left the queue."""
    hub.answer(OWN_LINE, {"items": [entry("soon", 2), entry("late", 17)]})

    with closing(Api(Cluster(**hub.cluster_of("ada")))) as api:  # type: ignore[arg-type]
        late, soon, then, runs = (waiting_lines(api, name) for name in ("late", "soon", "then", "runs"))

    assert late == ["place 18 in the line, with priority spare", FRAGMENTED, "no room"]
    assert soon == ["place 3 in the line, with priority spare", "no quota for nvidia.com/gpu\x1b[2J"]
    assert (then, runs) == (["It starts when soon has ended well."], [])


def test_a_long_line_is_cut(laptop: Laptop, hub: FakeHub) -> None:
    """Details are asked for what is shown: one list of hundreds of runs would take seconds."""
    hub.answer(LINE, {"items": [entry("soon", 2), entry("late", 17), *(entry(f"x-{n}", 20 + n) for n in range(9))]})

    done = laptop.bp("queue", "-n", "2")

    assert [line.split()[1] for line in done.stdout.splitlines()[1:4]] == ["soon", "late", "then"]
    assert "9 more wait: `bp queue -n 12` shows them, too." in done.stdout


def test_a_run_that_starts_meanwhile_is_left_out(laptop: Laptop, hub: FakeHub) -> None:
    """It is in the line, and deleted when its facts are asked for."""
    hub.answer(LINE, {"items": [entry("gone", 0), entry("soon", 2)]})

    assert [line.split()[1] for line in laptop.bp("queue").stdout.splitlines()[1:3]] == ["soon", "then"]
