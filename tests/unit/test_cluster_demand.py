"""Pods and nodes as the planner reads them: requests, placement, gangs, cordons, idle times."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, cast

import pytest
from lightkube.models.core_v1 import PodStatus
from lightkube.resources.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod

from bedplate.capacity.observation import Cordon, Machine, Observation, Pool, Size
from bedplate.kubernetes.demand import CORDONED, Cluster, join
from bedplate.kubernetes.pods import gang_of, is_movable, pod_size, quantity

NOW = 1_800_000_000.0
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-23T05:00:00Z"}]
GPU_TAINT = "nvidia.com/gpu=present:NoSchedule"


def pod(name: str = "p", node: str | None = None, meta: dict[str, Any] | None = None, **spec: Any) -> Pod:  # noqa: ANN401
    """Return a pod that asks for a GPU."""
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "500m", "memory": "1Gi"}}}
    metadata = {"name": name, "namespace": "ada", "creationTimestamp": "2026-11-23T05:00:00Z", **(meta or {})}
    pod = Pod.from_dict({"metadata": metadata, "spec": {"containers": [container], "nodeName": node, **spec}})
    return cast("Pod", pod)


def node(
    name: str,
    instance: str = "",
    meta: dict[str, Any] | None = None,
    conditions: object = READY,
    resources: Mapping[str, str] = MappingProxyType({}),
    **spec: Any,  # noqa: ANN401
) -> Node:
    """Return a node with eight GPUs, of an instance or physical; `resources` are reported instead."""
    allocatable = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8", **resources}
    provider = f"aws:///us-west-2a/{instance}" if instance else f"bedplate://cellar/{name}"
    metadata = {"name": name, "creationTimestamp": "2026-11-23T04:00:00Z", "labels": {"disk": "ssd"}, **(meta or {})}
    return cast(
        "Node",
        Node.from_dict(
            {
                "metadata": metadata,
                "spec": {"providerID": provider, **spec},
                "status": {"allocatable": allocatable, "conditions": conditions},
            }
        ),
    )


Stores = tuple[Mapping[str, PersistentVolumeClaim], Mapping[str, PersistentVolume]]


def observe(
    pods: list[Pod],
    nodes: list[Node],
    machines: tuple[Machine, ...] = (),
    ends: Mapping[str, float] = MappingProxyType({}),
    stores: Stores = ({}, {}),
) -> Observation:
    """Return the observation of a cluster with one pool."""
    pool = Pool("p", "train", 0, "us-west-2", ("us-west-2a",), 0, 9, 0, labels={"disk": "ssd"})
    pool_with_taint = Pool("t", "burst", 0, "us-west-2", ("us-west-2a",), 0, 9, 0, taints=frozenset({GPU_TAINT}))
    cloud = Observation(NOW, machines=machines, pools=(pool, pool_with_taint))
    return join(Cluster(pods, nodes, ends, NOW - 50, *stores), cloud)


@pytest.mark.parametrize(
    ("text", "number"), [("500m", 0.5), ("16Gi", 16 * 1024**3), ("2", 2), ("1e3", 1000), (None, 0), ("3M", 3e6)]
)
def test_quantities_are_those_of_kubernetes(text: str | None, number: float) -> None:
    """Suffixes are decimal or binary."""
    assert quantity(text) == pytest.approx(number)


def test_a_pod_needs_what_the_scheduler_counts() -> None:
    """Containers and sidecars together, or the largest init container with the sidecars before it; and overhead."""

    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = container("1", restartPolicy="Always")
    needs = pod(containers=[container("2")], initContainers=[sidecar, container("5")], overhead={"cpu": "250m"})

    assert pod_size(needs).cpus == pytest.approx(6.25)
    limits = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "2"}}}
    assert pod_size(pod(containers=[limits])) == Size(gpus=4, efa=2)


@pytest.mark.parametrize(("most_pods", "size", "free"), [(3, 2, 1), (2, 1, 0), (1, 1, 0), (None, 0, 0)])
def test_a_node_holds_so_many_pods(most_pods: int | None, size: int, free: int) -> None:
    """Pods of DaemonSets reduce its size, others its free part; a size of 0 is unlimited. Its pool has the size."""
    owner = {"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1", "uid": "1"}
    pods = [pod("d", "n", {"ownerReferences": [owner]}, priority=2_000_001_000), pod("w", "n")]
    machine = Machine("i-1", "p", "us-west-2a", NOW)
    resources = {} if most_pods is None else {"pods": str(most_pods)}
    observation = observe(pods, [node("n", "i-1", resources=resources)], (machine,))

    (observed,) = observation.nodes
    assert (observed.size.pods, observed.free.pods) == (size, free)
    assert observation.pools[0].size.pods == size


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, False),
        ({"ownerReferences": [{"kind": "Job", "name": "j", "apiVersion": "batch/v1", "uid": "1"}]}, False),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "apiVersion": "apps/v1", "uid": "1"}]}, True),
        ({"annotations": {"bedplate/movable": "true"}}, True),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true", "bedplate/movable": "true"}}, False),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, False),
    ],
    ids=["bare", "job", "replicas", "checkpoint", "do not disrupt", "not safe"],
)
def test_only_pods_that_are_created_again_may_move(meta: dict[str, Any], *, expected: bool) -> None:
    """An annotation decides before the owner; bare pods and those of jobs stay."""
    assert is_movable(pod(meta=meta)) is expected


@pytest.mark.parametrize(
    ("labels", "gang"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "llm"}, "ada/llm"),
        ({"bedplate/gang": "g", "batch.kubernetes.io/job-name": "j"}, "ada/g"),
        ({"scheduling.x-k8s.io/pod-group": "pg"}, "ada/pg"),
        ({"batch.kubernetes.io/job-name": "j"}, None),
    ],
)
def test_gangs_are_named_by_labels(labels: dict[str, str], gang: str | None) -> None:
    """A JobSet, a group label on the pods of a Job, or a pod group, in a namespace; a plain Job is no gang."""
    assert gang_of(pod(meta={"labels": labels})) == gang


def test_defect_tolerations_with_a_value_are_read() -> None:
    """A toleration with a value accepts that value only, one without a key all taints; effects must agree."""
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    tainted = node("n", taints=[taint])

    def accepted(*tolerations: dict[str, str]) -> frozenset[str]:
        return observe([pod(tolerations=list(tolerations))], [tainted]).pods[0].tolerations

    both = {"team=vision:NoSchedule", GPU_TAINT}
    assert accepted({"operator": "Exists"}) == both
    assert accepted({"key": "team", "value": "vision"}) == {"team=vision:NoSchedule"}
    assert accepted({"key": "team", "value": "speech"}) == frozenset()
    assert accepted({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}) == frozenset()


def test_an_affinity_with_alternatives_becomes_a_label() -> None:
    """Nodes and pools that satisfy it have the label, so that the planner compares labels only."""
    rules = [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}, {"key": "disk", "operator": "Exists"}]
    required = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    hdd = node("hdd", meta={"labels": {"disk": "hdd"}})

    seen = observe([pod(affinity=affinity)], [node("ssd"), hdd])

    (label,) = seen.pods[0].selector
    assert [label in node.labels for node in seen.nodes] == [True, False]
    assert [label in pool.labels for pool in seen.pools] == [True, False]


def test_pods_that_do_not_wait_for_a_machine_are_left_out() -> None:
    """Ended and gated pods, pods of a DaemonSet, and pods that are being deleted."""
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1", "uid": "1"}]}
    ended = pod("ended", node="n")
    ended.status = PodStatus(phase="Succeeded")
    pods = [
        ended,
        pod("gated", schedulingGates=[{"name": "kueue"}]),
        pod("daemon", meta=daemon),
        pod("deleted", meta={"deletionTimestamp": "2026-11-23T05:00:00Z"}),
        pod("waits"),
    ]

    assert [seen.id for seen in observe(pods, [node("n")]).pods] == ["ada/waits"]


def test_a_node_offers_what_its_own_pods_leave() -> None:
    """Pods of a DaemonSet reduce the size of the node and of its pool, other pods what is free."""
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1", "uid": "1"}]}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    own = pod("daemon", node="n", meta=daemon, containers=containers, priority=2_000_001_000)
    machine = Machine("i-0000000a", "p", "us-west-2a", 0)

    seen = observe([own, pod("work", node="n")], [node("n", "i-0000000a")], (machine,))

    assert (seen.nodes[0].size, seen.nodes[0].free) == (Size(8, 7, 32), Size(7, 6.5, 31))
    assert seen.pools[0].size == Size(8, 7, 32)
    assert (seen.machines[0].node, seen.nodes[0].pods, seen.nodes[0].idle_since) == ("n", ("ada/work",), None)


def test_a_daemon_set_of_a_person_makes_no_pool_too_small() -> None:
    """Such pods use what is free on a node; a new machine has its whole size, and the node has no work."""
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1", "uid": "1"}]}
    machine = Machine("i-0000000a", "p", "us-west-2a", 0)

    seen = observe([pod("mine", node="n", meta=daemon)], [node("n", "i-0000000a")], (machine,))

    assert (seen.nodes[0].size, seen.nodes[0].free) == (Size(8, 8, 32), Size(7, 7.5, 31))
    assert (seen.pools[0].size, seen.nodes[0].pods) == (Size(8, 8, 32), ())


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([{"cpu": "0"}], Size(8, 7, 32), id="no CPU, and no other node"),
        pytest.param([{"cpu": "0", "memory": "0", "nvidia.com/gpu": "0"}, {}], Size(8, 8, 32), id="nothing"),
        pytest.param([{"nvidia.com/gpu": "7"}, {}], Size(8, 8, 32), id="a GPU less"),
        pytest.param([{"cpu": "4"}, {"memory": "9Ti"}], Size(8, 8, 32), id="half of the CPUs, false memory"),
        pytest.param([{"cpu": "6500m"}, {}], Size(8, 6.5, 32), id="a DaemonSet"),
    ],
)
def test_a_false_report_of_a_node_changes_no_pool(reports: list[dict[str, str]], expected: Size) -> None:
    """A pool has the median of the reported sizes that agree with the plan, else the planned; devices are planned."""
    machines = tuple(Machine(f"i-{number}", "p", "us-west-2a", NOW) for number in range(len(reports)))
    nodes = [node(f"n{number}", f"i-{number}", resources=resources) for number, resources in enumerate(reports)]

    pool = Pool("p", "train", 0, "us-west-2", ("us-west-2a",), 0, 9, 0, size=Size(8, 7, 28))
    seen = join(Cluster([], nodes, {}, NOW), Observation(NOW, machines=machines, pools=(pool,)))

    assert seen.pools[0].size == expected
    assert len(seen.nodes) == len(reports)


def test_a_pool_of_an_unknown_type_has_the_size_of_most_nodes() -> None:
    """One node that reports nothing changes nothing."""
    machines = tuple(Machine(f"i-{number}", "p", "us-west-2a", NOW) for number in range(3))
    nodes = [node(f"n{number}", f"i-{number}", resources={"cpu": "0"} if not number else {}) for number in range(3)]

    assert observe([], nodes, machines).pools[0].size == Size(8, 8, 32)


def test_the_request_of_a_whole_pod_counts() -> None:
    """The request is at least that of its containers, and has resources that no pool offers."""
    requests = {"cpu": "4", "memory": "8Gi"}

    assert pod_size(pod(resources={"requests": requests})) == Size(gpus=1, cpus=4, memory=8)
    (seen,) = observe([pod(resources={"requests": {**requests, "hugepages-2Mi": "2Mi"}})], []).pods
    assert "hugepages-2Mi" in seen.unsupported


@pytest.mark.parametrize("amount", ["1e400", "10e399", "1e30"])
def test_no_request_is_too_large_to_be_read(amount: str) -> None:
    """The API server stores such requests: no machine has as much, and the other pods are read."""
    huge = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": amount, "cpu": amount}}}

    size = observe([pod(containers=[huge]), pod("q")], []).pods[0].size

    assert size.gpus > 10**20
    assert 1e20 < size.cpus < inf


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [
        (("Gt", "11"), True),
        (("Lt", "13"), True),
        (("Gt", "-1"), True),
        (("Gt", "12"), False),
        (("Gt", "abc"), False),
        (("Lt", "9" * 5000), False),
    ],
    ids=["greater", "less", "negative", "equal", "no number", "too long"],
)
def test_an_affinity_compares_numbers(rule: tuple[str, str], *, admitted: bool) -> None:
    """The API server accepts any text; a node fits no comparison with a text that is no number."""
    (operator, value), labels = rule, {"labels": {"rack": "12"}}
    terms = [{"matchExpressions": [{"key": "rack", "operator": operator, "values": [value]}]}]

    seen = observe([pod(affinity=_required(terms))], [node("n", meta=labels)])

    assert (seen.pods[0].selector.items() <= seen.nodes[0].labels.items()) is admitted


@pytest.mark.parametrize("term", [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}, {}])
def test_a_term_without_labels_fits_no_new_machine(term: dict[str, Any]) -> None:
    """One by the name of a node, and an empty one, which selects nothing: otherwise a machine would start in vain."""
    seen = observe([pod(affinity=_required([term]))], [node("n")])

    assert not seen.pods[0].selector.items() <= seen.pools[0].labels.items()
    assert not seen.pods[0].selector.items() <= seen.nodes[0].labels.items()


def _required(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_idle_counts_from_the_end_of_the_last_pod() -> None:
    """Without a known end it counts from the start of the controller, not from the launch."""
    first, second = observe([], [node("a"), node("b")], ends={"a": NOW - 20}).nodes

    assert (first.idle_since, second.idle_since) == (NOW - 20, NOW - 50)


def test_only_the_controllers_cordon_has_its_annotation() -> None:
    """Any other cordon is a person's; an annotation that was left on a schedulable node is none."""
    ours = {"annotations": {CORDONED: "bedplate-capacity: idle"}}
    nodes = [node("a", unschedulable=True, meta=ours), node("b", unschedulable=True), node("c", meta=ours)]

    assert [seen.cordoned for seen in observe([], nodes).nodes] == [Cordon.PLANNER, Cordon.HUMAN, None]


