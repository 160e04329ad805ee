"""What is amiss with a gateway's tunnels: those of the plan are judged, whatever the gateway itself knows of."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from vpn.keeper.bgp import Neighbour
from vpn.keeper.status import Status
from vpn.keeper.tunnels import Tunnel
from vpn.wanted import Wanted, WantedTunnel

# BGP says something each 10 s, and gateways of regions each 15 s: what is silent for six of that carries nothing.
SILENT_S = 90
_CARRY = "`bedplate vpn tunnels`"
Finding = tuple[str, bool]


def tunnel_faults(wanted: Wanted, status: Status) -> Iterator[Finding]:
    """Yield each fault, and whether something does not carry by it."""
    names, told = [each.name for each in wanted.tunnels], {each.name: each for each in status.tunnels or ()}
    missing = [name for name in names if name not in told]
    if missing:
        yield f"it was not brought the tunnel{'s' * (len(missing) > 1)} {', '.join(missing)}: {_CARRY}", True
    for name, each in told.items():
        if name in names:
            yield from _standing(each, status.charons)
        else:
            yield f"the tunnel {name} is not in the plan: {_CARRY} takes it away", False
    yield from _bgp(wanted, status, told)


def _standing(tunnel: Tunnel, charons: Mapping[str, bool]) -> Iterator[Finding]:
    if not charons.get(tunnel.charon, True):
        yield f"nothing is known of the tunnel {tunnel.name}: its daemon {tunnel.charon} does not answer", True
    elif tunnel.age is None:
        yield f"the tunnel {tunnel.name} is down", True
    elif tunnel.idle is None or tunnel.idle > SILENT_S:
        since = "yet" if tunnel.idle is None else f"for {tunnel.idle} s"
        yield f"the tunnel {tunnel.name} stands, and no packet has come in by it {since}", tunnel.age > SILENT_S


def _bgp(wanted: Wanted, status: Status, told: Mapping[str, Tunnel]) -> Iterator[Finding]:
    """Yield what BGP does not do by tunnels that stand."""
    ages = {name: each.age for name, each in told.items() if each.age is not None}
    spoken = [each for each in wanted.tunnels if each.tells and each.name in ages]
    if spoken and status.bgp is None:
        yield "it does not say whom BGP reaches: apply the role keeper to it", True
        return
    neighbours = {each.tunnel: each for each in status.bgp or ()}
    for each in spoken:
        yield from _neighbour(each, neighbours.get(each.name), ages[each.name])
    yield from _elsewhere(wanted.elsewhere, [each for each in neighbours.values() if each.age is not None])


def _neighbour(tunnel: WantedTunnel, neighbour: Neighbour | None, age: int) -> Iterator[Finding]:
    if neighbour is None or neighbour.age is None:
        yield f"BGP does not stand by the tunnel {tunnel.name}", age > SILENT_S
        return
    missing = _missing(tunnel.tells, [neighbour])
    if missing:
        yield f"BGP does not tell of {missing} by the tunnel {tunnel.name}", neighbour.age > SILENT_S


def _elsewhere(blocks: Iterable[IPv4Network], neighbours: list[Neighbour]) -> Iterator[Finding]:
    missing = _missing(blocks, neighbours) if neighbours else ""
    if missing:
        yield f"BGP does not tell of {missing} by any tunnel", any((each.age or 0) > SILENT_S for each in neighbours)


def _missing(blocks: Iterable[IPv4Network], neighbours: Iterable[Neighbour]) -> str:
    told = {block for each in neighbours for block in each.blocks}
    return ", ".join(str(block) for block in blocks if str(block) not in told)
