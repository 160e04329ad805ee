"""Specimens of what ties networks together: peerings, gateways and VPN."""

from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.vpn_connection import VPN_CONNECTION
from tests.support.specimen import Specimen
from tests.support.told import by
from tests.support.world import World


def vpn(world: World) -> dict[str, Any]:
    """Return the inputs of a VPN connection to the world's gateways."""
    return {"customerGatewayId": world.customer_gateway, "type": "ipsec.1", "vpnGatewayId": world.vpn_gateway}


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
)
