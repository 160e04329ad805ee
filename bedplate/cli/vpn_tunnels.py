"""The command vpn tunnels: send gateways the configuration and keys of their tunnels.

Tunnels to AWS use AWS's pre-shared keys. Tunnels between gateways of the fleet use keys or certificates of its own.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import Door
from bedplate.account.vpn import TunnelKey, TunnelKeys, keys_of_sites
from bedplate.cli.account import open_account
from bedplate.cli.fleet import plan_of
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, PassphraseFile, SshConfig
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import ssh_ways
from bedplate.cli.vpn_session import keys_of, known_passphrase, now
from bedplate.errors import BedplateError, InputError
from bedplate.hold import held
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.links import joined_regions, pairs
from bedplate.plan.nodes import GATEWAY, standing_nodes
from bedplate.report.vpn import created_key_lines, issued_lines, revoked_lines, updated_tunnel_lines
from bedplate.spec.network import TunnelAuth
from vpn.authority import Reason
from vpn.certificates import Passphrase
from vpn.peers import due_peers, kept_keys, make_keys, papers_of, peer_subjects
from vpn.pki import Pki
from vpn.signing import issue_anew, relist, revoke
from vpn.sites.aws import AwsEnd, direct_tunnels, region_gateway, site_gateway
from vpn.sites.gateway import Gateway, PlaceProofs, Proof, SharedKey, given
from vpn.sites.push import CarriedTunnels, carry_tunnels

GatewayTunnels = tuple[Gateway | None, BedplateError | None]
"""A gateway with its tunnels, as far as their other ends are known, and the error of those that are not."""


def tunnels(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Replace the keys of tunnels between gateways of the fleet.")
    ] = False,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Send gateways their tunnels and keys."""
    with locked(fleet):
        plan = plan_of(fleet)
        passphrase = cache(known_passphrase(passphrase_file))
        gateways = tunnels_of_gateways(plan, fleet, passphrase, new_keys=new_keys)
        if not gateways:
            fix = "declare `sites`, or laptop gateways in two regions with `interconnect: none`"
            raise InputError("the fleet has no tunnels", fix=fix)
        send_tunnels(plan, gateways, ssh_config)
    return 0


def locked(fleet: Path) -> AbstractContextManager[None]:
    """Return the lock that `vpn tunnels` and `vpn sync` hold, so that no older plan or key replaces a newer one.

    Raises HeldError while another process holds it.
    """
    return held(fleet.with_suffix(".tunnels"))


def send_tunnels(plan: FleetPlan, gateways: Mapping[str, GatewayTunnels], config: Path | None) -> None:
    """Send gateways their tunnels and print what changed. Raises PartError, with the names, if one is incomplete."""
    complete = {name: gateway for name, (gateway, _) in gateways.items() if gateway}
    errors = {name: error for name, (_, error) in gateways.items() if error}
    nodes = [node for node in standing_nodes(plan) if node.name in complete]
    with ssh_ways(plan, nodes, config) as way:
        sent = carry_tunnels(complete, way)
    carried = CarriedTunnels(sent.laid, {**errors, **sent.failures})
    show(updated_tunnel_lines(carried))
    carried.check()


def tunnels_of_gateways(
    plan: FleetPlan, fleet: Path, passphrase: Passphrase, *, new_keys: bool = False
) -> dict[str, GatewayTunnels]:
    """Return the gateways of sites and connected regions, by the name of the machine.

    Raises the error of the AWS account if all tunnels need it.
    """
    account = _account(plan)
    proofs = _proofs(plan, fleet, passphrase, new_keys=new_keys)
    gateways = {**_site_gateways(plan, account, proofs), **_region_gateways(plan, proofs)}
    if isinstance(account, BedplateError) and not any(gateway for gateway, _ in gateways.values()):
        raise account
    return gateways


def _account(plan: FleetPlan) -> Door | BedplateError | None:
    """Return the client of the account, or the error; None for a fleet without sites, which needs no account."""
    if not plan.sites:
        return None
    try:
        return open_account(plan)
    except BedplateError as error:
        return error


