"""The planner and the real scheduler: a node has room for a pod if the scheduler binds it there, and only then."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from lightkube import Client
from lightkube.resources.core_v1 import Node, Pod

from bedplate.capacity.growth import grow
from bedplate.capacity.observation import Observation
from bedplate.kubernetes.demand import Cluster, join
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.memory import cluster_pod
from tests.testlab.kubernetes.workloads import ZONE, workloads

_NUMBERS = count(1)


@pytest.fixture
def nodes(control_plane: ControlPlane) -> Iterator[Client]:
    """Yield a client of a cluster with nodes in three zones, one of them cordoned, one with another label."""
    client = control_plane.client()
    for number, zone in enumerate(("us-west-2a", "us-west-2a", "us-west-2b", "us-west-2c")):
        labels = {ZONE: zone, **({"rack": "1"} if number == 1 else {})}
        control_plane.add_nodes(1, {"nvidia.com/gpu": "4", "ephemeral-storage": "80Gi"}, labels, f"spread-{number}")
    control_plane.kubectl("cordon", "spread-3-0")
    assert wait_until(lambda: all(_is_ready(node) for node in client.list(Node)))
    yield client
    for node in list(client.list(Node)):
        client.delete(Node, str(node.metadata.name if node.metadata else ""))


def _is_ready(node: Node) -> bool:
    conditions = (node.status.conditions if node.status else None) or ()
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


_A = {"labelSelector": {"matchLabels": {"app": "a"}}}
_RULE = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_A}


def _copies(count: int, app: str, **spec: Any) -> list[Pod]:  # noqa: ANN401
    return [cluster_pod(f"{app}{number}", cpus=1, labels={"app": app}, **spec) for number in range(count)]


def _apart(domain: str) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{**_A, "topologyKey": domain}]}
    return {"affinity": {"podAntiAffinity": rule}}


# Only nodes with the labels of all rules are domains: the second pod goes beside the first.
@example(pods=_copies(2, "a", topologySpreadConstraints=[{**_RULE, "topologyKey": key} for key in (ZONE, "rack")]))
# The cordoned node's zone is one with no pod, so each other zone takes one.
@example(pods=_copies(3, "a", topologySpreadConstraints=[{**_RULE, "topologyKey": ZONE}]))
@example(pods=_copies(4, "a", topologySpreadConstraints=[{**_RULE, "topologyKey": "rack", "minDomains": 2}]))
@example(pods=_copies(4, "a", **_apart("kubernetes.io/hostname")))
@example(pods=_copies(1, "a") + _copies(3, "b", **_apart(ZONE)))
@example(pods=_copies(2, "b", **_apart(ZONE)) + _copies(2, "a"))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(pods=workloads())
def test_a_node_has_room_if_the_scheduler_says_so(nodes: Client, namespace: str, pods: list[Pod]) -> None:
    """For each pod that the planner understands; it says of each other one what it does not understand."""
    number = next(_NUMBERS)
    try:
        for pod in pods:
            _compare(nodes, namespace, number, pod)
    finally:
        nodes.deletecollection(Pod, namespace=namespace, grace_period=0)
        assert wait_until(lambda: not list(nodes.list(Pod, namespace=namespace)))


def _compare(client: Client, namespace: str, number: int, pod: Pod) -> None:
    assert pod.metadata
    # kwok ends pods by name: each has its own.
    name = f"{pod.metadata.name}-{number}"
    pod.metadata.name, pod.metadata.namespace, pod.metadata.ownerReferences = name, namespace, None
    has_room, unsupported = _verdict(client, client.create(pod))
    if unsupported:
        client.delete(Pod, name, namespace=namespace, grace_period=0)
        return
    assert wait_until(partial(_is_decided, client, namespace, name), 60)
    seen = client.get(Pod, name, namespace=namespace)
    assert seen.spec
    assert has_room is (seen.spec.nodeName is not None), (pod.to_dict(), seen.to_dict()["status"])


def _verdict(client: Client, pod: Pod) -> tuple[bool, str]:
    """Return whether a node has room for a pod, and what the planner does not understand of it."""
    others = [other for other in client.list(Pod, namespace="*") if other.spec and other.spec.nodeName]
    own = [other for other in others if other.metadata and pod.metadata and other.metadata.uid != pod.metadata.uid]
    waiting = cast("Pod", Pod.from_dict({**pod.to_dict(), "spec": {**pod.to_dict()["spec"], "nodeName": None}}))
    now = time.time()
    observation = join(Cluster([*own, waiting], list(client.list(Node)), {}, now), Observation(now))
    (seen,) = (seen for seen in observation.pods if seen.node is None)
    return bool(grow(observation, ()).live), seen.unsupported


def _is_decided(client: Client, namespace: str, name: str) -> bool:
    pod = client.get(Pod, name, namespace=namespace)
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any(condition.type == "PodScheduled" for condition in conditions)
