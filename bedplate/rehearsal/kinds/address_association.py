"""Elastic addresses given to an interface or an instance, as resources of their own."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces
from bedplate.rehearsal.kinds.described import ADDRESS, NETWORK_INTERFACE, described
from bedplate.rehearsal.kinds.limits import together
from bedplate.rehearsal.kinds.way_out import require_way_out
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_HOLDERS = {"instanceId": "InstanceId", "networkInterfaceId": "NetworkInterfaceId"}


def _create(aws: Aws, inputs: Props) -> str:
    described(aws, ADDRESS, inputs["allocationId"])
    if interface := inputs.get("networkInterfaceId"):
        found = described(aws, NETWORK_INTERFACE, interface)
        require_way_out(aws, found["VpcId"], "networkInterfaceId")
        _require_own(found, inputs.get("privateIpAddress"))
    names = {**_HOLDERS, "privateIpAddress": "PrivateIpAddress"}
    holder = {parameter: inputs[name] for name, parameter in names.items() if inputs.get(name)}
    # The provider never sends a false: an address in use moves.
    call = {"AllocationId": inputs["allocationId"], "AllowReassociation": True}
    return str(aws.call("ec2", "associate_address", **call, **holder)["AssociationId"])


def _require_own(interface: dict[str, Any], address: str | None) -> None:
    own = [each["PrivateIpAddress"] for each in interface["PrivateIpAddresses"]]
    if address and address not in own:
        told = f"{address} is no address of {interface['NetworkInterfaceId']}, which has {', '.join(own)}"
        raise Refusal("InvalidParameterValue", told, key="privateIpAddress")


def _found(aws: Aws, ident: str) -> dict[str, Any]:
    ours = [{"Name": "association-id", "Values": [ident]}]
    listed: list[dict[str, Any]] = aws.call("ec2", "describe_addresses", Filters=ours)["Addresses"]
    if not listed:
        raise Refusal("InvalidAssociationID.NotFound", f"The association ID '{ident}' does not exist")
    return listed[0]


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = _found(aws, ident)
    return {
        "allocationId": found["AllocationId"],
        "instanceId": found.get("InstanceId") or "",
        "networkInterfaceId": found.get("NetworkInterfaceId") or "",
        "privateIpAddress": found.get("PrivateIpAddress") or "",
        "publicIp": found["PublicIp"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    _found(aws, ident)
    aws.call("ec2", "disassociate_address", AssociationId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from together(inputs, *_HOLDERS)
    if not any(inputs.get(name) for name in _HOLDERS):
        yield Complaint("networkInterfaceId", "or instanceId is needed")
    if not inputs.get("allocationId"):
        yield Complaint("allocationId", "is needed: the rehearsal goes by the id of an address")


ADDRESS_ASSOCIATION = Kind(
    token="aws:ec2/eipAssociation:EipAssociation",
    inputs=replaces(*_HOLDERS, "allocationId", "allowReassociation", "privateIpAddress"),
    computed=frozenset({*_HOLDERS, "allocationId", "privateIpAddress"}),
    create=_create,
    read=_read,
    delete=_delete,
    complaints=_complaints,
)
