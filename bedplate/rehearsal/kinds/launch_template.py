"""EC2 launch templates: every change makes a new version, and the default one follows when it is told to."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.launch_limits import launch_complaints
from bedplate.rehearsal.kinds.launch_references import refuse_unmet
from bedplate.rehearsal.kinds.tagging import tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
