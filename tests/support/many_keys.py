"""Shared keys of random bytes, and a gateway with a tunnel for each."""

from dataclasses import replace
from random import Random

from bedplate.tunnel_key import SHORTEST_KEY
from tests.support.site_side import cellar
from vpn.sites.gateway import Gateway
from vpn.sites.proof import SharedKey
from vpn.sites.tunnel import Tunnel

KEYS = 10_000


def random_keys(number: int) -> list[bytes]:
    """Return keys of random bytes, 8 to 64 of them, the same each time; the first ones are nothing but trouble."""
    dice = Random(7)  # noqa: S311  no secret, and the same on every machine
    trouble = [b'"', b"}", b"#", b"\n", b"\0", b"0x", b"0s", b"include /etc/passwd", b"\xff" * 64, b" a ", b"=", b"%"]
    long = [each * -(-SHORTEST_KEY // len(each)) for each in trouble]
    return long + [dice.randbytes(dice.randint(SHORTEST_KEY, 64)) for _ in range(number - len(trouble))]


def keyed(keys: list[bytes]) -> Gateway:
    """Return a gateway with a tunnel for each key."""
    gateway = cellar()
    first = gateway.tunnels[0]
    return replace(gateway, tunnels=tuple(_keyed(first, number, key) for number, key in enumerate(keys)))


def _keyed(tunnel: Tunnel, number: int, key: bytes) -> Tunnel:
    return Tunnel(f"t{number}", number, tunnel.near, tunnel.far, tunnel.dials, SharedKey(key), tunnel.carries)
