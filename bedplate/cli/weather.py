"""`--weather`: faults in an operator's words, turned into those of a rehearsal by what the fleet has."""

from collections.abc import Iterator, Sequence

from bedplate.errors import InputError
from bedplate.plan import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.rehearsal.weather import FAIR, Fault, Trouble, Weather
from bedplate.spec.group import Market

_OF_CALLS = (Trouble.THROTTLED, Trouble.ERRORS, Trouble.LOST_REPLIES)
_RESERVED = (Market.RESERVATION, Market.CAPACITY_BLOCK)
# Which rungs of a ladder a trouble with machines is about: how they are bought.
_MARKETS = {
    Trouble.NO_CAPACITY: tuple(Market),
    Trouble.NO_QUOTA: tuple(Market),
    Trouble.SPOT_LIMIT: (Market.SPOT,),
    Trouble.RESERVATION_FULL: _RESERVED,
    Trouble.RESERVATION_ENDED: _RESERVED,
}


def weather_of(plan: FleetPlan, asked: Sequence[str]) -> Weather:
    """Return the weather of a fleet's rehearsal; raise InputError for a trouble, or a place, that there is not."""
    return _weather(tuple(fault for text in asked for fault in _faults(plan, *_parted(text))))


def weather_of_program(asked: Sequence[str]) -> Weather:
    """Return the weather of a program's rehearsal: places are AWS's own names, for there is no fleet to look in."""
    return _weather(tuple(Fault(trouble, place) for trouble, place in map(_parted, asked)))


def _weather(faults: tuple[Fault, ...]) -> Weather:
    return Weather(faults) if faults else FAIR


def _parted(text: str) -> tuple[Trouble, str]:
    word, _, place = text.partition(":")
    if word not in set(Trouble):
        raise InputError(f"{word} is no weather", fix=f"one of {', '.join(Trouble)}")
    trouble = Trouble(word)
    if not place and trouble not in _OF_CALLS:
        raise InputError(f"{word} needs a place", fix=f"say {word}:REGION, or {word}:GROUP for machines")
    if place and trouble in _OF_CALLS and "." not in place:
        raise InputError(f"{place} is no call of AWS's", fix=f"say {word}, or {word}:ec2.create_vpc for one call")
    return trouble, place


def _faults(plan: FleetPlan, trouble: Trouble, place: str) -> Iterator[Fault]:
    if trouble in _MARKETS:
        yield from (Fault(trouble, f"{plan.name}-{pool.name}") for pool in _pools(plan, trouble, place))
        return
    regions = {region.name for region in plan.regions}
    zones = {zone.name for region in plan.regions for zone in region.zones}
    known = {Trouble.SILENT: regions, Trouble.NO_ADDRESSES: regions | zones}.get(trouble, {place})
    if place not in known:
        raise InputError(f"the fleet {plan.name} has no {place}", fix=f"one of {', '.join(sorted(known))}")
    yield Fault(trouble, place)


def _pools(plan: FleetPlan, trouble: Trouble, group: str) -> Sequence[PoolPlan]:
    of_group = [pool for pool in plan.pools if pool.group == group]
    if not of_group:
        names = dict.fromkeys(pool.group for pool in plan.pools)
        raise InputError(f"the fleet {plan.name} has no group {group}", fix=f"one of {', '.join(names)}")
    found = [pool for pool in of_group if pool.market in _MARKETS[trouble]]
    if not found:
        markets = " or ".join(market.value for market in _MARKETS[trouble])
        raise InputError(f"no rung of {group} is bought as {markets}", fix="name a group that has such a rung")
    return found
