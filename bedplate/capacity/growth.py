"""The growth of pools: which pending pods have a place, and which machines are launched for the others."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bedplate.capacity.ladder import Doubt, RungState, RungStatus
from bedplate.capacity.observation import Cordon, Machine, Node, Observation, Pod, Pool, Reason, Unplaced, Waiting
from bedplate.capacity.packing import (
    Full,
    Packer,
    Place,
    Shape,
    Source,
    is_full,
    machine_place,
    new_machine,
    node_place,
    shape_of,
    shortfalls,
)

TRUST = 600.0
"""Seconds after which a pod that a node has room for does not count any more: the scheduler knows an obstacle.

Longer than the scheduler lets a pod wait before it tries again. Source: kube-scheduler,
DefaultPodMaxInUnschedulablePodsDuration.
"""
# The first and the longest pause before such a pod counts again.
_PAUSE, _LONGEST_PAUSE = 3600.0, 86_400.0


@dataclass
class Ladder:
    """The machines that one decision launches, within the limits of pools, groups and prices; and its probes."""

    rungs: Sequence[RungState]
    observation: Observation
    opened: Counter[str] = field(default_factory=Counter)
    probes: set[str] = field(default_factory=set)
    _machines: Counter[str] = field(default_factory=Counter)
    _prices: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _suited: dict[Shape, list[RungState]] = field(default_factory=dict)
    _obstacles: dict[Shape, str] = field(default_factory=dict)
    _zones: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for rung in self.rungs:
            self._count(rung.pool, rung.expected)
        self._zones.update((machine.pool, machine.zone) for machine in self.observation.machines)

    def open(self, shape: Shape, pool: str | None, full: Full) -> Place | None:
        """Return a machine of the first rung with room. A pool whose probe is due launches one machine besides."""
        for rung in self.suited(shape):
            name = rung.pool.name
            place = self._next_machine(rung.pool, full) if pool in (None, name) else None
            if place is None:
                continue
            if pool is None:
                self.probe(rung)
            # A gang has its place as a whole, before all its machines start.
            if (rung.room if pool else rung.starts) > self.opened[name] and not self.limit(rung.pool):
                self._add(rung.pool, place.zone, 1)
                return place
        return None

    def _next_machine(self, pool: Pool, full: Full) -> Place | None:
        """Return the machine that AWS launches next in a pool, if it is in no full domain; None otherwise.

        AWS takes a zone with the fewest machines of the pool. One elsewhere would start in vain.
        """
        fewest = min(self._zones[pool.name, zone] for zone in pool.zones)
        zones = [zone for zone in pool.zones if self._zones[pool.name, zone] == fewest]
        places = (machine_place(pool, pool.name, zone, Source.NEW) for zone in zones)
        return next((place for place in places if not is_full(place, full)), None)

    def probe(self, rung: RungState) -> None:
        """Launch one machine of a failed rung, if its probe is due."""
        if is_probe_due(rung, self.observation.time) and not self.limit(rung.pool):
            self.probes.add(rung.pool.name)

    def has_room(self, rung: RungState) -> bool:
        """Return whether a rung can launch one more machine, or its probe is due."""
        has_room = rung.starts > self.opened[rung.pool.name] or is_probe_due(rung, self.observation.time)
        return has_room and not self.limit(rung.pool)

    def add(self, rung: RungState) -> None:
        """Launch one more machine of a rung that no pending pod needs."""
        if rung.status is RungStatus.FAILED:
            self.probes.add(rung.pool.name)
        else:
            self._add(rung.pool, rung.pool.zones[0], 1)

    def close(self, place: Place) -> None:
        """Take a new machine back."""
        pool = next(rung.pool for rung in self.rungs if rung.pool.name == place.name)
        self._add(pool, place.zone, -1)

    def suited(self, shape: Shape) -> list[RungState]:
        """Return the rungs on which an empty machine can run a pod of a shape."""
        if shape not in self._suited:
            self._suited[shape] = [rung for rung in self.rungs if not any(shortfalls(shape, new_machine(rung.pool)))]
        return self._suited[shape]

    def obstacle(self, shape: Shape) -> str:
        """Return why pods of a shape fit nothing, also if all were empty; empty if they fit somewhere."""
        if shape not in self._obstacles:
            self._obstacles[shape] = _unplaceable(self, shape)
        return self._obstacles[shape]

    def limit(self, pool: Pool) -> str:
        """Return the limit that forbids one more machine of a pool; empty if none does."""
        settings, group = self.observation.settings, pool.group
        group_max, max_cost = settings.max.get(group), settings.max_cost.get(group)
        if group_max is not None and self._machines[group] >= group_max:
            return f"{group} is at its maximum of {group_max}"
        if max_cost is not None and self._prices[group] + pool.price > max_cost:
            return f"one more machine of {group} exceeds its ceiling of {max_cost:g} USD per hour"
        if settings.fleet_max_cost is not None and sum(self._prices.values()) + pool.price > settings.fleet_max_cost:
            return f"one more machine exceeds the ceiling of {settings.fleet_max_cost:g} USD per hour"
        return ""

    def refusals(self, shape: Shape, full: Full) -> Reason:
        """Return why no rung launches a machine for pods of a shape."""
        reasons = []
        for rung in self.suited(shape):
            pool = rung.pool
            is_spread = self._next_machine(pool, full) is None
            spread = "the pod's spread permits none where AWS launches next" if is_spread else ""
            most = f"at its maximum of {pool.max}"
            reasons.append(f"{pool.name}: {rung.reason or self.limit(pool) or spread or most}")
        return Reason("; ".join(reasons) or "the nodes that suit it are full or take no pods, and no pool suits it")

    def _add(self, pool: Pool, zone: str, count: int) -> None:
        self.opened[pool.name] += count
        self._zones[pool.name, zone] += count
        self._count(pool, count)

    def _count(self, pool: Pool, count: int) -> None:
        self._machines[pool.group] += count
        self._prices[pool.group] += count * pool.price


@dataclass
class Growth:
    """The places of pending pods: `used` nodes and machines stay, `uncordoned` nodes become schedulable again."""

    ladder: Ladder
    places: Sequence[Place]
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    """The pods and gangs for which a node has room now."""

    @property
    def used(self) -> frozenset[str]:
        """The nodes and machines that pending pods, or spares, need."""
        return frozenset(place.name for place in self.places if place.taken and place.source is not Source.NEW)

    @property
    def uncordoned(self) -> tuple[str, ...]:
        """The nodes to uncordon."""
        return tuple(place.name for place in self.places if place.taken and place.source is Source.CORDONED)


def grow(
    observation: Observation, rungs: Sequence[RungState], doubts: Mapping[str, Doubt] = MappingProxyType({})
) -> Growth:
    """Return where the pending pods go: to live nodes, to own cordoned ones, to machines on their way, to new ones.

    Pods in doubt get no place: the scheduler refuses them although a node has room.
    """
    ladder = Ladder(rungs, observation)
    places = list(_places(observation, rungs))
    packer = Packer(places, ladder)
    growth = Growth(ladder, places, doubts)
    singles, gangs = _demand(observation, growth)
    for pod in singles:
        _report(growth, pod, packer.place(pod), packer)
    for pods in gangs:
        _place_gang(growth, packer, observation, pods)
    _add_spares(growth, observation)
    return growth


def next_doubts(doubts: Mapping[str, Doubt], growth: Growth, observation: Observation) -> Mapping[str, Doubt]:
    """Return the doubts about pending pods and gangs after a decision."""
    pending = {pod.gang or pod.id for pod in observation.pods if pod.node is None}
    followed = {name: _next_doubt(doubts.get(name), name in growth.live, observation.time) for name in pending}
    return {name: doubt for name, doubt in followed.items() if doubt}


def _next_doubt(doubt: Doubt | None, has_room: bool, now: float) -> Doubt | None:  # noqa: FBT001  one call
    if doubt and now < doubt.until:
        return doubt
    times = doubt.times if doubt else 0
    if not has_room:
        return Doubt(None, times=times) if times else None
    if doubt is None or doubt.since is None:
        return Doubt(now, times=times)
    if now - doubt.since < TRUST:
        return doubt
    return Doubt(None, now + min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(times, 8)), times + 1)


def _places(observation: Observation, rungs: Sequence[RungState]) -> Iterator[Place]:
    """Yield all places that can take a pod, in the order in which pods should use them."""
    machines = {machine.id: machine for machine in observation.machines}
    shapes = _spread_shapes(observation)
    fixed = {rung.pool.name for rung in rungs if rung.is_fixed}
    later: list[Place] = []
    for node in observation.nodes:
        machine = machines.get(node.machine or "")
        source = Source.CORDONED if node.cordoned else Source.LIVE
        if _is_closed(node, machine, fixed):
            # Pods are spread over it all the same.
            source, machine = Source.CLOSED, None
        place = node_place(node, source, machine.pool if machine else None, shapes.get(node.name, ()))
        if source is Source.LIVE:
            yield place
        else:
            later.append(place)
    yield from later
    for rung in rungs:
        yield from _coming(rung)


def _is_closed(node: Node, machine: Machine | None, fixed: Collection[str]) -> bool:
    """Return whether a node takes no more pods."""
    if node.cordoned is Cordon.HUMAN or node.free.cpus <= 0 or node.not_ready_since is not None:
        return True
    if machine is None:
        return False
    return bool(machine.notice is not None or node.is_broken or (node.cordoned and machine.pool in fixed))


def _coming(rung: RungState) -> Iterator[Place]:
    """Yield the machines of a pool that boot, and those that it was asked for but has not launched yet."""
    facts, pool = rung.facts, rung.pool
    # AWS replaces each of them in another zone.
    doomed = {machine.id for machine in rung.doomed}
    late = {machine.id for machine in facts.late} if facts else set()
    if facts and (breaker := rung.breaker):
        late |= {machine.id for machine in facts.machines if breaker.is_broken(machine)}
    zones, left = Counter(machine.zone for machine in facts.machines) if facts else Counter(), set(rung.left_zones)
    for machine in facts.machines if facts else ():
        is_coming = machine.node is None and machine.notice is None
        if is_coming and machine.id not in late | doomed:
            yield machine_place(pool, machine.id, machine.zone, Source.COMING)
    for _ in range(0 if rung.status is RungStatus.FAILED else rung.expected - rung.machines + len(doomed)):
        zone = min(set(pool.zones) - left or pool.zones, key=lambda zone: (zones[zone], zone))
        zones[zone] += 1
        yield machine_place(pool, pool.name, zone, Source.COMING)


def _spread_shapes(observation: Observation) -> Mapping[str, list[Shape]]:
    """Return the shapes of running pods that limits of spread concern, by node."""
    shapes: dict[str, list[Shape]] = defaultdict(list)
    for pod in observation.pods:
        if pod.node and (pod.spread or pod.kinds):
            shapes[pod.node].append(shape_of(pod))
    return shapes


def _demand(observation: Observation, growth: Growth) -> tuple[list[Pod], list[list[Pod]]]:
    """Return the pods that need a place, by arrival, and the gangs; add those that cannot have one to the report.

    The pods of machines that AWS interrupts need one too.
    """
    taken = {machine.node for machine in observation.machines if machine.notice is not None and machine.node}
    unscheduled = sorted(
        (pod for pod in observation.pods if pod.node is None or (pod.node in taken and not pod.deleted)),
        key=lambda pod: pod.arrival,
    )
    singles: list[Pod] = []
    gangs: dict[str, list[Pod]] = defaultdict(list)
    for pod in unscheduled:
        if reason := pod.unsupported or _doubt_reason(growth, pod, observation.time):
            if pod.node is None:
                growth.unplaced.append(Unplaced(pod.id, Reason(reason)))
        elif pod.gang and pod.gang_size != 1:
            gangs[pod.gang].append(pod)
        else:
            singles.append(pod)
    return singles, list(gangs.values())


def _doubt_reason(growth: Growth, pod: Pod, now: float) -> str:
    """Return why a pod does not count, though a node has room for it; empty if it counts."""
    doubt = growth.doubts.get(pod.gang or pod.id)
    if pod.node is not None or doubt is None or now >= doubt.until:
        return ""
    said = f": {pod.message}" if pod.message else ""
    who = "its queue does not admit it" if pod.queued else "the scheduler does not place it"
    return f"a node has had room for it, but {who}{said}"


def _empty_places(ladder: Ladder, shape: Shape) -> Iterator[Place]:
    """Yield an empty machine of every pool, and an empty node of every kind of nodes: nearly each has a label alone."""
    for rung in ladder.rungs:
        yield new_machine(rung.pool)
    keys = {key for key, _ in shape.selector} | {rule.domain for rule in shape.spread if rule.skew}
    kinds = {(node.size, node.taints, *map(node.labels.get, sorted(keys))): node for node in ladder.observation.nodes}
    for node in kinds.values():
        place = node_place(node, Source.LIVE, None)
        place.free = replace(node.size, pods=1)
        yield place


def _unplaceable(ladder: Ladder, shape: Shape) -> str:
    """Return why pods of a shape fit nothing, by the place to which they are closest; empty if they fit somewhere."""
    reasons = [(place, list(shortfalls(shape, place))) for place in _empty_places(ladder, shape)]
    if any(not missing for _, missing in reasons):
        return ""
    if not reasons:
        return "there is no pool and no node"
    place, missing = min(reasons, key=lambda reason: len(reason[1]))
    return f"no pool fits; {place.name} is closest: {', '.join(missing)}"


def _report(growth: Growth, pod: Pod, place: Place | None, packer: Packer) -> None:
    if pod.node is not None:
        return
    if place is None:
        shape = shape_of(pod)
        if obstacle := growth.ladder.obstacle(shape):
            growth.unplaced.append(Unplaced(pod.id, Reason(obstacle)))
            return
        reason = growth.ladder.refusals(shape, packer.full_domains(shape))
        growth.waiting.append(Waiting(pod.id, is_coming=False, reason=reason))
    else:
        if place.source is Source.LIVE:
            growth.live.add(pod.gang or pod.id)
        growth.waiting.append(Waiting(pod.id, is_coming=True, reason=Reason(_arrival(place))))


def _arrival(place: Place) -> str:
    match place.source:
        case Source.LIVE:
            return f"{place.name} has room now"
        case Source.CORDONED:
            return f"{place.name} is uncordoned next"
        case Source.COMING if place.name == place.pool:
            return f"AWS is launching a machine of {place.pool}"
        case Source.COMING:
            return f"{place.name} of {place.pool} is booting"
        case _:
            return f"a machine of {place.pool} is launched next"


def _place_gang(growth: Growth, packer: Packer, observation: Observation, pods: Sequence[Pod]) -> None:
    """Place a gang as a whole, in the zone of its running pods if it has any."""
    unscheduled = {pod.id for pod in pods}
    nodes = {
        pod.node for pod in observation.pods if pod.gang == pods[0].gang and pod.node and pod.id not in unscheduled
    }
    zones = list(dict.fromkeys(place.zone for place in packer.places))
    pools: Iterable[Pool] = [rung.pool for rung in growth.ladder.suited(shape_of(pods[0]))]
    if nodes:
        own_zones = {place.zone for place in packer.places if place.name in nodes}
        zones = [zone for zone in zones if zone in own_zones]
        pools = [pool for pool in pools if set(pool.zones) & own_zones]
    places = packer.place_gang(pods, zones, pools)
    if places:
        for pod, place in zip(pods, places, strict=True):
            _report(growth, pod, place, packer)
        return
    if any(growth.ladder.obstacle(shape_of(pod)) for pod in pods):
        # The others of the gang wait with the pods that fit nothing.
        for pod in pods:
            _report(growth, pod, None, packer)
        return
    # One machine says little about a whole gang: failed rungs are probed for it only if no other has room.
    for rung in growth.ladder.suited(shape_of(pods[0])):
        growth.ladder.probe(rung)
    refusals = _gang_refusals(growth.ladder, pods) or "no pool suits them"
    reason = Reason(f"no zone has room for all {len(pods)} pods of {pods[0].gang}: {refusals}")
    growth.waiting.extend(Waiting(pod.id, is_coming=False, reason=reason) for pod in pods if pod.node is None)


def _gang_refusals(ladder: Ladder, pods: Sequence[Pod]) -> str:
    reasons = []
    for rung in ladder.suited(shape_of(pods[0])):
        pool = rung.pool
        room = max(0, rung.room - ladder.opened[pool.name])
        spans = f"it spans {len(pool.zones)} zones, and AWS chooses between them" if len(pool.zones) > 1 else ""
        reasons.append(f"{pool.name}: {rung.reason or spans or ladder.limit(pool) or f'room for {room} machines'}")
    return "; ".join(reasons)


def is_probe_due(rung: RungState, now: float) -> bool:
    """Return whether a failed pool may launch one machine."""
    if rung.status is not RungStatus.FAILED or not rung.pool.eligible or rung.machines >= rung.pool.max:
        return False
    return rung.breaker is not None and rung.breaker.is_probe_due(now)


def _add_spares(growth: Growth, observation: Observation) -> None:
    """Keep the spare machines of each group: unused ones first, then own cordoned ones, then new ones."""
    busy = {node.name for node in observation.nodes if node.pods}
    groups = {rung.pool.name: rung.pool.group for rung in growth.ladder.rungs}
    for group, spare in observation.settings.spare.items():
        own = [place for place in growth.places if groups.get(place.pool or "") == group]
        free = [place for place in own if not place.taken and place.name not in busy]
        for place in sorted(free, key=lambda place: place.source is Source.CORDONED)[:spare]:
            place.taken += 1
        for _ in range(spare - len(free)):
            rungs = [rung for rung in growth.ladder.rungs if rung.pool.group == group]
            if rung := next((rung for rung in rungs if growth.ladder.has_room(rung)), None):
                growth.ladder.add(rung)
