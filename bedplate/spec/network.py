"""The network sections of the fleet file: blocks and addresses, regions, gateways for laptops, and tunnels."""

import re
from collections.abc import Callable
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from bedplate.rules import Rule
from bedplate.spec.base import (
    ADDED,
    BOTH,
    CHANGED,
    EVERY,
    MOVE_DATA,
    RELEASE,
    REMOVED,
    Effect,
    Spec,
    entries,
    free,
    invalid,
    on_edit,
    refused,
    removes,
    replaces,
    shown,
    shrinks,
)
from bedplate.spec.text import RegionName, Slug, ZoneName

_BLOCK = "write four numbers and a prefix length, such as 10.64.0.0/10"
NOT_A_BLOCK = Rule("E210", "A block is four numbers and a prefix length.", _BLOCK)
NO_PREFIX = Rule("E211", "A block needs a prefix length.", "add the prefix length")
HOST_BITS = Rule("E212", "A block starts at its network address.", "write the network address")
NOT_CANONICAL = Rule("E213", "Programs read other forms differently.", _BLOCK)
IPV6 = Rule("E214", "bedplate allocates IPv4 addresses only.", "write an IPv4 value")
NOT_AN_ADDRESS = Rule(
    "E215", "An address is four numbers from 0 to 255.", "write four numbers from 0 to 255, separated by dots"
)
NOT_A_SIZE = Rule("E216", "A size is a prefix length.", "write a prefix length, such as /22")

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
        raise invalid(
            NO_PREFIX, f"{shown(text)} has no prefix length", f"{_block_fix(text)}, or with another prefix length"
        )
    interface = _parse_leniently(text)
    if interface is None:
        raise invalid(NOT_A_BLOCK, f"{shown(text)} is not an IPv4 block", _block_fix(text))
    if text != str(interface):
        raise invalid(NOT_CANONICAL, f"{text} is not in canonical form", f"write {interface.network}")
    if interface.ip != interface.network.network_address:
        raise invalid(HOST_BITS, f"{text} has host bits set", f"write {interface.network}")
    return interface.network


def check_address(value: object) -> IPv4Address:
    """Return the address; raise a validation error unless it is four decimal numbers."""
    text = _text(value, _ADDRESS_FIX, _address_fix)
    try:
        return IPv4Address(text)
    except ValueError:
        raise invalid(NOT_AN_ADDRESS, f"{shown(text)} is not an IPv4 address", _address_fix(text)) from None


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
        raise invalid(NOT_A_SIZE, f"{shown(value)} is not a prefix length from /0 to /32", _prefix_fix(str(value)))
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
        raise invalid(NOT_A_BLOCK, f"{shown(value)} is not a string", fix)
    if value.count(":") > 1:
        raise invalid(IPV6, f"{shown(value)} is IPv6, which bedplate does not support", fix)
    if not re.fullmatch(r"[0-9./]+", value):
        raise invalid(NOT_CANONICAL, f"{shown(value)} has invalid characters: use 0-9, dots and a slash", near(value))
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


class Interconnect(StrEnum):
    """How regions are connected."""

    TRANSIT = "transit"
    PEERING = "peering"
    NONE = "none"


class Egress(StrEnum):
    """How nodes without a public address reach the internet."""

    SHARED = "shared"
    PER_ZONE = "per-zone"
    NONE = "none"


class Endpoint(StrEnum):
    """An AWS service that nodes can reach through a VPC endpoint."""

    ECR = "ecr"
    SSM = "ssm"
    STS = "sts"
    LOGS = "logs"


class Network(Spec):
    """The address space, and the connections of regions."""

    supernet: Block = Field(
        title="Supernet",
        description="IPv4 block for all allocated blocks. fleet.lock records each of them.",
        json_schema_extra=on_edit(
            shrinks("recorded blocks would be outside it", Effect.REFUSED, "write a block that contains them all")
        ),
    )
    interconnect: Interconnect = Field(
        default=Interconnect.TRANSIT,
        strict=False,
        title="Interconnect",
        description="How regions are connected: transit (peered transit gateways), peering (VPC peering) or none "
        "(through their laptop gateways, or not at all).",
        json_schema_extra=on_edit(
            removes(
                "all connections of regions and sites are replaced, down meanwhile; then run `bedplate vpn tunnels`. "
                "Only transit connects laptops with pods",
                CHANGED,
            )
        ),
    )
    egress: Egress = Field(
        default=Egress.SHARED,
        strict=False,
        title="Egress",
        description="How nodes reach the internet: shared (a NAT gateway per region), per-zone (one per zone) or none.",
        json_schema_extra=on_edit(replaces("NAT gateways and their public addresses; with none, no egress")),
    )
    endpoints: tuple[Annotated[Endpoint, Field(strict=False)], ...] = Field(
        default=(),
        title="Endpoints",
        description="VPC endpoints in each region: ecr, ssm, sts, logs. Each costs money per zone and hour.",
        json_schema_extra=on_edit(free("endpoints; without one, nodes use the internet", *EVERY)),
    )
    region_size: Prefix = Field(
        default=16,
        title="Region size",
        examples=["/18"],
        description="Prefix length of the block of a new region, /16 to /20. Existing regions keep their block.",
        json_schema_extra=on_edit(free("new regions; existing ones keep their block")),
    )


