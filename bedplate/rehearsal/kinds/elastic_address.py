"""Elastic IP addresses."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import ADDRESS as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.limits import Choice, beyond, together
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_HOLDERS = {
    "associateWithPrivateIp": "PrivateIpAddress",
    "instance": "InstanceId",
    "networkInterface": "NetworkInterfaceId",
}
_LIMITS = {"domain": Choice(("vpc",))}


def _create(aws: Aws, inputs: Props) -> str:
    tags = born_with("elastic-ip", inputs)
    ident: str = aws.call("ec2", "allocate_address", Domain="vpc", **tags)["AllocationId"]
    with undoing(lambda: aws.call("ec2", "release_address", AllocationId=ident)):
        _associate(aws, ident, inputs)
    return ident


def _associate(aws: Aws, ident: str, inputs: Props) -> None:
    holder = {parameter: inputs[name] for name, parameter in _HOLDERS.items() if inputs.get(name)}
    if holder:
        aws.call("ec2", "associate_address", AllocationId=ident, AllowReassociation=True, **holder)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if any(old.get(name) != new.get(name) for name in _HOLDERS):
        _disassociate(aws, ident)
        _associate(aws, ident, new)
    retag(aws, ident, old, new)


def _disassociate(aws: Aws, ident: str) -> None:
    if association := described(aws, NOUN, ident).get("AssociationId"):
        aws.call("ec2", "disassociate_address", AssociationId=association)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    private, public = found.get("PrivateIpAddress") or "", found["PublicIp"]
    return {
        "allocationId": ident,
        "arn": aws.arn("ec2", f"elastic-ip/{ident}"),
        "associationId": found.get("AssociationId") or "",
        "domain": "vpc",
        "instance": found.get("InstanceId") or "",
        "networkBorderGroup": aws.region,
        "networkInterface": found.get("NetworkInterfaceId") or "",
        "privateDns": _private_name(aws.region, private) if private else "",
        "privateIp": private,
        "publicDns": _public_name(aws.region, public),
        "publicIp": public,
        "publicIpv4Pool": "amazon",
    }


def _private_name(region: str, address: str) -> str:
    """Return the name that AWS gives to a private address; its first region has an older form of it."""
    inside = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{inside}"


def _public_name(region: str, address: str) -> str:
    outside = "compute-1" if region == "us-east-1" else f"{region}.compute"
    return f"ec2-{address.replace('.', '-')}.{outside}.amazonaws.com"


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("instance") or outputs.get("networkInterface"):
        _disassociate(aws, ident)
    if described(aws, NOUN, ident).get("AssociationId"):
        raise Refusal("InvalidIPAddress.InUse", f"Address {outputs.get('publicIp')} is in use.")
    aws.call("ec2", "release_address", AllocationId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "instance", "networkInterface")


ELASTIC_ADDRESS = Kind(
    token="aws:ec2/eip:Eip",
    inputs=updates(*_HOLDERS, "tags") | replaces("domain"),
    computed=frozenset({"domain", "instance", "networkInterface"}),
    moves=frozenset({"associationId", "privateDns", "privateIp"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
