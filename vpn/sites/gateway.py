"""A gateway with all its tunnels, and the charons that serve them."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from zlib import crc32

from vpn.sites.engine import Engine
from vpn.sites.tunnel import Tunnel

# The ports of IKE, and of IKE and ESP behind translation (RFC 7296).
IKE_PORT, NATT_PORT = 500, 4500
_TOGETHER = "tunnels"
# Below the ports that Linux picks for callers, 32,768 and above.
_FIRST_PORT, _PAIRS = 10_000, 11_000


@dataclass(frozen=True, slots=True)
class Charon:
    """One charon: its name, its tunnels, the ports it listens on."""

    name: str
    tunnels: tuple[Tunnel, ...]
    ports: tuple[int, int] = (IKE_PORT, NATT_PORT)

    @property
    def dials(self) -> bool:
        """Whether it opens any of its tunnels; else it waits, and dials only when nobody has."""
        return any(tunnel.dials for tunnel in self.tunnels)

    @property
    def is_moved(self) -> bool:
        """Whether it listens elsewhere than peers dial, so that what they send must be handed to it."""
        return self.ports != (IKE_PORT, NATT_PORT)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: `blocks` lie behind it, `elsewhere` behind others.

    `address` is its own on its LAN, from which it sends what is its own; where it is None, the kernel picks one.
    """

    name: str
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    elsewhere: tuple[IPv4Network, ...]
    tunnels: tuple[Tunnel, ...]
    engine: Engine
    asn: int | None = None

    @property
    def charons(self) -> tuple[Charon, ...]:
        """The charons that its tunnels need: one; one each where charon encrypts, and so knows each by its device."""
        if self.engine is Engine.KERNEL:
            return (Charon(_TOGETHER, self.tunnels),) if self.tunnels else ()
        ports = ports_of(tunnel.name for tunnel in self.tunnels)
        return tuple(Charon(tunnel.name, (tunnel,), ports[tunnel.name]) for tunnel in self.tunnels)


def ports_of(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return two ports for each name, which follow from the name: another tunnel's coming or going moves none.

    But for two names that fall on one place, where the second in the alphabet goes to the next free one.
    """
    taken: dict[int, str] = {}
    for name in sorted(names):
        place = crc32(name.encode()) % _PAIRS
        while place in taken:
            place = (place + 1) % _PAIRS
        taken[place] = name
    return {name: (_FIRST_PORT + 2 * place, _FIRST_PORT + 2 * place + 1) for place, name in taken.items()}
