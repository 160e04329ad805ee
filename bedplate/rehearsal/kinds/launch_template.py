"""EC2 launch templates: their checks, their launch data, and why EC2 could not launch with them."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import copied, deletes, existing, structure_parameters
from bedplate.rehearsal.kinds.iam import names_principal
from bedplate.rehearsal.kinds.limits import (
    Absent,
    Choice,
    Limit,
    Number,
    Text,
    check_nested,
    check_tags,
    checks,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.kinds.placement_groups import (
    check_placement,
    placement_error,
    placement_group,
    require_instance_type,
    strategy_error,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_MAX_USER_DATA = 16384  # bytes before base64 encoding: EC2 user guide, "Run commands at launch"


def _check_user_data(data: object) -> Iterator[InvalidInput]:
    """Yield an error when user data is not base64, or too large."""
    if not is_known(data) or data == "":
        return
    try:
        size = len(b64decode(str(data), validate=True))
    except (NotBase64, ValueError):
        yield InvalidInput("userData", "must be base64 (InvalidUserData.Malformed)")
    else:
        if size > _MAX_USER_DATA:
            yield InvalidInput("userData", f"has {size} bytes, at most {_MAX_USER_DATA} are allowed")


_PUBLIC_PARAMETERS = "/aws/service/"  # public parameters, of which moto has a few


def _require_launch_data(aws: Aws, data: Mapping[str, Any]) -> None:
    """Raise ResourceError when launch data, in the form of EC2, names something that does not exist in this region."""
    if data.get("ImageId"):
        _require_image(aws, data["ImageId"])
    if data.get("InstanceType"):
        require_instance_type(aws, data["InstanceType"])
    ec2.require(aws, ec2.SECURITY_GROUP, *group_ids(data))
    nics = data.get("NetworkInterfaces") or []
    ec2.require(aws, ec2.SUBNET, *(nic["SubnetId"] for nic in nics if nic.get("SubnetId")))
    _require_profile(aws, data.get("IamInstanceProfile") or {})
    for mapping in data.get("BlockDeviceMappings") or []:
        if key := (mapping.get("Ebs") or {}).get("KmsKeyId"):
            aws.call("kms", "describe_key", KeyId=key)
    if group := (data.get("Placement") or {}).get("GroupName"):
        placement_group(aws, group)


def group_ids(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of all security groups in launch data, each once: 32 interfaces may share a group."""
    of_interfaces = (nic.get("Groups") or [] for nic in data.get("NetworkInterfaces") or [])
    return tuple(dict.fromkeys(chain(data.get("SecurityGroupIds") or [], *of_interfaces)))


def _require_image(aws: Aws, image: str) -> None:
    parameter = image.removeprefix("resolve:ssm:").partition(":")[0]
    if image.startswith("ami-"):
        aws.simulation.assume_image(aws.region, image)
        aws.call("ec2", "describe_images", ImageIds=[image])
    elif parameter == image:
        raise ResourceError("InvalidAMIID.Malformed", f'Invalid id: "{image}" (expecting "ami-...")', key="imageId")
    elif not parameter.startswith(_PUBLIC_PARAMETERS):
        aws.call("ssm", "get_parameter", Name=parameter)


def _require_profile(aws: Aws, profile: Mapping[str, Any]) -> None:
    name = profile.get("Name") or str(profile.get("Arn") or "").rpartition("/")[2]
    if name:
        try:
            aws.call("iam", "get_instance_profile", InstanceProfileName=name)
        except ResourceError:
            message = f"Invalid IAM Instance Profile {name}"
            raise ResourceError("InvalidParameterValue", message, key="iamInstanceProfile") from None


_TRUE_WORDS = ("1", "t", "T", "true", "TRUE", "True")
_EFA_TYPES = ("efa", "efa-only")


def check_network_cards(interfaces: object) -> Iterator[InvalidInput]:
    """Yield an error for interfaces that no instance type allows together."""
    items = interfaces if isinstance(interfaces, list) and is_known(interfaces) else []
    for reason in (*_card_errors(items), *_address_errors(items)):
        yield InvalidInput("networkInterfaces", reason)


def _card_errors(interfaces: list[Props]) -> Iterator[str]:
    positions = [
        (interface.get("networkCardIndex") or 0, interface.get("deviceIndex") or 0) for interface in interfaces
    ]
    if len(set(positions)) < len(positions):
        yield "must not have two interfaces with the same deviceIndex on one network card"
    if interfaces and (0, 0) not in positions:
        yield "must have a primary interface: deviceIndex 0 on network card 0"
    first = dict(zip(positions, interfaces, strict=True)).get((0, 0), {})
    if first.get("interfaceType") == "efa-only":
        yield "must not have an efa-only primary interface: it carries the address of the instance"


