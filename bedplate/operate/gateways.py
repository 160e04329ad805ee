"""Gateways: their certificates, lists and status; the other ends and keys of tunnels; revoked gateways.

AWS's pre-shared keys are for tunnels to AWS, keys or certificates of the fleet for all others.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from bedplate.account.client import AwsClient
from bedplate.account.vpn import TunnelKey, TunnelKeys, read_site_keys
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.files import held
from bedplate.nodes.host_keys import trust_instructions
from bedplate.nodes.remote import run
from bedplate.nodes.ssh import NodeLocation
from bedplate.operate import Operator, Result, open_account, open_fleet, plan_loaded, plan_of
from bedplate.operate.keys import keys_of, known_passphrase, newest_list, now
from bedplate.operate.login import is_in_cloud, targets_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.links import connected_regions, tunnel_pairs
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, NodePlan, NodeRole, permanent_nodes
from bedplate.programs.gateway.status import Status
from bedplate.report import vpn as report
from bedplate.rounds import ask_each
from bedplate.spec.network import TunnelAuth
from vpn import signing
from vpn.authority import Reason
from vpn.certificates import Passphrase
from vpn.gateways import (
    access_list_of,
    due_peers,
    gateway_keys,
    gateway_node,
    gateway_subjects,
    load_shared_keys,
    make_shared_keys,
    peer_subjects,
    tunnel_certificates,
)
from vpn.pki import Pki, reload_pki
from vpn.push import GatewayKeys, PushedTunnels, push_access_list, push_tunnels
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
from vpn.status import STATUS_COMMAND, expected_gateway, gateway_findings, parse_status

GatewayTunnels = tuple[Gateway | None, BedplateError | None]
"""A gateway with the tunnels whose other end is known, and the error of the other tunnels."""


def update_tunnels(operator: Operator, *, new_keys: bool = False) -> None:
    """Send all gateways their tunnels and keys; with `new_keys`, replace those between gateways of the fleet first."""
    with locked(operator):
        plan = plan_of(operator)
        passphrase = known_passphrase(operator)
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
    with targets_by_name(operator, plan, nodes) as targets:
        sent = push_tunnels(complete, targets)
    pushed = PushedTunnels(sent.applied, {**errors, **sent.failures})
    operator.show(report.updated_tunnel_lines(pushed))
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
    operator.show(report.created_key_lines(make_shared_keys(pki, tunnel_pairs(plan), passphrase, anew=new_keys)))
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
    _sign(operator, pki, due_peers(pki.certificates, peers, keyless, now()), passphrase)


def _check_any(proofs: Collection[Proof | BedplateError]) -> None:
    """Raise the first error if there are only errors, such as a wrong passphrase."""
    errors = [proof for proof in proofs if isinstance(proof, BedplateError)]
    if errors and len(errors) == len(proofs):
        raise errors[0]


def sync(operator: Operator) -> None:
    """Revoke certificates of people who left the fleet file, renew those of gateways, and update all gateways."""
    loaded = open_fleet(operator)
    plan = plan_loaded(loaded)
    pki = keys_of(plan.name, operator)
    subjects = (*gateway_subjects(plan).values(), *peer_subjects(plan).values())
    keyless = {subject.name for subject in subjects if pki.store.read(subject.name) is None}
    changes = signing.due(pki.certificates, loaded.fleet.people, subjects, keyless, now())
    passphrase = known_passphrase(operator)
    operator.show(report.relisted_lines(is_renewed=_sign(operator, pki, changes, passphrase)))
    signed = keys_of(plan.name, operator)

    def update_laptop_gateways() -> None:
        departed = changes.departed_laptops
        update_gateways(operator, plan, signed, departed, lambda pki: gateway_keys(plan, pki, passphrase, now()))

    try:
        _run_all(update_laptop_gateways, lambda: update_peers(operator, plan, passphrase))
    except InputError as error:
        if signed.journal == pki.journal:
            raise
        what = f"certificates signed, but not all gateways updated: {error.what}"
        raise PartialError(what, where=error.where, fix=error.fix) from None


def _sign(operator: Operator, pki: Pki, changes: signing.SigningChanges, passphrase: Passphrase) -> bool:
    """Revoke and issue certificates, and report them; return whether the revocation list was due and is renewed."""
    for names, reason in ((changes.departed_laptops, Reason.LEFT), (changes.unused_gateways, Reason.REPLACED)):
        if names:
            operator.show(report.revoked_lines(signing.revoke(pki, names, reason, now(), passphrase)))
    if changes.missing_certificates:
        issued = signing.issue_certificates(pki, changes.missing_certificates, now(), passphrase)
        operator.show(report.issued_lines(issued, now()))
    return signing.renew_crl(pki, now(), passphrase)


def _run_all(*steps: Callable[[], None]) -> None:
    """Run every step, even after one failed. Raises the error, or a PartialError with all messages."""
    errors = errors_of(*steps)
    if len(errors) > 1:
        raise PartialError("; ".join(error.what for error in errors), fix=errors[0].fix)
    if errors:
        raise errors[0]


def errors_of(*steps: Callable[[], None]) -> list[BedplateError]:
    """Run every step, even after one failed; return the errors."""
    errors: list[BedplateError] = []
    for step in steps:
        try:
            step()
        except BedplateError as error:
            errors.append(error)
    return errors


def update_gateways(  # noqa: PLR0913  all that a push consists of
    operator: Operator,
    plan: FleetPlan,
    pki: Pki,
    cut: Iterable[str] = (),
    keys: Callable[[Pki], Mapping[str, GatewayKeys | BedplateError]] | None = None,
    *,
    skip: str = "",
) -> None:
    """Send the access list, the revocation lists and, with `keys`, the certificates to every gateway of laptops.

    Gateways end the sessions of the laptops in `cut`. A gateway whose own certificate is unusable gets the rest. The
    gateway in the place `skip` gets nothing. Raises PartialError, with the names, if a gateway was not updated.
    """
    gateways = [gateway for gateway in laptop_gateways(plan) if gateway.place != skip]
    if not gateways:
        return
    nodes = {gateway.place: gateway_node(plan, gateway) for gateway in gateways}
    with targets_by_name(operator, plan, nodes.values()) as by_name:
        targets = {place: by_name[node.name] for place, node in nodes.items()}
        while True:
            access_list, unusable = access_list_of(pki, now()).with_keys(keys(pki) if keys else {})
            pushed = push_access_list(gateways, access_list, targets, cut=cut)
            # A gateway refuses lists older than its own. If another operator has signed meanwhile, send theirs.
            fresh = reload_pki(pki) if pushed.failures else pki
            if fresh is pki:
                break
            pki = fresh
    operator.show(report.updated_gateway_lines(pushed))
    replace(pushed, failures={**unusable, **pushed.failures}).check()


def ask_gateways(
    operator: Operator, plan: FleetPlan, nodes: Sequence[NodePlan]
) -> tuple[dict[str, Status], dict[str, BedplateError]]:
    """Ask these gateways in parallel. Return the statuses, and the errors of gateways that did not answer."""
    with targets_by_name(operator, plan, nodes) as targets:
        return ask_each(targets, lambda name: parse_status(run(targets[name], *STATUS_COMMAND)), len(targets))


def status(operator: Operator) -> Result:
    """Return sessions, tunnels and expiry dates; the exit status is 3 if one is down, 6 if a gateway is silent."""
    plan = plan_of(operator)
    nodes = {node.name: node for node in permanent_nodes(plan) if node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="declare `vpn.laptops.gateways` or `sites`")
    statuses, failures = ask_gateways(operator, plan, tuple(nodes.values()))
    for name in failures.keys() - plan.record.host_keys.keys():
        first = (
            "run `bedplate vpn up` first" if is_in_cloud(NodeLocation(nodes[name])) else trust_instructions(nodes[name])
        )
        failures[name].fix = f"no host key is recorded: {first}"
    number, seconds = newest_list(plan.name, operator.fleet), int(time.time())
    expected = {name: expected_gateway(plan, node, number) for name, node in nodes.items()}
    faults = [
        fault
        for name, state in statuses.items()
        for fault in gateway_findings(nodes[name], expected[name], state, seconds)
    ]
    status = PartialError.exit_code if failures else 0
    if any(fault.is_failing for fault in faults):
        status = ViolationError.exit_code
    lines, document = (form(statuses, failures, faults) for form in (report.condition_lines, report.condition_document))
    return Result(lines, document, status)


def revoke_gateway(operator: Operator, place: str) -> None:
    """Revoke and reissue the certificate of a gateway, and send the new tls-crypt-v2 key to all others."""
    passphrase = known_passphrase(operator)
    plan = plan_of(operator)
    pki = keys_of(plan.name, operator)
    subjects = gateway_subjects(plan)
    if place not in subjects:
        places = ", ".join(subjects) or "none"
        raise InputError(f"no gateway for laptops in {place!r}", fix=f"write one of the places of gateways: {places}")
    operator.show(report.revoked_lines(signing.replace_gateway(pki, subjects[place], now(), passphrase)))
    operator.show(report.replaced_gateway_lines(place))
    with nothing_updated(operator):
        keys = partial(gateway_keys, plan, passphrase=passphrase, now=now())
        update_gateways(operator, plan, keys_of(plan.name, operator), keys=keys, skip=place)


@contextmanager
def nothing_updated(operator: Operator) -> Iterator[None]:
    """Turn an error before the first gateway is reached into a PartialError: the revocation is signed."""
    try:
        yield
    except PartialError:
        raise
    except BedplateError as error:
        raise PartialError(
            f"revoked, but no gateway was updated: {error.what}",
            where=error.where or str(operator.fleet),
            fix="; ".join(filter(None, (error.fix, "then run `bedplate vpn sync`: until then gateways accept them"))),
        ) from None
