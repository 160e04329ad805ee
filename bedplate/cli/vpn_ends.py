"""Each gateway that has tunnels, and which of its far ends are not known."""

from typing import TYPE_CHECKING

from bedplate.errors import BedplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.account.door import Door
    from bedplate.account.tunnels import TunnelKeys
    from bedplate.plan import FleetPlan
    from bedplate.plan.fleet import SitePlan
    from vpn.sites.gateway import Gateway
    from vpn.sites.proof import PlaceProofs

    # A gateway, as far as its far ends are known; and the error for those that are not.
    Asked = tuple["Gateway | None", BedplateError | None]


def door_of(plan: "FleetPlan") -> "Door | BedplateError | None":
    """Return the account's door where there is a site, whose tunnels to regions have AWS's keys; or why it is shut."""
    from bedplate.account.door import check_account, open_door

    if not plan.sites:
        return None
    try:
        door = open_door()
        check_account(door, plan.account, plan.home.name)
    except BedplateError as error:
        return error
    return door


def asked_gateways(plan: "FleetPlan", door: "Door | BedplateError | None", proofs: "PlaceProofs") -> "dict[str, Asked]":
    """Return each gateway, of sites and of joined regions, by the name of the machine.

    Raises what keeps the door shut where every tunnel needs AWS: nothing can be done then.
    """
    found = {**_of_sites(plan, door, proofs), **_of_regions(plan, proofs)}
    if isinstance(door, BedplateError) and not any(known for known, _ in found.values()):
        raise door
    return found


def _of_sites(plan: "FleetPlan", door: "Door | BedplateError | None", proofs: "PlaceProofs") -> "dict[str, Asked]":
    from bedplate.account.tunnels import keys_of_sites

    if door is None:
        return {}
    told: Mapping[str, TunnelKeys | BedplateError]
    told = {s.name: door for s in plan.sites} if isinstance(door, BedplateError) else keys_of_sites(door, plan)
    # Also of a site that has lost its last tunnel: it is to take down what it has.
    return {f"{site.gateway}.{site.name}": _of_site(plan, site, told[site.name], proofs) for site in plan.sites}


def _of_site(plan: "FleetPlan", site: "SitePlan", told: "TunnelKeys | BedplateError", proofs: "PlaceProofs") -> "Asked":
    if isinstance(told, BedplateError):
        # A gateway gets all its files or none: without AWS's keys it keeps what it has.
        return None, told
    missing = next(iter(told.missing.values()), None)
    # Tunnels to another site wait for no connection to AWS; those to regions come together.
    if missing and not plan.directs_of(site.name):
        return None, missing
    try:
        return _site(plan, site, told, proofs), missing
    except BedplateError as error:
        # Its own key or certificate is not usable: it keeps what it has.
        return None, error


def _site(plan: "FleetPlan", site: "SitePlan", told: "TunnelKeys", proofs: "PlaceProofs") -> "Gateway":
    """Return a site's gateway with all tunnels whose far ends there are."""
    from dataclasses import replace

    from bedplate.account.tunnels import TunnelKey
    from vpn.sites.aws import AwsEnd, site_gateway
    from vpn.sites.direct import direct_tunnels
    from vpn.sites.proof import SharedKey

    def end(told: TunnelKey) -> AwsEnd:
        return AwsEnd(told.address, SharedKey(told.key.encode()))

    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in told.ends.items()}
    made = replace(plan, tunnels=tuple(each for each in plan.tunnels if each.region not in told.missing))
    return site_gateway(made, site, ends, tuple(direct_tunnels(plan, site, proofs)))


def _of_regions(plan: "FleetPlan", proofs: "PlaceProofs") -> "dict[str, Asked]":
    """Return each gateway that joins regions, or which address is not recorded."""
    from bedplate.plan.joint import joined_regions
    from bedplate.plan.nodes import GATEWAY
    from vpn.sites.regions import region_gateway

    def made(region: str) -> "Asked":
        try:
            return region_gateway(plan, region, proofs), None
        except BedplateError as error:
            return None, error

    return {f"{GATEWAY}.{region}": made(region) for region in joined_regions(plan)}
