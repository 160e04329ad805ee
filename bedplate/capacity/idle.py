"""The end of unused machines for people.

Such a machine reports logins, and whether its CPUs or GPUs work. Without a recent report it never ends.
"""

from collections.abc import Iterator
from dataclasses import replace

from bedplate.capacity.actions import Terminate
from bedplate.capacity.observation import Machine, Observation, Pool

STALE = 900.0
"""Seconds for which a report is valid; a machine writes one every five minutes."""
_CLOCKS = 60.0  # by which two clocks may differ


def split_people(observation: Observation) -> tuple[Observation, Observation]:
    """Return two observations: pools for people with their machines, and all others with nodes and pods."""
    names = {pool.name for pool in observation.pools if pool.is_ssh}
    if not names:
        return Observation(observation.time), observation
    people = replace(_of_pools(observation, names), pods=(), nodes=())
    return people, _of_pools(observation, {pool.name for pool in observation.pools} - names)


def _of_pools(observation: Observation, names: set[str]) -> Observation:
    return replace(
        observation,
        pools=tuple(pool for pool in observation.pools if pool.name in names),
        machines=tuple(machine for machine in observation.machines if machine.pool in names),
        activities=tuple(launch for launch in observation.activities if launch.pool in names),
    )


def end_unused(people: Observation) -> Iterator[Terminate]:
    """Yield the end of machines whose idle time is over, the longest unused first, up to the cap."""
    pools = {pool.name: pool for pool in people.pools}
    above = {name: pool.desired - pool.minimum for name, pool in pools.items()}
    left = max(1, int(people.settings.cap * len(people.machines)))
    due = [
        (end, machine)
        for machine in people.machines
        if (end := idle_end(machine, pools[machine.pool])) is not None
        and end <= people.time
        and not keep_reason(machine, pools[machine.pool], people)
    ]
    for end, machine in sorted(due, key=lambda entry: entry[0]):
        if left > 0 and above[machine.pool] > 0:
            left -= 1
            above[machine.pool] -= 1
            minutes = (people.time - end + (pools[machine.pool].idle or 0)) / 60
            reason = f"unused for {minutes:.0f} minutes: nobody is logged in, and neither CPUs nor GPUs work"
            yield Terminate(machine.id, decrement=True, reason=reason)


def idle_end(machine: Machine, pool: Pool) -> float | None:
    """Return when the idle time of a machine is over; None if it is in use, or its group has no such time."""
    if pool.idle is None or machine.idle_since is None:
        return None
    return max(machine.idle_since, machine.launched) + pool.idle


def keep_reason(machine: Machine, pool: Pool, observation: Observation) -> str:
    """Return why a machine is not ended, however long it is unused; empty if only its idle time counts."""
    now = observation.time
    if pool.group in observation.settings.paused:
        return f"{pool.group} is paused"
    if machine.reported is None:
        return "it has not reported its use"
    if not -_CLOCKS <= now - machine.reported < STALE:
        return f"its last report is {abs(now - machine.reported) / 60:.0f} minutes old"
    if not machine.ready:
        return "it is not in service"
    if pool.until is not None and now < pool.until:
        return "somebody has started it with `--for`"
    if pool.desired <= pool.minimum:
        return f"{pool.name} is at its minimum of {pool.minimum}"
    return ""
