"""The fabric of a graph: its resources read into what decides where a packet goes."""

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.reach.acl import acls
from bedplate.reach.door import doors
from bedplate.reach.fabric import Fabric, Peer, Subnet, Vpc
from bedplate.reach.line import Line, announcing, read_lines
from bedplate.reach.packet import prefix
from bedplate.reach.resource import Resources
from bedplate.reach.stand import interfaces, launched
from bedplate.reach.table import Route, Table, Via, table, vpc_tables
from bedplate.reach.transit import read_hubs


def read_fabric(graph: Iterable[Mapping[str, Any]]) -> Fabric:
    """Return the network that the resources of a graph make."""
    resources = Resources(graph)
    vpcs = {
        each.id: Vpc(each.id, each.label, prefix(each.text("cidrBlock")), each.text("defaultSecurityGroupId"))
        for each in resources.of("ec2/vpc:Vpc")
        if each.text("cidrBlock")
    }
    publics = frozenset(each.id for each in resources.of("ec2/subnet:Subnet") if each.flag("mapPublicIpOnLaunch"))
    lines = tuple(read_lines(resources))
    tables = _learnt(resources, lines, vpc_tables(resources))
    return Fabric(
        vpcs=vpcs,
        subnets=tuple(_subnets(resources, vpcs)),
        tables=tables,
        acls=acls(resources),
        doors=doors(resources),
        stands=interfaces(resources),
        launched=launched(resources, publics),
        nats={
            each.id: each.text("subnetId")
            for each in resources.of("ec2/natGateway:NatGateway")
            if each.text("connectivityType") != "private"
        },
        peers=_peers(resources),
        lines=tuple(announcing(lines, tables, resources)),
        hubs=read_hubs(resources),
    )


def _subnets(resources: Resources, vpcs: Mapping[str, Vpc]) -> Iterable[Subnet]:
    named = {
        each.text("subnetId"): each.text("routeTableId")
        for each in resources.of("ec2/routeTableAssociation:RouteTableAssociation")
    }
    mains = {each.id: each.text("mainRouteTableId") for each in resources.of("ec2/vpc:Vpc")}
    for each in resources.of("ec2/mainRouteTableAssociation:MainRouteTableAssociation"):
        mains[each.text("vpcId")] = each.text("routeTableId")
    for each in resources.of("ec2/subnet:Subnet"):
        vpc = each.text("vpcId")
        if vpc in vpcs and each.text("cidrBlock"):
            own = named.get(each.id) or mains[vpc]
            block = prefix(each.text("cidrBlock"))
            yield Subnet(each.id, each.name, vpc, each.text("availabilityZone"), block, own)


def _peers(resources: Resources) -> dict[str, Peer]:
    accepters = resources.of("ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter")
    accepted = {each.text("vpcPeeringConnectionId") for each in accepters if each.flag("autoAccept")}
    return {
        each.id: Peer(
            each.id,
            each.name,
            (each.text("vpcId"), each.text("peerVpcId")),
            live=each.id in accepted or each.flag("autoAccept"),
        )
        for each in resources.of("ec2/vpcPeeringConnection:VpcPeeringConnection")
    }


def _learnt(resources: Resources, lines: tuple[Line, ...], tables: dict[str, Table]) -> dict[str, Table]:
    """Return the tables with what they learn from virtual private gateways beside their own routes."""
    pairs = [
        (each.text("routeTableId"), each.text("vpnGatewayId"))
        for each in resources.of("ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation")
    ]
    pairs += [
        (each.id, ident)
        for each in resources.of("ec2/routeTable:RouteTable", "ec2/defaultRouteTable:DefaultRouteTable")
        for ident in each.texts("propagatingVgws")
    ]
    for ident, gateway in pairs:
        learnt = [Route(block, Via.VPN, gateway) for line in lines if line.gateway == gateway for block in line.blocks]
        if ident in tables:
            old = tables[ident]
            tables = tables | {ident: table(old.ident, old.name, [*old.routes, *learnt])}
    return tables
