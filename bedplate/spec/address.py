"""Addresses as the fleet file writes them: IPv4 blocks, single addresses and prefix lengths, canonical form only."""

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from bedplate.spec.base import refusal


def _block(value: object) -> object:
    if not isinstance(value, str):
        raise refusal("E210", f"a block is a string such as 10.64.0.0/10, not {value!r}", "quote it")
    try:
        return IPv4Network(value)
    except ValueError as error:
        raise refusal("E210", str(error), "write it as 10.64.0.0/10") from None


def _address(value: object) -> object:
    if not isinstance(value, str):
        raise refusal("E210", f"an address is a string such as 192.168.40.1, not {value!r}", "quote it")
    try:
        return IPv4Address(value)
    except ValueError as error:
        raise refusal("E210", str(error), "write it as 192.168.40.1") from None


def _prefix(value: object) -> object:
    if not isinstance(value, str) or not value.startswith("/") or not value[1:].isdecimal():
        raise refusal("E210", "a size is a prefix length such as /22", "write it as /22")
    return int(value[1:])


Block = Annotated[
    IPv4Network,
    BeforeValidator(_block),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$", "examples": ["10.64.0.0/10"]}),
]
Address = Annotated[
    IPv4Address,
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "format": "ipv4", "examples": ["192.168.40.1"]}),
]
# Written "/22", held as 22: the number of leading bits.
Prefix = Annotated[
    int,
    BeforeValidator(_prefix),
    WithJsonSchema({"type": "string", "pattern": r"^/\d+$", "examples": ["/22"]}),
]
