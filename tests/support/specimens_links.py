"""Specimens of what ties networks together: peerings, gateways and VPN."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.vpn_connection import VPN_CONNECTION
from bedplate.rehearsal.simulation import Aws
from tests.support.specimen import Specimen
from tests.support.told import by, by_input
from tests.support.world import World


def told_vpn_route(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return our own record: moto has none."""
    return aws.fakes("aws:ec2/vpnConnectionRoute:VpnConnectionRoute").get(ident)


def vpn(world: World) -> dict[str, Any]:
    """Return the inputs of a VPN connection to the world's gateways."""
    return {"customerGatewayId": world.customer_gateway, "type": "ipsec.1", "vpnGatewayId": world.vpn_gateway}


def static_vpn(world: World) -> str:
    """Make a VPN connection that takes static routes, in the rehearsal's own books too."""
    return VPN_CONNECTION.create(world.aws, {**vpn(world), "staticRoutesOnly": True})


RESOLVES = {"allowRemoteVpcDnsResolution": True}
BOTH_SIDES = {"accepter": RESOLVES, "requester": RESOLVES}

LINKS = (
    Specimen(
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
        inputs=lambda world: {"vpcId": world.vpc, "peerVpcId": world.far_vpc},
        told=by(nouns.PEERING),
        changes={"autoAccept": True, **BOTH_SIDES},
    ),
    Specimen(
        "aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
        inputs=lambda world: {"vpcPeeringConnectionId": world.pending_peering},
        told=by(nouns.PEERING),
        changes={"autoAccept": True, **BOTH_SIDES},
        silent=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
        inputs=lambda world: {"vpcPeeringConnectionId": world.peering},
        told=by(nouns.PEERING),
        changes=dict(BOTH_SIDES),
        silent=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/vpnGateway:VpnGateway",
        inputs=lambda world: {"amazonSideAsn": "64620", "vpcId": world.vpc},
        told=by(nouns.VPN_GATEWAY),
        changes=lambda world: {"vpcId": world.far_vpc},
    ),
    Specimen(
        "aws:ec2/vpnGatewayAttachment:VpnGatewayAttachment",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "vpnGatewayId": world.made("create_vpn_gateway", "VpnGateway.VpnGatewayId", Type="ipsec.1"),
        },
        told=by_input(nouns.VPN_GATEWAY, "vpnGatewayId"),
        silent=frozenset({"vpnGatewayId"}),
    ),
    Specimen(
        "aws:ec2/customerGateway:CustomerGateway",
        inputs={
            "type": "ipsec.1",
            "bgpAsn": "65010",
            "ipAddress": "8.20.30.40",
            "deviceName": "gate",
        },
        told=by(nouns.CUSTOMER_GATEWAY),
        silent=frozenset({"deviceName"}),
    ),
    Specimen(
        "aws:ec2/vpnConnection:VpnConnection",
        inputs=lambda world: {**vpn(world), "tunnel1InsideCidr": "169.254.20.0/30"},
        told=by(nouns.VPN_CONNECTION),
        silent=frozenset(VPN_CONNECTION.inputs.keys() - {"tags", "type"}),
    ),
    Specimen(
        "aws:ec2/vpnConnection:VpnConnection",
        form="to a transit gateway",
        inputs=lambda world: {
            "customerGatewayId": world.customer_gateway,
            "type": "ipsec.1",
            "transitGatewayId": world.hub,
        },
        told=by(nouns.VPN_CONNECTION),
    ),
    Specimen(
        "aws:ec2/vpnConnectionRoute:VpnConnectionRoute",
        inputs=lambda world: {
            "destinationCidrBlock": "192.168.40.0/22",
            "vpnConnectionId": static_vpn(world),
        },
        told=told_vpn_route,
    ),
)
