"""The launch template of a pool: image, interfaces, volume, tags, and the bootstrap script as user data."""

import gzip
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
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
    LaunchTemplatePlacementArgs,
    LaunchTemplateTagSpecificationArgs,
)
from pulumi_aws.ec2.launch_template import LaunchTemplateArgs

from bedplate.catalog import Catalog
from bedplate.errors import InputError
from bedplate.nodes.bootstrap import user_data_script
from bedplate.plan.cost import ETCD_VOLUME, KEYS_VOLUME
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hub import HUB_FOLDER, HubPlan
from bedplate.plan.links import highest_number
from bedplate.plan.planner import architecture, image_parameter
from bedplate.plan.pools import PLAIN, Adapter, Interface, PoolPlan, VolumePlan
from bedplate.programs.gateway.paths import GatewayPaths
from bedplate.spec.groups import Ring
from bedplate.spec.network import Egress
from bedplate.spec.sites import Use
from stacks.options import name_tag, node_tags


def interface_args(
    layout: Sequence[Interface], security_group_id: pulumi.Input[str]
) -> list[LaunchTemplateNetworkInterfaceArgs]:
    """Return the interfaces of a layout, without public addresses.

    EC2 refuses associate_public_ip_address with several interfaces; the node subnets assign no public address.
    """
    public_address = "false" if len(layout) == 1 else None
    return [
        LaunchTemplateNetworkInterfaceArgs(
            network_card_index=interface.card or None,
            device_index=interface.device,
            interface_type=None if interface.adapter is Adapter.ENA else interface.adapter.value,
            associate_public_ip_address=public_address,
            delete_on_termination="true",
            security_groups=[security_group_id],
        )
        for interface in layout
    ]


# Device name of the root volume in Ubuntu images.
ROOT_DEVICE = "/dev/sda1"


def image_of(plan: FleetPlan, region: str, types: tuple[str, ...], catalog: Catalog) -> str:
    """Return the image for instance types in a region: the recorded id, or a reference to the newest of Canonical."""
    arch = architecture(types, catalog)
    return plan.record.images.get(f"{region}/{arch}") or image_reference(arch)


def image_reference(arch: str) -> str:
    """Return the SSM reference to the newest image; EC2 resolves it at each launch."""
    return f"resolve:ssm:{image_parameter(arch)}"


# Size before base64 encoding. Source: EC2 user guide, "Run commands on your Linux instance at launch".
LIMIT_BYTES = 16_384
# Source: RFC 1952, section 2.3.
_GZIP_SYSTEM, _UNKNOWN_SYSTEM = 9, 255


def encode_user_data(machine: str, script: str) -> str:
    """Return a script as user data: compressed, which cloud-init accepts, and in base64.

    Raises InputError if it is larger than EC2 allows.
    """
    data = bytearray(gzip.compress(script.encode(), mtime=0))
    # The operating system in the header: versions of Python differ.
    data[_GZIP_SYSTEM] = _UNKNOWN_SYSTEM
    if len(data) > LIMIT_BYTES:
        message = f"the user data of {machine} has {len(data):,} bytes, EC2 allows {LIMIT_BYTES:,}"
        raise InputError(message, fix="shorten names, labels and taints")
    return b64encode(bytes(data)).decode()


_TAGGED_TYPES = ("instance", "network-interface", "volume")
_SPOT_TAGGED_TYPES = (*_TAGGED_TYPES, "spot-instances-request")


@dataclass(frozen=True, slots=True)
class NodeBase:
    """The instance profile and security group of nodes in a region."""

    profile_arn: pulumi.Input[str]
    security_group_id: pulumi.Input[str]


@dataclass(frozen=True, slots=True)
class Start:
    """The image, interfaces and bootstrap script of a pool."""

    image: str
    interfaces: tuple[Interface, ...] = (PLAIN,)
    script: str | None = None


def template_args(
    plan: FleetPlan, pool: PoolPlan, base: NodeBase, start: Start, placement_group: pulumi.Input[str] | None = None
) -> LaunchTemplateArgs:
    """Return the launch template of a pool with its first instance type; a mixed instances policy overrides it."""
    name = f"{plan.name}-{pool.name}"
    return LaunchTemplateArgs(
        name=name,
        image_id=start.image,
        instance_type=pool.types[0],
        update_default_version=True,
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(arn=base.profile_arn),
        # Its group would end a stopped one. An unused machine ends so, outside of its group.
        instance_initiated_shutdown_behavior="terminate" if pool.use.is_ssh else None,
        metadata_options=metadata_options(token_hops(pool.use)),
        monitoring=LaunchTemplateMonitoringArgs(enabled=False),
        block_device_mappings=[root_volume(pool.volume)],
        network_interfaces=interface_args(start.interfaces, base.security_group_id),
        placement=None if placement_group is None else LaunchTemplatePlacementArgs(group_name=placement_group),
        capacity_reservation_specification=_reservation(pool),
        instance_market_options=_market(pool),
        user_data=None if start.script is None else encode_user_data(f"the pool {pool.name}", start.script),
        tag_specifications=_tag_specifications(plan, pool),
        tags=name_tag(name),
    )


def token_hops(use: Use) -> int:
    """Return the hop limit of tokens of the metadata service: people run containers, which need one more hop."""
    match use:
        case Use.SSH:
            return 2
        case Use.KUBERNETES:
            return 1


