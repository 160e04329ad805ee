"""Everything that lies on a gateway for its tunnels: one list, in the order in which it is to be put there."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath

from vpn.guard.guard import guard_text
from vpn.guard.last_routes import last_routes_text
from vpn.sites.bgp import bgp_of
from vpn.sites.charon import connections_of, papers_of, settings_of
from vpn.sites.gateway import Gateway
from vpn.sites.rendered import PROGRAM, STANDARD, Places, RenderedFile
from vpn.sites.tunnel import MTU, Tunnel
from vpn.sites.units import units_of

_HERE = Path(__file__).parent
_SCRIPTS = ("ipsec-devices", "ipsec-look", "ipsec-watch")
GUARD = PurePosixPath("/etc/bedplate/guard/guard.nft")
LAST_ROUTES = PurePosixPath("/etc/bedplate/guard/last-routes")
KERNEL = PurePosixPath("/etc/sysctl.d/60-bedplate-gateway.conf")


def files_of(gateway: Gateway, places: Places = STANDARD) -> tuple[RenderedFile, ...]:
    """Return every file of a gateway, the guard first: nothing may pass before it is loaded."""
    return tuple(_files(gateway, places))


def ground_of(elsewhere: tuple[IPv4Network, ...], places: Places = STANDARD) -> Iterator[RenderedFile]:
    """Yield what a gateway has before it has a tunnel: the guard and its routes, the kernel's settings, the scripts."""
    yield RenderedFile(GUARD, guard_text(elsewhere, MTU))
    yield RenderedFile(LAST_ROUTES, last_routes_text(elsewhere))
    yield RenderedFile(KERNEL, (_HERE / "gateway.sysctl").read_text(encoding="utf-8"))
    for script in _SCRIPTS:
        yield RenderedFile(places.lib / script, (_HERE / f"{script}.sh").read_text(encoding="utf-8"), PROGRAM)


def _files(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    yield from ground_of(gateway.elsewhere, places)
    if gateway.tunnels:
        yield settings_of(places)
        yield from papers_of(gateway, places)
        yield connections_of(gateway, places)
        yield RenderedFile(places.table, _table(gateway))
        yield from units_of(gateway, places)
    told = bgp_of(gateway)
    if told:
        yield told


def _table(gateway: Gateway) -> str:
    """Return the tunnels as the scripts read them: name, number, inside address, MTU, fixed routes, who dials, echo."""
    return "".join(f"{_row(tunnel)}\n" for tunnel in gateway.tunnels)


def _row(tunnel: Tunnel) -> str:
    inside = tunnel.near.inside or "-"
    who = "dials" if tunnel.dials else "waits"
    row = f"{tunnel.name} {tunnel.number} {inside} {MTU} {_joined(tunnel.fixed_routes)} {who}"
    return f"{row} {tunnel.echo}" if tunnel.echo else row


def _joined(blocks: tuple[IPv4Network, ...]) -> str:
    return ",".join(map(str, blocks)) or "-"
