"""Which node gets which roles: a pure function of its plan, in the order in which they take effect."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock, refuse_unrecorded
from bedplate.nodes.ssh import FIRST
from bedplate.plan import plan_fleet
from bedplate.plan.nodes import Duty, Ground, NodePlan, standing_nodes
from roles.base import Role
from roles.baseline.role import Baseline
from roles.guard.role import Guard
from roles.hardened.role import Hardened
from roles.keeper.role import Keeper
from roles.monitoring.role import Monitoring
from roles.openvpn.role import OpenVpn
from roles.people.accounts import HOMES
from roles.people.role import People
from roles.storage.role import Storage
from roles.workbench.role import Workbench


def roles_of(node: NodePlan) -> tuple[Role, ...]:
    """Return the roles of a node, each told only what it needs."""
    return tuple(_roles(node))


def _roles(node: NodePlan) -> Iterator[Role]:
    yield Baseline(node)
    homes = next((each.path for each in node.shares if each.mount == HOMES), None)
    yield People(node.accounts, homes, FIRST if node.ground is Ground.METAL else None)
    # Jobs of a worker run in containers, which bring what they read with.
    buckets = node.buckets if Duty.WORKBENCH in node.duties else ()
    yield Storage(node.mounts, node.shares, buckets, node.region, node.ground is Ground.CLOUD)
    if Duty.WORKBENCH in node.duties:
        yield Workbench(node.accounts.people, node.gpus, node.scratch)
    yield Monitoring(node.address)
    if node.duties & {Duty.LAPTOPS, Duty.TUNNELS}:
        yield Keeper()
    if node.elsewhere:
        yield Guard(node.elsewhere, speaks_bgp=Duty.TUNNELS in node.duties)
    if node.laptops:
        yield OpenVpn(node.laptops)
    # The last: its activation is on trial, and the time of the trial runs until the operator has come in again.
    yield Hardened(doors=node.doors, duties=node.duties, fabric=node.gpus is not None)


def names_of(node: NodePlan) -> tuple[str, ...]:
    """Return the names of a node's roles."""
    return tuple(role.name for role in _roles(node))


@cache
def machines(file: Path) -> Mapping[str, NodePlan]:
    """Return the machines that always stand; raises FleetFaults, or InputError for what the lock does not hold yet."""
    catalog = load_catalog()
    loaded = load_fleet(file, catalog)
    record = read_lock(lock_path(file), loaded.fleet.name)
    plan = loaded.judge(plan_fleet(loaded.fleet, record, catalog), catalog)
    refuse_unrecorded(plan, file)
    return {node.name: node for node in standing_nodes(plan)}
