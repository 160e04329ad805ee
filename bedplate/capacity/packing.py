"""First fit of pods onto places: nodes, machines on their way, and machines that pools can launch."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from bedplate.capacity.observation import ROUNDING, UNITS, Node, Pod, Pool, Size, Spread

HOSTNAME = "kubernetes.io/hostname"
ZONES = ("topology.kubernetes.io/zone", "zone")
"""Labels of a node that name its zone."""
_UNLIMITED = 1_000_000


class Source(Enum):
    """Where a place comes from."""

    LIVE = "a node"
    CORDONED = "a node that the planner has cordoned"
    COMING = "a machine on its way"
    NEW = "a machine that is not launched yet"
    CLOSED = "a node that takes no more pods"


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a pod that the scheduler compares: of pods with equal ones, all fit or none.

    `size` counts one pod.
    """

    size: Size
    selector: frozenset[tuple[str, str]]
    tolerations: frozenset[str]
    spread: tuple[Spread, ...] = ()
    kinds: frozenset[str] = frozenset()


def shape_of(pod: Pod) -> Shape:
    """Return the shape of a pod."""
    selector = frozenset(pod.selector.items())
    return Shape(replace(pod.size, pods=1), selector, pod.tolerations, pod.spread, pod.kinds)


@dataclass(slots=True, eq=False)
class Place:
    """A node or machine with what is free on it. `name` is a node, machine or pool; `pool` is None on site.

    `kinds` counts its pods by the limits in which they count, `apart` those that keep other pods away.
    """

    source: Source
    name: str
    pool: str | None
    zone: str
    labels: Mapping[str, str]
    taints: frozenset[str]
    free: Size
    kinds: Counter[str] = field(default_factory=Counter)
    apart: Counter[Spread] = field(default_factory=Counter)
    taken: int = 0

    def admits(self, shape: Shape) -> bool:
        """Return whether a pod of a shape may run here if there is room."""
        return self.taints <= shape.tolerations and self.is_selected(shape) and not any(self.lacks(shape))

    def is_selected(self, shape: Shape) -> bool:
        """Return whether the labels are those that pods of a shape select."""
        labels = self.labels
        return all(labels.get(key) == value for key, value in shape.selector)

    def lacks(self, shape: Shape) -> Iterator[str]:
        """Yield the labels that the spread of a shape requires, and that are missing."""
        for rule in shape.spread:
            if rule.skew and rule.domain not in (HOSTNAME, *ZONES) and rule.domain not in self.labels:
                yield rule.domain

    def has_room(self, shape: Shape) -> bool:
        """Return whether a pod of a shape fits in what is free."""
        return shape.size.fits(self.free)

    def domain(self, key: str) -> Hashable:
        """Return the host, the zone or the value of another label; None without it."""
        if key == HOSTNAME:
            return self
        return (self.zone or None) if key in ZONES else self.labels.get(key)

    def take(self, shape: Shape, sign: int = 1) -> None:
        """Take the room of a pod, or give it back."""
        self.free = self.free.minus(shape.size, sign)
        self.taken += sign
        self.count(shape, sign)

    def count(self, shape: Shape, sign: int = 1) -> None:
        """Count a pod in the limits that concern it."""
        for kind in shape.kinds:
            self.kinds[kind] += sign
        for rule in shape.spread:
            if not rule.skew:
                self.apart[rule] += sign

    def copy(self) -> "Place":
        """Return a place that pods can take without an effect on this one."""
        return replace(self, kinds=Counter(self.kinds), apart=Counter(self.apart))


def zone_of(labels: Mapping[str, str]) -> str:
    """Return the zone in the labels of a node; empty if they have none."""
    return next((labels[key] for key in ZONES if key in labels), "")


def node_place(node: Node, source: Source, pool: str | None, shapes: Iterable[Shape] = ()) -> Place:
    """Return the free room of a node, on which pods of `shapes` run; a closed one has none."""
    free = node.free if node.size.pods else replace(node.free, pods=_UNLIMITED)
    free = Size() if source is Source.CLOSED else free
    place = Place(source, node.name, pool, zone_of(node.labels), node.labels, node.taints, free)
    for shape in shapes:
        place.count(shape)
    return place


def machine_place(pool: Pool, name: str, zone: str, source: Source) -> Place:
    """Return an empty machine of a pool."""
    labels = {**pool.labels, **dict.fromkeys(ZONES, zone)} if zone else pool.labels
    free = replace(pool.size, pods=pool.size.pods or _UNLIMITED)
    return Place(source, name, pool.name, zone, labels, pool.taints, free)


def new_machine(pool: Pool) -> Place:
    """Return an empty machine that a pool can launch; in a pool with several zones, its zone is not known."""
    return machine_place(pool, pool.name, pool.zones[0] if len(pool.zones) == 1 else "", Source.NEW)


Full = Mapping[str, set[Hashable]]
"""By label key, the domains in which no further pod of a shape may run."""


def is_full(place: Place, full: Full) -> bool:
    """Return whether a place is in one of these domains."""
    return any(place.domain(key) in domains for key, domains in full.items())


