"""Checking and planning a fleet of 1,000 regions with six subnets each, beside the floor of both.

The floor is what no planner can leave out: the models' validation of the same values, and as many blocks made as
the plan has. The targets are 5 s and 300 MB for checking and planning together.
"""

import resource
import sys
import tempfile
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from bedplate.catalog import Catalog, RegionFacts
from bedplate.load import load_fleet
from bedplate.plan import Record, plan_fleet
from bedplate.spec import Fleet

ZONES = {name: tuple(name + letter for letter in "abc") for name in (f"aa-far-{n}" for n in range(1, 1001))}
MOST_SECONDS, MOST_MB = 5.0, 300
ResultT = TypeVar("ResultT")


def fleet_values() -> dict[str, Any]:
    """Return the fleet as plain values."""
    return {
        "version": 1,
        "name": "wide",
        "account": "111122223333",
        "owner": "ops@lab.example",
        "domain": "wide.internal",
        "network": {"supernet": "10.0.0.0/8", "region_size": "/20", "interconnect": "none"},
        "regions": {name: {"home": not number, "zones": zones} for number, (name, zones) in enumerate(ZONES.items())},
    }


def fleet_text() -> str:
    """Return the fleet as a file."""
    head = (
        'version: 1\nname: wide\naccount: "111122223333"\nowner: ops@lab.example\ndomain: wide.internal\n'
        "network: {supernet: 10.0.0.0/8, region_size: /20, interconnect: none}\nregions:\n"
    )
    home = next(iter(ZONES))
    return head + "".join(
        f"  {name}: {{home: {str(name == home).lower()}, zones: [{', '.join(zones)}]}}\n"
        for name, zones in ZONES.items()
    )


def catalog() -> Catalog:
    """Return a catalogue that knows these regions and no instance type."""
    facts = {name: RegionFacts(name, zones, opt_in=False) for name, zones in ZONES.items()}
    return Catalog(regions=facts, types={})


def timed(name: str, work: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """Run one piece of work; print and return its seconds."""
    start = perf_counter()
    result = work()
    seconds = perf_counter() - start
    print(f"{name:<44} {seconds:6.2f} s")
    return seconds, result


def main() -> int:
    """Print the figures; return 1 where a target is missed."""
    known = catalog()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(fleet_text(), encoding="utf-8")
        checking, loaded = timed("check: read, validate, apply every rule", lambda: load_fleet(path, known))
    planning, plan = timed("plan: no lock yet", lambda: plan_fleet(loaded.fleet, Record({}), known))
    timed("plan: everything recorded", lambda: plan_fleet(loaded.fleet, plan.recorded(), known))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values, size = fleet_values(), len(plan.blocks)
    models, _ = timed("floor: the models alone", lambda: Fleet.model_validate(values))
    blocks, _ = timed(f"floor: {size:,} blocks", lambda: [IPv4Network((n << 8, 24)) for n in range(size)])
    seconds, floor = checking + planning, models + blocks
    print(f"check and plan: {seconds:.2f} s, {seconds / floor:.1f} x the floor; {megabytes:.0f} MB at most")
    return 0 if seconds < MOST_SECONDS and megabytes < MOST_MB else 1


sys.exit(main())
