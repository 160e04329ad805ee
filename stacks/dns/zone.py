"""The fleet's private DNS zone."""

from collections.abc import Iterator, Mapping

import pulumi
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs
from pulumi_aws.route53._inputs import ZoneVpcArgs
from pulumi_aws.route53.record import Record, RecordArgs
from pulumi_aws.route53.zone import Zone, ZoneArgs
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import api_name, ssh_patterns, ssh_pools
from bedplate.spec.sites import Use
from stacks.identity.policy import Statement, policy
from stacks.network.transit import Side
from stacks.options import inside, named


class PrivateZone(pulumi.ComponentResource):
    """The zone of the fleet's domain, seen from the home region; `links` lets the other regions see it."""

    zone_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PrivateZone", plan.name, None, opts)
        args = ZoneArgs(
            name=plan.domain,
            comment=f"Names of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=vpc_id, vpc_region=plan.home.name)],
            tags=named(plan.name),
            # Nodes register their names by themselves. AWS deletes no zone that holds records.
            force_destroy=True,
        )
        self.zone_id = Zone(plan.name, args, inside(self, ignore=("vpcs",))).zone_id
        self.register_outputs({"zone_id": self.zone_id})


TTL_SECONDS = 300
# Clients dial every address of the API in turn; one that moved is forgotten within a minute.
API_TTL_SECONDS = 60
Addresses = pulumi.Input[list[pulumi.Input[str]]]


class FleetRecords(pulumi.ComponentResource):
    """An A record for each thing with an address of its own, as `<thing>.<place>.<domain>`."""

    def __init__(
        self, plan: FleetPlan, zone_id: pulumi.Output[str], every: Mapping[str, Side], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:FleetRecords", plan.name, None, opts)
        for name, addresses in records(plan, every):
            self._record(f"{plan.name}-{name}", zone_id, f"{name}.{plan.domain}", addresses)
        if plan.control_plane:
            members: Addresses = [str(member.address) for member in plan.control_plane.members]
            self._record(f"{plan.name}-kubernetes", zone_id, api_name(plan), members, API_TTL_SECONDS)
        self.register_outputs({})

    def _record(
        self, title: str, zone_id: pulumi.Output[str], name: str, addresses: Addresses, ttl: int = TTL_SECONDS
    ) -> None:
        args = RecordArgs(zone_id=zone_id, name=name, type="A", ttl=ttl, records=addresses)
        Record(title, args, inside(self))


def records(plan: FleetPlan, every: Mapping[str, Side]) -> Iterator[tuple[str, Addresses]]:
    """Yield every name, without the domain, and its addresses.

    A file system's own name resolves in its region alone, so elsewhere it goes by its mount targets' addresses.
    """
    for name, address in plan.addresses.items():
        yield name, [str(address)]
    for pool in plan.laptops:
        if pool.place in every:
            yield f"laptops.{pool.place}", [every[pool.place].output("laptop_gateway")["private_ip"]]
    for files in plan.files:
        yield f"{files.store}.files.{files.region}", every[files.region].output("files")[files.store]["addresses"]


def reverse_names(plan: FleetPlan) -> dict[str, dict[str, str]]:
    """Return the reverse zones, of 256 addresses each, that hold a machine of a site, and its names in each."""
    zones: dict[str, dict[str, str]] = {}
    for name, address in plan.site_addresses.items():
        last, _, zone = address.reverse_pointer.partition(".")
        zones.setdefault(zone, {})[last] = f"{name}.{plan.domain}"
    return zones


class ReverseZone(pulumi.ComponentResource):
    """One reverse zone, seen from the VPC of every region."""

    def __init__(
        self,
        plan: FleetPlan,
        zone: str,
        names: Mapping[str, str],
        every: Mapping[str, Side],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = f"{plan.name}-{zone}"
        super().__init__("bedplate:stacks:ReverseZone", name, None, opts)
        home = every[plan.home.name]
        args = ZoneArgs(
            name=zone,
            comment=f"Addresses of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=home.output("vpc_id"), vpc_region=home.name)],
            tags=named(name),
        )
        zone_id = Zone(name, args, inside(self, ignore=("vpcs",))).zone_id
        for side in (side for side in every.values() if not side.region.home):
            seen = ZoneAssociationArgs(zone_id=zone_id, vpc_id=side.output("vpc_id"), vpc_region=side.name)
            ZoneAssociation(f"{name}-{side.name}", seen, inside(self))
        for last, host in names.items():
            record = RecordArgs(zone_id=zone_id, name=f"{last}.{zone}", type="PTR", ttl=TTL_SECONDS, records=[host])
            Record(f"{name}-{last}", record, inside(self))
        self.register_outputs({})


_KEY = "route53:ChangeResourceRecordSets"


class NameOffice(pulumi.ComponentResource):
    """The id of the zone as a parameter, and the right of ssh nodes to write their own names."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        shared: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NameOffice", plan.name, None, opts)
        path = zone_parameter(plan)
        told = ParameterArgs(
            name=path,
            type="SecureString",
            key_id=shared.require_output("parameter_key_arn"),
            value=zone_id,
            tags=named(path),
        )
        Parameter(path.removeprefix("/").replace("/", "-"), told, inside(self))
        if ssh_pools(plan):
            role = f"{plan.name}-{Use.SSH.value}"
            grant = zone_id.apply(lambda ident: policy(*names_grant(plan, ident)))
            RolePolicy(f"{role}-names", RolePolicyArgs(name=f"{role}-names", role=role, policy=grant), inside(self))
        self.register_outputs({})


def zone_parameter(plan: FleetPlan) -> str:
    """Return the path of the parameter that holds the id of the fleet's zone."""
    return f"/{plan.name}/zone"


def names_grant(plan: FleetPlan, zone_id: str) -> tuple[Statement, ...]:
    """Return what lets ssh nodes read the zone, and write addresses, host keys and owners of their own names."""
    zone = f"arn:aws:route53:::hostedzone/{zone_id}"
    names = tuple(sorted(pattern for pool in ssh_pools(plan) for pattern in ssh_patterns(plan, pool)))
    write = Statement(
        sid="WriteOwnNames",
        actions=("route53:ChangeResourceRecordSets",),
        resources=(zone,),
        conditions={
            "ForAllValues:StringLike": {f"{_KEY}NormalizedRecordNames": names},
            "ForAllValues:StringEquals": {
                f"{_KEY}RecordTypes": ("A", "SSHFP", "TXT"),
                f"{_KEY}Actions": ("CREATE", "DELETE"),
            },
        },
    )
    return (Statement(sid="ReadNames", actions=("route53:ListResourceRecordSets",), resources=(zone,)), write)
