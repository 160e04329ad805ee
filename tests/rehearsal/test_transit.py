"""Tests of transit gateways: peering across regions, route tables, and what a deleted attachment leaves."""

from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import ResourceKind
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.ec2 import TRANSIT_ATTACHMENT, described
from bedplate.rehearsal.kinds.transit_routes import associated_table, pair, propagations
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from tests.testlab.kinds.world import World

ENABLE = "enable_transit_gateway_route_table_propagation"
DISABLE = "disable_transit_gateway_route_table_propagation"


def model_of(name: str) -> ResourceKind:
    """Return the kind of a type in the package `ec2transitgateway`."""
    return KINDS[f"aws:ec2transitgateway/{name[0].lower()}{name[1:]}:{name}"]


def create(aws: Aws, name: str, **inputs: object) -> str:
    """Create a resource of one of the kinds; return its id."""
    return model_of(name).create(aws, {**model_of(name).defaults, **inputs})


def delete(aws: Aws, name: str, ident: str, **outputs: object) -> None:
    """Delete a resource of one of the kinds."""
    model_of(name).delete(aws, ident, {**schema.outputs(model_of(name).token), **outputs})


def routes(aws: Aws, table: str) -> list[tuple[str, str, str]]:
    """Return the routes of a table: destination, type, state."""
    states = [{"Name": "state", "Values": ["active", "blackhole"]}]
    reply = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=states)
    return sorted((route["DestinationCidrBlock"], route["Type"], route["State"]) for route in reply["Routes"])


def accept_peering(world: World) -> str:
    """Accept the peering request of the other region; return its id."""
    return create(world.aws, "PeeringAttachmentAccepter", transitGatewayAttachmentId=world.hub_request)


def test_an_accepted_peering_has_routes_in_both_regions(world: World) -> None:
    """The tables of both regions can route to the same peering attachment."""
    peering = accept_peering(world)

    for side in (world, world.abroad):
        member = {"transitGatewayAttachmentId": peering, "transitGatewayRouteTableId": side.plain_table}
        create(side.aws, "RouteTableAssociation", **member)
        create(side.aws, "Route", **member, destinationCidrBlock="10.65.0.0/16")

    for side in (world, world.abroad):
        assert associated_table(side.aws, peering) == side.plain_table
        assert routes(side.aws, side.plain_table) == [("10.65.0.0/16", "static", "active")]


def test_each_end_of_a_peering_names_the_other(world: World) -> None:
    """The peer of the accepter is the requester, and an association names the other gateway."""
    peering = accept_peering(world)
    member: dict[str, Any] = {"transitGatewayAttachmentId": peering, "transitGatewayRouteTableId": world.plain_table}

    accepter = model_of("PeeringAttachmentAccepter").read(world.aws, peering, {})
    ident = create(world.aws, "RouteTableAssociation", **member)
    association = model_of("RouteTableAssociation").read(world.aws, ident, member)

    assert (accepter["peerTransitGatewayId"], accepter["transitGatewayId"]) == (world.abroad.plain_hub, world.plain_hub)
    assert (accepter["peerRegion"], association["resourceId"]) == ("us-east-2", world.abroad.plain_hub)


def test_deleting_an_accepter_deletes_the_peering(world: World) -> None:
    """As in the provider, both regions lose the peering and its table associations."""
    peering = accept_peering(world)
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, peering))

    delete(world.aws, "PeeringAttachmentAccepter", peering)

    for side in (world, world.abroad):
        with pytest.raises(ResourceError, match="NotFound"):
            described(side.aws, TRANSIT_ATTACHMENT, peering)
    delete(world.aws, "RouteTable", world.plain_table)


def test_a_deleted_attachment_has_the_state_deleted(world: World) -> None:
    """The provider waits for this state; the VPC can be attached again after it."""
    filters = {"TransitGatewayAttachmentIds": [world.attachment]}

    delete(world.aws, "VpcAttachment", world.attachment)

    listed = world.aws.call("ec2", "describe_transit_gateway_vpc_attachments", **filters)
    assert [attachment["State"] for attachment in listed["TransitGatewayVpcAttachments"]] == ["deleted"]
    call = {"TransitGatewayId": world.plain_hub, "VpcId": world.vpc, "SubnetIds": [world.subnet]}
    assert world.aws.call("ec2", "create_transit_gateway_vpc_attachment", **call)


