"""The day on which a file is checked: the one clock that a check depends on. Nothing else here reads a clock."""

import os
from datetime import UTC, date, datetime

from bedplate.errors import InputError

# How builds are told to act as of a moment: https://reproducible-builds.org/specs/source-date-epoch/, read 2026-11.
EPOCH = "SOURCE_DATE_EPOCH"


def today() -> date:
    """Return the day in UTC, or that of SOURCE_DATE_EPOCH where it is set; InputError when that is no moment."""
    told = os.environ.get(EPOCH)
    if told is None:
        return datetime.now(UTC).date()
    try:
        return datetime.fromtimestamp(int(told), UTC).date()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{EPOCH} is no number of seconds since 1970", fix=f"unset {EPOCH}") from None
