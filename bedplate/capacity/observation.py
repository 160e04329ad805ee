"""The input of the capacity planner: demand, nodes, machines, pools and launches at one time.

Names and units follow the protocol of `bedplate capacity decide` (docs/capacity.md): times in seconds, memory
and ephemeral storage in GiB, prices in USD per hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Cordon(StrEnum):
    """Who marked a node as unschedulable."""

    PLANNER = "planner"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Size:
    """Resources: requested by a pod, or offered by a node or a machine of a pool.

    `pods` is the number of pods that a node can still take; only nodes and pools have it, 0 means unlimited.
    """

    gpus: int = 0
    cpus: float = 0.0
    memory: float = 0.0
    efa: int = 0
    ephemeral: float = 0.0
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that has not ended; `node` is None while it is pending.

    Pods of one `gang` start together in one zone, or not at all; the gang has `gang_size` pods. A `movable`
    pod may be evicted. Equal pods with the `spread` hostname or zone cannot share one.
    """

    id: str
    arrival: float
    size: Size
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: frozenset[str] = frozenset()
    gang: str | None = None
    gang_size: int = 0
    movable: bool = False
    spread: str | None = None
    node: str | None = None
    since: float = 0.0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; `machine` is None for a physical one, which the planner never ends."""

    name: str
    machine: str | None
    labels: Mapping[str, str]
    taints: frozenset[str]
    size: Size
    free: Size
    pods: tuple[str, ...] = ()
    joined: float = 0.0
    idle_since: float | None = None
    cordoned: Cordon | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance that is paid for; without a `node` it is booting, or will never join.

    `notice` is the time at which AWS takes a spot instance. A machine for SSH is `ready` when it is in service. At the
    time `reported` it was unused since `idle_since`, or in use if that is None.
    """

    id: str
    pool: str
    zone: str
    launched: float
    node: str | None = None
    notice: float | None = None
    ready: bool = False
    idle_since: float | None = None
    reported: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """An Auto Scaling group, a rung of a ladder; not `eligible` without an image, a link or free addresses.

    A machine ends after `idle` seconds without use; for nodes the settings have a default. Machines of a pool that
    `is_ssh` have people instead of pods. They do not end before `until`, the time of a person's `node start --for`.
    """

    name: str
    group: str
    rung: int
    region: str
    zones: tuple[str, ...]
    minimum: int
    maximum: int
    desired: int
    type: str = ""
    market: str = "on-demand"
    size: Size = field(default_factory=Size)
    price: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    eligible: bool = True
    is_ssh: bool = False
    idle: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """A launch of `count` machines; a failed one has a `code`, or None if AWS's text is unknown."""

    id: str
    pool: str
    time: float
    ok: bool
    zone: str | None = None
    code: str | None = None
    count: int = 1
    before: int = 0
    after: int = 0
    machine: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds before an `idle` node goes; `cap`: the share of nodes removed at once; `spare` machines by group.

    A machine without a node after `join` seconds is late, until the pool's own machines show how long it takes.
    `most` limits the machines of all pools of a group, `ceilings` their price in USD per hour, and `ceiling` that of
    all groups. In `paused` groups nothing is changed.
    """

    idle: float = 600.0
    cap: float = 0.1
    spare: Mapping[str, int] = field(default_factory=dict)
    join: float = 900.0
    most: Mapping[str, int] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    ceiling: float | None = None
    paused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one decision reads; `pools` in ladder order, `activities` of the last six hours, newest first."""

    time: float
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    machines: tuple[Machine, ...] = ()
    pools: tuple[Pool, ...] = ()
    activities: tuple[Activity, ...] = ()
    settings: Settings = field(default_factory=Settings)

    def machines_of(self, pool: str) -> tuple[Machine, ...]:
        """Return the machines of a pool."""
        return tuple(machine for machine in self.machines if machine.pool == pool)
