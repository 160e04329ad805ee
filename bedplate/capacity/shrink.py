"""The end of machines: late and idle ones, ones with a limited time, and nodes whose work can move.

- Machines with a limited time: at its end AWS lowers the desired capacity of the pool; no daemon is needed.
- A node is cordoned first, and ends in a later decision if it is still empty. One that a person has cordoned is left
  alone.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from bedplate.capacity.growth import Growth
from bedplate.capacity.ladder import Breaker, PoolFacts, RungState, RungStatus
from bedplate.capacity.observation import (
    Action,
    Cordon,
    CordonNode,
    DrainNode,
    Machine,
    Node,
    Observation,
    Pod,
    SetDesired,
    SetZones,
    Terminate,
    UncordonNode,
)
from bedplate.capacity.packing import Packer, Source, node_place
from bedplate.errors import InputError
from bedplate.spec.text import seconds_of

NO_END = "-"
"""The value of UNTIL after a start without an end."""

_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class End:
    """The time at which a pool's desired capacity becomes `floor`."""

    until: datetime
    floor: int


def next_end(current: End | None, desired: int, count: int, until: datetime | None) -> End | None:
    """Return the end of a pool after a start of `count` machines in it, `until` a time or without one.

    The latest end counts for all. Machines that somebody started without an end are not ended.
    """
    if until is not None:
        if current:
            return End(max(current.until, until), current.floor)
        return End(until, desired) if count > desired else None
    if current is None or count >= desired:
        return None
    return End(current.until, max(current.floor, count))


def after_stop(current: End | None, desired: int) -> End | None:
    """Return the end of a pool whose desired capacity was lowered by hand: an end never raises it again."""
    return current if current and current.floor < desired else None


def parse_duration(text: str) -> timedelta:
    """Return a duration such as 30m, 8h or 2d; InputError for any other text, and for less than 10 minutes."""
    match = re.fullmatch(r"[0-9]{1,4}[mhd]", text.strip().lower())
    if match is None:
        parts = re.match(r"([0-9]{1,4}) *([mhd]?)", text.strip().lower())
        fix = f"write {parts[1]}{parts[2] or 'h'}" if parts else "write a number and m, h or d"
        raise InputError(f"{text!r} is not a duration", fix=fix)
    duration = timedelta(seconds=seconds_of(match[0]))
    if not _SHORTEST <= duration <= _LONGEST:
        nearest = "10m" if duration < _SHORTEST else "30d"
        raise InputError(f"--for {text}: must be from 10 minutes to 30 days", fix=f"write {nearest}")
    return duration


def without_people(observation: Observation) -> Observation:
    """Return an observation without the pools for people: their machines end themselves, and no pods need them."""
    names = {pool.name for pool in observation.pools if not pool.is_ssh}
    return replace(
        observation,
        pools=tuple(pool for pool in observation.pools if pool.name in names),
        machines=tuple(machine for machine in observation.machines if machine.pool in names),
        activities=tuple(launch for launch in observation.activities if launch.pool in names),
    )


_WARNING = 30.0  # a node is cordoned this long before its idle time is over
_YOUNG = 120.0
_SETTLED = 1800.0  # launches of the last seconds keep nodes of a rung
# A pod runs so many times as long as a move costs before it is moved, twice as long after each move of the last day.
_WORTH, _DAY = 3.0, 86_400.0
_HALF, _CHEAPER, _TRIED = 0.5, 0.8, 20
# Failed gates in a pool that may have one cause.
_MANY = 3


@dataclass
class Removal:
    """The machines that one decision may still remove: `left` in all, and in each pool those above its minimum."""

    left: int
    above: dict[str, int]
    replaced: Counter[str] = field(default_factory=Counter)

    def take(self, pool: str, *, is_counted: bool = False) -> bool:
        """Return whether one more machine of a pool may be removed, and count it, unless its cordon was counted."""
        if self.above[pool] <= 0 or (self.left <= 0 and not is_counted):
            return False
        self.left -= not is_counted
        self.above[pool] -= 1
        return True


@dataclass(frozen=True, slots=True)
class Fleet:
    """An observation with its machines by node, its rungs by pool, and the places of pending pods."""

    observation: Observation
    rungs: Mapping[str, RungState]
    growth: Growth
    machines: Mapping[str, Machine]
    used: frozenset[str]
    moves: Mapping[str, Sequence[float]]

    def rung_of(self, node: Node) -> RungState | None:
        """Return the rung of a node that the planner may remove: not a physical one, nor one of a paused group."""
        machine = self.machines.get(node.name)
        rung = self.rungs.get(machine.pool) if machine else None
        return None if rung is None or rung.is_fixed else rung


