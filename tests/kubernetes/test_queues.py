"""Runs of people in the queue: the add-ons kueue and jobset on a real API server, as `kube addons apply` sets them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from lightkube.resources.core_v1 import Node, Pod

from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.queues import WORKLOAD
from tests.testlab.kubernetes.control_plane import wait_until
from tests.testlab.kubernetes.queues import Queues, job_set

Document = dict[str, Any]
_GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def _empty(queues: Queues) -> Iterator[None]:
    """Delete all runs and machines of a test."""
    yield
    for name in ("grace", "ada"):
        queues.plane.kubectl("delete", "jobsets,jobs,pods", "--all", "-n", name, "--force", "--wait=false")
    queues.plane.kubectl("delete", "nodes", "--all", "--wait=false")
    assert wait_until(
        lambda: not queues.plane.kubectl("get", "jobsets,jobs,pods,nodes,workloads", "-A", "-o", "name"), 60
    )


def machines(queues: Queues, count: int, gpus: int = 8, name: str = "m", group: str = "train") -> list[str]:
    """Create machines of a group."""
    return queues.plane.add_nodes(count, {_GPU: str(gpus)}, {"bedplate/group": group}, prefix=name)


def send(queues: Queues, name: str, namespace: str = "grace", **fields: Any) -> None:  # noqa: ANN401
    """Create a run."""
    text = json.dumps(job_set(name, namespace, **fields))
    queues.plane.kubectl("create", "-f", "-", text=text)


def running(queues: Queues, name: str, namespace: str = "grace") -> int:
    """Return how many pods of a run run."""
    pods: Any = queues.plane.client().list(Pod, namespace=namespace, labels={"bedplate/run": name})
    return sum(pod.status.phase == "Running" and not pod.metadata.deletionTimestamp for pod in pods)


def workload(queues: Queues, name: str, namespace: str = "grace") -> Document:
    """Return the Workload of a run; empty before it exists."""
    for item in queues.plane.client().list(WORKLOAD, namespace=namespace):
        if any(owner.name == name for owner in item.metadata.ownerReferences or ()):
            return dict(item.to_dict())
    return {}


def reason(queues: Queues, name: str, namespace: str = "grace") -> str:
    """Return why a run waits, by Kueue's condition."""
    conditions = workload(queues, name, namespace).get("status", {}).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False"), "")


def finish(queues: Queues, name: str, namespace: str = "grace", phase: str = "Succeeded") -> None:
    """End the pods of a run, as kubelet reports it."""
    for pod in queues.plane.client().list(Pod, namespace=namespace, labels={"bedplate/run": name}):
        assert pod.metadata
        patch = json.dumps({"status": {"phase": phase}})
        queues.plane.kubectl(
            "patch",
            "pod",
            str(pod.metadata.name),
            "-n",
            namespace,
            "--subresource=status",
            "--type=merge",
            f"-p={patch}",
        )


def plain_pod(queues: Queues, name: str, machine: str, gpus: int) -> None:
    """Create a pod of the cluster itself, outside the queue, on a machine."""
    container = {"name": "c", "image": "none", "resources": {"limits": {_GPU: str(gpus)}}}
    spec = {"containers": [container], "nodeName": machine}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    queues.plane.kubectl("create", "-f", "-", text=json.dumps(pod))


@contextmanager
def without(queues: Queues, *names: str) -> Iterator[None]:
    """Kill controllers, and start them again at the end."""
    for name in names:
        queues.kill(name)
    yield
    for name in names:
        queues.start(name)


def test_a_second_apply_changes_nothing(queues: Queues) -> None:
    """What controllers add to the objects, such as certificates and status, is no difference."""
    applied = apply_objects(ClusterClient(queues.plane.client()), queues.objects)

    assert (applied.changed, applied.deleted, applied.failures) == ((), (), ())


