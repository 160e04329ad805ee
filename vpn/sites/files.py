"""Everything that lies on a gateway for its tunnels: one list, in the order in which it is to be put there."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath

from vpn.guard.guard import Handover, guard_text
from vpn.sites.bgp import bgp_of
from vpn.sites.charon import connections_of, papers_of, settings_of
from vpn.sites.gateway import Charon, Gateway
from vpn.sites.rendered import PROGRAM, STANDARD, Places, RenderedFile
from vpn.sites.tunnel import MTU, Tunnel
from vpn.sites.units import units_of

_HERE = Path(__file__).parent
_SCRIPTS = ("ipsec-devices", "ipsec-dial")
_GUARD = PurePosixPath("/etc/nftables.d/bedplate-guard.nft")
_KERNEL = PurePosixPath("/etc/sysctl.d/60-bedplate-gateway.conf")


def files_of(gateway: Gateway, places: Places = STANDARD) -> tuple[RenderedFile, ...]:
    """Return every file of a gateway, the guard first: nothing is to pass before it stands."""
    return tuple(_files(gateway, places))


def guard_of(gateway: Gateway) -> str:
    """Return the rules that keep a gateway's packets in its tunnels."""
    handovers = tuple(
        Handover(tunnel.far.outside, charon.ports)
        for charon in gateway.charons
        if charon.is_moved
        for tunnel in charon.tunnels
    )
    return guard_text(gateway.elsewhere, MTU, handovers)


def _files(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    yield RenderedFile(_GUARD, guard_of(gateway))
    yield RenderedFile(_KERNEL, (_HERE / "gateway.sysctl").read_text(encoding="utf-8"))
    for script in _SCRIPTS:
        yield RenderedFile(places.lib / script, (_HERE / f"{script}.sh").read_text(encoding="utf-8"), PROGRAM)
    for charon in gateway.charons:
        yield settings_of(charon, gateway.engine, places)
        yield from papers_of(charon, places)
        yield connections_of(charon, gateway.engine, places)
        yield RenderedFile(places.table(charon.name), _table(charon))
        yield from units_of(gateway, charon, places)
    told = bgp_of(gateway)
    if told:
        yield told


def _table(charon: Charon) -> str:
    """Return the tunnels as the scripts read them: name, number, inside address, MTU, blocks of fixed routes."""
    return "".join(f"{_row(tunnel)}\n" for tunnel in charon.tunnels)


def _row(tunnel: Tunnel) -> str:
    inside = tunnel.near.inside or "-"
    return f"{tunnel.name} {tunnel.number} {inside} {MTU} {_joined(tunnel.fixed_routes)}"


def _joined(blocks: tuple[IPv4Network, ...]) -> str:
    return ",".join(map(str, blocks)) or "-"
