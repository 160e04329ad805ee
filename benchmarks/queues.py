"""How fast the queue is: from a JobSet to its pods on machines, and with 2,000 waiting runs, on a real API server.

Kueue and JobSet are processes beside the control plane, with the product's settings; machines are kwok's. The peer is a
plain Job with as many pods in a namespace without a queue. One control plane, all on the same processors.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Namespace, Pod
from lightkube.types import CascadeType

from bedplate.kubernetes.addons import QUEUE_ADDONS, Object
from bedplate.kubernetes.queues import JOB_SET, WORKLOAD
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.queues import Queues, job_set, queue_folder
from tests.testlab.run import clock_pace, remove_credentials

MAX_BOUND_S = {8: 0.5, 64: 1.5}
QUEUED, MAX_QUEUED_S, MAX_LINE_S = 2000, 45.0, 1.0
REPEATS, MACHINES, AT_A_TIME = 5, 64, 8
_GPU = "nvidia.com/gpu"
_PATIENCE = 120.0
_NUMBERS = count(1)


def until(condition: Callable[[], object]) -> float:
    """Return the seconds until a condition is true."""
    begin = time.perf_counter()
    while not condition():
        if time.perf_counter() - begin > _PATIENCE:
            raise TimeoutError
        time.sleep(0.005)
    return time.perf_counter() - begin


def bound(client: Any, namespace: str, name: str) -> int:  # noqa: ANN401  lightkube's own type
    """Return how many pods of a run have a machine."""
    pods = client.list(Pod, namespace=namespace, labels={"bedplate/run": name})
    return sum(bool(pod.spec.nodeName) for pod in pods)


def admitted(client: Any, namespace: str) -> bool:  # noqa: ANN401
    """Return whether Kueue has admitted what is in a namespace."""
    items = [item.to_dict() for item in client.list(WORKLOAD, namespace=namespace)]
    return any(c["type"] == "Admitted" for item in items for c in (item.get("status") or {}).get("conditions") or ())


def start(client: Any, document: Object, kind: Any, pods: int) -> tuple[float, float]:  # noqa: ANN401
    """Create a run, and return the seconds until it is admitted, 0 without a queue, and its pods are bound."""
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    begin = time.perf_counter()
    client.create(kind(document) if kind is JOB_SET else kind.from_dict(document))
    wait = until(partial(admitted, client, namespace)) if kind is JOB_SET else 0.0
    until(lambda: bound(client, namespace, name) == pods)
    total = time.perf_counter() - begin
    client.delete(kind, name, namespace=namespace, cascade=CascadeType.BACKGROUND)
    until(lambda: not list(client.list(Pod, namespace=namespace)))
    if kind is JOB_SET:
        until(lambda: not list(client.list(WORKLOAD, namespace=namespace)))
    return wait, total


def plain(name: str, namespace: str, pods: int) -> Object:
    """Return a Job like that of a run."""
    template = job_set(name, namespace, pods)["spec"]["replicatedJobs"][0]["template"]
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def starts(client: Any) -> Iterator[tuple[int, float, float, float]]:  # noqa: ANN401
    """Yield pods, the medians until admission and until all are bound, and that of the peer, in turns."""
    for pods in (1, *MAX_BOUND_S):
        rows = []
        for _ in range(REPEATS):
            name = f"r{next(_NUMBERS)}"
            queued = start(client, job_set(name, "grace", pods), JOB_SET, pods)
            _, peer = start(client, plain(name, "peer", pods), Job, pods)
            rows.append((*queued, peer))
        yield pods, *(sorted(column)[REPEATS // 2] for column in zip(*rows, strict=True))


def queue_many(queues: Queues, client: Any) -> tuple[float, float]:  # noqa: ANN401
    """Create 2,000 waiting runs, and return the seconds until Kueue knows all, and those of reading the line."""
    for name in ("default", "runs"):
        for namespace in ("grace", "ada"):
            queues.plane.kubectl("delete", "quota", name, "-n", namespace)
    documents = [job_set(f"q{n}", ("grace", "ada")[n % 2], nodes=2, gpus=8, group="none") for n in range(QUEUED)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda item: client.create(JOB_SET(item)), documents))
    line = ("get", "--raw", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/fleet/pendingworkloads?limit=10000")
    while len(json.loads(queues.plane.kubectl(*line))["items"]) < QUEUED:
        time.sleep(0.5)
    total = time.perf_counter() - begin
    return total, until(lambda: queues.plane.kubectl(*line))


def memory(queues: Queues) -> str:
    """Return the memory of both controllers in MiB."""
    pids = (queues.plane.pid(name) for name in QUEUE_ADDONS)
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return ", ".join(
        f"{name} {int(text.partition('VmRSS:')[2].split()[0]) // 1024} MiB"
        for name, text in zip(QUEUE_ADDONS, texts, strict=True)
    )


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    programs = find_programs()
    if not programs:
        sys.exit("error: `python -m tests.testlab.kubernetes` builds the programs of Kubernetes")
    remove_credentials(os.environ)
    missed = False
    with ControlPlane(programs) as plane, Queues(plane, queue_folder()) as queues:
        plane.start_kwok()
        client: Any = plane.client()
        plane.add_nodes(MACHINES, {_GPU: "8"}, {"bedplate/group": "train"})
        client.create(Namespace.from_dict({"metadata": {"name": "peer"}}))
        plane.wait_for_namespace("peer")
        pace = clock_pace()
        idle = memory(queues)
        for pods, wait, total, peer in starts(client):
            limit = MAX_BOUND_S.get(pods)
            target = f" (target: {limit} s)" if limit else ""
            print(f"{pods} pods: admitted {wait:.2f} s, all bound {total:.2f} s{target}; a plain Job {peer:.2f} s")
            missed |= bool(limit and total > limit * pace)
        known, line = queue_many(queues, client)
        print(f"{QUEUED} runs known to Kueue {known:.1f} s (target: {MAX_QUEUED_S:.0f} s)")
        print(f"the whole line {line:.2f} s (target: {MAX_LINE_S:.0f} s), with kubectl")
        print(f"memory idle: {idle}; with {QUEUED}: {memory(queues)}; load {os.getloadavg()[0]:.1f}, pace {pace:.2f}")
        missed |= known > MAX_QUEUED_S * pace or line > MAX_LINE_S * pace
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
