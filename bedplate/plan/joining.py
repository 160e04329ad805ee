"""How machines join the cluster: what the approver on a member of the control plane knows of the plan.

Members have it in their node document, so that the approver needs no fleet file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import MappingProxyType

from bedplate.plan.cluster import as_node
from bedplate.plan.fleet import FleetPlan, cached_on_plan

# The groups of bootstrap tokens. The API server accepts a-z, 0-9, colons and hyphens after the prefix.
BOOTSTRAPPERS = "system:bootstrappers:bedplate"
"""Whoever has a token: may create requests for certificates, which only the approver approves."""
WORKERS = f"{BOOTSTRAPPERS}:workers"
"""The token of workers in the cloud, which prove by their key which instance they are."""
# Digits of the instance id at the end of a node name.
_DIGITS = 8
_POOL_NODE = re.compile(rf"(?P<group>[a-z0-9-]+)-[0-9a-f]{{{_DIGITS}}}\.(?P<region>[a-z0-9-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class JoiningPlan:
    """`buckets` holds the bucket with the status of nodes by region, `fixed` each permanent node's address by name."""

    fleet: str
    home: str
    buckets: Mapping[str, str]
    fixed: Mapping[str, IPv4Address]

    @property
    def parameter(self) -> str:
        """The SSM parameter with the token of workers in the cloud."""
        return join_parameter(self.fleet)


@cached_on_plan
def joining_plan(plan: FleetPlan) -> JoiningPlan:
    """Return what the approver of a fleet knows."""
    names = [member.name for member in plan.control_plane.members] if plan.control_plane else []
    names += [f"{label}.{site.name}" for site in plan.sites for label in site.machines]
    nodes = filter(None, (as_node(plan, name) for name in names))
    return JoiningPlan(
        fleet=plan.name,
        home=plan.home.name,
        buckets=MappingProxyType({region.name: plan.nodes_bucket(region.name).name for region in plan.regions}),
        fixed=MappingProxyType({node.name: node.address for node in nodes if node.address}),
    )


def join_parameter(fleet: str) -> str:
    """Return the name of a fleet's parameter: every node may read `/FLEET/`, and no fleet has a dot in its name."""
    return f"/{fleet}.workers/join"


def pool_node_name(group: str, instance: str, region: str) -> str:
    """Return the node name of an instance, such as `train-9f3c21aa.us-west-2`."""
    return f"{group}-{instance[-_DIGITS:]}.{region}"


def region_of_node(name: str) -> str | None:
    """Return the region of a node of a pool; None for a name that no instance of a pool has."""
    match = _POOL_NODE.fullmatch(name)
    return match["region"] if match else None


def machine_group(name: str) -> str:
    """Return the group of the token of one machine of a site, which joins only that machine."""
    host, _, place = name.partition(".")
    return f"{BOOTSTRAPPERS}:machine:{place}:{host}"
