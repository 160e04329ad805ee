"""A fleet of 1,000 regions is checked in seconds: no check compares all with all."""

import time
from datetime import date
from ipaddress import IPv4Network

from bedplate.catalog import Catalog, RegionFacts
from bedplate.checks.evidence import evidence_of
from bedplate.checks.run import check_fleet
from bedplate.spec import Fleet

NAMES = tuple(f"eu-west-{number}" for number in range(1, 1001))
CATALOG = Catalog({name: RegionFacts(name, (f"{name}a", f"{name}b", f"{name}c"), opt_in=False) for name in NAMES}, {})


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
    evidence = evidence_of(fleet_of(NAMES), CATALOG, date(2026, 11, 21))
    start = time.process_time()

    found = list(check_fleet(evidence))

    assert found == []
    assert time.process_time() - start < 2.0
