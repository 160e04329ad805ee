"""The input and output of the planner of capacity: the observation of one time, failures of launches, and actions.

Names and units follow the protocol of `bedplate capacity decide` (docs/capacity.md): times in seconds, memory
and ephemeral storage in GiB, prices in USD per hour.

A failure is read from the text of a scaling activity, which has no code. Sources, read 2026-11: EC2 Auto Scaling user
guide, "EC2 instance launch failures"; EC2 API reference, "Error codes"; public reports, in the tests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from bedplate.spec.groups import Market

NOT_READY = "InstanceNotReady"
"""The code of an instance whose first boot failed or did not end in time. It is bedplate's own, not EC2's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of a code, the texts that mean it, and what the operator can change.

    With `in_zone`, it concerns one zone of a pool, else the whole pool. One that `is_brief` can end at any minute. An
    operator must end one that `is_fault`; one `everywhere` is the same in all regions.
    """

    cause: str
    texts: tuple[str, ...]
    fix: str
    in_zone: bool = False
    is_brief: bool = False
    is_fault: bool = False
    everywhere: bool = False


_LATER = "wait, or add a rung to the ladder: another zone, type, market or region"
_QUOTA = "`bedplate quotas` shows the quotas and how to raise them"
_DEPLOY = "run `bedplate refresh` and `bedplate up` for the region"

FAILURES: Mapping[str, Failure] = MappingProxyType(
    {
        "InsufficientInstanceCapacity": Failure(
            "no capacity",
            ("do not have sufficient", "no Spot capacity available", "Insufficient capacity"),
            _LATER,
            in_zone=True,
            is_brief=True,
        ),
        "UnfulfillableCapacity": Failure(
            "no spot capacity",
            ("isn't enough spare capacity", "is not enough spare capacity"),
            _LATER,
            in_zone=True,
            is_brief=True,
        ),
        "Unsupported": Failure(
            "the zone does not offer the type",
            ("configuration is currently not supported", "is not supported in your requested Availability Zone"),
            "`bedplate catalog refresh` updates the offers; `bedplate check` names the zones",
            in_zone=True,
        ),
        "InsufficientFreeAddressesInSubnet": Failure(
            "no free address in the subnet", ("enough free addresses",), "use another zone or region", in_zone=True
        ),
        "SpotMaxPriceTooLow": Failure(
            "the spot price is above `max_price`",
            ("minimum required Spot request fulfillment price",),
            "raise `max_price` of the rung",
        ),
        "MaxSpotInstanceCountExceeded": Failure(
            "the spot quota is used up", ("Max spot instance count exceeded",), _QUOTA
        ),
        "VcpuLimitExceeded": Failure("the vCPU quota is used up", ("current vCPU limit",), _QUOTA),
        "InstanceLimitExceeded": Failure(
            "the instance quota is used up",
            ("instance(s) are already running", "current instance limit of", "Your quota allows for"),
            _QUOTA,
        ),
        "VolumeLimitExceeded": Failure(
            "the quota of EBS volumes is used up", ("maximum volume count", "volume storage limit"), _QUOTA
        ),
        "RequestLimitExceeded": Failure(
            "too many calls of AWS",
            ("Request limit exceeded",),
            "wait; another program may call AWS too often",
            is_brief=True,
        ),
        "PendingVerification": Failure(
            "AWS still verifies the account",
            ("currently being verified", "request for accessing resources in this region is being validated"),
            "wait for AWS's mail, or open a support case",
            is_fault=True,
        ),
        "Blocked": Failure(
            "the account is blocked",
            ("currently blocked and not recognized", "account is suspended"),
            "open a support case for the account",
            is_fault=True,
            everywhere=True,
        ),
        "UnauthorizedOperation": Failure(
            "a policy of the account or organization forbids the launch",
            ("not authorized to perform", "explicit deny in a service control policy"),
            "AWS's text names the action; allow it to the role AWSServiceRoleForAutoScaling",
            is_fault=True,
            everywhere=True,
        ),
        "OptInRequired": Failure(
            "the image needs a subscription at AWS Marketplace",
            ("accept terms and subscribe", "subscribe to the product", "not subscribed to this service"),
            "accept the terms in AWS Marketplace, or take another image",
            is_fault=True,
            everywhere=True,
        ),
        "InvalidAMIID": Failure(
            "the image does not exist or is not shared with this account",
            ("Not authorized for images", "The image id", "The AMI ID"),
            f"`bedplate image plan` shows the images; bake or promote one, then {_DEPLOY}",
            is_fault=True,
        ),
        "InvalidKMSKey": Failure(
            "the key of the disks cannot be used, or the image cannot start",
            ("inaccessible AWS KMS key", "KMS key provided is in an incorrect state", "Client.InternalError"),
            "enable the KMS key, and let AWSServiceRoleForAutoScaling use it (docs/aws-account.md)",
            is_fault=True,
        ),
        "InvalidKeyPair": Failure("the key pair does not exist", ("The key pair",), _DEPLOY, is_fault=True),
        "InvalidNetwork": Failure(
            "the launch template names a network that does not exist",
            ("The security group", "The subnet ID", "The placement group", "Invalid IAM Instance Profile"),
            _DEPLOY,
            is_fault=True,
        ),
        "ReservationCapacityExceeded": Failure(
            "the reservation is full", ("reservation does not have sufficient",), "raise the count of the reservation"
        ),
        "CapacityBlockNotActive": Failure(
            "the capacity block is not active", ("is not active yet",), "wait for the start of the block"
        ),
        NOT_READY: Failure(
            "the machine failed at its first boot",
            ("failed to complete user's Lifecycle Action",),
            "`bedplate node logs NAME`, or its console output, shows why; correct image, user data or network",
        ),
    }
)


_UNKNOWN = Failure("", (), "")


def failure_of(code: str | None) -> Failure:
    """Return the failure that a code stands for; for an unknown code, one without a cause and a fix."""
    return FAILURES.get(code or "", _UNKNOWN)


def failure_code(text: str) -> str | None:
    """Return the code of a failed launch by the text of its scaling activity; None if the text is unknown."""
    # `UnsupportedOperation`, a wrong template, is not `Unsupported`.
    named = (code for code in FAILURES if re.search(rf"\b{code}\b", text))
    return next(named, None) or next(
        (code for code, failure in FAILURES.items() if any(words in text for words in failure.texts)), None
    )


ROUNDING = 1e-9
"""The error of sums of sizes."""


class Cordon(StrEnum):
    """Who marked a node as unschedulable."""

    PLANNER = "planner"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Size:
    """Resources: requested by a pod, or offered by a node or a machine of a pool.

    `pods` is the number of pods that fit; only nodes and pools have it. In `size`, 0 means unlimited; in `free`, full.
    """

    gpus: int = 0
    cpus: float = 0.0
    memory: float = 0.0
    efa: int = 0
    ephemeral: float = 0.0
    pods: int = 0

    def fits(self, free: "Size") -> bool:
        """Return whether these resources are free."""
        return (
            self.gpus <= free.gpus
            and self.cpus <= free.cpus + ROUNDING
            and self.memory <= free.memory + ROUNDING
            and self.efa <= free.efa
            and self.ephemeral <= free.ephemeral + ROUNDING
            and self.pods <= free.pods
        )

    def minus(self, other: "Size", sign: int = 1) -> "Size":
        """Return what is left without the other resources, or with them again for the sign -1."""
        return Size(
            self.gpus - sign * other.gpus,
            self.cpus - sign * other.cpus,
            self.memory - sign * other.memory,
            self.efa - sign * other.efa,
            self.ephemeral - sign * other.ephemeral,
            self.pods - sign * other.pods,
        )


UNITS = {
    "gpus": "GPUs",
    "cpus": "CPUs",
    "memory": "GiB of memory",
    "efa": "EFA interfaces",
    "ephemeral": "GiB of ephemeral storage",
}
"""The units of the resources of a size in texts."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A limit on the pods of a kind in each `domain`: hostname or zone. `pods` names the kind.

    With a `skew` a domain may have so many more than the one with the fewest, which has none if there are fewer than
    `domains`. Without one no such pod may be there at all, and none that comes later.
    """

    domain: str
    pods: str
    skew: int = 0
    domains: int = 1


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that has not ended; `node` is None while it is pending.

    Pods of one `gang` start together in one zone, or not at all; the gang has `gang_size` pods. A `movable`
    pod may be evicted. `spread` has its own limits, `kinds` the names of all limits in which it counts.
    `arrival` is when the pod was created, `since` when it started. A `deleted` one is ending.
    One that is `queued` does not exist yet: it waits in a queue. One that runs is ended at the time `until`, if it has
    a limit.
    A pod that is `unsupported`, for this reason, has a requirement that the planner cannot compare. `message` is the
    scheduler's, of a pending pod, or that of the queue. Its `owner` creates it again under another name.
    """

    id: str
    arrival: float
    size: Size
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: frozenset[str] = frozenset()
    gang: str | None = None
    gang_size: int = 0
    movable: bool = False
    spread: tuple[Spread, ...] = ()
    kinds: frozenset[str] = frozenset()
    deleted: bool = False
    node: str | None = None
    since: float = 0.0
    restarts: int = 0
    unsupported: str = ""
    message: str = ""
    owner: str = ""
    queued: bool = False
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; `machine` is None for a physical one, which the planner never removes.

    `failed` is the verdict of its health gate: `hardware`, `software` or `unknown`; empty if it has passed. `defect` is
    another reason to replace its machine. `pods` are its work, `stuck` those that were to end a quarter of an hour
    ago, which are no work. `not_ready_since` is set after a quarter of an hour.
    """

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
    failed: str = ""
    defect: str = ""
    stuck: tuple[str, ...] = ()
    not_ready_since: float | None = None

    @property
    def is_broken(self) -> bool:
        """Whether the machine must be ended: software can be repaired, and a gate that cannot tell is no reason."""
        return bool(self.defect) or self.failed == "hardware"


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance that is paid for; without a `node` it is booting, or will never join.

    `registered`: the cluster has a Node object of it, which may not take part yet or any more.
    `notice` is the time at which AWS interrupts a spot instance. A machine for SSH is `ready` when it is in service.
    """

    id: str
    pool: str
    zone: str
    launched: float
    node: str | None = None
    notice: float | None = None
    ready: bool = False
    registered: bool = False
    template: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """An Auto Scaling group, in a rung of a ladder; not `eligible` without an image, a network link or free addresses.

    AWS launches in `zones`; `out` has further zones of the plan, which the planner has taken out of the group.
    A pool is `silent` while AWS does not answer for its region: it is then as last observed, and nothing is changed.

    `suspended` has the processes of the group that somebody has suspended, except the one that the stacks suspend.
    A machine ends after `idle` seconds without use; for nodes the settings have a default. People, not pods, use
    the machines of a pool that `is_ssh`, and the planner leaves them alone.
    New machines get version `template` of the launch template, others have an earlier one.
    """

    name: str
    group: str
    rung: int
    region: str
    zones: tuple[str, ...]
    min: int
    max: int
    desired: int
    type: str = ""
    market: Market = Market.ON_DEMAND
    size: Size = field(default_factory=Size)
    price: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    eligible: bool = True
    is_ssh: bool = False
    idle: float | None = None
    silent: bool = False
    suspended: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    template: str = ""

    @property
    def cannot_launch(self) -> str:
        """Why AWS launches no machine here whatever is desired; empty if it does."""
        return "somebody has suspended its process Launch" if "Launch" in self.suspended else ""


