"""Tunnels carried to a gateway of the stand, as `bedplate vpn tunnels` carries them: over SSH, to its keeper."""

import json

from tests.support.stand.fresh import ADMIN
from tests.support.stand.node import Node
from vpn.sites.carry import LAY, shipment_text
from vpn.sites.gateway import Gateway


def laid(node: Node, gateway: Gateway) -> dict[str, list[str]]:
    """Bring a gateway all its tunnels; return what its keeper wrote, removed and told."""
    way = ("ssh", "-F", str(node.ssh_config), "-l", ADMIN, node.name, LAY)
    done = node.desk.run(*way, told=shipment_text(gateway))
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told
