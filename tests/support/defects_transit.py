"""What AWS refuses of transit gateways and moto lets pass: a specimen with one fault a row."""

from typing import Any

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.transit_membership import pair
from tests.support.defects_network import crowded_zone
from tests.support.specimen import Given
from tests.support.specimens_network import NETWORK
from tests.support.world import World


def attached_already(world: World) -> dict[str, Any]:
    """Return the ends of an attachment that exists."""
    assert world.attachment
    off = dict.fromkeys((f"transitGatewayDefaultRouteTable{word}" for word in ("Association", "Propagation")), False)
    return {"transitGatewayId": world.plain_hub, **off}


def own_request(world: World) -> dict[str, Any]:
    """Return a peering of transit gateways that this region itself asks for."""
    peer = next(each for each in NETWORK if each.token.endswith(":PeeringAttachment"))
    return {"transitGatewayAttachmentId": KINDS[peer.token].create(world.aws, peer.inputs_in(world))}


def accepted_request(world: World) -> dict[str, Any]:
    """Return a peering of transit gateways that this region has accepted."""
    world.aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=world.hub_request)
    return {"transitGatewayAttachmentId": world.hub_request}


def pending_attachment(world: World) -> dict[str, Any]:
    """Return a peering that nobody has accepted yet."""
    return {"transitGatewayAttachmentId": world.hub_request}


def foreign_table(world: World) -> dict[str, Any]:
    """Return a table of another transit gateway than the attachment's."""
    return {"transitGatewayRouteTableId": world.hub_table}


def associated_already(world: World) -> dict[str, Any]:
    """Return a table of the gateway another of whose tables has the attachment."""
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, world.attachment))
    path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
    other = world.made("create_transit_gateway_route_table", path, TransitGatewayId=world.plain_hub)
    return {"transitGatewayRouteTableId": other}


def routed_already(world: World) -> dict[str, Any]:
    """Return a block that the table has a route to."""
    call = {"TransitGatewayRouteTableId": world.plain_table, "DestinationCidrBlock": "10.65.0.0/16"}
    world.aws.call("ec2", "create_transit_gateway_route", **call, Blackhole=True)
    return {}


# Kind, what spoils the specimen's inputs, and AWS's code.
DEFECTS: tuple[tuple[str, Given, str], ...] = (
    ("VpcAttachment", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("VpcAttachment", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("VpcAttachment", {"subnetIds": ["subnet-0"]}, "InvalidSubnetID.NotFound"),
    ("VpcAttachment", lambda world: {"vpcId": world.far_vpc}, "InvalidParameterValue"),
    ("VpcAttachment", crowded_zone, "DuplicateSubnetsInSameZone"),
    ("VpcAttachment", lambda world: {"transitGatewayId": world.plain_hub}, "InvalidInput"),
    ("VpcAttachment", attached_already, "DuplicateTransitGatewayAttachment"),
    ("PeeringAttachment", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", {"peerTransitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", {"peerRegion": "us-west-2"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", lambda world: {"peerTransitGatewayId": world.plain_hub}, "InvalidParameterCombination"),
    ("PeeringAttachment", {"peerAccountId": "444455556666"}, "Unsupported"),
    (
        "PeeringAttachmentAccepter",
        {"transitGatewayAttachmentId": "tgw-attach-0"},
        "InvalidTransitGatewayAttachmentID.NotFound",
    ),
    ("PeeringAttachmentAccepter", own_request, "InvalidParameterValue"),
    ("PeeringAttachmentAccepter", accepted_request, "IncorrectState"),
    ("TransitTable", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("TransitAssociation", {"transitGatewayRouteTableId": "tgw-rtb-0"}, "InvalidRouteTableID.NotFound"),
    ("TransitAssociation", foreign_table, "InvalidParameterValue"),
    ("TransitAssociation", associated_already, "Resource.AlreadyAssociated"),
    ("TransitAssociation", pending_attachment, "IncorrectState"),
    ("TransitRoute", {"transitGatewayRouteTableId": "tgw-rtb-0"}, "InvalidRouteTableID.NotFound"),
    (
        "TransitRoute",
        {"transitGatewayAttachmentId": "tgw-attach-0"},
        "InvalidTransitGatewayAttachmentID.NotFound",
    ),
    ("TransitRoute", pending_attachment, "IncorrectState"),
    ("TransitRoute", foreign_table, "InvalidParameterValue"),
    ("TransitRoute", routed_already, "RouteAlreadyExists"),
)
