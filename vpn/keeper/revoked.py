"""The list of revoked certificates that a gateway goes by, and the one that is to take its place."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .certificate import check_issuer, crl_end, crl_number, crl_text
from .place import Place
from .text_file import fill
from .trouble import Refusal

_SERIAL = re.compile(r"^ +Serial Number: ([0-9A-F]+)$", re.MULTILINE)


@contextmanager
def fresh_list(place: Place, text: str, trusted: Path) -> Iterator[Path]:
    """Give the file of a new list, judged and not yet in force.

    Raises Refusal for a list that is over, older than the one in force, or not signed by the authority in `trusted`.
    """
    fresh = place.settings / ".crl.new"
    try:
        fill(fresh, text)
        _check(place.crl, fresh, trusted)
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def put_list(place: Place, fresh: Path) -> int:
    """Put a list in force, and return its number."""
    if place.crl.exists():
        # OpenVPN reads it anew when its size or its second has changed.
        later = max(int(time.time()), int(place.crl.stat().st_mtime) + 1)
        os.utime(fresh, (later, later))
    fresh.replace(place.crl)
    return crl_number(place.crl)


def serials(crl: Path) -> frozenset[int]:
    """Return the serials that a list names; none for a list that is not there, or cannot be read."""
    try:
        return frozenset(int(each, 16) for each in _SERIAL.findall(crl_text(crl)))
    except Refusal:
        return frozenset()


def _check(old: Path, fresh: Path, trusted: Path) -> None:
    check_issuer(fresh, trusted)
    number, end = crl_number(fresh), crl_end(fresh)
    if end <= time.time():
        raise Refusal(f"the list of revoked certificates ended on {time.strftime('%d %B %Y', time.gmtime(end))}")
    before = _number_under(old, trusted)
    if number < before:
        raise Refusal(f"list {number} of revoked certificates is older than the one in force, {before}")
    if number == before and fresh.read_bytes() != old.read_bytes():
        raise Refusal(
            f"two lists of revoked certificates have the number {number}, the one in force and the one that was sent:"
            " two have signed apart. `bedplate vpn join`, then `bedplate vpn sync`"
        )


def _number_under(old: Path, trusted: Path) -> int:
    """Return the number of the list in force; 0 where it is no list, or of an authority that another took over from."""
    try:
        check_issuer(old, trusted)
        return crl_number(old)
    except Refusal:
        return 0
