"""Two journals of one authority that were signed apart, joined: what one lacks of the other, as entries of its own.

`join` signs the result; nothing that either told is left out, and nothing that either took back counts again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from bedplate.errors import InputError
from vpn.desk import check_clock, enter, opened_desk
from vpn.entry import Entry, Issued, Joined, Listed, Revoked
from vpn.journal import DamagedError, Journal, parse_journal
from vpn.passphrase import Passphrase
from vpn.pki import Pki, public_key
from vpn.revocation import Reason
from vpn.roll import roll_of


@dataclass(frozen=True, slots=True)
class Gained:
    """What a journal has gained: certificates issued and revoked on the other side, and by the joining itself.

    `moved` names laptops that have another number, and so another address, than the other side gave them.
    """

    issued: tuple[Issued, ...]
    revoked: tuple[Issued, ...]
    moved: tuple[str, ...]


def read_other(text: str, pki: Pki) -> Journal:
    """Return the journal of another clone; InputError unless it is whole and of the same authority."""
    try:
        return parse_journal(text, public_key(pki.authority))
    except DamagedError as error:
        fix = "name the file `journal` of the other fleet.pki, as it was committed there"
        raise InputError(f"the other journal is refused: {error}", fix=fix) from None


def join(pki: Pki, theirs: Journal, now: datetime, passphrase: Passphrase) -> Gained:
    """Enter what another journal tells and ours does not, and sign a list that follows both; raises InputError.

    So it does where there is nothing to join: one of the two holds all of the other.
    """
    with opened_desk(pki, now, passphrase) as desk:
        ours = desk.pki.journal
        _check_apart(ours, theirs)
        check_clock(roll_of(theirs), now)
        entries = (*lacking(ours, theirs, desk.now), Joined(desk.now, _marks_of(theirs, ours)))
        enter(desk, entries)
        return _gained(ours.with_entries(entries), entries, theirs)


def lacking(ours: Journal, theirs: Journal, now: datetime) -> tuple[Entry, ...]:
    """Return the entries by which ours comes to tell what theirs does.

    A laptop whose number is another's here gets one that is free. What one side issued for a name that the other has
    revoked since they parted is revoked, too: who issued it did not know.
    """
    told = ours
    for entry in _told_by(theirs, ours):
        told = told.with_entries((_placed(entry, told),))
    revoked = roll_of(told).revoked
    unknowing = {**_unknowing(ours, theirs), **_unknowing(theirs, ours)}
    more = (Revoked(now, serial, why) for serial, why in unknowing.items() if serial not in revoked)
    return (*told.entries[len(ours.entries) :], *more, *_later_list(ours, theirs))


def _told_by(theirs: Journal, ours: Journal) -> Iterator[Issued | Revoked]:
    """Yield what a journal tells of certificates that another does not."""
    roll = roll_of(ours)
    for entry in theirs.entries:
        match entry:
            case Issued(serial=serial) if serial not in roll.issued:
                yield entry
            case Revoked(serial=serial) if serial not in roll.revoked:
                yield entry


def _marks_of(theirs: Journal, ours: Journal) -> tuple[str, ...]:
    known = frozenset(ours.marks)
    return tuple(mark for mark in theirs.marks if mark not in known)


def _placed(entry: Issued | Revoked, told: Journal) -> Entry:
    """Return an entry with a number for the laptop that no other has: the one it has here, or its own, if it is free.

    Others are all that have had one since it was issued: journals that were apart gave numbers on without its knowing.
    """
    if not isinstance(entry, Issued) or entry.slot is None:
        return entry
    seats = dict(roll_of(told).seats(entry.at))
    wanted = seats.pop(entry.name, entry.slot)
    taken = frozenset(seats.values())
    return replace(entry, slot=wanted if wanted not in taken else next(each for each in count() if each not in taken))


def _unknowing(side: Journal, other: Journal) -> Mapping[int, Reason]:
    """Return what one side issued for names that the other has revoked since the two parted, by serial."""
    issued = roll_of(other).issued
    gone = {issued[each.serial].name: each.reason for each in _told_by(other, side) if isinstance(each, Revoked)}
    mine = (each for each in _told_by(side, other) if isinstance(each, Issued))
    return {each.serial: gone[each.name] for each in mine if each.name in gone}


def _later_list(ours: Journal, theirs: Journal) -> Iterator[Listed]:
    """Yield their last list where its number is above ours: the next is to follow both."""
    mine, other = roll_of(ours).listed, roll_of(theirs).listed
    if mine and other and other.number > mine.number:
        yield other


def _check_apart(ours: Journal, theirs: Journal) -> None:
    """Raise InputError where one journal goes on where the other ended."""
    if theirs.marks[-1] in ours.marks:
        raise InputError("the journal here holds all of the other", fix="`bedplate vpn sync`, if gateways are behind")
    if ours.marks[-1] in theirs.marks:
        fix = "put their fleet.pki in the place of yours, as `git pull` does; leave your keys/ as it is"
        raise InputError("the other journal holds all of the one here, and more", fix=fix)


def _gained(told: Journal, entries: tuple[Entry, ...], theirs: Journal) -> Gained:
    roll, given = roll_of(told), roll_of(theirs).issued
    issued = tuple(each for each in entries if isinstance(each, Issued))
    return Gained(
        issued=issued,
        revoked=tuple(roll.issued[each.serial] for each in entries if isinstance(each, Revoked)),
        moved=tuple(each.name for each in issued if each.slot != given[each.serial].slot),
    )
