"""How the VPN's keys stand: every laptop and gateway with its days left, and the list and the authority with theirs."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bedplate.errors import InputError
from vpn.entry import Issued
from vpn.judgement import Fault, Level, list_faults
from vpn.lists import read_list, root_texts
from vpn.pki import Pki
from vpn.revocation import end_of, number_of
from vpn.subject import Use, user_of

# A person is told in time to renew; an authority's end is everybody's.
_SOON, _AUTHORITY_SOON = timedelta(days=14), timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Holder:
    """A laptop or a gateway, and its newest certificate; `note` says what is amiss, and is empty where nothing is."""

    name: str
    use: Use
    serial: int
    until: datetime
    days: int
    slot: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it at one moment; `faults` are of the list and the authority."""

    holders: tuple[Holder, ...]
    revoked: int
    number: int | None
    until: datetime | None
    authority: datetime
    faults: tuple[Fault, ...]

    @property
    def is_failing(self) -> bool:
        """Whether somebody is locked out, or will be within days."""
        return any(fault.level is Level.ERROR for fault in self.faults)


def standing(pki: Pki, people: Container[str], now: datetime) -> Standing:
    """Return how the keys stand, for the people of today's file."""
    found = read_list(pki)
    end = pki.authority.certificate.not_valid_after_utc
    return Standing(
        holders=tuple(_holders(pki, people, now)),
        revoked=len(tuple(pki.roll.revocations())),
        number=number_of(found) if found is not None else None,
        until=end_of(found) if found is not None else None,
        authority=end,
        faults=(*_list_faults(pki, now), *_root_faults(pki, now), *_authority_faults(end, now)),
    )


def _holders(pki: Pki, people: Container[str], now: datetime) -> Iterator[Holder]:
    for each in pki.roll.holders().values():
        left = each.until - now
        days, note = max(left.days, 0), _note(each, left, people)
        yield Holder(each.name, each.use, each.serial, each.until, days, each.slot, note)


def _note(certificate: Issued, left: timedelta, people: Container[str]) -> str:
    if certificate.use is Use.CLIENT and user_of(certificate.name) not in people:
        return "has left: `bedplate vpn sync`"
    if left <= timedelta():
        return "ended"
    return "ends soon" if left <= _SOON else ""


def _list_faults(pki: Pki, now: datetime) -> tuple[Fault, ...]:
    found = read_list(pki)
    if found is None:
        return (Fault(Level.ERROR, "crl.pem cannot be read: `bedplate vpn sync` signs a new one"),)
    behind = pki.roll.listed is None or number_of(found) != pki.roll.listed.number
    late = (Fault(Level.ERROR, "crl.pem is not the last list that was signed: `bedplate vpn sync`"),) if behind else ()
    told = list_faults(found, pki.authority.certificate, now)
    return (*late, *(Fault(fault.level, f"crl.pem {fault.message}: `bedplate vpn sync`") for fault in told))


def _root_faults(pki: Pki, now: datetime) -> tuple[Fault, ...]:
    try:
        root_texts(pki, now)
    except InputError as error:
        return (Fault(Level.ERROR, f"{error.what}: {error.fix}"),)
    return ()


def _authority_faults(end: datetime, now: datetime) -> tuple[Fault, ...]:
    if end - now > _AUTHORITY_SOON:
        return ()
    return (Fault(Level.WARNING, f"the authority ends on {end:%Y-%m-%d}, and every profile with it"),)