def test_a_run_of_several_machines_has_names_and_indices(queues: Queues) -> None:
    """Pods of a run are `<name>-n-0-<k>` with the host names of the headless Service, one a machine."""
    machines(queues, 2)

    send(queues, "pair", nodes=2)

    assert wait_until(lambda: running(queues, "pair") == 2, 30)
    pods = list(queues.plane.client().list(Pod, namespace="grace", labels={"bedplate/run": "pair"}))
    assert {pod.spec.hostname for pod in pods if pod.spec} == {"pair-n-0-0", "pair-n-0-1"}
    assert {pod.spec.subdomain for pod in pods if pod.spec} == {"pair"}
    assert len({pod.spec.nodeName for pod in pods if pod.spec}) == 2
    assert queues.plane.kubectl("get", "service", "pair", "-n", "grace", "-o", "jsonpath={.spec.clusterIP}") == "None"


def test_a_gang_waits_whole_and_says_why(queues: Queues) -> None:
    """Two machines with half of their GPUs free have room for 8 GPUs, but not for one pod of 8: no pod starts."""
    for machine in machines(queues, 2):
        plain_pod(queues, f"half-{machine}", machine, 4)

    send(queues, "gang", nodes=2)

    assert wait_until(lambda: "topology" in reason(queues, "gang"), 30)
    assert running(queues, "gang") == 0


def test_a_gang_starts_when_pods_outside_the_queue_end(queues: Queues) -> None:
    """Kueue notices free GPUs within seconds, although it has not placed the pods that used them."""
    for machine in machines(queues, 2):
        plain_pod(queues, f"half-{machine}", machine, 4)
    send(queues, "gang", nodes=2)
    assert wait_until(lambda: reason(queues, "gang"), 30)

    queues.plane.kubectl("delete", "pods", "--all", "-n", "default", "--force")

    assert wait_until(lambda: running(queues, "gang") == 2, 30)


def test_a_gang_starts_when_machines_join(queues: Queues) -> None:
    """A group without machines has its quota: the run waits for what capacity starts."""
    machines(queues, 1)
    send(queues, "gang", nodes=2)
    assert wait_until(lambda: reason(queues, "gang"), 30)
    assert running(queues, "gang") == 0

    machines(queues, 1, name="late")

    assert wait_until(lambda: running(queues, "gang") == 2, 30)


def test_two_gangs_never_hold_half_of_each_other(queues: Queues) -> None:
    """Two gangs for the same two machines run one after the other."""
    machines(queues, 2)

    send(queues, "first", nodes=2)
    send(queues, "second", "ada", nodes=2)

    assert wait_until(lambda: running(queues, "first") + running(queues, "second", "ada") == 2, 30)
    assert not wait_until(lambda: 0 < running(queues, "first") < 2 or 0 < running(queues, "second", "ada") < 2, 3)
    winner, place = ("first", "grace") if running(queues, "first") else ("second", "ada")
    finish(queues, winner, place)
    loser, other = ("second", "ada") if winner == "first" else ("first", "grace")
    assert wait_until(lambda: running(queues, loser, other) == 2, 30)


def test_spare_runs_make_way_and_come_back(queues: Queues) -> None:
    """A normal run ends a spare one, which waits and runs again afterwards."""
    machines(queues, 1)
    send(queues, "spare", priority="spare")
    assert wait_until(lambda: running(queues, "spare") == 1, 30)

    send(queues, "now", "ada")

    assert wait_until(lambda: running(queues, "now", "ada") == 1 and running(queues, "spare") == 0, 30)
    finish(queues, "now", "ada")
    assert wait_until(lambda: running(queues, "spare") == 1, 30)


def test_interactive_runs_end_no_normal_run(queues: Queues) -> None:
    """A normal run keeps its machine; the interactive run waits."""
    machines(queues, 1)
    send(queues, "normal")
    assert wait_until(lambda: running(queues, "normal") == 1, 30)

    send(queues, "notebook", "ada", gpus=1, priority="interactive", job={"activeDeadlineSeconds": 3600})

    assert wait_until(lambda: reason(queues, "notebook", "ada"), 30)
    assert not wait_until(lambda: running(queues, "normal") == 0, 3)


