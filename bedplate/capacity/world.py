"""A simulated cloud and cluster in event time: Auto Scaling groups, boots, failures, a first-fit scheduler.

A group launches up to desired at once, in the zone where it has the fewest machines; what fails is one failed activity,
tried again after a minute, then after twice as long, up to 15 minutes, or at once when desired is set. A machine whose
gate fails is a failed activity at its end, and is replaced at once. At the begin, the desired machines of all groups
are nodes.
"""

import heapq
import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bedplate.capacity.observation import (
    NOT_READY,
    Action,
    Activity,
    Cordon,
    CordonNode,
    DrainNode,
    EvictPod,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    SetDesired,
    SetZones,
    Size,
    Terminate,
    UncordonNode,
)
from bedplate.capacity.packing import Packer, Place, Shape, Source, machine_place, node_place, shape_of, zone_of
from bedplate.capacity.scenario import ENDLESS, HOUR, Broken, HumanCordon, Interruption, Job, Scenario

_NOTICE, _RETRY, _LONGEST_RETRY, _HISTORY = 120.0, 60.0, 900.0, 6 * HOUR
_FLIP, _SPREAD = 1800.0, 0.2


@dataclass(slots=True, eq=False)
class SimPod:
    """A pod of a scenario: where it runs, since when, and its progress."""

    job: Job
    node: "SimNode | None" = None
    since: float = 0.0
    ran: float = 0.0
    first_start: float | None = None
    stopped: float | None = None
    restarts: int = 0

    def seen(self) -> Pod:
        """Return the pod as the planner observes it."""
        node = self.node.place.name if self.node else None
        return replace(self.job.pod, node=node, since=self.since, restarts=self.restarts)


@dataclass(slots=True, eq=False)
class SimMachine:
    """A machine that is paid for; without `joins` it never becomes a node."""

    id: str
    group: "SimGroup"
    zone: str
    launched: float
    joins: bool
    node: "SimNode | None" = None
    notice: float | None = None
    is_used: bool = False


@dataclass(slots=True, eq=False)
class SimNode:
    """A node with its free room."""

    place: Place
    size: Size
    joined: float
    machine: SimMachine | None = None
    idle_since: float | None = 0.0
    cordoned: Cordon | None = None
    cordoned_at: float = -math.inf
    pods: dict[str, SimPod] = field(default_factory=dict)

    def seen(self) -> Node:
        """Return the node as the planner observes it."""
        place = self.place
        machine = self.machine.id if self.machine else None
        shown = (place.name, machine, place.labels, place.taints, self.size, place.free, tuple(self.pods))
        return Node(*shown, joined=self.joined, idle_since=self.idle_since, cordoned=self.cordoned)


@dataclass(slots=True, eq=False)
class SimGroup:
    """An Auto Scaling group."""

    pool: Pool
    boot: float
    desired: int
    machines: dict[str, SimMachine] = field(default_factory=dict)
    retry_at: float = 0.0
    retry: float = _RETRY
    lowered: float = -math.inf


