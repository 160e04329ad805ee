"""Peerings of transit gateways: the request, and its acceptance at the other end."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import TRANSIT_ATTACHMENT, TRANSIT_GATEWAY, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.transit_tables import peering_ends
from bedplate.rehearsal.refusal import Refusal, Unsupported
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    near, far = inputs["transitGatewayId"], inputs["peerTransitGatewayId"]
    require(aws, TRANSIT_GATEWAY, near)
    _require_peer(aws, inputs)
    made = aws.call(
        "ec2",
        "create_transit_gateway_peering_attachment",
        TransitGatewayId=near,
        PeerTransitGatewayId=far,
        PeerAccountId=inputs.get("peerAccountId") or aws.account,
        PeerRegion=inputs["peerRegion"],
    )
    return tag(aws, made["TransitGatewayPeeringAttachment"]["TransitGatewayAttachmentId"], inputs)


def _require_peer(aws: Aws, inputs: Props) -> None:
    if inputs.get("peerAccountId") not in (None, aws.account):
        raise Unsupported("the rehearsal has one account: it cannot peer with another's gateway", key="peerAccountId")
    far = inputs["peerTransitGatewayId"]
    if far == inputs["transitGatewayId"]:
        raise Refusal("InvalidParameterCombination", f"{far} cannot peer with itself", key="peerTransitGatewayId")
    require(aws.elsewhere(inputs["peerRegion"]), TRANSIT_GATEWAY, far)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        "options": inputs.get("options") or {"dynamicRouting": "disable"},
        "peerAccountId": aws.account,
        "state": found["State"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_ATTACHMENT, ident)
    aws.call("ec2", "delete_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)


def _accept(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["transitGatewayAttachmentId"]
    state = described(aws, TRANSIT_ATTACHMENT, ident)["State"]
    _, accepter = peering_ends(aws, ident)
    if accepter["Region"] != aws.region:
        told = f"Cannot accept {ident} as the source of the peering request."
        raise Refusal("InvalidParameterValue", told)
    if state != "pendingAcceptance":
        raise Refusal("IncorrectState", f"{ident} is in invalid state: it is {state}")
    aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)
    return tag(aws, ident, inputs)


def _read_accepted(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepting end, to which the requester is the peer."""
    described(aws, TRANSIT_ATTACHMENT, ident)
    peer, own = peering_ends(aws, ident)
    return {
        "peerAccountId": peer["OwnerId"],
        "peerRegion": peer["Region"],
        "peerTransitGatewayId": peer["TransitGatewayId"],
        "transitGatewayId": own["TransitGatewayId"],
    }


TRANSIT_PEERING = Kind(
    token="aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
    inputs=updates("tags")
    | replaces("options", "peerAccountId", "peerRegion", "peerTransitGatewayId", "transitGatewayId"),
    computed=frozenset({"options", "peerAccountId"}),
    moves=frozenset({"state"}),
    create=_create,
    read=_read,
    update=retag,
    delete=_delete,
)
TRANSIT_PEERING_ACCEPTER = Kind(
    token="aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter",
    inputs=updates("tags") | replaces("transitGatewayAttachmentId"),
    create=_accept,
    read=_read_accepted,
    update=retag,
    # The provider deletes the peering itself: AWS has no way back to a request.
    delete=_delete,
)
