"""The stacks `shared` and `links`, and the choice of the part that a stack name selects.

`shared` declares roles, keys and SSM parameters; `links` declares private DNS, peerings, VPN connections and
replication, which need resources of several regions.
"""

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
from bedplate.lock import check_recorded, lock_path, read_lock
from bedplate.plan import plan_fleet
from bedplate.plan.fleet import Accounts, FleetPlan
from bedplate.plan.links import connected_regions, has_transit
from bedplate.plan.planner import required_images
from bedplate.plan.stacks import LINKS, SHARED, chosen_parts
from bedplate.spec.network import Interconnect
from stacks.alarms.alarms import AccountBudget
from stacks.dns.zone import FleetRecords, ReverseZone, remote_records, reverse_names
from stacks.identity.policy import FleetKey
from stacks.identity.roles import NodeRole, node_kinds
from stacks.network.transit import (
    RegionStack,
    TransitPeering,
    VpcPeering,
    declare_transit_routes,
    pairs,
    region_stacks,
)
from stacks.network.vpc import FlowRole
from stacks.options import child_options, name_tag, part_of, region_options, tag_with_resource_name
from stacks.region import declare_region
from stacks.storage.buckets import ReplicationRole, StoreReplication, replicated_stores
from stacks.vpn.ends import GatewayPeering, PeeredGateway
from stacks.vpn.sites import declare_sites

_INTERCONNECTS: Mapping[Interconnect, Callable[[FleetPlan, RegionStack, RegionStack], object]] = MappingProxyType(
    {Interconnect.TRANSIT: TransitPeering, Interconnect.PEERING: VpcPeering}
)


