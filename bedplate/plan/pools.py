"""Pools: one Auto Scaling group each, with its schedule, network interfaces, instance requirements and names."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from bedplate.catalog import Catalog
from bedplate.catalog.tables import InstanceFacts
from bedplate.spec.groups import Fabric, Group, Market, Rung, Schedule
from bedplate.spec.sites import Use
from bedplate.spec.text import PERMANENT

# Tags that policies of roles name, of groups and machines: their fleet, group of the file, use, and permanent machine.
FLEET = "bedplate:fleet"
GROUP = "bedplate:group"
USE = "bedplate:use"
MEMBER = "bedplate:member"
REQUESTED_BY, UNTIL, PAUSED = "bedplate:requested-by", "bedplate:until", "bedplate:paused"
"""Tags of an Auto Scaling group: who last started machines in it, and until when; who has paused it.

The stacks ignore them.
"""


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """An EBS volume: its size in GiB, its throughput in MiB/s, its IOPS."""

    gib: int
    throughput: int = 125
    iops: int = 3000


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """One Auto Scaling group: a rung of a group's ladder, in one zone where the fabric requires it.

    `rung` is an index in the ladder; no name or address depends on it. `types` are the instance types that its zones
    offer, in the order of the file: they are interchangeable. `min` and `max` are those of the pool: the group has its
    own in `group_spec.nodes`. `owner` is the group's, or the fleet's.
    """

    name: str
    group: str
    group_spec: Group
    rung: int
    zones: tuple[str, ...]
    types: tuple[str, ...]
    min: int
    max: int
    owner: str

    @property
    def rung_spec(self) -> Rung:
        """The rung in the fleet file."""
        return self.group_spec.ladder[self.rung]

    @property
    def use(self) -> Use:
        """The use of its machines."""
        return self.group_spec.use

    @property
    def region(self) -> str:
        """The region of its rung."""
        return self.rung_spec.region

    @property
    def market(self) -> Market:
        """How its machines are bought."""
        return self.rung_spec.market

    @property
    def fabric(self) -> Fabric | None:
        """The low-latency network of its machines."""
        return self.group_spec.fabric

    @property
    def volume(self) -> VolumePlan:
        """The root volume of its machines."""
        return VolumePlan(self.group_spec.disk, self.group_spec.disk_throughput, self.group_spec.disk_iops)


def combined_max(pools: Collection[PoolPlan]) -> int:
    """Return the combined maximum of pools of one group: their sum, limited by the group's maximum."""
    return min(sum(pool.max for pool in pools), *(pool.group_spec.nodes.max for pool in pools))


def bucket_name(fleet: str, store: str, account: str, region: str) -> str:
    """Return a bucket's name, unique in all of AWS because it contains the account number."""
    return f"{fleet}-{store}-{account}-{region}"


def tunnel_secret(fleet: str, site: str, region: str) -> str:
    """Return the name of the secret with the keys of a site's two tunnels to a region."""
    return f"{fleet}/tunnels/{site}/{region}"


def pool_name(group: str, rung: Rung, place: str) -> str:
    """Return a pool's name; `place` is its zone, or its region if it spans several zones."""
    return "-".join(filter(None, (group, place, _market_word(rung.market), rung.reservation)))


def _market_word(market: Market) -> str:
    match market:
        case Market.ON_DEMAND:
            return ""
        case Market.SPOT:
            return "spot"
        case Market.RESERVATION:
            return "reservation"
        case Market.CAPACITY_BLOCK:
            return "block"


_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# AWS ends the machines of a capacity block half an hour before the block does, those of UltraServers a whole hour.
# Source: EC2 user guide, "Capacity Blocks for ML", read 2026-11.
_LEAD, _ULTRA_LEAD = timedelta(hours=1), timedelta(minutes=90)
_ULTRA_FAMILIES = ("p6e-gb200", "p6e-gb300")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The new sizes of an Auto Scaling group; None keeps the current value."""

    min: int | None = None
    max: int | None = None
    desired: int | None = None


# The maximum stays: Pulumi would not raise a maximum that a schedule has set to 0.
_EMPTY = Sizes(min=0, desired=0)
# A capacity block that has ended has no machines again.
_ENDED = Sizes(min=0, max=0, desired=0)


@dataclass(frozen=True, slots=True)
class ScheduledAction:
    """A scheduled change of size: once `at` a time, or repeatedly by `cron` in a time zone, `until` an optional end."""

    name: str
    sizes: Sizes
    at: datetime | None = None
    cron: str | None = None
    zone: str | None = None
    until: datetime | None = None


def scheduled_actions(pool: PoolPlan) -> tuple[ScheduledAction, ...]:
    """Return the scheduled actions of a pool, daily ones first; these stop when the pool is emptied for good."""
    final = tuple(_at_own_times(pool, _final_actions(pool)))
    until = min((action.at for action in final if action.at is not None), default=None)
    schedule = pool.group_spec.schedule
    return (*(_daily_actions(pool, schedule, until) if schedule else ()), *final)


def _daily_actions(pool: PoolPlan, schedule: Schedule, until: datetime | None) -> Iterator[ScheduledAction]:
    """Yield a start on the schedule's days, and a stop on every day: machines may have been started by hand."""
    days = ",".join(str(number) for number in weekdays(schedule.days))
    yield ScheduledAction(
        "start", Sizes(min=pool.min), cron=_cron(schedule.start, days), zone=schedule.zone, until=until
    )
    yield ScheduledAction("stop", _EMPTY, cron=_cron(schedule.stop, "*"), zone=schedule.zone, until=until)


