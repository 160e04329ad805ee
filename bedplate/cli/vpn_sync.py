"""The commands that update and check gateways over SSH: vpn sync, vpn tunnels, vpn timer, vpn status.

Gateways of laptops get their certificates, the access list and the revocation lists. Gateways with tunnels get their
configuration and keys: AWS's pre-shared keys for tunnels to AWS, keys or certificates of the fleet for all others.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import AwsClient
from bedplate.account.vpn import TunnelKey, TunnelKeys, read_site_keys
from bedplate.cli.fleet import open_account, open_fleet, plan_loaded, plan_of
from bedplate.cli.login import SshOptions, ssh_targets
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, PassphraseFile, SshConfig, show, show_document
from bedplate.cli.vpn_session import keys_of, known_passphrase, newest_list, now, users_of
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.files import held, os_errors_as_machine_errors, write_together
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.links import connected_regions, tunnel_pairs
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, NodePlan, NodeRole, permanent_nodes
from bedplate.report.vpn import (
    condition_document,
    condition_lines,
    created_key_lines,
    issued_lines,
    relisted_lines,
    revoked_lines,
    updated_gateway_lines,
    updated_tunnel_lines,
)
from bedplate.spec.network import TunnelAuth
from vpn.agent.status import Status
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
from vpn.laptops.server import renewal_units
from vpn.pki import Pki, reload_pki
from vpn.push import GatewayKeys, PushedTunnels, SshConnection, push_access_list, push_tunnels, ssh_connection
from vpn.signing import SigningChanges, due, issue_certificates, renew_crl, revoke
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


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Update certificates and all gateways.

    Revoke certificates of people who left the fleet file, renew those of gateways, and send both to the gateways.
    """
    loaded = open_fleet(fleet, brief=True)
    plan = plan_loaded(loaded)
    pki = keys_of(plan.name, fleet)
    subjects = (*gateway_subjects(plan).values(), *peer_subjects(plan).values())
    keyless = {subject.name for subject in subjects if pki.store.read(subject.name) is None}
    changes = due(pki.certificates, loaded.fleet.people, subjects, keyless, now())
    passphrase = cache(known_passphrase(passphrase_file))
    _sign(pki, changes, passphrase)
    signed, options = keys_of(plan.name, fleet), SshOptions(fleet, config=ssh_config)

    def update_laptop_gateways() -> None:
        update_gateways(
            plan, signed, options, changes.departed_laptops, lambda pki: gateway_keys(plan, pki, passphrase, now())
        )

    try:
        _run_all(update_laptop_gateways, lambda: _update_peers(plan, fleet, options, passphrase))
    except InputError as error:
        if signed.journal == pki.journal:
            raise
        what = f"certificates signed, but not all gateways updated: {error.what}"
        raise PartialError(what, where=error.where, fix=error.fix) from None
    return 0


def _sign(pki: Pki, changes: SigningChanges, passphrase: Passphrase) -> None:
    """Revoke and issue certificates, renew the revocation list if it is due, and print all of it."""
    for names, reason in ((changes.departed_laptops, Reason.LEFT), (changes.unused_gateways, Reason.REPLACED)):
        if names:
            show(revoked_lines(revoke(pki, names, reason, now(), passphrase)))
    if changes.missing_certificates:
        show(issued_lines(issue_certificates(pki, changes.missing_certificates, now(), passphrase), now()))
    show(relisted_lines(is_renewed=renew_crl(pki, now(), passphrase)))


def _update_peers(plan: FleetPlan, fleet: Path, options: SshOptions, passphrase: Passphrase) -> None:
    """Send certificates and revocation lists to the gateways that authenticate to each other by certificates."""
    if peer_subjects(plan):
        with locked(fleet):
            # Read again under the lock: another command may have sent a newer plan since.
            plan = plan_of(fleet)
            places = peer_subjects(plan)
            gateways = tunnels_of_gateways(plan, fleet, passphrase)
            send_tunnels(plan, {name: gateways[name] for name in gateways if _place(name) in places}, options)


def _place(name: str) -> str:
    return name.partition(".")[2]


