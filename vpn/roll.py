"""What the journal comes to: which certificates count, whose they are, and what the next one is called."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from vpn.entry import Issued, Listed, Revoked
from vpn.journal import Journal
from vpn.revocation import Revocation, counted_from, is_due

# Below the number of the certificate, bits that nobody can guess: a journal that was lost repeats no serial.
_RANDOM_BITS = 64


@dataclass(frozen=True, slots=True)
class Roll:
    """All certificates by serial, and what became of them."""

    issued: Mapping[int, Issued]
    revoked: Mapping[int, Revoked]
    listed: Listed | None
    regular: datetime | None
    """As of when the newest list counts that was signed because one was due; each revocation signs one between."""
    newest: datetime
    """When the journal last grew: whoever signs before that has a clock that is behind."""

    def current(self, name: str) -> Issued | None:
        """Return the certificate of a name that lasts longest, unless the name was revoked since."""
        return _latest(self.revoked, [each for each in self.issued.values() if each.name == name]).get(name)

    def valid(self, now: datetime) -> Iterator[Issued]:
        """Yield the certificates that open a door today, in the order in which they were issued."""
        return (each for each in self.issued.values() if each.serial not in self.revoked and each.until > now)

    def holders(self) -> Mapping[str, Issued]:
        """Return the certificate of each name that lasts longest, ended ones too, unless the name was revoked since."""
        return dict(sorted(_latest(self.revoked, self.issued.values()).items()))

    def revocations(self) -> Iterator[Revocation]:
        """Yield what the next list has to hold.

        A revoked certificate stays until one regular list was signed after its end (RFC 5280 section 3.3).
        """
        for each in self.revoked.values():
            if self.regular is None or self.issued[each.serial].until >= self.regular:
                yield Revocation(each.serial, each.at, each.reason)

    def next_serials(self) -> Iterator[int]:
        """Yield serials that were never given and that nobody can foresee; they grow."""
        return (number << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS) for number in count(len(self.issued) + 1))

    def seats(self, now: datetime) -> Mapping[str, int]:
        """Return the number of each laptop that holds one: whose newest certificate has not ended."""
        return {name: each.slot for name, each in self.holders().items() if each.slot is not None and each.until > now}

    def slots(self, names: Iterable[str], now: datetime) -> Mapping[str, int]:
        """Return a number for each laptop: its own, the one it had where nobody holds that now, or the lowest free."""
        held, had = dict(self.seats(now)), {name: each.slot for name, each in self.holders().items()}
        taken, wanted = set(held.values()), tuple(names)
        for name in wanted:
            if name not in held:
                held[name] = _free(had.get(name), taken)
                taken.add(held[name])
        return {name: held[name] for name in wanted}


def _latest(revoked: Mapping[int, Revoked], issued: Iterable[Issued]) -> dict[str, Issued]:
    """Return, by name, the certificate that lasts longest of those that nobody took back.

    In journals that were joined the last that was entered may be the older. Who revokes a name takes back whatever of
    it counts then: what had ended before counts for nothing after it.
    """
    latest: dict[str, Issued] = {}
    gone: dict[str, datetime] = {}
    for each in issued:
        if each.serial in revoked:
            gone[each.name] = max(revoked[each.serial].at, gone.get(each.name, each.at))
        elif each.name not in latest or each.until >= latest[each.name].until:
            latest[each.name] = each
    return {name: each for name, each in latest.items() if name not in gone or each.until > gone[name]}


def _free(former: int | None, taken: AbstractSet[int]) -> int:
    """Return the former number where nobody has it, or the lowest that is free."""
    if former is not None and former not in taken:
        return former
    return next(number for number in count() if number not in taken)


def roll_of(journal: Journal) -> Roll:
    """Return what a journal comes to."""
    listed = [entry for entry in journal.entries if isinstance(entry, Listed)]
    return Roll(
        issued={entry.serial: entry for entry in journal.entries if isinstance(entry, Issued)},
        revoked={entry.serial: entry for entry in journal.entries if isinstance(entry, Revoked)},
        listed=listed[-1] if listed else None,
        regular=_regular(listed),
        newest=max(entry.at for entry in journal.entries),
    )


def _regular(listed: Iterable[Listed]) -> datetime | None:
    """Return as of when the newest regular list counts: the first, and each that the one before it left due."""
    regular: Listed | None = None
    for each in listed:
        if regular is None or is_due(counted_from(regular.at), regular.until, each.at):
            regular = each
    return counted_from(regular.at) if regular else None
