"""A group of cloud machines, and the ladder of places where its capacity is looked for."""

from enum import StrEnum

from pydantic import Field

from bedplate.spec.base import Spec, Table
from bedplate.spec.day import Expiry, Moment
from bedplate.spec.schedule import Schedule
from bedplate.spec.site import Use
from bedplate.spec.software import LabelKey, LabelValue, Taint
from bedplate.spec.text import InstanceType, Owner, RegionName, ReservationId, ZoneName

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
