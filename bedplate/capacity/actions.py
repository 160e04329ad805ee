"""What the planner of capacity decides: actions in the order in which they are applied, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Set the desired capacity of a pool; lowering it only stops launches: machines are protected from scale-in."""

    pool: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Mark a node as unschedulable, and as marked by the planner."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class UncordonNode:
    """Make a node schedulable again that the planner had marked."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Cordon a node and evict its movable pods; its other pods continue."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict one pod by the eviction API, which respects disruption budgets."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """End a machine; with `decrement` the desired capacity of its pool falls by one, else AWS replaces it."""

    machine: str
    decrement: bool
    reason: str


Action = SetDesired | CordonNode | UncordonNode | DrainNode | EvictPod | Terminate
_VERBS: Mapping[type[Action], str] = {
    SetDesired: "set-desired",
    CordonNode: "cordon",
    UncordonNode: "uncordon",
    DrainNode: "drain",
    EvictPod: "evict",
    Terminate: "terminate",
}


def verb_of(action: Action) -> str:
    """Return the name of an action in the protocol of `capacity decide`."""
    return _VERBS[type(action)]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod that fits no pool, with the reason."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending pod that a pool could run: a place `is_coming`, or not yet; the reason says which place or why not."""

    pod: str
    is_coming: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one decision. Every pending pod is `waiting`, or fits no pool and was reported as `unplaced`."""

    actions: tuple[Action, ...]
    unplaced: tuple[Unplaced, ...] = ()
    waiting: tuple[Waiting, ...] = ()
