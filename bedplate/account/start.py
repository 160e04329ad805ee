"""The start of machines: observe, climb, act, until enough machines are ready."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from bedplate.account.capacity import ScalingGroups
from bedplate.capacity.actions import SetDesired
from bedplate.capacity.climb import Climb, climb
from bedplate.capacity.ends import End, next_end
from bedplate.capacity.observation import Observation

POLL = 5.0
"""Seconds between two observations."""
WAIT = 1800.0
"""Seconds to wait after the last launch: longer than the lifecycle hook that ends a machine which does not report."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for `count` machines in total, and until when, by pool: None is without an end.

    The end of a pool that is not in `until` stays as it is.
    """

    count: int
    person: str
    until: Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Clock:
    """Time in seconds since 1970, and a pause; tests replace both."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """One observation of a start, and what follows from it; the last one is `final`."""

    observation: Observation
    climb: Climb
    final: bool = False
    ends: Mapping[str, End] = field(default_factory=dict)
    """The ends of machines that are scheduled now, by pool."""
    cancelled: Mapping[str, End] = field(default_factory=dict)
    """The ends that this start has cancelled."""

    @property
    def ready(self) -> int:
        """The number of machines that are in service."""
        return sum(machine.ready for machine in self.observation.machines)


def start_machines(groups: ScalingGroups, request: Request, clock: Clock) -> Iterator[Progress]:
    """Yield the progress until enough machines are ready, no rung has more, or the wait is over.

    A start can stop anywhere, and the same request continues it: the end is scheduled before machines are launched.
    """
    tried: dict[str, float] = {}
    ends = _Ends(groups, request)
    deadline = clock.now() + WAIT
    observation = groups.observe(clock.now())
    ends.keep(observation)
    while True:
        decision = climb(observation, request.count, tried)
        final = _is_final(observation, decision, request.count) or clock.now() >= deadline
        yield Progress(observation, decision, final, dict(ends.scheduled), dict(ends.cancelled))
        if final:
            return
        for action in decision.actions:
            if decision.is_raise(action):
                ends.schedule(observation, action)
                tried[action.pool] = clock.now()
                deadline = clock.now() + WAIT
            groups.set_desired(action.pool, action.count)
        clock.sleep(POLL)
        observation = groups.observe(clock.now())


def _is_final(observation: Observation, decision: Climb, count: int) -> bool:
    """Return whether enough machines are ready, or all that can come; failed pools are lowered first."""
    ready = sum(machine.ready for machine in observation.machines)
    is_waiting = decision.actions or decision.trying or ready < len(observation.machines)
    return not decision.actions and (ready >= count or (decision.missing > 0 and not is_waiting))


class _Ends:
    """The ends of the pools of a start."""

    def __init__(self, groups: ScalingGroups, request: Request) -> None:
        self._groups, self._request = groups, request
        self.scheduled: dict[str, End] = {}
        self.cancelled: dict[str, End] = {}

    def keep(self, observation: Observation) -> None:
        """Move the ends of machines that run already, and that the request counts."""
        left = self._request.count
        for pool in observation.pools:
            share = min(pool.desired, left)
            left -= share
            if pool.desired and self._move(pool.name, pool.desired, share):
                self._groups.write_request(pool.name, self._request.person, self.scheduled.get(pool.name))

    def schedule(self, observation: Observation, action: SetDesired) -> None:
        """Schedule the end of machines before they are launched, and record who asked for them."""
        pool = next(pool for pool in observation.pools if pool.name == action.pool)
        self._move(pool.name, pool.desired, action.count)
        self._groups.write_request(pool.name, self._request.person, self.scheduled.get(pool.name))

    def _move(self, pool: str, desired: int, count: int) -> bool:
        """Schedule the end of a pool after a start; return whether it has changed."""
        if pool not in self._request.until:
            return False
        current = self._groups.read_end(pool)
        end = next_end(current, desired, count, self._request.until[pool])
        if end != current:
            self._groups.write_end(pool, end)
        if end:
            self.scheduled[pool] = end
        elif current:
            self.cancelled[pool] = current
        return end != current
