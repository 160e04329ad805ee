"""Private DNS: the zone of the fleet, its records, reverse zones, and the permission of nodes to register names."""

from collections.abc import Mapping

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
from stacks.network.transit import RegionStack
from stacks.options import child_options, name_tag, output_of


class PrivateZone(pulumi.ComponentResource):
    """The private zone of the fleet, associated with the home VPC; `links` associates the other VPCs."""

    zone_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PrivateZone", plan.name, None, opts)
        args = ZoneArgs(
            name=plan.domain,
            comment=f"Names of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=vpc_id, vpc_region=plan.home.name)],
            tags=name_tag(plan.name),
            # Nodes register records in the zone, and AWS deletes no zone with records.
            force_destroy=True,
        )
        self.zone_id = Zone(plan.name, args, child_options(self, ignore=("vpcs",))).zone_id
        self.register_outputs({"zone_id": self.zone_id})


TTL_SECONDS = 300
# Clients try all addresses of the API in turn; the short TTL removes an old address within a minute.
API_TTL_SECONDS = 60
Addresses = pulumi.Input[list[pulumi.Input[str]]]


class FleetRecords(pulumi.ComponentResource):
    """A records of machines, gateways and file systems, as `<name>.<place>.<domain>`."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        names: Mapping[str, Addresses],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:FleetRecords", plan.name, None, opts)
        for name, addresses in names.items():
            full_name = f"{name}.{plan.domain}"
            ttl = API_TTL_SECONDS if full_name == api_name(plan) else TTL_SECONDS
            args = RecordArgs(zone_id=zone_id, name=full_name, type="A", ttl=ttl, records=addresses)
            Record(f"{plan.name}-{name}", args, child_options(self))
        self.register_outputs({})


def home_records(
    plan: FleetPlan, gateway: pulumi.Output[str] | None, files: Mapping[str, Addresses]
) -> dict[str, Addresses]:
    """Return the addresses by name: those that the plan assigns, and the VPN gateway and file systems of home.

    The EFS name of a file system resolves only in its region, so its record has the addresses of its mount targets.
    """
    names: dict[str, Addresses] = {name: [str(address)] for name, address in plan.addresses.items()}
    if plan.control_plane:
        names[api_name(plan).removesuffix(f".{plan.domain}")] = [
            str(member.address) for member in plan.control_plane.members
        ]
    if gateway is not None:
        names[f"laptops.{plan.home.name}"] = [gateway]
    return names | {f"{store}.files.{plan.home.name}": addresses for store, addresses in files.items()}


def remote_records(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> dict[str, Addresses]:
    """Return the addresses of the VPN gateways and file systems of other regions by name."""
    remote = {name: stack for name, stack in stacks.items() if not stack.region.home}
    names: dict[str, Addresses] = {
        f"laptops.{pool.place}": [remote[pool.place].output("laptop_gateway")["private_ip"]]
        for pool in plan.laptops
        if pool.place in remote
    }
    for files in (files for files in plan.files if files.region in remote):
        names[f"{files.store}.files.{files.region}"] = remote[files.region].output("files")[files.store]["addresses"]
    return names


def reverse_names(plan: FleetPlan) -> dict[str, dict[str, str]]:
    """Return the reverse zones of site machines, of 256 addresses each: record label -> host name."""
    zones: dict[str, dict[str, str]] = {}
    for name, address in plan.site_addresses.items():
        label, _, zone = address.reverse_pointer.partition(".")
        zones.setdefault(zone, {})[label] = f"{name}.{plan.domain}"
    return zones


class ReverseZone(pulumi.ComponentResource):
    """One reverse zone, associated with the VPCs of all regions."""

    def __init__(
        self,
        plan: FleetPlan,
        zone: str,
        names: Mapping[str, str],
        stacks: Mapping[str, RegionStack],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = f"{plan.name}-{zone}"
        super().__init__("bedplate:stacks:ReverseZone", name, None, opts)
        home = stacks[plan.home.name]
        args = ZoneArgs(
            name=zone,
            comment=f"Addresses of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=home.output("vpc_id"), vpc_region=home.name)],
            tags=name_tag(name),
        )
        zone_id = Zone(name, args, child_options(self, ignore=("vpcs",))).zone_id
        for stack in (stack for stack in stacks.values() if not stack.region.home):
            association = ZoneAssociationArgs(zone_id=zone_id, vpc_id=stack.output("vpc_id"), vpc_region=stack.name)
            ZoneAssociation(f"{name}-{stack.name}", association, child_options(self))
        for label, host in names.items():
            record = RecordArgs(zone_id=zone_id, name=f"{label}.{zone}", type="PTR", ttl=TTL_SECONDS, records=[host])
            Record(f"{name}-{label}", record, child_options(self))
        self.register_outputs({})


_CONDITION = "route53:ChangeResourceRecordSets"


class NodeNameRegistration(pulumi.ComponentResource):
    """The zone id as an SSM parameter, and the permission of SSH nodes to register their names in the zone."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        shared: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NodeNameRegistration", plan.name, None, opts)
        path = zone_parameter(plan)
        parameter = ParameterArgs(
            name=path,
            type="SecureString",
            key_id=output_of(shared, "parameter_key_arn"),
            value=zone_id,
            tags=name_tag(path),
        )
        Parameter(path.removeprefix("/").replace("/", "-"), parameter, child_options(self))
        if ssh_pools(plan):
            role = f"{plan.name}-{Use.SSH.value}"
            permissions = zone_id.apply(lambda zone: policy(*registration_permissions(plan, zone)))
            RolePolicy(
                f"{role}-names",
                RolePolicyArgs(name=f"{role}-names", role=role, policy=permissions),
                child_options(self),
            )
        self.register_outputs({})


def zone_parameter(plan: FleetPlan) -> str:
    """Return the path of the SSM parameter with the zone id."""
    return f"/{plan.name}/zone"


def registration_permissions(plan: FleetPlan, zone_id: str) -> tuple[Statement, ...]:
    """Return the permissions of SSH nodes: read the zone, and write A, SSHFP and TXT records of their names."""
    zone = f"arn:aws:route53:::hostedzone/{zone_id}"
    names = tuple(sorted(pattern for pool in ssh_pools(plan) for pattern in ssh_patterns(plan, pool)))
    write = Statement(
        sid="WriteOwnNames",
        actions=("route53:ChangeResourceRecordSets",),
        resources=(zone,),
        conditions={
            "ForAllValues:StringLike": {f"{_CONDITION}NormalizedRecordNames": names},
            "ForAllValues:StringEquals": {
                f"{_CONDITION}RecordTypes": ("A", "SSHFP", "TXT"),
                f"{_CONDITION}Actions": ("CREATE", "DELETE"),
            },
        },
    )
    return (Statement(sid="ReadNames", actions=("route53:ListResourceRecordSets",), resources=(zone,)), write)
