"""What packet filters let through between laptops and everybody else, on gateways and on laptops, as text for nftables.

Pure. It says nothing of what is for the gateway or the laptop itself.
"""

from collections.abc import Sequence

from bedplate.plan.laptops import LaptopGateway, Transport
from vpn.laptops.server import device
from vpn.laptops.text import filled


def guard_rules(gateway: LaptopGateway) -> str:
    """Return the rules of a gateway; loading them takes the place of those that it had, in one step."""
    doors = {device(transport): gateway.block(transport) for transport in Transport}
    return filled("guard.nft.j2", gateway=gateway, doors=doors)


def laptop_rules(gateways: Sequence[LaptopGateway]) -> str:
    """Return the rules by which a Linux laptop sends nothing that is for the fleet past the tunnel."""
    reached = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.routes))
    met = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.met))
    return filled("laptop.nft.j2", fleet=gateways[0].fleet, reached=reached, met=met)