class Launcher(Protocol):
    """Adds empty machines, within all limits."""

    def open(self, shape: Shape, pool: str | None, full: Full, /) -> Place | None:
        """Return a new machine for a pod of a shape, of one pool if one is named; None if none is possible."""

    def close(self, place: Place, /) -> None:
        """Take a new machine back."""


@dataclass
class Packer:
    """Places pods one after the other, each in the first place with room; a `launcher` adds places."""

    places: list[Place]
    launcher: Launcher | None = None
    _cursors: dict[Shape, int] = field(default_factory=dict)

    def place(self, pod: Pod) -> Place | None:
        """Return the place of a pod; None if no place has room and none can be opened."""
        shape = shape_of(pod)
        full = self.full_domains(shape)
        place = _first(shape, self._cursors, self.places, full)
        if place is None:
            place = self.launcher.open(shape, None, full) if self.launcher else None
            if place is None:
                return None
            self.places.append(place)
        place.take(shape)
        return place

    def place_gang(self, pods: Sequence[Pod], zones: Sequence[str], pools: Iterable[Pool]) -> list[Place]:
        """Return the places of all pods of a gang in one zone, or none.

        Free places of a zone are tried first, then with new machines of one pool, which must have one zone only.
        """
        shapes = [shape_of(pod) for pod in pods]
        for zone in zones:
            if placed := self._place_all(shapes, zone, None):
                return placed
        for pool in pools:
            if len(pool.zones) == 1 and (placed := self._place_all(shapes, pool.zones[0], pool.name)):
                return placed
        return []

    def _place_all(self, shapes: Sequence[Shape], zone: str, pool: str | None) -> list[Place]:
        here = [place for place in self.places if place.zone == zone]
        cursors: dict[Shape, int] = {}
        opened: list[Place] = []
        placed: list[Place] = []
        for shape in shapes:
            full = self.full_domains(shape, opened)
            place = _first(shape, cursors, here, full)
            if place is None and pool and self.launcher and (place := self.launcher.open(shape, pool, full)):
                here.append(place)
                opened.append(place)
            if place is None:
                break
            place.take(shape)
            placed.append(place)
        if len(placed) == len(shapes):
            self.places.extend(opened)
            return placed
        for shape, place in zip(shapes, placed, strict=False):
            place.take(shape, -1)
        if self.launcher:
            for place in opened:
                self.launcher.close(place)
        return []

    def full_domains(self, shape: Shape, opened: Sequence[Place] = ()) -> Full:
        """Return the domains in which no further pod of a shape may run, with `opened` places besides the own ones."""
        full: defaultdict[str, set[Hashable]] = defaultdict(set)
        if not (shape.spread or shape.kinds):
            return full
        places = [*self.places, *opened]
        for rule in shape.spread:
            full[rule.domain] |= _full_by_rule(rule, shape, places)
        for place in places:
            for rule, count in place.apart.items():
                if count > 0 and rule.pods in shape.kinds and place.domain(rule.domain) is not None:
                    full[rule.domain].add(place.domain(rule.domain))
        return full


def _first(shape: Shape, cursors: dict[Shape, int], places: Sequence[Place], full: Full) -> Place | None:
    # A place that is full stays full, unless other domains catch up.
    at = 0 if any(rule.skew for rule in shape.spread) else cursors.get(shape, 0)
    while at < len(places):
        place = places[at]
        if place.has_room(shape) and place.admits(shape) and not is_full(place, full):
            cursors[shape] = at
            return place
        at += 1
    cursors[shape] = at
    return None


def _full_by_rule(rule: Spread, shape: Shape, places: Iterable[Place]) -> set[Hashable]:
    keys = [other.domain for other in shape.spread if other.skew]
    counts: Counter[Hashable] = Counter()
    for place in places:
        domain = place.domain(rule.domain)
        # A skew is one of the nodes that the pod selects and that have the labels of all its limits, also of full and
        # cordoned ones. Source: kube-scheduler, plugin PodTopologySpread.
        is_counted = not rule.skew or (place.is_selected(shape) and all(place.domain(key) is not None for key in keys))
        if is_counted and domain is not None:
            counts[domain] += place.kinds[rule.pods]
    if not rule.skew:
        return {domain for domain, count in counts.items() if count}
    least = min(counts.values(), default=0) if len(counts) >= rule.domains else 0
    most = rule.skew + least - (rule.pods in shape.kinds)
    return {None, *(domain for domain, count in counts.items() if count > most)}


def shortfalls(shape: Shape, place: Place) -> Iterator[str]:
    """Yield why an empty place cannot run a pod of a shape."""
    for key, value in sorted(shape.selector):
        if place.labels.get(key) != value:
            yield f"its {key} is {place.labels.get(key, 'missing')}, not {value}"
    yield from (f"it has no label {key}, over which the pod is spread" for key in place.lacks(shape))
    if taints := sorted(place.taints - shape.tolerations):
        yield f"the pod does not tolerate {', '.join(taints)}"
    for name, unit in UNITS.items():
        needed, free = getattr(shape.size, name), getattr(place.free, name)
        if needed > free + ROUNDING:
            yield f"it has {free:g} {unit}, not {needed:g}"
