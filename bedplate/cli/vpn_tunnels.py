"""`bedplate vpn tunnels`: tunnels, carried to the gateways that end them: to AWS, and between the fleet's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig, ways_to
from bedplate.cli.vpn_opening import PassphraseFile
from bedplate.errors import BedplateError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.account.door import Door
    from bedplate.account.tunnels import TunnelKeys
    from bedplate.plan import FleetPlan
    from bedplate.plan.fleet import SitePlan
    from vpn.sites.carry import Known
    from vpn.sites.proof import SharedKey

    Keys = Mapping[frozenset[str], SharedKey]
    # What makes a gateway, as far as it is known; and what is amiss.
    Asked = tuple["Known | None", BedplateError | None]

NewKeys = Annotated[
    bool,
    typer.Option("--new-keys", help="Make new keys for the tunnels between gateways of the fleet, and carry them."),
]
ChangeEngine = Annotated[
    bool,
    typer.Option("--change-engine", help="Also where the kernel encrypts now and charon did, or the reverse."),
]


def tunnels(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    new_keys: NewKeys = False,
    change_engine: ChangeEngine = False,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Bring tunnels to their gateways: to AWS with its keys, those between gateways with the fleet's own."""
    from bedplate.hold import held

    # Whoever comes second would bring an older plan, or other keys, after the newer: from the same file one goes first.
    with held(fleet.with_suffix(".tunnels")):
        return _carried(fleet, ssh_config, passphrase_file, new_keys=new_keys, change_engine=change_engine)


def _carried(fleet: Path, config: Path | None, passphrase: Path | None, *, new_keys: bool, change_engine: bool) -> int:
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.tunnels import carried_tunnel_lines
    from vpn.sites.carry import CarriedTunnels, carry_tunnels

    plan = planned(opened(fleet))
    door = _door(plan)
    keys = _keys(plan, fleet, passphrase, anew=new_keys)
    asked = {**_of_sites(door, plan, keys), **_of_regions(plan, keys)}
    if not asked:
        fix = "`sites` makes some, and so do gateways of laptops in two regions where `interconnect` is none"
        raise InputError("the fleet has no tunnels", fix=fix)
    known = {name: gateway for name, (gateway, _) in asked.items() if gateway}
    amiss = {name: trouble for name, (_, trouble) in asked.items() if trouble}
    nodes = [node for node in standing_nodes(plan) if node.name in known]
    with ways_to(plan, nodes, config) as way:
        done = carry_tunnels(known, way, may_change_engine=change_engine)
    carried = CarriedTunnels(done.laid, {**amiss, **done.failures})
    show(carried_tunnel_lines(carried))
    carried.check()
    return 0


def _door(plan: "FleetPlan") -> "Door | None":
    """Return the account's door where there is a site, whose tunnels to regions have AWS's keys."""
    from bedplate.account.door import check_account, open_door

    if not plan.sites:
        return None
    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return door


def _keys(plan: "FleetPlan", fleet: Path, passphrase_file: Path | None, *, anew: bool) -> "Keys":
    """Return the key between each two gateways of the fleet, made where there is none yet."""
    from functools import cache

    from bedplate.cli.vpn_opening import keys_of, known_passphrase
    from bedplate.plan.joint import pairs
    from bedplate.report.tunnels import made_key_lines
    from vpn.pair_keys import kept_keys, make_keys

    wanted = pairs(plan)
    if not wanted:
        return {}
    pki = keys_of(plan.name, fleet)
    passphrase = cache(known_passphrase(passphrase_file))
    show(made_key_lines(make_keys(pki, wanted, passphrase, anew=anew)))
    return kept_keys(pki, wanted, passphrase)


def _of_sites(door: "Door | None", plan: "FleetPlan", keys: "Keys") -> "dict[str, Asked]":
    """Return what makes each site's gateway of what AWS says of it, and what AWS does not say."""
    # Also of a site that has lost its last tunnel: it is to take down what it has.
    gateways = {f"{site.gateway}.{site.name}": site for site in plan.sites}
    return {name: _of_site(door, plan, site, keys) for name, site in gateways.items()} if door else {}


def _of_site(door: "Door", plan: "FleetPlan", site: "SitePlan", keys: "Keys") -> "Asked":
    from bedplate.account.tunnels import tunnel_keys

    try:
        told = tunnel_keys(door, plan, site.name)
    except BedplateError as error:
        return None, error
    missing = next(iter(told.missing.values()), None)
    # Tunnels to another site need nothing of AWS, and wait for no connection; those to regions come together.
    if missing and not plan.directs_of(site.name):
        return None, missing
    return _site(plan, site, told, keys), missing


def _site(plan: "FleetPlan", site: "SitePlan", told: "TunnelKeys", keys: "Keys") -> "Known":
    """Return a site's gateway with all tunnels whose far ends there are."""
    from dataclasses import replace
    from functools import partial

    from bedplate.account.tunnels import TunnelKey
    from vpn.sites.aws import AwsEnd, site_gateway
    from vpn.sites.direct import direct_tunnels
    from vpn.sites.proof import SharedKey

    def end(told: TunnelKey) -> AwsEnd:
        return AwsEnd(told.address, SharedKey(told.key.encode()))

    direct = tuple(direct_tunnels(plan, site, lambda near, far: keys[frozenset((near, far))]))
    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in told.ends.items()}
    made = replace(plan, tunnels=tuple(each for each in plan.tunnels if each.region not in told.missing))
    return partial(site_gateway, made, site, ends, direct=direct)


def _of_regions(plan: "FleetPlan", keys: "Keys") -> "dict[str, Asked]":
    """Return what makes each gateway that joins regions, or which address is not recorded."""
    from bedplate.plan.joint import joined_regions
    from bedplate.plan.nodes import GATEWAY
    from vpn.sites.regions import region_gateway

    def made(region: str) -> "Asked":
        try:
            return region_gateway(plan, region, keys), None
        except BedplateError as error:
            return None, error

    return {f"{GATEWAY}.{region}": made(region) for region in joined_regions(plan)}
