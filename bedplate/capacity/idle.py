"""Which machines of a pool may stop because nobody uses them."""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.capacity.climb import Observation

# A GPU without work reports 0 %; monitoring raises it to 1 or 2 %.
_GPU_PERCENT = 5
# One process that runs half of the time, on a machine of any size. Daemons of a machine without users stay below 0.3.
_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a machine: login sessions, the busiest GPU in percent, and the load average of 15 minutes."""

    sessions: int = 0
    gpu_percent: float = 0.0
    load: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether somebody is logged in, or a program runs."""
        return self.sessions > 0 or self.gpu_percent >= _GPU_PERCENT or self.load >= _LOAD


def idle_since(before: float | None, now: float, usage: Usage) -> float | None:
    """Return the time since which a machine is idle; None if it is in use. `before` is the previous answer."""
    if usage.is_busy:
        return None
    return now if before is None else min(before, now)


def machines_to_stop(observation: Observation, idle: Mapping[str, float], limit: float) -> tuple[str, ...]:
    """Return the machines that are idle for `limit` seconds, longest first; no pool falls below its minimum."""
    over = sorted((since, name) for name, since in idle.items() if observation.time - since >= limit)
    names = []
    for pool in observation.pools:
        ready = {machine.id for machine in observation.machines_of(pool.name) if machine.ready}
        spare = max(0, pool.desired - pool.minimum)
        names += [name for _, name in over if name in ready][:spare]
    return tuple(names)
