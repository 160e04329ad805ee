"""Whom a certificate names, and what for.

A laptop is `<user>.<device>`, a gateway its whole name in the fleet's domain: the two never meet.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address

from bedplate.errors import InputError

DEFAULT_DEVICE = "laptop"
# X.520 ends a common name at 64 characters, and OpenVPN names a client by nothing else.
_LONGEST_NAME, _LONGEST_USER, _LONGEST_DEVICE = 64, 32, 31
# As bedplate.plan.laptops.NAME_PREFIX: the plan knows no keys, and keys are made without a plan.
GATEWAY_PREFIX = "gateway."
_PART = re.compile(r"[a-z_][a-z0-9_-]*")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_][a-z0-9_-]*)*")


class Use(StrEnum):
    """What a certificate may be used for: a laptop, a gateway that laptops dial, an end of a site's tunnel."""

    CLIENT = "client"
    SERVER = "server"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate names; `addresses` are those at which others reach a gateway."""

    name: str
    use: Use
    addresses: tuple[IPv4Address, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _LONGEST_NAME:
            raise InputError(
                f"{self.name!r} is no name for a certificate",
                fix=f"a-z, 0-9, _, - and inner dots, {_LONGEST_NAME} characters at the most",
            )


def laptop(user: str, device: str = DEFAULT_DEVICE) -> Subject:
    """Return a person's device; InputError where either word cannot be part of a name."""
    for what, word, longest in (("user name", user, _LONGEST_USER), ("name of a device", device, _LONGEST_DEVICE)):
        if not _PART.fullmatch(word) or len(word) > longest:
            fix = f"a-z, 0-9, _ and -, a letter or _ first, {longest} characters at the most"
            raise InputError(f"{word!r} is no {what}", fix=fix)
    if f"{user}." == GATEWAY_PREFIX:
        raise InputError(f"nobody may be called {user}: laptops know gateways by it", fix="take another user name")
    return Subject(f"{user}.{device}", Use.CLIENT)


def gateway(place: str, domain: str, *addresses: IPv4Address) -> Subject:
    """Return the gateway that laptops dial in a region or on a site."""
    return Subject(f"{GATEWAY_PREFIX}{place}.{domain}", Use.SERVER, addresses)


def user_of(name: str) -> str:
    """Return whose device a certificate's name is."""
    return name.partition(".")[0]