class Region(Spec):
    """An AWS region, and the zones that the fleet uses in it."""

    home: bool = Field(
        default=False,
        title="Home region",
        description="True for exactly one region: it has the control plane, image builds and shared parameters.",
        json_schema_extra=on_edit(
            refused("all shared resources would move; keys and etcd's volumes are protected", MOVE_DATA)
        ),
    )
    zones: tuple[ZoneName, ...] = Field(
        min_length=1,
        title="Availability zones",
        description="Zones of this region. Each gets an edge subnet and a node subnet.",
        json_schema_extra=on_edit(
            free("nothing: the order has no meaning", CHANGED),
            entries(
                "its subnets; no other is affected",
                "its subnets; terminate its instances first, as `diff` shows; refused if etcd is there",
            ),
        ),
    )
    block: Block | None = Field(
        default=None,
        title="Declared block",
        examples=["10.80.0.0/16"],
        description="Block of the VPC. Default: bedplate allocates one in the supernet.",
        json_schema_extra=on_edit(
            refused("all addresses of the region would change", RELEASE),
            refused(
                "all addresses of the region would change",
                "write the recorded block or no block, if it is in the supernet",
                *BOTH,
            ),
        ),
    )


_ANOTHER_GATEWAY = "the old gateway and its address; a new gateway is created"
_KEPT_KEYS = "gateways and addresses of laptops; in a region, the volume with the gateway's keys is protected"
_UNPROTECT = "`pulumi state unprotect` the listed resources and run again"
GATEWAYS = on_edit(free("gateways", ADDED), refused(_KEPT_KEYS, _UNPROTECT, REMOVED))


class LaptopGateway(Spec):
    """An OpenVPN gateway, in a region or at a site."""

    region: RegionName | None = Field(
        default=None,
        title="Region",
        description="Region of the gateway; instead of `site`.",
        json_schema_extra=on_edit(refused(_KEPT_KEYS, _UNPROTECT, CHANGED, REMOVED), replaces(_ANOTHER_GATEWAY, ADDED)),
    )
    site: Slug | None = Field(
        default=None,
        title="Site",
        examples=["office"],
        description="Site of the gateway; instead of `region`.",
        json_schema_extra=on_edit(replaces(_ANOTHER_GATEWAY, CHANGED, REMOVED), refused(_KEPT_KEYS, _UNPROTECT, ADDED)),
    )


class Laptops(Spec):
    """The VPN gateways for laptops, and the addresses of laptops."""

    gateways: tuple[LaptopGateway, ...] = Field(
        min_length=1,
        title="Gateways",
        description="Gateways for laptops. The profile of every user lists all of them.",
        json_schema_extra=on_edit(
            free("nothing: the order has no meaning", CHANGED),
            free("a gateway", ADDED),
            refused(_KEPT_KEYS, _UNPROTECT, REMOVED),
        ),
    )
    pool: Prefix = Field(
        default=22,
        title="Pool size",
        examples=["/24"],
        description="Prefix length of the pool of client addresses of each gateway.",
        json_schema_extra=on_edit(refused("the laptops' addresses would change", RELEASE)),
    )
    between: bool = Field(
        default=False,
        title="Between laptops",
        description="Whether laptops may connect to each other. Other hosts can never connect to a laptop.",
        json_schema_extra=on_edit(free("gateways at their next apply, laptops when they reconnect")),
    )


class TunnelAuth(StrEnum):
    """How two gateways of the fleet authenticate each other."""

    PSK = "psk"
    CERTIFICATES = "certificates"


class Tunnels(Spec):
    """The tunnels between the fleet's own gateways; tunnels to AWS use keys from AWS."""

    auth: TunnelAuth = Field(
        default=TunnelAuth.PSK,
        strict=False,
        title="Authentication",
        description="psk (a pre-shared key per pair of gateways) or certificates (of the fleet's CA, renewed by "
        "`bedplate vpn sync`).",
        json_schema_extra=on_edit(free("nothing in AWS; `bedplate vpn tunnels` configures the gateways")),
    )


class Vpn(Spec):
    """The VPNs of the fleet."""

    laptops: Laptops | None = Field(
        default=None,
        title="Laptops",
        description="OpenVPN gateways for laptops.",
        json_schema_extra=GATEWAYS,
    )
    tunnels: Tunnels = Field(
        default_factory=Tunnels, title="Tunnels", description="Tunnels between the fleet's own gateways."
    )
