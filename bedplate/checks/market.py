"""Markets: what a rung says of how its machines are bought goes with its market."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.ladder import rungs_of
from bedplate.checks.past import is_past
from bedplate.checks.rules import fault
from bedplate.spec.group import Fabric, Group, Market, Rung

RESERVED = (Market.RESERVATION, Market.CAPACITY_BLOCK)


def check_markets(evidence: Evidence) -> Iterator[Fault]:
    """Tell what each rung lacks for its market, and what its market has no use for."""
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            yield from _idle(key, rung)
            yield from _spot(key, rung, group)
            if rung.market in RESERVED:
                yield from _incomplete(evidence, key, rung)
            if rung.market is Market.CAPACITY_BLOCK:
                yield from _end(evidence, key, rung)


def _idle(key: str, rung: Rung) -> Iterator[Fault]:
    """Tell keys that the rung's market does not use."""
    if rung.market not in RESERVED and rung.reservation:
        yield fault("E312", f"{key}.reservation", f"{rung.reservation} is not used by market {rung.market}")
    if rung.market not in RESERVED and rung.reserved:
        yield fault(
            "E312", f"{key}.reserved", f"nothing is reserved by market {rung.market}", "set market, or delete it"
        )
    if rung.market is not Market.SPOT and rung.max_price is not None:
        yield fault("E326", f"{key}.max_price", f"market {rung.market} takes no price")
    if rung.market is not Market.CAPACITY_BLOCK and rung.ends:
        yield fault("E327", f"{key}.ends", f"market {rung.market} does not end")


def _spot(key: str, rung: Rung, group: Group) -> Iterator[Fault]:
    if rung.market is Market.SPOT and group.fabric is Fabric.EFA:
        yield fault("W325", key, "a job over several of these machines ends when AWS takes one of them back")


def _incomplete(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    for name, value in (("reservation", rung.reservation), ("zone", rung.zone)):
        if value is None and not evidence.declared.says(key, name):
            yield fault("E311", f"{key}.{name}", f"market {rung.market} needs the {name}", f"add {name}")


def _end(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    if rung.ends and is_past(rung.ends, evidence.today):
        message = f"the block ended on {rung.ends[:10]}; today is {evidence.today}"
        yield fault("E329", f"{key}.ends", message, "delete the rung, or name a block that has not ended")
    elif rung.ends is None and not evidence.declared.says(key, "ends"):
        yield fault("W328", f"{key}.ends", "nobody says when the block ends", "add ends: '2027-01-31T11:30:00Z'")
