"""The launch template of a pool: how each of its machines starts."""

from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2._inputs import (
    LaunchTemplateBlockDeviceMappingArgs,
    LaunchTemplateBlockDeviceMappingEbsArgs,
    LaunchTemplateCapacityReservationSpecificationArgs,
    LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs,
    LaunchTemplateIamInstanceProfileArgs,
    LaunchTemplateInstanceMarketOptionsArgs,
    LaunchTemplateMetadataOptionsArgs,
    LaunchTemplateMonitoringArgs,
    LaunchTemplateNetworkInterfaceArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Market
from stacks.image import ROOT_DEVICE
from stacks.tags import named, node_tags

_TAGGED = ("instance", "network-interface", "volume")


@dataclass(frozen=True, slots=True)
class NodeBase:
    """What all machines of a region share: the profile they hold and the security group around them."""

    profile_arn: pulumi.Output[str]
    security_group_id: pulumi.Output[str]


def template_args(plan: FleetPlan, pool: PoolPlan, base: NodeBase, image: str) -> LaunchTemplateArgs:
    """Return the launch template of a pool; its first type is the one a single-type group launches."""
    name = f"{plan.name}-{pool.name}"
    return LaunchTemplateArgs(
        name=name,
        image_id=image,
        instance_type=pool.types[0],
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=base.profile_arn),
        metadata_options=metadata_options(),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(pool.volume.gib)],
        network_interfaces=_interfaces(base.security_group_id),
        capacity_reservation_specification=_reservation(pool),
        instance_market_options=_market(pool),
        tag_specifications=_tag_specifications(plan, pool),
        tags=named(name),
    )


def metadata_options() -> LaunchTemplateMetadataOptionsArgs:
    """Require a session token, which no container and no forwarded request can get from one hop away."""
    return LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=1,
        instance_metadata_tags="enabled",
    )


def root_volume(gib: int) -> LaunchTemplateBlockDeviceMappingArgs:
    """Return an encrypted root volume of a size, which goes with its machine."""
    volume = LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_type="gp3", volume_size=gib, encrypted="true", delete_on_termination="true"
    )
    return LaunchTemplateBlockDeviceMappingArgs(device_name=ROOT_DEVICE, ebs=volume)


def _interfaces(security_group_id: pulumi.Output[str]) -> list[LaunchTemplateNetworkInterfaceArgs]:
    return [
        LaunchTemplateNetworkInterfaceArgs(
            device_index=0,
            associate_public_ip_address="false",
            delete_on_termination="true",
            security_groups=[security_group_id],
        )
    ]


def _reservation(pool: PoolPlan) -> LaunchTemplateCapacityReservationSpecificationArgs | None:
    """Aim at the pool's own reservation; a machine that does not fit in it is not launched elsewhere."""
    if pool.offer.reservation is None:
        return None
    target = LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=pool.offer.reservation
    )
    return LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def _market(pool: PoolPlan) -> LaunchTemplateInstanceMarketOptionsArgs | None:
    """Name the market of a capacity block; spot is the group's affair, and on demand is no market."""
    if pool.market is not Market.CAPACITY_BLOCK:
        return None
    return LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")


def _tag_specifications(plan: FleetPlan, pool: PoolPlan) -> list[LaunchTemplateTagSpecificationArgs]:
    tags = node_tags(plan, pool)
    return [LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in _TAGGED]
