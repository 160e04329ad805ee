"""NAT gateways of one zone, public and private."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import ADDRESS, SUBNET, described
from bedplate.rehearsal.kinds.described import NAT_GATEWAY as NOUN
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.kinds.way_out import require_way_out
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_LIMITS = {"availabilityMode": Choice(("zonal",)), "connectivityType": Choice(("public", "private"))}


def _create(aws: Aws, inputs: Props) -> str:
    subnet = described(aws, SUBNET, inputs["subnetId"])
    if inputs.get("connectivityType") != "private":
        # AWS makes such a gateway, and it fails.
        require_way_out(aws, subnet["VpcId"], "subnetId")
        _require_free(aws, inputs["allocationId"])
    params = placed(aws, ("ec2", "create_nat_gateway"), inputs, apart=("tags", "availabilityMode"))
    made = aws.call("ec2", "create_nat_gateway", **params)
    return tag(aws, made["NatGateway"]["NatGatewayId"], inputs)


def _require_free(aws: Aws, allocation: str) -> None:
    if described(aws, ADDRESS, allocation).get("AssociationId"):
        told = f"Elastic IP address [{allocation}] is already associated"
        raise Refusal("Resource.AlreadyAssociated", told, key="allocationId")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    address = described(aws, NOUN, ident)["NatGatewayAddresses"][0]
    return {
        "associationId": address.get("AssociationId") or "",
        "availabilityMode": "zonal",
        "networkInterfaceId": address["NetworkInterfaceId"],
        "privateIp": address["PrivateIp"],
        "publicIp": address.get("PublicIp") or "",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    address = described(aws, NOUN, ident)["NatGatewayAddresses"][0]
    aws.call("ec2", "delete_nat_gateway", NatGatewayId=ident)
    # AWS frees both with the gateway, moto neither.
    if address.get("AssociationId"):
        aws.call("ec2", "disassociate_address", AssociationId=address["AssociationId"])
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=address["NetworkInterfaceId"])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    private = inputs.get("connectivityType") == "private"
    if private and inputs.get("allocationId"):
        yield Complaint("allocationId", "is not supported with connectivityType private")
    if not private and not inputs.get("allocationId"):
        yield Complaint("allocationId", "is required for a public NAT gateway")
    if not inputs.get("subnetId"):
        yield Complaint("subnetId", "is required for a NAT gateway of one zone")


NAT_GATEWAY = Kind(
    token="aws:ec2/natGateway:NatGateway",
    inputs=updates("tags") | replaces("allocationId", "availabilityMode", "connectivityType", "subnetId"),
    defaults={"connectivityType": "public"},
    computed=frozenset({"availabilityMode"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
