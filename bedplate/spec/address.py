"""IPv4 blocks, addresses and prefix lengths of the fleet file, in canonical form only."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from bedplate.spec.base import invalid, shown

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_MOST_BITS = 32
_PREFIX = re.compile(r"/(0|[1-9]|[12][0-9]|3[0-2])")
_BLOCK_FIX = "write four numbers from 0 to 255, a slash and a prefix length from 0 to 32"
_IPV4_FIX = "write a block of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
_OCTET = 8
_ADDRESS_FIX = "write four numbers from 0 to 255, separated by dots"


def check_block(value: object) -> IPv4Network:
    """Return the block; raise a validation error that proposes the canonical form, if it is clear."""
    text = _text(value, _IPV4_FIX, _block_fix)
    if "/" not in text:
        raise invalid("E211", f"{shown(text)} has no prefix length", _block_fix(text))
    interface = _parse_leniently(text)
    if interface is None:
        raise invalid("E210", f"{shown(text)} is not an IPv4 block", _block_fix(text))
    if text != str(interface):
        raise invalid("E213", f"{text} is not in canonical form", f"write {interface.network}")
    if interface.ip != interface.network.network_address:
        raise invalid("E212", f"{text} has host bits set", f"write {interface.network}")
    return interface.network


def check_address(value: object) -> IPv4Address:
    """Return the address; raise a validation error unless it is four decimal numbers."""
    text = _text(value, _ADDRESS_FIX, _address_fix)
    try:
        return IPv4Address(text)
    except ValueError:
        raise invalid("E215", f"{shown(text)} is not an IPv4 address", _address_fix(text)) from None


def _block_fix(text: str) -> str:
    """Return the fix with the block that a text stands for: with digits for letters, all octets and a prefix length."""
    address, _, prefix = text.strip().replace("*", "0").translate(_DIGITS).partition("/")
    octets = address.strip(".").split(".")
    zeros = len(octets) - len("".join("0" if octet.strip("0") == "" else "1" for octet in octets).rstrip("0"))
    missing = max(4 - len(octets), 0)
    prefix = prefix or str(32 - _OCTET * max(zeros + missing, 1))
    near = _parse_leniently(f"{'.'.join((*octets, *'0' * missing))}/{prefix}")
    return f"write {near.network}" if near else _large_octet(address) or _BLOCK_FIX


def _address_fix(text: str) -> str:
    """Return the fix with the address that a text stands for, or how to find the address of a host name."""
    near = _parse_leniently(text.strip().translate(_DIGITS).partition(":")[0])
    if near:
        return f"write {near.ip}"
    is_host = re.fullmatch(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+", text.lower())
    return f"write the address that `dig +short {text}` prints" if is_host else _large_octet(text) or _ADDRESS_FIX


# Letters that look like digits.
_DIGITS = str.maketrans("OolI", "0011")


def _large_octet(address: str) -> str:
    """Return the fix for a number above 255; empty without one."""
    large = next((number for number in re.findall(r"[0-9]+", address) if int(number) > 2**_OCTET - 1), None)
    return f"write a number from 0 to 255 instead of {large}" if large else ""


def check_prefix(value: object) -> int:
    """Return the number of bits of a prefix length such as /22."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise invalid("E216", f"{shown(value)} is not a prefix length from /0 to /32", _prefix_fix(str(value)))
    return int(value[1:])


def _prefix_fix(text: str) -> str:
    """Return the fix with the prefix length that a number, a number of addresses or a netmask stands for."""
    number = text.rpartition("/")[2].strip().replace(",", "")
    if number.isdecimal() and int(number) <= _MOST_BITS:
        return f"write /{int(number)}"
    if number.isdecimal() and "/" not in text and int(number) < 2**_MOST_BITS:
        prefix = _MOST_BITS - (int(number) - 1).bit_length()
        return f"write /{prefix} ({2 ** (_MOST_BITS - prefix):,} addresses)"
    mask = _parse_leniently(f"0.0.0.0/{number}")
    return f"write /{mask.network.prefixlen}" if mask else "write a slash and a number from 0 to 32"


def _text(value: object, fix: str, near: Callable[[str], str]) -> str:
    """Return the value; raise a validation error unless it is a string of digits, dots and slashes."""
    if not isinstance(value, str):
        raise invalid("E210", f"{shown(value)} is not a string", fix)
    if value.count(":") > 1:
        raise invalid("E214", f"{shown(value)} is IPv6, which bedplate does not support", fix)
    if not re.fullmatch(r"[0-9./]+", value):
        raise invalid("E213", f"{shown(value)} has invalid characters: use 0-9, dots and a slash", near(value))
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
    WithJsonSchema({"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$", "examples": ["10.64.0.0/12"]}),
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
