"""The network interfaces of a launch template."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

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
    LaunchTemplatePlacementArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.catalog import Catalog
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan, Member
from bedplate.plan.links import highest, ssh_name
from bedplate.plan.planner import architecture, image_parameter
from bedplate.plan.pools import PLAIN, Adapter, Interface, PoolPlan, Volume
from bedplate.spec.groups import Market
from bedplate.spec.network import Egress
from bedplate.spec.sites import Use
from stacks.options import named, node_tags


def interface_args(
    layout: Sequence[Interface], security_group_id: pulumi.Input[str]
) -> list[LaunchTemplateNetworkInterfaceArgs]:
    """Return the interfaces of a layout, none of which gets a public address.

    With several interfaces EC2 takes no word on public addresses, and the subnets of nodes give none.
    """
    public = "false" if len(layout) == 1 else None
    return [
        LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card or None,
            device_index=one.device,
            interface_type=None if one.adapter is Adapter.ENA else one.adapter.value,
            associate_public_ip_address=public,
            delete_on_termination="true",
            security_groups=[security_group_id],
        )
        for one in layout
    ]


# Where these images have their root volume.
ROOT_DEVICE = "/dev/sda1"


def image_of(plan: FleetPlan, region: str, types: tuple[str, ...], catalog: Catalog) -> str:
    """Return the image of a region's machines of these types: the recorded one by its id, else Canonical's newest."""
    arch = architecture(types, catalog)
    return plan.record.images.get(f"{region}/{arch}") or image_reference(arch)


def image_reference(arch: str) -> str:
    """Return what a launch template takes for an image id: EC2 looks the parameter up at each launch."""
    return f"resolve:ssm:{image_parameter(arch)}"


# Before it is put into base64. Source: EC2 user guide, "Run commands on your Linux instance at launch".
LIMIT_BYTES = 16_384


def encoded(machine: str, script: str) -> str:
    """Return the form in which a launch template takes a script.

    Raises InputError, naming the machine or pool, when EC2 would refuse to launch with it.
    """
    text = script.encode()
    if len(text) > LIMIT_BYTES:
        told = f"the first boot of {machine} takes {len(text):,} bytes of user data, and EC2 takes {LIMIT_BYTES:,}"
        raise InputError(told, fix="shorten what grows with the file: names, labels, taints")
    return b64encode(text).decode()


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


_SCRIPT = Path(__file__).with_name("first_boot.sh")


def first_boot(plan: FleetPlan, pool: PoolPlan) -> str:
    """Return the script that a pool's machines run when they first start."""
    group = {"SCALING_GROUP": f"{plan.name}-{pool.name}"}
    if pool.use is Use.KUBERNETES:
        return _script(plan, ("take_ec2_name", "let_admins_in", "report_ready"), group)
    place = ssh_name(plan, pool, 1).partition(".")[2]
    names = {"LABEL": pool.group, "PLACE": place, "HIGHEST": str(highest(plan, pool))}
    steps = ("claim_name", "take_claimed_name", "let_admins_in", "watch_for_end", "report_ready")
    return _script(plan, steps, group | names)


def member_boot(plan: FleetPlan, member: Member, volume_id: str) -> str:
    """Return the script that a machine of the control plane runs when it first starts; etcd's data is on the volume."""
    words = {
        "SCALING_GROUP": f"{plan.name}-{member.name.partition('.')[0]}",
        "HOST_NAME": f"{member.name}.{plan.domain}",
        "VOLUME": volume_id,
    }
    return _script(plan, ("take_fixed_name", "let_admins_in", "attach_volume", "mount_volume", "report_ready"), words)


def _script(plan: FleetPlan, steps: tuple[str, ...], words: Mapping[str, str]) -> str:
    """Return the script with its words; without a way to AWS a node takes the steps that need none."""
    able = steps if plan.egress is not Egress.NONE else tuple(step for step in steps if step in _OFFLINE)
    known = {"STEPS": " ".join(able), "FLEET": plan.name, "HOME_REGION": plan.home.name, **words}
    head = [f"readonly {name}={quote(value)}" for name, value in known.items()]
    return "\n".join(("#!/bin/bash", *head, _SCRIPT.read_text(encoding="utf-8")))


_OFFLINE = ("take_ec2_name", "take_fixed_name")
