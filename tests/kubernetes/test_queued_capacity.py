"""Queued runs and the capacity controller: Kueue, JobSet and an API server for real, with nodes that are fake."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod

from bedplate.kubernetes.client import open_cluster
from bedplate.kubernetes.lease import NAMESPACE
from bedplate.kubernetes.queued import AFTER, WAITS
from bedplate.kubernetes.queues import JOB_SET
from bedplate.operate.capacity_loop import PERIOD
from bedplate.programs.bp.cluster import Api
from bedplate.programs.bp.jobset import Cluster
from bedplate.programs.bp.queue import waiting_lines
from bedplate.spec.groups import Nodes, Rung
from roles.base import file_text
from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.fleets.sketch import with_group
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.capacity import CapacityLab, Run, capacity_lab
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.queues import Queues, job_set

PERSON, MOST = "grace", 4
COUNT, SECONDS = 2_000, 4.0
"""Waiting runs, and the time of `bp queue`, which is less than one second on a machine that does nothing else."""


@pytest.fixture
def crowd(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> Iterator[CapacityLab]:
    """Yield the lab without machines: one pool of the group `train`, in one zone. Its runs stay."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    template = next(pool for pool in lab_plan().pools if pool.group == "train" and pool.market == "on-demand")
    template = with_group(template, ladder=(Rung(region="us-west-2"),), fabric=None, nodes=Nodes(min=0, max=MOST))
    pool = replace(template, name="train-1", group="train", zones=("us-west-2a",), rung=0, min=0, max=MOST)
    with capacity_lab(queues.plane, PERSON, replace(lab_plan(), pools=(pool,))) as lab:
        yield lab
    lab.client.deletecollection(Lease, namespace=NAMESPACE)
    for node in list(lab.client.list(Node)):
        lab.client.delete(Node, str(node.metadata.name if node.metadata else ""))
    assert wait_until(lambda: not list(lab.client.list(Node)))


@pytest.fixture
def lab(crowd: CapacityLab) -> Iterator[CapacityLab]:
    """Yield the same, and delete the runs of the test."""
    yield crowd
    crowd.client.deletecollection(JOB_SET, namespace=PERSON)
    assert wait_until(lambda: not crowd.pods())


def controller(lab: CapacityLab) -> Run:
    """Return a controller with the rights of a member's, and no others."""
    lab.plane.kubectl("apply", "-f", "-", text=file_text("capacity/rights.yaml"))
    return lab.controller(identity="a", client=open_cluster(lab.plane.kubeconfig("bedplate:capacity")))


def start(
    plane: ControlPlane,
    name: str,
    nodes: int = 1,
    notes: Mapping[str, str] | None = None,
    **options: str | int | Mapping[str, Any],
) -> None:
    """Create a JobSet of the person."""
    item = job_set(name, PERSON, nodes, **cast("Any", options))
    item["metadata"]["annotations"] = dict(notes or {})
    plane.kubectl("create", "-f", "-", text=json.dumps(item))


