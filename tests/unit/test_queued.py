"""Queued work: what its Workloads add to an observation, why it waits, and runs that follow others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from lightkube.resources.core_v1 import Pod

from bedplate.capacity.observation import Observation, SetDesired, Size
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.room import room_at
from bedplate.kubernetes.demand import Cluster, join
from bedplate.kubernetes.queued import followers
from bedplate.report.capacity_state import CapacityState, explain_pod
from bedplate.report.queue import queued_work, wait_sentences
from tests.testlab.kubernetes.memory import MINUTE, NOW, TRAIN, ClusterWorld, cluster_pod, stamp

JOBSET_LABEL, PART_LABEL = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"


def workload(  # noqa: PLR0913  what tests vary
    name: str = "ada-run",
    count: int = 2,
    *,
    kind: str = "JobSet",
    conditions: Sequence[Mapping[str, str]] = (),
    gpus: int = 8,
    status: Mapping[str, Any] | None = None,
    **spec: object,
) -> dict[str, Any]:
    """Return a Workload as Kueue makes it for a JobSet of bp: one set of equal pods."""
    container = {"name": "run", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "4"}}}
    template = {"metadata": {"labels": {"bedplate/run": name}}, "spec": {"containers": [container]}}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": kind, "name": name, "uid": name, "controller": True}
    part = "n" if kind == "JobSet" else "main"
    return {
        "metadata": {
            "name": f"jobset-{name}-1",
            "namespace": "lab",
            "creationTimestamp": stamp(NOW - 5 * MINUTE),
            "ownerReferences": [owner],
        },
        "spec": {"queueName": "default", "podSets": [{"name": part, "count": count, "template": template}], **spec},
        "status": {"conditions": list(conditions), **(status or {})},
    }


def refused(reason: str, message: str) -> Mapping[str, str]:
    """Return the condition of a Workload without quota."""
    return {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}


def own_pod(name: str, node: str | None = None, **options: Any) -> Pod:  # noqa: ANN401
    """Return a pod of the JobSet `ada-run`."""
    labels = {JOBSET_LABEL: "ada-run", PART_LABEL: "n"}
    return cluster_pod(name, node, owner="Job", gpus=8, cpus=4, labels=labels, **options)


def observe(workloads: Sequence[object], pods: Sequence[Pod] = (), world: ClusterWorld | None = None) -> Observation:
    """Return the observation of a cluster whose only pool is one of machines with eight GPUs."""
    world = world or ClusterWorld([TRAIN])
    cloud = Observation(NOW, machines=tuple(world.machines), pools=tuple(world.pools))
    return join(Cluster(pods, world.nodes, {}, NOW, workloads=workloads), cloud)


def test_work_in_a_queue_is_pending_pods() -> None:
    """One for each that its Workload asks for, in a gang of all, with its size, arrival and labels."""
    first, second = observe([workload()]).pods

    assert (first.id, second.id) == ("lab/ada-run/0", "lab/ada-run/1")
    assert (first.gang, first.gang_size, first.queued, first.node) == ("lab/ada-run", 2, True, None)
    assert (first.size, first.arrival, first.owner) == (Size(gpus=8, cpus=4.0), NOW - 5 * MINUTE, "lab/JobSet/ada-run")
    assert first.unsupported == ""


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        (workload(active=False), 0),
        (workload(queueName="held"), 0),
        (workload(conditions=[{"type": "Finished", "status": "True"}]), 0),
        (workload(conditions=[{"type": "QuotaReserved", "status": "True"}]), 2),
        (workload(conditions=[{"type": "Evicted", "status": "True"}, refused("Pending", "preempted")]), 2),
        (workload(status={"reclaimablePods": [{"name": "n", "count": 1}]}), 1),
        (workload(kind="Other"), 0),
    ],
    ids=["inactive", "held", "finished", "admitted", "evicted", "one is done", "of a foreign kind"],
)
def test_work_counts_while_it_can_have_pods(changed: Mapping[str, Any], count: int) -> None:
    """Work that waits for another run, or is over, needs no machine; what is admitted or evicted does."""
    assert len(observe([changed]).pods) == count


def test_work_that_is_being_deleted_does_not_count() -> None:
    """Its finalizer keeps the Workload for a while."""
    deleted = workload()
    deleted["metadata"]["deletionTimestamp"] = stamp(NOW)

    assert not observe([deleted]).pods


def test_no_pod_counts_twice() -> None:
    """Those that exist count themselves; those that Kueue holds back by its gate, have ended or end are made up for."""
    world = ClusterWorld([TRAIN])
    node = world.add_node(TRAIN)
    gate = [{"name": "kueue.x-k8s.io/topology"}]
    pods = [own_pod("a", node), own_pod("b", schedulingGates=gate), own_pod("c", node, deleted=NOW)]

    seen = observe([workload(count=3)], pods, world)

    counted = sorted(pod.id for pod in seen.pods if not pod.deleted)
    assert counted == ["lab/a", "lab/ada-run/0", "lab/ada-run/1"]
    assert {pod.gang_size for pod in seen.pods} == {4}
    bound = [own_pod("a", node), own_pod("b")]
    assert sorted(pod.id for pod in observe([workload()], bound, world).pods) == ["lab/a", "lab/b"]


def test_pods_of_a_plain_job_are_found_by_its_name() -> None:
    """They have no label of a JobSet, and are no gang."""
    pod = cluster_pod("x", owner="Job", gpus=8, labels={"batch.kubernetes.io/job-name": "ada-run"})

    seen = observe([workload(kind="Job")], [pod]).pods

    assert sorted(pod.id for pod in seen) == ["lab/ada-run/0", "lab/x"]
    assert {pod.gang for pod in seen} == {None}


def test_elements_of_an_array_are_no_gang() -> None:
    """They need neither one zone nor a place for all at once."""
    array = workload(count=2)
    array["spec"]["podSets"][0]["template"]["metadata"]["labels"]["bedplate/gang"] = ""

    assert {pod.gang for pod in observe([array]).pods} == {None}


def test_a_run_on_one_machine_needs_no_single_zone() -> None:
    """A gang of one starts a machine of a pool with several zones; a gang of two does not."""
    several = replace(TRAIN, zones=("us-west-2a", "us-west-2b"))
    seen = replace(observe([workload(count=1)]), pools=(several,))
    gang = replace(observe([workload(count=2)]), pools=(several,))

    assert [type(action) for action in decide(seen, Memory())[0].actions] == [SetDesired]
    assert not decide(gang, Memory())[0].actions


@pytest.mark.parametrize("reason", ["Inadmissible", "Misconfigured", "ExceedsMaxQuota"])
def test_work_that_is_never_admitted_starts_no_machine(reason: str) -> None:
    """A machine would stand empty: the reason is Kueue's."""
    seen = observe([workload(conditions=[refused(reason, "LocalQueue x doesn't exist")])])

    decision, _ = decide(seen, Memory())

    assert not decision.actions
    assert {one.reason for one in decision.unplaced} == {"its queue does not admit it: LocalQueue x doesn't exist"}


