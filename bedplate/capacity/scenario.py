"""What a scenario of the simulator says: demand, pools, the capacity of AWS over time, and what goes wrong."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.capacity.observation import Node, Pod, Pool, Settings, Size

HOUR = 3600.0
ENDLESS = 1_000_000
"""A number of machines that no scenario reaches."""


@dataclass(frozen=True, slots=True)
class Job:
    """A pod, by its arrival, and the seconds that it runs."""

    pod: Pod
    duration: float


@dataclass(frozen=True, slots=True)
class Launchable:
    """A pool, and the seconds from the launch of a machine until it is a node, 20 % more or less."""

    pool: Pool
    boot: float


@dataclass(frozen=True, slots=True)
class Interruption:
    """AWS takes a share of the spot machines in a zone, two minutes after its notice."""

    time: float
    zone: str
    share: float


@dataclass(frozen=True, slots=True)
class Broken:
    """A share of the machines that a pool launches from `start` to `end` never become nodes."""

    pool: str
    start: float
    end: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class HumanCordon:
    """A person cordons some nodes of a pool, busy ones first if `busy`, until a time."""

    time: float
    pool: str
    count: int
    until: float
    busy: bool = False


Place = tuple[str, str, str]
"""A zone or region, an instance type, and a market."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`capacity` is the number of machines by zone from a time on, `quota` that by region; endless without an entry.

    The burst that is measured begins at `mark`.
    """

    name: str
    about: str
    horizon: float
    pools: tuple[Launchable, ...]
    jobs: tuple[Job, ...]
    mark: float = 0.0
    interval: float = 30.0
    nodes: tuple[Node, ...] = ()
    capacity: Mapping[Place, Sequence[tuple[float, int]]] = field(default_factory=dict)
    quota: Mapping[Place, int] = field(default_factory=dict)
    interruptions: tuple[Interruption, ...] = ()
    broken: tuple[Broken, ...] = ()
    cordons: tuple[HumanCordon, ...] = ()
    settings: Settings = field(default_factory=Settings)
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """How jobs of a group arrive: GPUs by size, hours that they run, and the share that may move."""

    group: str
    sizes: tuple[int, ...] = (1, 1, 2, 4, 8)
    hours: tuple[float, float] = (2.0, 5.0)
    movable: float = 0.5


def gpu_job(dice: random.Random, work: Work, name: str, arrival: float, gpus: int) -> Job:
    """Return a job with some GPUs; each has 5 CPUs and 40 GiB."""
    size = Size(gpus, gpus * 5.0, gpus * 40.0)
    tolerations = frozenset({"nvidia.com/gpu"})
    is_movable = dice.random() < work.movable
    pod = Pod(name, arrival, size, {"group": work.group}, tolerations, movable=is_movable)
    return Job(pod, dice.uniform(*work.hours) * HOUR)


def gpu_burst(work: Work, name: str, gpus: int, start: float, seconds: float) -> list[Job]:
    """Return jobs of random sizes with `gpus` in total, which arrive evenly."""
    dice = random.Random(name)  # noqa: S311  a simulation repeats
    jobs: list[Job] = []
    while gpus:
        size = min(dice.choice(work.sizes), gpus)
        gpus -= size
        jobs.append(gpu_job(dice, work, f"{name}-{len(jobs)}", start + dice.random() * seconds, size))
    return jobs


def gpu_stream(work: Work, name: str, gpus: float, start: float, end: float) -> list[Job]:
    """Return jobs that arrive at random, so that on average `gpus` are at work."""
    dice, now = random.Random(name), start  # noqa: S311  a simulation repeats
    jobs: list[Job] = []
    load = sum(work.sizes) / len(work.sizes) * sum(work.hours) / 2 * HOUR
    while (now := now + dice.expovariate(gpus / load)) < end:
        jobs.append(gpu_job(dice, work, f"{name}-{len(jobs)}", now, dice.choice(work.sizes)))
    return jobs