def metadata_options(hops: int = 1) -> LaunchTemplateMetadataOptionsArgs:
    """Return metadata options that require IMDSv2 and limit the hops of its tokens."""
    return LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=hops,
        instance_metadata_tags="enabled",
    )


def root_volume(volume: VolumePlan) -> LaunchTemplateBlockDeviceMappingArgs:
    """Return an encrypted root volume that is deleted with its instance."""
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
    """Return the capacity reservation of a pool; EC2 launches only inside it."""
    if pool.rung_spec.reservation is None:
        return None
    target = LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=pool.rung_spec.reservation
    )
    return LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def _market(pool: PoolPlan) -> LaunchTemplateInstanceMarketOptionsArgs | None:
    """Return the market of a capacity block; the Auto Scaling group sets spot, and on demand is the default."""
    if not pool.market.is_block:
        return None
    return LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")


def _tag_specifications(plan: FleetPlan, pool: PoolPlan) -> list[LaunchTemplateTagSpecificationArgs]:
    """Return the tags of all launched resources; EC2 refuses tags of spot requests in an on-demand launch."""
    tags = node_tags(plan, pool)
    types = _SPOT_TAGGED_TYPES if pool.market.is_spot else _TAGGED_TYPES
    return [LaunchTemplateTagSpecificationArgs(resource_type=resource_type, tags=tags) for resource_type in types]


_RUN = "start_configuration"


def first_boot(plan: FleetPlan, pool: PoolPlan) -> str:
    """Return the bootstrap script of the instances of a pool."""
    values = {
        "SCALING_GROUP": f"{plan.name}-{pool.name}",
        "LABEL": pool.group,
        "DOMAIN": f"{pool.region}.{plan.domain}",
        **bundle_source(plan, pool.region, pool.name, pool.group_spec.ring),
    }
    match pool.use:
        case Use.KUBERNETES:
            return _script(plan, ("take_worker_name", "let_admins_in", _RUN), values)
        case Use.SSH:
            steps = ("claim_name", "take_claimed_name", "let_admins_in", "watch_for_end", _RUN)
            return _script(plan, steps, values | {"HIGHEST": str(highest_number(plan, pool))})


@dataclass(frozen=True, slots=True)
class KeptData:
    """A volume that outlives its machine, and the folders that are bound to it.

    `services` are units of packages that start only with it; units of roles say so themselves.
    """

    name: str
    gib: int
    mount: str
    services: tuple[str, ...]
    folders: tuple[str, ...] = ()


ETCD = KeptData("etcd", ETCD_VOLUME.gib, "/var/lib/etcd", ("containerd", "kubelet"))
_STATE, _SETTINGS = str(GatewayPaths.state), str(GatewayPaths.settings)
VPN_KEYS = KeptData("keys", KEYS_VOLUME.gib, _STATE, (), (_SETTINGS,))


def hub_data(hub: HubPlan) -> KeptData:
    """Return the volume with the records."""
    return KeptData("records", hub.disk, HUB_FOLDER, ())


def permanent_boot(plan: FleetPlan, name: str, kept: KeptData, volume_id: str) -> str:
    """Return the bootstrap script of a control plane member, a laptop gateway or the hub, with its kept data."""
    host, _, region = name.partition(".")
    values = {
        "SCALING_GROUP": f"{plan.name}-{host}",
        "HOST_NAME": f"{name}.{plan.domain}",
        "VOLUME": volume_id,
        "MOUNT": kept.mount,
        "FOLDERS": " ".join(kept.folders),
        "SERVICES": " ".join(kept.services),
        **bundle_source(plan, region, name),
    }
    keys = () if kept is ETCD else ("keep_host_key",)
    steps = ("take_fixed_name", "let_admins_in", "attach_volume", "mount_volume", *keys, _RUN)
    return _script(plan, steps, values, has_public_address=kept is VPN_KEYS)


def bundle_source(plan: FleetPlan, region: str, document: str, ring: Ring = Ring.STABLE) -> dict[str, str]:
    """Return the constants that name the bucket, the node document and the ring of a machine.

    The hash of the bundle is not among them: a new bundle must not change a launch template.
    """
    return {"BUCKET": plan.nodes_bucket(region).name, "DOCUMENT": document, "RING": ring.value}


def bake_boot(plan: FleetPlan, document: str) -> bytes:
    """Return the user data of an instance that becomes an image: it runs only the install stage of its roles."""
    if plan.egress is Egress.NONE:
        fix = "write `egress: shared` in `network`, and run `bedplate up`"
        raise InputError("`network.egress: none`: an instance cannot download packages", fix=fix)
    values = {"STAGE": "install", "SCALING_GROUP": "", **bundle_source(plan, plan.home.name, document)}
    script = _script(plan, ("start_configuration",), values)
    return b64decode(encode_user_data("the bake", script.replace("readonly STAGE=", "declare -rx STAGE=", 1)))


def _script(
    plan: FleetPlan, steps: tuple[str, ...], values: Mapping[str, str], *, has_public_address: bool = False
) -> str:
    """Return the script with its constants; without a way to AWS, only with the steps that need no AWS API."""
    # First: a wrong clock invalidates certificates and signatures.
    runnable = (
        ("set_clock", *steps)
        if has_public_address or plan.egress is not Egress.NONE
        else tuple(step for step in steps if step in _OFFLINE_STEPS)
    )
    return user_data_script(runnable, {"FLEET": plan.name, "HOME_REGION": plan.home.name, **values})


_OFFLINE_STEPS = ("take_fixed_name", "take_worker_name")
