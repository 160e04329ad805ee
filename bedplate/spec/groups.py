"""The hours in which the machines of a group run."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bedplate.spec.base import Spec, Syntax, Table
from bedplate.spec.sites import Use
from bedplate.spec.text import (
    DriverBranch,
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

_DAY = "(MON|TUE|WED|THU|FRI|SAT|SUN)"
Clock = Annotated[
    str,
    Syntax("E319", "time of day", r"([01][0-9]|2[0-3]):[0-5][0-9]", "two digits, a colon, two digits", "'20:00'", 5),
]
Weekdays = Annotated[
    str,
    Syntax(
        "E319", "list of weekdays", rf"{_DAY}(-{_DAY}|(,{_DAY})*)", "MON to SUN, with a hyphen or commas", "MON-FRI"
    ),
]
# Auto Scaling takes names of the IANA database; which of them exist is the catalogue's to know.
TimeZone = Annotated[
    str,
    Syntax(
        "E319",
        "time zone",
        r"UTC|[A-Z][A-Za-z_]+(/[A-Z][A-Za-z0-9_+-]+)+",
        "an area, a slash and a city, as in the IANA database",
        "Europe/Zurich",
        64,
    ),
]


class Schedule(Spec):
    """When a group's machines start in the morning and stop in the evening; what stops loses its root volume."""

    start: Clock = Field(title="Start", description="Time of day, quoted, at which the group's minimum is started.")
    stop: Clock = Field(title="Stop", description="Time of day, quoted, at which all of the group's machines end.")
    days: Weekdays = Field(default="MON-FRI", title="Weekdays", description="The days on which they start.")
    zone: TimeZone = Field(default="UTC", title="Time zone", description="Time zone of both times of day.")


# What one mixed instances policy may name. Source: Auto Scaling API reference, LaunchTemplate (overrides), 2026-11.
MOST_TYPES = 40


class Market(StrEnum):
    """How instances are bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"
    CAPACITY_BLOCK = "capacity-block"


class Fabric(StrEnum):
    """The network between the machines of a multi-node job."""

    EFA = "efa"


class Nodes(Spec):
    """How many machines a group may have, over all its rungs."""

    min: int = Field(ge=0, le=5000, title="Minimum", description="Machines kept at all times.")
    max: int = Field(ge=0, le=5000, title="Maximum", description="Machines never exceeded, over all rungs.")


class Rung(Spec):
    """One place where capacity may come from."""

    region: RegionName = Field(title="Region", description="A region of this file.")
    market: Market = Field(
        default=Market.ON_DEMAND,
        strict=False,
        title="Market",
        description="on-demand, spot, reservation or capacity-block.",
    )
    reservation: ReservationId | None = Field(
        default=None,
        title="Reservation",
        description="Id of the capacity reservation or block (cr-...), with market reservation or capacity-block.",
    )
    zone: ZoneName | None = Field(
        default=None,
        title="Zone",
        description="One zone of the region; required with a reservation or block, whose zone it is.",
    )
    reserved: int | None = Field(
        default=None,
        ge=1,
        le=5000,
        title="Reserved machines",
        description="How many machines the reservation or block holds: its pool grows no further.",
    )
    max_price: float | None = Field(
        default=None,
        ge=0.001,
        le=1000,
        strict=False,
        title="Maximum price",
        description="With market spot: USD an hour that a machine may cost; left out, the price on demand.",
    )
    ends: Moment | None = Field(
        default=None,
        title="End",
        description="With market capacity-block: when the block ends; the pool is emptied an hour before.",
    )

    @property
    def source(self) -> tuple[str, ...]:
        """Where its capacity comes from: a rung that differs in nothing else is the same pool."""
        return (self.region, self.market.value, self.reservation or "", self.zone or "")


class Group(Spec):
    """Machines of one kind, and the ladder of capacity that they grow over."""

    use: Use = Field(strict=False, title="Use", description="ssh: people log in; kubernetes: workers.")
    types: tuple[InstanceType, ...] = Field(
        min_length=1,
        max_length=MOST_TYPES,
        title="Instance types",
        description="EC2 instance types that serve equally well.",
    )
    nodes: Nodes = Field(title="Nodes", description="How many machines, over all rungs.")
    similar: bool = Field(
        default=False,
        title="Similar types too",
        description="Also any type with no fewer CPUs and no less memory than the smallest named, and no more than "
        "the largest.",
    )
    disk: int = Field(default=100, ge=8, le=16384, title="Root disk", description="Size of the root volume in GiB.")
    disk_throughput: int = Field(
        default=125, ge=125, le=1000, title="Disk throughput", description="Throughput of the root volume in MiB/s."
    )
    disk_iops: int = Field(
        default=3000, ge=3000, le=16000, title="Disk IOPS", description="Operations a second of the root volume."
    )
    fabric: Fabric | None = Field(
        default=None,
        strict=False,
        title="Fabric",
        description="efa: all network cards, one zone a pool, a placement group where AWS allows one.",
    )
    ladder: tuple[Rung, ...] = Field(
        min_length=1, title="Ladder", description="Where capacity is looked for, in this order."
    )
    labels: Table[LabelKey, LabelValue] = Field(
        default_factory=dict,
        validate_default=True,
        title="Labels",
        description="Labels of its Kubernetes nodes, beside those that bedplate gives.",
    )
    taints: tuple[Taint, ...] = Field(
        default=(), title="Taints", description="Taints of its Kubernetes nodes, as key=value:NoSchedule."
    )
    owner: Owner | None = Field(
        default=None, title="Owner", description="Who answers for these machines; left out, the fleet's owner."
    )
    expires: Expiry | None = Field(
        default=None,
        title="Expiry",
        description="The day, quoted, after which they are not wanted any more and end, or permanent.",
    )
    schedule: Schedule | None = Field(
        default=None, title="Schedule", description="The hours in which they run; left out, always."
    )


class Image(Spec):
    """The base system, and what is baked on it; what is left out is not judged."""

    base: Literal["ubuntu-24.04"] = Field(
        default="ubuntu-24.04", title="Base system", description="The Ubuntu release that images start from."
    )
    driver: DriverBranch = Field(
        default="580", title="Driver branch", description="NVIDIA driver branch, quoted, such as '580'."
    )
    disk: int = Field(
        default=8, ge=8, le=16384, title="Size", description="GiB that it takes: no group's root volume is smaller."
    )
    kernel: KernelSeries | None = Field(
        default=None, title="Kernel", description="Series of the kernel on it, quoted, such as '6.8'."
    )
    kubernetes: KubernetesVersion | None = Field(
        default=None,
        title="Kubernetes on it",
        description="Minor version of the kubelet on it, quoted; left out, the cluster's.",
    )
