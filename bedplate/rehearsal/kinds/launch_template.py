"""EC2 launch templates: every change makes a new version, and the default one follows when it is told to."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import SECURITY_GROUP, SUBNET, require, retag
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Limit,
    Number,
    Text,
    beyond,
    chosen_name,
    inside,
    kept,
    tag_complaints,
    tag_pairs,
    together,
    undoing,
)
from bedplate.rehearsal.kinds.placement_groups import TOKEN as PLACEMENT_GROUP
from bedplate.rehearsal.kinds.placement_groups import (
    UNKNOWN_GROUP,
    misplaced,
    placement_complaints,
    refuse_unknown_type,
    unsupported,
)
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_LARGEST = 16384  # bytes before encoding: EC2 user guide, "Run commands at launch"


def user_data_complaints(inputs: Props, key: str) -> Iterator[Complaint]:
    """Yield a complaint when the user data under `key` is not in base64, or too large."""
    data = inputs.get(key)
    if not is_known(data) or data == "":
        return
    try:
        size = len(b64decode(str(data), validate=True))
    except (NotBase64, ValueError):
        yield Complaint(key, "InvalidUserData.Malformed: not in base64")
    else:
        if size > _LARGEST:
            yield Complaint(key, f"user data has at most {_LARGEST} bytes, not {size}")


def plain_user_data(inputs: Props) -> bytes | None:
    """Return an instance's user data as the machine will see it; boto3 does the encoding."""
    if inputs.get("userDataBase64"):
        return b64decode(str(inputs["userDataBase64"]))
    return str(inputs["userData"]).encode() if inputs.get("userData") else None


_PUBLIC = "/aws/service/"  # parameters that AWS and others publish, of which moto knows a few


def refuse_unmet(aws: Aws, data: Mapping[str, Any]) -> None:
    """Refuse launch data, in EC2's form, that names what does not exist in this region."""
    if data.get("ImageId"):
        _require_image(aws, data["ImageId"])
    if data.get("InstanceType"):
        refuse_unknown_type(aws, data["InstanceType"])
    if data.get("KeyName"):
        aws.call("ec2", "describe_key_pairs", KeyNames=[data["KeyName"]])
    require(aws, SECURITY_GROUP, *group_ids(data))
    nics = data.get("NetworkInterfaces") or []
    require(aws, SUBNET, *(nic["SubnetId"] for nic in nics if nic.get("SubnetId")))
    _require_profile(aws, data.get("IamInstanceProfile") or {})
    _require_keys(aws, data)
    group = (data.get("Placement") or {}).get("GroupName")
    if group:
        kept(aws, PLACEMENT_GROUP, group, UNKNOWN_GROUP)