def test_one_person_asks_for_no_more_pods_than_may_run() -> None:
    """A count of a billion neither fills the memory of the controller nor keeps the work of others back."""
    endless, many = workload("endless", 10**9), [workload(f"run-{number}", 1) for number in range(600)]
    other = workload("other")
    other["metadata"]["namespace"] = "grace"

    seen = observe([endless, *many, other]).pods

    assert Counter(pod.id.partition("/")[0] for pod in seen) == {"lab": 500, "grace": 2}


def test_what_the_planner_cannot_compare_starts_no_machine() -> None:
    """An unknown resource stays unknown, also before the pod exists."""
    unknown = workload(count=1)
    limits = unknown["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/mig-1g.10gb"] = "1"

    decision, _ = decide(observe([unknown]), Memory())

    assert not decision.actions
    assert "mig-1g.10gb" in decision.unplaced[0].reason


def test_machines_are_launched_for_queued_work() -> None:
    """As many as it needs at once, and the sentence for its owner says so."""
    seen = observe([workload()])

    decision, _ = decide(seen, Memory())

    assert [action.count for action in decision.actions if isinstance(action, SetDesired)] == [2]
    sentences = wait_sentences(seen, decision)
    assert sentences == {"lab/JobSet/ada-run": "It has a place: a machine of train is launched next."}


