"""A group of cloud machines, and the ladder of places where its capacity is looked for."""

from enum import StrEnum

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.site import Use
from bedplate.spec.text import InstanceType, RegionName, ReservationId, ZoneName


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


class Group(Spec):
    """Machines of one kind, and the ladder of capacity that they grow over."""

    use: Use = Field(strict=False, title="Use", description="ssh: people log in; kubernetes: workers.")
    types: tuple[InstanceType, ...] = Field(
        min_length=1, title="Instance types", description="EC2 instance types that serve equally well."
    )
    nodes: Nodes = Field(title="Nodes", description="How many machines, over all rungs.")
    disk: int = Field(default=100, ge=8, le=16384, title="Root disk", description="Size of the root volume in GiB.")
    fabric: Fabric | None = Field(
        default=None,
        strict=False,
        title="Fabric",
        description="efa: all network cards, one zone a pool, a placement group where AWS allows one.",
    )
    ladder: tuple[Rung, ...] = Field(
        min_length=1, title="Ladder", description="Where capacity is looked for, in this order."
    )
