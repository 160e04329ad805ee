"""The sections of the fleet file about groups of cloud machines: schedule, ladder, disks, and the machine image."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bedplate.rules import Rule
from bedplate.spec.base import (
    ADDED,
    BOTH,
    CHANGED,
    EVERY,
    REMOVED,
    Spec,
    Syntax,
    Table,
    entries,
    free,
    new_nodes,
    on_edit,
    removes,
    replaces,
    shrinks,
)
from bedplate.spec.sites import JOBS, Use
from bedplate.spec.text import (
    DriverBranch,
    Duration,
    Expiry,
    InstanceType,
    KernelSeries,
    KubernetesVersion,
    LabelKey,
    LabelValue,
    Moment,
    Owner,
    RegionName,
    ReservationId,
    Taint,
    ZoneName,
)

SCHEDULE_SYNTAX = Rule(
    "E319",
    "Auto Scaling takes times, weekdays and time zones in this form only.",
    "write start: '07:00', stop: '20:00', days: MON-FRI, zone: Europe/Zurich",
    "EC2 Auto Scaling PutScheduledUpdateGroupAction",
    section="groups",
)


def _similar_times(word: str) -> Iterator[str]:
    """Yield a time such as 8, 8.30 or 8 pm with two digits each."""
    match = re.fullmatch(r"([0-9]{1,2})(?:[:.h]([0-9]{2}))?(?::[0-9]{2})? *([ap]?)m?", word.lower())
    if match:
        half_day = {"a": int(match[1]) % 12, "p": int(match[1]) % 12 + 12}
        yield f"{half_day.get(match[3], int(match[1])):02}:{match[2] or '00'}"
    if word == "24:00":
        yield "00:00"


def _similar_weekdays(word: str) -> Iterator[str]:
    """Yield weekdays as their first three letters, without spaces."""
    yield re.sub(r"[A-Z]+", lambda day: day[0][:3], re.sub(r"\s+", "", word.upper()))
    yield {"weekdays": "MON-FRI", "workdays": "MON-FRI", "daily": "MON-SUN", "weekend": "SAT,SUN"}.get(word.lower(), "")


_DAY = "(MON|TUE|WED|THU|FRI|SAT|SUN)"
Clock = Annotated[
    str,
    Syntax(
        SCHEDULE_SYNTAX,
        "time of day",
        r"([01][0-9]|2[0-3]):[0-5][0-9]",
        "HH:MM, from 00:00 to 23:59",
        "'20:00'",
        5,
        similar=_similar_times,
    ),
]
Weekdays = Annotated[
    str,
    Syntax(
        SCHEDULE_SYNTAX,
        "list of weekdays",
        rf"{_DAY}(-{_DAY}|(,{_DAY})*)",
        "MON to SUN, with a hyphen or commas",
        "MON-FRI",
        similar=_similar_weekdays,
    ),
]
# Auto Scaling takes names of the IANA database; the catalog lists them.
TimeZone = Annotated[
    str,
    Syntax(
        SCHEDULE_SYNTAX,
        "time zone",
        r"UTC|[A-Z][A-Za-z_]+(/[A-Z][A-Za-z0-9_+-]+)+",
        "an area, a slash and a city, as `timedatectl list-timezones` lists them",
        "Europe/Zurich",
        64,
    ),
]

_TIMES = "the start and stop times"


class Schedule(Spec):
    """Daily start and stop times of a group's machines; a stopped machine loses its root volume."""

    start: Clock = Field(
        title="Start",
        description="Time of day, quoted, at which the minimum number of machines starts.",
        json_schema_extra=on_edit(free(_TIMES)),
    )
    stop: Clock = Field(
        title="Stop",
        description="Time of day, quoted, at which all machines of the group are terminated.",
        json_schema_extra=on_edit(free(_TIMES)),
    )
    days: Weekdays = Field(
        default="MON-FRI",
        title="Weekdays",
        description="Days on which machines start.",
        json_schema_extra=on_edit(free(_TIMES)),
    )
    zone: TimeZone = Field(
        default="UTC",
        title="Time zone",
        description="Time zone of both times.",
        json_schema_extra=on_edit(free(_TIMES)),
    )


