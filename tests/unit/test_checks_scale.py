"""Large fleets are checked in seconds: no check compares all with all."""

import time
from datetime import date
from ipaddress import IPv4Network
from typing import Any

from bedplate.catalog import Catalog, RegionFacts
from bedplate.checks.evidence import Declared, Evidence
from bedplate.checks.run import check_fleet
from bedplate.spec import Fleet
from tests.support.fleets import told

NAMES = tuple(f"eu-west-{number}" for number in range(1, 1001))
CATALOG = Catalog({name: RegionFacts(name, (f"{name}a", f"{name}b", f"{name}c"), opt_in=False) for name in NAMES}, {})

LADDER = ("us-west-2", "us-east-1", "us-east-2")


def fleet_of(names: tuple[str, ...]) -> Fleet:
    """Return a fleet of these regions, each with three zones and a declared block, and a site for each."""
    blocks = iter(IPv4Network("10.0.0.0/8").subnets(new_prefix=20))
    regions = {name: {"zones": CATALOG.regions[name].zones, "block": str(next(blocks))} for name in names}
    sites = {
        f"site-{number}": {
            "lan": str(next(blocks)),
            "gateway": {"machine": "gate", "public": f"8.8.{number // 250}.{number % 250 + 1}", "asn": 100000 + number},
            "machines": {"gate": {"address": "10.0.0.1"}},
        }
        for number in range(len(names))
    }
    for site in sites.values():
        lan = IPv4Network(str(site["lan"]))
        site["machines"] = {"gate": {"address": str(lan.network_address + 1)}}
    return Fleet.model_validate(
        {
            "version": 1,
            "name": "big",
            "account": "111122223333",
            "owner": "infra",
            "domain": "big.internal",
            "network": {"supernet": "10.0.0.0/8"},
            "regions": {names[0]: regions[names[0]] | {"home": True}, **{n: regions[n] for n in names[1:]}},
            "sites": sites,
        }
    )


def test_a_thousand_regions_and_sites_are_checked_in_seconds() -> None:
    """All good, and found so; the time is the processor's, so that a busy machine does not count."""
    fleet = fleet_of(NAMES)
    evidence = Evidence(fleet, CATALOG, Declared(fleet.model_dump(exclude_unset=True)), date(2026, 11, 21))
    start = time.process_time()

    found = list(check_fleet(evidence))

    assert found == []
    assert time.process_time() - start < 2.0


def test_two_hundred_groups_of_six_rungs_are_checked_in_seconds() -> None:
    """Reading, the models and every rule, from a file; the planted flaw in the last group is found."""
    groups = {f"group-{number}": group_of() for number in range(200)}
    groups["group-199"]["types"] = ["g6.4xlarge", "g6.12xlarge"]
    regions = {name: {"zones": [f"{name}{letter}" for letter in "abc"]} for name in LADDER}
    fleet = {
        "version": 1,
        "name": "wide",
        "account": "111122223333",
        "owner": "infra",
        "domain": "wide.internal",
        "network": {"supernet": "10.64.0.0/10"},
        "regions": {**regions, "us-west-2": {**regions["us-west-2"], "home": True}},
        "groups": groups,
    }
    start = time.process_time()

    found = told(fleet)

    assert [(one.code, one.key) for one in found] == [("E322", "groups.group-199.types.1")]
    assert time.process_time() - start < 2.0


def group_of() -> dict[str, Any]:
    """Return a group with six rungs, small enough for two hundred of it to fit side by side."""
    return {
        "use": "ssh",
        "types": ["g6.4xlarge", "g5.4xlarge"],
        "nodes": {"min": 0, "max": 64},
        "ladder": [{"region": name, "market": market} for market in ("on-demand", "spot") for name in LADDER],
    }