def test_a_route_without_its_attachment_is_a_blackhole(world: World) -> None:
    """AWS keeps a static route to a deleted attachment as a blackhole and removes propagated ones."""
    member = {"transitGatewayAttachmentId": world.attachment, "transitGatewayRouteTableId": world.plain_table}
    create(world.aws, "Route", **member, destinationCidrBlock="10.65.0.0/16")
    world.aws.call("ec2", ENABLE, **pair(world.plain_table, world.attachment))
    before = routes(world.aws, world.plain_table)

    delete(world.aws, "VpcAttachment", world.attachment)

    assert before == [("10.20.0.0/16", "propagated", "active"), ("10.65.0.0/16", "static", "active")]
    assert routes(world.aws, world.plain_table) == [("10.65.0.0/16", "static", "blackhole")]


def test_one_of_two_propagations_can_be_disabled(world: World) -> None:
    """Each propagation of an attachment is disabled separately."""
    path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
    other = world.create("create_transit_gateway_route_table", path, TransitGatewayId=world.plain_hub)
    first, second = (pair(table, world.attachment) for table in (world.plain_table, other))
    for member in (first, second):
        world.aws.call("ec2", ENABLE, **member)

    world.aws.call("ec2", DISABLE, **first)
    remaining = [propagations(world.aws, table) for table in (world.plain_table, other)]
    world.aws.call("ec2", DISABLE, **second)

    assert remaining == [[], [world.attachment]]
    assert propagations(world.aws, other) == []


def test_a_vpn_connection_is_in_the_default_tables(world: World) -> None:
    """A gateway adds a VPN attachment to its default tables, if it has any."""
    connection = {"Type": "ipsec.1", "CustomerGatewayId": world.customer_gateway}
    tables = {}
    for hub in (world.hub, world.plain_hub):
        world.create("create_vpn_connection", "VpnConnection.VpnConnectionId", TransitGatewayId=hub, **connection)
        listed = world.aws.call("ec2", "describe_transit_gateway_attachments")["TransitGatewayAttachments"]
        (ident,) = [item["TransitGatewayAttachmentId"] for item in listed if item["TransitGatewayId"] == hub]
        tables[hub] = associated_table(world.aws, ident)

    assert tables[world.hub]
    assert not tables[world.plain_hub]


@pytest.mark.parametrize("part", ["subnet", "plain_hub", "plain_table"])
def test_a_resource_in_use_by_an_attachment_is_not_deleted(part: str, world: World) -> None:
    """The subnets, the gateway and the route table of an attachment cannot be deleted."""
    tokens = {
        "subnet": "aws:ec2/subnet:Subnet",
        "plain_hub": model_of("TransitGateway").token,
        "plain_table": model_of("RouteTable").token,
    }
    ends = {"transitGatewayId": world.plain_hub, "vpcId": world.vpc, "subnetIds": [world.subnet]}
    off = dict.fromkeys((f"transitGatewayDefaultRouteTable{name}" for name in ("Association", "Propagation")), False)
    attachment = create(world.aws, "VpcAttachment", **ends, **off)
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, attachment))
    ident, in_use = getattr(world, part), KINDS[tokens[part]]

    with pytest.raises(ResourceError, match=r"DependencyViolation|IncorrectState"):
        in_use.delete(world.aws, ident, {})

    delete(world.aws, "VpcAttachment", attachment)
    in_use.delete(world.aws, ident, {})


def test_default_tables_cannot_be_enabled_later(world: World) -> None:
    """The provider replaces such a gateway; the rehearsal does not model this."""
    gateway = model_of("TransitGateway")
    before, after = ({"defaultRouteTableAssociation": value} for value in ("disable", "enable"))

    with pytest.raises(ResourceError, match="does not model"):
        gateway.update(world.aws, world.plain_hub, before, after)
