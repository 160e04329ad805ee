"""The roles of each node, in the order in which they are configured: a pure function of the node's plan."""

from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from bedplate.catalog.catalog import load_chips
from bedplate.catalog.software import NVIDIA_KEY_SUM
from bedplate.load import load_fleet
from bedplate.lock import check_plan_recorded, lock_path, read_lock
from bedplate.nodes.ssh import INITIAL_ACCOUNT
from bedplate.plan.fleet import Access
from bedplate.plan.nodes import NodePlan, NodeRole, Platform, permanent_nodes
from roles.approver.role import Approver
from roles.base import Role
from roles.baseline.role import Baseline
from roles.capacity.role import Capacity
from roles.containers.role import Containers
from roles.control.role import Control
from roles.efa.role import Efa
from roles.frameworks.role import Frameworks, has_frameworks
from roles.gate.role import Gate, expectations
from roles.grafana.role import Grafana
from roles.guard.role import Guard
from roles.hardened.role import Hardened
from roles.hub.role import hub_role
from roles.jobs.role import Jobs
from roles.kubernetes.role import Kubernetes
from roles.mlflow.role import Mlflow
from roles.monitoring.role import Monitoring
from roles.nvidia.exporter import Exporter
from roles.nvidia.role import Nvidia, Tools, driver_of
from roles.openvpn.role import OpenVpn
from roles.people.accounts import HOMES
from roles.people.role import People
from roles.postgres.role import Postgres
from roles.prometheus.role import Prometheus
from roles.storage.role import Storage
from roles.tokens.role import Tokens, cluster_accounts
from roles.vpnagent.role import VpnAgent
from roles.workbench.role import Workbench
from roles.worker.role import Worker


def roles_of(node: NodePlan) -> tuple[Role, ...]:
    """Return the roles of a node."""
    return tuple(_roles(node))


def _roles(node: NodePlan) -> Iterator[Role]:
    yield Baseline(node)
    homes = next((share.path for share in node.shares if share.mount == HOMES), None)
    yield People(node.accounts, homes, INITIAL_ACCOUNT if node.platform is Platform.METAL else None)
    # Jobs on a worker run in containers, which have their own S3 client.
    buckets = node.buckets if NodeRole.WORKBENCH in node.roles else ()
    yield Storage(node.mounts, node.shares, buckets, node.region, node.platform is Platform.CLOUD)
    if NodeRole.WORKBENCH in node.roles:
        in_cloud = node.platform is Platform.CLOUD
        yield Workbench(node.accounts.people, node.gpus, node.scratch, reports_use=in_cloud)
        yield from (Jobs(node.accounts.having(Access.LOGIN), bool(node.gpus)),) if node.jobs else ()
    if node.gpus and node.driver:
        driver = driver_of(node.driver, node.gpus, load_chips().get(node.gpus.model))
        tools = Tools(driver.branch, node.software, node.nvidia_key, driver.subnets, node.is_observed)
        exporter = Exporter(node.address, NodeRole.WORKER in node.roles) if node.is_observed else None
        yield Nvidia(driver, node.platform, NodeRole.WORKBENCH in node.roles, tools, exporter)
    if node.fabric:
        yield Efa(node.software)
    if has_frameworks(node):
        yield Frameworks()
    yield from _cluster_roles(node)
    if node.hub:
        yield Postgres(has_volume=node.hub.region is not None)
        yield Mlflow()
        yield hub_role(node.hub, node.accounts)
        yield Prometheus(node.fleet, node.hub)
        yield Grafana()
    mounts = tuple(mount.path for mount in node.mounts)
    yield Monitoring(node.address, node.is_observed, bool(node.gpus and node.driver), mounts)
    if node.roles & {NodeRole.WORKBENCH, NodeRole.WORKER}:
        yield Gate(expectations(node, load_chips()))
    if node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}:
        yield VpnAgent(node.platform is Platform.CLOUD)
    if node.remote_blocks:
        yield Guard(node.remote_blocks, speaks_bgp=NodeRole.TUNNELS in node.roles)
    if node.laptops:
        yield OpenVpn(node.laptops)
    # Last: its change of firewall and sshd is reverted unless a new login confirms it in time.
    yield Hardened(node.firewall_rules, node.roles, node.fabric, node.accounts.administrators, node.pod_rules)


def _cluster_roles(node: NodePlan) -> Iterator[Role]:
    if node.cluster is None:
        return
    cluster, gpus = node.cluster.cluster, bool(node.driver and node.software.checksum(NVIDIA_KEY_SUM))
    yield Containers(cluster.containerd, cluster.keys["docker"], gpus, cluster.mirrors)
    yield Kubernetes(node.cluster, node.images)
    if node.cluster.member:
        yield Control(node.cluster)
        yield Approver()
        yield Tokens(node.cluster.member.address, cluster_accounts(node.accounts))
        if node.capacity:
            yield Capacity(node.capacity)
    elif node.cluster.cluster.authority:
        yield Worker(node.cluster, node.platform is Platform.CLOUD)


def install_digest(node: NodePlan) -> str:
    """Return a digest of what the install stage of a pool's machine depends on, besides the code of the roles.

    An image has the packages of each machine with the same digest.
    """
    driver = node.gpus and node.driver and driver_of(node.driver, node.gpus, load_chips().get(node.gpus.model))
    inputs = (
        *names_of(node),
        node.platform,
        node.software,
        driver,
        bool(node.gpus),
        node.is_observed,
        sorted({mount.kind for mount in node.mounts}),
        bool(node.shares),
        bool(node.buckets) and NodeRole.WORKBENCH in node.roles,
        node.cluster and (node.cluster.cluster.kubelet, node.cluster.cluster.keys),
    )
    return sha256(repr(inputs).encode()).hexdigest()


def names_of(node: NodePlan) -> tuple[str, ...]:
    """Return the names of a node's roles."""
    return tuple(role.name for role in _roles(node))


@cache
def machines(file: Path) -> Mapping[str, NodePlan]:
    """Return the permanent machines by name. Raises FleetFaults, or InputError if fleet.lock is outdated."""
    loaded = load_fleet(file)
    plan = loaded.plan(read_lock(lock_path(file), loaded.fleet.name))
    check_plan_recorded(plan, file)
    return {node.name: node for node in permanent_nodes(plan)}
