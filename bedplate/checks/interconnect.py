"""What the chosen way between regions cannot carry."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.ladder import rungs_of
from bedplate.checks.rules import fault
from bedplate.spec import Fleet
from bedplate.spec.network import Interconnect
from bedplate.spec.site import Use


def check_interconnect(evidence: Evidence) -> Iterator[Fault]:
    """Tell what goes missing without transit gateways: pools of laptops, and regions that nothing leads to."""
    fleet = evidence.fleet
    told: list[str] = []
    if fleet.network.interconnect is Interconnect.PEERING:
        told += _across_peerings(fleet)
    if fleet.network.interconnect is Interconnect.NONE:
        told += _alone(fleet)
    if fleet.network.interconnect is not Interconnect.TRANSIT:
        told += _laptops_and_sites(fleet)
    if told:
        yield fault("W208", "network.interconnect", "; ".join(told))


def check_out_of_reach(evidence: Evidence) -> Iterator[Fault]:
    """Tell workers in regions from which nothing leads to the control plane."""
    fleet = evidence.fleet
    home = next((name for name, region in fleet.regions.items() if region.home), None)
    if fleet.network.interconnect is not Interconnect.NONE or home is None:
        return
    for name, group in fleet.groups.items():
        for key, rung in rungs_of(name, group):
            if group.use is Use.KUBERNETES and rung.region in fleet.regions and not _meet(fleet, rung.region, home):
                message = f"nothing leads from {rung.region} to the control plane in {home}"
                yield fault("E342", f"{key}.region", message)


def _gateways(fleet: Fleet) -> Iterator[str]:
    """Yield the regions that have a laptop gateway."""
    laptops = fleet.vpn.laptops if fleet.vpn else None
    yield from (gateway.region for gateway in (laptops.gateways if laptops else ()) if gateway.region)


def _meet(fleet: Fleet, region: str, home: str) -> bool:
    """Tell whether two regions are one, or both have a gateway, which joins them."""
    return region == home or {region, home} <= set(_gateways(fleet))


def _alone(fleet: Fleet) -> Iterator[str]:
    """Tell of regions that stay alone where somebody may think that gateways join them."""
    joined = tuple(_gateways(fleet))
    alone = [name for name in fleet.regions if name not in joined]
    if joined and alone:
        others = f"gateways join {' and '.join(joined)}" if len(joined) > 1 else f"one in {joined[0]} joins nothing"
        yield f"nothing leads from {' or '.join(alone)} to another region, without a gateway of laptops: {others}"


def _across_peerings(fleet: Fleet) -> Iterator[str]:
    if len(fleet.regions) > 1:
        for where in _gateways(fleet):
            yield f"laptops at the gateway in {where} reach {where} alone: no pool crosses a peering"


def _laptops_and_sites(fleet: Fleet) -> Iterator[str]:
    for where in _gateways(fleet) if fleet.sites else ():
        sites = " and ".join(sorted(fleet.sites))
        why = "a virtual private gateway leads to the region's own block, not to a pool behind it"
        yield f"laptops at the gateway in {where} and {sites} do not reach each other: {why}"