def _final_actions(pool: PoolPlan) -> Iterator[ScheduledAction]:
    if pool.rung_spec.ends is not None:
        yield ScheduledAction("end", _ENDED, at=datetime.fromisoformat(pool.rung_spec.ends) - _lead(pool))
    expires = pool.group_spec.expires
    if expires is not None and expires != PERMANENT:
        midnight = datetime.combine(date.fromisoformat(expires), time(), UTC)
        yield ScheduledAction("expire", _EMPTY, at=midnight + timedelta(days=1))


def own_end(pool: PoolPlan, until: datetime) -> datetime:
    """Return an end of machines started by hand, in whole minutes, at which no other action of the pool runs."""
    end = ScheduledAction("until", _EMPTY, at=until.replace(second=0, microsecond=0))
    *_, moved = _at_own_times(pool, (*_final_actions(pool), end))
    return moved.at or until


def _at_own_times(pool: PoolPlan, actions: Iterable[ScheduledAction]) -> Iterator[ScheduledAction]:
    """Yield one-time actions, earlier by minutes where another action of the group has their time: AWS refuses it."""
    schedule = pool.group_spec.schedule
    zone, taken = ZoneInfo(schedule.zone if schedule else "UTC"), set[datetime]()
    clocks = (schedule.start, schedule.stop) if schedule else ()
    for action in actions:
        at = action.at
        while at and (at in taken or at.astimezone(zone).strftime("%H:%M") in clocks):
            at -= timedelta(minutes=1)
        taken.update([at] if at else ())
        yield replace(action, at=at)


def _lead(pool: PoolPlan) -> timedelta:
    is_ultra = any(name.startswith(_ULTRA_FAMILIES) for name in pool.types)
    return _ULTRA_LEAD if is_ultra else _LEAD


def next_stop(pool: PoolPlan, now: datetime) -> datetime | None:
    """Return the next time at which a schedule, an expiry or the end of a block terminates a pool's machines."""
    times = [action.at for action in _final_actions(pool) if action.at is not None]
    if schedule := pool.group_spec.schedule:
        times.append(_around(now, schedule.stop, _EVERY_DAY, schedule.zone)[1])
    return min(times, default=None)


def next_start(pool: PoolPlan, now: datetime) -> datetime | None:
    """Return when the hours of a pool begin again; None within them, and for a pool that always runs."""
    schedule = pool.group_spec.schedule
    if schedule is None:
        return None
    started, start = _around(now, schedule.start, weekdays(schedule.days), schedule.zone)
    stopped, _ = _around(now, schedule.stop, _EVERY_DAY, schedule.zone)
    return start if stopped > started else None


_EVERY_DAY = range(7)


def _around(now: datetime, clock: str, days: Collection[int], zone: str) -> tuple[datetime, datetime]:
    """Return the last and the next time of a clock on these weekdays, with Sunday as 0."""
    today = datetime.combine(now.astimezone(ZoneInfo(zone)), time.fromisoformat(clock), ZoneInfo(zone))
    times = [today + timedelta(days=days_later) for days_later in range(-7, 8)]
    own = [at for at in times if at.isoweekday() % 7 in days]
    return max(at for at in own if at <= now), min(at for at in own if at > now)


_HOURS_OF_WEEK = 168


def share_of_week(schedule: Schedule | None) -> float:
    """Return the share of a week in which the minimum of a group runs; a stop before the start is on the next day."""
    if schedule is None:
        return 1.0
    start, stop = (time.fromisoformat(clock) for clock in (schedule.start, schedule.stop))
    hours = (stop.hour - start.hour + (stop.minute - start.minute) / 60) % 24
    return len(weekdays(schedule.days)) * hours / _HOURS_OF_WEEK