def test_interactive_runs_are_first_and_spare_ones_last(queues: Queues) -> None:
    """The next machine goes to an interactive run, although its person used GPUs, then to normal ones, then spare."""
    machines(queues, 1)
    send(queues, "busy")
    assert wait_until(lambda: running(queues, "busy") == 1, 30)
    send(queues, "spare", priority="spare")
    send(queues, "normal")
    send(queues, "notebook", priority="interactive", job={"activeDeadlineSeconds": 3600})
    order = ["notebook", "normal", "spare"]
    assert wait_until(lambda: all(workload(queues, name) for name in order), 30)

    for before, name in zip(["busy", *order], order, strict=False):
        finish(queues, before)
        assert wait_until(partial(running, queues, name), 30), name


def test_held_runs_do_not_start(queues: Queues) -> None:
    """A run in the queue `held` waits until its queue is changed."""
    machines(queues, 1)
    send(queues, "later", queue="held")
    assert wait_until(lambda: workload(queues, "later"), 30)
    assert not wait_until(lambda: running(queues, "later"), 3)

    queues.plane.kubectl("label", "jobset", "later", "-n", "grace", "kueue.x-k8s.io/queue-name=default", "--overwrite")

    assert wait_until(lambda: running(queues, "later") == 1, 30)


def test_a_job_without_a_queue_waits_too(queues: Queues) -> None:
    """A Job of kubectl is in the line of its person: the queue is not voluntary."""
    job = job_set("x", "grace")["spec"]["replicatedJobs"][0]["template"]
    text = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain", "namespace": "grace"}, **job}
    text["metadata"] = {"name": "plain", "namespace": "grace"}

    queues.plane.kubectl("create", "-f", "-", text=json.dumps(text))

    assert wait_until(lambda: workload(queues, "plain").get("spec", {}).get("queueName") == "default", 30)
    machines(queues, 1)
    assert wait_until(lambda: running(queues, "x") == 1, 30)


def test_plain_pods_start_while_both_controllers_are_dead(queues: Queues) -> None:
    """A dead Kueue and JobSet refuse Jobs and JobSets of people only."""
    machines(queues, 1)
    container = {"name": "c", "image": "none", "securityContext": {"capabilities": {"drop": ["ALL"]}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    with without(queues, "kueue", "jobset"):
        for place in ("grace", "kube-system"):
            queues.plane.kubectl("create", "-n", place, "-f", "-", text=json.dumps(pod))
        refused = queues.plane.try_kubectl("create", "-f", "-", text=json.dumps(job_set("no", "grace")))
        assert "failed calling webhook" in refused.stderr
    queues.plane.kubectl("delete", "pod", "p", "-n", "kube-system", "--force")
    send(queues, "after", gpus=1)
    assert wait_until(lambda: running(queues, "after") == 1, 60)


@pytest.mark.parametrize("name", ["kueue", "jobset"])
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.4])
def test_a_killed_controller_loses_no_run(queues: Queues, name: str, delay: float) -> None:
    """Each run that was accepted before the kill gets all its machines after the start, whatever was half written.

    Kueue 0.19.1 may give the machines of a run a second time while it starts, and takes them back later.
    """
    machines(queues, 4)
    for number in range(2):
        send(queues, f"run{number}", nodes=2)
    wait_until(lambda: False, delay)

    with without(queues, name):
        pass

    assert wait_until(lambda: [running(queues, f"run{number}") for number in range(2)] == [2, 2], 90)


def test_a_lowered_quota_ends_no_run(queues: Queues) -> None:
    """What runs beyond a new maximum ends by itself; what waits stays waiting."""
    machines(queues, 2)
    send(queues, "pair", nodes=2)
    assert wait_until(lambda: running(queues, "pair") == 2, 30)
    client = ClusterClient(queues.plane.client())

    apply_objects(client, [_with_gpus(item, 8) for item in queues.objects])
    try:
        send(queues, "next", "ada")
        assert wait_until(lambda: "insufficient" in reason(queues, "next", "ada"), 30)
        assert running(queues, "pair") == 2
    finally:
        apply_objects(client, queues.objects)


