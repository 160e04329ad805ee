"""A machine of which there is one, as a launch template and an Auto Scaling group of one.

Its address belongs to a network interface that outlives the machines, and waits for the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling._inputs import GroupInstanceMaintenancePolicyArgs, GroupLaunchTemplateArgs, GroupTagArgs
from pulumi_aws.autoscaling.group import Group, GroupArgs
from pulumi_aws.ec2._inputs import (
    LaunchTemplateIamInstanceProfileArgs,
    LaunchTemplateMonitoringArgs,
    LaunchTemplateNetworkInterfaceArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplate, LaunchTemplateArgs

from bedplate.plan.pool import Volume
from stacks.hooks import Hook, first_hooks, keep_hooks
from stacks.options import inside, scaling_group
from stacks.scaling import GROUP_METRICS, Template
from stacks.tags import named
from stacks.template import metadata_options, root_volume

_TAGGED = ("instance", "volume")


@dataclass(frozen=True, slots=True)
class LoneMachine:
    """What a machine is made of; `tags` go on it and its volume, `user_data` is in base64."""

    name: str
    type: str
    image: str
    zone: str
    volume: Volume
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
