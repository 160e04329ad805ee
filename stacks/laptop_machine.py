"""The machine behind a laptop gateway, as a launch template and an Auto Scaling group of one."""

import pulumi
from pulumi_aws.autoscaling._inputs import GroupInstanceMaintenancePolicyArgs, GroupLaunchTemplateArgs, GroupTagArgs
from pulumi_aws.autoscaling.group import GroupArgs
from pulumi_aws.ec2._inputs import (
    LaunchTemplateIamInstanceProfileArgs,
    LaunchTemplateMonitoringArgs,
    LaunchTemplateNetworkInterfaceArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.plan.fleet import FleetPlan
from stacks.image import image_reference
from stacks.scaling import GROUP_METRICS, Template
from stacks.tags import named, stack_tags
from stacks.template import metadata_options, root_volume

# OpenVPN works on one core, so two are enough; every region offers this type, and its network keeps its pace.
GATEWAY_TYPE = "c6in.large"
_DISK_GIB = 16
_TAGGED = ("instance", "volume")


def gateway_template(
    plan: FleetPlan, region: str, profile_arn: pulumi.Output[str], interface_id: pulumi.Output[str]
) -> LaunchTemplateArgs:
    """Return the template of a machine that takes over an interface, and with it the fixed address."""
    name = f"{plan.name}-laptops"
    tags = _machine_tags(plan, region)
    return LaunchTemplateArgs(
        name=name,
        image_id=image_reference("x86_64"),
        instance_type=GATEWAY_TYPE,
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=profile_arn),
        metadata_options=metadata_options(),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(_DISK_GIB)],
        network_interfaces=[LaunchTemplateNetworkInterfaceArgs(device_index=0, network_interface_id=interface_id)],
        tag_specifications=[LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in _TAGGED],
        tags=named(name),
    )


def gateway_group(plan: FleetPlan, region: str, template: Template, zone: str) -> GroupArgs:
    """Return the group of one machine; it names a zone, for the subnet is the interface's."""
    tags = _machine_tags(plan, region)
    return GroupArgs(
        name=f"{plan.name}-laptops",
        min_size=1,
        max_size=1,
        availability_zones=[zone],
        launch_template=GroupLaunchTemplateArgs(id=template.id, version=template.version),
        health_check_type="EC2",
        # An interface serves one machine at a time: the old one ends before the new one starts.
        instance_maintenance_policy=GroupInstanceMaintenancePolicyArgs(
            min_healthy_percentage=0, max_healthy_percentage=100
        ),
        wait_for_capacity_timeout="0",
        enabled_metrics=list(GROUP_METRICS),
        tags=[GroupTagArgs(key=key, value=tags[key], propagate_at_launch=True) for key in sorted(tags)],
    )


def _machine_tags(plan: FleetPlan, region: str) -> dict[str, str]:
    return stack_tags(plan, region) | named(f"{plan.name}-laptops")