class World:
    """The state of a simulation, and its measures: counts of what happened, GPU hours and USD."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.groups = {item.pool.name: SimGroup(item.pool, item.boot, item.pool.desired) for item in scenario.pools}
        self.machines: dict[str, SimMachine] = {}
        self.nodes = {node.name: _physical(node) for node in scenario.nodes}
        self.pods: dict[str, SimPod] = {}
        self.pending: dict[str, SimPod] = {}
        self.done: list[SimPod] = []
        self.activities: list[Activity] = []
        self.counts: Counter[str] = Counter()
        self.hours: defaultdict[str, float] = defaultdict(float)
        self.waits_again: list[float] = []
        self._seen: Observation | None = None
        self._is_changed = True
        self._dice = random.Random(1)  # noqa: S311  a simulation repeats
        self._numbers = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for job in scenario.jobs:
            self.at(job.pod.arrival, partial(self._arrive, job))
        for cut in scenario.interruptions:
            self.at(cut.time, partial(self._interrupt, cut))
        for cordon in scenario.cordons:
            self.at(cordon.time, partial(self._cordon_by_person, cordon))
        for group in self.groups.values():
            self._fill(group)
        for machine in self.machines.values():
            machine.launched = -machine.group.boot
            self._join(machine)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Add an event at a time."""
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def advance(self) -> bool:
        """Run all events of the next time; return whether there were any within the horizon."""
        if not self._events or self._events[0][0] > self.scenario.horizon:
            self.now = self.scenario.horizon
            return False
        self.now = self._events[0][0]
        while self._events and self._events[0][0] == self.now:
            heapq.heappop(self._events)[2]()
        self._schedule()
        return True

    def observe(self) -> Observation:
        """Return the observation of this moment."""
        recent = [launch for launch in reversed(self.activities[-500:]) if self.now - launch.end <= _HISTORY]
        self._seen = self._as_answered(
            Observation(
                time=self.now,
                pods=tuple(pod.seen() for pod in self.pods.values()),
                nodes=tuple(node.seen() for node in self.nodes.values()),
                machines=tuple(_seen_machine(machine) for machine in self.machines.values()),
                pools=tuple(replace(group.pool, desired=group.desired) for group in self.groups.values()),
                activities=tuple(recent),
                settings=self.scenario.settings,
            )
        )
        return self._seen

    def _as_answered(self, now: Observation) -> Observation:
        """Return an observation in which regions that do not answer are as they were."""
        silent = {item.region for item in self.scenario.silences if item.start <= self.now < item.end}
        if not silent or self._seen is None:
            return now
        names = {pool.name for pool in now.pools if pool.region in silent}
        before = {pool.name: pool for pool in self._seen.pools}
        nodes = {node.machine: node for node in now.nodes}
        # The cluster answers: only what AWS says is old.
        kept = (
            replace(machine, node=nodes[machine.id].name if machine.id in nodes else None)
            for machine in self._seen.machines
            if machine.pool in names
        )
        shown = {machine.id for machine in self._seen.machines if machine.pool in names}
        return replace(
            now,
            pools=tuple(replace(before[p.name], silent=True) if p.name in names else p for p in now.pools),
            machines=(*kept, *(machine for machine in now.machines if machine.pool not in names)),
            activities=tuple(launch for launch in now.activities if launch.pool not in names),
            nodes=tuple(
                node
                for node in now.nodes
                if node.machine is None
                or node.machine in shown
                or self.machines[node.machine].group.pool.name not in names
            ),
        )

    def apply(self, action: Action) -> None:
        """Apply one action, and count it if AWS or the cluster refuses it."""
        match action:
            case SetDesired():
                is_done = self._set_desired(self.groups[action.pool], action.count)
            case SetZones():
                group = self.groups[action.pool]
                every = {*group.pool.zones, *group.pool.out}
                group.pool = replace(group.pool, zones=action.zones, out=tuple(sorted(every - set(action.zones))))
                is_done = True
            case Terminate():
                is_done = self._terminate(self.machines.get(action.machine), decrement=action.decrement)
            case CordonNode() | DrainNode():
                is_done = self._cordon(self.nodes.get(action.node), is_drain=isinstance(action, DrainNode))
            case UncordonNode():
                is_done = self._uncordon(self.nodes.get(action.node))
            case EvictPod():
                pod = self.pods.get(action.pod)
                is_done = pod is not None and pod.node is not None
                if pod and pod.node:
                    self._stop(pod, _how(pod))
        self.counts["refused"] += not is_done

    def _set_desired(self, group: SimGroup, count: int) -> bool:
        if not group.pool.min <= count <= group.pool.max:
            return False
        if count > group.desired and self.now - group.lowered < _FLIP:
            self.counts["flips"] += 1
        if count < group.desired:
            group.lowered = self.now
        group.desired, group.retry_at, group.retry = count, 0.0, _RETRY
        self._fill(group)
        return True

    def _terminate(self, machine: SimMachine | None, *, decrement: bool) -> bool:
        if machine is None or (decrement and machine.group.desired <= machine.group.pool.min):
            return False
        self.counts["broken_cordons"] += machine.node is not None and machine.node.cordoned is Cordon.HUMAN
        self._end(machine)
        if decrement:
            machine.group.desired -= 1
            machine.group.lowered = self.now
        self._fill(machine.group)
        return True

    def _cordon(self, node: SimNode | None, *, is_drain: bool) -> bool:
        if node is None or node.cordoned is Cordon.HUMAN:
            return False
        if node.cordoned is None:
            node.cordoned, node.cordoned_at = Cordon.PLANNER, self.now
        for pod in list(node.pods.values()) if is_drain else ():
            if pod.job.pod.movable:
                self._stop(pod, "evicted")
        return True

    def _uncordon(self, node: SimNode | None) -> bool:
        if node is None:
            return False
        self.counts["broken_cordons"] += node.cordoned is Cordon.HUMAN
        self.counts["flips"] += node.cordoned is Cordon.PLANNER and self.now - node.cordoned_at < _FLIP
        node.cordoned, self._is_changed = None, True
        return True

    def _fill(self, group: SimGroup, *, is_replacement: bool = False) -> None:
        missing = group.desired - len(group.machines)
        if missing <= 0 or self.now < group.retry_at:
            return
        before, needed, started = len(group.machines), self._needed(group), 0
        zone, code = group.pool.zones[0], None
        while started < missing:
            used = Counter(machine.zone for machine in group.machines.values())
            rooms = {name: self._room(group.pool, name) for name in group.pool.zones}
            open_zones = [name for name, (count, _) in rooms.items() if count > 0]
            if not open_zones:
                code = rooms[zone][1]
                break
            zone = min(open_zones, key=lambda name: (used[name], name))
            self._launch(group, zone)
            started += 1
        if not is_replacement:
            self.counts["doubled"] += max(0, started - max(needed, group.pool.min - before))
        if started:
            self._record(group, zone, None, started, before)
        if code:
            self.counts["failed"] += missing - started
            self._record(group, zone, code, missing - started, before)
            group.retry_at, group.retry = self.now + group.retry, min(_LONGEST_RETRY, group.retry * 2)
            self.at(group.retry_at, lambda: self._fill(group))

    def _record(self, group: SimGroup, zone: str, code: str | None, count: int, before: int) -> None:
        # What fails has failed in all zones of the group.
        where = zone if code is None else None
        number = str(next(self._numbers))
        activity = Activity(number, group.pool.name, self.now, code is None, where, code, count, before, group.desired)
        self.activities.append(activity)

    def _room(self, pool: Pool, zone: str) -> tuple[int, str]:
        """Return how many more machines AWS launches in a zone, and the code of what stops it then."""
        scenario, key = self.scenario, (pool.type, pool.market)
        alike = [m for m in self.machines.values() if (m.group.pool.type, m.group.pool.market) == key]
        steps = scenario.capacity.get((zone, *key), ((0.0, ENDLESS),))
        free = [count for time, count in steps if time <= self.now][-1] - sum(m.zone == zone for m in alike)
        quota = scenario.quota.get((pool.region, *key), ENDLESS)
        allowed = quota - sum(machine.group.pool.region == pool.region for machine in alike)
        if allowed < free:
            return allowed, "MaxSpotInstanceCountExceeded" if pool.market.is_spot else "VcpuLimitExceeded"
        return free, "InsufficientInstanceCapacity"

    def _needed(self, group: SimGroup) -> int:
        """Return how many machines pending pods need besides free nodes of the group and its machines on their way."""
        places = [
            node.place.copy()
            for node in self.nodes.values()
            if node.machine
            and node.machine.group.pool.group == group.pool.group
            and node.cordoned is not Cordon.HUMAN
            and node.machine.notice is None
        ]
        places += [
            machine_place(machine.group.pool, machine.id, machine.zone, Source.COMING)
            for machine in self.machines.values()
            if machine.node is None and machine.joins and machine.group.pool.group == group.pool.group
        ]
        launches = _Launches(group.pool)
        packer = Packer(places, launches)
        for pod in self.pending.values():
            packer.place(pod.job.pod)
        return launches.count

    def _launch(self, group: SimGroup, zone: str) -> None:
        broken = self._broken(group.pool, zone)
        machine = SimMachine(f"i-{next(self._numbers):08x}", group, zone, self.now, joins=broken is None)
        self.machines[machine.id] = group.machines[machine.id] = machine
        self.counts["launches"] += 1
        boot = group.boot * self._dice.uniform(1 - _SPREAD, 1 + _SPREAD)
        if broken is None:
            self.at(self.now + boot, lambda: self._join(machine))
        elif broken.gate:
            self.at(self.now + boot, lambda: self._fail_gate(machine))

    def _broken(self, pool: Pool, zone: str) -> Broken | None:
        """Return what keeps a new machine from becoming a node."""
        for broken in self.scenario.broken:
            is_meant = broken.pool == pool.name and broken.zone in (None, zone)
            if is_meant and broken.start <= self.now < broken.end and self._dice.random() < broken.share:
                return broken
        return None

    def _fail_gate(self, machine: SimMachine) -> None:
        """The machine abandons its lifecycle hook: its launch has failed, and its group launches another."""
        if machine.id not in self.machines:
            return
        pool, number = machine.group.pool, str(next(self._numbers))
        activity = Activity(number, pool.name, machine.launched, ok=False, zone=machine.zone, code=NOT_READY)
        self.activities.append(replace(activity, machine=machine.id, ended=self.now))
        self._end(machine)
        self._fill(machine.group, is_replacement=True)

    def _join(self, machine: SimMachine) -> None:
        if machine.id not in self.machines or machine.node or not machine.joins:
            return
        pool = machine.group.pool
        place = machine_place(pool, f"node-{machine.id}", machine.zone, Source.LIVE)
        machine.node = SimNode(place, pool.size, self.now, machine, self.now)
        self.nodes[place.name] = machine.node
        self._is_changed = True

    def _end(self, machine: SimMachine, how: str = "") -> None:
        for pod in list(machine.node.pods.values()) if machine.node else ():
            self._stop(pod, how or _how(pod))
        del self.machines[machine.id], machine.group.machines[machine.id]
        if machine.node:
            del self.nodes[machine.node.place.name]
        self.bill(machine)

    def bill(self, machine: SimMachine) -> None:
        """Count the hours of a machine that ends, or that still runs at the end."""
        hours = (self.now - machine.launched) / HOUR
        self.hours["paid"] += hours * machine.group.pool.size.gpus
        self.hours["machines"] += hours
        self.hours["usd"] += hours * machine.group.pool.price
        self.counts["never_used"] += machine.node is not None and not machine.is_used
        self.counts["never_joined"] += not machine.joins

    def used_hours(self) -> float:
        """Return the GPU hours of useful work on machines that are paid for."""
        running = [pod for pod in self.pods.values() if pod.node and pod.node.machine]
        return self.hours["used"] + sum((self.now - pod.since) / HOUR * pod.job.pod.size.gpus for pod in running)

    def _interrupt(self, cut: Interruption) -> None:
        spot = [
            machine
            for machine in self.machines.values()
            if machine.zone == cut.zone and machine.group.pool.market.is_spot and machine.notice is None
        ]
        for machine in self._dice.sample(spot, round(len(spot) * cut.share)):
            machine.notice = self.now + _NOTICE
            self.at(machine.notice, partial(self._take, machine))

    def _take(self, machine: SimMachine) -> None:
        if machine.id not in self.machines:
            return
        self._end(machine, "interrupted")
        self._fill(machine.group)

    def _cordon_by_person(self, cordon: HumanCordon) -> None:
        nodes = [
            node
            for node in self.nodes.values()
            if node.machine and node.machine.group.pool.name == cordon.pool and node.cordoned is None
        ]
        nodes.sort(key=lambda node: bool(node.pods) != cordon.busy)
        for node in nodes[: cordon.count]:
            node.cordoned = Cordon.HUMAN
            self.at(cordon.until, partial(self._uncordon_by_person, node))

    def _uncordon_by_person(self, node: SimNode) -> None:
        if node.cordoned is Cordon.HUMAN:
            node.cordoned, self._is_changed = None, True

    def _arrive(self, job: Job) -> None:
        self.pods[job.pod.id] = self.pending[job.pod.id] = SimPod(job)
        self._is_changed = True

    def _schedule(self) -> None:
        """Start pending pods by arrival, each on the first node with room; gangs as a whole in one zone."""
        if not self._is_changed:
            return
        self._is_changed = False
        nodes = [
            node
            for node in self.nodes.values()
            if node.cordoned is None and not (node.machine and node.machine.notice is not None)
        ]
        packer = Packer([node.place for node in nodes])
        gangs: defaultdict[str, list[SimPod]] = defaultdict(list)
        for pod in [pod for pod in self.pending.values() if not pod.job.refused]:
            if pod.job.pod.gang:
                gangs[pod.job.pod.gang].append(pod)
            elif place := packer.place(pod.job.pod):
                self._start(pod, self.nodes[place.name])
        zones = list(dict.fromkeys(zone_of(node.place.labels) for node in nodes))
        for pods in gangs.values():
            places = packer.place_gang([pod.job.pod for pod in pods], zones, ())
            for pod, place in zip(pods, places, strict=False):
                self._start(pod, self.nodes[place.name])

    def _start(self, pod: SimPod, node: SimNode) -> None:
        """Start a pod on a node whose room is taken already."""
        name = pod.job.pod.id
        del self.pending[name]
        node.pods[name], node.idle_since = pod, None
        pod.node, pod.since = node, self.now
        pod.first_start = self.now if pod.first_start is None else pod.first_start
        if pod.stopped is not None:
            self.waits_again.append(self.now - pod.stopped)
            pod.stopped = None
        if node.machine:
            node.machine.is_used = True
        runs = pod.restarts
        self.at(self.now + pod.job.duration - pod.ran, lambda: self._finish(pod, runs))

    def _finish(self, pod: SimPod, runs: int) -> None:
        if pod.node is None or pod.restarts != runs:
            return  # it was stopped before
        self.hours["used"] += self._leave(pod)
        del self.pods[pod.job.pod.id]
        self.done.append(pod)

    def _leave(self, pod: SimPod) -> float:
        """Take a pod off its node; return its GPU hours on machines that are paid for."""
        node = pod.node
        if node is None:
            raise AssertionError
        node.place.take(shape_of(pod.job.pod), -1)
        del node.pods[pod.job.pod.id]
        node.idle_since = node.idle_since if node.pods else self.now
        pod.node, self._is_changed = None, True
        return (self.now - pod.since) / HOUR * pod.job.pod.size.gpus * (node.machine is not None)

    def _stop(self, pod: SimPod, how: str) -> None:
        """Stop a pod, with its whole gang. A movable one keeps its work, others begin again."""
        if pod.node is None:
            return  # it was stopped with its gang
        gang = pod.job.pod.gang
        members = [other for other in self.pods.values() if gang and other.job.pod.gang == gang and other.node] or [pod]
        for member in members:
            self.counts[how] += 1
            hours = self._leave(member)
            member.restarts, member.stopped = member.restarts + 1, self.now
            self.pending[member.job.pod.id] = member
            if member.job.pod.movable:
                member.ran += self.now - member.since
                self.hours["used"] += hours


@dataclass
class _Launches:
    """Empty machines of one pool without a limit, to count them."""

    pool: Pool
    count: int = 0

    def open(self, shape: Shape, *_: object) -> Place | None:
        """Return one more machine if the pod fits."""
        place = machine_place(self.pool, "", "", Source.NEW)
        if not (place.admits(shape) and place.has_room(shape)):
            return None
        self.count += 1
        return place

    def close(self, _: Place) -> None:
        """Take a machine back."""
        self.count -= 1


def _physical(node: Node) -> SimNode:
    return SimNode(node_place(node, Source.LIVE, None), node.size, 0.0)


def _seen_machine(machine: SimMachine) -> Machine:
    node = machine.node.place.name if machine.node else None
    return Machine(machine.id, machine.group.pool.name, machine.zone, machine.launched, node, machine.notice)


def _how(pod: SimPod) -> str:
    return "evicted" if pod.job.pod.movable else "killed"
