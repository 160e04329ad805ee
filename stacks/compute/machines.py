"""A machine of which there is one, as a launch template and an Auto Scaling group of one.

Its address belongs to a network interface that outlives the machines, and waits for the next one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling._inputs import GroupInstanceMaintenancePolicyArgs, GroupLaunchTemplateArgs, GroupTagArgs
from pulumi_aws.autoscaling.group import Group, GroupArgs
from pulumi_aws.ebs.volume import Volume, VolumeArgs
from pulumi_aws.ec2._inputs import (
    LaunchTemplateIamInstanceProfileArgs,
    LaunchTemplateMonitoringArgs,
    LaunchTemplateNetworkInterfaceArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.eip import Eip, EipArgs
from pulumi_aws.ec2.launch_template import LaunchTemplate, LaunchTemplateArgs
from pulumi_aws.ec2.network_interface import NetworkInterface, NetworkInterfaceArgs
from pulumi_aws.ec2.route import Route, RouteArgs

from bedplate.catalog import load_catalog
from bedplate.plan.cost import CONTROL_VOLUME, ETCD_VOLUME, GATEWAY_TYPE, GATEWAY_VOLUME
from bedplate.plan.firewall import ANYWHERE, Rule, met_rules
from bedplate.plan.fleet import ControlPlane, FleetPlan, LaptopPool, Member, RegionPlan
from bedplate.plan.laptops import Transport, met_pools
from bedplate.plan.links import has_transit, short_name
from bedplate.plan.pools import Volume as PoolsVolume
from stacks.alarms.alarms import watch_launches
from stacks.compute.pool import GROUP_METRICS, Hook, Template, first_hooks, keep_hooks, member_hooks
from stacks.compute.template import encoded, image_of, member_boot, metadata_options, root_volume
from stacks.network.firewall import ControlFirewall, Doors
from stacks.network.vpc import Network
from stacks.options import MEMBER, inside, kept, named, scaling_group, stack_tags

_TAGGED = ("instance", "volume")


@dataclass(frozen=True, slots=True)
class LoneMachine:
    """What a machine is made of; `tags` go on it and its volume, `user_data` is in base64."""

    name: str
    type: str
    image: str
    zone: str
    volume: PoolsVolume
    tags: Mapping[str, str]
    profile_arn: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    user_data: pulumi.Output[str] | None = None
    hooks: tuple[Hook, ...] = ()


def launch_alone(
    machine: LoneMachine, parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...]
) -> pulumi.Output[str]:
    """Make the template and the group of a machine; return the group's name."""
    launch = LaunchTemplate(machine.name, _template(machine), inside(parent))
    template = Template(launch.id, launch.latest_version.apply(str))
    options = scaling_group(parent, after=after, ignore=("initial_lifecycle_hooks",))
    group = Group(machine.name, _group(machine, template), options).name
    keep_hooks(machine.name, group, machine.hooks, parent)
    return group


def _template(machine: LoneMachine) -> LaunchTemplateArgs:
    """Return the template of a machine that takes over an interface, and with it the fixed address."""
    interface = LaunchTemplateNetworkInterfaceArgs(device_index=0, network_interface_id=machine.interface_id)
    tags = [LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=dict(machine.tags)) for kind in _TAGGED]
    return LaunchTemplateArgs(
        name=machine.name,
        image_id=machine.image,
        instance_type=machine.type,
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=machine.profile_arn),
        metadata_options=metadata_options(),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(machine.volume)],
        network_interfaces=[interface],
        user_data=machine.user_data,
        tag_specifications=tags,
        tags=named(machine.name),
    )