YOUNG = {"creationTimestamp": "2027-01-15T07:50:00Z"}
GATED = [{"key": "bedplate/gate", "value": "pending", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("change", "joins"),
    [
        ({}, True),
        ({"taints": GATED, "meta": YOUNG}, False),
        ({"taints": GATED}, True),
        ({"conditions": []}, False),
        ({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-23T04:00:05Z"}]}, False),
    ],
    ids=["ready", "gate", "gate after a reboot", "no condition", "never ready"],
)
def test_a_machine_joins_after_its_gate(change: dict[str, Any], *, joins: bool) -> None:
    """Before that it is on its way: its node is not a place for pods. A gate that closes later does not undo it."""
    machine = Machine("i-0000000a", "p", "us-west-2a", 0)

    seen = observe([], [node("n", "i-0000000a", **change)], (machine,))

    assert (seen.machines[0].node, len(seen.nodes)) == (("n", 1) if joins else (None, 0))


def test_a_node_with_work_stays_when_its_gate_closes_again() -> None:
    """A person may set the taint of the gate; its work counts, and the machine is not replaced."""
    machine = Machine("i-0000000a", "p", "us-west-2a", 0)
    gated = node("n", "i-0000000a", taints=[{"key": "bedplate/gate", "value": "failed", "effect": "NoSchedule"}])

    seen = observe([pod(node="n")], [gated], (machine,))

    assert (seen.machines[0].node, len(seen.pods)) == ("n", 1)
    assert seen.nodes[0].taints == {"bedplate/gate=failed:NoSchedule"}


def test_a_node_that_fails_with_work_keeps_it() -> None:
    """Only without work it counts as a machine that never joined, after a quarter of an hour."""
    machine = Machine("i-0000000a", "p", "us-west-2a", 0)
    failed = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-23T05:00:00Z"}]
    lost = node("n", "i-0000000a", conditions=failed)

    assert observe([pod(node="n")], [lost], (machine,)).machines[0].node == "n"
    assert observe([], [lost], (machine,)).machines[0].node is None


def test_a_node_of_an_ending_machine_is_left_out_with_its_pods() -> None:
    """AWS no longer reports the instance: no pod fits there, and nothing is to be moved."""
    seen = observe([pod(node="n")], [node("n", "i-0000000b")])

    assert (seen.nodes, seen.pods) == ((), ())


CELLAR = [{"matchExpressions": [{"key": "topology.kubernetes.io/region", "operator": "In", "values": ["cellar"]}]}]
EVERYWHERE = [
    {
        "matchExpressions": [
            {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["us-west-2", "us-east-1"]}
        ]
    }
]
WITH_DATA: dict[str, Any] = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}


def _claim(phase: str = "Bound", **meta: Any) -> Mapping[str, PersistentVolumeClaim]:  # noqa: ANN401
    document = {
        "metadata": {"name": "data", "namespace": "ada", **meta},
        "spec": {"volumeName": "ada.data"},
        "status": {"phase": phase},
    }
    return {"ada/data": cast("PersistentVolumeClaim", PersistentVolumeClaim.from_dict(document))}


def _volume(terms: list[dict[str, Any]]) -> Mapping[str, PersistentVolume]:
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    document = {"metadata": {"name": "ada.data"}, "spec": spec}
    return {"ada.data": cast("PersistentVolume", PersistentVolume.from_dict(document))}


def test_a_pod_runs_where_its_volume_is() -> None:
    """The volume of a claim restricts a pod to its place, as a node selector does."""
    pods = observe([pod(**WITH_DATA)], [], stores=(_claim(), _volume(CELLAR))).pods
    assert (pods[0].selector, pods[0].unsupported) == ({"topology.kubernetes.io/region": "cellar"}, "")


def test_the_places_of_a_volume_are_alternatives() -> None:
    """A volume of several regions admits a pod in each, together with the pod's own affinity."""
    west = node("west", meta={"labels": {"topology.kubernetes.io/region": "us-west-2"}})
    cellar = node("cellar", meta={"labels": {"topology.kubernetes.io/region": "cellar"}})
    observation = observe([pod(**WITH_DATA)], [west, cellar], stores=(_claim(), _volume(EVERYWHERE)))
    (selected,) = observation.pods[0].selector
    assert {n.name: selected in n.labels for n in observation.nodes} == {"west": True, "cellar": False}


def test_a_pod_that_selects_another_place_than_its_volume_fits_nothing() -> None:
    """A node selector that contradicts the volume is named."""
    elsewhere = pod(nodeSelector={"topology.kubernetes.io/region": "us-west-2"}, **WITH_DATA)
    (seen,) = observe([elsewhere], [], stores=(_claim(), _volume(CELLAR))).pods
    assert seen.unsupported == "its volume has topology.kubernetes.io/region cellar, it asks for us-west-2"


@pytest.mark.parametrize(
    ("claims", "volumes", "reason"),
    [
        ({}, _volume(CELLAR), "its claim ada/data does not exist"),
        (_claim(deletionTimestamp="2026-11-23T05:00:00Z"), _volume(CELLAR), "its claim ada/data does not exist"),
        (_claim("Pending"), _volume(CELLAR), "its claim ada/data is not bound to a volume"),
        (_claim(), {}, "its claim ada/data is not bound to a volume"),
    ],
)
def test_a_pod_without_its_volume_fits_nothing(
    claims: Mapping[str, PersistentVolumeClaim], volumes: Mapping[str, PersistentVolume], reason: str
) -> None:
    """The scheduler places no pod whose claim is missing, deleted or not bound: no machine helps."""
    assert observe([pod(**WITH_DATA)], [], stores=(claims, volumes)).pods[0].unsupported == reason


def _asks(name: str, amount: str = "1") -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"limits": {name: amount}}}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (_asks("nvidia.com/mig-1g.10gb"), "nvidia.com/mig-1g.10gb"),
        (_asks("hugepages-2Mi", "1Gi"), "hugepages-2Mi"),
        (_asks("amd.com/gpu"), "amd.com/gpu"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}, "resource claims"),
        ({"schedulerName": "volcano"}, "volcano"),
        (
            {
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
                }
            },
            "podAffinity",
        ),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}, "port 80"),
        ({"volumes": [{"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}}]}, "volume disk"),
    ],
)
def test_what_the_planner_cannot_compare_is_named(spec: dict[str, Any], words: str) -> None:
    """A requirement that the planner does not know is an obstacle, not a requirement of nothing."""
    assert words in observe([pod(**spec)], []).pods[0].unsupported


def test_nothing_of_an_unknown_resource_is_no_requirement() -> None:
    """A request of 0, the default scheduler, and usual volumes are no obstacles."""
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}]
    spec = {**_asks("nvidia.com/mig-1g.10gb", "0"), "schedulerName": "default-scheduler", "volumes": volumes}
    assert observe([pod(**spec)], []).pods[0].unsupported == ""