def _address_errors(interfaces: list[Props]) -> Iterator[str]:
    if len(interfaces) > 1 and any(
        str(interface.get("associatePublicIpAddress")) in _TRUE_WORDS for interface in interfaces
    ):
        yield "must not set associatePublicIpAddress with several network interfaces"


def interface_error(facts: Mapping[str, Any], interfaces: list[dict[str, Any]]) -> str:
    """Return why an instance type, described by EC2, cannot have these interfaces, or an empty string."""
    network, instance_type = facts["NetworkInfo"], facts["InstanceType"]
    cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards", [])}
    counts = Counter(_card_index(interface) for interface in interfaces)
    efa = [interface for interface in interfaces if interface.get("InterfaceType") in _EFA_TYPES]
    efa_limit = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    if unknown := sorted(counts.keys() - cards.keys()):
        return f"{instance_type} has no network card {unknown[0]}"
    for interface in interfaces:
        card, device = cards[_card_index(interface)], interface.get("DeviceIndex") or 0
        interface_type = interface.get("InterfaceType") or "interface"
        limit, label = card["MaximumNetworkInterfaces"], f"the network card {_card_index(interface)} of {instance_type}"
        if device >= limit or counts[_card_index(interface)] > limit:
            return f"{label} allows {limit} interfaces, with device indexes from 0 to {limit - 1}"
        if interface_type not in card["InterfaceTypes"]:
            return f"{label} allows no interface of type {interface_type}"
    return f"{instance_type} allows {efa_limit} EFA interfaces, not {len(efa)}" if len(efa) > efa_limit else ""


def _card_index(interface: Mapping[str, Any]) -> int:
    return int(interface.get("NetworkCardIndex") or 0)


_TAGGABLE_TYPES = ("elastic-gpu", "fleet", "instance", "network-interface", "spot-instances-request", "volume")
_VOLUME_TYPES = ("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard")
# Strings that the provider reads as a boolean; an empty string means not set.
_BOOLEAN = Choice(("", "0", "1", "F", "FALSE", "False", "T", "TRUE", "True", "f", "false", "t", "true"))
_SWITCH = Choice(("disabled", "enabled"))
_BASE_IOPS, _IOPS_PER_GIB, _MIB_PER_OPERATION = 3000, 500, 0.25
_LIMITS = {
    "name": Text(3, 128, r"[a-zA-Z0-9().\-/_]+", "letters, digits and ().-/_"),
    "instanceInitiatedShutdownBehavior": Choice(("stop", "terminate")),
}
_BLOCKS: dict[str, dict[str, Limit]] = {
    "metadataOptions": {
        "httpEndpoint": _SWITCH,
        "httpProtocolIpv6": _SWITCH,
        "httpPutResponseHopLimit": Number(1, 64),
        "httpTokens": Choice(("optional", "required")),
        "instanceMetadataTags": _SWITCH,
    },
    "tagSpecifications": {"resourceType": Choice(_TAGGABLE_TYPES)},
    "blockDeviceMappings.ebs": {
        "deleteOnTermination": _BOOLEAN,
        "encrypted": _BOOLEAN,
        "throughput": Number(125, 2000),
        "volumeSize": Number(1, 65536),
        "volumeType": Choice(_VOLUME_TYPES),
    },
    "networkInterfaces": {
        "associateCarrierIpAddress": _BOOLEAN,
        "associatePublicIpAddress": _BOOLEAN,
        "deleteOnTermination": _BOOLEAN,
        "interfaceType": Choice(("efa", "efa-only", "interface")),
        **dict.fromkeys(("ipv6AddressCount", "privateIpAddress"), Absent()),
    },
    "capacityReservationSpecification": {
        "capacityReservationPreference": Choice(("capacity-reservations-only", "none", "open"))
    },
    "capacityReservationSpecification.capacityReservationTarget": {
        "capacityReservationId": Text(11, 20, r"cr-([0-9a-f]{8}|[0-9a-f]{17})", "an id such as cr-0123456789abcdef0")
    },
    "instanceMarketOptions": {"marketType": Choice(("capacity-block", "spot")), "spotOptions": Absent()},
    "placement": {"tenancy": Absent()},
}
_LAUNCH_INPUTS = (
    "blockDeviceMappings",
    "capacityReservationSpecification",
    "iamInstanceProfile",
    "imageId",
    "instanceInitiatedShutdownBehavior",
    "instanceMarketOptions",
    "instanceType",
    "metadataOptions",
    "monitoring",
    "networkInterfaces",
    "placement",
    "tagSpecifications",
    "userData",
    "vpcSecurityGroupIds",
)
_RENAMES = {
    "vpcSecurityGroupIds": "SecurityGroupIds",
    "securityGroups": "Groups",
}


