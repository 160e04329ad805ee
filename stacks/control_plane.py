"""The machines of the control plane: each replaced by itself when it dies, at its address, with its etcd volume.

Address and volume outlive the machine; the volume outlives the stack. What runs on them is the first boot's matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.ebs.volume import Volume, VolumeArgs
from pulumi_aws.ec2.network_interface import NetworkInterface, NetworkInterfaceArgs

from bedplate.catalog import load_catalog
from bedplate.plan.fleet import ControlPlane, FleetPlan, Member
from bedplate.plan.hostnames import short_name
from bedplate.plan.standing import CONTROL_VOLUME, ETCD_VOLUME
from stacks.firewall import ControlFirewall
from stacks.first_boot import member_boot
from stacks.hooks import member_hooks
from stacks.image import image_of
from stacks.lone_machine import LoneMachine, launch_alone
from stacks.options import inside, kept
from stacks.shortage import watch_launches
from stacks.tags import MEMBER, named, stack_tags
from stacks.user_data import encoded


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
