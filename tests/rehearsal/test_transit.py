"""Transit gateways across regions: acceptance, tables at both ends, what is left when one goes."""

from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.ec2 import TRANSIT_ATTACHMENT, described
from bedplate.rehearsal.kinds.transit_routes import associated_table, pair, propagations
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from tests.testlab.kinds.world import World

TEACH = "enable_transit_gateway_route_table_propagation"
FORGET = "disable_transit_gateway_route_table_propagation"


def kind(name: str) -> Kind:
    """Return a kind of the transit gateways' package."""
    return KINDS[f"aws:ec2transitgateway/{name[0].lower()}{name[1:]}:{name}"]


def made(aws: Aws, name: str, **inputs: object) -> str:
    """Make a resource of one of the kinds."""
    return kind(name).create(aws, {**kind(name).defaults, **inputs})


def gone(aws: Aws, name: str, ident: str, **outputs: object) -> None:
    """Delete a resource of one of the kinds."""
    kind(name).delete(aws, ident, {**schema.outputs(kind(name).token), **outputs})


def routes(aws: Aws, table: str) -> list[tuple[str, str, str]]:
    """Return the routes of a table: destination, type, state."""
    every = [{"Name": "state", "Values": ["active", "blackhole"]}]
    found = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=every)
    return sorted((each["DestinationCidrBlock"], each["Type"], each["State"]) for each in found["Routes"])


def peered(world: World) -> str:
    """Accept the peering that the other region asks for."""
    return made(world.aws, "PeeringAttachmentAccepter", transitGatewayAttachmentId=world.hub_request)


def test_an_accepted_peering_carries_routes_at_both_ends(world: World) -> None:
    """Either region's table may send packets through the one peering, each under its own gateway."""
    peering = peered(world)

    for here in (world, world.abroad):
        member = {"transitGatewayAttachmentId": peering, "transitGatewayRouteTableId": here.plain_table}
        made(here.aws, "RouteTableAssociation", **member)
        made(here.aws, "Route", **member, destinationCidrBlock="10.65.0.0/16")

    for here in (world, world.abroad):
        assert associated_table(here.aws, peering) == here.plain_table
        assert routes(here.aws, here.plain_table) == [("10.65.0.0/16", "static", "active")]


def test_each_end_of_a_peering_tells_of_the_other(world: World) -> None:
    """The accepter's peer is the requester, and a membership names the gateway across."""
    peering = peered(world)
    member: dict[str, Any] = {"transitGatewayAttachmentId": peering, "transitGatewayRouteTableId": world.plain_table}

    told = kind("PeeringAttachmentAccepter").read(world.aws, peering, {})
    across = kind("RouteTableAssociation").read(world.aws, made(world.aws, "RouteTableAssociation", **member), member)

    assert (told["peerTransitGatewayId"], told["transitGatewayId"]) == (world.abroad.plain_hub, world.plain_hub)
    assert (told["peerRegion"], across["resourceId"]) == ("us-east-2", world.abroad.plain_hub)


def test_deleting_an_accepter_deletes_the_peering(world: World) -> None:
    """The provider has no other way: the peering is gone at both ends, and so is its place in tables."""
    peering = peered(world)
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, peering))

    gone(world.aws, "PeeringAttachmentAccepter", peering)

    for here in (world, world.abroad):
        with pytest.raises(Refusal, match="NotFound"):
            described(here.aws, TRANSIT_ATTACHMENT, peering)
    gone(world.aws, "RouteTable", world.plain_table)


def test_a_deleted_attachment_is_told_of_as_deleted(world: World) -> None:
    """The provider waits until AWS says so; a VPC can then be attached again."""
    ends = {"TransitGatewayAttachmentIds": [world.attachment]}

    gone(world.aws, "VpcAttachment", world.attachment)

    listed = world.aws.call("ec2", "describe_transit_gateway_vpc_attachments", **ends)
    assert [each["State"] for each in listed["TransitGatewayVpcAttachments"]] == ["deleted"]
    call = {"TransitGatewayId": world.plain_hub, "VpcId": world.vpc, "SubnetIds": [world.subnet]}
    assert world.aws.call("ec2", "create_transit_gateway_vpc_attachment", **call)