def _run_all(*steps: Callable[[], None]) -> None:
    """Run every step, even after one failed. Raises the error, or a PartialError with all messages."""
    errors: list[BedplateError] = []
    for step in steps:
        try:
            step()
        except BedplateError as error:
            errors.append(error)
    if len(errors) > 1:
        raise PartialError("; ".join(error.what for error in errors), fix=errors[0].fix)
    if errors:
        raise errors[0]


UNITS = Path("~/.config/systemd/user")


def timer(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[
        Path, typer.Option("--write", metavar="FOLDER", help="The folder of your own systemd units.")
    ] = UNITS,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Write a systemd timer for daily syncs."""
    files = {"--ssh-config": ssh_config, "--passphrase-file": passphrase_file}
    options = [word for option, file in files.items() if file for word in (option, str(file.absolute()))]
    command = (sys.executable, "-m", "bedplate", "vpn", "sync", str(fleet.absolute()), *options)
    folder = write.expanduser()
    units = renewal_units(users_of(fleet).fleet, command, Path(__file__).parents[2])
    with os_errors_as_machine_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    show([f"wrote {', '.join(units)} to {folder}", f"next: systemctl --user enable --now {list(units)[-1]}"])
    return 0


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and expiry dates.

    The exit status is 3 if a gateway or a tunnel is down, 6 if a gateway did not answer.
    """
    plan = plan_of(fleet)
    nodes = {node.name: node for node in permanent_nodes(plan) if node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="declare `vpn.laptops.gateways` or `sites`")
    statuses, failures = ask_gateways(plan, tuple(nodes.values()), SshOptions(fleet, config=ssh_config))
    number, seconds = newest_list(plan.name, fleet), int(time.time())
    expected = {name: expected_gateway(plan, node, number) for name, node in nodes.items()}
    faults = [
        fault
        for name, state in statuses.items()
        for fault in gateway_findings(nodes[name], expected[name], state, seconds)
    ]
    if json:
        show_document(condition_document(statuses, failures, faults))
    else:
        show(condition_lines(statuses, failures, faults))
    if any(fault.is_failing for fault in faults):
        return ViolationError.exit_code
    return PartialError.exit_code if failures else 0


GatewayTunnels = tuple[Gateway | None, BedplateError | None]
"""A gateway with the tunnels whose other end is known, and the error of the other tunnels."""


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
        send_tunnels(plan, gateways, SshOptions(fleet, config=ssh_config))
    return 0


def locked(fleet: Path) -> AbstractContextManager[None]:
    """Return the lock that `vpn tunnels` and `vpn sync` hold, so that no older plan or key replaces a newer one.

    Raises HeldError while another process holds it.
    """
    return held(fleet.with_suffix(".tunnels"))


def send_tunnels(plan: FleetPlan, gateways: Mapping[str, GatewayTunnels], options: SshOptions) -> None:
    """Send gateways their tunnels and print what changed. Raises PartialError, with the names, if one is incomplete."""
    complete = {name: gateway for name, (gateway, _) in gateways.items() if gateway}
    errors = {name: error for name, (_, error) in gateways.items() if error}
    nodes = [node for node in permanent_nodes(plan) if node.name in complete]
    with _connections(plan, nodes, options) as connect:
        sent = push_tunnels(complete, connect)
    pushed = PushedTunnels(sent.applied, {**errors, **sent.failures})
    show(updated_tunnel_lines(pushed))
    pushed.check()


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

    def gateway(region: str) -> GatewayTunnels:
        try:
            return region_gateway(plan, region, proofs), None
        except BedplateError as error:
            return None, error

    return {f"{LAPTOP_GATEWAY_HOST}.{region}": gateway(region) for region in connected_regions(plan)}


def _proofs(plan: FleetPlan, fleet: Path, passphrase: Passphrase, *, new_keys: bool) -> PlaceProofs:
    """Return the function that finds the key or certificate between two gateways. Creates missing ones.

    That function raises BedplateError for a gateway with an unusable one. If all are unusable, this one raises.
    """
    if not tunnel_pairs(plan):
        return _no_proof
    pki = keys_of(plan.name, fleet)
    if plan.tunnel_auth is TunnelAuth.CERTIFICATES:
        _issue_certificates(plan, pki, passphrase, replace_all=new_keys)
        papers = tunnel_certificates(keys_of(plan.name, fleet), peer_subjects(plan), passphrase, now())
        _check_any(papers.values())
        return lambda near, _: proof_or_error(papers[near])
    show(created_key_lines(make_shared_keys(pki, tunnel_pairs(plan), passphrase, anew=new_keys)))
    keys = load_shared_keys(pki, tunnel_pairs(plan), passphrase)
    _check_any(keys.values())
    return lambda near, far: proof_or_error(keys[frozenset((near, far))])


def _no_proof(near: str, far: str) -> Proof:
    raise KeyError(near, far)


def _issue_certificates(plan: FleetPlan, pki: Pki, passphrase: Passphrase, *, replace_all: bool) -> None:
    """Issue the certificates that gateways lack. With `replace_all`, revoke their current ones first."""
    peers = tuple(peer_subjects(plan).values())
    keyless = {peer.name for peer in peers if replace_all or pki.store.read(peer.name) is None}
    due = due_peers(pki.certificates, peers, keyless, now())
    if due.unused_gateways:
        show(revoked_lines(revoke(pki, due.unused_gateways, Reason.REPLACED, now(), passphrase)))
    if due.missing_certificates:
        show(issued_lines(issue_certificates(pki, due.missing_certificates, now(), passphrase), now()))
    renew_crl(pki, now(), passphrase)


def _check_any(proofs: Collection[Proof | BedplateError]) -> None:
    """Raise the first error if there are only errors, such as a wrong passphrase."""
    errors = [proof for proof in proofs if isinstance(proof, BedplateError)]
    if errors and len(errors) == len(proofs):
        raise errors[0]


def update_gateways(  # noqa: PLR0913  all that a push consists of
    plan: FleetPlan,
    pki: Pki,
    options: SshOptions,
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
    with _connections(plan, nodes.values(), options) as connect:
        while True:
            access_list, unusable = access_list_of(pki, now()).with_keys(keys(pki) if keys else {})
            pushed = push_access_list(
                gateways, access_list, lambda gateway: connect(nodes[gateway.place].name), cut=cut
            )
            # A gateway refuses lists older than its own. If another operator has signed meanwhile, send theirs.
            fresh = reload_pki(pki) if pushed.failures else pki
            if fresh is pki:
                break
            pki = fresh
    show(updated_gateway_lines(pushed))
    replace(pushed, failures={**unusable, **pushed.failures}).check()


def ask_gateways(
    plan: FleetPlan, nodes: Sequence[NodePlan], options: SshOptions
) -> tuple[dict[str, Status], dict[str, BedplateError]]:
    """Ask these gateways in parallel. Return the statuses, and the errors of gateways that did not answer."""

    def ask(node: NodePlan) -> Status | BedplateError:
        try:
            return parse_status(connect(node.name).run(STATUS_COMMAND, ""))
        except BedplateError as error:
            return error

    with _connections(plan, nodes, options) as connect, ThreadPoolExecutor(max(1, len(nodes))) as pool:
        answers = dict(zip((node.name for node in nodes), pool.map(ask, nodes), strict=True))
    statuses = {name: answer for name, answer in answers.items() if isinstance(answer, Status)}
    return statuses, {name: answer for name, answer in answers.items() if isinstance(answer, BedplateError)}


@contextmanager
def _connections(
    plan: FleetPlan, nodes: Iterable[NodePlan], options: SshOptions
) -> Iterator[Callable[[str], SshConnection]]:
    """Yield the function that returns the ssh command for the name of a machine.

    Without a recorded host key, a machine is reached by the operator's own ssh settings.
    """
    machines = [NodeLocation(node) for node in nodes]
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        targets = ssh_targets(Path(folder), plan, machines, options).targets
        commands = {target.node.name: target.argv for target in targets}
        yield lambda name: SshConnection(commands[name]) if name in commands else ssh_connection(name)
