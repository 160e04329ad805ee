"""First fit of pods onto places: nodes, machines on their way, and machines that pools can launch."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from bedplate.capacity.observation import ROUNDING, Node, Pod, Pool, Size

ZONES = ("topology.kubernetes.io/zone", "zone")
"""Labels of a node that name its zone."""
_UNLIMITED = 1_000_000


class Source(Enum):
    """Where a place comes from."""

    LIVE = "a node"
    CORDONED = "a node that the planner has cordoned"
    COMING = "a machine on its way"
    NEW = "a machine that is not launched yet"


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a pod that the scheduler compares: of pods with equal ones, all fit or none.

    `size` counts one pod.
    """

    size: Size
    selector: frozenset[tuple[str, str]]
    tolerations: frozenset[str]
    spread: str | None


def shape_of(pod: Pod) -> Shape:
    """Return the shape of a pod."""
    return Shape(replace(pod.size, pods=1), frozenset(pod.selector.items()), pod.tolerations, pod.spread)


@dataclass(slots=True, eq=False)
class Place:
    """A node or machine with what is free on it. `name` is a node, machine or pool; `pool` is None on site."""

    source: Source
    name: str
    pool: str | None
    zone: str
    labels: Mapping[str, str]
    taints: frozenset[str]
    free: Size
    shapes: set[Shape] = field(default_factory=set)
    taken: int = 0

    def admits(self, shape: Shape) -> bool:
        """Return whether a pod of a shape may run here if there is room."""
        labels = self.labels
        return self.taints <= shape.tolerations and all(labels.get(key) == value for key, value in shape.selector)

    def has_room(self, shape: Shape) -> bool:
        """Return whether a pod of a shape fits in what is free."""
        return shape.size.fits(self.free) and (shape.spread is None or shape not in self.shapes)

    def take(self, shape: Shape, sign: int = 1) -> None:
        """Take the room of a pod, or give it back."""
        self.free = self.free.minus(shape.size, sign)
        self.taken += sign
        if shape.spread and sign > 0:
            self.shapes.add(shape)
        elif shape.spread:
            self.shapes.discard(shape)


def zone_of(labels: Mapping[str, str]) -> str:
    """Return the zone in the labels of a node; empty if they have none."""
    return next((labels[key] for key in ZONES if key in labels), "")


def node_place(node: Node, source: Source, pool: str | None, shapes: Iterable[Shape] = ()) -> Place:
    """Return the free room of a node, on which pods of `shapes` run."""
    free = node.free if node.size.pods else replace(node.free, pods=_UNLIMITED)
    return Place(source, node.name, pool, zone_of(node.labels), node.labels, node.taints, free, set(shapes))


def machine_place(pool: Pool, name: str, zone: str, source: Source) -> Place:
    """Return an empty machine of a pool."""
    labels = {**pool.labels, **dict.fromkeys(ZONES, zone)} if zone else pool.labels
    free = replace(pool.size, pods=pool.size.pods or _UNLIMITED)
    return Place(source, name, pool.name, zone, labels, pool.taints, free)


class Launcher(Protocol):
    """Adds empty machines, within all limits."""

    def open(self, shape: Shape, pool: str | None, full_zones: Collection[str], /) -> Place | None:
        """Return a new machine for a pod of a shape, of one pool if one is named; None if none is possible."""

    def close(self, place: Place, /) -> None:
        """Take a new machine back."""


@dataclass
class Packer:
    """Places pods one after the other, each in the first place with room; `launcher` adds places."""

    places: list[Place]
    launcher: Launcher
    _cursors: dict[Shape, int] = field(default_factory=dict)
    _zones: dict[Shape, set[str]] = field(default_factory=dict)

    def place(self, pod: Pod) -> Place | None:
        """Return the place of a pod; None if no place has room and none can be opened."""
        shape = shape_of(pod)
        place = self._first(shape, self._cursors, self.places)
        if place is None:
            place = self.launcher.open(shape, None, self._zones_of(shape))
            if place is None:
                return None
            self.places.append(place)
        self._take(shape, place)
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
            place = self._first(shape, cursors, here)
            if place is None and pool and (place := self.launcher.open(shape, pool, ())):
                here.append(place)
                opened.append(place)
            if place is None:
                break
            self._take(shape, place)
            placed.append(place)
        if len(placed) == len(shapes):
            self.places.extend(opened)
            return placed
        for shape, place in zip(shapes, placed, strict=False):
            self._take(shape, place, -1)
        for place in opened:
            self.launcher.close(place)
        return []

    def _first(self, shape: Shape, cursors: dict[Shape, int], places: Sequence[Place]) -> Place | None:
        at = cursors.get(shape, 0)
        while at < len(places):
            place = places[at]
            if place.has_room(shape) and place.admits(shape) and self._is_possible(shape, place):
                cursors[shape] = at
                return place
            at += 1
        cursors[shape] = at
        return None

    def _take(self, shape: Shape, place: Place, sign: int = 1) -> None:
        place.take(shape, sign)
        if shape.spread == "zone":
            zones = self._zones_of(shape)
            (zones.add if sign > 0 else zones.discard)(place.zone)

    def _is_possible(self, shape: Shape, place: Place) -> bool:
        return shape.spread != "zone" or place.zone not in self._zones_of(shape)

    def _zones_of(self, shape: Shape) -> set[str]:
        """Return the zones in which no further pod of a shape may run."""
        if shape.spread != "zone":
            return set()
        if shape not in self._zones:
            self._zones[shape] = {place.zone for place in self.places if shape in place.shapes}
        return self._zones[shape]


def shortfalls(shape: Shape, place: Place) -> Iterator[str]:
    """Yield why an empty place cannot run a pod of a shape."""
    for key, value in sorted(shape.selector):
        if place.labels.get(key) != value:
            yield f"its {key} is {place.labels.get(key, 'missing')}, not {value}"
    if taints := sorted(place.taints - shape.tolerations):
        yield f"the pod does not tolerate {', '.join(taints)}"
    names = ("gpus", "cpus", "memory", "efa", "ephemeral")
    for name, unit in zip(names, ("GPUs", "CPUs", "GiB of memory", "EFA interfaces", "GiB on disk"), strict=True):
        needed, free = getattr(shape.size, name), getattr(place.free, name)
        if needed > free + ROUNDING:
            yield f"it has {free:g} {unit}, not {needed:g}"
