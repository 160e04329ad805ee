"""IPv4 blocks, addresses and prefix lengths of the fleet file, in canonical form only."""

import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from bedplate.spec.base import invalid, shown

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_MOST_BITS = 32
_PREFIX = re.compile(r"/(0|[1-9]|[12][0-9]|3[0-2])")
_BLOCK_FIX = "write four numbers and a prefix length, such as 10.64.0.0/10"
_ADDRESS_FIX = "write four numbers from 0 to 255, separated by dots"


def check_block(value: object) -> IPv4Network:
    """Return the block; raise a validation error that proposes the canonical form, if it is clear."""
    text = _text(value, _BLOCK_FIX)
    if "/" not in text:
        message = f"{shown(text)} has no prefix length"
        raise invalid("E211", message, f"add the prefix length, such as {shown(text)}/16")
    interface = _parse_leniently(text)
    if interface is None:
        raise invalid("E210", f"{shown(text)} is not an IPv4 block", _BLOCK_FIX)
    if text != str(interface):
        raise invalid("E213", f"{text} is not in canonical form", f"write {interface.network}")
    if interface.ip != interface.network.network_address:
        raise invalid("E212", f"{text} has host bits set", f"write {interface.network}")
    return interface.network


def check_address(value: object) -> IPv4Address:
    """Return the address; raise a validation error unless it is four decimal numbers."""
    text = _text(value, _ADDRESS_FIX)
    try:
        return IPv4Address(text)
    except ValueError:
        message = f"{shown(text)} is not an IPv4 address"
        raise invalid("E215", message, _ADDRESS_FIX) from None


def check_prefix(value: object) -> int:
    """Return the number of bits of a prefix length such as /22."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        message = f"{shown(value)} is not a prefix length from /0 to /32"
        is_number = str(value).isdecimal() and int(str(value)) <= _MOST_BITS
        raise invalid("E216", message, f"write /{value}" if is_number else "write a prefix length, such as /22")
    return int(value[1:])


def _text(value: object, fix: str) -> str:
    """Return the value; raise a validation error unless it is a string of digits, dots and slashes."""
    if not isinstance(value, str):
        raise invalid("E210", f"{shown(value)} is not a string", fix)
    if ":" in value:
        raise invalid("E214", f"{shown(value)} is IPv6, which bedplate does not support", fix)
    if not re.fullmatch(r"[0-9./]+", value):
        message = f"{shown(value)} has invalid characters: use 0-9, dots and a slash"
        raise invalid("E213", message, fix)
    return value


def _parse_leniently(text: str) -> IPv4Interface | None:
    """Return the interface of a text, which may have leading zeros or a netmask; None if it is invalid."""
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
# "/22" in the file, 22 as a value.
Prefix = Annotated[
    int,
    BeforeValidator(check_prefix),
    WithJsonSchema({"type": "string", "pattern": r"^/\d+$", "examples": ["/22"]}),
]


# Addresses of each half that laptops cannot have: the first, the last, and the gateway's.
_NOT_LAPTOPS = 3


def laptop_capacity(pool: IPv4Network) -> int:
    """Return how many laptops a pool can hold: each has one address in the UDP half and one in the TCP half."""
    return pool.num_addresses // 2 - _NOT_LAPTOPS
