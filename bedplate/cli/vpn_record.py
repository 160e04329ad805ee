"""`bedplate vpn record`: the addresses that AWS gave out, kept in fleet.lock for profiles and gateways."""

from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bedplate.account.laptops import Doors
    from bedplate.plan import FleetPlan

Addresses = Annotated[
    list[str] | None,
    typer.Option("--address", metavar="REGION=IP", help="A gateway's public address; nothing is asked of AWS then."),
]
Resolvers = Annotated[
    list[str] | None,
    typer.Option("--resolver", metavar="REGION=IP,IP", help="A resolver's addresses; nothing is asked of AWS then."),
]


def record(fleet: FleetFile = DEFAULT_FLEET, *, address: Addresses = None, resolver: Resolvers = None) -> int:
    """Record where laptops dial and ask for names."""
    from bedplate.cli.opening import opened, planned
    from bedplate.lock import lock_path, record_doors
    from bedplate.plan.laptops import resolver_region
    from bedplate.report.laptops import door_lines

    plan = planned(opened(fleet))
    regions = {region.name for region in plan.regions}
    gateways = [pool.place for pool in plan.laptops if pool.place in regions]
    answering = sorted({resolver_region(plan, pool.place) for pool in plan.laptops})
    if address or resolver:
        found = _given(address or (), resolver or (), gateways, answering)
    else:
        found = _asked(plan, gateways, answering)
    now = record_doors(lock_path(fleet), plan.name, found.gateways, found.resolvers)
    show(door_lines(plan.record, now))
    return 0


def _asked(plan: "FleetPlan", gateways: "Iterable[str]", answering: "Iterable[str]") -> "Doors":
    from bedplate.account.door import check_account, open_door
    from bedplate.account.laptops import laptop_doors

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return laptop_doors(door, plan.name, gateways, answering)


def _given(
    addresses: "Iterable[str]", resolvers: "Iterable[str]", gateways: "Collection[str]", answering: "Collection[str]"
) -> "Doors":
    from bedplate.account.laptops import Doors

    public = dict(_pair("--address", each, gateways) for each in addresses)
    inside = dict(_pair("--resolver", each, answering) for each in resolvers)
    return Doors({region: _only(region, found) for region, found in public.items()}, inside)


def _pair(option: str, text: str, regions: "Collection[str]") -> tuple[str, tuple[IPv4Address, ...]]:
    region, _, told = text.partition("=")
    if region not in regions:
        raise InputError(f"{option} {text}: {region!r} has none", fix=f"one of {', '.join(regions) or 'no region'}")
    try:
        found = tuple(sorted(map(IPv4Address, told.split(","))))
    except AddressValueError as error:
        raise InputError(f"{option} {text}: {error}", fix=f"write it as {option} {region}=198.51.100.7") from None
    for address in found:
        _check_dialled(f"{option} {text}", address)
    return region, found


def _check_dialled(given: str, address: IPv4Address) -> None:
    """Raise InputError for an address at which no machine is reached, by the first range that says so."""
    from bedplate.checks.claim import NOBODYS

    why = next((why for block, why in NOBODYS.items() if address in block), None)
    if why:
        raise InputError(f"{given}: nobody is reached at {address} ({why})", fix="give the one that AWS gave out")


def _only(region: str, found: tuple[IPv4Address, ...]) -> IPv4Address:
    if len(found) != 1:
        raise InputError(f"--address names {len(found)} addresses of {region}", fix="a gateway has one")
    return found[0]