@dataclass(frozen=True, slots=True)
class Activity:
    """A launch of `count` machines; a failed one has a `code`, or None if AWS's text is unknown.

    `before` and `after` are the desired capacities around it. It began at `time`, and a failed one has `ended` later: a
    first boot takes minutes.
    """

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
    ended: float | None = None

    @property
    def end(self) -> float:
        """The time at which the result was known."""
        return self.time if self.ended is None else self.ended


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds before an `idle` node goes; `cap`: the share of nodes removed at once; `spare` machines by group.

    A movable pod that is moved loses about `restart` seconds of its work.

    A machine without a node after `join` seconds is late, until the pool's own machines show how long it takes.
    `max` limits the machines of all pools of a group, `max_cost` their price in USD per hour, and `fleet_max_cost`
    that of all groups. In `paused` groups nothing is changed.
    """

    idle: float = 600.0
    cap: float = 0.1
    spare: Mapping[str, int] = field(default_factory=dict)
    join: float = 900.0
    restart: float = 600.0
    max: Mapping[str, int] = field(default_factory=dict)
    max_cost: Mapping[str, float] = field(default_factory=dict)
    fleet_max_cost: float | None = None
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

    def launches_of(self, pool: str) -> tuple[Activity, ...]:
        """Return the launches of a pool."""
        return tuple(launch for launch in self.activities if launch.pool == pool)


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Set the desired capacity of a pool; the controller protects its machines, so lowering it only stops launches."""

    pool: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class SetZones:
    """Set the zones in which AWS launches machines of a pool; machines that run elsewhere stay."""

    pool: str
    zones: tuple[str, ...]
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


Action = SetDesired | SetZones | CordonNode | UncordonNode | DrainNode | EvictPod | Terminate
_VERBS: Mapping[type[Action], str] = {
    SetDesired: "set-desired",
    SetZones: "set-zones",
    CordonNode: "cordon",
    UncordonNode: "uncordon",
    DrainNode: "drain",
    EvictPod: "evict",
    Terminate: "terminate",
}


def verb_of(action: Action) -> str:
    """Return the name of an action in the protocol of `capacity decide`."""
    return _VERBS[type(action)]


class Reason(str):
    """A text that says why; it cannot be empty."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Return the text as a reason; without a text, that this is a defect."""
        return super().__new__(cls, text or "the planner has no reason, which is a defect of it")


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod that fits no pool, with the reason."""

    pod: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending pod that a pool could run: a place `is_coming`, or not yet; the reason says which place or why not."""

    pod: str
    is_coming: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one decision. Every pending pod is `waiting`, or fits no pool and was reported as `unplaced`.

    `held` is the reason for which nothing is ended, `faults` has the failures that an operator must end.
    """

    actions: tuple[Action, ...]
    unplaced: tuple[Unplaced, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    held: str = ""
    faults: tuple[str, ...] = ()
