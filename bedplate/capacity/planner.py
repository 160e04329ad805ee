"""The planner of capacity: one decision from one observation and the memory of the last decision.

It reads no clock and calls nothing: the same values give the same decision. The order of its actions is the order in
which they are applied.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bedplate.capacity.devices import next_lacking, settle
from bedplate.capacity.growth import Growth, grow, next_doubts
from bedplate.capacity.ladder import Breaker, Memory, RungState, RungStatus, faults, next_boots, next_proven, read_rungs
from bedplate.capacity.observation import Action, Decision, Observation, SetDesired, Terminate, UncordonNode
from bedplate.capacity.shrink import Removal, end_useless, next_moves, next_zones, shrink, without_people

__all__ = ["Memory", "decide"]

# Nothing is ended if the cluster lacks this share of the Node objects that it had, and at least this many.
_LOST_SHARE, _LOST_LEAST = 0.5, 2
# The seconds for which AWS's last activities of a group are read.
_REPORTED = 6 * 3600.0


def decide(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
    """Return the actions that follow from an observation, and what the next decision needs to know of this one."""
    observation = without_people(observation)
    lacking = next_lacking(observation, memory.lacking)
    observation, counted = settle(observation, lacking)
    memory = replace(memory, boots=next_boots(counted, memory), proven=next_proven(counted, memory))
    rungs = read_rungs(counted, memory)
    growth = grow(observation, rungs, memory.doubts)
    registered, held = _lost_nodes(observation, memory)
    lower = list(_lower(rungs, growth))
    removals, removal = ([], Removal(0, {})) if held else shrink(observation, rungs, growth, lower, memory.moves)
    actions: list[Action] = [UncordonNode(name, "pending pods fit on it") for name in growth.uncordoned]
    useless = [] if held else list(end_useless(rungs, growth, removal, observation.time))
    higher = list(_raise(rungs, growth, removal))
    pending = {pod.id for pod in observation.pods if pod.node is None}
    unplaced = tuple(report for report in growth.unplaced if report.pod not in memory.reported)
    all_actions = (*next_zones(rungs), *actions, *lower, *useless, *higher, *removals)
    decision = Decision(all_actions, unplaced, tuple(growth.waiting), held, tuple(faults(rungs)))
    reported = frozenset(report.pod for report in growth.unplaced) | (memory.reported & pending)
    return decision, replace(
        memory,
        breakers=dict(_breakers(rungs, growth, observation.time)),
        unready={rung.pool.name: rung.facts.boots for rung in rungs if rung.facts and rung.facts.boots},
        short=dict(_short(rungs, [*lower, *higher], memory, observation.time)),
        reported=reported,
        doubts=next_doubts(memory.doubts, growth, observation),
        lacking=lacking,
        registered=registered,
        ended=dict(_ended(all_actions, memory, observation.time)),
        moves=next_moves(observation, all_actions, memory.moves),
    )


def _ended(actions: Iterable[Action], memory: Memory, now: float) -> Iterator[tuple[str, float]]:
    """Yield the machines that the planner has ended, as long as AWS may report their launches as failed."""
    yield from ((name, time) for name, time in memory.ended.items() if now - time < _REPORTED)
    yield from ((action.machine, now) for action in actions if isinstance(action, Terminate))


def _lost_nodes(observation: Observation, memory: Memory) -> tuple[frozenset[str], str]:
    """Return the machines that have had a Node object, and why nothing may be ended: many of these objects are missing.

    They are missing in another cluster under the same name, or after a restore: their machines may be at work.
    """
    machines = {machine.id for machine in observation.machines}
    present = {machine.id for machine in observation.machines if machine.registered}
    expected = (memory.registered | present) & machines
    lost = len(expected - present)
    if lost < _LOST_LEAST or lost < _LOST_SHARE * len(expected):
        return expected, ""
    return expected, f"{lost} of {len(expected)} machines are missing among the cluster's nodes: nothing is ended"


def _lower(rungs: Sequence[RungState], growth: Growth) -> Iterator[SetDesired]:
    """Yield lower desired capacities: they end nothing, but AWS launches no more."""
    for rung in rungs:
        name = rung.pool.name
        is_raised = growth.ladder.opened[name] or name in growth.ladder.probes
        count = _desired_without_launches(rung)
        if count < rung.pool.desired and not is_raised and not rung.is_fixed:
            reason = rung.reason or "AWS interrupts machines, which are replaced elsewhere"
            yield SetDesired(name, count, f"so that AWS launches no more here: {reason}")


def _raise(rungs: Sequence[RungState], growth: Growth, removal: Removal) -> Iterator[SetDesired]:
    """Yield higher desired capacities, as absolute numbers."""
    passed: list[str] = []
    for rung in rungs:
        name = rung.pool.name
        new = min(growth.ladder.opened[name], rung.starts) + (name in growth.ladder.probes)
        count = min(rung.expected + new - removal.replaced[name], rung.pool.max)
        if new and count > rung.pool.desired:
            yield SetDesired(name, count, _raise_reason(rung, new, growth, passed))
        if rung.reason:
            passed.append(f"{name}: {rung.reason}")


def _desired_without_launches(rung: RungState) -> int:
    """Return the desired capacity of a pool that launches nothing more than it has begun."""
    noticed = len(rung.facts.noticed) if rung.facts else 0
    return max(rung.pool.min, rung.machines - noticed) + rung.expected - rung.machines


def _raise_reason(rung: RungState, new: int, growth: Growth, passed: Sequence[str]) -> str:
    if rung.pool.name in growth.ladder.probes:
        return f"probe after: {rung.breaker.cause if rung.breaker else rung.reason}"
    pods = len(growth.waiting)
    need = f"{new} more because {pods} {'pod waits' if pods == 1 else 'pods wait'}" if pods else f"{new} more"
    return f"{need}; not used: {', '.join(passed)}" if passed else need


def _breakers(rungs: Sequence[RungState], growth: Growth, now: float) -> Iterator[tuple[str, Breaker]]:
    for rung in rungs:
        name = rung.pool.name
        if rung.breaker:
            yield name, replace(rung.breaker, probe=now) if name in growth.ladder.probes else rung.breaker


def _short(
    rungs: Sequence[RungState], sizes: Sequence[SetDesired], memory: Memory, now: float
) -> Iterator[tuple[str, float]]:
    """Yield the pools that have fewer machines than desired, with the time since which AWS launches none."""
    counts: Mapping[str, int] = {size.pool: size.count for size in sizes}
    for rung in rungs:
        name = rung.pool.name
        desired = counts.get(name, rung.pool.desired)
        if desired > rung.machines and rung.status is not RungStatus.FAILED:
            launches = [launch.time for launch in rung.facts.launches if launch.ok] if rung.facts else []
            since = now if desired > rung.pool.desired else memory.short.get(name, now)
            yield name, max(since, *launches) if launches else since
