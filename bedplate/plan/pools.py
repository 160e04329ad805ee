"""A pool: the machines that one rung of a ladder may bring, as one Auto Scaling group makes them."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.facts import InstanceFacts
from bedplate.spec.groups import Fabric, Market, Rung, Schedule
from bedplate.spec.sites import Use
from bedplate.spec.text import PERMANENT

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


# What a pool's name says of how its machines are bought; on-demand is the rule and says nothing.
_MARKETS = {
    Market.ON_DEMAND: "",
    Market.SPOT: "-spot",
    Market.RESERVATION: "-reservation",
    Market.CAPACITY_BLOCK: "-block",
}


def bucket_name(fleet: str, store: str, account: str, region: str) -> str:
    """Return a bucket's name: unique over all of AWS, since the account's number is in it."""
    return f"{fleet}-{store}-{account}-{region}"


def stack_name(fleet: str, part: str) -> str:
    """Return the name of a stack: `lab.us-west-2`."""
    return f"{fleet}.{part}"


def tunnel_secret(fleet: str, site: str, region: str) -> str:
    """Return the name of the secret that holds the keys of a site's two tunnels to a region."""
    return f"{fleet}/tunnels/{site}/{region}"


def pool_name(group: str, rung: Rung, place: str) -> str:
    """Return a pool's name; `place` is its one zone, or its region where it spans several."""
    reservation = f"-{rung.reservation}" if rung.reservation else ""
    return f"{group}-{place}{_MARKETS[rung.market]}{reservation}"


_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# AWS ends the machines of a capacity block half an hour before the block does, those of UltraServers a whole hour.
# Source: EC2 user guide, "Capacity Blocks for ML", read 2026-11.
_LEAD, _ULTRA_LEAD = timedelta(hours=1), timedelta(minutes=90)
_ULTRA_FAMILIES = ("p6e-gb200", "p6e-gb300")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a group's sizes become; None leaves one as it is."""

    min: int | None = None
    max: int | None = None
    desired: int | None = None


# The maximum stays: Pulumi would not raise one that AWS has set to 0.
_EMPTY = Sizes(min=0, desired=0)
# A capacity block that has ended never has machines again.
_OVER = Sizes(min=0, max=0, desired=0)


@dataclass(frozen=True, slots=True)
class Action:
    """A change of size: once `at` a moment, or again and again by `cron` in a time zone, `until` a moment if any."""

    name: str
    sizes: Sizes
    at: datetime | None = None
    cron: str | None = None
    zone: str | None = None
    until: datetime | None = None


def timetable(pool: PoolPlan) -> tuple[Action, ...]:
    """Return what happens to a pool by the clock, the daily first; it is over when the pool is emptied for good."""
    last = tuple(_last(pool))
    until = min((action.at for action in last if action.at is not None), default=None)
    schedule = pool.tenure.schedule
    return (*(_daily(pool, schedule, until) if schedule else ()), *last)


def _daily(pool: PoolPlan, schedule: Schedule, until: datetime | None) -> Iterator[Action]:
    """Yield a morning and an evening; the evening is every day's, also of a day on which somebody came by hand."""
    morning, evening = Sizes(min=pool.min), _EMPTY
    days = ",".join(str(number) for number in weekdays(schedule.days))
    yield Action("start", morning, cron=_cron(schedule.start, days), zone=schedule.zone, until=until)
    yield Action("stop", evening, cron=_cron(schedule.stop, "*"), zone=schedule.zone, until=until)


def _last(pool: PoolPlan) -> Iterator[Action]:
    if pool.offer.ends is not None:
        yield Action("end", _OVER, at=pool.offer.ends - _lead(pool))
    expires = pool.tenure.expires
    if expires is not None and expires != PERMANENT:
        midnight = datetime.combine(date.fromisoformat(expires), time(), UTC)
        yield Action("expire", _EMPTY, at=midnight + timedelta(days=1))


def _lead(pool: PoolPlan) -> timedelta:
    is_ultra = any(name.startswith(_ULTRA_FAMILIES) for name in pool.types)
    return _ULTRA_LEAD if is_ultra else _LEAD


