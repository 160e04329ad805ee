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
    LaunchTemplatePlacementArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.interfaces import PLAIN, Interface
from bedplate.plan.pool import PoolPlan, Volume
from bedplate.spec.group import Market
from bedplate.spec.site import Use
from stacks.image import ROOT_DEVICE
from stacks.interface import interface_args
from stacks.tags import named, node_tags
from stacks.user_data import encoded

_TAGGED = ("instance", "network-interface", "volume")
_SPOT_TAGGED = (*_TAGGED, "spot-instances-request")
# People run containers on a machine that they log in to, and those reach its metadata over one hop more.
HOPS = {Use.SSH: 2, Use.KUBERNETES: 1}


@dataclass(frozen=True, slots=True)
class NodeBase:
    """What all machines of a region share: the profile they hold and the security group around them."""

    profile_arn: pulumi.Input[str]
    security_group_id: pulumi.Input[str]


@dataclass(frozen=True, slots=True)
class Start:
    """What a pool's machines start from: an image, their interfaces, and the script of their first boot."""

    image: str
    interfaces: tuple[Interface, ...] = (PLAIN,)
    script: str | None = None


def template_args(
    plan: FleetPlan, pool: PoolPlan, base: NodeBase, start: Start, placement_group: pulumi.Input[str] | None = None
) -> LaunchTemplateArgs:
    """Return the launch template of a pool; its first type is the one a single-type group launches."""
    name = f"{plan.name}-{pool.name}"
    return LaunchTemplateArgs(
        name=name,
        image_id=start.image,
        instance_type=pool.types[0],
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=base.profile_arn),
        metadata_options=metadata_options(HOPS[pool.use]),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(pool.volume)],
        network_interfaces=interface_args(start.interfaces, base.security_group_id),
        placement=None if placement_group is None else LaunchTemplatePlacementArgs(group_name=placement_group),
        capacity_reservation_specification=_reservation(pool),
        instance_market_options=_market(pool),
        user_data=None if start.script is None else encoded(f"the pool {pool.name}", start.script),
        tag_specifications=_tag_specifications(plan, pool),
        tags=named(name),
    )


def metadata_options(hops: int = 1) -> LaunchTemplateMetadataOptionsArgs:
    """Require a session token, which nothing gets that is further away than so many hops."""
    return LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=hops,
        instance_metadata_tags="enabled",
    )


def root_volume(volume: Volume) -> LaunchTemplateBlockDeviceMappingArgs:
    """Return an encrypted root volume, which goes with its machine."""
    ebs = LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_type="gp3",
        volume_size=volume.gib,
        throughput=volume.throughput,
        iops=volume.iops,
        encrypted="true",
        delete_on_termination="true",
    )
    return LaunchTemplateBlockDeviceMappingArgs(device_name=ROOT_DEVICE, ebs=ebs)


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
    """Tag all that a launch makes; a spot request only where there will be one, or EC2 refuses the launch."""
    tags = node_tags(plan, pool)
    kinds = _SPOT_TAGGED if pool.market is Market.SPOT else _TAGGED
    return [LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in kinds]
