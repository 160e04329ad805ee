"""Gateways of laptops: their certificates, access list and revocation lists are updated, and their status is read."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.operate import Operator, Result
from bedplate.operate.fleet import open_fleet, plan_loaded, plan_of
from bedplate.operate.keys import keys_of, known_passphrase, newest_list, now
from bedplate.operate.login import ssh_commands
from bedplate.operate.tunnels import update_peers
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from bedplate.programs.gateway.status import Status
from bedplate.report.vpn import (
    condition_document,
    condition_lines,
    issued_lines,
    relisted_lines,
    revoked_lines,
    updated_gateway_lines,
)
from bedplate.rounds import ask_each
from vpn.authority import Reason
from vpn.certificates import Passphrase
from vpn.gateways import access_list_of, gateway_keys, gateway_node, gateway_subjects, peer_subjects
from vpn.pki import Pki, reload_pki
from vpn.push import GatewayKeys, SshConnection, push_access_list
from vpn.signing import SigningChanges, due, issue_certificates, renew_crl, revoke
from vpn.status import STATUS_COMMAND, expected_gateway, gateway_findings, parse_status


def sync(operator: Operator) -> None:
    """Revoke certificates of people who left the fleet file, renew those of gateways, and update all gateways."""
    loaded = open_fleet(operator)
    plan = plan_loaded(loaded)
    pki = keys_of(plan.name, operator)
    subjects = (*gateway_subjects(plan).values(), *peer_subjects(plan).values())
    keyless = {subject.name for subject in subjects if pki.store.read(subject.name) is None}
    changes = due(pki.certificates, loaded.fleet.people, subjects, keyless, now())
    passphrase = cache(known_passphrase(operator))
    _sign(operator, pki, changes, passphrase)
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


def _sign(operator: Operator, pki: Pki, changes: SigningChanges, passphrase: Passphrase) -> None:
    """Revoke and issue certificates, renew the revocation list if it is due, and report all of it."""
    for names, reason in ((changes.departed_laptops, Reason.LEFT), (changes.unused_gateways, Reason.REPLACED)):
        if names:
            operator.show(revoked_lines(revoke(pki, names, reason, now(), passphrase)))
    if changes.missing_certificates:
        issued = issue_certificates(pki, changes.missing_certificates, now(), passphrase)
        operator.show(issued_lines(issued, now()))
    operator.show(relisted_lines(is_renewed=renew_crl(pki, now(), passphrase)))


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
    with ssh_commands(operator, plan, nodes.values()) as commands:
        while True:
            access_list, unusable = access_list_of(pki, now()).with_keys(keys(pki) if keys else {})
            pushed = push_access_list(
                gateways, access_list, lambda gateway: SshConnection(commands[nodes[gateway.place].name]), cut=cut
            )
            # A gateway refuses lists older than its own. If another operator has signed meanwhile, send theirs.
            fresh = reload_pki(pki) if pushed.failures else pki
            if fresh is pki:
                break
            pki = fresh
    operator.show(updated_gateway_lines(pushed))
    replace(pushed, failures={**unusable, **pushed.failures}).check()


def ask_gateways(
    operator: Operator, plan: FleetPlan, nodes: Sequence[NodePlan]
) -> tuple[dict[str, Status], dict[str, BedplateError]]:
    """Ask these gateways in parallel. Return the statuses, and the errors of gateways that did not answer."""
    with ssh_commands(operator, plan, nodes) as commands:
        return ask_each(
            commands, lambda name: parse_status(SshConnection(commands[name]).run(STATUS_COMMAND, "")), len(nodes)
        )


def status(operator: Operator) -> Result:
    """Return sessions, tunnels and expiry dates; the exit status is 3 if one is down, 6 if a gateway is silent."""
    plan = plan_of(operator)
    nodes = {node.name: node for node in permanent_nodes(plan) if node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="declare `vpn.laptops.gateways` or `sites`")
    statuses, failures = ask_gateways(operator, plan, tuple(nodes.values()))
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
    lines, document = (form(statuses, failures, faults) for form in (condition_lines, condition_document))
    return Result(lines, document, status)
