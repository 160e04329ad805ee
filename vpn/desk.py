"""Where the VPN's keys are changed: the folder opened anew under the hold, with the authority's key at hand.

Says nothing of what is changed. The journal is written before anything else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from bedplate.errors import MachineError
from bedplate.hold import held
from vpn.certificate import Issuer
from vpn.entry import Entry, Listed, Revoked
from vpn.lists import current_list, root_texts
from vpn.passphrase import Passphrase
from vpn.pki import Pki, opened_issuer, reopened
from vpn.revocation import end_of, list_text, signed_list
from vpn.roll import Roll, roll_of


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one change is made: what the folder holds under the hold, and the authority's key."""

    pki: Pki
    issuer: Issuer
    lock: bytes | None
    now: datetime


@contextmanager
def opened_desk(pki: Pki, now: datetime, passphrase: Passphrase) -> Iterator[Desk]:
    """Open the folder again under the lock, with the authority's key; HeldError while another process signs.

    The root's list is checked here: nothing is signed next to one that could not be sent.
    """
    with held(pki.folder.journal):
        fresh = reopened(pki)
        check_clock(fresh.roll, now)
        root_texts(fresh, now)
        issuer, lock = opened_issuer(fresh, passphrase)
        yield Desk(fresh, issuer, lock, now.replace(microsecond=0))


def enter(desk: Desk, entries: Sequence[Entry]) -> None:
    """Write the journal with more entries, and a new list where the one there does not tell of them or is due."""
    folder, journal = desk.pki.folder, desk.pki.journal.with_entries(entries)
    lists = {}
    is_revoking = any(isinstance(entry, Revoked) for entry in entries)
    if is_revoking or current_list(desk.pki, desk.now) is None:
        roll = roll_of(journal)
        number = roll.listed.number + 1 if roll.listed else 1
        made = signed_list(desk.issuer, roll.revocations(), number, desk.now)
        journal = journal.with_entries((Listed(desk.now, number, end_of(made)),))
        lists = {folder.lists: list_text(made)}
    sealed = journal.text(desk.issuer.key)
    folder.write({folder.journal: sealed, folder.copy: sealed, **lists})


def check_clock(roll: Roll, now: datetime) -> None:
    """Raise MachineError where the clock is behind what was signed already."""
    if now < roll.newest:
        raise MachineError(
            f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC, and the journal's last entry is of"
            f" {roll.newest:%Y-%m-%d %H:%M}",
            fix="set the clock: what is signed now would begin before what was signed last; if it was ahead when that"
            ' was signed, docs/vpn-keys.md, "The clock was ahead"',
        )
