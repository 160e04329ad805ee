"""How long `kube addons apply` takes for many people, first and again, on a real API server on loopback.

The people are in the fleet of `examples/lab.yaml`, with its add-ons and a claim for each of its three stores. The floor
is a plain apply of as many ConfigMaps by the same client, as many at a time. The start of Python and of the command is
not measured.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Network

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.addons import Object
from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import desired_objects, volume_objects
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.upstream import available_pins, read_upstream
from tests.testlab.run import clock_pace, remove_credentials

PEOPLE, STORES, AT_A_TIME = 200, 3, 8
MAX_FIRST_S, MAX_AGAIN_S = 8.0, 3.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Elapsed seconds, and processor seconds of the client and of the control plane."""

    elapsed: float
    client: float
    server: float

    def __str__(self) -> str:
        return f"{self.elapsed:.1f} s elapsed, {self.client:.1f} s and {self.server:.1f} s of processor"

    def ratio(self, floor: "Cost") -> float:
        """Return the processor seconds, compared with those of the floor."""
        return (self.client + self.server) / (floor.client + floor.server)


def cost(plane: ControlPlane, work: Callable[[], object]) -> Cost:
    """Return what a call costs."""
    elapsed, client, server = time.perf_counter(), time.process_time(), plane.cpu_seconds()
    work()
    return Cost(time.perf_counter() - elapsed, time.process_time() - client, plane.cpu_seconds() - server)


def crowd() -> tuple[FleetPlan, ClusterPlan]:
    """Return the plan of the lab with many people, and that of its cluster."""
    plan = lab_plan()
    (*_, person) = plan.accounts.people
    people = tuple(replace(person, name=f"person-{n}", uid=person.uid + n) for n in range(PEOPLE))
    plan = replace(plan, accounts=replace(plan.accounts, people=people))
    cluster = cluster_plan(plan)
    assert cluster
    assert len(volume_objects(plan)) == 2 * STORES * PEOPLE
    return plan, cluster


def desired(plan: FleetPlan, cluster: ClusterPlan) -> tuple[Object, ...]:
    """Return what the cluster must have, as the command does."""
    return desired_objects(plan, cluster, available_pins(load_addons()), read_upstream)


def apply(client: ClusterClient, objects: tuple[Object, ...]) -> None:
    """Apply the objects."""
    assert not apply_objects(client, objects).failures


def plain_apply(client: ClusterClient, count: int) -> None:
    """Apply ConfigMaps with a little text."""

    def maps() -> Iterator[ConfigMap]:
        for number in range(count):
            yield ConfigMap(metadata=ObjectMeta(name=f"plain-{number}", namespace="default"), data={"a": "b" * 300})

    def write(item: ConfigMap) -> None:
        client.call("apply", lambda api: api.apply(item, field_manager="plain", force=True))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(write, maps()))


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    programs = find_programs()
    if programs is None:
        sys.exit("error: `python -m tests.testlab.kubernetes` builds the programs of Kubernetes")
    remove_credentials(os.environ)
    os.environ.pop("KUBECONFIG", None)
    plan, cluster = crowd()
    with ControlPlane(programs) as plane:
        client = ClusterClient(plane.client())
        objects = partial(desired, plan, replace(cluster, services=IPv4Network(plane.services)))
        first, again = (cost(plane, lambda: apply(client, objects())) for _ in range(2))
        count = len(objects())
        floor = cost(plane, lambda: plain_apply(client, count))
    pace, load = clock_pace(), os.getloadavg()[0]
    print(
        f"kube addons apply of {count} objects for {PEOPLE} people; processor seconds of the client and of the cluster"
    )
    for name, value, target in (("first", first, MAX_FIRST_S), ("again", again, MAX_AGAIN_S)):
        print(f"{name}: {value} (target: {target:.0f} s), ratio {value.ratio(floor):.2f}")
    print(f"floor, {count} ConfigMaps: {floor}; load {load:.1f}, pace {pace:.2f}")
    return int(first.elapsed > MAX_FIRST_S * pace or again.elapsed > MAX_AGAIN_S * pace)


if __name__ == "__main__":
    sys.exit(main())