def seen(plane: ControlPlane, name: str) -> Any:  # noqa: ANN401  an object of the API
    """Return a JobSet; empty if it is deleted."""
    done = plane.try_kubectl("get", "jobset", name, "-n", PERSON, "-o", "json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def note(plane: ControlPlane, name: str) -> str:
    """Return why a run waits, as the controller says."""
    return str(seen(plane, name)["metadata"].get("annotations", {}).get(WAITS, ""))


def access(plane: ControlPlane) -> Any:  # noqa: ANN401  as in an archive
    """Return how the person reaches the cluster."""
    token = plane.kubectl("create", "token", PERSON, "-n", "people").strip()
    script = f"echo '{json.dumps({'status': {'token': token}})}'"
    facts = {"server": plane.server, "authority": plane.authority.certificate.read_text(), "namespace": PERSON}
    return {**facts, "uid": 20001, "gids": [], "token": script}


def line(plane: ControlPlane) -> int:
    """Return how many runs wait."""
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/fleet/pendingworkloads?limit=10000"
    return len(json.loads(plane.kubectl("get", "--raw", path))["items"])


def running(lab: CapacityLab, name: str) -> int:
    """Return how many pods of a run run."""
    pods = [pod for pod in lab.pods() if pod.metadata and (pod.metadata.labels or {}).get("bedplate/run") == name]
    return sum(pod.status is not None and pod.status.phase == "Running" for pod in pods)


def rounds(run: Run, is_done: Callable[[], object], count: int = 30) -> None:
    """Run rounds of the loop, with what they write, until something is true."""
    for _ in range(count):
        if is_done():
            return
        run.loop.run_once()
        run.lab.machines.step()
        run.lab.ahead += 30.0
        time.sleep(0.5)  # Kueue, JobSet, the scheduler and kwok
    raise AssertionError("not reached")


def end(lab: CapacityLab, name: str, *, phase: str = "Succeeded") -> None:
    """Let the pods of a run end."""
    for pod in lab.pods():
        if pod.metadata and (pod.metadata.labels or {}).get("bedplate/run") == name:
            status = json.dumps({"status": {"phase": phase}})
            lab.plane.kubectl(
                "patch", "pod", str(pod.metadata.name), "-n", PERSON, "--subresource=status", "-p", status
            )


def test_a_gang_without_pods_gets_machines(lab: CapacityLab) -> None:
    """A group with no machine launches as many as the gang needs, and Kueue admits it as soon as they are nodes."""
    run = controller(lab)
    start(lab.plane, "two", 2)
    assert wait_until(lambda: run.controller.observe(lab.now()).pods)
    assert not lab.pods()

    rounds(run, lambda: running(lab, "two") == 2)

    assert lab.machines.launched == 2
    assert wait_until(lambda: not run.controller.observe(lab.now()).pods[0].queued)
    assert [pod.gang_size for pod in run.controller.observe(lab.now()).pods] == [2, 2]
    rounds(run, lambda: not note(lab.plane, "two"))


def test_a_gang_waits_for_fragmented_machines_with_a_reason(lab: CapacityLab) -> None:
    """2 x 8 GPUs where each machine has three free ones start nothing by halves; the end of two others wakes it."""
    most = {"activeDeadlineSeconds": 7200}
    run = controller(lab)
    for name in ("a", "b", "c", "d"):
        start(lab.plane, name, gpus=5, pod=most)
    rounds(run, lambda: all(running(lab, name) == 1 for name in "abcd"))

    start(lab.plane, "gang", 2)

    rounds(run, lambda: note(lab.plane, "gang"))
    sentence = note(lab.plane, "gang")
    assert sentence.startswith(f"It has no place yet: no zone has room for all 2 pods of {PERSON}/gang")
    assert f"when the time of {PERSON}/" in sentence
    assert (running(lab, "gang"), lab.machines.launched) == (0, MOST)
    for name in ("a", "b"):
        end(lab, name)
    assert wait_until(lambda: running(lab, "gang") == 2, 30), "Kueue wakes it without a round"


def test_two_gangs_never_hold_each_other(lab: CapacityLab) -> None:
    """Each needs three of four machines: one starts whole, and the other one has no pod before that ends."""
    run = controller(lab)
    for name in ("first", "second"):
        start(lab.plane, name, 3)

    rounds(run, lambda: 3 in {running(lab, "first"), running(lab, "second")})

    winner, other = sorted(("first", "second"), key=lambda name: -running(lab, name))
    for _ in range(5):
        rounds(run, lambda: True)
        assert (running(lab, winner), running(lab, other), len(lab.pods())) == (3, 0, 3)
    end(lab, winner)
    assert wait_until(lambda: running(lab, other) == 3, 30)


def test_an_ended_foreign_pod_wakes_a_gang(lab: CapacityLab) -> None:
    """A pod outside the queue is in the way; Kueue 0.18 did not look again when it had ended."""
    lab.plane.add_nodes(1, {"nvidia.com/gpu": "8"}, {"bedplate/group": "train"}, prefix="alone")
    foreign = replace(lab, namespace="default")
    foreign.add_pods(1, 8, prefix="foreign")
    assert wait_until(lambda: foreign.running() == 1)
    start(lab.plane, "gang")
    time.sleep(3)
    assert running(lab, "gang") == 0

    lab.client.delete(Pod, "foreign-0", namespace="default", grace_period=0)

    assert wait_until(lambda: running(lab, "gang") == 1, 30)


@pytest.mark.parametrize(
    ("wish", "phase", "is_started"), [("ok", "Succeeded", True), ("ok", "Failed", False), ("any", "Failed", True)]
)
def test_a_run_starts_after_another(lab: CapacityLab, wish: str, phase: str, *, is_started: bool) -> None:
    """It is held until the other has ended, needs no machine meanwhile, and is deleted if it never can start."""
    run = controller(lab)
    start(lab.plane, "former")
    start(lab.plane, "next", notes={AFTER: f"former:{wish}"}, queue="held")
    rounds(run, lambda: running(lab, "former") == 1)
    rounds(run, lambda: True)
    assert (seen(lab.plane, "next")["spec"]["suspend"], lab.machines.launched) == (True, 1)

    end(lab, "former", phase=phase)

    if is_started:
        rounds(run, lambda: running(lab, "next") == 1)
    else:
        rounds(run, lambda: not seen(lab.plane, "next"))


def test_a_person_reads_the_line(lab: CapacityLab) -> None:
    """With their own rights: place, priority and the reason of the controller and of Kueue."""
    run = controller(lab)
    for name in ("one", "two"):
        start(lab.plane, name, 2 * MOST)
    rounds(run, lambda: note(lab.plane, "two"))

    with closing(Api(Cluster(**access(lab.plane)))) as api:
        first, second = (waiting_lines(api, name) for name in ("one", "two"))

    assert first[0] == "place 1 in the line, with priority normal"
    assert second[0] == "place 2 in the line, with priority normal"
    assert second[1].startswith("It has no place yet: no zone has room for all 8 pods")


def test_many_waiting_runs_are_shown_within_a_second(crowd: CapacityLab, tmp_path: Path) -> None:
    """With the start of Python and all requests. The controller decides on all of them in one round.

    It is the last test of the module: to delete so many runs takes minutes.
    """
    people = ("ada", PERSON)
    for person in people:
        # Tests before this one need the limit of 500 runs.
        crowd.plane.kubectl("delete", "resourcequotas", "--all", "-n", person)

    def create(number: int) -> None:
        item = job_set(f"run-{number}", people[number % len(people)], 2)
        crowd.client.create(JOB_SET.from_dict(item))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(create, range(COUNT)))
    assert wait_until(lambda: line(crowd.plane) == COUNT)
    times = {}
    with FakeHub(tmp_path) as hub:
        (tmp_path / "laptop").mkdir()
        laptop = Laptop(tmp_path / "laptop", hub, sys.executable)
        laptop.set(cluster=access(crowd.plane))
        laptop.bp("queue")
        for words in (("queue",), ("queue", "--all")):
            begin = time.monotonic()
            done = laptop.bp(*words)
            times[" ".join(words)] = time.monotonic() - begin
            assert (done.returncode, len(done.stdout.splitlines())) == (0, 23), done.stderr
    run = controller(crowd)
    begin = time.monotonic()
    run.loop.run_once()
    times["a round"] = time.monotonic() - begin
    assert max(times["queue"], times["queue --all"]) < SECONDS, times
    assert times["a round"] < PERIOD, times
    assert len(run.controller.observe(crowd.now()).pods) == COUNT * 2
