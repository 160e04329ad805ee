"""What the chosen way between regions cannot carry."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.spec import Fleet
from bedplate.spec.network import Interconnect


def check_interconnect(evidence: Evidence) -> Iterator[Fault]:
    """Tell what a VPC peering leaves out: only the VPCs at its two ends may use it."""
    fleet = evidence.fleet
    if fleet.network.interconnect is Interconnect.PEERING:
        for message in (*_laptops(fleet), *_sites(fleet)):
            yield fault("W208", "network.interconnect", message)


def _laptops(fleet: Fleet) -> Iterator[str]:
    laptops = fleet.vpn.laptops if fleet.vpn else None
    if len(fleet.regions) + len(fleet.sites) > 1:
        for gateway in laptops.gateways if laptops else ():
            if gateway.region:
                where = gateway.region
                yield f"laptops at the gateway in {where} reach {where} alone: no pool crosses a peering"


def _sites(fleet: Fleet) -> Iterator[str]:
    if len(fleet.sites) > 1:
        yield f"{' and '.join(sorted(fleet.sites))} do not reach each other: no site crosses a peering"
