"""Peerings between two VPCs: the request, its acceptance in the other region, and the options of each side."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import PEERING as NOUN
from bedplate.rehearsal.kinds.ec2 import VPC, described, retag, tag
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

_SIDES = {"accepter": "AccepterPeeringConnectionOptions", "requester": "RequesterPeeringConnectionOptions"}


def _create(aws: Aws, inputs: Props) -> str:
    _require_apart(aws, inputs)
    apart = (*_SIDES, "autoAccept", "tags")
    params = placed(aws, ("ec2", "create_vpc_peering_connection"), inputs, apart=apart)
    made = aws.call("ec2", "create_vpc_peering_connection", **params)
    ident: str = made["VpcPeeringConnection"]["VpcPeeringConnectionId"]
    try:
        _settle(aws, ident, inputs)
    except Refusal:
        aws.call("ec2", "delete_vpc_peering_connection", VpcPeeringConnectionId=ident)
        raise
    return tag(aws, ident, inputs)


def _require_apart(aws: Aws, inputs: Props) -> None:
    """Refuse VPCs whose blocks overlap: AWS makes the peering, and it fails."""
    if inputs.get("peerOwnerId") not in (None, aws.account):
        return
    there = aws.elsewhere(inputs.get("peerRegion") or aws.region)
    near = described(aws, VPC, inputs["vpcId"])["CidrBlock"]
    far = described(there, VPC, inputs["peerVpcId"])["CidrBlock"]
    if ip_network(near).overlaps(ip_network(far)):
        told = "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range"
        raise Refusal("failed", f"{told} ({near} and {far})", key="peerVpcId")


def _settle(aws: Aws, ident: str, inputs: Props) -> None:
    """Accept a peering if it is asked for, then set the options of its sides."""
    status = described(aws, NOUN, ident)["Status"]["Code"]
    if inputs.get("autoAccept") and status == "pending-acceptance":
        aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
    _set_options(aws, ident, inputs)


def _set_options(aws: Aws, ident: str, inputs: Props) -> None:
    wanted = {side: inputs[side] for side in _SIDES if inputs.get(side)}
    if not wanted:
        return
    if described(aws, NOUN, ident)["Status"]["Code"] != "active":
        told = f"Peering {ident} is not active. Peering options can be added only to active peerings."
        raise Refusal("OperationNotPermitted", told)
    params = {
        _SIDES[side]: {"AllowDnsResolutionFromRemoteVpc": bool(options.get("allowRemoteVpcDnsResolution"))}
        for side, options in wanted.items()
    }
    aws.call("ec2", "modify_vpc_peering_connection_options", VpcPeeringConnectionId=ident, **params)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _settle(aws, ident, new)
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {"acceptStatus": found["Status"]["Code"], **_peer(found["AccepterVpcInfo"]), **_options(found)}


def _peer(info: dict[str, Any]) -> dict[str, Any]:
    return {"peerOwnerId": info["OwnerId"], "peerRegion": info["Region"], "peerVpcId": info["VpcId"]}


def _options(found: dict[str, Any]) -> dict[str, Any]:
    infos = {"accepter": found["AccepterVpcInfo"], "requester": found["RequesterVpcInfo"]}
    return {
        side: {"allowRemoteVpcDnsResolution": info["PeeringOptions"]["AllowDnsResolutionFromRemoteVpc"]}
        for side, info in infos.items()
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc_peering_connection", VpcPeeringConnectionId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if inputs.get("peerRegion") and inputs.get("autoAccept"):
        yield Complaint("peerRegion", "cannot be set whilst autoAccept is true")


def _accept(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["vpcPeeringConnectionId"]
    _update(aws, ident, {}, inputs)
    return ident


def _read_accepted(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepting side, to which the requester is the peer."""
    found = described(aws, NOUN, ident)
    near = found["AccepterVpcInfo"]["VpcId"]
    return {
        "acceptStatus": found["Status"]["Code"],
        "vpcId": near,
        **_peer(found["RequesterVpcInfo"]),
        **_options(found),
    }


def _leave(aws: Aws, ident: str, outputs: Props) -> None:
    """Leave the peering as it is: it goes with its request."""


def _create_options(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["vpcPeeringConnectionId"]
    described(aws, NOUN, ident)
    _set_options(aws, ident, inputs)
    return ident


def _update_options(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _set_options(aws, ident, new)


def _read_options(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return _options(described(aws, NOUN, ident))


VPC_PEERING = Kind(
    token="aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
    inputs=updates(*_SIDES, "autoAccept", "tags") | replaces("peerOwnerId", "peerRegion", "peerVpcId", "vpcId"),
    computed=frozenset({*_SIDES, "peerOwnerId", "peerRegion"}),
    moves=frozenset({"acceptStatus"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
VPC_PEERING_ACCEPTER = Kind(
    token="aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
    inputs=updates(*_SIDES, "autoAccept", "tags") | replaces("vpcPeeringConnectionId"),
    computed=frozenset(_SIDES),
    moves=frozenset({"acceptStatus"}),
    create=_accept,
    read=_read_accepted,
    update=_update,
    delete=_leave,
)
PEERING_OPTIONS = Kind(
    token="aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
    inputs=updates(*_SIDES) | replaces("vpcPeeringConnectionId"),
    computed=frozenset(_SIDES),
    create=_create_options,
    read=_read_options,
    update=_update_options,
    delete=_leave,
)
