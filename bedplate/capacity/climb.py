"""The climb over the ladder of a group: which pool launches the missing machines, and why.

Desired capacity is always set to a number that follows from an observation. The same observation gives the same
actions, so a lost reply, a second operator or a repeated command cannot launch a machine twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bedplate.capacity.failures import FAILURES

HOLD = 300.0
"""Seconds for which a pool is not tried again after a failure."""
PATIENCE = 300.0
"""Seconds without a machine after which a pool has failed, if AWS reports no known failure."""


@dataclass(frozen=True, slots=True)
class Pool:
    """An Auto Scaling group, one rung of a ladder in one region."""

    name: str
    zones: tuple[str, ...]
    minimum: int
    maximum: int
    desired: int


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance of a pool that is not terminating; it is `ready` when it is in service."""

    id: str
    pool: str
    zone: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Activity:
    """A launch at a `time` in seconds; a failed one has AWS's text and a `code`, or None if its text is unknown."""

    pool: str
    time: float
    ok: bool
    code: str | None = None
    zone: str | None = None
    machine: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """The pools of a group in ladder order, their machines, and their launches of the last hours."""

    time: float
    pools: tuple[Pool, ...]
    machines: tuple[Machine, ...] = ()
    activities: tuple[Activity, ...] = ()

    def machines_of(self, pool: str) -> tuple[Machine, ...]:
        """Return the machines of a pool."""
        return tuple(machine for machine in self.machines if machine.pool == pool)


class RungStatus(StrEnum):
    """Whether a rung can take more machines."""

    OPEN = "open"
    FULL = "full"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rung:
    """A pool, its machines, and whether it can take more; `reason` explains a full or failed rung."""

    pool: Pool
    machines: int
    status: RungStatus
    reason: str = ""
    code: str | None = None

    @property
    def floor(self) -> int:
        """The desired capacity that ends no machine and starts none."""
        return max(self.pool.minimum, self.machines)

    @property
    def expected(self) -> int:
        """The machines that the pool has or will have: a failed pool gets no more."""
        return self.machines if self.status is RungStatus.FAILED else max(self.pool.desired, self.machines)

    @property
    def room(self) -> int:
        """The number of machines that the pool can still launch."""
        return max(0, self.pool.maximum - self.expected) if self.status is RungStatus.OPEN else 0


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Set the desired capacity of a pool; it `raises` it, or lowers it so that AWS stops its attempts."""

    pool: str
    count: int
    raises: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Climb:
    """The next actions and the state of every rung; `missing` machines have no place on any rung."""

    actions: tuple[SetDesired, ...]
    rungs: tuple[Rung, ...]
    missing: int

    @property
    def trying(self) -> Rung | None:
        """The first rung on which AWS is launching machines."""
        waiting = (rung for rung in self.rungs if rung.status is not RungStatus.FAILED)
        return next((rung for rung in waiting if rung.expected > rung.machines), None)


def climb(observation: Observation, count: int, tried: Mapping[str, float]) -> Climb:
    """Return the next actions towards `count` machines in all pools together.

    `tried` has the time at which each pool was last raised. Before the next rung is raised, the failed ones are lowered
    and observed again: otherwise AWS could still launch there.
    """
    rungs = tuple(_rung(observation, pool, tried.get(pool.name)) for pool in observation.pools)
    missing = max(0, count - sum(rung.expected for rung in rungs))
    actions = tuple(_lower(rungs)) or tuple(_raise(rungs, missing))
    return Climb(actions, rungs, max(0, missing - sum(rung.room for rung in rungs)))


def _lower(rungs: Sequence[Rung]) -> Iterator[SetDesired]:
    for rung in rungs:
        if rung.status is RungStatus.FAILED and rung.pool.desired > rung.floor:
            yield SetDesired(rung.pool.name, rung.floor, raises=False, reason=rung.reason)


def _raise(rungs: Sequence[Rung], missing: int) -> Iterator[SetDesired]:
    passed: list[str] = []
    for rung in rungs:
        share = min(rung.room, missing)
        if share:
            reason = "; ".join(passed) or "the first rung of the ladder"
            yield SetDesired(rung.pool.name, rung.expected + share, raises=True, reason=reason)
            missing -= share
        passed.append(f"{rung.pool.name}: {rung.reason or f'at its maximum of {rung.pool.maximum}'}")


def _rung(observation: Observation, pool: Pool, tried: float | None) -> Rung:
    machines = len(observation.machines_of(pool.name))
    code, reason = _failure(observation, pool, tried)
    if reason:
        return Rung(pool, machines, RungStatus.FAILED, reason, code)
    if max(machines, pool.desired) >= pool.maximum:
        return Rung(pool, machines, RungStatus.FULL, f"at its maximum of {pool.maximum}")
    return Rung(pool, machines, RungStatus.OPEN)


def _failure(observation: Observation, pool: Pool, tried: float | None) -> tuple[str | None, str]:
    """Return the code and the reason for which a pool is not tried; an empty reason if it is."""
    launches = [activity for activity in observation.activities if activity.pool == pool.name]
    success = max((activity.time for activity in launches if activity.ok), default=0.0)
    recent = [
        activity
        for activity in launches
        if not activity.ok and activity.time >= success and observation.time - activity.time < HOLD
    ]
    known = [activity for activity in recent if activity.code in FAILURES]
    # A failure in one zone does not count while AWS may still try another zone.
    failed_zones = {activity.zone for activity in known}
    for activity in known:
        failure = FAILURES[str(activity.code)]
        if not (failure.in_zone and activity.zone):
            return activity.code, failure.cause
        if failed_zones >= set(pool.zones):
            return activity.code, f"{failure.cause} in {', '.join(pool.zones)}"
    return None, _time_out(observation, pool, tried, success)


def _time_out(observation: Observation, pool: Pool, tried: float | None, success: float) -> str:
    """Return a reason if a pool has launched nothing for `PATIENCE` seconds, until it may be tried again."""
    if tried is None:
        return ""
    waited = observation.time - max(tried, success)
    is_short = len(observation.machines_of(pool.name)) < pool.desired
    if PATIENCE <= waited < PATIENCE + HOLD and (is_short or success < tried):
        return f"no machine after {PATIENCE / 60:.0f} minutes"
    return ""