# Auto Scaling API reference, LaunchTemplate: overrides of one mixed instances policy, 2026-11.
MOST_TYPES = 40

_POOL_MAXIMUM = "the maximum of its pool; AWS terminates machines above it"
_ANOTHER_POOL = "the old pool and its machines; a new pool is created"
_NEXT_IMAGE = "the next image build; running machines stay"
_REGISTRATION = "tags; nodes register them at boot"
_CONTROLLER = "which machines the capacity controller starts and ends"
_DRIVER = "its machines with GPUs, at their next apply while no program uses a GPU"
_MIG = "what the health gate of its machines accepts, at their next apply"
_FRAMEWORKS = "the Python environment of its machines, at their next apply"


class Market(StrEnum):
    """How instances are bought. Code decides by its properties, or in a `match` that mypy checks for completeness."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"
    CAPACITY_BLOCK = "capacity-block"

    @property
    def is_spot(self) -> bool:
        """Whether AWS may interrupt the instances, and their price varies."""
        match self:
            case Market.SPOT:
                return True
            case Market.ON_DEMAND | Market.RESERVATION | Market.CAPACITY_BLOCK:
                return False

    @property
    def is_reserved(self) -> bool:
        """Whether the instances run in capacity that the account has reserved, in one zone."""
        match self:
            case Market.RESERVATION | Market.CAPACITY_BLOCK:
                return True
            case Market.ON_DEMAND | Market.SPOT:
                return False

    @property
    def is_block(self) -> bool:
        """Whether the instances run in a capacity block, which ends at a fixed time."""
        match self:
            case Market.CAPACITY_BLOCK:
                return True
            case Market.ON_DEMAND | Market.SPOT | Market.RESERVATION:
                return False


class Fabric(StrEnum):
    """The low-latency network between the machines of a multi-node job."""

    EFA = "efa"


class Ring(StrEnum):
    """The bundle that machines follow: `canary` gets a new one first."""

    STABLE = "stable"
    CANARY = "canary"


class Nodes(Spec):
    """The number of machines of a group, over all rungs."""

    min: int = Field(
        ge=0,
        le=5000,
        title="Minimum",
        description="Machines that always run.",
        json_schema_extra=on_edit(free("how many machines always run")),
    )
    max: int = Field(
        ge=0,
        le=5000,
        title="Maximum",
        description="Most machines of the group, over all rungs.",
        json_schema_extra=on_edit(shrinks("the maximum of the group; AWS terminates machines above it")),
    )


class Rung(Spec):
    """One source of capacity."""

    region: RegionName = Field(
        title="Region",
        description="A region of this file.",
        json_schema_extra=on_edit(replaces(_ANOTHER_POOL)),
    )
    market: Market = Field(
        default=Market.ON_DEMAND,
        strict=False,
        title="Market",
        description="How its machines are bought.",
        json_schema_extra=on_edit(replaces(_ANOTHER_POOL)),
    )
    reservation: ReservationId | None = Field(
        default=None,
        title="Reservation",
        description="Id of the capacity reservation or capacity block (cr-...), for those two markets.",
        json_schema_extra=on_edit(replaces(_ANOTHER_POOL, *EVERY)),
    )
    zone: ZoneName | None = Field(
        default=None,
        title="Zone",
        description="One zone of the region. Required for a reservation or capacity block: the zone of that.",
        json_schema_extra=on_edit(replaces(_ANOTHER_POOL, *EVERY)),
    )
    reserved: int | None = Field(
        default=None,
        ge=1,
        le=5000,
        title="Reserved machines",
        description="Machines in the reservation or capacity block: the maximum of the pool.",
        json_schema_extra=on_edit(
            shrinks(_POOL_MAXIMUM),
            removes("machines of its pool above this number", ADDED),
            free("the maximum of its pool", REMOVED),
        ),
    )
    max_price: float | None = Field(
        default=None,
        ge=0.001,
        le=1000,
        title="Maximum price",
        description="For market spot: highest price in USD per hour. Default: the on-demand price.",
        json_schema_extra=on_edit(new_nodes("the maximum spot price", *EVERY)),
    )
    ends: Moment | None = Field(
        default=None,
        title="End",
        description="For market capacity-block: the end of the block. The pool is emptied an hour before.",
        json_schema_extra=on_edit(free("when the pool is emptied", *EVERY)),
    )

    @property
    def source(self) -> tuple[str, ...]:
        """The capacity it uses: rungs with the same source are the same pool."""
        return (self.region, self.market.value, self.reservation or "", self.zone or "")


class Group(Spec):
    """Equal machines, and the ladder of capacity that they start on."""

    use: Use = Field(
        strict=False,
        title="Use",
        description="ssh (people log in) or kubernetes (workers).",
        json_schema_extra=on_edit(new_nodes("the role of the machines")),
    )
    types: tuple[InstanceType, ...] = Field(
        min_length=1,
        max_length=MOST_TYPES,
        title="Instance types",
        description="EC2 instance types that are equally suitable.",
        json_schema_extra=on_edit(new_nodes("the instance types", *EVERY)),
    )
    nodes: Nodes = Field(title="Nodes", description="Number of machines, over all rungs.")
    similar: bool = Field(
        default=False,
        title="Similar types",
        description="Whether to use any type with CPUs and memory between the smallest and the largest listed type.",
        json_schema_extra=on_edit(new_nodes("the possible instance types")),
    )
    disk: int = Field(
        default=100,
        ge=8,
        le=16384,
        title="Root disk",
        description="Size of the root volume in GiB.",
        json_schema_extra=on_edit(new_nodes("the root volume")),
    )
    disk_throughput: int = Field(
        default=125,
        ge=125,
        le=1000,
        title="Disk throughput",
        description="Throughput of the root volume in MiB/s.",
        json_schema_extra=on_edit(new_nodes("the root volume")),
    )
    disk_iops: int = Field(
        default=3000,
        ge=3000,
        le=16000,
        title="Disk IOPS",
        description="I/O operations per second of the root volume.",
        json_schema_extra=on_edit(new_nodes("the root volume")),
    )
    fabric: Fabric | None = Field(
        default=None,
        strict=False,
        title="Fabric",
        description="efa: all network cards, one zone per pool, and a placement group where AWS supports one.",
        json_schema_extra=on_edit(replaces("its pools: a fabric has one pool per zone", *EVERY)),
    )
    ladder: tuple[Rung, ...] = Field(
        min_length=1,
        title="Ladder",
        description="Where to look for capacity, in this order.",
        json_schema_extra=on_edit(
            free("the order of the search, and which pool holds the minimum", CHANGED),
            entries("a pool", "its pool and the machines in it"),
        ),
    )
    ring: Ring = Field(
        default=Ring.STABLE,
        strict=False,
        title="Ring",
        description="The node bundle that its machines follow: stable, or canary, which gets a new bundle first.",
        json_schema_extra=on_edit(new_nodes("the ring that machines follow")),
    )
    labels: Table[LabelKey, LabelValue] = Field(
        default_factory=dict,
        validate_default=True,
        title="Labels",
        description="Labels of its Kubernetes nodes, in addition to bedplate's own.",
        json_schema_extra=on_edit(free(_REGISTRATION)),
    )
    driver: DriverBranch | None = Field(
        default=None,
        title="Driver branch",
        description="NVIDIA driver branch of its machines, quoted, such as '580'. Default: that of the fleet's image.",
        json_schema_extra=on_edit(free(_DRIVER, *EVERY)),
    )
    mig: bool = Field(
        default=False,
        title="MIG",
        description="Whether people split its GPUs into instances (MIG). Else the health gate asks to disable MIG.",
        json_schema_extra=on_edit(free(_MIG)),
    )
    frameworks: bool | None = Field(
        default=None,
        title="Frameworks",
        description="For use ssh: whether PyTorch is installed for all users. Default: on GPUs that it supports.",
        json_schema_extra=on_edit(free(_FRAMEWORKS, *EVERY)),
    )
    jobs: bool = Field(
        default=True,
        title="Jobs",
        description="Whether people run jobs on its machines with `bp run`.",
        json_schema_extra=on_edit(free(JOBS)),
    )
    taints: tuple[Taint, ...] = Field(
        default=(),
        title="Taints",
        description="Taints of its Kubernetes nodes, as key=value:NoSchedule.",
        json_schema_extra=on_edit(free(_REGISTRATION, *EVERY)),
    )
    owner: Owner | None = Field(
        default=None,
        title="Owner",
        description="Contact for these machines. Default: the fleet's owner.",
        json_schema_extra=on_edit(new_nodes("tags of machines", *EVERY)),
    )
    expires: Expiry | None = Field(
        default=None,
        title="Expiry",
        description="Last day of these machines, quoted, or permanent. They are terminated after that day.",
        json_schema_extra=on_edit(
            new_nodes("tags and end of machines; after that day run `bedplate refresh`, then `bedplate up`", *EVERY)
        ),
    )
    idle: Duration | None = Field(
        default=None,
        title="Idle time",
        description="Time after which an idle machine above the minimum ends. Default: 10m for workers, none for ssh.",
        json_schema_extra=on_edit(free("when machines that nobody uses end", *EVERY)),
    )
    spare: int = Field(
        default=0,
        ge=0,
        le=5000,
        title="Spare machines",
        description="For use kubernetes: machines kept without pods, so that new pods start at once.",
        json_schema_extra=on_edit(free(_CONTROLLER)),
    )
    max_cost: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        title="Maximum cost",
        description="For use kubernetes: US dollars per hour at list prices, above which no machine starts.",
        json_schema_extra=on_edit(free(_CONTROLLER, *EVERY)),
    )
    schedule: Schedule | None = Field(
        default=None,
        title="Schedule",
        description="Daily start and stop times; a stop deletes disks. A new group starts at once. Default: none.",
        json_schema_extra=on_edit(free(_TIMES, *BOTH)),
    )


class Image(Spec):
    """The contents of the machine image."""

    base: Literal["ubuntu-24.04"] = Field(
        default="ubuntu-24.04",
        title="Base system",
        description="Ubuntu release of the image.",
        json_schema_extra=on_edit(free(_NEXT_IMAGE)),
    )
    driver: DriverBranch | None = Field(
        default=None,
        title="Driver branch",
        description="NVIDIA driver branch of machines with GPUs, quoted, such as '580'. Default: that of `software`.",
        json_schema_extra=on_edit(free("machines with GPUs, at their next apply while no program uses a GPU", *EVERY)),
    )
    disk: int = Field(
        default=8,
        ge=8,
        le=16384,
        title="Size",
        description="Size of the image in GiB: the minimum for every group's root volume.",
        json_schema_extra=on_edit(free("checks of disk sizes; no machine")),
    )
    kernel: KernelSeries | None = Field(
        default=None,
        title="Kernel",
        description="Kernel series of the image, quoted, such as '6.8'. Default: not checked.",
        json_schema_extra=on_edit(free(_NEXT_IMAGE, *EVERY)),
    )
    kubernetes: KubernetesVersion | None = Field(
        default=None,
        title="Kubernetes version",
        description="Version of the image's kubelet, quoted, such as '1.36'. Default: the cluster's version.",
        json_schema_extra=on_edit(free(_NEXT_IMAGE, *EVERY)),
    )
