"""Tunnels of gateways: their other ends, keys and certificates, and the push of their configuration.

AWS's pre-shared keys are for tunnels to AWS, keys or certificates of the fleet for all others.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache

from bedplate.account.client import AwsClient
from bedplate.account.vpn import TunnelKey, TunnelKeys, read_site_keys
from bedplate.errors import BedplateError, InputError
from bedplate.files import held
from bedplate.operate import Operator
from bedplate.operate.fleet import open_account, plan_of
from bedplate.operate.keys import keys_of, known_passphrase, now
from bedplate.operate.login import ssh_commands
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.links import connected_regions, tunnel_pairs
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, permanent_nodes
from bedplate.report.vpn import created_key_lines, issued_lines, revoked_lines, updated_tunnel_lines
from bedplate.rounds import ask_each
from bedplate.spec.network import TunnelAuth
from vpn.authority import Reason
from vpn.certificates import Passphrase
from vpn.gateways import due_peers, load_shared_keys, make_shared_keys, peer_subjects, tunnel_certificates
from vpn.pki import Pki
from vpn.push import PushedTunnels, SshConnection, push_tunnels
from vpn.signing import issue_certificates, renew_crl, revoke
from vpn.sites.gateway import (
    AwsEnd,
    Gateway,
    PlaceProofs,
    Proof,
    SharedKey,
    direct_tunnels,
    proof_or_error,
    region_gateway,
    site_gateway,
)

GatewayTunnels = tuple[Gateway | None, BedplateError | None]
"""A gateway with the tunnels whose other end is known, and the error of the other tunnels."""


def update_tunnels(operator: Operator, *, new_keys: bool = False) -> None:
    """Send all gateways their tunnels and keys; with `new_keys`, replace those between gateways of the fleet first."""
    with locked(operator):
        plan = plan_of(operator)
        passphrase = cache(known_passphrase(operator))
        gateways = tunnels_of_gateways(operator, plan, passphrase, new_keys=new_keys)
        if not gateways:
            fix = "declare `sites`, or laptop gateways in two regions with `interconnect: none`"
            raise InputError("the fleet has no tunnels", fix=fix)
        send_tunnels(operator, plan, gateways)


def update_peers(operator: Operator, plan: FleetPlan, passphrase: Passphrase) -> None:
    """Send certificates and revocation lists to the gateways that authenticate to each other by certificates."""
    if peer_subjects(plan):
        with locked(operator):
            # Read again under the lock: another command may have sent a newer plan since.
            plan = plan_of(operator)
            places = peer_subjects(plan)
            gateways = tunnels_of_gateways(operator, plan, passphrase)
            chosen = {name: gateways[name] for name in gateways if name.partition(".")[2] in places}
            send_tunnels(operator, plan, chosen)


def locked(operator: Operator) -> AbstractContextManager[None]:
    """Return the lock of those who send tunnels, so that no older plan or key replaces a newer one.

    Raises HeldError while another process holds it.
    """
    return held(operator.fleet.with_suffix(".tunnels"))


def send_tunnels(operator: Operator, plan: FleetPlan, gateways: Mapping[str, GatewayTunnels]) -> None:
    """Send gateways their tunnels and report the changes. Raises PartialError, with the names, if one is incomplete."""
    complete = {name: gateway for name, (gateway, _) in gateways.items() if gateway}
    errors = {name: error for name, (_, error) in gateways.items() if error}
    nodes = [node for node in permanent_nodes(plan) if node.name in complete]
    with ssh_commands(operator, plan, nodes) as commands:
        sent = push_tunnels(complete, lambda name: SshConnection(commands[name]))
    pushed = PushedTunnels(sent.applied, {**errors, **sent.failures})
    operator.show(updated_tunnel_lines(pushed))
    pushed.check()


def tunnels_of_gateways(
    operator: Operator, plan: FleetPlan, passphrase: Passphrase, *, new_keys: bool = False
) -> dict[str, GatewayTunnels]:
    """Return the gateways of sites and connected regions, by the name of the machine.

    Raises the error of the AWS account if all tunnels need it.
    """
    account = _account(plan)
    proofs = _proofs(operator, plan, passphrase, new_keys=new_keys)
    gateways = {**_site_gateways(plan, account, proofs), **_region_gateways(plan, proofs)}
    if isinstance(account, BedplateError) and not any(gateway for gateway, _ in gateways.values()):
        raise account
    return gateways


def _account(plan: FleetPlan) -> AwsClient | BedplateError | None:
    """Return the client of the account, or the error; None for a fleet without sites, which needs no account."""
    if not plan.sites:
        return None
    try:
        return open_account(plan)
    except BedplateError as error:
        return error


def _site_gateways(
    plan: FleetPlan, account: AwsClient | BedplateError | None, proofs: PlaceProofs
) -> dict[str, GatewayTunnels]:
    """Return the gateways of all sites: a gateway must also remove its last tunnel."""
    keys: Mapping[str, TunnelKeys | BedplateError]
    match account:
        case None:
            return {}
        case BedplateError():
            keys = {site.name: account for site in plan.sites}
        case _:
            keys = read_site_keys(account, plan)
    return {f"{site.gateway}.{site.name}": _site_gateway(plan, site, keys[site.name], proofs) for site in plan.sites}


def _site_gateway(
    plan: FleetPlan, site: SitePlan, keys: TunnelKeys | BedplateError, proofs: PlaceProofs
) -> GatewayTunnels:
    if isinstance(keys, BedplateError):
        # A gateway gets all its files or none. Without AWS's keys it keeps its current files.
        return None, keys
    missing = next(iter(keys.missing.values()), None)
    # Tunnels to other sites do not wait for AWS. Tunnels to regions are sent together.
    if missing and not plan.site_tunnels_of(site.name):
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
    regions = connected_regions(plan)
    gateways, errors = ask_each(regions, lambda region: region_gateway(plan, region, proofs), 1)
    return {f"{LAPTOP_GATEWAY_HOST}.{region}": (gateways.get(region), errors.get(region)) for region in regions}


def _proofs(operator: Operator, plan: FleetPlan, passphrase: Passphrase, *, new_keys: bool) -> PlaceProofs:
    """Return the function that finds the key or certificate between two gateways. Creates missing ones.

    That function raises BedplateError for a gateway with an unusable one. If all are unusable, this one raises.
    """
    if not tunnel_pairs(plan):
        return _no_proof
    pki = keys_of(plan.name, operator)
    if plan.tunnel_auth is TunnelAuth.CERTIFICATES:
        _issue_certificates(operator, plan, pki, passphrase, replace_all=new_keys)
        papers = tunnel_certificates(keys_of(plan.name, operator), peer_subjects(plan), passphrase, now())
        _check_any(papers.values())
        return lambda near, _: proof_or_error(papers[near])
    operator.show(created_key_lines(make_shared_keys(pki, tunnel_pairs(plan), passphrase, anew=new_keys)))
    keys = load_shared_keys(pki, tunnel_pairs(plan), passphrase)
    _check_any(keys.values())
    return lambda near, far: proof_or_error(keys[frozenset((near, far))])


def _no_proof(near: str, far: str) -> Proof:
    raise KeyError(near, far)


def _issue_certificates(
    operator: Operator, plan: FleetPlan, pki: Pki, passphrase: Passphrase, *, replace_all: bool
) -> None:
    """Issue the certificates that gateways lack. With `replace_all`, revoke their current ones first."""
    peers = tuple(peer_subjects(plan).values())
    keyless = {peer.name for peer in peers if replace_all or pki.store.read(peer.name) is None}
    due = due_peers(pki.certificates, peers, keyless, now())
    if due.unused_gateways:
        operator.show(revoked_lines(revoke(pki, due.unused_gateways, Reason.REPLACED, now(), passphrase)))
    if due.missing_certificates:
        issued = issue_certificates(pki, due.missing_certificates, now(), passphrase)
        operator.show(issued_lines(issued, now()))
    renew_crl(pki, now(), passphrase)


def _check_any(proofs: Collection[Proof | BedplateError]) -> None:
    """Raise the first error if there are only errors, such as a wrong passphrase."""
    errors = [proof for proof in proofs if isinstance(proof, BedplateError)]
    if errors and len(errors) == len(proofs):
        raise errors[0]