def weekdays(words: str) -> tuple[int, ...]:
    """Return the days of `MON-FRI` or `MON,THU` as cron counts them, 0 being Sunday; a range may go over Sunday."""
    first, _, last = words.partition("-")
    if not last:
        return tuple(sorted({_DAYS.index(word) for word in words.split(",")}))
    start = _DAYS.index(first)
    return tuple(sorted((start + step) % 7 for step in range((_DAYS.index(last) - start) % 7 + 1)))


def _cron(clock: str, days: str) -> str:
    hour, minute = (int(part) for part in clock.split(":"))
    return f"{minute} {hour} * * {days}"


class Adapter(StrEnum):
    """What an interface can do, in EC2's words: IP, both, or the fabric alone, which takes no address."""

    ENA = "interface"
    EFA = "efa"
    EFA_ONLY = "efa-only"


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface: the index of its network card, its place on that card, and what it can do."""

    card: int
    device: int
    adapter: Adapter


PLAIN = Interface(0, 0, Adapter.ENA)
_BOTH = Interface(0, 0, Adapter.EFA)


def interfaces(facts: InstanceFacts | None, fabric: Fabric | None) -> tuple[Interface, ...]:
    """Return the interfaces of a machine, the primary one first; one alone where there is no fabric to reach.

    A type that the catalogue does not know gets one that can do both, which suits all types with EFA but the few
    whose first card is for IP alone.
    """
    if fabric is None:
        return (PLAIN,)
    if facts is None:
        return (_BOTH,)
    return tuple(_all_cards(facts)) if facts.efa else (PLAIN,)


def pool_interfaces(pool: PoolPlan, catalog: Catalog) -> tuple[Interface, ...]:
    """Return the interfaces of a pool's machines: its types share one template, so its first known type tells."""
    known = (catalog.types[name] for name in pool.types if name in catalog.types)
    return interfaces(next(known, None), pool.fabric)


def addresses_per_node(facts: InstanceFacts | None, fabric: Fabric | None) -> int:
    """Return how many addresses of its subnet a machine takes."""
    return sum(one.adapter is not Adapter.EFA_ONLY for one in interfaces(facts, fabric))


def _all_cards(facts: InstanceFacts) -> Iterator[Interface]:
    """Yield the primary interface, then an EFA on each card that has it.

    Only as many cards as EFAs have one; where a card is left over it is the first, as on p6-b300. A type of which the
    catalogue states no cards has at least one place on each.
    """
    rooms = facts.interfaces_per_card or (1,) * facts.efa
    if facts.efa < len(rooms):
        yield PLAIN
    elif facts.efa == 1 or rooms[0] == 1:
        yield _BOTH
    else:
        yield PLAIN
        yield Interface(0, 1, Adapter.EFA_ONLY)
    yield from (Interface(card, 0, Adapter.EFA_ONLY) for card in range(1, len(rooms))[: facts.efa])


# A family is letters, a generation, and letters for what is special: the first of them may be the processor's maker.
# Source: EC2 instance types guide, "Instance type naming conventions".
_FAMILY = re.compile(r"[a-z]+\d+(?P<special>[a-z]*)")


@dataclass(frozen=True, slots=True)
class Likeness:
    """From the smallest to the largest of a pool's types: CPUs, MiB of memory; and who makes the processors."""

    vcpus: tuple[int, int]
    memory_mib: tuple[int, int]
    makers: tuple[str, ...]


def likeness(pool: PoolPlan, catalog: Catalog) -> Likeness | None:
    """Return what a pool that asks for similar types is like; None where it asks for none, or no type is known."""
    facts = [catalog.types[name] for name in pool.types if name in catalog.types]
    if not pool.offer.similar or not facts:
        return None
    vcpus = [one.vcpus for one in facts]
    memory = [one.memory_mib for one in facts]
    makers = tuple(sorted({maker(one) for one in facts}))
    return Likeness((min(vcpus), max(vcpus)), (min(memory), max(memory)), makers)


def maker(facts: InstanceFacts) -> str:
    """Return who makes a type's processors, in EC2's word: Amazon all of arm64, AMD and Intel the others."""
    if facts.arch == "arm64":
        return "amazon-web-services"
    found = _FAMILY.match(facts.name)
    return "amd" if found is not None and found["special"].startswith("a") else "intel"
