"""What FRR reads: whom the gateway tells of its blocks, and what it believes of what it is told."""

from pathlib import PurePosixPath

from vpn.sites import pace
from vpn.sites.gateway import Gateway
from vpn.sites.rendered import RenderedFile
from vpn.sites.template import filled
from vpn.sites.tunnel import Tunnel

_FILE = PurePosixPath("/etc/frr/frr.conf")
# Only FRR's own people, and root, read it.
_MODE = 0o640


def bgp_of(gateway: Gateway) -> RenderedFile | None:
    """Return FRR's settings, without a neighbour where no tunnel is left; None for a gateway whose routes are fixed."""
    if gateway.asn is None:
        return None
    tunnels = tuple(tunnel for tunnel in gateway.tunnels if tunnel.asn is not None)
    return RenderedFile(_FILE, filled("frr.conf.j2", gateway=gateway, tunnels=tunnels, peer=_peer, pace=pace), _MODE)


def _peer(tunnel: Tunnel) -> str:
    """Return the far end's address inside a tunnel."""
    if tunnel.far.inside is None:
        raise ValueError(f"{tunnel.name} speaks BGP and has no address inside")
    return str(tunnel.far.inside.ip)
