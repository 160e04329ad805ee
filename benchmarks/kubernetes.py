"""How long a worker takes to become a node, how soon it leaves, and the status of a large cluster.

The peer of the first is kubelet alone with the same settings on the same machine: it asks for its certificate with a
bootstrap token of kubeadm, and the cluster approves without a question, as after `kubeadm join`. What runs before that,
a bundle and its roles, is measured by `first_boot.py`. The peer of the last is kubectl. Images are present.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.status import read_status
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.fleet import ControlPlaneMember
from bedplate.programs.worker.__main__ import PAUSE, Agent
from bedplate.programs.worker.machine import KUBECONFIG
from roles.kubernetes.role import CLUSTER_CA
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joined_node import CASES, Running, cluster, is_ready, machine
from tests.testlab.kubernetes.joining import Approvers
from tests.testlab.run import clock_pace, remove_credentials

MAX_JOIN_S, MAX_DECISION_S, MAX_STATUS_S = 20, 1.0, 2.0
NODES, NOTICES, RUNS = 1000, 10, 3
_GROUP = "system:bootstrappers:bench"
_ROLES = ("system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient")


def seconds(work: Callable[[], object]) -> float:
    """Return the elapsed seconds of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def start_alone(running: Running) -> None:
    """Start kubelet with a bootstrap token, and wait until the node is ready."""
    plane, root = running.approvers.plane, running.machine.root
    token = plane.kubeadm("token", "create", "--usages", "authentication", "--groups", _GROUP).strip()
    config = root / "bootstrap.kubeconfig"
    place = ("--kubeconfig", str(config))
    authority = f"--certificate-authority={plane.authority.certificate}"
    plane.kubectl("config", "set-cluster", "c", f"--server={plane.server}", authority, *place)
    plane.kubectl("config", "set-credentials", "u", f"--token={token}", *place)
    plane.kubectl("config", "set-context", "x", "--cluster=c", "--user=u", *place)
    plane.kubectl("config", "use-context", "x", *place)
    running.machine.start_kubelet(plane.programs, f"--bootstrap-kubeconfig={config}")
    assert wait_until(lambda: is_ready(running), 90), running.machine.log("kubelet")


def join_alone(approvers: Approvers, root: Path) -> float:
    """Return the seconds from the start of kubelet to a ready node, without bedplate."""
    for role in _ROLES:
        approvers.plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--group={_GROUP}")
    with machine(approvers, CASES["pool"], root) as running:
        running.machine.write_settings(running.metadata)
        authority = root / CLUSTER_CA.lstrip("/")
        authority.parent.mkdir(parents=True, exist_ok=True)
        authority.write_bytes(approvers.plane.authority.certificate.read_bytes())
        (root / KUBECONFIG).parent.mkdir(parents=True, exist_ok=True)
        elapsed = seconds(lambda: start_alone(running))
    approvers.plane.kubectl("delete", "node", CASES["pool"].name)
    return elapsed


def join_and_leave(approvers: Approvers, root: Path) -> tuple[float, list[float]]:
    """Return the seconds from kubelet's settings to a ready node, and those from notices to the first request."""
    with machine(approvers, CASES["pool"], root) as running:
        elapsed = seconds(running.join)
        running.agent.step()
        return elapsed, [decision(running) for _ in range(NOTICES)]


def decision(running: Running) -> float:
    """Return the seconds from the notice to the agent's first request to the API, at a random moment of its loop."""
    key, first, stopped = "autoscaling/target-lifecycle-state", Event(), Event()
    agent = Agent(running.agent.settings, running.case.name, running.agent.root, has_returned=True)
    # The look at the Node is over, and the next one is half a minute away.
    agent.step()
    kubectl = agent.kubectl

    def request(*words: str, **options: Any) -> str:  # noqa: ANN401  as kubectl takes them
        first.set()
        return kubectl(*words, **options)

    def watch() -> None:
        while not stopped.is_set():
            agent.step()
            time.sleep(PAUSE)

    agent.kubectl = request  # type: ignore[assignment]  # a function in place of a partial one
    thread = Thread(target=watch)
    thread.start()
    time.sleep(PAUSE * (1 + random.random()))  # noqa: S311
    begin = time.perf_counter()
    running.facts[key] = "Terminated"
    first.wait(30)
    elapsed = time.perf_counter() - begin
    stopped.set()
    thread.join()
    del running.facts[key]
    running.kubectl("uncordon", running.case.name)
    return elapsed


def status_of_many(programs: Path) -> tuple[float, float]:
    """Return the seconds of `kube status` and of `kubectl get nodes`, the minimum of each."""
    with ControlPlane(programs) as plane:
        plane.start_kwok()
        plane.add_nodes(NODES, {"nvidia.com/gpu": "8"}, {"bedplate/pool": "train"}, prefix="train")
        port, plan = urlsplit(plane.server).port or 0, cluster_plan(lab_plan())
        assert plan
        member = ControlPlaneMember("control-1.us-west-2", "us-west-2a", IPv4Address(plane.address))
        plan, client = replace(plan, members=(member,)), ClusterClient(plane.client())
        assert wait_until(
            lambda: sum(group.ready for group in read_status(client, plan, now(), port).nodes) >= NODES, 300
        )
        works = (lambda: read_status(client, plan, now(), port), lambda: plane.kubectl("get", "nodes", "--output=json"))
        status, peer = (min(seconds(work) for _ in range(RUNS)) for work in works)
        return status, peer


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    programs = find_programs()
    if programs is None:
        sys.exit("error: `python -m tests.testlab.kubernetes` builds the programs of Kubernetes")
    remove_credentials(os.environ)
    os.environ.pop("KUBECONFIG", None)
    with TemporaryDirectory() as name, cluster() as approvers:
        alone = join_alone(approvers, Path(name) / "alone")
        ours, decisions = join_and_leave(approvers, Path(name) / "ours")
    status, peer = status_of_many(programs)
    slow, load, last = clock_pace(), os.getloadavg()[0], max(decisions)
    print(f"start to ready node: {ours:.1f} s; kubelet alone {alone:.1f} s (target: at most {MAX_JOIN_S} s more)")
    print(f"notice to the first request of a drain: {last:.2f} s, of {NOTICES} (target: {MAX_DECISION_S} s)")
    print(f"status of {NODES} nodes: {status:.2f} s (target: {MAX_STATUS_S} s); kubectl get nodes {peer:.2f} s")
    print(f"load {load:.1f}, pace {slow:.2f}")
    missed = (ours - alone > MAX_JOIN_S, last > MAX_DECISION_S * slow, status > MAX_STATUS_S * slow)
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