def _with_gpus(item: Document, count: int) -> Document:
    if item["kind"] != "ClusterQueue":
        return item
    copy: Document = json.loads(json.dumps(item))
    for flavour in copy["spec"]["resourceGroups"][0]["flavors"]:
        flavour["resources"][2]["nominalQuota"] = str(count)
    return copy


def test_a_cordoned_machine_gets_no_run(queues: Queues) -> None:
    """Kueue places nothing on a machine that is cordoned, or that has not passed its gate."""
    first, second = machines(queues, 2)
    queues.plane.kubectl("cordon", first)
    queues.plane.kubectl("taint", "node", second, "bedplate/gate=pending:NoSchedule")

    send(queues, "one")

    assert wait_until(lambda: reason(queues, "one"), 30)
    queues.plane.kubectl("taint", "node", second, "bedplate/gate-")
    assert wait_until(lambda: running(queues, "one") == 1, 30)
    assert {node.metadata.name for node in queues.plane.client().list(Node) if node.metadata} == {first, second}


def test_people_see_the_line(queues: Queues) -> None:
    """A person reads their own places and, as on machines without a cluster, those of everybody."""
    send(queues, "one")
    send(queues, "two", "ada")
    token = queues.plane.kubectl("create", "token", "grace", "-n", "people").strip()
    api = "/apis/visibility.kueue.x-k8s.io/v1beta2"

    def places(path: str) -> list[str]:
        _, output = queues.plane.as_person(token, "get", "--raw", f"{api}{path}/pendingworkloads")
        return (
            [item["metadata"]["name"] for item in json.loads(output)["items"]] if output.startswith("{") else [output]
        )

    assert wait_until(lambda: len(places("/clusterqueues/fleet")) == 2, 30)
    (own,) = places("/namespaces/grace/localqueues/default")
    assert own.startswith("jobset-one")
    assert "forbidden" in places("/namespaces/ada/localqueues/default")[0]


@pytest.fixture(scope="module")
def grace(queues: Queues) -> Callable[..., str]:
    """Return kubectl of a researcher in her namespace."""
    token = queues.plane.kubectl("create", "token", "grace", "-n", "people").strip()
    return lambda *words, text="": queues.plane.as_person(token, *words, "-n", "grace", text=text)[1]


def _owned(kind: str, uid: str) -> Document:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "first",
        "uid": uid,
        "controller": True,
    }
    run = job_set("x", "grace", queue="default")
    if kind == "JobSet":
        return {**run, "metadata": {**run["metadata"], "ownerReferences": [owner]}}
    template = run["spec"]["replicatedJobs"][0]["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", **template, "metadata": {"name": "x", "ownerReferences": [owner]}}


def _template(kind: str) -> Document:
    spec = job_set("x", "grace")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**spec, "restartPolicy": "Always"}}
    body = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "x"}
    if kind != "StatefulSet":
        del body["serviceName"]
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": body}


def _labelled(**labels: str) -> Document:
    run = job_set("x", "grace")
    return {**run, "metadata": {**run["metadata"], "labels": {f"kueue.x-k8s.io/{k}": v for k, v in labels.items()}}}