def weekdays(words: str) -> tuple[int, ...]:
    """Return the days of `MON-FRI` or `MON,THU` as cron numbers, with Sunday as 0; a range may include Sunday."""
    first, _, last = words.partition("-")
    if not last:
        return tuple(sorted({_DAYS.index(word) for word in words.split(",")}))
    start = _DAYS.index(first)
    return tuple(sorted((start + step) % 7 for step in range((_DAYS.index(last) - start) % 7 + 1)))


def _cron(clock: str, days: str) -> str:
    hour, minute = (int(part) for part in clock.split(":"))
    return f"{minute} {hour} * * {days}"


class Adapter(StrEnum):
    """The interface type in EC2: IP, IP and EFA, or EFA only, which needs no address."""

    ENA = "interface"
    EFA = "efa"
    EFA_ONLY = "efa-only"


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface: its network card index, its device index on that card, and its type."""

    card: int
    device: int
    adapter: Adapter


PLAIN = Interface(0, 0, Adapter.ENA)
_BOTH = Interface(0, 0, Adapter.EFA)


def interfaces(facts: InstanceFacts | None, fabric: Fabric | None) -> tuple[Interface, ...]:
    """Return the interfaces of a machine, the primary one first; a single one without a fabric.

    A type that the catalog does not have gets one interface for IP and EFA, which suits all types with EFA except
    the few whose first card supports IP only.
    """
    if fabric is None:
        return (PLAIN,)
    if facts is None:
        return (_BOTH,)
    return tuple(_all_cards(facts)) if facts.efa else (PLAIN,)


def pool_interfaces(pool: PoolPlan, catalog: Catalog) -> tuple[Interface, ...]:
    """Return the interfaces of a pool's machines: its types share one template, so the first known type decides."""
    type_facts = (catalog.types[name] for name in pool.types if name in catalog.types)
    return interfaces(next(type_facts, None), pool.fabric)


def addresses_per_node(facts: InstanceFacts | None, fabric: Fabric | None) -> int:
    """Return the number of subnet addresses that a machine needs."""
    return sum(interface.adapter is not Adapter.EFA_ONLY for interface in interfaces(facts, fabric))


def _all_cards(facts: InstanceFacts) -> Iterator[Interface]:
    """Yield the primary interface, then an EFA on each card that supports it.

    With fewer EFAs than cards, the first card has none, as on p6-b300. If the catalog lists no cards, each is assumed
    to have one interface.
    """
    per_card = facts.interfaces_per_card or (1,) * facts.efa
    if facts.efa < len(per_card):
        yield PLAIN
    elif facts.efa == 1 or per_card[0] == 1:
        yield _BOTH
    else:
        yield PLAIN
        yield Interface(0, 1, Adapter.EFA_ONLY)
    yield from (Interface(card, 0, Adapter.EFA_ONLY) for card in range(1, len(per_card))[: facts.efa])


# A family is letters, a generation, and option letters: the first option may be the processor's manufacturer.
# Source: EC2 instance types guide, "Instance type naming conventions".
_FAMILY = re.compile(r"[a-z]+\d+(?P<options>[a-z]*)")


@dataclass(frozen=True, slots=True)
class InstanceRequirements:
    """The ranges of vCPUs and of memory in MiB over a pool's types, and the processors' manufacturers."""

    vcpus: tuple[int, int]
    memory_mib: tuple[int, int]
    makers: tuple[str, ...]


def instance_requirements(pool: PoolPlan, catalog: Catalog) -> InstanceRequirements | None:
    """Return the instance requirements of a pool with `similar: true`; None without it, or if no type is known."""
    facts = [catalog.types[name] for name in pool.types if name in catalog.types]
    if not pool.group_spec.similar or not facts:
        return None
    vcpus = [type_facts.vcpus for type_facts in facts]
    memory = [type_facts.memory_mib for type_facts in facts]
    makers = tuple(sorted({_manufacturer(type_facts) for type_facts in facts}))
    return InstanceRequirements((min(vcpus), max(vcpus)), (min(memory), max(memory)), makers)


def _manufacturer(facts: InstanceFacts) -> str:
    """Return the processor manufacturer by EC2's name: Amazon for arm64, else AMD or Intel."""
    if facts.arch == "arm64":
        return "amazon-web-services"
    family = _FAMILY.match(facts.name)
    return "amd" if family is not None and family["options"].startswith("a") else "intel"
