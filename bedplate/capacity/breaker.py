"""Circuit breakers: a pool that has failed launches nothing for a while, then one machine as a probe.

A breaker is closed by a success after it opened: a launch, or for machines that fail at their first boot, a new node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bedplate.capacity.observation import FAILURES, NOT_READY, Activity, Machine, Pool

HOLD = 300.0
"""Seconds for which a pool is not tried again after its first failure."""
LONGEST_HOLD = 3600.0
"""The longest time between two probes of a pool that keeps failing."""
PATIENCE = 300.0
"""Seconds without a machine after which a pool has failed, if AWS reports no known failure."""
RECLAIMED = "SpotInterruption"
"""The code of a spot pool of which AWS takes many machines. It is bedplate's own, not EC2's."""

_PROBED = ", also for a probe"
_LATE, _RECLAIMED_SHARE, _RECLAIMED_LEAST = 3, 0.2, 2


@dataclass(frozen=True, slots=True)
class Breaker:
    """The failure of a pool, and the time of the next probe. `code` is None if AWS's text is unknown.

    `probe` is the time of a probe without a result, `closed` that of the success which closed the breaker.
    """

    code: str | None
    cause: str
    opened: float
    until: float
    failures: int = 1
    probe: float | None = None
    closed: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the pool may launch nothing but a probe."""
        return self.closed is None

    def is_probe_due(self, now: float) -> bool:
        """Return whether the pool may launch one machine."""
        return self.is_open and self.probe is None and now >= self.until


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What one observation says about a pool; `late` machines should be nodes, `short_since` it launches nothing.

    `unready` has the launch times of the machines that were late within the last hour, with those that have ended.
    """

    pool: Pool
    machines: tuple[Machine, ...] = ()
    launches: tuple[Activity, ...] = ()
    late: tuple[Machine, ...] = ()
    short_since: float | None = None
    unready: Mapping[str, float] = field(default_factory=dict)

    @property
    def noticed(self) -> tuple[Machine, ...]:
        """The spot machines that AWS will take."""
        return tuple(machine for machine in self.machines if machine.notice is not None)


def next_breaker(breaker: Breaker | None, facts: PoolFacts, now: float) -> Breaker | None:
    """Return the breaker of a pool after one more observation; None if the pool has not failed lately."""
    if breaker and breaker.closed is not None and now - breaker.closed > LONGEST_HOLD:
        breaker = None
    if breaker and breaker.is_open and _has_succeeded(breaker, facts):
        breaker = replace(breaker, closed=now, probe=None)
    if breaker is None or not breaker.is_open or breaker.probe is not None:
        failure = _failure(breaker, facts, now)
        if failure:
            return _opened(breaker, *failure, now)
    return breaker


def launch_failure(pool: Pool, launches: Sequence[Activity], since: float) -> tuple[str, str] | None:
    """Return the code and the cause of the known failure of a pool `since` a time, unless a launch came after it.

    A failure in one zone does not count while AWS may still try another zone.
    """
    success = max((launch.time for launch in launches if launch.ok), default=since)
    known = [
        launch
        for launch in launches
        if not launch.ok and launch.time >= max(success, since) and launch.code in FAILURES
    ]
    failed_zones = {launch.zone for launch in known}
    for launch in known:
        code = str(launch.code)
        failure = FAILURES[code]
        if not (failure.in_zone and launch.zone):
            return code, failure.cause
        if failed_zones >= set(pool.zones):
            return code, f"{failure.cause} in {', '.join(pool.zones)}"
    return None


def _opened(breaker: Breaker | None, code: str | None, cause: str, now: float) -> Breaker:
    failures = breaker.failures + 1 if breaker else 1
    hold = min(LONGEST_HOLD, HOLD * 2 ** min(failures - 1, 8))
    return Breaker(code, cause, now, now + hold, failures)


def _has_succeeded(breaker: Breaker, facts: PoolFacts) -> bool:
    since = breaker.opened if breaker.probe is None else breaker.probe
    machines = [machine for machine in facts.machines if _is_since(machine.launched, breaker)]
    if breaker.code == NOT_READY:
        return any(machine.node for machine in machines)
    is_launching = bool(machines) or any(launch.ok and _is_since(launch.time, breaker) for launch in facts.launches)
    return is_launching and launch_failure(facts.pool, facts.launches, since) is None


def _is_since(time: float, breaker: Breaker) -> bool:
    return time > breaker.opened if breaker.probe is None else time >= breaker.probe


def _failure(breaker: Breaker | None, facts: PoolFacts, now: float) -> tuple[str | None, str] | None:
    """Return the code and the cause of a failure that the breaker does not know yet."""
    since = now - HOLD
    if breaker:
        since = breaker.probe or max(since, breaker.closed or 0.0)
    if failure := launch_failure(facts.pool, facts.launches, since):
        return failure
    if breaker and breaker.probe is not None:
        return _failed_probe(breaker, facts, now)
    if len(facts.unready) >= _LATE:
        return NOT_READY, f"{len(facts.unready)} machines did not become nodes"
    if taken := _reclaimed(facts):
        return RECLAIMED, f"AWS takes {taken} of its machines"
    if facts.short_since is not None and now - facts.short_since >= PATIENCE:
        return None, f"no machine after {PATIENCE / 60:.0f} minutes"
    return None


def _failed_probe(breaker: Breaker, facts: PoolFacts, now: float) -> tuple[str | None, str] | None:
    if any(_is_since(machine.launched, breaker) for machine in facts.late):
        return NOT_READY, "the probe did not become a node"
    is_launched = any(_is_since(machine.launched, breaker) for machine in facts.machines)
    if not is_launched and breaker.probe is not None and now - breaker.probe >= PATIENCE:
        return breaker.code, f"{breaker.cause.removesuffix(_PROBED)}{_PROBED}"
    return None


def _reclaimed(facts: PoolFacts) -> int:
    """Return how many machines AWS takes, if they are a large part of the pool."""
    taken = len(facts.noticed)
    return taken if taken >= max(_RECLAIMED_LEAST, _RECLAIMED_SHARE * len(facts.machines)) else 0