def shrink(
    observation: Observation,
    rungs: Sequence[RungState],
    growth: Growth,
    lowered: Sequence[SetDesired],
    moves: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> tuple[list[Action], Removal]:
    """Return the actions that remove machines, at most the share `cap` of all nodes, and what is left of that.

    `lowered` has the desired capacities that the same decision lowers before: AWS refuses to go below the minimum.
    `moves` has the times at which pods were moved, by owner or ID.
    """
    machines = {machine.node: machine for machine in observation.machines if machine.node}
    fleet = Fleet(observation, {rung.pool.name: rung for rung in rungs}, growth, machines, growth.used, moves)
    desired = {rung.pool.name: max(rung.pool.desired, rung.machines) for rung in rungs}
    desired |= {action.pool: action.count for action in lowered}
    above = {rung.pool.name: desired[rung.pool.name] - rung.pool.min for rung in rungs}
    removal = Removal(max(1, int(observation.settings.cap * len(observation.nodes))), above)
    actions: list[Action] = [*_end_doomed(fleet), *_end_late(fleet, removal)]
    actions += _replace_failed(fleet, removal)
    actions += _end_empty(fleet, removal)
    actions += _cordon_idle(fleet, removal)
    actions += _move(fleet, removal)
    return actions, removal


def end_useless(rungs: Sequence[RungState], growth: Growth, removal: Removal, now: float) -> Iterator[Terminate]:
    """Yield the end of machines that a failed rung launched last, if no pending pod needs them any more.

    Such pods need more machines than the rung has, and go to another one. The cap does not count these machines: they
    are too young to be nodes. If first boots have failed, AWS would replace each machine that fails as well. So all end
    that AWS launched since, and all that boot if none beside them has become a node.
    """
    used = growth.used
    for rung in rungs:
        if rung.status is not RungStatus.FAILED or rung.facts is None or rung.breaker is None or rung.breaker.probe:
            continue
        since = _doomed_since(rung.facts, rung.breaker, now)
        kept = used | {machine.id for machine in rung.facts.late}
        # One that is registered may have pods already.
        unregistered = [m for m in rung.facts.machines if m.node is None and not m.registered]
        young = [m for m in unregistered if m.launched >= since and m.id not in kept]
        if rung.breaker.needs_node:
            young = [machine for machine in young if rung.breaker.is_broken(machine)]
        # The desired capacity is lowered first, and other machines end as well: AWS refuses to go below the minimum.
        desired = min(rung.pool.desired, rung.machines - len(rung.facts.noticed))
        for machine in young[: max(0, min(desired - rung.pool.min, removal.above[rung.pool.name]))]:
            # What replaces the first one is the probe.
            is_probe = rung.pool.name in growth.ladder.probes and not removal.replaced[rung.pool.name]
            removal.replaced[rung.pool.name] += is_probe
            yield Terminate(machine.id, decrement=not is_probe, reason="its pods go to another rung")


def _doomed_since(facts: PoolFacts, breaker: Breaker, now: float) -> float:
    """Return the launch time from which booting machines of a failed rung end."""
    if not breaker.needs_node:
        return now - _YOUNG
    first = min((boot.launched for boot in facts.boots.values()), default=now)
    joined = (machine for machine in facts.machines if machine.node and machine.launched >= first)
    return breaker.opened if any(breaker.is_broken(machine) for machine in joined) else 0.0


def next_zones(rungs: Iterable[RungState]) -> Iterator[SetZones]:
    """Yield the new zones of pools: without those to leave, with those to try again."""
    for rung in rungs:
        pool = rung.pool
        zones = tuple(sorted({*pool.zones, *pool.out} - set(rung.left_zones)))
        if set(zones) != set(pool.zones):
            failed = ", ".join(sorted(set(pool.zones) - set(zones)))
            back = f"{', '.join(pool.out)} gets machines again"
            yield SetZones(pool.name, zones, f"machines in {failed} do not become nodes" if failed else back)


def _end_doomed(fleet: Fleet) -> Iterator[Action]:
    """End booting machines of a zone that its group does not use any more: AWS replaces them in another zone."""
    for rung in fleet.rungs.values():
        for machine in _stranded(rung):
            yield Terminate(machine.id, decrement=False, reason=f"machines in {machine.zone} do not become nodes")


def _stranded(rung: RungState) -> Sequence[Machine]:
    return [machine for machine in rung.doomed if machine.zone in rung.pool.out]


def _end_late(fleet: Fleet, removal: Removal) -> Iterator[Action]:
    """End machines that did not become nodes."""
    nodes = {machine.id for machine in fleet.machines.values()}
    nodes |= {machine.id for rung in fleet.rungs.values() for machine in _stranded(rung)}
    for rung in fleet.rungs.values():
        for machine in rung.facts.late if rung.facts and not rung.is_fixed else ():
            if machine.id in nodes:
                continue  # it has a node, which lacks devices: that is cordoned first
            age = (fleet.observation.time - machine.launched) / 60
            what = "its node is not in service" if machine.registered else "not a node"
            yield from _end_replaced(fleet, removal, machine, f"{what} {age:.0f} minutes after its launch")


def _replace_failed(fleet: Fleet, removal: Removal) -> Iterator[Action]:
    """Drain nodes that are broken, and end their empty machines, a few of each pool at once.

    What fails on half of a pool is no fault of its machines: nothing is done then.
    """
    by_pool: defaultdict[str, list[Node]] = defaultdict(list)
    for node in fleet.observation.nodes:
        if rung := fleet.rung_of(node):
            by_pool[rung.pool.name].append(node)
    pods = {pod.id: pod for pod in fleet.observation.pods}
    for nodes in by_pool.values():
        failed = [node for node in nodes if node.is_broken and node.cordoned is not Cordon.HUMAN]
        if len(failed) >= _MANY and 2 * len(failed) >= len(nodes):
            continue
        failed.sort(key=lambda node: node.cordoned is None)
        for node in failed[: max(1, int(fleet.observation.settings.cap * len(nodes)))]:
            reason = (
                f"{node.name}: {node.defect}"
                if node.defect
                else f"the health gate of {node.name} finds broken hardware"
            )
            is_movable = any(pods[pod].movable for pod in node.pods if pod in pods)
            if node.cordoned is None or is_movable:
                yield DrainNode(node.name, reason)
            elif not node.pods and fleet.machines[node.name].notice is None:
                yield from _end_replaced(fleet, removal, fleet.machines[node.name], reason)


def _end_replaced(fleet: Fleet, removal: Removal, machine: Machine, reason: str) -> Iterator[Action]:
    """End a machine; AWS replaces it if pending pods or the minimum need it."""
    name = machine.pool
    is_needed = removal.replaced[name] < fleet.growth.ladder.opened[name] or removal.above[name] <= 0
    if is_needed and removal.left > 0:
        removal.left -= 1
        removal.replaced[name] += 1
        yield Terminate(machine.id, decrement=False, reason=reason)
    elif removal.take(name):
        yield Terminate(machine.id, decrement=True, reason=reason)


def _end_empty(fleet: Fleet, removal: Removal) -> Iterator[Action]:
    """End own cordoned nodes that are empty; at the minimum of their pool they become schedulable again."""
    for node in fleet.observation.nodes:
        rung = fleet.rung_of(node)
        if node.cordoned is not Cordon.PLANNER or rung is None or node.is_broken or node.name in fleet.used:
            continue
        machine = fleet.machines[node.name]
        if node.pods or machine.notice is not None:
            continue
        if removal.above[rung.pool.name] <= 0:
            yield UncordonNode(node.name, f"{rung.pool.name} is at its minimum of {rung.pool.min}")
        elif removal.take(rung.pool.name, is_counted=True):
            yield Terminate(machine.id, decrement=True, reason=f"{node.name} is empty and cordoned")


def _cordon_idle(fleet: Fleet, removal: Removal) -> Iterator[Action]:
    """Cordon idle nodes, the worst rungs first, except spare nodes and nodes that pending pods need."""
    observation = fleet.observation
    order = {name: at for at, name in enumerate(fleet.rungs)}
    idle: list[tuple[int, float, Node, RungState]] = []
    for node in observation.nodes:
        rung = fleet.rung_of(node)
        if rung is None or node.cordoned or node.is_broken or node.pods or node.idle_since is None:
            continue
        if node.name in fleet.used or node.not_ready_since is not None:
            continue
        since = observation.time - node.idle_since
        if (
            since >= (rung.pool.idle or observation.settings.idle) - _WARNING
            and fleet.machines[node.name].notice is None
        ):
            idle.append((-order[rung.pool.name], -since, node, rung))
    for _, since, node, rung in sorted(idle, key=lambda entry: entry[:2]):
        if removal.take(rung.pool.name):
            yield CordonNode(node.name, f"idle for {-since / 60:.0f} minutes")


def _move(fleet: Fleet, removal: Removal) -> Iterator[Action]:
    """Drain nodes whose pods all may move, and fit on a better rung or on other nodes that are in use.

    If a better rung is cheaper and has room, it launches a machine first. Nothing moves while pods wait.
    """
    if fleet.growth.waiting:
        return
    pods = {pod.id: pod for pod in fleet.observation.pods if pod.node}
    order = {name: at for at, name in enumerate(fleet.rungs)}
    tried: Counter[str] = Counter()
    done: set[str] = set()
    nodes = [(rung, node) for node in fleet.observation.nodes if (rung := fleet.rung_of(node)) and node.pods]
    for rung, node in sorted(nodes, key=lambda entry: (-order[entry[0].pool.name], len(entry[1].pods))):
        group = rung.pool.group
        if group in done or tried[group] >= _TRIED or not _may_move(fleet, node, pods):
            continue
        tried[group] += 1
        if removal.above[rung.pool.name] <= 0 or removal.left <= 0:
            continue
        work = [pods[name] for name in node.pods]
        if target := _target(fleet, rung, node, work):
            done.add(group)
            removal.take(rung.pool.name)
            yield DrainNode(node.name, f"its pods may move and fit on {target}")
        elif better := _better_rung(fleet, rung):
            done.add(group)
            fleet.growth.ladder.add(better)


def _may_move(fleet: Fleet, node: Node, pods: Mapping[str, Pod]) -> bool:
    """Return whether all pods of a node may be evicted now."""
    if node.cordoned or fleet.machines[node.name].notice is not None:
        return False
    work = [pods.get(name) for name in node.pods]
    return all(
        pod and pod.movable and not (pod.gang or pod.spread or pod.kinds) and _has_settled(fleet, pod) for pod in work
    )


def _has_settled(fleet: Fleet, pod: Pod) -> bool:
    """Return whether a pod has run for so long that a move costs a small share of its work."""
    observation = fleet.observation
    moves = max(pod.restarts, len(fleet.moves.get(pod.owner or pod.id, ())))
    return observation.time - pod.since >= _WORTH * observation.settings.restart * 2.0 ** min(moves, 8)


def next_moves(
    observation: Observation, actions: Iterable[Action], moves: Mapping[str, Sequence[float]]
) -> Mapping[str, tuple[float, ...]]:
    """Return the times of the last day at which pods were moved, with those of new drains."""
    now = observation.time
    recent = {owner: tuple(time for time in times if now - time < _DAY) for owner, times in moves.items()}
    drained = {action.node for action in actions if isinstance(action, DrainNode)}
    # A drain is repeated until its node is empty.
    names = {node.name for node in observation.nodes if node.name in drained and node.cordoned is None}
    for owner in {pod.owner or pod.id for pod in observation.pods if pod.node in names and pod.movable}:
        recent[owner] = (*recent.get(owner, ()), now)
    return {owner: times for owner, times in recent.items() if times}


def _target(fleet: Fleet, rung: RungState, node: Node, work: Sequence[Pod]) -> str:
    """Return nodes that can take the pods of a node: nodes of better rungs, or busy nodes of the same rung."""
    size, free = node.size, node.free
    is_half_empty = size.cpus <= free.cpus / _HALF and size.gpus <= free.gpus / _HALF
    is_light = is_half_empty and not _has_launched(rung, fleet.observation.time)
    places = [
        node_place(other, Source.LIVE, None)
        for other in fleet.observation.nodes
        if other.name != node.name and _is_better(fleet, rung, other, is_light=is_light)
    ]
    packer = Packer(places)
    targets = [packer.place(pod) for pod in sorted(work, key=lambda pod: pod.arrival)]
    names = dict.fromkeys(target.name for target in targets if target)
    return ", ".join(names) if all(targets) else ""


def _has_launched(rung: RungState, now: float) -> bool:
    """Return whether a rung launched machines lately: nodes that are freed now would be launched again."""
    launches = rung.facts.launches if rung.facts else ()
    return any(launch.ok and now - launch.time < _SETTLED for launch in launches)


def _is_better(fleet: Fleet, rung: RungState, other: Node, *, is_light: bool) -> bool:
    machine = fleet.machines.get(other.name)
    if other.cordoned or other.is_broken or other.not_ready_since or (machine and machine.notice is not None):
        return False
    if machine is None:
        return True
    order = list(fleet.rungs)
    own, theirs = order.index(rung.pool.name), order.index(machine.pool)
    is_group = fleet.rungs[machine.pool].pool.group == rung.pool.group
    return is_group and (theirs < own or (theirs == own and is_light and bool(other.pods)))


def _better_rung(fleet: Fleet, rung: RungState) -> RungState | None:
    """Return a cheaper rung above that has room, or whose probe is due, unless its next machine is on its way."""
    for better in fleet.rungs.values():
        if better is rung:
            return None
        if better.pool.group != rung.pool.group:
            continue
        is_cheaper = better.pool.price <= _CHEAPER * rung.pool.price or better.pool.market.is_reserved
        machines = better.facts.machines if better.facts else ()
        is_launching = better.expected != better.machines or not all(machine.node for machine in machines)
        if is_cheaper and not is_launching and fleet.growth.ladder.has_room(better):
            return better
    return None
