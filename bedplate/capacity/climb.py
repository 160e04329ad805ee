"""The climb over the ladder of a group: which pool launches the missing machines, and why.

Desired capacity is always set to a number that follows from an observation. The same observation gives the same
actions, so a lost reply, a second operator or a repeated command cannot launch a machine twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bedplate.capacity.actions import SetDesired
from bedplate.capacity.breaker import HOLD, PATIENCE, launch_failure
from bedplate.capacity.observation import Observation, Pool
from bedplate.capacity.rungs import Rung, RungStatus


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

    def is_raise(self, action: SetDesired) -> bool:
        """Return whether an action raises its pool; else it lowers it, so that AWS stops its attempts."""
        return any(rung.pool.name == action.pool and action.count > rung.pool.desired for rung in self.rungs)


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
            yield SetDesired(rung.pool.name, rung.floor, rung.reason)


def _raise(rungs: Sequence[Rung], missing: int) -> Iterator[SetDesired]:
    passed: list[str] = []
    for rung in rungs:
        share = min(rung.room, missing)
        if share:
            reason = "; ".join(passed) or "the first rung of the ladder"
            yield SetDesired(rung.pool.name, rung.expected + share, reason)
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
    if failure := launch_failure(pool, launches, observation.time - HOLD):
        return failure
    success = max((activity.time for activity in launches if activity.ok), default=0.0)
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
