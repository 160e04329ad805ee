"""`bedplate vpn tunnels`: tunnels, carried to the gateways that end them: of sites to AWS, and between regions."""

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
    from bedplate.plan import FleetPlan
    from bedplate.plan.fleet import SitePlan
    from vpn.sites.carry import Known
    from vpn.sites.proof import SharedKey

NewKeys = Annotated[
    bool, typer.Option("--new-keys", help="Make new keys for the tunnels between regions, and carry them.")
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
    """Bring tunnels to their gateways: sites' with AWS's keys, those between regions with the fleet's own."""
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.tunnels import carried_tunnel_lines
    from vpn.sites.carry import CarriedTunnels, carry_tunnels

    plan = planned(opened(fleet))
    asked = {**_of_sites(plan), **_of_regions(plan, fleet, passphrase_file, anew=new_keys)}
    if not asked:
        fix = "`sites` makes some, and so do gateways of laptops in two regions where `interconnect` is none"
        raise InputError("the fleet has no tunnels", fix=fix)
    unknown = {name: each for name, each in asked.items() if isinstance(each, BedplateError)}
    known = {name: each for name, each in asked.items() if not isinstance(each, BedplateError)}
    nodes = [node for node in standing_nodes(plan) if node.name in known]
    with ways_to(plan, nodes, ssh_config) as way:
        done = carry_tunnels(known, way, may_change_engine=change_engine)
    carried = CarriedTunnels(done.laid, {**unknown, **done.failures})
    show(carried_tunnel_lines(carried))
    carried.check()
    return 0


def _of_sites(plan: "FleetPlan") -> "dict[str, Known | BedplateError]":
    """Return what makes each site's gateway of what AWS says of it, or why AWS does not say it."""
    from bedplate.account.door import check_account, open_door

    # Also of a site that has lost its last tunnel: it is to take down what it has.
    gateways = {f"{site.gateway}.{site.name}": site for site in plan.sites}
    if not gateways:
        return {}
    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return {name: _asked(door, plan, site) for name, site in gateways.items()}


def _of_regions(
    plan: "FleetPlan", fleet: Path, passphrase_file: Path | None, *, anew: bool
) -> "dict[str, Known | BedplateError]":
    """Return what makes each gateway that joins regions, or which address is not recorded."""
    from bedplate.plan.joint import joined_regions
    from bedplate.plan.nodes import GATEWAY
    from vpn.sites.regions import region_gateway

    def made(region: str) -> "Known | BedplateError":
        try:
            return region_gateway(plan, region, keys)
        except BedplateError as error:
            return error

    joined = joined_regions(plan)
    keys = _keys(plan, fleet, passphrase_file, anew=anew) if joined else {}
    return {f"{GATEWAY}.{region}": made(region) for region in joined}


def _keys(
    plan: "FleetPlan", fleet: Path, passphrase_file: Path | None, *, anew: bool
) -> "Mapping[frozenset[str], SharedKey]":
    """Return the key between each two gateways, made where there is none yet."""
    from functools import cache
    from itertools import combinations

    from bedplate.cli.vpn_opening import keys_of, known_passphrase
    from bedplate.plan.joint import joined_regions
    from bedplate.report.tunnels import made_key_lines
    from vpn.pair_keys import kept_keys, make_keys

    pki = keys_of(plan.name, fleet)
    passphrase = cache(known_passphrase(passphrase_file))
    pairs = tuple(frozenset(pair) for pair in combinations(joined_regions(plan), 2))
    show(made_key_lines(make_keys(pki, pairs, passphrase, anew=anew)))
    return kept_keys(pki, pairs, passphrase)


def _asked(door: "Door", plan: "FleetPlan", site: "SitePlan") -> "Known | BedplateError":
    from functools import partial

    from bedplate.account.tunnels import TunnelKey, tunnel_keys
    from vpn.sites.aws import AwsEnd, site_gateway
    from vpn.sites.proof import SharedKey

    def end(told: TunnelKey) -> AwsEnd:
        return AwsEnd(told.address, SharedKey(told.key.encode()))

    try:
        told = tunnel_keys(door, plan, site.name)
    except BedplateError as error:
        return error
    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in told.items()}
    return partial(site_gateway, plan, site, ends)
