"""The end of machines that somebody started for a limited time: one for each pool, a scheduled action in AWS.

At that time AWS lowers the desired capacity of the pool; no daemon is needed.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from bedplate.errors import InputError
from bedplate.spec.text import seconds_of

REQUESTED_BY, UNTIL, PAUSED = "bedplate:requested-by", "bedplate:until", "bedplate:paused"
"""Tags of an Auto Scaling group: who last started machines in it, and until when; who has paused its controller.

The stacks ignore them.
"""

_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class End:
    """The time at which a pool's desired capacity becomes `floor`."""

    until: datetime
    floor: int


def next_end(current: End | None, desired: int, count: int, until: datetime | None) -> End | None:
    """Return the end of a pool after a start of `count` machines in it, `until` a time or without one.

    The latest end counts for all. Machines that somebody started without an end are not ended.
    """
    if until is not None:
        if current:
            return End(max(current.until, until), current.floor)
        return End(until, desired) if count > desired else None
    if current is None or count >= desired:
        return None
    return End(current.until, max(current.floor, count))


def after_stop(current: End | None, desired: int) -> End | None:
    """Return the end of a pool whose desired capacity was lowered by hand: an end never raises it again."""
    return current if current and current.floor < desired else None


def parse_duration(text: str) -> timedelta:
    """Return a duration such as 30m, 8h or 2d; InputError for any other text, and for less than 10 minutes."""
    match = re.fullmatch(r"[0-9]{1,4}[mhd]", text.strip().lower())
    if match is None:
        number = re.match(r"[0-9]{1,4}", text.strip())
        fix = f"write {number[0]}h" if number else "write a number and m, h or d"
        raise InputError(f"{text!r} is not a duration", fix=fix)
    duration = timedelta(seconds=seconds_of(match[0]))
    if not _SHORTEST <= duration <= _LONGEST:
        nearest = "10m" if duration < _SHORTEST else "30d"
        raise InputError(f"--for {text}: must be from 10 minutes to 30 days", fix=f"write {nearest}")
    return duration
