"""Scenarios of the simulator: demand, pools, capacity of AWS over time, what goes wrong; and the shipped scenarios."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bedplate.capacity.observation import Node, Pod, Pool, Settings, Size
from bedplate.spec.groups import Market

HOUR = 3600.0
ENDLESS = 1_000_000
"""A number of machines that no scenario reaches."""


@dataclass(frozen=True, slots=True)
class Job:
    """A pod, by its arrival, and the seconds that it runs.

    The scheduler never starts a `refused` one, for a reason that the planner cannot see.
    """

    pod: Pod
    duration: float
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Launchable:
    """A pool, and the seconds from the launch of a machine until it is a node, 20 % more or less."""

    pool: Pool
    boot: float


@dataclass(frozen=True, slots=True)
class Interruption:
    """AWS interrupts a share of the spot instances in a zone, two minutes after its notice."""

    time: float
    zone: str
    share: float


@dataclass(frozen=True, slots=True)
class Broken:
    """A share of the machines that a pool launches from `start` to `end` never become nodes, perhaps in one zone only.

    With `gate`, their health gate fails at the end of the boot: AWS ends such a machine and launches another.
    """

    pool: str
    start: float
    end: float
    share: float = 1.0
    zone: str | None = None
    gate: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """AWS does not answer for a region from `start` to `end`; its machines go on."""

    region: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class HumanCordon:
    """A person cordons some nodes of a pool, busy ones first if `busy`, until a time."""

    time: float
    pool: str
    count: int
    until: float
    busy: bool = False


Place = tuple[str, str, Market]
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
    silences: tuple[Silence, ...] = ()
    cordons: tuple[HumanCordon, ...] = ()
    settings: Settings = field(default_factory=Settings)


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


WEST, EAST, NORTH = "us-west-2", "us-east-1", "eu-north-1"
_GPU = frozenset({"nvidia.com/gpu"})
_P5, _G6E, _C7I = "p5.48xlarge", "g6e.12xlarge", "c7i.24xlarge"
_TRAIN, _BURST = Work("train"), Work("burst", (1, 1, 2, 4), (1.0, 3.0), 1.0)


def _pool(name: str, group: str, rung: int, region: str, zones: str, **more: object) -> Pool:
    labels = {
        "group": group,
        "region": region,
        "type": str(more["type"]),
        "market": str(more.get("market", Market.ON_DEMAND)),
    }
    places = tuple(region + letter for letter in zones)
    return Pool(name, group, rung, region, places, 0, 100, 0, labels=labels, **more)  # type: ignore[arg-type]


def _train(region: str, rung: int, maximum: int = 100, zones: str = "ab") -> Launchable:
    """Return a pool of machines with 8 GPUs."""
    size = Size(8, 192.0, 2000.0)
    pool = _pool(f"train-{region}", "train", rung, region, zones, type=_P5, size=size, price=55.0, taints=_GPU)
    return Launchable(replace(pool, max=maximum), 420.0)


def _burst(region: str, rung: int, market: Market, price: float) -> Launchable:
    """Return a pool of machines with 4 GPUs."""
    more = {"type": _G6E, "size": Size(4, 48.0, 380.0), "taints": _GPU, "market": market, "price": price}
    pool = _pool(f"burst-{region}-{market}", "burst", rung, region, "ab", **more)
    return Launchable(replace(pool, max=60), 240.0)


def _cpu(region: str, rung: int) -> Launchable:
    """Return a pool of machines without GPUs."""
    pool = _pool(f"sim-{region}", "sim", rung, region, "ab", type=_C7I, size=Size(0, 96.0, 190.0), price=4.3)
    return Launchable(replace(pool, max=40), 150.0)


_PAIR = (_train(WEST, 0, 60), _train(EAST, 1, 60))


def _long_burst() -> tuple[Job, ...]:
    return tuple(gpu_burst(replace(_TRAIN, hours=(2, 4)), "job", 240, 1800, 300))


def burst_1600() -> Scenario:
    """60 GPUs on site grow to 1,600 over three regions; the first two have less than their pools may hold."""
    zones = zip((f"{region}{letter}" for region in (WEST, EAST, NORTH) for letter in "ab"), _BURST_ZONES, strict=True)
    capacity = {(zone, _P5, Market.ON_DEMAND): ((0.0, count),) for zone, count in zones}
    size = Size(4, 20.0, 160.0)
    site = tuple(Node(f"titan-{n:02}", None, {"group": "train"}, frozenset(), size, size) for n in range(1, 16))
    jobs = gpu_burst(replace(_TRAIN, sizes=(1, 2, 4), hours=(6, 8)), "room", 60, 0, 300)
    jobs += gpu_burst(_TRAIN, "burst", 1540, 1800, 120)
    pools = (_train(WEST, 0), _train(EAST, 1), _train(NORTH, 2))
    about = "60 GPUs on site grow to 1,600 over three regions"
    return Scenario("burst-1600", about, 12 * HOUR, pools, tuple(jobs), 1800, nodes=site, capacity=capacity)


_BURST_ZONES = (45, 35, 40, 30, 60, 60)


def never_join() -> Scenario:
    """A broken image: for three hours no machine of the first region becomes a node, in the second one of ten."""
    west, east = (item.pool.name for item in _PAIR)
    broken = (Broken(west, 0, 3 * HOUR), Broken(east, 0, 9 * HOUR, 0.1))
    return Scenario("never-join", "a broken image", 8 * HOUR, _PAIR, _long_burst(), 1800, broken=broken)


def gangs() -> Scenario:
    """Two gangs of 16 whole machines; the zone of the first rung has 10, that of the second 20, the third 40."""
    rungs = ((WEST, "b", 10), (EAST, "a", 20), (NORTH, "a", 40))
    pools = tuple(_train(region, at, 40, zone) for at, (region, zone, _) in enumerate(rungs))
    capacity = {(region + zone, _P5, Market.ON_DEMAND): ((0.0, count),) for region, zone, count in rungs}
    jobs = gpu_burst(replace(_TRAIN, sizes=(1, 2), hours=(1, 2)), "small", 24, 1200, 300)
    size = Size(8, 180.0, 1800.0)
    for gang in range(2):
        pod = Pod("", 1800.0 + 600 * gang, size, {"group": "train"}, _GPU, f"gang{gang}", 16)
        jobs += [Job(replace(pod, id=f"gang{gang}-{n}"), 3 * HOUR) for n in range(16)]
    about = "two gangs of 16 machines"
    return Scenario("gangs", about, 9 * HOUR, pools, tuple(jobs), 1200, capacity=capacity)


def steady_day() -> Scenario:
    """Jobs arrive all day; 200 GPUs are at work on average."""
    work = Work("train", (1, 1, 2, 2, 4, 8), (0.5, 4.5))
    jobs = gpu_stream(work, "job", 200, 0, 24 * HOUR)
    return Scenario("steady-day", "a day of steady work", 24 * HOUR, _PAIR, tuple(jobs))


def dry_region() -> Scenario:
    """The first region has no more machines for hours, then some again."""
    places = [(f"{WEST}{zone}", _P5, Market.ON_DEMAND) for zone in "ab"]
    capacity = dict.fromkeys(places, ((0.0, 10), (2 * HOUR, 0), (5 * HOUR, 20)))
    jobs = gpu_stream(replace(_TRAIN, hours=(0.5, 2.0)), "job", 120, 600, 8 * HOUR)
    pools = (_train(WEST, 0), _train(EAST, 1))
    return Scenario(
        "dry-region", "a region without capacity for hours", 11 * HOUR, pools, tuple(jobs), capacity=capacity
    )


def quotas() -> Scenario:
    """The quotas of two regions are smaller than their pools."""
    quota = {(WEST, _G6E, Market.ON_DEMAND): 8, (EAST, _G6E, Market.ON_DEMAND): 12}
    work = replace(_BURST, movable=0.5)
    jobs = [*gpu_burst(work, "first", 60, 1800, 120), *gpu_burst(work, "second", 60, 3600, 120)]
    pools = tuple(_burst(region, at, Market.ON_DEMAND, 10.5) for at, region in enumerate((WEST, EAST, NORTH)))
    return Scenario("quotas", "quotas below the maximum", 8 * HOUR, pools, tuple(jobs), 1800, quota=quota)


def spot_storm() -> Scenario:
    """AWS interrupts most spot instances of a region three times; the second time it has no others."""
    pools = (
        _burst(WEST, 0, Market.SPOT, 4.5),
        _burst(EAST, 1, Market.SPOT, 4.6),
        _burst(WEST, 2, Market.ON_DEMAND, 10.5),
    )
    storms = ((2 * HOUR, "a", 0.8), (3 * HOUR, "a", 0.9), (3 * HOUR + 20, "b", 0.9), (5 * HOUR, "b", 0.6))
    cuts = tuple(Interruption(time, WEST + zone, share) for time, zone, share in storms)
    capacity = {(f"{WEST}{zone}", _G6E, Market.SPOT): ((0.0, 30), (3 * HOUR, 0), (4 * HOUR, 30)) for zone in "ab"}
    jobs = gpu_stream(replace(_BURST, hours=(1.0, 4.0)), "job", 100, 0, 6 * HOUR)
    about = "AWS interrupts most spot instances"
    return Scenario("spot-storm", about, 9 * HOUR, pools, tuple(jobs), capacity=capacity, interruptions=cuts)


def tiny_pods() -> Scenario:
    """3,000 pods of a fraction of a CPU to two CPUs, many at once."""
    dice, jobs = random.Random(5), []  # noqa: S311  a simulation repeats
    for number in range(3000):
        size = Size(0, dice.choice((0.25, 0.5, 1.0, 2.0)), dice.choice((0.5, 1.0, 2.0, 4.0)))
        arrival = dice.choice((600.0, 3600.0, 7200.0)) + dice.random() * 300
        pod = Pod(f"tiny-{number}", arrival, size, {"group": "sim"}, movable=dice.random() < _TRAIN.movable)
        jobs.append(Job(pod, dice.uniform(0.1, 1.5) * HOUR))
    return Scenario("tiny-pods", "3,000 small pods", 4 * HOUR, (_cpu(WEST, 0), _cpu(EAST, 1)), tuple(jobs), 600)


def idle_night() -> Scenario:
    """A day of work, a night without, and a morning."""
    work = replace(_TRAIN, hours=(0.5, 3.0))
    jobs = gpu_stream(work, "day", 150, 0, 8 * HOUR) + gpu_stream(work, "morning", 150, 18 * HOUR, 22 * HOUR)
    return Scenario("idle-night", "a night without work", 24 * HOUR, _PAIR, tuple(jobs))


def human_cordons() -> Scenario:
    """People cordon busy and idle nodes, some for hours."""
    name = f"train-{WEST}"
    cordons = (
        HumanCordon(1.5 * HOUR, name, 4, 4 * HOUR, busy=True),
        HumanCordon(2 * HOUR, name, 3, 9 * HOUR),
        HumanCordon(5 * HOUR, name, 4, 6 * HOUR, busy=True),
    )
    jobs = gpu_stream(replace(_TRAIN, hours=(0.5, 2.0)), "job", 100, 0, 7 * HOUR)
    return Scenario("human-cordons", "people cordon nodes", 10 * HOUR, _PAIR, tuple(jobs), cordons=cordons)


def bad_image() -> Scenario:
    """For three hours the health gate fails on all machines of the first region, in the second on one of ten."""
    west, east = (item.pool.name for item in _PAIR)
    broken = (Broken(west, 0, 3 * HOUR, gate=True), Broken(east, 0, 9 * HOUR, 0.1, gate=True))
    return Scenario("bad-image", "an image whose gate fails", 8 * HOUR, _PAIR, _long_burst(), 1800, broken=broken)


def bad_zone() -> Scenario:
    """For three hours the health gate fails on all machines in one zone of the first region."""
    broken = (Broken(_PAIR[0].pool.name, 0, 3 * HOUR, zone=f"{WEST}a", gate=True),)
    return Scenario("bad-zone", "a zone whose machines fail", 8 * HOUR, _PAIR, _long_burst(), 1800, broken=broken)


def silent_region() -> Scenario:
    """AWS does not answer for the first region for three hours, in which jobs go on to arrive."""
    jobs = gpu_stream(replace(_TRAIN, hours=(0.5, 2.0)), "job", 60, 600, 6 * HOUR)
    silences = (Silence(WEST, HOUR, 4 * HOUR),)
    about = "a region does not answer"
    return Scenario("silent-region", about, 8 * HOUR, _PAIR, tuple(jobs), 600, silences=silences)


def dry_hour() -> Scenario:
    """The only region has no machines for more than an hour."""
    places = [(f"{WEST}{zone}", _P5, Market.ON_DEMAND) for zone in "ab"]
    capacity = dict.fromkeys(places, ((0.0, 10), (1000, 0), (5400, 60)))
    about = "a shortage of an hour"
    return Scenario("dry-hour", about, 8 * HOUR, _PAIR[:1], _long_burst(), 1800, capacity=capacity)


_ALL = (
    burst_1600,
    never_join,
    bad_image,
    bad_zone,
    silent_region,
    dry_hour,
    gangs,
    steady_day,
    dry_region,
    quotas,
    spot_storm,
    tiny_pods,
    idle_night,
    human_cordons,
)
SCENARIOS: Mapping[str, Callable[[], Scenario]] = {make.__name__.replace("_", "-"): make for make in _ALL}
