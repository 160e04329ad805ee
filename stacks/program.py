"""The one program of the project: it runs the part that its stack's name asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pulumi
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.catalog import Catalog, load_catalog
from bedplate.errors import InputError
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock, refuse_names
from bedplate.plan import plan_fleet
from bedplate.plan.fleet import Accounts, FleetPlan
from bedplate.plan.links import joined_regions
from bedplate.plan.planner import indispensable_images
from bedplate.spec.network import Interconnect
from stacks.alarms.alarms import Spending
from stacks.dns.zone import FleetRecords, ReverseZone, reverse_names
from stacks.identity.policy import FleetKey
from stacks.identity.roles import NodeRole, kinds
from stacks.network.transit import Peering, Side, TransitLink, pairs, sides
from stacks.network.vpc import FlowRole
from stacks.options import LINKS, SHARED, in_region, inside, named, part_of, parts
from stacks.region import declare_region
from stacks.storage.buckets import ReplicationRole, StoreCopies, copies
from stacks.vpn.ends import GatewayLink, JoinedGateway
from stacks.vpn.sites import declare_sites

_LINKS: Mapping[Interconnect, Callable[[FleetPlan, Side, Side], object]] = MappingProxyType(
    {Interconnect.TRANSIT: TransitLink, Interconnect.PEERING: Peering}
)


class SharedNames(pulumi.ComponentResource):
    """The home region's private zone, resolvable in the VPC of every other region."""

    def __init__(self, plan: FleetPlan, every: Mapping[str, Side], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:SharedNames", plan.name, None, opts)
        zone_id = every[plan.home.name].output("zone_id")
        for side in (side for side in every.values() if not side.region.home):
            args = ZoneAssociationArgs(zone_id=zone_id, vpc_id=side.output("vpc_id"), vpc_region=side.name)
            ZoneAssociation(f"{plan.name}-{side.name}", args, inside(self))
        self.register_outputs({})


def declare_links(plan: FleetPlan) -> None:
    """Declare what ties the regions of a fleet together."""
    every = sides(plan)
    _declare_names(plan, every)
    link = _LINKS.get(plan.interconnect)
    if link is not None:
        for near, far in pairs(every):
            link(plan, near, far)
    _declare_joints(plan, every)
    declare_sites(plan, every)
    for buckets in copies(plan).values():
        StoreCopies(plan, buckets, every)
    pulumi.export("regions", sorted(every))


def _declare_joints(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare what gateways need that join regions by tunnels of their own."""
    joined = {name: JoinedGateway(plan, every[name]) for name in sorted(joined_regions(plan))}
    for near, far in pairs(joined):
        GatewayLink(plan, near, far)


def _declare_names(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare what is known by name: the home region acts, for names have no region of their own."""
    home = every[plan.home.name]
    at_home = pulumi.ResourceOptions(providers=[home.provider])
    SharedNames(plan, every, at_home)
    FleetRecords(plan, home.output("zone_id"), every, at_home)
    for zone, names in reverse_names(plan).items():
        ReverseZone(plan, zone, names, every, at_home)


@dataclass(frozen=True, slots=True)
class Order:
    """What a live run has to do: one part of a plan."""

    plan: FleetPlan
    part: str


def order(fleet_file: Path, stack: str) -> Order:
    """Return the part of the fleet that a stack's name asks for.

    Raises InputError for a faulty fleet file, a foreign stack, or a plan or an image that the lock does not hold.
    """
    catalog = load_catalog()
    # A group that has expired must not block the stacks of other regions.
    loaded = load_fleet(fleet_file, catalog, part=stack.partition(".")[2])
    record = read_lock(lock_path(fleet_file), loaded.fleet.name)
    plan = loaded.judge(plan_fleet(loaded.fleet, record, catalog), catalog)
    refuse_unrecorded(plan, fleet_file)
    refuse_unpinned(plan, catalog, fleet_file)
    return Order(plan, part_of(plan, stack))


def refuse_unrecorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError when the plan has what its lock lacks: the next run might allot other blocks, or other ids.

    Of people only administrators count, whose ids machines of the cloud learn from AWS.
    """
    admins = (person.name for person in plan.accounts.people if person.admin)
    refuse_names((*plan.news, *(name for name in admins if name in plan.new_people)), fleet_file)


def refuse_unpinned(plan: FleetPlan, catalog: Catalog, fleet_file: Path) -> None:
    """Raise InputError when a group of similar types lacks its image's id: Auto Scaling takes no parameter for it."""
    if places := indispensable_images(plan, catalog):
        raise InputError(
            f"similar types need an image in {lock_path(fleet_file).name}: {', '.join(places)}",
            where=str(fleet_file),
            fix=f"run `bedplate image record {fleet_file.name}` first, and commit the lock",
        )


# Characters of a standard parameter. Source: Systems Manager user guide, "Managing parameter tiers".
_LARGEST = 4096
_NOBODY = "-"


def facts(plan: FleetPlan) -> dict[str, str]:
    """Return the value of each parameter by its path."""
    blocks = {f"regions/{region.name}/block": str(region.block) for region in plan.regions}
    once = {
        "admins": administrators(plan.accounts),
        "domain": plan.domain,
        "home": plan.home.name,
        "supernet": str(plan.supernet),
    }
    return {f"/{plan.name}/{path}": value for path, value in (once | blocks).items()}


def administrators(accounts: Accounts) -> str:
    """Return who may log in to a machine that has just started: `ada 20000 ssh-ed25519 AAAA...`, a comma between keys.

    `-` where there is nobody. Raises InputError for more than a parameter takes.
    """
    lines = (
        f"{person.name} {person.uid} {' '.join(key.split()[:2])}"
        for person in accounts.people
        if person.admin
        for key in person.keys
    )
    told = ",".join(lines) or _NOBODY
    if len(told) > _LARGEST:
        raise InputError(
            f"the administrators' keys take {len(told):,} characters, and a parameter takes {_LARGEST:,}",
            fix="let them have Ed25519 keys, which are short",
        )
    return told


class FleetParameters(pulumi.ComponentResource):
    """The facts, each a parameter encrypted by the fleet's key, as the secrets beside them are."""

    def __init__(self, plan: FleetPlan, key_arn: pulumi.Input[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FleetParameters", plan.name, None, opts)
        for path, value in facts(plan).items():
            Parameter(
                path.removeprefix("/").replace("/", "-"),
                ParameterArgs(name=path, type="SecureString", key_id=key_arn, value=value, tags=named(path)),
                inside(self),
            )
        self.register_outputs({})


def declare_shared(plan: FleetPlan) -> None:
    """Declare what all regions of a fleet share."""
    here = in_region(plan, SHARED, plan.home.name)
    roles = {kind: NodeRole(plan, kind, here) for kind in kinds(plan)}
    FlowRole(plan, here)
    if plan.budget:
        Spending(plan, plan.budget.monthly, plan.budget.email, here)
    if copies(plan):
        ReplicationRole(plan, here)
    key = FleetKey(plan, "parameters", here)
    FleetParameters(plan, key.arn, here)
    pulumi.export("role_arns", {kind: role.role_arn for kind, role in roles.items()})
    pulumi.export("profile_arns", {kind: role.profile_arn for kind, role in roles.items()})
    pulumi.export("parameter_key_arn", key.arn)
    pulumi.export("parameter_path", f"/{plan.name}/")


__all__ = ["declare", "parts"]


def declare(plan: FleetPlan, part: str) -> None:
    """Declare the resources of one part: `shared`, a region's name, or `links`.

    Raises InputError, naming the parts, when the fleet has no such part.
    """
    if part not in parts(plan):
        raise InputError(f"{part} is no part of the fleet {plan.name}", fix=f"name one of {', '.join(parts(plan))}")
    if part == SHARED:
        declare_shared(plan)
    elif part == LINKS:
        declare_links(plan)
    else:
        declare_region(plan, plan.region(part))
