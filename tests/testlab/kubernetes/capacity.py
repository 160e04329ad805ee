"""The capacity controller with a real control plane: groups in moto, and a clock that a test moves."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from lightkube import Client
from lightkube.resources.core_v1 import Pod
from moto import mock_aws

from bedplate.account.client import AwsClient
from bedplate.account.groups import FleetGroups
from bedplate.capacity import planner
from bedplate.capacity.controller import Controller, Round
from bedplate.capacity.observation import Node as PlannerNode
from bedplate.capacity.simulator import Frame, frame_of
from bedplate.catalog import load_catalog
from bedplate.kubernetes.client import ClusterClient, open_cluster
from bedplate.kubernetes.lease import Leadership, StateStore
from bedplate.kubernetes.live import LiveCluster
from bedplate.operate.capacity_loop import Loop, Outputs
from bedplate.plan import FleetPlan
from bedplate.plan.capacity import CapacityPlan, capacity_plan
from bedplate.spec.sites import Use
from tests.testlab.fakes.nodes_of_groups import NodesOfGroups
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until

_GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


@dataclass
class CapacityLab:
    """A fleet with one group of workers in three regions, its cluster, and a clock that a test moves."""

    plane: ControlPlane
    cloud: ScalingCloud
    plan: CapacityPlan
    client: Client
    machines: NodesOfGroups
    namespace: str
    ahead: float = 0.0
    runs: list["Run"] = field(default_factory=list)

    def now(self) -> float:
        """Return the time of the controllers."""
        return time.time() + self.ahead

    def controller(self, decide: Any = None, **options: Any) -> "Run":  # noqa: ANN401
        """Return a new controller, as after a restart."""
        return Run(self, decide, **options)

    def add_pods(self, count: int, gpus: int, *, prefix: str = "job", **meta: object) -> None:
        """Create pods that ask for GPUs."""
        resources = {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
        spec = {"containers": [{"name": "c", "image": "train", "resources": resources}], "tolerations": [_GPU]}
        for number in range(count):
            metadata = {"name": f"{prefix}-{number}", "namespace": self.namespace, **meta}
            self.client.create(cast("Pod", Pod.from_dict({"metadata": metadata, "spec": spec})))

    def pods(self) -> list[Pod]:
        """Return the pods of the test."""
        return list(self.client.list(Pod, namespace=self.namespace))

    def running(self) -> int:
        """Return the number of running pods."""
        return sum(pod.status is not None and pod.status.phase == "Running" for pod in self.pods())


class Run:
    """A controller of the lab, round after round."""

    def __init__(
        self,
        lab: CapacityLab,
        decide: Any = None,  # noqa: ANN401
        identity: str = "",
        client: ClusterClient | None = None,
    ) -> None:
        self.lab = lab
        self.frames: list[Frame] = []
        self.live = LiveCluster(client or open_cluster(lab.plane.kubeconfig()), lab.now(), lab.now)
        self.live.start()
        lab.runs.append(self)
        self.groups = cloud = FleetGroups(AwsClient(lab.cloud), lab.plan)
        leader = Leadership(self.live.client, identity) if identity else None
        self.controller: Controller[Any] = Controller(
            cloud, decide or planner.decide, planner.Memory(), self.live, leader
        )
        outputs, store = Outputs(lambda _: None, print), StateStore(self.live.client)
        self.loop = Loop(self.controller, outputs, self.live, store, lab.now)

    def step(self, seconds: float = 30.0) -> Round | None:
        """Run a round, then let machines join and time pass."""
        result = self.controller.round(self.lab.now())
        if result:
            self.frames.append(frame_of(result.observation))
        self.lab.machines.step()
        self.lab.ahead += seconds
        return result

    def node(self, name: str) -> PlannerNode:
        """Return a node as the planner sees it."""
        return next(node for node in self.controller.observe(self.lab.now()).nodes if node.name == name)

    def until(self, is_done: Callable[[], bool], rounds: int = 60) -> None:
        """Run rounds until something is true."""
        for _ in range(rounds):
            if is_done():
                return
            self.step()
            time.sleep(0.3)  # the scheduler and kwok
        raise AssertionError("not reached")


def wait_for(is_done: Callable[[], bool]) -> None:
    """Wait until something is true, without a round."""
    assert wait_until(is_done, 60)


@contextmanager
def capacity_lab(plane: ControlPlane, namespace: str, fleet: FleetPlan) -> Iterator[CapacityLab]:
    """Yield a lab whose groups have no machines; its pods are deleted at the end."""
    client = plane.client()
    with mock_aws():
        cloud = ScalingCloud(fleet)
        cloud.deploy(Use.KUBERNETES)
        plan = replace(capacity_plan(fleet, load_catalog()), idle=120.0)
        lab = CapacityLab(plane, cloud, plan, client, NodesOfGroups(client, plan), namespace)
        yield lab
    for control in lab.runs:
        control.live.stop()
    client.deletecollection(Pod, namespace=namespace, grace_period=0)
    wait_for(lambda: not list(client.list(Pod, namespace=namespace)))
