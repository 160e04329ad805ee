"""A cluster and its groups in memory: objects of Kubernetes in, decisions of the planner out and into effect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

from lightkube.resources.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod

from bedplate.capacity.controller import Round, round_warnings
from bedplate.capacity.observation import (
    CordonNode,
    Decision,
    DrainNode,
    Machine,
    Observation,
    Pool,
    SetDesired,
    Size,
    Terminate,
    UncordonNode,
)
from bedplate.capacity.planner import Memory, decide
from bedplate.kubernetes.demand import CORDONED, Cluster, join

NOW, MINUTE, HOUR = 1_780_000_000.0, 60.0, 3600.0
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
BURST = Pool("burst", "burst", 1, "us-west-2", ZONES, 0, 20, 0, size=Size(4, 47.0, 180.0, 0, 80.0, 110), price=5.67)
TRAIN = replace(BURST, name="train", group="train", zones=ZONES[:1], size=Size(8, 190.0, 2000.0, 0, 80.0, 110))
UNREACHABLE = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
_NUMBERS = count(1)


def stamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cluster_pod(  # noqa: PLR0913  what a report says of a pod
    name: str,
    node: str | None = None,
    *,
    owner: str = "ReplicaSet",
    gpus: int = 0,
    cpus: int = 40,
    labels: Mapping[str, str] = {},
    deleted: float | None = None,
    requests: Mapping[str, str] = {},
    **spec: Any,  # noqa: ANN401
) -> Pod:
    """Return a pod of the namespace `lab`."""
    meta: dict[str, Any] = {"name": name, "namespace": "lab", "labels": dict(labels), "uid": name}
    meta["creationTimestamp"] = stamp(NOW - HOUR)
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": "o", "apiVersion": "apps/v1", "uid": "1"}]
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    asked = {"cpu": str(cpus), "memory": "8Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **requests}
    limits = {name: amount for name, amount in asked.items() if name not in ("cpu", "memory", "ephemeral-storage")}
    container = {"name": "main", "image": "main", "resources": {"requests": asked, "limits": limits}}
    document = {"metadata": meta, "spec": {"containers": [container], "nodeName": node, **spec}}
    return cast("Pod", Pod.from_dict(document))


@dataclass
class ClusterWorld:
    """A cluster and its pools; what the planner decides about nodes and desired numbers takes effect."""

    pools: Sequence[Pool]
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    ended: list[Terminate] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    seen: Observation = field(default_factory=lambda: Observation(0))

    def add_node(  # noqa: PLR0913  what a report says of a node
        self,
        pool: Pool,
        zone: str = "",
        *,
        age: float = 2 * HOUR,
        gpus: int | None = None,
        not_ready: float | None = None,
        is_counted: bool = True,
    ) -> str:
        """Add a machine of a pool with its node; it is ready from its start on, or not ready since a time.

        With `is_counted`, the desired number of its pool was that of its machines.
        """
        name, instance, zone = f"w{(number := next(_NUMBERS))}", f"i-{number:08x}", zone or pool.zones[0]
        self.machines.append(Machine(instance, pool.name, zone, NOW - age - 5 * MINUTE))
        devices = pool.size.gpus if gpus is None else gpus
        allocatable = {"cpu": str(pool.size.cpus), "memory": f"{pool.size.memory}Gi", "pods": "110"}
        allocatable |= {"ephemeral-storage": "80Gi", **({"nvidia.com/gpu": str(devices)} if devices else {})}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(NOW - age)}
        if not_ready is not None:
            ready |= {"status": "Unknown", "lastTransitionTime": stamp(not_ready)}
        labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
        document = {
            "metadata": {"name": name, "creationTimestamp": stamp(NOW - age), "labels": labels},
            "spec": {
                "providerID": f"aws:///{zone}/{instance}",
                "taints": [] if not_ready is None else UNREACHABLE,
            },
            "status": {"allocatable": allocatable, "conditions": [ready]},
        }
        self.nodes.append(cast("Node", Node.from_dict(document)))
        if is_counted:
            self.count_machines()
        return name

    def round(self, seconds: float = 0.0) -> Decision:
        """Decide at a time after the report, and apply the decision."""
        cloud = Observation(NOW + seconds, machines=tuple(self.machines), pools=tuple(self.pools))
        cluster = Cluster(self.pods, self.nodes, {}, NOW - 24 * HOUR, self.claims, self.volumes)
        self.seen = join(cluster, cloud)
        decision, self.memory = decide(self.seen, self.memory)
        assert all(waiting.reason and "defect" not in waiting.reason for waiting in decision.waiting)
        for action in decision.actions:
            match action:
                case SetDesired():
                    self.pools = [
                        replace(pool, desired=action.count) if pool.name == action.pool else pool for pool in self.pools
                    ]
                case Terminate():
                    self._end(action)
                case CordonNode() | DrainNode() | UncordonNode():
                    self._mark(action.node, is_cordoned=not isinstance(action, UncordonNode))
                    if isinstance(action, DrainNode):
                        self.drained.append(action.node)
                case _:
                    raise AssertionError(action)
        return decision

    def _end(self, action: Terminate) -> None:
        (ended,) = (machine for machine in self.machines if machine.id == action.machine)
        self.ended.append(action)
        self.machines.remove(ended)
        self.pools = [
            replace(pool, desired=pool.desired - action.decrement) if pool.name == ended.pool else pool
            for pool in self.pools
        ]

    def _mark(self, name: str, *, is_cordoned: bool) -> None:
        (node,) = (node for node in self.nodes if node.metadata and node.metadata.name == name)
        assert node.metadata
        assert node.spec
        node.metadata.annotations = {CORDONED: "bedplate-capacity"} if is_cordoned else None
        node.spec.unschedulable = is_cordoned or None

    def count_machines(self) -> None:
        """Set the desired numbers to the machines that exist."""
        counts = [sum(machine.pool == pool.name for machine in self.machines) for pool in self.pools]
        self.pools = [replace(pool, desired=number) for pool, number in zip(self.pools, counts, strict=True)]

    def desired(self) -> dict[str, int]:
        """Return the desired number of each pool that has one."""
        return {pool.name: pool.desired for pool in self.pools if pool.desired}

    def warnings(self, decision: Decision) -> str:
        """Return what the controller warns of."""
        return "\n".join(round_warnings(Round(self.seen, decision)))
