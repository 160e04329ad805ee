"""Fleets of every shape, each rehearsed once in a process: what became of it, and the graph of what its stacks made."""

from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address
from types import MappingProxyType
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.rehearse import rehearse
from bedplate.rehearsal.report import Phase, Report
from bedplate.spec import Fleet
from tests.support.declared import EXAMPLES, plan_of
from tests.support.sketch import LANS, ZONES, cluster, group, laptops, sketch

TWELVE = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"),
    *("eu-west-1", "eu-west-2", "eu-central-1", "eu-north-1", "ap-northeast-1", "ap-southeast-2"),
)


def _fleet(regions: Mapping[str, Sequence[str]], **parts: Any) -> Fleet:  # noqa: ANN401  raw values, as sketch takes them
    """Return a fleet with machines in each of its regions."""
    box = group(*({"region": name} for name in regions), types=("m7i.xlarge",), nodes={"min": 0, "max": 4})
    return sketch(regions, groups={"box": box}, **parts)


_ONE = {"us-west-2": ZONES["us-west-2"][:2]}
_THREE = {name: zones[:1] for name, zones in ZONES.items()}
_TWO_SITES = {**LANS, "attic": "192.168.60.0/24"}
_GATEWAYS = laptops({"region": "us-west-2"}, {"site": "cellar"})


def _two_sites() -> Fleet:
    """Return a fleet of two regions and two sites, each with a gateway of its own."""
    regions = {name: ZONES[name][:1] for name in list(ZONES)[:2]}
    fleet = _fleet(regions, sites=_TWO_SITES, vpn=_GATEWAYS, alarms={"email": "infra@lab.example"})
    attic = fleet.sites["attic"]
    gateway = attic.gateway.model_copy(update={"public": IPv4Address("8.20.30.41"), "asn": 65011})
    return fleet.model_copy(update={"sites": {**fleet.sites, "attic": attic.model_copy(update={"gateway": gateway})}})


def _joined() -> Fleet:
    """Return a fleet whose regions are joined by gateways of their own, but for one that has none; with a site."""
    gateways = laptops({"region": "us-west-2"}, {"region": "eu-north-1"}, {"site": "cellar"})
    return _fleet(_THREE, sites=LANS, vpn=gateways, network={"interconnect": "none"}, kubernetes=cluster())


FLEETS: Mapping[str, Fleet] = MappingProxyType(
    {
        "one region": _fleet(_ONE),
        "one region and a site": _fleet(_ONE, sites=LANS, vpn=_GATEWAYS),
        "peering": _fleet(_THREE, sites=LANS, vpn=_GATEWAYS, network={"interconnect": "peering"}, kubernetes=cluster()),
        "none": _fleet(_THREE, network={"interconnect": "none"}, kubernetes=cluster()),
        "joined by gateways": _joined(),
        "no sites": _fleet(_THREE, vpn=laptops({"region": "us-west-2"}), network={"egress": "none"}),
        "two sites": _two_sites(),
        "twelve regions": _fleet({name: (f"{name}a",) for name in TWELVE}),
    }
)
NAMES = ("lab", *FLEETS)


@cache
def plan_named(name: str) -> FleetPlan:
    """Return the plan of one of the fleets; `lab` is the larger example."""
    if name == "lab":
        return plan_of(EXAMPLES / "lab.yaml")
    return plan_fleet(FLEETS[name], Record({}), load_catalog())


@cache
def report_of(plan_name: str) -> Report:
    """Return what a whole rehearsal of a fleet came to: created, run again, destroyed."""
    plan = plan_named(plan_name)
    return rehearse(plan.account, waves(plan))


@cache
def graph_of(plan_name: str) -> tuple[dict[str, Any], ...]:
    """Return the resources of all stacks of a fleet, as they were when they existed in the simulated AWS."""
    report = report_of(plan_name)
    assert not [failure for stack in report.stacks for failure in stack.failures]
    entries = (entry for each in report.stacks for entry in each.runs[Phase.CREATE].snapshot.entries.values())
    return tuple(graph(entries))
