"""A pool: the machines that one rung of a ladder may bring, as one Auto Scaling group makes them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from bedplate.spec.group import Fabric, Market
from bedplate.spec.schedule import Schedule
from bedplate.spec.site import Use

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Volume:
    """A root volume: its size in GiB, its throughput in MiB/s, its operations a second."""

    gib: int
    throughput: int = 125
    iops: int = 3000


@dataclass(frozen=True, slots=True)
class Offer:
    """How a pool's machines are bought.

    `max_price` is USD an hour, for spot; `ends` the moment in UTC at which a capacity block is over. `similar`
    asks for types like the named ones too.
    """

    market: Market
    types: tuple[str, ...]
    similar: bool = False
    reservation: str | None = None
    max_price: float | None = None
    ends: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tenure:
    """Whose machines they are, until when (an ISO day, `permanent`, or None where nobody said), and at what hours."""

    owner: str
    expires: str | None = None
    schedule: Schedule | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """One Auto Scaling group: a rung of a group's ladder, in one zone where the fabric needs it.

    `max` is what this pool may hold, `most` what its group may, over all its pools. `labels` and `taints`
    (`key=value:effect`) are those that the file asks for; what a node registers beside them follows from its type.
    """

    name: str
    group: str
    use: Use
    region: str
    zones: tuple[str, ...]
    offer: Offer
    min: int
    max: int
    most: int
    volume: Volume
    fabric: Fabric | None
    tenure: Tenure
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    taints: tuple[str, ...] = ()
    rung: int = 0
    """Where its rung stands in the group's ladder: for messages; names and addresses never hang on it."""

    @property
    def market(self) -> Market:
        """How its machines are bought."""
        return self.offer.market

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types that serve equally well, in the order of the file."""
        return self.offer.types


def together(pools: Collection[PoolPlan]) -> int:
    """Return how many machines pools of one group may have at once: all that they hold, never more than the group."""
    return min(sum(pool.max for pool in pools), *(pool.most for pool in pools))
