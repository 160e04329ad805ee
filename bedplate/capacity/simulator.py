"""Runs the planner in a scenario: the same `decide` as the controller's, with simulated time, cloud and cluster."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bedplate.capacity.actions import Decision, SetDesired
from bedplate.capacity.observation import Observation, Pod
from bedplate.capacity.packing import Source, machine_place, node_place, shape_of
from bedplate.capacity.planner import decide
from bedplate.capacity.rungs import Memory
from bedplate.capacity.scenario import Scenario
from bedplate.capacity.world import World

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
