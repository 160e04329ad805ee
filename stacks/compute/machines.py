"""Single instances: members of the control plane, one of which routes to pods, and the VPN gateway for laptops.

Each is an Auto Scaling group of one, which replaces a failed instance. The address belongs to a network interface
that stays when the instance is replaced.
"""

from collections.abc import Mapping
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

from bedplate.plan.cost import CONTROL_VOLUME, GATEWAY_TYPE, GATEWAY_VOLUME
from bedplate.plan.firewall import ANYWHERE, FirewallRule, laptop_peer_rules
from bedplate.plan.fleet import ControlPlane, ControlPlaneMember, FleetPlan, LaptopPool
from bedplate.plan.laptops import Transport, connected_pools
from bedplate.plan.links import cluster_blocks, has_transit, pods_router, short_name
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST
from bedplate.plan.pools import MEMBER, VolumePlan
from stacks.alarms import alarm_on_missing_instances, alarm_on_silent_gateway
from stacks.compute.pool import GROUP_METRICS, Hook, Template, declare_hooks, initial_hooks, permanent_hooks
from stacks.compute.template import (
    ETCD,
    VPN_KEYS,
    KeptData,
    encode_user_data,
    image_of,
    metadata_options,
    permanent_boot,
    root_volume,
)
from stacks.network.firewall import ControlFirewall, RuleGroup
from stacks.network.vpc import Network
from stacks.options import child_options, name_tag, retained_options, scaling_group_options, stack_tags

_TAGGED_TYPES = ("instance", "volume")


@dataclass(frozen=True, slots=True)
class SingleInstance:
    """The inputs of a single instance; `tags` apply to it and its volume, `user_data` is base64."""

    name: str
    type: str
    image: str
    zone: str
    volume: VolumePlan
    tags: Mapping[str, str]
    profile_arn: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    user_data: pulumi.Output[str]
    hooks: tuple[Hook, ...]


def launch_single(
    machine: SingleInstance, parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...]
) -> pulumi.Output[str]:
    """Declare the template and the group of one instance; return the name of the group."""
    launch = LaunchTemplate(machine.name, _template(machine), child_options(parent))
    template = Template(launch.id, launch.latest_version.apply(str))
    options = scaling_group_options(parent, after=after, ignore=("initial_lifecycle_hooks",))
    group = Group(machine.name, _group(machine, template), options).name
    declare_hooks(machine.name, group, machine.hooks, parent)
    return group


def _template(machine: SingleInstance) -> LaunchTemplateArgs:
    """Return the template of an instance that uses the existing interface, and with it the fixed address."""
    interface = LaunchTemplateNetworkInterfaceArgs(device_index=0, network_interface_id=machine.interface_id)
    tags = [
        LaunchTemplateTagSpecificationArgs(resource_type=resource_type, tags=dict(machine.tags))
        for resource_type in _TAGGED_TYPES
    ]
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
        tags=name_tag(machine.name),
    )


