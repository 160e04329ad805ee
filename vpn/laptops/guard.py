"""What a gateway's packet filter lets through between laptops and everybody else, as a text for nftables.

Pure. It says nothing of what is for the gateway itself.
"""

from bedplate.plan.laptops import LaptopGateway, Transport
from vpn.laptops.server import device
from vpn.laptops.text import filled


def guard_rules(gateway: LaptopGateway) -> str:
    """Return the rules of a gateway; loading them takes the place of those that it had, in one step."""
    doors = {device(transport): gateway.block(transport) for transport in Transport}
    return filled("guard.nft.j2", gateway=gateway, doors=doors)