def _site_gateways(
    plan: FleetPlan, account: Door | BedplateError | None, proofs: PlaceProofs
) -> dict[str, GatewayTunnels]:
    """Return the gateways of all sites: one that has lost its last tunnel must remove it."""
    keys: Mapping[str, TunnelKeys | BedplateError]
    match account:
        case None:
            return {}
        case BedplateError():
            keys = {site.name: account for site in plan.sites}
        case _:
            keys = keys_of_sites(account, plan)
    return {f"{site.gateway}.{site.name}": _site_gateway(plan, site, keys[site.name], proofs) for site in plan.sites}


def _site_gateway(
    plan: FleetPlan, site: SitePlan, keys: TunnelKeys | BedplateError, proofs: PlaceProofs
) -> GatewayTunnels:
    if isinstance(keys, BedplateError):
        # A gateway gets all its files or none. Without AWS's keys it keeps those that it has.
        return None, keys
    missing = next(iter(keys.missing.values()), None)
    # Tunnels to other sites do not wait for AWS. Tunnels to regions are sent together.
    if missing and not plan.directs_of(site.name):
        return None, missing

    def end(key: TunnelKey) -> AwsEnd:
        return AwsEnd(key.address, SharedKey(key.key.encode()))

    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in keys.ends.items()}
    created = replace(plan, tunnels=tuple(tunnel for tunnel in plan.tunnels if tunnel.region not in keys.missing))
    try:
        return site_gateway(created, site, ends, tuple(direct_tunnels(plan, site, proofs))), missing
    except BedplateError as error:
        # Its own key or certificate is unusable: it keeps the files that it has.
        return None, error


def _region_gateways(plan: FleetPlan, proofs: PlaceProofs) -> dict[str, GatewayTunnels]:
    """Return the gateways that connect regions, or the error of one whose address is not recorded."""

    def gateway(region: str) -> GatewayTunnels:
        try:
            return region_gateway(plan, region, proofs), None
        except BedplateError as error:
            return None, error

    return {f"{GATEWAY}.{region}": gateway(region) for region in joined_regions(plan)}


def _proofs(plan: FleetPlan, fleet: Path, passphrase: Passphrase, *, new_keys: bool) -> PlaceProofs:
    """Return the function that finds the key or certificate between two gateways. Creates missing ones.

    That function raises BedplateError for a gateway with an unusable one. If all are unusable, this one raises.
    """
    if not pairs(plan):
        return _no_proof
    pki = keys_of(plan.name, fleet)
    if plan.tunnel_auth is TunnelAuth.CERTIFICATES:
        _issue_certificates(plan, pki, passphrase, replace_all=new_keys)
        papers = papers_of(keys_of(plan.name, fleet), peer_subjects(plan), passphrase, now())
        _check_any(papers.values())
        return lambda near, _: given(papers[near])
    show(created_key_lines(make_keys(pki, pairs(plan), passphrase, anew=new_keys)))
    keys = kept_keys(pki, pairs(plan), passphrase)
    _check_any(keys.values())
    return lambda near, far: given(keys[frozenset((near, far))])


def _no_proof(near: str, far: str) -> Proof:
    raise KeyError(near, far)


def _issue_certificates(plan: FleetPlan, pki: Pki, passphrase: Passphrase, *, replace_all: bool) -> None:
    """Issue the certificates that gateways lack. With `replace_all`, revoke their current ones first."""
    peers = tuple(peer_subjects(plan).values())
    keyless = {peer.name for peer in peers if replace_all or pki.store.read(peer.name) is None}
    due = due_peers(pki.roll, peers, keyless, now())
    replaced = (*due.gone, *(peer.name for peer in peers if replace_all))
    if replaced and (revoked := revoke(pki, replaced, Reason.REPLACED, now(), passphrase)):
        show(revoked_lines(revoked))
    if due.lacking:
        show(issued_lines(issue_anew(pki, due.lacking, now(), passphrase), now()))
    relist(pki, now(), passphrase)


def _check_any(proofs: Collection[Proof | BedplateError]) -> None:
    """Raise the first error if there are only errors, such as a wrong passphrase."""
    errors = [proof for proof in proofs if isinstance(proof, BedplateError)]
    if errors and len(errors) == len(proofs):
        raise errors[0]
