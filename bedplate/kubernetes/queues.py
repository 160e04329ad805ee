"""The queue of the cluster: Kueue's objects by the plan, the rules for what people put in it, and its types.

All groups are in one ClusterQueue. Kueue's topology places a run whole, on machines that have its GPUs free. The quota
of a group is its maximum by the plan: a run waits for machines that can come only. Of the waiting runs, that of the
person who has used the fewest GPUs for their share is next.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from bedplate.kubernetes.addons import OF_PEOPLE, Object
from bedplate.plan.cluster import person_name
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan, combined_max
from bedplate.plan.registration import GROUP, SITE, devices
from bedplate.spec.fleet import Jobs

_GROUP = "kueue.x-k8s.io"
QUEUE_VERSION = f"{_GROUP}/v1beta2"
_TYPES = {"Topology": "topologies", "ResourceFlavor": "resourceflavors", "ClusterQueue": "clusterqueues"}
_TYPES["WorkloadPriorityClass"] = "workloadpriorityclasses"
for _kind, _plural in _TYPES.items():
    create_global_resource(_GROUP, "v1beta2", _kind, _plural)
LOCAL_QUEUE: Any = create_namespaced_resource(_GROUP, "v1beta2", "LocalQueue", "localqueues")
WORKLOAD: Any = create_namespaced_resource(_GROUP, "v1beta2", "Workload", "workloads")
JOB_SET: Any = create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
"""The types of lightkube for objects of Kueue and JobSet."""
QUEUE = "fleet"
"""The ClusterQueue."""
NORMAL, HELD, SPARE, INTERACTIVE = "default", "held", "spare", "interactive"
"""The LocalQueues of a person; runs of priority normal are in `default`, those that wait for another run in `held`."""
# Equal priorities do not preempt each other. The order of the classes comes from the weights of their LocalQueues.
_PRIORITIES = {INTERACTIVE: 0, "normal": 0, SPARE: -5}
# Usage counts for a hundredth in the queue of interactive runs; with weight 0, a queue is always last.
_WEIGHTS = {NORMAL: 1, HELD: 1, INTERACTIVE: 100, SPARE: 0}
_CPU, _MEMORY, _GPU = _COVERED = ("cpu", "memory", "nvidia.com/gpu")
# Of machines whose hardware the plan does not know: the topology knows it when they have joined.
_UNKNOWN = {_CPU: 100_000, _MEMORY: 2**20}
_TOPOLOGY = "host"
# The JobSets of a person, with ended ones; each also has a Job, a Secret and a Workload.
_RUNS = "500"


def has_queues(plan: FleetPlan) -> bool:
    """Return whether people's runs wait in the cluster: the fleet has a section `jobs`."""
    return plan.jobs != Jobs()


def queue_objects(plan: FleetPlan) -> Iterator[Object]:
    """Yield the queue: flavours of groups and sites with their quota, priorities, and the LocalQueues of people."""
    yield _object("Topology", _TOPOLOGY, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    flavours = {name: (label, quota) for label, name, quota in _flavours(plan)}
    for name, (label, _) in flavours.items():
        yield _object("ResourceFlavor", name, spec={"nodeLabels": {label: name}, "topologyName": _TOPOLOGY})
    for name, value in _PRIORITIES.items():
        yield _object("WorkloadPriorityClass", name, value=value)
    quotas = [{"name": name, "resources": _quota(quota)} for name, (_, quota) in flavours.items()]
    groups = {"resourceGroups": [{"coveredResources": list(_COVERED), "flavors": quotas}]} if quotas else {}
    rules = {
        "namespaceSelector": OF_PEOPLE,
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    yield _object("ClusterQueue", QUEUE, spec=rules | groups)
    for person in plan.accounts.people:
        namespace = person_name(person.name)
        yield from _local_queues(namespace, plan.jobs.shares.get(person.name, 1))
        quota = _object("ResourceQuota", "runs", namespace, spec={"hard": {"count/jobsets.jobset.x-k8s.io": _RUNS}})
        yield {**quota, "apiVersion": "v1"}


def _local_queues(namespace: str, share: float) -> Iterator[Object]:
    for name, weight in _WEIGHTS.items():
        spec = {"clusterQueue": QUEUE, "fairSharing": {"weight": f"{round(1000 * share * weight)}m"}}
        spec |= {"stopPolicy": "Hold" if name == HELD else "None"}
        yield _object("LocalQueue", name, namespace, spec=spec)


def _object(kind: str, name: str, namespace: str = "", **fields: Any) -> Object:  # noqa: ANN401  parts of an object
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": QUEUE_VERSION, "kind": kind, "metadata": {"name": name, **place}, **fields}


def _quota(amounts: Mapping[str, int]) -> list[Object]:
    units = {_MEMORY: "Mi"}
    return [{"name": name, "nominalQuota": f"{amounts[name]}{units.get(name, '')}"} for name in _COVERED]


def _flavours(plan: FleetPlan) -> Iterator[tuple[str, str, Mapping[str, int]]]:
    """Yield label, name and quota of sites and groups, in the order in which a run without a place tries them.

    Machines without GPUs are first, and the fleet's own before those that cost.
    """
    rows = [(SITE, site.name, _of_site(site.machines.values())) for site in plan.sites]
    pools = {pool.group: [other for other in plan.pools if other.group == pool.group] for pool in plan.pools}
    rows += [(GROUP, name, _of_group(plan, own)) for name, own in pools.items() if own[0].use.is_worker]
    used = [row for row in rows if any(row[2].values())]
    return iter(sorted(used, key=lambda row: (bool(row[2][_GPU]), row[0] != SITE, row[1])))


def _of_site(machines: Iterable[Any]) -> Mapping[str, int]:
    workers = [machine.spec for machine in machines if machine.spec.is_worker]
    unknown = {name: len(workers) * amount for name, amount in _UNKNOWN.items()}
    return unknown | {_GPU: sum(spec.gpus.count for spec in workers if spec.gpus)}


def _of_group(plan: FleetPlan, pools: list[PoolPlan]) -> Mapping[str, int]:
    """Return the resources of as many machines as the group may have, each as large as the largest of its types."""
    facts = [plan.catalog.types.get(name) for pool in pools for name in pool.types]
    largest = {
        _CPU: max((fact.vcpus if fact else _UNKNOWN[_CPU] for fact in facts), default=0),
        _MEMORY: max((fact.memory_mib if fact else _UNKNOWN[_MEMORY] for fact in facts), default=0),
        _GPU: max((devices(fact).get(_GPU, 0) for fact in facts), default=0),
    }
    return {name: combined_max(pools) * amount for name, amount in largest.items()}