def _group(machine: LoneMachine, template: Template) -> GroupArgs:
    """Return the group of one machine; it names a zone, for the subnet is the interface's."""
    return GroupArgs(
        name=machine.name,
        min_size=1,
        max_size=1,
        availability_zones=[machine.zone],
        launch_template=GroupLaunchTemplateArgs(id=template.id, version=template.version),
        health_check_type="EC2",
        initial_lifecycle_hooks=first_hooks(machine.hooks),
        # An interface serves one machine at a time: the old one ends before the new one starts.
        instance_maintenance_policy=GroupInstanceMaintenancePolicyArgs(
            min_healthy_percentage=0, max_healthy_percentage=100
        ),
        wait_for_capacity_timeout="0",
        enabled_metrics=list(GROUP_METRICS),
        tags=[
            GroupTagArgs(key=key, value=value, propagate_at_launch=True) for key, value in sorted(machine.tags.items())
        ],
    )


@dataclass(frozen=True, slots=True)
class ControlParts:
    """What the control plane stands on; its machines start once `egress`, their way to the internet, is there."""

    subnet_ids: Mapping[str, pulumi.Output[str]]
    firewall: ControlFirewall
    egress: pulumi.Resource
    profile_arn: pulumi.Output[str]
    topic_arn: pulumi.Output[str]


