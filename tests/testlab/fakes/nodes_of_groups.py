"""The machines of moto's Auto Scaling groups as fake nodes of a real control plane: late, or never."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import boto3
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Node

from bedplate.plan.capacity import CapacityPlan

FAKE = {"kwok.x-k8s.io/node": "fake"}


@dataclass
class NodesOfGroups:
    """Makes nodes for instances and removes those of ended ones, as kubelets and the approver do.

    `boot` is the number of steps before a machine joins; machines of groups in `broken` never do.
    """

    client: Client
    plan: CapacityPlan
    boot: int = 0
    broken: set[str] = field(default_factory=set)
    _steps: dict[str, int] = field(default_factory=dict)
    _nodes: dict[str, str] = field(default_factory=dict)

    def step(self) -> None:
        """Let machines join and leave once."""
        alive = dict(self.instances())
        for instance, pool in alive.items():
            self._steps[instance] = self._steps.get(instance, -1) + 1
            if instance not in self._nodes and pool not in self.broken and self._steps[instance] >= self.boot:
                self._join(instance, pool)
        for instance in self._nodes.keys() - alive.keys():
            self._leave(self._nodes.pop(instance))

    @property
    def launched(self) -> int:
        """The number of machines that have ever been launched."""
        return len(self._steps)

    def instances(self) -> Iterator[tuple[str, str]]:
        """Yield the running instances, each with its pool."""
        names = {f"{self.plan.fleet}-{pool.name}": pool.name for pool in self.plan.pools}
        for region in dict.fromkeys(pool.region for pool in self.plan.pools):
            for group in boto3.client("autoscaling", region).describe_auto_scaling_groups()["AutoScalingGroups"]:
                for member in group["Instances"]:
                    yield member["InstanceId"], names[group["AutoScalingGroupName"]]

    def _join(self, instance: str, name: str) -> None:
        pool = next(pool for pool in self.plan.pools if pool.name == name)
        node = f"{pool.group}-{instance[-8:]}.{pool.region}"
        resources = {"cpu": f"{pool.cpus}", "memory": f"{int(pool.memory)}Gi", "pods": "110"}
        resources |= {"nvidia.com/gpu": str(pool.gpus)} if pool.gpus else {}
        metadata = {"name": node, "annotations": FAKE, "labels": {**pool.labels, "kubernetes.io/hostname": node}}
        taints = [_taint(text) for text in pool.taints]
        spec = {"providerID": f"aws:///{pool.zones[0]}/{instance}", "taints": taints}
        status = {"capacity": resources, "allocatable": resources}
        self.client.create(cast("Node", Node.from_dict({"metadata": metadata, "spec": spec, "status": status})))
        self._nodes[instance] = node

    def _leave(self, node: str) -> None:
        try:
            self.client.delete(Node, node)
        except ApiError as error:
            if error.status.code != 404:
                raise


def _taint(text: str) -> Mapping[str, str]:
    key_value, _, effect = text.rpartition(":")
    key, _, value = key_value.partition("=")
    return {"key": key, "value": value, "effect": effect}
