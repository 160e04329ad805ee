"""How machines start: metadata service, public addresses, volumes, and the group that they fall back on."""

from collections.abc import Iterator

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.value import Properties, is_on, is_seen, number, part, parts, says

LAUNCHERS = ("ec2.LaunchTemplate", "ec2.Instance", "ec2.LaunchConfiguration", "ec2.SpotInstanceRequest")
_USE, _PEOPLES_HOPS = "bedplate:use", 2
_MAPPINGS = "blockDeviceMappings"
_VOLUMES = ("rootBlockDevice", "ebsBlockDevices")


def check_metadata(graph: Graph) -> Iterator[StackFault]:
    """Tell machines whose credentials a forwarded request, or a container, can fetch."""
    for node in graph.of(*LAUNCHERS):
        options = part(node.inputs, "metadataOptions")
        if options.get("httpEndpoint") == "disabled" or not is_seen(node.inputs.get("metadataOptions")):
            continue
        if not says(options, "httpTokens", "required"):
            told = options.get("httpTokens", "not set")
            yield fault("S106", node.urn, "metadataOptions.httpTokens", f"tokens are {told}")
        hops = number(options.get("httpPutResponseHopLimit"))
        if hops is not None and hops > (_PEOPLES_HOPS if _is_for_people(node) else 1):
            yield fault("S107", node.urn, "metadataOptions.httpPutResponseHopLimit", f"{hops} hops are allowed")


def _is_for_people(node: Node) -> bool:
    """Whether its machines say by their tags that people log in: those hold the role anyhow, container or not."""
    tags = [spec.get("tags") for spec in parts(node.inputs.get("tagSpecifications"))]
    return any(isinstance(each, dict) and each.get(_USE) == "ssh" for each in (node.inputs.get("tags"), *tags))


def check_public_addresses(graph: Graph) -> Iterator[StackFault]:
    """Tell what gives a machine a public address when it starts."""
    for node in graph.of("ec2.Subnet", "ec2.DefaultSubnet"):
        if node.inputs.get("mapPublicIpOnLaunch") in (True, "true"):
            yield fault("S105", node.urn, "mapPublicIpOnLaunch", "each machine here gets a public address")
    for node in graph.of(*LAUNCHERS):
        faces = [("", node.inputs)]
        faces += [
            (f"networkInterfaces.{i}.", face) for i, face in enumerate(parts(node.inputs.get("networkInterfaces")))
        ]
        for path, face in faces:
            if face.get("associatePublicIpAddress") in (True, "true"):
                yield fault("S105", node.urn, f"{path}associatePublicIpAddress", "it starts with a public address")


def check_volumes(graph: Graph) -> Iterator[StackFault]:
    """Tell volumes that are not encrypted; an account that encrypts all of them by default is believed."""
    if any(
        is_on(node.inputs, "enabled") or "enabled" not in node.inputs for node in graph.of("ebs.EncryptionByDefault")
    ):
        return
    for node in graph.of("ebs.Volume"):
        if not is_on(node.inputs, "encrypted"):
            yield fault("S203", node.urn, "encrypted", "the volume is not encrypted")
    for node in graph.of(*LAUNCHERS):
        yield from _volumes_of(node)


def _volumes_of(node: Node) -> Iterator[StackFault]:
    told = dict(_volumes(node))
    for path, volume in told.items():
        # A volume made from an encrypted snapshot is encrypted; which one is, only AWS knows.
        if not is_on(volume, "encrypted") and not volume.get("snapshotId"):
            yield fault("S203", node.urn, f"{path}.encrypted", "the volume is not encrypted")
    if not told and all(is_seen(node.inputs.get(key)) for key in (_MAPPINGS, *_VOLUMES)):
        yield fault("S203", node.urn, _MAPPINGS, "nothing says that its root volume is encrypted")


def _volumes(node: Node) -> Iterator[tuple[str, Properties]]:
    for index, mapping in enumerate(parts(node.inputs.get(_MAPPINGS))):
        if "ebs" in mapping:
            yield f"{_MAPPINGS}.{index}.ebs", part(mapping, "ebs")
    for key in _VOLUMES:
        for index, volume in enumerate(parts(node.inputs.get(key))):
            yield f"{key}.{index}", volume


def check_default_groups(graph: Graph) -> Iterator[StackFault]:
    """Tell default security groups that let anything in or out."""
    for node in graph.of("ec2.DefaultSecurityGroup"):
        for key in ("ingress", "egress"):
            if node.inputs.get(key):
                yield fault("S104", node.urn, key, "the default security group has rules")
