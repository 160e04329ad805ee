"""Reports of other projects' users, as inputs of the planner: pods and nodes as Kubernetes has them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from bedplate.capacity.observation import Decision, Reason
from tests.testlab.kubernetes.memory import (
    BURST,
    HOUR,
    MINUTE,
    NOW,
    TRAIN,
    ZONES,
    ClusterWorld,
    cluster_pod,
)
from tests.testlab.kubernetes.workloads import CLAIMS, VOLUME, VOLUMES

NEAR = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "multus"}}}
    ]
}
EAST = replace(TRAIN, name="east", rung=2, region="us-east-1", zones=("us-east-1a",))


def _reasons(decision: Decision) -> Iterator[str]:
    yield from (report.reason for report in decision.unplaced)
    yield from (waiting.reason for waiting in decision.waiting if not waiting.is_coming)


def test_a_node_that_lost_a_gpu_does_not_decide_for_its_pool() -> None:
    """A machine of the type has eight GPUs: one starts, and the broken one is drained, and ended when it is empty.

    Reports: https://github.com/NVIDIA/k8s-device-plugin/issues/1014, https://github.com/NVIDIA/gpu-operator/issues/1065.
    """
    world = ClusterWorld([TRAIN])
    name = world.add_node(TRAIN, gpus=7)
    world.pods = [cluster_pod("llm-0", name, owner="Job", gpus=4), cluster_pod("llm-1", owner="Job", gpus=8)]

    assert world.round().waiting[0].is_coming
    assert world.desired() == {"train": 2}
    world.round(16 * MINUTE)
    assert (world.drained, world.ended) == ([name], [])
    world.pods = world.pods[1:]
    world.round(17 * MINUTE)
    assert [end.reason for end in world.ended] == [f"{name}: it offers 7 of 8 GPUs"]


def test_a_node_before_its_device_plugin_is_on_its_way() -> None:
    """No second machine starts while the plugin registers, and none ends because it takes minutes.

    Reports: https://github.com/kubernetes/autoscaler/issues/1949, https://github.com/kubernetes/autoscaler/issues/2232.
    """
    world = ClusterWorld([TRAIN, EAST])
    name = world.add_node(TRAIN, age=100, gpus=0)
    world.pods = [cluster_pod("llm-1", owner="Job", gpus=8)]

    for seconds in (0, 300, 600):
        decision = world.round(seconds)
        assert [waiting.is_coming for waiting in decision.waiting] == [True]
    assert (world.desired(), world.ended, world.drained) == ({"train": 1}, [], [])

    world.round(16 * MINUTE)
    assert world.drained == [name]
    world.round(17 * MINUTE)
    assert len(world.ended) == 1
    assert list(world.memory.lacking) == [world.ended[0].machine]
    assert world.memory.unready["train"]


def test_a_device_plugin_that_restarts_ends_no_machine() -> None:
    """An idle node of some age that offers no GPU for a moment is not late at once.

    Reports: https://github.com/kubernetes/kubernetes/issues/99571,
    https://github.com/kubernetes/kubernetes/issues/62773.
    """
    world = ClusterWorld([replace(TRAIN, min=2)])
    for _ in range(2):
        world.add_node(TRAIN, age=30 * HOUR, gpus=0)
    world.round()
    assert (world.ended, world.drained) == ([], [])


@pytest.mark.parametrize("has_machine", [False, True], ids=["before a machine", "with a machine"])
def test_a_slice_of_a_gpu_is_no_gpu_and_no_nothing(has_machine: bool) -> None:  # noqa: FBT001
    """A pod that asks for a MIG slice, which no machine offers, neither starts nor keeps a machine.

    Reports: https://github.com/kubernetes/autoscaler/issues/8095, https://github.com/NVIDIA/gpu-operator/issues/693.
    """
    world = ClusterWorld([BURST])
    if has_machine:
        world.add_node(BURST)
    world.pods = [cluster_pod("nb-0", owner="", cpus=2, requests={"nvidia.com/mig-1g.10gb": "1"})]

    first = world.round()

    assert ["nvidia.com/mig-1g.10gb" in reason for reason in _reasons(first)] == [True]
    assert world.desired() == ({"burst": 1} if has_machine else {})
    if has_machine:
        assert [action.reason for action in first.actions] == ["idle for 120 minutes"]


def _web(
    count: int,
    node: str | None = None,
    first: int = 0,
    nodeSelector: Mapping[str, str] | None = None,  # noqa: N803  a key of Kubernetes
    **rule: Any,  # noqa: ANN401
) -> list[Pod]:
    whole = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**whole, "labelSelector": {"matchLabels": {"app": "podinfo"}}, **rule}]
    names = range(first, first + count)
    return [
        cluster_pod(
            f"web-{i}", node, labels={"app": "podinfo"}, topologySpreadConstraints=spread, nodeSelector=nodeSelector
        )
        for i in names
    ]


def test_pods_are_spread_with_their_skew() -> None:
    """Of nine replicas over three zones, two more go to each zone.

    Reports: https://github.com/aws/karpenter-provider-aws/issues/2545,
    https://github.com/aws/karpenter-provider-aws/issues/3239, https://github.com/Azure/AKS/issues/2849.
    """
    world = ClusterWorld([BURST])
    for number, zone in enumerate(ZONES):
        world.pods += _web(1, world.add_node(BURST, zone), first=100 + number)
    world.pods += _web(6)

    decision = world.round()

    assert world.desired() == {"burst": 9}
    assert all(waiting.is_coming for waiting in decision.waiting)


def test_a_dead_kubelet_is_named_and_its_machine_ends() -> None:
    """A deleted pod of a dead kubelet is no work: after an hour the machine ends; before, the node is named.

    Reports: https://github.com/aws/karpenter-provider-aws/issues/6090,
    https://github.com/aws/karpenter-provider-aws/issues/7029, https://github.com/kubernetes-sigs/karpenter/issues/1573.
    """
    world = ClusterWorld([BURST])
    name = world.add_node(BURST, not_ready=NOW - 20 * MINUTE)
    world.pods = [cluster_pod("train-7", name, owner="Job", gpus=4, deleted=NOW - 14 * MINUTE)]

    assert f"{name}: not ready since" in world.warnings(world.round())
    assert (world.ended, world.drained) == ([], [])
    world.round(50 * MINUTE)
    assert (world.ended, world.drained) == ([], [name])
    world.round(51 * MINUTE)
    assert [end.reason for end in world.ended] == [f"{name}: its kubelet has not been ready for an hour"]


def test_work_on_a_dead_kubelet_is_named_with_the_command() -> None:
    """A Job that nobody has deleted is not ended: the warning says how to end its machine.

    Report: https://github.com/kubernetes/kubernetes/issues/125217.
    """
    world = ClusterWorld([BURST])
    name = world.add_node(BURST, not_ready=NOW - 2 * HOUR)
    world.pods = [cluster_pod("train-7", name, owner="Job", gpus=4), cluster_pod("web", name, deleted=NOW - HOUR)]

    for seconds in (0, 60, 8 * HOUR):
        decision = world.round(seconds)
    assert world.ended == []
    assert f"{name}: not ready since" in world.warnings(decision)
    assert f"runs on for pod lab/train-7. If the machine is lost, `bedplate node stop {world.machines[0].id}`" in (
        world.warnings(decision)
    )


def test_movable_pods_leave_a_dead_kubelet() -> None:
    """Pods that are created elsewhere are evicted after an hour, and their machine ends with them.

    Report: https://github.com/kubernetes/kubernetes/issues/55713.
    """
    world = ClusterWorld([BURST])
    name = world.add_node(BURST, not_ready=NOW - 50 * MINUTE)
    world.pods = [cluster_pod("web", name)]
    world.round()
    world.round(11 * MINUTE)
    assert (world.drained, world.ended) == ([name], [])
    world.pods = [cluster_pod("web", name, deleted=NOW + 11 * MINUTE)]
    world.round(12 * MINUTE)
    assert len(world.ended) == 1


def test_a_pod_that_does_not_end_keeps_no_machine() -> None:
    """A deleted pod of a kubelet that is ready, which cannot end it, is no work a quarter of an hour later.

    Report: https://github.com/kubernetes/kubernetes/issues/20497.
    """
    world = ClusterWorld([BURST])
    world.add_node(BURST)
    world.pods = [cluster_pod("stuck", world.add_node(BURST), owner="Job", deleted=NOW - 10 * MINUTE)]

    world.round()
    assert not any(node.stuck for node in world.seen.nodes)
    world.round(20 * MINUTE)
    (node,) = (node for node in world.seen.nodes if node.stuck)
    assert (node.stuck, node.pods, node.idle_since) == (("lab/stuck",), (), NOW - 10 * MINUTE)


def _apart(app: str, other: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": other}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"labels": {"app": app}, "affinity": affinity, **spec}


def test_a_node_with_room_is_none_for_a_pod_that_must_be_apart() -> None:
    """A pod does not fit beside another app that it avoids, nor beside one that avoids it: a machine starts.

    Reports: https://github.com/kubernetes/autoscaler/issues/5741,
    https://github.com/wbuchwalter/Kubernetes-acs-engine-autoscaler/issues/65.
    """
    plain: dict[str, Any] = {"labels": {"app": "b"}}
    for running, waiting in ((plain, _apart("a", "b")), (_apart("a", "b"), plain)):
        world = ClusterWorld([BURST])
        world.pods = [
            cluster_pod("runs", world.add_node(BURST), cpus=1, **running),
            cluster_pod("waits", cpus=1, **waiting),
        ]
        assert [waiting.is_coming for waiting in world.round().waiting] == [True]
        assert world.desired() == {"burst": 2}


def test_pods_that_avoid_another_app_share_a_machine() -> None:
    """Eight pods apart from another app need one machine, not eight.

    Report: https://github.com/kubernetes/autoscaler/issues/4082.
    """
    world = ClusterWorld([BURST])
    world.pods = [cluster_pod("runs", world.add_node(BURST), cpus=1, labels={"app": "b"})]
    world.pods += [cluster_pod(f"a-{i}", cpus=1, **_apart("a", "b")) for i in range(8)]
    world.round()
    assert world.desired() == {"burst": 2}


def test_machines_on_their_way_are_places_of_a_spread() -> None:
    """Three pods apart from each other get three machines, and no fourth while these join one after the other.

    Reports: https://github.com/kubernetes/autoscaler/issues/5531, https://github.com/kubernetes/autoscaler/issues/33.
    """
    world = ClusterWorld([BURST])
    world.pods = [cluster_pod(f"sts-{i}", owner="StatefulSet", cpus=1, **_apart("sts", "sts")) for i in range(3)]
    world.round()
    assert world.desired() == {"burst": 3}
    nodes = []
    for number in range(3):
        nodes.append(world.add_node(BURST, ZONES[number], age=60))
        world.pools = [replace(BURST, desired=3)]
        decision = world.round(30.0 * number)
        assert world.desired() == {"burst": 3}
        assert all(waiting.is_coming for waiting in decision.waiting)


def test_a_spread_with_fewest_domains_gets_its_machines() -> None:
    """Three replicas over two zones and over hosts, in their revision only, are two pods and one more.

    Reports: https://github.com/kubernetes-sigs/karpenter/issues/2257,
    https://github.com/kubernetes-sigs/karpenter/issues/329.
    """
    selector = {"matchLabels": {"app": "es"}}
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    keys = ["controller-revision-hash"]
    rules = [
        {**rule, "topologyKey": "topology.kubernetes.io/zone", "minDomains": 2, "matchLabelKeys": keys},
        {**rule, "topologyKey": "kubernetes.io/hostname", "matchLabelKeys": keys},
    ]
    labels = {"app": "es", "controller-revision-hash": "2"}
    world = ClusterWorld([replace(BURST, zones=ZONES[:2])])
    # A pod of an older revision does not count.
    world.pods = [
        cluster_pod("old", world.add_node(BURST, ZONES[0]), labels={**labels, "controller-revision-hash": "1"})
    ]
    world.pods += [
        cluster_pod(f"es-{i}", owner="StatefulSet", labels=labels, topologySpreadConstraints=rules) for i in range(3)
    ]
    decision = world.round()
    assert [waiting.is_coming for waiting in decision.waiting] == [True] * 3
    assert world.desired() == {"burst": 4}


def test_a_zone_that_a_pod_cannot_use_is_none_of_its_domains() -> None:
    """Pods that select the nodes of one zone are not spread over the others.

    Report: https://github.com/kubernetes-sigs/karpenter/issues/3272.
    """
    ssd = replace(BURST, name="ssd", zones=ZONES[1:2], labels={"disk": "ssd"})
    world = ClusterWorld([ssd, TRAIN])
    world.add_node(TRAIN)
    world.pods = _web(3, nodeSelector={"disk": "ssd"})
    world.round()
    assert world.desired() == {"ssd": 3, "train": 1}


def test_a_node_without_all_labels_of_a_spread_is_no_domain() -> None:
    """Of two rules, each counts only nodes with both labels: a second pod goes beside the first.

    Source: https://github.com/kubernetes/kubernetes/tree/master/pkg/scheduler/framework/plugins/podtopologyspread.
    """
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}}
    rules = [{**rule, "topologyKey": "topology.kubernetes.io/zone"}, {**rule, "topologyKey": "rack"}]
    world = ClusterWorld([BURST])
    first, _ = world.add_node(BURST, ZONES[0]), world.add_node(BURST, ZONES[1])
    world.nodes[0].metadata.labels["rack"] = "1"  # type: ignore[union-attr, index]
    world.pods = [
        cluster_pod(name, node, cpus=1, labels={"app": "a"}, topologySpreadConstraints=rules)
        for name, node in (("runs", first), ("waits", None))
    ]
    assert [waiting.reason for waiting in world.round().waiting] == [f"{first} has room now"]


def test_with_too_few_domains_the_skew_is_that_of_an_empty_one() -> None:
    """One zone of two that are required holds one pod: the second gets a machine in the other zone.

    Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/.
    """
    pools = [replace(BURST, name=zone, zones=(zone,)) for zone in ZONES[:2]]
    for domains, desired in ((1, {ZONES[0]: 1}), (2, {ZONES[0]: 1, ZONES[1]: 1})):
        world = ClusterWorld(pools)
        pods = _web(2, minDomains=domains)
        for pod in pods:
            pod.spec.containers[0].resources.requests["cpu"] = "1"  # type: ignore[union-attr, index]
        pods[0].spec.nodeName = world.add_node(pools[0])  # type: ignore[union-attr]
        world.pods = pods
        world.round()
        assert world.desired() == desired


def test_a_spread_grows_several_pools_at_once() -> None:
    """Pods that are spread over two zones raise the pools of both in one decision.

    Report: https://github.com/kubernetes/autoscaler/issues/9150.
    """
    pools = [replace(BURST, name=zone, zones=(zone,)) for zone in ZONES[:2]]
    world = ClusterWorld(pools)
    for number, pool in enumerate(pools):
        world.pods += _web(1, world.add_node(pool), first=100 + number)
    world.pods += _web(6)
    world.round()
    assert world.desired() == {ZONES[0]: 4, ZONES[1]: 4}


@pytest.mark.parametrize("label", [True, False], ids=["label", "node affinity"])
def test_a_volume_in_a_zone_without_nodes_starts_a_machine_there(label: bool) -> None:  # noqa: FBT001
    """The pool of that zone grows; one of several zones does not, because AWS chooses among them.

    Reports: https://github.com/kubernetes/autoscaler/issues/6000,
    https://github.com/aerospike/aerospike-kubernetes-operator/issues/80.
    """
    zone, key = ZONES[2], "topology.kubernetes.io/zone"
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}]}
    volume = {
        "metadata": {"name": "pv", "labels": {key: zone} if label else {}},
        "spec": {} if label else {"nodeAffinity": {"required": terms}},
    }
    claim = {"metadata": {"name": "d"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    stores: dict[str, Any] = {
        "claims": {"lab/d": PersistentVolumeClaim.from_dict(claim)},
        "volumes": {"pv": PersistentVolume.from_dict(volume)},
    }
    pod = cluster_pod("db", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}])
    world = ClusterWorld([replace(BURST, name=zone, zones=(zone,)) for zone in ZONES], [pod], **stores)
    world.round()
    assert world.desired() == {zone: 1}
    (reason,) = _reasons(ClusterWorld([BURST], [pod], **stores).round())
    assert f"its {key} is missing, not {zone}" in reason


def test_a_pod_whose_claim_is_not_bound_yet_starts_no_machine() -> None:
    """The claim may be bound in seconds; until then nobody knows the zone, and the reason says so.

    Reports: https://github.com/kubernetes/autoscaler/issues/923, https://github.com/kubernetes/autoscaler/issues/1658.
    """
    world = ClusterWorld([BURST], claims=CLAIMS, volumes=VOLUMES)
    world.pods = [cluster_pod("db", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "waiting"}}])]
    assert list(_reasons(world.round())) == ["its claim lab/waiting is not bound to a volume"]
    assert world.desired() == {}


@pytest.mark.parametrize("is_full", [True, False], ids=["its node is full", "its node has ended"])
def test_a_pod_returns_to_the_zone_of_its_volume(is_full: bool) -> None:  # noqa: FBT001
    """The pool of that zone grows, although nodes in other zones have room.

    Reports: https://github.com/kubernetes/autoscaler/issues/4739, https://github.com/Azure/AKS/issues/1648,
    https://github.com/kubernetes/kubernetes/issues/71265.
    """
    pools = [replace(BURST, name=zone, zones=(zone,)) for zone in ZONES]
    world = ClusterWorld(pools, claims=CLAIMS, volumes=VOLUMES)
    world.add_node(pools[0])
    if is_full:
        world.pods = [cluster_pod("other", world.add_node(pools[1]))]
    mount = [{"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}]
    world.pods.append(cluster_pod("grafana", owner="StatefulSet", volumes=mount))
    world.round()
    assert world.desired()[VOLUME] == 1 + is_full


@pytest.mark.parametrize(
    ("spec", "word", "source"),
    [
        ({"affinity": {"podAffinity": NEAR}}, "podAffinity", "kubernetes/autoscaler#5238, gardener/autoscaler#371"),
        ({"schedulerName": "volcano"}, "scheduled by volcano", "volcano-sh/volcano, documentation of schedulerName"),
    ],
)
def test_a_rule_that_nobody_compares_is_the_reason(spec: dict[str, Any], word: str, source: str) -> None:
    """No machine starts in vain, and none is kept: the pod waits with this reason."""
    world = ClusterWorld([BURST])
    world.pods = [cluster_pod("multus", world.add_node(BURST)), cluster_pod("near", **spec)]
    (reason,) = _reasons(world.round())
    assert word in reason, source
    assert world.desired() == {"burst": 1}


def test_a_pool_without_machines_has_the_gpus_and_labels_of_its_plan() -> None:
    """GPUs, labels and taints of a pool are known before its first node.

    Reports: https://github.com/kubernetes/autoscaler/issues/903, https://github.com/kubernetes/autoscaler/issues/929,
    https://github.com/kubernetes/autoscaler/issues/4893, https://github.com/kubernetes/autoscaler/issues/8341.
    """
    taint = "team=windows:NoSchedule"
    pool = replace(BURST, labels={"my-node-group-type": "windows"}, taints=frozenset({taint}))
    tolerations = [{"key": "team", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]
    terms = [{"matchExpressions": [{"key": "my-node-group-type", "operator": "In", "values": ["windows"]}]}]
    near = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = cluster_pod("simple-gpu-test", gpus=1, tolerations=tolerations, affinity={"nodeAffinity": near})
    world = ClusterWorld([pool], [pod])
    assert [waiting.is_coming for waiting in world.round().waiting] == [True]
    assert world.desired() == {"burst": 1}


def test_a_claim_for_one_pod_that_another_pod_has_starts_no_machine() -> None:
    """The scheduler waits until the other pod has ended; a machine would be empty.

    Source: https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes.
    """
    claim = {
        "metadata": {"name": "d"},
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": "Bound"},
    }
    volume = {"metadata": {"name": "pv"}, "spec": {}}
    world = ClusterWorld([BURST])
    world.claims = {"lab/d": cast("PersistentVolumeClaim", PersistentVolumeClaim.from_dict(claim))}
    world.volumes = {"pv": cast("PersistentVolume", PersistentVolume.from_dict(volume))}
    mount: dict[str, Any] = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}
    world.pods = [cluster_pod("first", world.add_node(BURST), cpus=1, **mount), cluster_pod("second", cpus=40, **mount)]
    assert list(_reasons(world.round())) == ["its claim lab/d is for one pod only, and another pod has it"]
    assert world.desired() == {"burst": 1}


def test_a_pod_that_fits_only_a_full_node_has_a_reason() -> None:
    """No pool suits it, and the node of a site that does is full: the reason is not empty.

    Report: https://github.com/kubernetes/autoscaler/issues/7963.
    """
    world = ClusterWorld([BURST])
    name = world.add_node(TRAIN)
    world.nodes[0].spec.providerID = "bedplate://cellar/titan"  # type: ignore[union-attr]
    world.machines = []
    world.count_machines()
    world.pods = [cluster_pod("runs", name, gpus=8), cluster_pod("waits", gpus=8)]
    (reason,) = _reasons(world.round())
    assert reason == "the nodes that suit it are full or take no pods, and no pool suits it"


def test_a_machine_starts_only_where_the_spread_permits_one() -> None:
    """AWS launches in a zone with the fewest machines; a pod that may not run there waits with this reason."""
    pool = replace(BURST, zones=ZONES[:2])
    world = ClusterWorld([pool])
    world.pods = _web(1, world.add_node(pool, ZONES[0])) + _web(1, first=1)
    world.round()
    assert world.desired() == {"burst": 2}

    world = ClusterWorld([pool])
    world.pods = _web(2, world.add_node(pool, ZONES[0])) + _web(1, world.add_node(pool, ZONES[1]), first=2)
    world.pods += [cluster_pod("other", world.add_node(pool, ZONES[1])), *_web(1, first=3)]
    assert list(_reasons(world.round())) == ["burst: the pod's spread permits none where AWS launches next"]
    assert world.desired() == {"burst": 3}


def test_a_reason_is_never_empty() -> None:
    """An empty text becomes one that says whose defect this is."""
    assert "defect" in Reason("")
    assert Reason("full") == "full"