class ZoneAssociations(pulumi.ComponentResource):
    """Associations of the private zone with the VPCs of all other regions."""

    def __init__(self, plan: FleetPlan, stacks: Mapping[str, RegionStack], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:ZoneAssociations", plan.name, None, opts)
        zone_id = stacks[plan.home.name].output("zone_id")
        for stack in (stack for stack in stacks.values() if not stack.region.home):
            args = ZoneAssociationArgs(zone_id=zone_id, vpc_id=stack.output("vpc_id"), vpc_region=stack.name)
            ZoneAssociation(f"{plan.name}-{stack.name}", args, child_options(self))
        self.register_outputs({})


def declare_links(plan: FleetPlan) -> None:
    """Declare the resources between regions: DNS, peerings, VPN connections and replication."""
    stacks = region_stacks(plan)
    _declare_dns(plan, stacks)
    if has_transit(plan):
        for stack in stacks.values():
            declare_transit_routes(plan, stack)
    interconnect = _INTERCONNECTS.get(plan.interconnect)
    if interconnect is not None:
        for requester, accepter in pairs(stacks):
            interconnect(plan, requester, accepter)
    _declare_gateway_peerings(plan, stacks)
    declare_sites(plan, stacks)
    for buckets in replicated_stores(plan).values():
        StoreReplication(plan, buckets, stacks)
    pulumi.export("regions", sorted(stacks))


def _declare_gateway_peerings(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> None:
    """Declare the peering of regions whose VPN gateways connect them with tunnels."""
    joined = {name: PeeredGateway(plan, stacks[name]) for name in sorted(connected_regions(plan))}
    for first, second in pairs(joined):
        GatewayPeering(plan, first, second)


def _declare_dns(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> None:
    """Declare the private DNS of the fleet; Route 53 is global, so the provider of the home region is used."""
    home = stacks[plan.home.name]
    at_home = pulumi.ResourceOptions(providers=[home.provider])
    ZoneAssociations(plan, stacks, at_home)
    FleetRecords(plan, home.output("zone_id"), remote_records(plan, stacks), at_home)
    for zone, names in reverse_names(plan).items():
        ReverseZone(plan, zone, names, stacks, at_home)


@dataclass(frozen=True, slots=True)
class StackRun:
    """One run of the program: the plan and the part to declare."""

    plan: FleetPlan
    part: str


def load_stack(fleet_file: Path, stack: str) -> StackRun:
    """Return the plan and the part that a stack name selects.

    Raises InputError for an invalid fleet file, a stack of another fleet, or a plan or image missing in the lock.
    """
    catalog = load_catalog()
    # An expired group must not block the stacks of other regions.
    load_result = load_fleet(fleet_file, catalog, part=stack.partition(".")[2])
    lock = read_lock(lock_path(fleet_file), load_result.fleet.name)
    plan = load_result.check_plan(plan_fleet(load_result.fleet, lock, catalog), catalog)
    require_recorded(plan, fleet_file)
    require_image_ids(plan, catalog, fleet_file)
    return StackRun(plan, part_of(plan, stack))


def require_recorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError if the lock lacks a name of the plan: the next run could assign another block or id.

    Of the people only administrators matter: EC2 instances read their user ids from SSM.
    """
    admins = (person.name for person in plan.accounts.people if person.admin)
    check_recorded((*plan.new_blocks, *(name for name in admins if name in plan.new_people)), fleet_file)


def require_image_ids(plan: FleetPlan, catalog: Catalog, fleet_file: Path) -> None:
    """Raise InputError if a group with `similar` has no recorded image: Auto Scaling requires an image id for it."""
    if places := required_images(plan, catalog):
        raise InputError(
            f"`similar` requires recorded images in {lock_path(fleet_file).name}: {', '.join(places)}",
            where=str(fleet_file),
            fix=f"run `bedplate image record {fleet_file.name}` and commit the lock",
        )


# Characters of a standard parameter. Source: Systems Manager user guide, "Managing parameter tiers".
_MAX_PARAMETER_SIZE = 4096
_NO_ADMINS = "-"


def fleet_parameters(plan: FleetPlan) -> dict[str, str]:
    """Return the values of the SSM parameters by path."""
    region_blocks = {f"regions/{region.name}/block": str(region.block) for region in plan.regions}
    settings = {
        "admins": administrators(plan.accounts),
        "domain": plan.domain,
        "home": plan.home.name,
        "supernet": str(plan.supernet),
    }
    return {f"/{plan.name}/{path}": value for path, value in (settings | region_blocks).items()}


def administrators(accounts: Accounts) -> str:
    """Return the logins of new instances: `ada 20000 ssh-ed25519 AAAA...` for each key, joined by commas.

    Returns `-` without administrators. Raises InputError if the value exceeds the size of a parameter.
    """
    lines = (
        f"{person.name} {person.uid} {' '.join(key.split()[:2])}"
        for person in accounts.people
        if person.admin
        for key in person.keys
    )
    value = ",".join(lines) or _NO_ADMINS
    if len(value) > _MAX_PARAMETER_SIZE:
        raise InputError(
            f"the administrators' keys have {len(value):,} characters, at most {_MAX_PARAMETER_SIZE:,} are allowed",
            fix="use Ed25519 keys, which are shorter",
        )
    return value


class FleetParameters(pulumi.ComponentResource):
    """The SSM parameters that nodes read, encrypted with the KMS key of the fleet."""

    def __init__(self, plan: FleetPlan, key_arn: pulumi.Input[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FleetParameters", plan.name, None, opts)
        for path, value in fleet_parameters(plan).items():
            Parameter(
                path.removeprefix("/").replace("/", "-"),
                ParameterArgs(name=path, type="SecureString", key_id=key_arn, value=value, tags=name_tag(path)),
                child_options(self),
            )
        self.register_outputs({})


def declare_shared(plan: FleetPlan) -> None:
    """Declare the resources that all regions use: IAM roles, SSM parameters, their key, and the budget."""
    options = region_options(plan, SHARED, plan.home.name)
    roles = {kind: NodeRole(plan, kind, options) for kind in node_kinds(plan)}
    FlowRole(plan, options)
    if plan.budget:
        AccountBudget(plan, plan.budget.monthly, plan.budget.email, options)
    if replicated_stores(plan):
        ReplicationRole(plan, options)
    key = FleetKey(plan, "parameters", options)
    FleetParameters(plan, key.arn, options)
    pulumi.export("regions", sorted(region.name for region in plan.regions))
    pulumi.export("role_arns", {kind: role.role_arn for kind, role in roles.items()})
    pulumi.export("profile_arns", {kind: role.profile_arn for kind, role in roles.items()})
    pulumi.export("parameter_key_arn", key.arn)
    pulumi.export("parameter_path", f"/{plan.name}/")


def declare(plan: FleetPlan, part: str) -> None:
    """Declare the resources of one part: `shared`, the name of a region, or `links`.

    Raises InputError if the fleet has no such part.
    """
    chosen_parts(plan, [part])
    pulumi.runtime.register_stack_transformation(tag_with_resource_name)
    if part == SHARED:
        declare_shared(plan)
    elif part == LINKS:
        declare_links(plan)
    else:
        declare_region(plan, plan.region(part))