def launch_data(aws: Aws, inputs: Props) -> dict[str, Any]:
    """Return the launch data of a template in the form of EC2; raise ResourceError when it names something unknown."""
    shape = aws.shape("ec2", "create_launch_template").members["LaunchTemplateData"]
    tagged = [{**block, "tags": tag_pairs(block.get("tags"))} for block in inputs.get("tagSpecifications") or []]
    values = {
        **inputs,
        "networkInterfaces": inputs.get("networkInterfaces") or None,
        "tagSpecifications": tagged or None,
    }
    parameters = {key: values.get(key) for key in _LAUNCH_INPUTS}
    data = structure_parameters(shape, parameters, _RENAMES)
    _require_launch_data(aws, data)
    return data


def _check(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each invalid input of a template, or combination of inputs."""
    for path, limits in _BLOCKS.items():
        yield from check_nested(inputs, path, limits)
    if inputs.get("networkInterfaces") and inputs.get("vpcSecurityGroupIds"):
        message = "conflicts with networkInterfaces: set securityGroups there"
        yield InvalidInput("vpcSecurityGroupIds", message)
    yield from _check_user_data(inputs.get("userData"))
    yield from _check_tags(inputs.get("tagSpecifications"))
    yield from _check_disks(inputs.get("blockDeviceMappings"))
    yield from check_network_cards(inputs.get("networkInterfaces"))
    yield from check_placement(inputs)


def _check_tags(specifications: object) -> Iterator[InvalidInput]:
    """Yield an error for each invalid tag of the resources that a template launches."""
    for specification in specifications if isinstance(specifications, list) and is_known(specifications) else []:
        yield from (InvalidInput(f"tagSpecifications.{error.key}", error.reason) for error in check_tags(specification))


def _check_disks(mappings: object) -> Iterator[InvalidInput]:
    """Yield an error for volumes that EC2 cannot create: a key without encryption, or too much throughput or IOPS."""
    for mapping in mappings if isinstance(mappings, list) and is_known(mappings) else []:
        disk = mapping.get("ebs") or {}
        yield from _check_performance(disk)
        if disk.get("kmsKeyId") and str(disk.get("encrypted", "")).lower() not in ("1", "t", "true"):
            message = "requires encrypted to be true (InvalidParameterDependency)"
            yield InvalidInput("blockDeviceMappings.ebs.kmsKeyId", message)


def _check_performance(disk: Props) -> Iterator[InvalidInput]:
    """Yield an error for throughput or IOPS out of proportion. Source: EBS user guide, "gp3 volumes"."""
    volume_type, size, iops = disk.get("volumeType"), disk.get("volumeSize"), disk.get("iops") or _BASE_IOPS
    if disk.get("throughput") and volume_type not in (None, "gp3"):
        yield InvalidInput("blockDeviceMappings.ebs.throughput", f"is allowed for gp3 volumes, not for {volume_type}")
    elif (disk.get("throughput") or 0) > iops * _MIB_PER_OPERATION:
        yield InvalidInput(
            "blockDeviceMappings.ebs.throughput",
            f"must be at most {_MIB_PER_OPERATION} MiB/s for each of the {iops} IOPS",
        )
    if volume_type == "gp3" and size and iops > max(_BASE_IOPS, size * _IOPS_PER_GIB):
        yield InvalidInput(
            "blockDeviceMappings.ebs.iops", f"must be at most {_IOPS_PER_GIB} for each of the {size} GiB"
        )


def _create(aws: Aws, inputs: Props) -> str:
    call = {"LaunchTemplateName": inputs["name"], "LaunchTemplateData": launch_data(aws, inputs)}
    ident: str = aws.call("ec2", "create_launch_template", **call)["LaunchTemplate"]["LaunchTemplateId"]
    with rollback(lambda: _delete(aws, ident, inputs)):
        # In a second call: moto would mix the tags of the template with those of its instances.
        ec2.retag(aws, ident, {}, inputs)
    return ident


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    versions = {"defaultVersion": "DefaultVersionNumber", "latestVersion": "LatestVersionNumber"}
    outputs = copied(_describe_template(aws, ident), **versions, name="LaunchTemplateName")
    return {"arn": aws.arn("ec2", f"launch-template/{ident}"), **outputs}


def _describe_template(aws: Aws, ident: str) -> dict[str, Any]:
    templates = aws.call("ec2", "describe_launch_templates", LaunchTemplateIds=[ident])["LaunchTemplates"]
    code, message = "InvalidLaunchTemplateId.NotFound", f"The launch template '{ident}' does not exist"
    return existing(templates, code, message)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if any(old.get(key) != new.get(key) for key in _LAUNCH_INPUTS):
        call = {"LaunchTemplateId": ident, "LaunchTemplateData": launch_data(aws, new)}
        aws.call("ec2", "create_launch_template_version", **call)
    if new.get("updateDefaultVersion"):
        version = str(_describe_template(aws, ident)["LatestVersionNumber"])
        aws.call("ec2", "modify_launch_template", LaunchTemplateId=ident, DefaultVersion=version)
    ec2.retag(aws, ident, old, new)


_delete = deletes("ec2", "delete_launch_template", "LaunchTemplateId")


LAUNCH_TEMPLATE = ResourceKind(
    token="aws:ec2/launchTemplate:LaunchTemplate",
    inputs=updates(*_LAUNCH_INPUTS, "updateDefaultVersion", "tags") | replaces("name"),
    sets=frozenset({"vpcSecurityGroupIds"}),
    changed_by_update=frozenset({"defaultVersion", "latestVersion"}),
    naming=Naming(longest=125),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=checks(_LIMITS, _check),
)
_SPOT_REQUEST = "spot-instances-request"


def launch_error(
    aws: Aws, inputs: Props, data: Mapping[str, Any], types: Collection[str], zones: Collection[str]
) -> str:
    """Return why EC2 could launch no instance of a group with this launch data, or an empty string."""
    group = (data.get("Placement") or {}).get("GroupName")
    interfaces = [
        interface for interface in data.get("NetworkInterfaces") or [] if not interface.get("NetworkInterfaceId")
    ]
    reasons = [
        _spot_tag_error(inputs, data),
        _key_error(aws, inputs, data),
        placement_error(aws, group, zones),
    ]
    # Descriptions of types are slow: they are read only when a check needs them.
    if (
        group
        or len(interfaces) > 1
        or any(interface.get("InterfaceType") or interface.get("NetworkCardIndex") for interface in interfaces)
    ):
        filters = [{"Name": "instance-type", "Values": sorted(types)}]
        for facts in aws.call("ec2", "describe_instance_types", Filters=filters)["InstanceTypes"]:
            reasons += [interface_error(facts, interfaces), strategy_error(aws, facts, group)]
    return next((reason for reason in reasons if reason), "")


def _spot_tag_error(inputs: Props, data: Mapping[str, Any]) -> str:
    """Return an error when launch data tags spot requests, and the group launches on demand.

    Source: EC2 API reference, RunInstances, TagSpecification.
    """
    tagged_types = {specification.get("ResourceType") for specification in data.get("TagSpecifications") or []}
    if _SPOT_REQUEST in tagged_types and not _uses_spot(inputs, data):
        return f"It tags {_SPOT_REQUEST}, which on-demand launches do not have"
    return ""


def _uses_spot(inputs: Props, data: Mapping[str, Any]) -> bool:
    distribution = (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}
    share = distribution.get("onDemandPercentageAboveBaseCapacity")
    mixed = share is not None and share < 100  # noqa: PLR2004  # per cent
    return mixed or (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"


def _key_error(aws: Aws, inputs: Props, data: Mapping[str, Any]) -> str:
    """Return an error when the key of a volume or of the image does not admit the role of the group's market.

    Sources: EC2 Auto Scaling user guide, "Required AWS KMS key policy for use with encrypted volumes"; EC2 user guide,
    "Service-linked role for EC2 Spot Instances".
    """
    roles = ["autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"]
    roles += ["spot.amazonaws.com/AWSServiceRoleForEC2Spot"] if _uses_spot(inputs, data) else []
    disks = [(mapping.get("Ebs") or {}).get("KmsKeyId") for mapping in data.get("BlockDeviceMappings") or []]
    for key in filter(None, [*disks, aws.simulation.image_keys.get(str(data.get("ImageId")))]):
        ident = aws.call("kms", "describe_key", KeyId=key)["KeyMetadata"]["KeyId"]
        policy = aws.call("kms", "get_key_policy", KeyId=ident, PolicyName="default")["Policy"]
        for role in roles:
            arn = f"arn:aws:iam::{aws.account}:role/aws-service-role/{role}"
            if not names_principal(policy, arn, "kms:CreateGrant"):
                return f"The policy of the key {key} does not let {role.partition('/')[2]} create grants for volumes"
    return ""
