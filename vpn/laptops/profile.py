"""The one file that a person puts on a laptop: every gateway of the fleet, and the keys of this laptop.

Pure. It holds a private key: whoever writes it down does so for its reader alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.errors import InputError
from bedplate.plan.laptops import NAME_PREFIX, LaptopGateway, Transport
from vpn.laptops.cipher import CIPHERS
from vpn.laptops.text import filled


@dataclass(frozen=True, slots=True)
class LaptopKeys:
    """What one laptop proves itself by, each as PEM; `trusted` is who signs gateways."""

    trusted: str
    certificate: str
    key: str = field(repr=False)
    tls_crypt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """One door of one gateway."""

    address: IPv4Address
    transport: Transport

    def __str__(self) -> str:
        return f"{self.address} {self.transport.port} {self.transport}4"


def remotes(gateways: Sequence[LaptopGateway]) -> Iterator[Remote]:
    """Yield where a laptop dials, in that order: every gateway over UDP, then every one over TCP.

    Raises InputError, naming them, where gateways have no public address yet.
    """
    if unknown := [gateway.place for gateway in gateways if gateway.public is None]:
        raise InputError(
            f"fleet.lock holds no public address of the gateway in {', '.join(unknown)}",
            fix="run `bedplate vpn record` once the fleet's stacks are up",
        )
    for transport in Transport:
        yield from (Remote(gateway.public, transport) for gateway in gateways if gateway.public)


def client_profile(gateways: Sequence[LaptopGateway], name: str, keys: LaptopKeys) -> str:
    """Return the profile of the laptop of that name; InputError where a gateway's public address is not recorded."""
    return filled(
        "profile.ovpn.j2",
        name=name,
        fleet=gateways[0].fleet,
        remotes=tuple(map(str, remotes(gateways))),
        gateways_name=NAME_PREFIX,
        ciphers=CIPHERS,
        keys=keys,
    )
