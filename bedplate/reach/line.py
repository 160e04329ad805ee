"""VPN connections that end at a virtual private gateway: what lies behind each, as far as a graph can say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bedplate.reach.packet import Prefix, prefix
from bedplate.reach.resource import Resources
from bedplate.reach.table import Table, Via


@dataclass(frozen=True, slots=True)
class Line:
    """A VPN connection on a virtual private gateway: the VPC at its near end, and the blocks at its far end."""

    ident: str
    name: str
    gateway: str
    vpc: str
    blocks: tuple[Prefix, ...]
    fixed: bool
    """Whether its blocks are written down, not announced by BGP."""

    def leads_to(self, address: int) -> bool:
        """Tell whether an address lies behind it."""
        return any(block.holds(address) for block in self.blocks)


def is_hub(near: Line, far: Line) -> bool:
    """Tell whether a gateway leads from one connection to another: it tells each site what the others announce.

    Source: AWS Site-to-Site VPN user guide, VPN CloudHub.
    """
    return near.gateway == far.gateway and near.ident != far.ident and not (near.fixed or far.fixed)


def read_lines(resources: Resources) -> Iterable[Line]:
    """Yield the connections of a graph, with the blocks that are written down."""
    vpcs = {each.id: each.text("vpcId") for each in resources.of("ec2/vpnGateway:VpnGateway")}
    for each in resources.of("ec2/vpnGatewayAttachment:VpnGatewayAttachment"):
        vpcs[each.text("vpnGatewayId")] = each.text("vpcId")
    blocks: defaultdict[str, list[Prefix]] = defaultdict(list)
    for each in resources.of("ec2/vpnConnectionRoute:VpnConnectionRoute"):
        blocks[each.text("vpnConnectionId")].append(prefix(each.text("destinationCidrBlock")))
    for each in resources.of("ec2/vpnConnection:VpnConnection"):
        gateway = each.text("vpnGatewayId")
        if gateway:
            fixed = each.flag("staticRoutesOnly")
            yield Line(each.id, each.label, gateway, vpcs.get(gateway, ""), tuple(blocks[each.id]), fixed=fixed)


def announcing(lines: Iterable[Line], tables: Mapping[str, Table], resources: Resources) -> Iterable[Line]:
    """Yield the lines with what their sites announce: no graph holds that, so what route tables expect is taken.

    A route that waits for connections is for what lies behind those; one that waits for none, for any of its gateway.
    """
    owners = _owners(resources)
    for line in lines:
        routes = (route for each in tables.values() for route in each.routes)
        heard = dict.fromkeys(route.to for route in routes if (route.via, route.ident) == (Via.VPN, line.gateway))
        own = (block for block in heard if line.ident in owners.get((line.gateway, block), {line.ident}))
        yield line if line.fixed else replace(line, blocks=(*line.blocks, *own))


def _owners(resources: Resources) -> Mapping[tuple[str, Prefix], set[str]]:
    """Return the connections that routes to a gateway wait for, by the gateway and the block."""
    idents = {each.urn: each.id for each in resources.of("ec2/vpnConnection:VpnConnection")}
    found: defaultdict[tuple[str, Prefix], set[str]] = defaultdict(set)
    for each in resources.of("ec2/route:Route"):
        waits = {idents[urn] for urn in each.after if urn in idents}
        if waits and each.text("gatewayId") and each.text("destinationCidrBlock"):
            found[each.text("gatewayId"), prefix(each.text("destinationCidrBlock"))] |= waits
    return found