def group_ids(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield every security group that launch data names, by id."""
    yield from data.get("SecurityGroupIds") or []
    for nic in data.get("NetworkInterfaces") or []:
        yield from nic.get("Groups") or []


def _require_image(aws: Aws, image: str) -> None:
    parameter = image.removeprefix("resolve:ssm:").partition(":")[0]
    if image.startswith("ami-"):
        aws.call("ec2", "describe_images", ImageIds=[image])
    elif parameter == image:
        raise Refusal("InvalidAMIID.Malformed", f'Invalid id: "{image}" (expecting "ami-...")', key="imageId")
    elif not parameter.startswith(_PUBLIC):
        aws.call("ssm", "get_parameter", Name=parameter)


def _require_profile(aws: Aws, profile: Mapping[str, Any]) -> None:
    name = profile.get("Name") or str(profile.get("Arn") or "").rpartition("/")[2]
    if name:
        try:
            aws.call("iam", "get_instance_profile", InstanceProfileName=name)
        except Refusal:
            said = f"Invalid IAM Instance Profile {name}"
            raise Refusal("InvalidParameterValue", said, key="iamInstanceProfile") from None


def _require_keys(aws: Aws, data: Mapping[str, Any]) -> None:
    for mapping in data.get("BlockDeviceMappings") or []:
        key = (mapping.get("Ebs") or {}).get("KmsKeyId")
        if key:
            aws.call("kms", "describe_key", KeyId=key)


_ADDRESSES = ("ipv4AddressCount", "ipv4Addresses", "ipv6AddressCount", "ipv6Addresses", "privateIpAddress")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FABRIC = ("efa", "efa-only")


def card_complaints(interfaces: object) -> Iterator[Complaint]:
    """Yield what is wrong with a template's interfaces, whatever the type of its machines."""
    listed = interfaces if isinstance(interfaces, list) and is_known(interfaces) else []
    for reason in (*_misplaced(listed), *_misaddressed(listed)):
        yield Complaint("networkInterfaces", reason)


def _misplaced(listed: list[Props]) -> Iterator[str]:
    places = [(each.get("networkCardIndex") or 0, each.get("deviceIndex") or 0) for each in listed]
    if len(set(places)) < len(places):
        yield "each interface has a deviceIndex of its own on its network card"
    if listed and (0, 0) not in places:
        yield "one interface is the primary: deviceIndex 0 on network card 0"
    first = dict(zip(places, listed, strict=True)).get((0, 0), {})
    if first.get("interfaceType") == "efa-only":
        yield "the primary interface cannot be efa-only: it bears the machine's address"


def _misaddressed(listed: list[Props]) -> Iterator[str]:
    if len(listed) > 1 and any(str(each.get("associatePublicIpAddress")) in _TRUE for each in listed):
        yield "associatePublicIpAddress cannot be specified with several network interfaces"
    if any(each.get("interfaceType") == "efa-only" and any(each.get(key) for key in _ADDRESSES) for each in listed):
        yield "an efa-only interface takes no address"


def misfit(facts: Mapping[str, Any], interfaces: list[dict[str, Any]]) -> str:
    """Return why a type, as EC2 describes it, cannot have these interfaces of launch data; nothing where it can."""
    network, name = facts["NetworkInfo"], facts["InstanceType"]
    cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards", [])}
    used = Counter(_card(each) for each in interfaces)
    fabric = [each for each in interfaces if each.get("InterfaceType") in _FABRIC]
    most = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    if strange := sorted(used.keys() - cards.keys()):
        return f"{name} has no network card {strange[0]}"
    for each in interfaces:
        card, place, kind = cards[_card(each)], each.get("DeviceIndex") or 0, each.get("InterfaceType") or "interface"
        room, where = card["MaximumNetworkInterfaces"], f"the network card {_card(each)} of {name}"
        if place >= room or used[_card(each)] > room:
            return f"{where} takes {room} interfaces, with device indexes from 0 to {room - 1}"
        if kind not in card["InterfaceTypes"]:
            return f"{where} takes no interface of the type {kind}"
    return f"{name} has at most {most} EFA interfaces, not {len(fabric)}" if len(fabric) > most else ""


def _card(interface: Mapping[str, Any]) -> int:
    return int(interface.get("NetworkCardIndex") or 0)


_TAGGABLE = ("elastic-gpu", "fleet", "instance", "network-interface", "spot-instances-request", "volume")
_VOLUMES = ("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard")
# Text that the provider reads as a truth value; empty is for neither.
_TRUTH = Choice(("", "0", "1", "F", "FALSE", "False", "T", "TRUE", "True", "f", "false", "t", "true"))
_SWITCH = Choice(("disabled", "enabled"))
_BASE_IOPS, _IOPS_PER_GIB, _MIB_PER_OPERATION = 3000, 500, 0.25
_LIMITS = {
    "name": Text(3, 128, r"[a-zA-Z0-9().\-/_]+", "letters, digits and ().-/_"),
    "description": Text(0, 255),
    "ebsOptimized": _TRUTH,
    "instanceInitiatedShutdownBehavior": Choice(("stop", "terminate")),
}
_BLOCKS: tuple[tuple[str, dict[str, Limit]], ...] = (
    (
        "metadataOptions",
        {
            "httpEndpoint": _SWITCH,
            "httpProtocolIpv6": _SWITCH,
            "httpPutResponseHopLimit": Number(1, 64),
            "httpTokens": Choice(("optional", "required")),
            "instanceMetadataTags": _SWITCH,
        },
    ),
    ("tagSpecifications", {"resourceType": Choice(_TAGGABLE)}),
    (
        "blockDeviceMappings.ebs",
        {
            "deleteOnTermination": _TRUTH,
            "encrypted": _TRUTH,
            "throughput": Number(125, 2000),
            "volumeSize": Number(1, 65536),
            "volumeType": Choice(_VOLUMES),
        },
    ),
    (
        "networkInterfaces",
        {
            "associateCarrierIpAddress": _TRUTH,
            "associatePublicIpAddress": _TRUTH,
            "deleteOnTermination": _TRUTH,
            "interfaceType": Choice(("efa", "efa-only", "interface")),
        },
    ),
    (
        "capacityReservationSpecification",
        {"capacityReservationPreference": Choice(("capacity-reservations-only", "none", "open"))},
    ),
    (
        "capacityReservationSpecification.capacityReservationTarget",
        {"capacityReservationId": Text(11, 20, r"cr-([0-9a-f]{8}|[0-9a-f]{17})", "an id such as cr-0123456789abcdef0")},
    ),
    ("cpuOptions", {"amdSevSnp": _SWITCH}),
    ("creditSpecification", {"cpuCredits": Choice(("standard", "unlimited"))}),
    ("instanceMarketOptions", {"marketType": Choice(("capacity-block", "spot"))}),
    (
        "instanceMarketOptions.spotOptions",
        {
            "instanceInterruptionBehavior": Choice(("hibernate", "stop", "terminate")),
            "spotInstanceType": Choice(("one-time", "persistent")),
        },
    ),
    ("maintenanceOptions", {"autoRecovery": Choice(("default", "disabled"))}),
    ("placement", {"tenancy": Choice(("dedicated", "default", "host"))}),
    ("privateDnsNameOptions", {"hostnameType": Choice(("ip-name", "resource-name"))}),
)


def launch_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Yield what is wrong with a template's inputs, one by one and together."""
    yield from beyond(inputs, _LIMITS)
    for path, limits in _BLOCKS:
        yield from inside(inputs, path, limits)
    yield from together(inputs, "name", "namePrefix")
    yield from together(inputs, "defaultVersion", "updateDefaultVersion")
    yield from together(inputs, "instanceType", "instanceRequirements")
    if inputs.get("networkInterfaces") and inputs.get("vpcSecurityGroupIds"):
        told = "network interfaces and an instance's security groups exclude each other"
        yield Complaint("vpcSecurityGroupIds", told)
    yield from user_data_complaints(inputs, "userData")
    yield from _tag_complaints(inputs.get("tagSpecifications"))
    yield from _disk_complaints(inputs.get("blockDeviceMappings"))
    yield from card_complaints(inputs.get("networkInterfaces"))
    yield from placement_complaints(aws, inputs)


def _tag_complaints(specifications: object) -> Iterator[Complaint]:
    """Yield what is wrong with the tags of what a template launches, which are as limited as a resource's own."""
    for each in specifications if isinstance(specifications, list) and is_known(specifications) else []:
        yield from (Complaint(f"tagSpecifications.{found.key}", found.reason) for found in tag_complaints(each))


def _disk_complaints(mappings: object) -> Iterator[Complaint]:
    """Yield where a disk has a key and is not encrypted, or a pace that its kind does not reach: no launch succeeds."""
    for each in mappings if isinstance(mappings, list) and is_known(mappings) else []:
        disk = each.get("ebs") or {}
        yield from _pace_complaints(disk)
        if disk.get("kmsKeyId") and str(disk.get("encrypted", "")).lower() not in ("1", "t", "true"):
            told = "InvalidParameterDependency: the parameter KmsKeyId requires the parameter Encrypted to be set"
            yield Complaint("blockDeviceMappings.ebs.kmsKeyId", told)


def _pace_complaints(disk: Props) -> Iterator[Complaint]:
    """Yield where throughput or operations a second are out of proportion: EBS user guide, "gp3 volumes"."""
    kind, size, iops = disk.get("volumeType"), disk.get("volumeSize"), disk.get("iops") or _BASE_IOPS
    if disk.get("throughput") and kind not in (None, "gp3"):
        yield Complaint("blockDeviceMappings.ebs.throughput", f"is for gp3 volumes, not for {kind}")
    elif (disk.get("throughput") or 0) > iops * _MIB_PER_OPERATION:
        yield Complaint("blockDeviceMappings.ebs.throughput", "Throughput to iops ratio is too high; maximum is 0.25")
    if kind == "gp3" and size and iops > max(_BASE_IOPS, size * _IOPS_PER_GIB):
        yield Complaint("blockDeviceMappings.ebs.iops", "Iops to volume size ratio is too high; maximum is 500")


# Inputs of a version of the template that are not launch data.
_VERSION = ("defaultVersion", "description", "updateDefaultVersion")
_LAUNCH = (
    "blockDeviceMappings",
    "capacityReservationSpecification",
    "cpuOptions",
    "creditSpecification",
    "disableApiStop",
    "disableApiTermination",
    "ebsOptimized",
    "enclaveOptions",
    "hibernationOptions",
    "iamInstanceProfile",
    "imageId",
    "instanceInitiatedShutdownBehavior",
    "instanceMarketOptions",
    "instanceRequirements",
    "instanceType",
    "kernelId",
    "keyName",
    "licenseSpecifications",
    "maintenanceOptions",
    "metadataOptions",
    "monitoring",
    "networkInterfaces",
    "networkPerformanceOptions",
    "placement",
    "privateDnsNameOptions",
    "ramDiskId",
    "secondaryInterfaces",
    "securityGroupNames",
    "tagSpecifications",
    "userData",
    "vpcSecurityGroupIds",
)
_RENAMES = {
    "securityGroupNames": "SecurityGroups",
    "vpcSecurityGroupIds": "SecurityGroupIds",
    "ipv4AddressCount": "SecondaryPrivateIpAddressCount",
    "ipv4Addresses": "PrivateIpAddresses",
    "securityGroups": "Groups",
}


def launch_data(aws: Aws, inputs: Props) -> dict[str, Any]:
    """Return the launch data of a template's inputs, in EC2's form."""
    shape = aws.shape("ec2", "create_launch_template").members["LaunchTemplateData"]
    given = {key: inputs[key] for key in _LAUNCH if inputs.get(key) is not None}
    if "tagSpecifications" in given:
        given["tagSpecifications"] = [{**one, "tags": tag_pairs(one.get("tags"))} for one in given["tagSpecifications"]]
    if "networkInterfaces" in given:
        given["networkInterfaces"] = [_interface(nic) for nic in given["networkInterfaces"]]
    found = structure(shape, given, _RENAMES)
    refuse_unmet(aws, found)
    return found


def _interface(nic: Props) -> dict[str, Any]:
    """Return a network interface in which addresses and prefixes are the blocks that EC2 wants."""
    lists = {"ipv4Addresses": "PrivateIpAddress", "ipv6Addresses": "Ipv6Address"}
    prefixes = {"ipv4Prefixes": "Ipv4Prefix", "ipv6Prefixes": "Ipv6Prefix"}
    blocks = {key: [{name: value} for value in nic[key]] for key, name in (lists | prefixes).items() if nic.get(key)}
    for number, block in enumerate(blocks.get("ipv4Addresses", [])):
        block["Primary"] = number == 0
    return {**nic, **blocks}


def _create(aws: Aws, inputs: Props) -> str:
    call = {"LaunchTemplateName": chosen_name(inputs), "LaunchTemplateData": launch_data(aws, inputs)}
    made = aws.call("ec2", "create_launch_template", **call, **_described(inputs))
    ident: str = made["LaunchTemplate"]["LaunchTemplateId"]
    with undoing(lambda: _delete(aws, ident, inputs)):
        # After the call, not in it: moto would mix the template's tags with those of its instances.
        retag(aws, ident, {}, inputs)
    return ident


def _described(inputs: Props) -> dict[str, Any]:
    return {"VersionDescription": inputs["description"]} if inputs.get("description") else {}


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if any(old.get(key) != new.get(key) for key in (*_LAUNCH, "description")):
        data = launch_data(aws, new)
        call = {"LaunchTemplateId": ident, "LaunchTemplateData": data, **_described(new)}
        aws.call("ec2", "create_launch_template_version", **call)
    _choose_default(aws, ident, old, new)
    retag(aws, ident, old, new)


def _choose_default(aws: Aws, ident: str, old: Props, new: Props) -> None:
    wanted = new.get("defaultVersion") if new.get("defaultVersion") != old.get("defaultVersion") else None
    if new.get("updateDefaultVersion"):
        wanted = _found(aws, ident)["LatestVersionNumber"]
    if wanted:
        aws.call("ec2", "modify_launch_template", LaunchTemplateId=ident, DefaultVersion=str(wanted))


def _found(aws: Aws, ident: str) -> dict[str, Any]:
    templates = aws.call("ec2", "describe_launch_templates", LaunchTemplateIds=[ident])["LaunchTemplates"]
    if not templates:
        raise Refusal("InvalidLaunchTemplateId.NotFound", f"The launch template '{ident}' does not exist")
    found: dict[str, Any] = templates[0]
    return found


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = _found(aws, ident)
    return {
        "arn": aws.arn("ec2", f"launch-template/{ident}"),
        "defaultVersion": found["DefaultVersionNumber"],
        "latestVersion": found["LatestVersionNumber"],
        "name": found["LaunchTemplateName"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_launch_template", LaunchTemplateId=ident)


LAUNCH_TEMPLATE = Kind(
    token="aws:ec2/launchTemplate:LaunchTemplate",
    inputs=updates(*_LAUNCH, *_VERSION, "tags") | replaces("name", "namePrefix"),
    computed=frozenset({"defaultVersion", "name", "namePrefix"}),
    sets=frozenset({"licenseSpecifications", "securityGroupNames", "vpcSecurityGroupIds"}),
    moves=frozenset({"defaultVersion", "latestVersion"}),
    naming=Naming(longest=125),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=launch_complaints,
)


_REQUEST = "spot-instances-request"


def unstartable(
    aws: Aws, inputs: Props, data: Mapping[str, Any], types: Collection[str], zones: Collection[str]
) -> str:
    """Return why no machine of launch data would start for a group's inputs; nothing where it would."""
    own = inputs.get("placementGroup")
    group = own or (data.get("Placement") or {}).get("GroupName")
    cards = [each for each in data.get("NetworkInterfaces") or [] if not each.get("NetworkInterfaceId")]
    reasons = [_overtagged(inputs, data), misplaced(aws, data, own, zones)]
    # What EC2 describes of a type is looked up only for what may be wrong with it.
    if group or len(cards) > 1 or any(each.get("InterfaceType") or each.get("NetworkCardIndex") for each in cards):
        for facts in _launch_start_described(aws, types):
            reasons += [misfit(facts, cards), unsupported(aws, facts, group)]
    return next((reason for reason in reasons if reason), "")


def _launch_start_described(aws: Aws, types: Collection[str]) -> list[dict[str, Any]]:
    wanted = [{"Name": "instance-type", "Values": sorted(types)}]
    found: list[dict[str, Any]] = aws.call("ec2", "describe_instance_types", Filters=wanted)["InstanceTypes"]
    return found


def _overtagged(inputs: Props, data: Mapping[str, Any]) -> str:
    """Tell tags of spot requests where none is made: EC2 API reference, RunInstances, TagSpecification."""
    tagged = {each.get("ResourceType") for each in data.get("TagSpecifications") or []}
    spread = (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}
    share = spread.get("onDemandPercentageAboveBaseCapacity")
    mixed = share is not None and share < 100  # noqa: PLR2004  # per cent
    if _REQUEST in tagged and not mixed and (data.get("InstanceMarketOptions") or {}).get("MarketType") != "spot":
        return f"It tags {_REQUEST}, and a launch on demand makes none"
    return ""