def _cron_job(**labels: str) -> Document:
    """Return a CronJob whose Jobs have 64 GPUs and an hour; its controller, not its person, creates them."""
    job = job_set("x", "grace", nodes=8, job=_HOUR)["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"metadata": {"labels": labels}, "spec": job}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "x"}, "spec": spec}


_HOUR = {"activeDeadlineSeconds": 3600}
_SIDECAR = {
    "name": "s",
    "image": "none",
    "restartPolicy": "Always",
    "securityContext": {"capabilities": {"drop": ["ALL"]}},
    "resources": {"limits": {_GPU: "8"}},
}
_BY_QUEUE = "GPUs are shared by the queue: use `bp run`"
_REFUSED: dict[str, tuple[Document, str]] = {
    "pod": (_template("Pod"), _BY_QUEUE),
    "Deployment": (_template("Deployment"), _BY_QUEUE),
    "StatefulSet": (_template("StatefulSet"), _BY_QUEUE),
    "DaemonSet": (_template("DaemonSet"), _BY_QUEUE),
    "ReplicaSet": (_template("ReplicaSet"), _BY_QUEUE),
    "own Workload": (_labelled(**{"prebuilt-workload-name": "y"}), "prebuilt-workload-name"),
    "no such priority": (_labelled(**{"priority-class": "high"}), "write interactive, normal or spare"),
    "no such queue": (_labelled(**{"queue-name": "other"}), "no queue named other"),
    "queue of another priority": (
        _labelled(**{"queue-name": "interactive"}),
        "no queue named interactive for priority normal",
    ),
    "interactive with 16": (job_set("x", "grace", nodes=2, priority="interactive", job=_HOUR), "at most 8 GPUs"),
    "interactive for days": (
        job_set("x", "grace", priority="interactive", job={"activeDeadlineSeconds": 86400}),
        "4 hours",
    ),
    "interactive for ever": (job_set("x", "grace", gpus=1, priority="interactive"), "4 hours"),
    "interactive pod for ever": (
        job_set("x", "grace", gpus=1, priority="interactive", pod={"activeDeadlineSeconds": 99999}),
        "4 hours",
    ),
    "interactive with GPUs of sidecars": (
        job_set("x", "grace", nodes=8, gpus=1, priority="interactive", job=_HOUR, pod={"initContainers": [_SIDECAR]}),
        "at most 8 GPUs",
    ),
    "interactive by a CronJob": (_cron_job(**{"kueue.x-k8s.io/priority-class": "interactive"}), "at most 8 GPUs"),
    "own Workload by a CronJob": (
        _cron_job(**{"kueue.x-k8s.io/prebuilt-workload-name": "y"}),
        "prebuilt-workload-name",
    ),
    "more pods than a namespace has": (job_set("x", "grace", nodes=501), "at most 500 pods"),
    "Workload": (
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "x"},
            "spec": {"podSets": []},
        },
        "forbidden",
    ),
    "LocalQueue": (
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "x"},
            "spec": {"clusterQueue": "fleet"},
        },
        "forbidden",
    ),
}


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_nobody_adds_to_an_admitted_run(queues: Queues, grace: Callable[..., str], kind: str) -> None:
    """Kueue takes a Job with the owner of another for a part of it, whose GPUs it has counted already."""
    send(queues, "first")
    uid = queues.plane.kubectl("get", "jobset", "first", "-n", "grace", "-o", "jsonpath={.metadata.uid}")

    assert "delete ownerReferences" in grace("create", "-f", "-", text=json.dumps(_owned(kind, uid)))


@pytest.mark.parametrize(("document", "message"), _REFUSED.values(), ids=_REFUSED)
def test_what_passes_by_the_queue_is_refused(grace: Callable[..., str], document: Document, message: str) -> None:
    """A researcher gets a sentence that says what to write instead."""
    assert message in grace("create", "-f", "-", text=json.dumps(document))


def test_people_start_no_waiting_run(queues: Queues, grace: Callable[..., str]) -> None:
    """Neither a JobSet nor its Job is started by its person, and nobody writes a Workload or a weight."""
    send(queues, "wait")
    jobs = ("get", "jobs", "-n", "grace", "-o", "name")
    assert wait_until(lambda: queues.plane.kubectl(*jobs), 30)
    start = '-p={"spec": {"suspend": false}}'

    for name in ("jobset/wait", "job/wait-n-0"):
        assert "the queue starts it" in grace("patch", name, "--type=merge", start)
    name = workload(queues, "wait")["metadata"]["name"]
    assert "forbidden" in grace("patch", f"workload/{name}", "--type=merge", '-p={"spec": {"priority": 9}}')
    weight = '-p={"spec": {"fairSharing": {"weight": "9"}}}'
    assert "forbidden" in grace("patch", "localqueue/default", "--type=merge", weight)
    late = '-p={"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "interactive"}}}'
    assert "4 hours" in grace("patch", "jobset/wait", "--type=merge", late)


