"""Addresses as the fleet file writes them: IPv4 blocks, single addresses and prefix lengths, canonical form only."""

import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from bedplate.spec.base import invalid, shown

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_PREFIX = re.compile(r"/(0|[1-9]|[12][0-9]|3[0-2])")
_BLOCK_FIX = "write four numbers and a size, as in 10.64.0.0/10"
_ADDRESS_FIX = "write four numbers from 0 to 255, with dots between them"


def check_block(value: object) -> IPv4Network:
    """Return the block; a invalid proposes the canonical form wherever one can be meant."""
    text = _text(value, "block", _BLOCK_FIX)
    if "/" not in text:
        message = f"{shown(text)} has no prefix length, so it would be a single address"
        raise invalid("E211", message, "write the size after it, as in 10.64.0.0/10")
    meant = _meant(text)
    if meant is None:
        raise invalid("E210", f"{shown(text)} is no IPv4 block", _BLOCK_FIX)
    if text != str(meant):
        raise invalid("E213", f"{text} is not in canonical form", f"write {meant.network}")
    if meant.ip != meant.network.network_address:
        raise invalid("E212", f"{text} has host bits set", f"write {meant.network}")
    return meant.network


def check_address(value: object) -> IPv4Address:
    """Return the address; a invalid when it is anything but four decimal numbers."""
    text = _text(value, "address", _ADDRESS_FIX)
    try:
        return IPv4Address(text)
    except ValueError:
        message = f"{shown(text)} is no single IPv4 address"
        raise invalid("E215", message, _ADDRESS_FIX) from None


def check_prefix(value: object) -> int:
    """Return the number of leading bits of a size written as /22."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        message = f"{shown(value)} is no size: a size is a prefix length from /0 to /32"
        raise invalid("E216", message, "write a prefix length, as in /22")
    return int(value[1:])


def _text(value: object, noun: str, fix: str) -> str:
    """Return the value where it is a string of digits, dots and a slash, as an IPv4 address or block is."""
    if not isinstance(value, str):
        raise invalid("E210", f"{shown(value)} is no {noun}: a string is wanted", fix)
    if ":" in value:
        raise invalid("E214", f"{shown(value)} is IPv6; no key of this file takes IPv6 yet", fix)
    if not re.fullmatch(r"[0-9./]+", value):
        message = f"{shown(value)} holds characters that no {noun} has: only 0-9, dots and a slash"
        raise invalid("E213", message, fix)
    return value


def _meant(text: str) -> IPv4Interface | None:
    """Return what a lenient reader would take the text for: leading zeros dropped, netmasks understood."""
    try:
        return IPv4Interface(_LEADING_ZEROS.sub("", text))
    except ValueError:
        return None


Block = Annotated[
    IPv4Network,
    BeforeValidator(check_block),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$", "examples": ["10.64.0.0/10"]}),
]
Address = Annotated[
    IPv4Address,
    BeforeValidator(check_address),
    WithJsonSchema({"type": "string", "format": "ipv4", "examples": ["192.168.40.1"]}),
]
# Written "/22", held as 22: the number of leading bits.
Prefix = Annotated[
    int,
    BeforeValidator(check_prefix),
    WithJsonSchema({"type": "string", "pattern": r"^/\d+$", "examples": ["/22"]}),
]


# Nobody's in each transport's half: its first address, its last, and the gateway's.
_NOT_LAPTOPS = 3


def room(pool: IPv4Network) -> int:
    """Return how many laptops have an address of their own, which they have in both halves: by UDP and by TCP."""
    return pool.num_addresses // 2 - _NOT_LAPTOPS
