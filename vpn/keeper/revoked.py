"""The list of revoked certificates that a gateway goes by, and the one that is to take its place."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .certificate import RevokedList, read_list
from .place import Place
from .text_file import fill
from .trouble import Refusal

# What a gateway goes by that has no list, or one of an authority that another took over from.
_NO_LIST = RevokedList(0, 0, 0, frozenset())


def list_in_force(place: Place, trusted: Path) -> RevokedList:
    """Return what the list in force says, as far as the authority in `trusted` signed it."""
    try:
        return read_list(place.crl, trusted)
    except Refusal:
        return _NO_LIST


@contextmanager
def fresh_list(place: Place, text: str, trusted: Path, before: RevokedList) -> Iterator[RevokedList]:
    """Give what a new list says, judged and not yet in force: `put_list` puts it there.

    Raises Refusal for a list that is over or has not begun, older than the one before, or not signed by the authority
    in `trusted`.
    """
    fresh = fresh_file(place)
    try:
        fill(fresh, text)
        told = read_list(fresh, trusted)
        _check(place, told, before)
        yield told
    finally:
        fresh.unlink(missing_ok=True)


def put_list(place: Place) -> None:
    """Put in force the list that was judged."""
    if place.crl.exists():
        # OpenVPN reads it anew when its size or its second has changed.
        later = max(int(time.time()), int(place.crl.stat().st_mtime) + 1)
        os.utime(fresh_file(place), (later, later))
    fresh_file(place).replace(place.crl)


def fresh_file(place: Place) -> Path:
    """Return the path of a list that is not yet in force."""
    return place.settings / ".crl.new"


def _check(place: Place, told: RevokedList, before: RevokedList) -> None:
    now = time.time()
    if told.end <= now:
        raise Refusal(f"the list of revoked certificates ended on {_day(told.end)}")
    if told.begin > now:
        # With such a list OpenVPN would let in nobody, until that day.
        raise Refusal(
            f"the list of revoked certificates begins on {_day(told.begin)}, and here it is {_day(now)}: set the clock"
            ' that is wrong, this gateway\'s or that of who signs (docs/vpn-keys.md, "The clock was ahead")'
        )
    if told.number < before.number:
        raise Refusal(f"list {told.number} of revoked certificates is older than the one in force, {before.number}")
    if told.number == before.number and fresh_file(place).read_bytes() != place.crl.read_bytes():
        raise Refusal(
            f"two different lists of revoked certificates have the number {told.number}: the one in force was signed in"
            " another copy of fleet.pki. Get that copy (git pull), then `bedplate vpn sync`"
        )


def _day(moment: float) -> str:
    return time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(moment))
