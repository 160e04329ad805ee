"""The plan of the Kubernetes cluster: members, sizes of packets, and what each machine registers."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.cluster import GATE_TAINT, ClusterPlan, cluster_plan, member_node, pool_node_kinds, site_node
from bedplate.plan.registration import INSTANCE_TYPE, ZONE, pool_registration, registration
from bedplate.spec.sites import Use
from tests.testlab.fleets.variants import CONNECTED_REGIONS_TEXT, lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of, plan_of_text

_CLUSTER = "kubernetes: {version: '1.36', control_plane: {type: m7i.large, count: 1}}\n"
CATALOG = load_catalog()
LAB = lab_plan()


@pytest.fixture
def cluster() -> ClusterPlan:
    """Return the cluster of the lab."""
    cluster = cluster_plan(LAB)
    assert cluster
    return cluster


def test_each_member_knows_the_whole_cluster(cluster: ClusterPlan) -> None:
    """Etcd starts with all members, by their names and fixed addresses; certificates have every name of the API."""
    assert cluster.initial_cluster == (
        "control-1.us-west-2=https://10.64.32.16:2380,control-2.us-west-2=https://10.64.64.16:2380,"
        "control-3.us-west-2=https://10.64.96.16:2380"
    )
    assert {"kubernetes.lab.internal", "control-3.us-west-2.lab.internal", "10.64.96.16"} <= set(cluster.api_names)


def test_dns_is_a_service(cluster: ClusterPlan) -> None:
    """The address of cluster DNS is in the block of services, which no machine uses."""
    assert str(cluster.dns) == "10.120.0.10"
    assert cluster.dns in cluster.services


@pytest.mark.parametrize(("name", "mtu"), [("lab", 1400), ("simulators", 8500), ("training-block", 9001)])
def test_packets_fit_the_narrowest_path(name: str, mtu: int) -> None:
    """A site's worker limits all packets to those of a tunnel; workers of other regions to those of AWS's gateways."""
    cluster = cluster_plan(plan_of(EXAMPLES / f"{name}.yaml"))

    assert cluster
    assert cluster.mtu == mtu


def test_packets_between_connected_gateways_fit_their_tunnel() -> None:
    """Without transit gateways and peering, packets between regions use the tunnels of laptop gateways."""
    cluster = cluster_plan(plan_of_text(CONNECTED_REGIONS_TEXT.replace("use: ssh", "use: kubernetes") + _CLUSTER))

    assert cluster
    assert cluster.mtu == 1400


def test_a_fleet_without_a_cluster_has_no_plan_of_it() -> None:
    """The plan is None without the section `kubernetes`."""
    assert cluster_plan(plan_of_text(CONNECTED_REGIONS_TEXT)) is None


@pytest.mark.parametrize("name", ["lab", "arm64", "simulators", "training-block"])
def test_workers_register_what_the_tags_of_their_pool_promise(name: str) -> None:
    """With its own type and zone, a machine has the labels and taints of its registration, and the gate's taint."""
    plan = plan_of(EXAMPLES / f"{name}.yaml")
    cluster = cluster_plan(plan)
    assert cluster
    for pool in (pool for pool in plan.pools if pool.use is Use.KUBERNETES):
        node = pool_node_kinds(cluster, pool, CATALOG)
        for type_name in pool.types:
            kind = node.kinds[type_name].registration
            promised = registration(pool, type_name, pool.zones[0], CATALOG)
            assert {**kind.labels, INSTANCE_TYPE: type_name, ZONE: pool.zones[0]} == promised.labels
            assert kind.taints == (*promised.taints, GATE_TAINT)
            assert pool_registration(pool, CATALOG).labels.items() <= promised.labels.items()


def test_similar_types_register_the_common_part() -> None:
    """With `similar: true` AWS may start a type that the file does not name."""
    plan = plan_of(EXAMPLES / "simulators.yaml")
    pool = next(pool for pool in plan.pools if pool.group_spec.similar)
    cluster = cluster_plan(plan)
    assert cluster

    kinds = pool_node_kinds(cluster, pool, CATALOG).kinds

    assert kinds[""].registration.labels["bedplate/group"] == pool.group
    assert "lab.example/spot=sim:NoSchedule" in kinds[""].registration.taints


def test_a_sites_worker_registers_its_gpus(cluster: ClusterPlan) -> None:
    """A site takes the place of region and zone, so that its loss is not taken for the loss of a region."""
    site = LAB.sites_by_name["cellar"]

    node = site_node(cluster, site, site.machines["titan-01"])

    kind = node.kinds[""].registration
    assert node.provider == "bedplate://cellar/titan-01"
    assert kind.labels["k8s.amazonaws.com/accelerator"] == "nvidia-titan-x"
    assert {kind.labels["topology.kubernetes.io/region"], kind.labels[ZONE]} == {"cellar"}
    assert kind.taints == ("nvidia.com/gpu=present:NoSchedule", GATE_TAINT)


def test_members_take_no_pods_of_people(cluster: ClusterPlan) -> None:
    """A control-plane machine has the taint of Kubernetes, and a fixed address."""
    node = member_node(LAB, cluster, cluster.members[0])

    assert node.kinds[""].registration.taints == ("node-role.kubernetes.io/control-plane=:NoSchedule",)
    assert str(node.address) == "10.64.32.16"
