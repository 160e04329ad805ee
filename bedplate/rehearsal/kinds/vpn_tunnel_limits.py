"""What the tunnels of a VPN connection may be told, and the limits that AWS sets to it.

Source: EC2 API reference, VpnTunnelOptionsSpecification, 2026-07.
"""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, beyond
from bedplate.rehearsal.unknown import is_known

_LIMITS: dict[str, Limit] = {
    "DpdTimeoutAction": Choice(("clear", "none", "restart")),
    "DpdTimeoutSeconds": Number(30, 3600),
    "Phase1LifetimeSeconds": Number(900, 28800),
    "Phase2LifetimeSeconds": Number(900, 3600),
    "RekeyFuzzPercentage": Number(0, 100),
    "RekeyMarginTimeSeconds": Number(60, 1800),
    "ReplayWindowSize": Number(64, 2048),
    "StartupAction": Choice(("add", "start")),
}
_WORDS: dict[str, tuple[str | int, ...]] = {
    "IkeVersions": ("ikev1", "ikev2"),
    "Phase1DhGroupNumbers": (2, *range(14, 25)),
    "Phase1EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase1IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
    "Phase2DhGroupNumbers": (2, 5, *range(14, 25)),
    "Phase2EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase2IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
}
_KEY = re.compile(r"[1-9A-Za-z._][0-9A-Za-z._]{7,63}")
_INSIDE = IPv4Network("169.254.0.0/16")
_RESERVED = tuple(IPv4Network(f"169.254.{part}/30") for part in (*(f"{n}.0" for n in range(6)), "169.252"))


def _of_tunnels(*names: str) -> tuple[str, ...]:
    return tuple(f"tunnel{number}{name}" for number in (1, 2) for name in names)


TUNNEL_CIDRS = _of_tunnels("InsideCidr")
TUNNEL_KEYS = _of_tunnels("PresharedKey")
TUNNEL_SETS = _of_tunnels(*_WORDS)
TUNNEL_OPTIONS = _of_tunnels(*_LIMITS)


def tunnel_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield what AWS refuses of both tunnels' options; a preshared key is never told back."""
    limits = {f"tunnel{number}{name}": limit for number in (1, 2) for name, limit in _LIMITS.items()}
    yield from beyond(inputs, limits)
    yield from block_complaints(inputs, TUNNEL_CIDRS, sizes=range(30, 31))
    for number in (1, 2):
        yield from _complaints(inputs, number)


def _complaints(inputs: Props, number: int) -> Iterator[Complaint]:
    key = inputs.get(name := f"tunnel{number}PresharedKey")
    if is_known(key) and not _KEY.fullmatch(key):
        yield Complaint(name, "is to have 8 to 64 letters, digits, full stops or underscores, and begin with no 0")
    block = inputs.get(name := f"tunnel{number}InsideCidr")
    if is_known(block) and not _fits_inside(block):
        yield Complaint(name, f"{block} is no /30 of {_INSIDE} that AWS leaves free")
    for end, words in _WORDS.items():
        given = inputs.get(name := f"tunnel{number}{end}")
        if is_known(given) and not set(given) <= set(words):
            yield Complaint(name, f"expected some of {list(words)}, got {given}")


def _fits_inside(text: str) -> bool:
    try:
        block = IPv4Network(text)
    except ValueError:
        return True  # already complained about as a CIDR block
    return block.subnet_of(_INSIDE) and block not in _RESERVED