def test_machines_with_efa_have_huge_pages() -> None:
    """The role `efa` reserves them, and libfabric needs them: a pod that asks for both fits such a machine."""
    limits = {"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5120Mi"}
    both = pod(containers=[{"name": "c", "resources": {"limits": limits}}])

    assert observe([both], []).pods[0].unsupported == ""


def test_a_pending_pod_has_the_message_of_the_scheduler() -> None:
    """The condition PodScheduled says why the scheduler cannot place a pod."""
    waiting = pod()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: full"}
    waiting.status = cast("PodStatus", PodStatus.from_dict({"conditions": [condition]}))
    assert observe([waiting], []).pods[0].message == "0/1 nodes: full"


def test_a_machine_with_a_node_object_is_registered() -> None:
    """Also a node that does not take part yet is known: it is not missing in the cluster."""
    gated = node("a", "i-0000000a", YOUNG, taints=GATED)
    machines = tuple(Machine(name, "p", "us-west-2a", NOW - 60) for name in ("i-0000000a", "i-0000000b"))
    seen = observe([], [gated], machines).machines
    assert [(machine.node, machine.registered) for machine in seen] == [(None, True), (None, False)]


@pytest.mark.parametrize(
    ("value", "failed", "is_broken"),
    [
        ("hardware", "hardware", True),
        ("software", "software", False),
        ("unknown", "unknown", False),
        ("pending", "", False),
        ("replace", "", False),
    ],
)
def test_the_verdict_of_a_failed_gate_is_seen(value: str, failed: str, *, is_broken: bool) -> None:
    """Only broken hardware renews the machine; a word of another version does not."""
    taint = {"key": "bedplate/gate", "value": value, "effect": "NoSchedule"}
    (seen,) = observe([pod(node="n")], [node("n", "i-1", taints=[taint])], (Machine("i-1", "p", "z", 0),)).nodes
    assert (seen.failed, seen.is_broken) == (failed, is_broken)
