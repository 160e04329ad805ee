"""Single instances: members of the control plane, one of which routes to pods, the hub, and the gateway for laptops.

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

from bedplate.permissions import member_kind
from bedplate.plan.cost import CONTROL_VOLUME, GATEWAY_TYPE, GATEWAY_VOLUME, HUB_VOLUME
from bedplate.plan.firewall import (
    ANYWHERE,
    EXPORTER_PORT,
    HTTPS,
    FirewallRule,
    hub_rules,
    laptop_peer_rules,
    metrics_rules,
)
from bedplate.plan.fleet import ControlPlane, ControlPlaneMember, FleetPlan, LaptopPool
from bedplate.plan.hub import HUB_HOST, HubPlan
from bedplate.plan.laptops import Transport, connected_pools
from bedplate.plan.links import cluster_blocks, has_transit, pods_router
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST
from bedplate.plan.pools import MEMBER, VolumePlan
from stacks.alarms import SILENT_GATEWAY, SILENT_HUB, alarm_on_missing_instances, alarm_on_silence
from stacks.compute.pool import GROUP_METRICS, Hook, Template, declare_hooks, initial_hooks, permanent_hooks
from stacks.compute.template import (
    ETCD,
    VPN_KEYS,
    KeptData,
    encode_user_data,
    hub_data,
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
class MachineInputs:
    """The resources that an instance in a zone depends on; it starts after `egress`, to reach the internet."""

    zone: str
    network: Network
    egress: pulumi.Resource
    profile_arn: pulumi.Output[str]
    topic_arn: pulumi.Output[str]


@dataclass(frozen=True, slots=True)
class SingleInstance:
    """The settings of a single instance: `node` is its name in the plan, and `kept` is on a volume of its own."""

    plan: FleetPlan
    node: str
    type: str
    volume: VolumePlan
    kept: KeptData
    inputs: MachineInputs
    interface_id: pulumi.Output[str]
    has_public_address: bool = False

    @property
    def name(self) -> str:
        """The name of its resources."""
        return f"{self.plan.name}-{self.node.partition('.')[0]}"

    @property
    def region(self) -> str:
        """Its region."""
        return self.node.partition(".")[2]

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the instance and of its root volume."""
        return stack_tags(self.plan, self.region) | name_tag(self.name) | {MEMBER: self.node}


def launch_single(machine: SingleInstance, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Declare the kept volume, the template and the group of one instance, and its alarm; return the group's name."""
    name, hooks = machine.name, permanent_hooks(machine.plan, has_public_address=machine.has_public_address)
    launch = LaunchTemplate(name, _template(machine, _user_data(machine, parent)), child_options(parent))
    template = Template(launch.id, launch.latest_version.apply(str))
    options = scaling_group_options(parent, after=(machine.inputs.egress,), ignore=("initial_lifecycle_hooks",))
    group = Group(name, _group(machine, template, hooks), options).name
    declare_hooks(name, group, hooks, parent)
    alarm_on_missing_instances(name, group, machine.inputs.topic_arn, parent)
    return group


def _template(machine: SingleInstance, user_data: pulumi.Output[str]) -> LaunchTemplateArgs:
    """Return the template of an instance that uses the existing interface, and with it the fixed address."""
    interface = LaunchTemplateNetworkInterfaceArgs(device_index=0, network_interface_id=machine.interface_id)
    tags = [
        LaunchTemplateTagSpecificationArgs(resource_type=resource_type, tags=machine.tags)
        for resource_type in _TAGGED_TYPES
    ]
    return LaunchTemplateArgs(
        name=machine.name,
        image_id=image_of(machine.plan, machine.region, (machine.type,), machine.plan.catalog),
        instance_type=machine.type,
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=machine.inputs.profile_arn),
        metadata_options=metadata_options(),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(machine.volume)],
        network_interfaces=[interface],
        user_data=user_data,
        tag_specifications=tags,
        tags=name_tag(machine.name),
    )