def test_a_gang_waits_for_fragmented_machines_with_a_reason() -> None:
    """Two machines with four free GPUs each have no room for 2 x 8; the end of others says when they have."""
    full = replace(TRAIN, max=2)
    world = ClusterWorld([full])
    nodes = [world.add_node(full) for _ in range(2)]
    limits = (3600, 7200)
    others = [
        cluster_pod(f"other-{number}", node, owner="Job", gpus=4, cpus=4, activeDeadlineSeconds=limits[number])
        for number, node in enumerate(nodes)
    ]
    for pod in others:
        pod.status = cast("Any", Pod.from_dict({"status": {"phase": "Running", "startTime": stamp(NOW - 600)}})).status
    seen = observe([workload()], others, world)

    decision, _ = decide(seen, Memory())

    assert not [action for action in decision.actions if isinstance(action, SetDesired) and action.count > 2]
    (sentence,) = wait_sentences(seen, decision).values()
    assert sentence.startswith("It has no place yet: no zone has room for all 2 pods of lab/ada-run: train: ")
    end = f"{stamp(NOW + 6600)[11:16]} UTC at the latest, when the time of lab/other-1 is over"
    assert f"Machines that run have room for it at {end}, if no other work takes it." in sentence


def test_an_unknown_start_is_said() -> None:
    """Pods without a limit of their time say nothing about their end."""
    full = replace(TRAIN, max=1)
    world = ClusterWorld([full])
    node = world.add_node(full)
    seen = observe([workload(count=1)], [cluster_pod("other", node, owner="Job", gpus=8)], world)

    decision, _ = decide(seen, Memory())

    (sentence,) = wait_sentences(seen, decision).values()
    assert "at its maximum of 1" in sentence
    assert "Its start is unknown: what runs has no end that would make enough room." in sentence
    assert room_at(queued_work(seen)["lab/JobSet/ada-run"], seen) is None


def test_operators_read_the_same_explanation() -> None:
    """`capacity explain` has the sentences of the owner, and what the queue says."""
    full = replace(TRAIN, max=1)
    world = ClusterWorld([full])
    node = world.add_node(full)
    waiting = workload(count=1, conditions=[refused("Pending", "no topology domain")])
    seen = observe([waiting], [cluster_pod("other", node, owner="Job", gpus=8)], world)
    pod = next(pod for pod in seen.pods if pod.queued)

    lines = list(explain_pod(CapacityState(seen, decide(seen, Memory())[0]), pod))

    assert lines[0] == "lab/ada-run/0 waits for 5 min. It asks for 8 GPUs, 4 CPUs."
    assert "Its start is unknown: what runs has no end that would make enough room." in lines
    assert "Its queue says: no topology domain" in lines


def jobset(run: str, *, after: str = "", queue: str = "default", end: str = "") -> dict[str, Any]:
    """Return a JobSet of bp."""
    labels = {"bedplate/run": run, "kueue.x-k8s.io/queue-name": queue}
    notes = {"bedplate/after": after} if after else {}
    metadata = {"name": run.replace("_", "-"), "labels": labels, "annotations": notes}
    return {"metadata": metadata, "status": {"terminalState": end} if end else {}}


@pytest.mark.parametrize(
    ("after", "former", "expected"),
    [
        ("a_b-1:ok", jobset("a_b-1"), []),
        ("a_b-1:any", jobset("a_b-1"), []),
        ("a_b-1:ok", jobset("a_b-1", end="Completed"), [("next", True)]),
        ("a_b-1:ok", jobset("a_b-1", end="Failed"), [("next", False)]),
        ("a_b-1:any", jobset("a_b-1", end="Failed"), [("next", True)]),
        ("a_b-1:any", jobset("other"), [("next", True)]),
        ("a_b-1:ok", jobset("other"), [("next", False)]),
    ],
    ids=["ok runs", "any runs", "ok", "failed", "any", "deleted, any", "deleted, ok"],
)
def test_a_run_follows_another(after: str, former: Mapping[str, Any], expected: object) -> None:
    """It starts when the other one has ended as it was asked for, and is deleted if it never can."""
    assert list(followers([former, jobset("next", after=after, queue="held")])) == expected


def test_a_run_that_is_not_held_follows_nothing() -> None:
    """Its annotation is left from before, or somebody has written it."""
    assert not list(followers([jobset("next", after="gone:ok")]))