def _group(machine: SingleInstance, template: Template) -> GroupArgs:
    """Return the group of one instance; it has a zone, because the interface has the subnet."""
    return GroupArgs(
        name=machine.name,
        min_size=1,
        max_size=1,
        availability_zones=[machine.zone],
        launch_template=GroupLaunchTemplateArgs(id=template.id, version=template.version),
        health_check_type="EC2",
        initial_lifecycle_hooks=initial_hooks(machine.hooks),
        # An interface has one instance at a time: the old one must end before the new one starts.
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
class ControlInputs:
    """The resources that the control plane depends on; instances start after `egress`, to reach the internet.

    `pods_group_id` is the second security group of the pods router; None in a fleet without one.
    """

    subnet_ids: Mapping[str, pulumi.Output[str]]
    table_ids: Mapping[str, pulumi.Output[str]]
    firewall: ControlFirewall
    pods_group_id: pulumi.Output[str] | None
    egress: pulumi.Resource
    profile_arns: Mapping[str, pulumi.Output[str]]
    topic_arn: pulumi.Output[str]


class ControlMachines(pulumi.ComponentResource):
    """All instances of the control plane, in the home region."""

    def __init__(
        self, plan: FleetPlan, control: ControlPlane, inputs: ControlInputs, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:ControlMachines", f"{plan.name}-control", None, opts)
        self._plan, self._type, self._inputs, self._router = plan, control.type, inputs, pods_router(plan)
        self.group_names = {member.name: self._machine(member) for member in control.members}
        self.register_outputs({})

    def _machine(self, member: ControlPlaneMember) -> pulumi.Output[str]:
        name = f"{self._plan.name}-{short_name(member)}"
        tags = stack_tags(self._plan, self._plan.home.name) | name_tag(name) | {MEMBER: member.name}
        machine = SingleInstance(
            name=name,
            type=self._type,
            image=image_of(self._plan, self._plan.home.name, (self._type,), self._plan.catalog),
            zone=member.zone,
            volume=CONTROL_VOLUME,
            tags=tags,
            profile_arn=self._inputs.profile_arns[member.name],
            interface_id=self._interface(member, name),
            user_data=_user_data(self._plan, member.name, member.zone, ETCD, self),
            hooks=permanent_hooks(self._plan),
        )
        group_name = launch_single(machine, self, after=(self._inputs.egress,))
        alarm_on_missing_instances(name, group_name, self._inputs.topic_arn, self)
        return group_name

    def _interface(self, member: ControlPlaneMember, name: str) -> pulumi.Output[str]:
        """Declare the interface; that of the pods router forwards packets: no source and destination check."""
        pods_group_id = self._inputs.pods_group_id if member == self._router else None
        groups = [self._inputs.firewall.group_id]
        args = NetworkInterfaceArgs(
            subnet_id=self._inputs.subnet_ids[member.zone],
            private_ips=[str(member.address)],
            security_groups=[*groups, pods_group_id] if pods_group_id else groups,
            source_dest_check=False if pods_group_id else None,
            description=f"{member.name} of the control plane",
            tags=name_tag(name),
        )
        interface_id = NetworkInterface(name, args, child_options(self)).id
        if pods_group_id:
            self._route_pods(interface_id)
        return interface_id

    def _route_pods(self, interface_id: pulumi.Output[str]) -> None:
        for network, block in cluster_blocks(self._plan).items():
            for table, table_id in self._inputs.table_ids.items():
                args = RouteArgs(
                    route_table_id=table_id, destination_cidr_block=str(block), network_interface_id=interface_id
                )
                Route(f"{self._plan.name}-{network}-from-{table}", args, child_options(self))


def _user_data(plan: FleetPlan, machine: str, zone: str, kept: KeptData, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return the user data of a machine, and declare the volume of its data, which Pulumi never deletes."""
    name = f"{plan.name}-{machine.partition('.')[0]}"
    volume_name = f"{name}-{kept.name}"
    args = VolumeArgs(
        availability_zone=zone,
        size=kept.gib,
        type="gp3",
        encrypted=True,
        tags=name_tag(volume_name) | {MEMBER: machine},
    )
    volume_id = Volume(volume_name, args, retained_options(parent)).id
    return volume_id.apply(lambda volume: encode_user_data(name, permanent_boot(plan, machine, kept, volume)))


_OPENVPN_RULES = (
    FirewallRule("openvpn", "OpenVPN from anywhere", ANYWHERE.block, Transport.UDP.value, Transport.UDP.port),
    FirewallRule(
        "openvpn-tcp", "OpenVPN over TCP from anywhere", ANYWHERE.block, Transport.TCP.value, Transport.TCP.port
    ),
)


@dataclass(frozen=True, slots=True)
class GatewayInputs:
    """The resources that a gateway depends on; its instance starts after `internet`, the internet gateway."""

    zone: str
    vpc_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    table_ids: Mapping[str, pulumi.Output[str]]
    internet: pulumi.Resource
    profile_arn: pulumi.Output[str]
    topic_arn: pulumi.Output[str]


def gateway_inputs(
    zone: str, network: Network, profile_arn: pulumi.Output[str], topic_arn: pulumi.Output[str]
) -> GatewayInputs:
    """Return the inputs of a gateway in a zone, with all route tables of the region."""
    return GatewayInputs(
        zone=zone,
        vpc_id=network.vpc_id,
        subnet_id=network.zones[zone].edge_id,
        table_ids=network.table_ids,
        internet=network.internet_gateway,
        profile_arn=profile_arn,
        topic_arn=topic_arn,
    )


class LaptopGateway(pulumi.ComponentResource):
    """A VPN gateway that accepts OpenVPN from the internet, and the routes from the region to its clients.

    `links` declares its routes to other regions.
    """

    public_ip: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]
    group_name: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, pool: LaptopPool, inputs: GatewayInputs, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-laptops"
        super().__init__("bedplate:stacks:LaptopGateway", self._name, None, opts)
        self.group_id = self._firewall(plan, pool, inputs.vpc_id)
        interface = self._interface(inputs, self.group_id)
        self.interface_id, self.private_ip = interface.id, interface.private_ip
        self.public_ip = self._address(inputs, interface)
        self._routes(pool, inputs)
        self.group_name = self._machine(plan, pool, inputs)
        alarm_on_missing_instances(self._name, self.group_name, inputs.topic_arn, self)
        alarm_on_silent_gateway(plan, self._name, inputs.topic_arn, self)
        self.register_outputs({"public_ip": self.public_ip, "interface_id": self.interface_id})

    @property
    def outputs(self) -> dict[str, pulumi.Output[str]]:
        """The outputs of the region's stack about the gateway, for `links` and operators."""
        return {
            "public_ip": self.public_ip,
            "private_ip": self.private_ip,
            "interface_id": self.interface_id,
            "group_id": self.group_id,
        }

    def _firewall(self, plan: FleetPlan, pool: LaptopPool, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        group = RuleGroup(self._name, "Gateway of the laptops", vpc_id, self, public=_OPENVPN_RULES)
        # Security groups do not see packets inside the tunnels between gateways.
        other_pools = connected_pools(plan, pool)[1:] if has_transit(plan) else ()
        group.allow_in(*laptop_peer_rules(other_pools))
        group.allow_out(ANYWHERE)
        return group.group_id

    def _interface(self, inputs: GatewayInputs, group_id: pulumi.Output[str]) -> NetworkInterface:
        """Declare the interface, which forwards packets for laptops: no source and destination check."""
        args = NetworkInterfaceArgs(
            subnet_id=inputs.subnet_id,
            description="Gateway of the laptops",
            security_groups=[group_id],
            source_dest_check=False,
            tags=name_tag(self._name),
        )
        return NetworkInterface(self._name, args, child_options(self))

    def _address(self, inputs: GatewayInputs, interface: NetworkInterface) -> pulumi.Output[str]:
        args = EipArgs(domain="vpc", network_interface=interface.id, tags=name_tag(self._name))
        return Eip(self._name, args, child_options(self, after=(inputs.internet,))).public_ip

    def _routes(self, pool: LaptopPool, inputs: GatewayInputs) -> None:
        for table, table_id in inputs.table_ids.items():
            args = RouteArgs(
                route_table_id=table_id,
                destination_cidr_block=str(pool.block),
                network_interface_id=self.interface_id,
            )
            Route(f"{self._name}-from-{table}", args, child_options(self))

    def _machine(self, plan: FleetPlan, pool: LaptopPool, inputs: GatewayInputs) -> pulumi.Output[str]:
        node_name = f"{LAPTOP_GATEWAY_HOST}.{pool.place}"
        machine = SingleInstance(
            name=self._name,
            type=GATEWAY_TYPE,
            image=image_of(plan, pool.place, (GATEWAY_TYPE,), plan.catalog),
            zone=inputs.zone,
            volume=GATEWAY_VOLUME,
            tags=stack_tags(plan, pool.place) | name_tag(self._name) | {MEMBER: node_name},
            profile_arn=inputs.profile_arn,
            interface_id=self.interface_id,
            user_data=_user_data(plan, node_name, inputs.zone, VPN_KEYS, self),
            hooks=permanent_hooks(plan, has_public_address=True),
        )
        return launch_single(machine, self, after=(inputs.internet,))