def _group(machine: SingleInstance, template: Template, hooks: tuple[Hook, ...]) -> GroupArgs:
    """Return the group of one instance; it has a zone, because the interface has the subnet."""
    return GroupArgs(
        name=machine.name,
        min_size=1,
        max_size=1,
        availability_zones=[machine.inputs.zone],
        launch_template=GroupLaunchTemplateArgs(id=template.id, version=template.version),
        health_check_type="EC2",
        initial_lifecycle_hooks=initial_hooks(hooks),
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
    """The resources that the control plane depends on, those of each member by its name.

    `pods_group_id` is the second security group of the pods router; None in a fleet without one.
    """

    machines: Mapping[str, MachineInputs]
    firewall: ControlFirewall
    pods_group_id: pulumi.Output[str] | None


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
        inputs, interface_id = self._inputs.machines[member.name], self._interface(member)
        machine = SingleInstance(self._plan, member.name, self._type, CONTROL_VOLUME, ETCD, inputs, interface_id)
        return launch_single(machine, self)

    def _interface(self, member: ControlPlaneMember) -> pulumi.Output[str]:
        """Declare the interface; that of the pods router forwards packets: no source and destination check."""
        name, inputs = f"{self._plan.name}-{member_kind(member)}", self._inputs.machines[member.name]
        pods_group_id = self._inputs.pods_group_id if member == self._router else None
        groups = [self._inputs.firewall.group_id]
        args = NetworkInterfaceArgs(
            subnet_id=inputs.network.zones[inputs.zone].nodes_id,
            private_ips=[str(member.address)],
            security_groups=[*groups, pods_group_id] if pods_group_id else groups,
            source_dest_check=False if pods_group_id else None,
            description=f"{member.name} of the control plane",
            tags=name_tag(name),
        )
        interface_id = NetworkInterface(name, args, child_options(self)).id
        if pods_group_id:
            self._route_pods(inputs.network, interface_id)
        return interface_id

    def _route_pods(self, network: Network, interface_id: pulumi.Output[str]) -> None:
        for name, block in cluster_blocks(self._plan).items():
            route_to(f"{self._plan.name}-{name}", str(block), network, interface_id, self)


def route_to(
    name: str, block: str, network: Network, interface_id: pulumi.Output[str], parent: pulumi.Resource
) -> None:
    """Declare a route in each table of a network to a block behind an interface."""
    for table, table_id in network.table_ids.items():
        args = RouteArgs(route_table_id=table_id, destination_cidr_block=block, network_interface_id=interface_id)
        Route(f"{name}-from-{table}", args, child_options(parent))


class HubMachine(pulumi.ComponentResource):
    """The instance of the hub, with its fixed address, its security group and the volume of the records."""

    group_name: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, hub: HubPlan, inputs: MachineInputs, nodes: RuleGroup, opts: pulumi.ResourceOptions
    ) -> None:
        name = f"{plan.name}-{HUB_HOST}"
        super().__init__("bedplate:stacks:HubMachine", name, None, opts)
        group = RuleGroup(name, "Hub of the fleet", inputs.network.vpc_id, self)
        group.allow_out(ANYWHERE)
        group.allow_in(*hub_rules(plan, plan.region(hub.place)))
        group.allow_from_group(nodes, "Hub from nodes", HTTPS)
        interface = NetworkInterfaceArgs(
            subnet_id=inputs.network.zones[inputs.zone].nodes_id,
            private_ips=[str(hub.address)],
            security_groups=[group.group_id],
            description="Hub",
            tags=name_tag(name),
        )
        interface_id = NetworkInterface(name, interface, child_options(self)).id
        machine = SingleInstance(plan, hub.node, hub.type, HUB_VOLUME, hub_data(hub), inputs, interface_id)
        self.group_name = launch_single(machine, self)
        alarm_on_silence(plan, name, SILENT_HUB, inputs.topic_arn, self)
        self.register_outputs({"group_name": self.group_name})


def _user_data(machine: SingleInstance, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return the user data of a machine, and declare the volume of its data, which Pulumi never deletes."""
    plan, kept, volume_name = machine.plan, machine.kept, f"{machine.name}-{machine.kept.name}"
    args = VolumeArgs(
        availability_zone=machine.inputs.zone,
        size=kept.gib,
        type="gp3",
        encrypted=True,
        tags=name_tag(volume_name) | {MEMBER: machine.node},
    )
    volume_id = Volume(volume_name, args, retained_options(parent)).id
    return volume_id.apply(
        lambda volume: encode_user_data(machine.name, permanent_boot(plan, machine.node, kept, volume))
    )


_OPENVPN_RULES = (
    FirewallRule("openvpn", "OpenVPN from anywhere", ANYWHERE.block, Transport.UDP.value, Transport.UDP.port),
    FirewallRule(
        "openvpn-tcp", "OpenVPN over TCP from anywhere", ANYWHERE.block, Transport.TCP.value, Transport.TCP.port
    ),
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

    def __init__(self, plan: FleetPlan, pool: LaptopPool, inputs: MachineInputs, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-laptops"
        super().__init__("bedplate:stacks:LaptopGateway", self._name, None, opts)
        self.group_id = self._firewall(plan, pool, inputs.network.vpc_id)
        interface = self._interface(inputs, self.group_id)
        self.interface_id, self.private_ip = interface.id, interface.private_ip
        self.public_ip = self._address(inputs, interface)
        route_to(self._name, str(pool.block), inputs.network, self.interface_id, self)
        node = f"{LAPTOP_GATEWAY_HOST}.{pool.place}"
        machine = SingleInstance(
            plan, node, GATEWAY_TYPE, GATEWAY_VOLUME, VPN_KEYS, inputs, self.interface_id, has_public_address=True
        )
        self.group_name = launch_single(machine, self)
        alarm_on_silence(plan, self._name, SILENT_GATEWAY, inputs.topic_arn, self)
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
        group.allow_in(*laptop_peer_rules(other_pools), *metrics_rules(plan, pool.place, EXPORTER_PORT))
        group.allow_out(ANYWHERE)
        return group.group_id

    def _interface(self, inputs: MachineInputs, group_id: pulumi.Output[str]) -> NetworkInterface:
        """Declare the interface, which forwards packets for laptops: no source and destination check."""
        args = NetworkInterfaceArgs(
            subnet_id=inputs.network.zones[inputs.zone].edge_id,
            description="Gateway of the laptops",
            security_groups=[group_id],
            source_dest_check=False,
            tags=name_tag(self._name),
        )
        return NetworkInterface(self._name, args, child_options(self))

    def _address(self, inputs: MachineInputs, interface: NetworkInterface) -> pulumi.Output[str]:
        args = EipArgs(domain="vpc", network_interface=interface.id, tags=name_tag(self._name))
        return Eip(self._name, args, child_options(self, after=(inputs.egress,))).public_ip
