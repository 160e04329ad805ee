"""What happens to a pool by the clock."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.pool import PoolPlan
from bedplate.plan.timetable import Sizes, timetable, weekdays
from tests.support.sketch import group, sketch

ENDS = datetime(2099, 3, 1, 11, 30, tzinfo=UTC)


def pool(**parts: Any) -> PoolPlan:  # noqa: ANN401  raw values
    """Return the one pool of a group."""
    fleet = sketch(groups={"gpu": group({"region": "us-west-2"}, **parts)})
    return plan_fleet(fleet, Record({}), load_catalog()).pools[0]


@pytest.mark.parametrize(
    ("words", "days"),
    [
        ("MON-FRI", (1, 2, 3, 4, 5)),
        ("FRI-MON", (0, 1, 5, 6)),
        ("SUN", (0,)),
        ("THU,MON", (1, 4)),
        ("SUN-SAT", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_days_are_counted_as_cron_does(words: str, days: tuple[int, ...]) -> None:
    """From Sunday; a range over the weekend is a list."""
    assert weekdays(words) == days


def test_most_pools_know_no_clock() -> None:
    """Without hours, block or last day nothing happens, and `permanent` says just that."""
    assert timetable(pool()) == ()
    assert timetable(pool(expires="permanent")) == ()


def test_a_morning_brings_back_the_minimum() -> None:
    """An evening ends all machines; how many there may be stays, for somebody who works late."""
    start, stop = timetable(pool(schedule={"start": "07:00", "stop": "20:00"}))

    assert (start.name, start.sizes, start.cron) == ("start", Sizes(min=1), "0 7 * * 1,2,3,4,5")
    assert (stop.name, stop.sizes, stop.cron) == ("stop", Sizes(min=0, desired=0), "0 20 * * *")


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("p5.48xlarge", datetime(2099, 3, 1, 10, 30, tzinfo=UTC)),
        ("p6e-gb200.36xlarge", datetime(2099, 3, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_block_is_left_half_an_hour_before_aws_takes_it(kind: str, at: datetime) -> None:
    """AWS takes machines 30 minutes before the block's end, those of UltraServers 60."""
    plain = pool()
    block = replace(plain, offer=replace(plain.offer, types=(kind,), ends=ENDS))

    (action,) = timetable(block)

    assert (action.name, action.at, action.sizes) == ("end", at, Sizes(0, 0, 0))


def test_an_expired_group_keeps_its_maximum() -> None:
    """Min and desired become 0. A later date works again: Pulumi would not raise a maximum that AWS has lowered."""
    (action,) = timetable(pool(expires="2099-12-31"))

    assert (action.name, action.sizes) == ("expire", Sizes(min=0, desired=0))
    assert action.at == datetime(2100, 1, 1, tzinfo=UTC)


def test_the_earliest_end_ends_the_daily_hours() -> None:
    """A morning after it would ask for machines that nobody wants."""
    plain = pool(expires="2099-12-31", schedule={"start": "07:00", "stop": "20:00"})
    both = replace(plain, offer=replace(plain.offer, ends=ENDS))

    untils = {action.name: action.until for action in timetable(both)}

    assert untils == {
        "start": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "stop": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "end": None,
        "expire": None,
    }
