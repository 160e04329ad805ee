"""VPC peering connections: the request, its accepter, and the options of both sides."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.limits import rollback
from bedplate.rehearsal.placement import call_parameters
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

_SIDES = {"accepter": "AccepterPeeringConnectionOptions", "requester": "RequesterPeeringConnectionOptions"}


def _check_peering(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    if inputs.get("peerRegion") and inputs.get("autoAccept"):
        yield InvalidInput("peerRegion", "cannot be set when autoAccept is true")


def _create_peering(aws: Aws, inputs: Props) -> str:
    _require_disjoint(aws, inputs)
    apart = (*_SIDES, "autoAccept", "tags")
    params = call_parameters(aws, ("ec2", "create_vpc_peering_connection"), inputs, apart=apart)
    response = aws.call("ec2", "create_vpc_peering_connection", **params)
    ident: str = response["VpcPeeringConnection"]["VpcPeeringConnectionId"]
    with rollback(lambda: _delete_peering(aws, ident, inputs)):
        _accept_and_configure(aws, ident, inputs)
    return ec2.tag(aws, ident, inputs)


def _require_disjoint(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for VPCs with overlapping blocks: AWS creates such a peering in the state `failed`."""
    if inputs.get("peerOwnerId") not in (None, aws.account):
        return
    peer_aws = aws.elsewhere(inputs.get("peerRegion") or aws.region)
    block = ec2.described(aws, ec2.VPC, inputs["vpcId"])["CidrBlock"]
    peer_block = ec2.described(peer_aws, ec2.VPC, inputs["peerVpcId"])["CidrBlock"]
    if ip_network(block).overlaps(ip_network(peer_block)):
        message = "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range"
        raise ResourceError("failed", f"{message} ({block} and {peer_block})", key="peerVpcId")


def _accept_and_configure(aws: Aws, ident: str, inputs: Props) -> None:
    """Accept a peering when autoAccept is set, then set the options of its sides."""
    status = ec2.described(aws, ec2.PEERING, ident)["Status"]["Code"]
    if inputs.get("autoAccept") and status == "pending-acceptance":
        aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
    _set_sides(aws, ident, inputs)


def _set_sides(aws: Aws, ident: str, inputs: Props) -> None:
    sides = {side: inputs[side] for side in _SIDES if inputs.get(side)}
    if not sides:
        return
    if ec2.described(aws, ec2.PEERING, ident)["Status"]["Code"] != "active":
        message = f"Peering {ident} is not active. Peering options can be added only to active peerings."
        raise ResourceError("OperationNotPermitted", message)
    params = {
        _SIDES[side]: {"AllowDnsResolutionFromRemoteVpc": bool(options.get("allowRemoteVpcDnsResolution"))}
        for side, options in sides.items()
    }
    aws.call("ec2", "modify_vpc_peering_connection_options", VpcPeeringConnectionId=ident, **params)


def _create_accepter(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["vpcPeeringConnectionId"]
    _update_peering(aws, ident, {}, inputs)
    return ident


def _create_options(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["vpcPeeringConnectionId"]
    ec2.described(aws, ec2.PEERING, ident)
    _set_sides(aws, ident, inputs)
    return ident


def _read_peering(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    peering = ec2.described(aws, ec2.PEERING, ident)
    return {
        "acceptStatus": peering["Status"]["Code"],
        **_peer_outputs(peering["AccepterVpcInfo"]),
        **_option_outputs(peering),
    }


def _peer_outputs(info: dict[str, Any]) -> dict[str, Any]:
    return {"peerOwnerId": info["OwnerId"], "peerRegion": info["Region"], "peerVpcId": info["VpcId"]}


def _option_outputs(peering: dict[str, Any]) -> dict[str, Any]:
    infos = {"accepter": peering["AccepterVpcInfo"], "requester": peering["RequesterVpcInfo"]}
    return {
        side: {"allowRemoteVpcDnsResolution": info["PeeringOptions"]["AllowDnsResolutionFromRemoteVpc"]}
        for side, info in infos.items()
    }


def _read_accepter(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepter, whose peer is the requester."""
    peering = ec2.described(aws, ec2.PEERING, ident)
    vpc = peering["AccepterVpcInfo"]["VpcId"]
    return {
        "acceptStatus": peering["Status"]["Code"],
        "vpcId": vpc,
        **_peer_outputs(peering["RequesterVpcInfo"]),
        **_option_outputs(peering),
    }


def _read_options(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return _option_outputs(ec2.described(aws, ec2.PEERING, ident))


def _update_peering(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _accept_and_configure(aws, ident, new)
    ec2.retag(aws, ident, old, new)


def _update_options(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _set_sides(aws, ident, new)


def _delete_peering(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc_peering_connection", VpcPeeringConnectionId=ident)


def _delete_accepter(aws: Aws, ident: str, outputs: Props) -> None:
    """Do nothing: the peering is deleted with its request."""


VPC_PEERING = ResourceKind(
    token="aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
    inputs=updates(*_SIDES, "autoAccept", "tags") | replaces("peerOwnerId", "peerRegion", "peerVpcId", "vpcId"),
    computed=frozenset({*_SIDES, "peerOwnerId", "peerRegion"}),
    changed_by_update=frozenset({"acceptStatus"}),
    create=_create_peering,
    read=_read_peering,
    update=_update_peering,
    delete=_delete_peering,
    complaints=_check_peering,
)
VPC_PEERING_ACCEPTER = ResourceKind(
    token="aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
    inputs=updates(*_SIDES, "autoAccept", "tags") | replaces("vpcPeeringConnectionId"),
    computed=frozenset(_SIDES),
    changed_by_update=frozenset({"acceptStatus"}),
    create=_create_accepter,
    read=_read_accepter,
    update=_update_peering,
    delete=_delete_accepter,
)
PEERING_OPTIONS = ResourceKind(
    token="aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
    inputs=updates(*_SIDES) | replaces("vpcPeeringConnectionId"),
    computed=frozenset(_SIDES),
    create=_create_options,
    read=_read_options,
    update=_update_options,
    delete=_delete_accepter,
)
