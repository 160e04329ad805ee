"""What AWS and its provider refuse of a launch template's inputs and moto lets pass."""

from collections.abc import Iterator

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.launch_cards import card_complaints
from bedplate.rehearsal.kinds.launch_placement import placement_complaints
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, beyond, inside, together
from bedplate.rehearsal.kinds.tag_limits import tag_complaints
from bedplate.rehearsal.kinds.user_data import user_data_complaints
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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
