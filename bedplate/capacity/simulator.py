"""Runs the planner in a scenario, shipped or recorded, with simulated time, cloud and cluster.

A recorded scenario: today's planner may decide otherwise than the recorded one. What it would have met in places that
the other one did not ask for is unknown: there the capacity is endless. Spot notices and cordons of people are not
replayed.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from bedplate.capacity.ladder import Memory
from bedplate.capacity.observation import FAILURES, NOT_READY, Decision, Node, Observation, Pod, Pool, SetDesired
from bedplate.capacity.packing import Source, machine_place, node_place, shape_of
from bedplate.capacity.planner import decide
from bedplate.capacity.scenario import ENDLESS, Job, Launchable, Place, Scenario
from bedplate.capacity.world import World
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
    """The results of the observations so far; times of jobs and capacity count from the first one."""

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
            self.pools[pool.name] = replace(pool, desired=before.desired, max=max(before.max, pool.max))
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


_FRAMES = 400
Decide = Callable[[Observation, Memory], tuple[Decision, Memory]]


@dataclass(frozen=True, slots=True)
class Frame:
    """The state at one time: machines and free GPUs or machines by pool, pods that wait and run, and their GPUs."""

    time: float
    machines: Mapping[str, int]
    booting: int
    pending: int
    running: int
    pending_gpus: int
    running_gpus: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The measures of a simulation; times in seconds, of pods that fit somewhere.

    `all_running` counts from the burst until the last pod has started, None if one never did. `again` is the time from
    a stop until the pod runs again. `doubled` machines were launched although free places and machines on their way
    had room for all pending pods; `never_used` ones ran no pod; `flips` are reversals within half an hour.
    """

    pods: int
    all_running: float | None
    unstarted: int
    wait_p50: float
    wait_p95: float
    wait_max: float
    again_p95: float
    gpu_hours: float
    useful_gpu_hours: float
    machine_hours: float
    usd: float
    launches: int
    failed: int
    spills: int
    doubled: int
    never_used: int
    never_joined: int
    killed: int
    evicted: int
    interrupted: int
    broken_cordons: int
    flips: int
    refused: int
    cpu_per_decision: float
    cpu_longest: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of a scenario: figures, and the state over time."""

    scenario: Scenario
    figures: Figures
    frames: tuple[Frame, ...]

    def document(self) -> Mapping[str, object]:
        """Return the JSON of the result."""
        frames = [asdict(frame) for frame in self.frames]
        return {"scenario": self.scenario.name, "figures": asdict(self.figures), "frames": frames}


def simulate(scenario: Scenario, plan: Decide = decide) -> Simulation:
    """Run a scenario to its end."""
    world, memory = World(scenario), Memory()
    frames: list[Frame] = []
    seconds: list[float] = []
    spills: Counter[str] = Counter()

    def call() -> None:
        nonlocal memory
        observation = world.observe()
        begin = time.process_time()
        decision, memory = plan(observation, memory)
        seconds.append(time.process_time() - begin)
        frames.append(frame_of(observation))
        spills.update(_spilled(observation, decision))
        for action in decision.actions:
            world.apply(action)
        world.at(world.now + scenario.interval, call)

    world.at(0.0, call)
    while world.advance():
        pass
    for machine in world.machines.values():
        world.bill(machine)
    figures = _figures(world, spills.total(), seconds)
    return Simulation(scenario, figures, tuple(frames[:: max(1, len(frames) // _FRAMES)]))


def _spilled(observation: Observation, decision: Decision) -> Iterable[str]:
    """Yield the pools that are raised though a rung above them is in the same group."""
    pools = {pool.name: pool for pool in observation.pools}
    for action in decision.actions:
        if isinstance(action, SetDesired) and action.count > pools[action.pool].desired and pools[action.pool].rung:
            yield action.pool


def frame_of(observation: Observation) -> Frame:
    """Return the state that an observation shows."""
    machines = Counter(machine.pool for machine in observation.machines)
    pending = [pod for pod in observation.pods if pod.node is None]
    running = [pod for pod in observation.pods if pod.node]
    return Frame(
        time=observation.time,
        machines={pool.name: machines[pool.name] for pool in observation.pools},
        booting=sum(machine.node is None for machine in observation.machines),
        pending=len(pending),
        running=len(running),
        pending_gpus=sum(pod.size.gpus for pod in pending),
        running_gpus=sum(pod.size.gpus for pod in running),
    )


def _figures(world: World, spills: int, seconds: Sequence[float]) -> Figures:
    scenario = world.scenario
    places = [machine_place(item.pool, "", "", Source.NEW) for item in scenario.pools]
    places += [node_place(node, Source.LIVE, None) for node in scenario.nodes]

    def is_feasible(pod: Pod) -> bool:
        shape = shape_of(pod)
        return any(place.admits(shape) and place.has_room(shape) for place in places)

    pods = [pod for pod in (*world.pods.values(), *world.done) if is_feasible(pod.job.pod)]
    starts = [world.now if pod.first_start is None else pod.first_start for pod in pods]
    waits = sorted(start - pod.job.pod.arrival for start, pod in zip(starts, pods, strict=True)) or [0.0]
    again = sorted(world.waits_again + [world.now - pod.stopped for pod in pods if pod.stopped is not None]) or [0.0]
    unstarted = sum(pod.first_start is None for pod in pods)
    names = ("launches", "failed", "doubled", "never_used", "never_joined", "killed", "evicted", "interrupted")
    counts = {name: world.counts[name] for name in (*names, "broken_cordons", "flips", "refused")}
    return Figures(
        pods=len(pods),
        all_running=None if unstarted else round(max(starts, default=scenario.mark) - scenario.mark),
        unstarted=unstarted,
        wait_p50=round(_percentile(waits, 0.5)),
        wait_p95=round(_percentile(waits, 0.95)),
        wait_max=round(waits[-1]),
        again_p95=round(_percentile(again, 0.95)),
        gpu_hours=round(world.hours["paid"], 1),
        useful_gpu_hours=round(world.used_hours(), 1),
        machine_hours=round(world.hours["machines"], 1),
        usd=round(world.hours["usd"]),
        spills=spills,
        cpu_per_decision=round(_percentile(sorted(seconds), 0.5), 4),
        cpu_longest=round(max(seconds), 3),
        **counts,
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(len(ordered) * share)]
