"""What the VPN's keys lack beside the fleet file: who has left, which gateway needs a certificate.

Decides, and signs nothing.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from vpn.certificate import LIFE
from vpn.entry import Issued
from vpn.roll import Roll
from vpn.subject import Subject, Use, user_of


@dataclass(frozen=True, slots=True)
class Due:
    """What has to be done, by name: laptops of people who left, gateways that are gone, certificates to issue."""

    left: tuple[str, ...]
    gone: tuple[str, ...]
    lacking: tuple[Subject, ...]
    """Gateways without a certificate or its key, or with a certificate past the half of its life."""


def due(roll: Roll, people: Container[str], gateways: Iterable[Subject], keyless: Container[str], now: datetime) -> Due:
    """Return what has to be done for these people and gateways; `keyless` are names of which no key is kept."""
    wanted = {gateway.name: gateway for gateway in gateways}
    valid = {each.name: each for each in roll.valid(now)}
    laptops = (each for each in valid.values() if each.use is Use.CLIENT)
    others = (each for each in valid.values() if each.use is not Use.CLIENT)
    return Due(
        left=tuple(sorted(each.name for each in laptops if user_of(each.name) not in people)),
        gone=tuple(sorted(each.name for each in others if each.name not in wanted)),
        lacking=tuple(subject for name, subject in wanted.items() if name in keyless or _lacks(valid.get(name), now)),
    )


def _lacks(certificate: Issued | None, now: datetime) -> bool:
    return certificate is None or certificate.until - now < LIFE / 2