def test_a_route_whose_attachment_went_is_a_blackhole(world: World) -> None:
    """AWS keeps a static route that leads nowhere, and says so; what was learnt is forgotten."""
    member = {"transitGatewayAttachmentId": world.attachment, "transitGatewayRouteTableId": world.plain_table}
    made(world.aws, "Route", **member, destinationCidrBlock="10.65.0.0/16")
    world.aws.call("ec2", TEACH, **pair(world.plain_table, world.attachment))
    before = routes(world.aws, world.plain_table)

    gone(world.aws, "VpcAttachment", world.attachment)

    assert before == [("10.20.0.0/16", "propagated", "active"), ("10.65.0.0/16", "static", "active")]
    assert routes(world.aws, world.plain_table) == [("10.65.0.0/16", "static", "blackhole")]


def test_an_attachment_may_stop_teaching_one_table_of_two(world: World) -> None:
    """Each propagation is its own: ending one leaves the other, and both can end."""
    path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
    other = world.made("create_transit_gateway_route_table", path, TransitGatewayId=world.plain_hub)
    first, second = (pair(table, world.attachment) for table in (world.plain_table, other))
    for member in (first, second):
        world.aws.call("ec2", TEACH, **member)

    world.aws.call("ec2", FORGET, **first)
    left = [propagations(world.aws, table) for table in (world.plain_table, other)]
    world.aws.call("ec2", FORGET, **second)

    assert left == [[], [world.attachment]]
    assert propagations(world.aws, other) == []


def test_a_vpn_connection_joins_the_default_tables(world: World) -> None:
    """What a gateway does by itself it does for tunnels too; without default tables they are in none."""
    connection = {"Type": "ipsec.1", "CustomerGatewayId": world.customer_gateway}
    found = {}
    for hub in (world.hub, world.plain_hub):
        world.made("create_vpn_connection", "VpnConnection.VpnConnectionId", TransitGatewayId=hub, **connection)
        listed = world.aws.call("ec2", "describe_transit_gateway_attachments")["TransitGatewayAttachments"]
        (ident,) = [each["TransitGatewayAttachmentId"] for each in listed if each["TransitGatewayId"] == hub]
        found[hub] = associated_table(world.aws, ident)

    assert found[world.hub]
    assert not found[world.plain_hub]


@pytest.mark.parametrize("part", ["subnet", "plain_hub", "plain_table"])
def test_what_an_attachment_holds_is_not_deleted(part: str, world: World) -> None:
    """An attachment keeps its subnets, by its interfaces, its gateway, and the table it is in."""
    tokens = {
        "subnet": "aws:ec2/subnet:Subnet",
        "plain_hub": kind("TransitGateway").token,
        "plain_table": kind("RouteTable").token,
    }
    ends = {"transitGatewayId": world.plain_hub, "vpcId": world.vpc, "subnetIds": [world.subnet]}
    off = dict.fromkeys((f"transitGatewayDefaultRouteTable{word}" for word in ("Association", "Propagation")), False)
    attachment = made(world.aws, "VpcAttachment", **ends, **off)
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, attachment))
    ident, held = getattr(world, part), KINDS[tokens[part]]

    with pytest.raises(Refusal, match=r"DependencyViolation|IncorrectState"):
        held.delete(world.aws, ident, {})

    gone(world.aws, "VpcAttachment", attachment)
    held.delete(world.aws, ident, {})


def test_default_tables_are_not_turned_on_again(world: World) -> None:
    """The provider replaces such a gateway; the rehearsal says that it does not model this."""
    before = {"defaultRouteTableAssociation": "disable"}

    with pytest.raises(Refusal, match="does not model"):
        kind("TransitGateway").update(world.aws, world.plain_hub, before, {"defaultRouteTableAssociation": "enable"})