class ControlMachines(pulumi.ComponentResource):
    """Every machine of the control plane, in the home region."""

    def __init__(
        self, plan: FleetPlan, control: ControlPlane, parts: ControlParts, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:ControlMachines", f"{plan.name}-control", None, opts)
        self._plan, self._type, self._parts = plan, control.type, parts
        self.group_names = {member.name: self._machine(member) for member in control.members}
        self.register_outputs({})

    def _machine(self, member: Member) -> pulumi.Output[str]:
        name = f"{self._plan.name}-{short_name(member)}"
        tags = stack_tags(self._plan, self._plan.home.name) | named(name) | {MEMBER: member.name}
        volume_id = self._volume(member, name)
        machine = LoneMachine(
            name=name,
            type=self._type,
            image=image_of(self._plan, self._plan.home.name, (self._type,), load_catalog()),
            zone=member.zone,
            volume=CONTROL_VOLUME,
            tags=tags,
            profile_arn=self._parts.profile_arn,
            interface_id=self._interface(member, name),
            user_data=volume_id.apply(lambda ident: encoded(name, member_boot(self._plan, member, ident))),
            hooks=member_hooks(self._plan),
        )
        group_name = launch_alone(machine, self, after=(self._parts.egress,))
        watch_launches(name, group_name, self._parts.topic_arn, self)
        return group_name

    def _interface(self, member: Member, name: str) -> pulumi.Output[str]:
        args = NetworkInterfaceArgs(
            subnet_id=self._parts.subnet_ids[member.zone],
            private_ips=[str(member.address)],
            security_groups=[self._parts.firewall.group_id],
            description=f"{member.name} of the control plane",
            tags=named(name),
        )
        return NetworkInterface(name, args, inside(self)).id

    def _volume(self, member: Member, name: str) -> pulumi.Output[str]:
        """Make the volume of a member's etcd, which no engine deletes."""
        title = f"{name}-etcd"
        args = VolumeArgs(
            availability_zone=member.zone,
            size=ETCD_VOLUME.gib,
            type="gp3",
            encrypted=True,
            tags=named(title) | {MEMBER: member.name},
        )
        return Volume(title, args, kept(self)).id


_OPEN = (
    Rule("openvpn", "OpenVPN from anywhere", ANYWHERE.block, Transport.UDP.value, Transport.UDP.port),
    Rule("openvpn-tcp", "OpenVPN over TCP from anywhere", ANYWHERE.block, Transport.TCP.value, Transport.TCP.port),
)


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway stands on; it starts no sooner than the way to the internet is there."""

    zone: str
    vpc_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    table_ids: Mapping[str, pulumi.Output[str]]
    internet: pulumi.Resource
    profile_arn: pulumi.Output[str]
    topic_arn: pulumi.Output[str]


def gateway_zone(region: RegionPlan, offering: Collection[str]) -> str:
    """Return the zone that a region's gateway stands in: of those that offer its type, the one allotted first."""
    fit = [zone for zone in region.zones if zone.name in offering]
    return min(fit or region.zones, key=lambda zone: zone.edge).name


def gateway_parts(
    region: RegionPlan, network: Network, profile_arn: pulumi.Output[str], topic_arn: pulumi.Output[str]
) -> GatewayParts:
    """Return the parts of a region's gateway: its place, its way out, and all route tables of the region."""
    zone = gateway_zone(region, load_catalog().offered(GATEWAY_TYPE, region.name))
    tables = {f"{zone}-nodes": network.zones[zone].nodes_table_id for zone in sorted(network.zones)}
    return GatewayParts(
        zone=zone,
        vpc_id=network.vpc_id,
        subnet_id=network.zones[zone].edge_id,
        table_ids={"edge": network.edge_table_id, **tables},
        internet=network.internet_gateway,
        profile_arn=profile_arn,
        topic_arn=topic_arn,
    )


class LaptopGateway(pulumi.ComponentResource):
    """A gateway open to the world on OpenVPN's ports alone, and the routes of its clients' pool to it.

    What it carries to other regions is declared by `links`.
    """

    public_ip: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]
    group_name: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, pool: LaptopPool, parts: GatewayParts, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-laptops"
        super().__init__("bedplate:stacks:LaptopGateway", self._name, None, opts)
        self.group_id = self._firewall(plan, pool, parts.vpc_id)
        interface = self._interface(parts, self.group_id)
        self.interface_id, self.private_ip = interface.id, interface.private_ip
        self.public_ip = self._address(parts, interface)
        self._routes(pool, parts)
        self.group_name = self._machine(plan, pool, parts)
        watch_launches(self._name, self.group_name, parts.topic_arn, self)
        self.register_outputs({"public_ip": self.public_ip, "interface_id": self.interface_id})

    @property
    def told(self) -> dict[str, pulumi.Output[str]]:
        """What the region's stack says of it to `links` and to operators."""
        return {
            "public_ip": self.public_ip,
            "private_ip": self.private_ip,
            "interface_id": self.interface_id,
            "group_id": self.group_id,
        }

    def _firewall(self, plan: FleetPlan, pool: LaptopPool, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        doors = Doors(self._name, "Gateway of the laptops", vpc_id, self)
        # What comes by the gateways' own tunnels has passed the group when it comes out.
        others = met_pools(plan, pool)[1:] if has_transit(plan) else ()
        doors.let_in(*_OPEN, *met_rules(others))
        doors.let_out(ANYWHERE)
        return doors.group_id

    def _interface(self, parts: GatewayParts, group_id: pulumi.Output[str]) -> NetworkInterface:
        """Make the interface that takes packets for laptops, none of which is addressed to itself."""
        args = NetworkInterfaceArgs(
            subnet_id=parts.subnet_id,
            description="Gateway of the laptops",
            security_groups=[group_id],
            source_dest_check=False,
            tags=named(self._name),
        )
        return NetworkInterface(self._name, args, inside(self))

    def _address(self, parts: GatewayParts, interface: NetworkInterface) -> pulumi.Output[str]:
        args = EipArgs(domain="vpc", network_interface=interface.id, tags=named(self._name))
        return Eip(self._name, args, inside(self, after=(parts.internet,))).public_ip

    def _routes(self, pool: LaptopPool, parts: GatewayParts) -> None:
        for table, table_id in parts.table_ids.items():
            args = RouteArgs(
                route_table_id=table_id,
                destination_cidr_block=str(pool.block),
                network_interface_id=self.interface_id,
            )
            Route(f"{self._name}-from-{table}", args, inside(self))

    def _machine(self, plan: FleetPlan, pool: LaptopPool, parts: GatewayParts) -> pulumi.Output[str]:
        machine = LoneMachine(
            name=self._name,
            type=GATEWAY_TYPE,
            image=image_of(plan, pool.place, (GATEWAY_TYPE,), load_catalog()),
            zone=parts.zone,
            volume=GATEWAY_VOLUME,
            tags=stack_tags(plan, pool.place) | named(self._name),
            profile_arn=parts.profile_arn,
            interface_id=self.interface_id,
        )
        return launch_alone(machine, self, after=(parts.internet,))
