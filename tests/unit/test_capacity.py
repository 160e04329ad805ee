"""The search over a ladder, typed failures, and ends of machines, as pure decisions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.capacity.ladder import HOLD, PATIENCE, LadderDecision, next_actions
from bedplate.capacity.observation import NOT_READY, Activity, Machine, Observation, Pool, failure_code
from bedplate.capacity.shrink import End, after_stop, next_end, parse_duration
from bedplate.errors import InputError

WEST = Pool("west", "box", 0, "west", ("west-a", "west-b"), 0, 4, 0)
EAST = Pool("east", "box", 1, "east", ("east-a",), 0, 4, 0)
NOW = 10_000.0


def _steps(decision: LadderDecision) -> list[tuple[str, int]]:
    return [(action.pool, action.count) for action in decision.actions]


def _failed(pool: str, code: str | None, zone: str | None = None, ago: float = 10) -> Activity:
    return Activity("", pool, NOW - ago, ok=False, code=code, zone=zone)


def _climb(pools: Sequence[Pool], *activities: Activity, count: int = 1, tried: float | None = None) -> LadderDecision:
    times = {} if tried is None else {pools[0].name: NOW - tried}
    return next_actions(Observation(NOW, pools=tuple(pools), activities=activities), count, times)


def test_the_first_rung_with_room_is_raised() -> None:
    """A rung at its maximum is passed, and the reason of the next rung says so."""
    assert _steps(_climb((WEST, EAST))) == [("west", 1)]
    (first, second) = _climb((WEST, EAST), count=6).actions
    assert [(first.pool, first.count), (second.pool, second.count)] == [("west", 4), ("east", 2)]
    assert "west: at its maximum of 4" in second.reason


def test_machines_on_their_way_count() -> None:
    """Desired capacity that AWS has not reached yet is not asked for again."""
    on_way = replace(WEST, desired=1)
    booting = Machine("i-1", "west", "west-a", 0.0, ready=False)

    assert _climb((on_way, EAST)).actions == ()
    assert next_actions(Observation(NOW, machines=(booting,), pools=(on_way, EAST)), 1, {}).actions == ()
    assert _climb((replace(WEST, desired=3), EAST)).actions == ()


def test_a_silent_region_is_passed_and_keeps_what_it_was_asked_for() -> None:
    """A machine that it was asked for may have come: it is not launched again elsewhere."""
    silent = replace(WEST, desired=1, silent=True)
    assert _steps(_climb((silent, EAST))) == []
    assert _steps(_climb((silent, EAST), count=2)) == [("east", 1)]
    assert "west does not answer" in _climb((silent, EAST), count=2).actions[0].reason


@pytest.mark.parametrize(
    ("failures", "is_failed"),
    [
        ([_failed("west", "InsufficientInstanceCapacity", "west-a")], False),
        ([_failed("west", "InsufficientInstanceCapacity", zone) for zone in WEST.zones], True),
        ([_failed("west", "InsufficientInstanceCapacity")], True),
        ([_failed("west", "VcpuLimitExceeded", "west-a")], True),
        ([_failed("west", "MaxSpotInstanceCountExceeded")], True),
        ([_failed("west", "ReservationCapacityExceeded", "west-a")], True),
        ([_failed("west", "VcpuLimitExceeded", ago=HOLD + 1)], False),
        ([_failed("west", "VcpuLimitExceeded", ago=60), Activity("", "west", NOW - 30, ok=True)], False),
        ([_failed("west", None, "west-a")], False),
    ],
    ids=["one zone", "all zones", "no zone", "quota", "spot", "reservation", "old", "before a success", "unknown"],
)
def test_a_typed_failure_fails_a_rung(failures: list[Activity], *, is_failed: bool) -> None:
    """One of a zone counts when all zones have failed, one of a quota at once, an unknown one not by itself."""
    assert _steps(_climb((replace(WEST, desired=1), EAST), *failures)) == ([("west", 0)] if is_failed else [])


def _seen(desired: int, machine: Machine, failure: Activity) -> Observation:
    pools = (replace(WEST, desired=desired), EAST)
    return Observation(NOW, machines=(machine,), pools=pools, activities=(failure,))


def test_a_failed_rung_is_lowered_before_the_next_is_raised() -> None:
    """The next decision raises the next rung, with the reason; machines that the failed rung has stay."""
    failure = _failed("west", "VcpuLimitExceeded")
    running = Machine("i-1", "west", "west-a", 0.0, ready=True)
    first = next_actions(_seen(3, running, failure), 3, {})
    second = next_actions(_seen(1, running, failure), 3, {})

    assert _steps(first) == [("west", 1)]
    assert _steps(second) == [("east", 2)]
    assert second.actions[0].reason == "west: the vCPU quota is used up"


@pytest.mark.parametrize(
    ("tried", "steps"), [(PATIENCE - 1, []), (PATIENCE, [("west", 0)])], ids=["still in time", "over"]
)
def test_a_rung_without_known_failures_gets_a_limited_time(tried: float, steps: list[tuple[str, int]]) -> None:
    """The same is true if AWS reports an unknown failure, or nothing at all."""
    pools = (replace(WEST, desired=1), EAST)

    assert _steps(_climb(pools, tried=tried)) == _steps(_climb(pools, _failed("west", None), tried=tried)) == steps


def test_a_rung_that_timed_out_is_not_tried_again_at_once() -> None:
    """After it was lowered, the next rung is raised; it is open again after the hold."""
    assert _steps(_climb((WEST, EAST), tried=PATIENCE + 5)) == [("east", 1)]
    assert _steps(_climb((WEST, EAST), tried=PATIENCE + HOLD)) == [("west", 1)]


def test_a_ladder_without_room_says_how_many_machines_are_missing() -> None:
    """A failed rung is not lowered below its minimum."""
    held = replace(WEST, min=1, desired=1)
    decision = _climb((held,), _failed("west", "VcpuLimitExceeded"), count=3)

    assert (decision.actions, decision.missing, decision.rungs[0].reason) == ((), 3, "the vCPU quota is used up")


@dataclass
class _World:
    """Pools that launch later, or fail, and whose replies get lost."""

    fails: dict[str, str | None]
    desired: dict[str, int] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    time: float = NOW
    launches: int = 0

    def observe(self) -> Observation:
        pools = tuple(replace(pool, desired=self.desired.get(pool.name, 0)) for pool in (WEST, EAST))
        return Observation(self.time, (), (), tuple(self.machines), pools, tuple(self.activities))

    def advance(self, launching: bool) -> None:  # noqa: FBT001  drawn by hypothesis
        self.time += 10
        for pool in (WEST, EAST):
            short = self.desired.get(pool.name, 0) - len(
                [machine for machine in self.machines if machine.pool == pool.name]
            )
            if short <= 0 or not launching:
                continue
            if pool.name in self.fails:
                self.activities.append(Activity("", pool.name, self.time, ok=False, code=self.fails[pool.name]))
            else:
                self.launches += short
                self.activities.append(Activity("", pool.name, self.time, ok=True))
                ids = (f"i-{self.launches}-{n}" for n in range(short))
                self.machines += [Machine(name, pool.name, pool.zones[0], 0.0, ready=True) for name in ids]


@given(
    count=st.integers(1, 8),
    fails=st.dictionaries(st.sampled_from(["west", "east"]), st.sampled_from(["VcpuLimitExceeded", None])),
    rounds=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80),
)
def test_no_machine_is_launched_twice(
    count: int, fails: dict[str, str | None], rounds: list[tuple[bool, bool]]
) -> None:
    """Whatever fails, is late, or is done without a reply: at most `count` machines, within every maximum."""
    world = _World(fails)
    tried: dict[str, float] = {}
    for reply, launching in rounds:
        decision = next_actions(world.observe(), count, tried)
        for action in decision.actions:
            world.desired[action.pool] = action.count
            if reply and decision.is_raise(action):
                tried[action.pool] = world.time
            if not reply:  # the command ends with an error, and is repeated
                tried = {}
                break
        world.advance(launching)
        assert all(amount <= WEST.max for amount in world.desired.values())
    assert world.launches <= count


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            (
                "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested "
                "(us-west-2a). Launching EC2 instance failed."
            ),
            "InsufficientInstanceCapacity",
        ),
        (
            (
                "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity. Launching EC2 "
                "instance failed."
            ),
            "UnfulfillableCapacity",
        ),
        ("Max spot instance count exceeded. Launching EC2 instance failed.", "MaxSpotInstanceCountExceeded"),
        (
            (
                "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance "
                "bucket that the specified instance type belongs to."
            ),
            "VcpuLimitExceeded",
        ),
        (
            "The requested reservation does not have sufficient compatible and available capacity for this request.",
            "ReservationCapacityExceeded",
        ),
        (
            (
                "Instance failed to complete user's Lifecycle Action: Lifecycle Action with token e85e was abandoned: "
                "Lifecycle Action Completed with ABANDON Result"
            ),
            NOT_READY,
        ),
        ("A text that no table has. Launching EC2 instance failed.", None),
    ],
)
def test_texts_of_scaling_activities_become_codes(text: str, code: str | None) -> None:
    """A code in the text wins; an unknown text has none."""
    assert failure_code(text) == code


SIX, NINE = (datetime(2026, 11, 23, hour, tzinfo=UTC) for hour in (18, 21))


@pytest.mark.parametrize(
    ("current", "desired", "count", "until", "expected"),
    [
        (None, 0, 1, SIX, End(SIX, 0)),
        (None, 1, 2, SIX, End(SIX, 1)),
        (None, 1, 1, SIX, None),
        (End(NINE, 0), 1, 1, SIX, End(NINE, 0)),
        (End(SIX, 0), 1, 2, NINE, End(NINE, 0)),
        (None, 0, 1, None, None),
        (End(SIX, 0), 2, 1, None, End(SIX, 1)),
        (End(SIX, 0), 1, 1, None, None),
        (End(SIX, 0), 1, 2, None, None),
    ],
    ids=["first", "others run", "nothing started", "earlier", "later", "no end", "one stays", "all stay", "more stay"],
)
def test_the_latest_end_counts(
    current: End | None, desired: int, count: int, until: datetime | None, expected: End | None
) -> None:
    """Machines that somebody started without an end stay, and a start without an end removes that of its machines."""
    assert next_end(current, desired, count, until) == expected


def test_an_end_never_raises_a_pool() -> None:
    """When machines were stopped by hand, an end that would launch one again is cancelled."""
    assert after_stop(End(SIX, 1), 2) == End(SIX, 1)
    assert after_stop(End(SIX, 1), 1) is None


@pytest.mark.parametrize(
    ("text", "fix"), [("8", "write 8h"), ("soon", "write a number"), ("1m", "10m"), ("99d", "30d")]
)
def test_an_invalid_duration_is_refused(text: str, fix: str) -> None:
    """The fix names a duration near the input."""
    with pytest.raises(InputError) as refused:
        parse_duration(text)
    assert fix in refused.value.fix
    assert parse_duration("8h") == timedelta(hours=8)