def test_an_admitted_run_gets_no_more_pods(queues: Queues, grace: Callable[..., str]) -> None:
    """Kueue has counted the pods of a JobSet, and looks at none of its Jobs."""
    machines(queues, 2)
    send(queues, "one")
    assert wait_until(lambda: running(queues, "one") == 1, 30)

    more = '-p={"spec": {"parallelism": 2, "completions": 2}}'

    assert "its JobSet says how many pods it has" in grace("patch", "job/one-n-0", "--type=merge", more)
    assert "annotated" in grace("annotate", "job/one-n-0", "a=b")


def test_cron_jobs_are_paused_and_go_on(grace: Callable[..., str]) -> None:
    """`suspend` of a CronJob is its person's; its Jobs wait in the queue."""
    assert "created" in grace("create", "-f", "-", text=json.dumps(_cron_job()))

    assert "patched" in grace("patch", "cronjob/x", "--type=merge", '-p={"spec": {"suspend": false}}')
    assert "deleted" in grace("delete", "cronjob/x")


def test_people_run_and_stop_their_own(queues: Queues, grace: Callable[..., str]) -> None:
    """A researcher creates, changes and deletes JobSets of her namespace only."""
    machines(queues, 1)

    assert "created" in grace("create", "-f", "-", text=json.dumps(job_set("mine", "grace")))
    assert wait_until(lambda: running(queues, "mine") == 1, 30)
    assert "annotated" in grace("annotate", "jobset/mine", "bedplate/after=x")
    assert "deleted" in grace("delete", "jobset/mine")
    other = queues.plane.try_kubectl(
        "auth", "can-i", "create", "jobsets", "-n", "ada", "--as=system:serviceaccount:people:grace"
    )
    assert other.stdout.strip() == "no"


def test_the_runs_of_a_removed_person_end(queues: Queues) -> None:
    """A hundred waiting runs of somebody who has left are deleted, and no machine is held for them."""
    texts = "\n---\n".join(json.dumps(job_set(f"r{number}", "ada", gpus=1)) for number in range(100))
    queues.plane.kubectl("create", "-f", "-", text=texts)
    client = ClusterClient(queues.plane.client())
    left = [item for item in queues.objects if item["metadata"].get("namespace", item["metadata"]["name"]) != "ada"]
    left = [item for item in left if item["metadata"]["name"] != "ada"]

    apply_objects(client, left)

    try:
        found = ("get", "jobsets,workloads", "-n", "ada", "-o", "name")
        assert wait_until(lambda: not queues.plane.kubectl(*found), 60)
    finally:
        apply_objects(client, queues.objects)
        queues.plane.kubectl("delete", "quota", "default", "-n", "ada")
        apply_objects(client, queues.objects)


def test_the_queue_is_deleted_before_its_controller(queues: Queues) -> None:
    """A fleet whose section `jobs` was deleted has no queue any more; the types stay, with the runs of people."""
    client = ClusterClient(queues.plane.client())
    parts = {"queues", "kueue", "jobset"}

    applied = apply_objects(
        client, [i for i in queues.objects if i["metadata"]["labels"]["bedplate/addon"] not in parts]
    )
    try:
        assert "ClusterQueue fleet" in map(str, applied.deleted)
        assert "CustomResourceDefinition jobsets.jobset.x-k8s.io" in map(str, applied.kept)
        assert "No resources" in queues.plane.try_kubectl("get", "clusterqueues,resourceflavors").stderr
    finally:
        apply_objects(client, queues.objects)
