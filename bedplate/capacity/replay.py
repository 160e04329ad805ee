"""A scenario from recorded observations: the same pods, the same failures of AWS, and the boot times of its machines.

Today's planner may decide otherwise than the recorded one. What it would have met in places that the other one
did not ask for is unknown: there the capacity is endless. Spot notices and cordons of people are not replayed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from bedplate.capacity.failures import FAILURES, NOT_READY
from bedplate.capacity.observation import Node, Observation, Pod, Pool
from bedplate.capacity.scenario import ENDLESS, Job, Launchable, Place, Scenario
from bedplate.errors import InputError

_BOOT, _INTERVAL = 300.0, 30.0


@dataclass(slots=True)
class _Run:
    """A pod as first observed, as last observed, and the seconds of its earlier runs that count."""

    first: Pod
    last: Pod
    ran: float = 0.0

    def add(self, pod: Pod, stopped: float) -> None:
        """Note a later observation; a run that it no longer shows was stopped. Only a movable pod keeps its work."""
        if self.last.node and (pod.node, pod.since) != (self.last.node, self.last.since) and pod.movable:
            self.ran += stopped - self.last.since
        self.last = pod


@dataclass
class _Recording:
    """What the observations show so far; times of jobs and capacity count from the first one."""

    name: str
    start: float
    time: float
    pools: dict[str, Pool] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    boots: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    capacity: dict[Place, list[tuple[float, int]]] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    intervals: list[float] = field(default_factory=list)
    _runs: dict[tuple[str, float], _Run] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def add(self, observation: Observation) -> None:
        """Add the next observation."""
        self._add_pools(observation)
        self._add_capacity(observation)
        pods = {(pod.id, pod.arrival): pod for pod in observation.pods}
        for key in self._runs.keys() - pods.keys():
            self._end(self._runs.pop(key), observation.time)
        for key, pod in pods.items():
            self._runs.setdefault(key, _Run(pod, pod)).add(pod, observation.time)
        self.intervals.append(observation.time - self.time)
        self.time = observation.time

    def _add_pools(self, observation: Observation) -> None:
        for pool in observation.pools:
            before = self.pools.get(pool.name, pool)
            most = max(before.maximum, pool.maximum)
            self.pools[pool.name] = replace(pool, desired=before.desired, maximum=most)
        launched = {machine.id: machine for machine in observation.machines}
        for node in observation.nodes:
            machine = launched.get(node.machine or "")
            if machine:
                self.boots[machine.pool][machine.id] = max(0.0, node.joined - machine.launched)
            elif node.machine is None:
                self.nodes[node.name] = replace(node, free=node.size, pods=(), idle_since=0.0, joined=0.0)

    def _add_capacity(self, observation: Observation) -> None:
        """A failed launch shows that AWS had only the machines that run; more show that it has capacity again."""
        counts = Counter(self._place(machine.pool, machine.zone) for machine in observation.machines)
        since = self.time - self.start
        for place, steps in self.capacity.items():
            if counts[place] > steps[-1][1]:
                steps.append((since, ENDLESS))
        for launch in observation.activities:
            is_known = launch.ok or launch.id in self._seen or launch.code == NOT_READY or launch.code not in FAILURES
            self._seen.add(launch.id)
            for zone in () if is_known else (launch.zone,) if launch.zone else self.pools[launch.pool].zones:
                place = self._place(launch.pool, zone)
                self.capacity.setdefault(place, [(0.0, ENDLESS)]).append((since, counts[place]))

    def _place(self, pool: str, zone: str) -> Place:
        return zone, self.pools[pool].type, self.pools[pool].market

    def _end(self, run: _Run, end: float) -> None:
        """Add the job of a pod that has ended; one that never ran says nothing about its work."""
        if run.last.node:
            self._add_job(run.first, run.ran + end - run.last.since)

    def _add_job(self, pod: Pod, duration: float) -> None:
        # A name can be used again.
        name = f"{pod.id}#{len(self.jobs)}"
        arrival = max(0.0, pod.arrival - self.start)
        self.jobs.append(Job(replace(pod, id=name, arrival=arrival, node=None, since=0.0, restarts=0), duration))

    def scenario(self) -> Scenario:
        """Return the scenario. Pods that have not ended run until its end."""
        interval = median(self.intervals[1:] or [_INTERVAL])
        horizon = self.time - self.start + interval
        for run in self._runs.values():
            self._add_job(run.first, horizon)
        boots = {name: median(times.values()) for name, times in self.boots.items()}
        return Scenario(
            name=self.name,
            about=f"{len(self.intervals)} recorded observations",
            horizon=horizon,
            pools=tuple(Launchable(pool, boots.get(name, _BOOT)) for name, pool in self.pools.items()),
            jobs=tuple(sorted(self.jobs, key=lambda job: job.pod.arrival)),
            interval=interval,
            nodes=tuple(self.nodes.values()),
            capacity=self.capacity,
        )


def recorded_scenario(name: str, observations: Iterable[Observation]) -> Scenario:
    """Return the scenario of a recording. Raises InputError if it is empty, or its times do not increase."""
    recording = settings = None
    for observation in observations:
        recording = recording or _Recording(name, observation.time, observation.time)
        if recording.intervals and observation.time <= recording.time:
            what = f"the time {observation.time:g} is not after {recording.time:g}"
            raise InputError(what, fix="replay the observations of one controller")
        recording.add(observation)
        settings = observation.settings
    if recording is None or settings is None:
        raise InputError("has no observation", fix="`bedplate capacity run --record FILE` writes one a round")
    return replace(recording.scenario(), settings=settings)
