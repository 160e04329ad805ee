"""When a pool changes size by the clock: in the morning, in the evening, and when its machines are no longer wanted.

It says what is to happen and when; nothing here reads a clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from bedplate.plan.pool import PoolPlan
from bedplate.spec.day import PERMANENT
from bedplate.spec.schedule import Schedule

_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# AWS ends the machines of a capacity block half an hour before the block does, those of UltraServers a whole hour.
# Source: EC2 user guide, "Capacity Blocks for ML", read 2026-11.
_LEAD, _ULTRA_LEAD = timedelta(hours=1), timedelta(minutes=90)
_ULTRA_FAMILIES = ("p6e-gb200", "p6e-gb300")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a group's sizes become; None leaves one as it is."""

    min: int | None = None
    max: int | None = None
    desired: int | None = None


# The maximum stays: Pulumi would not raise one that AWS has set to 0.
_EMPTY = Sizes(min=0, desired=0)
# A capacity block that has ended never has machines again.
_OVER = Sizes(min=0, max=0, desired=0)


@dataclass(frozen=True, slots=True)
class Action:
    """A change of size: once `at` a moment, or again and again by `cron` in a time zone, `until` a moment if any."""

    name: str
    sizes: Sizes
    at: datetime | None = None
    cron: str | None = None
    zone: str | None = None
    until: datetime | None = None


def timetable(pool: PoolPlan) -> tuple[Action, ...]:
    """Return what happens to a pool by the clock, the daily first; it is over when the pool is emptied for good."""
    last = tuple(_last(pool))
    until = min((action.at for action in last if action.at is not None), default=None)
    schedule = pool.tenure.schedule
    return (*(_daily(pool, schedule, until) if schedule else ()), *last)


def _daily(pool: PoolPlan, schedule: Schedule, until: datetime | None) -> Iterator[Action]:
    """Yield a morning and an evening; the evening is every day's, also of a day on which somebody came by hand."""
    morning, evening = Sizes(min=pool.min), _EMPTY
    days = ",".join(str(number) for number in weekdays(schedule.days))
    yield Action("start", morning, cron=_cron(schedule.start, days), zone=schedule.zone, until=until)
    yield Action("stop", evening, cron=_cron(schedule.stop, "*"), zone=schedule.zone, until=until)


def _last(pool: PoolPlan) -> Iterator[Action]:
    if pool.offer.ends is not None:
        yield Action("end", _OVER, at=pool.offer.ends - _lead(pool))
    expires = pool.tenure.expires
    if expires is not None and expires != PERMANENT:
        midnight = datetime.combine(date.fromisoformat(expires), time(), UTC)
        yield Action("expire", _EMPTY, at=midnight + timedelta(days=1))


def _lead(pool: PoolPlan) -> timedelta:
    is_ultra = any(name.startswith(_ULTRA_FAMILIES) for name in pool.types)
    return _ULTRA_LEAD if is_ultra else _LEAD


def weekdays(words: str) -> tuple[int, ...]:
    """Return the days of `MON-FRI` or `MON,THU` as cron counts them, 0 being Sunday; a range may go over Sunday."""
    first, _, last = words.partition("-")
    if not last:
        return tuple(sorted({_DAYS.index(word) for word in words.split(",")}))
    start = _DAYS.index(first)
    return tuple(sorted((start + step) % 7 for step in range((_DAYS.index(last) - start) % 7 + 1)))


def _cron(clock: str, days: str) -> str:
    hour, minute = (int(part) for part in clock.split(":"))
    return f"{minute} {hour} * * {days}"
