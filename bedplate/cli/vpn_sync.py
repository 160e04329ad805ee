"""The commands that keep gateways up to date: vpn sync, vpn timer, and vpn status, which checks them."""

import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.fleet import opened, plan_of, planned
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, PassphraseFile, SshConfig
from bedplate.cli.output import show, show_document
from bedplate.cli.vpn_gateways import ask_gateways, update_gateways
from bedplate.cli.vpn_session import keys_of, known_passphrase, newest_list, now, users_of
from bedplate.cli.vpn_tunnels import locked, send_tunnels, tunnels_of_gateways
from bedplate.errors import BedplateError, InputError, PartError, ViolationError
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import Duty, standing_nodes
from bedplate.report.vpn import condition_document, condition_lines, issued_lines, relisted_lines, revoked_lines
from bedplate.writer import told_plainly, write_together
from vpn.authority import Reason
from vpn.certificates import Passphrase
from vpn.gateways import gateways_of, keys_of_gateways
from vpn.laptops.server import renewal_units
from vpn.peers import peer_subjects
from vpn.pki import Pki
from vpn.signing import Due, due, issue_anew, relist, revoke
from vpn.status import amiss, wanted


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Update certificates and all gateways.

    Revoke certificates of people who left the fleet file, renew those of gateways, and send gateways the changes.
    """
    loaded = opened(fleet)
    plan = planned(loaded)
    pki = keys_of(plan.name, fleet)
    subjects = (*gateways_of(plan), *peer_subjects(plan).values())
    keyless = {subject.name for subject in subjects if pki.store.read(subject.name) is None}
    changes = due(pki.roll, loaded.fleet.people, subjects, keyless, now())
    passphrase = cache(known_passphrase(passphrase_file))
    _sign(pki, changes, passphrase)
    signed = keys_of(plan.name, fleet)

    def update_laptop_gateways() -> None:
        update_gateways(
            plan, signed, ssh_config, changes.left, lambda pki: keys_of_gateways(plan, pki, passphrase, now())
        )

    try:
        _run_all(update_laptop_gateways, lambda: _update_peers(plan, fleet, ssh_config, passphrase))
    except InputError as error:
        if signed.journal == pki.journal:
            raise
        what = f"certificates signed, but not all gateways updated: {error.what}"
        raise PartError(what, where=error.where, fix=error.fix) from None
    return 0


def _sign(pki: Pki, changes: Due, passphrase: Passphrase) -> None:
    """Revoke and issue certificates, renew the revocation list if it is due, and print all of it."""
    for names, reason in ((changes.left, Reason.LEFT), (changes.gone, Reason.REPLACED)):
        if names:
            show(revoked_lines(revoke(pki, names, reason, now(), passphrase)))
    if changes.lacking:
        show(issued_lines(issue_anew(pki, changes.lacking, now(), passphrase), now()))
    show(relisted_lines(is_renewed=relist(pki, now(), passphrase)))


def _update_peers(plan: FleetPlan, fleet: Path, config: Path | None, passphrase: Passphrase) -> None:
    """Send certificates and revocation lists to the gateways that authenticate to each other by certificates."""
    places = peer_subjects(plan)
    if places:
        with locked(fleet):
            gateways = tunnels_of_gateways(plan, fleet, passphrase)
            send_tunnels(plan, {name: gateways[name] for name in gateways if _place(name) in places}, config)


def _place(name: str) -> str:
    return name.partition(".")[2]


def _run_all(*steps: Callable[[], None]) -> None:
    """Run every step, even after one failed. Raises the error, or a PartError with all messages."""
    errors: list[BedplateError] = []
    for step in steps:
        try:
            step()
        except BedplateError as error:
            errors.append(error)
    if len(errors) > 1:
        raise PartError("; ".join(error.what for error in errors), fix=errors[0].fix)
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
    with told_plainly(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    show([f"wrote {', '.join(units)} to {folder}", f"next: systemctl --user enable --now {list(units)[-1]}"])
    return 0


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and expiry dates.

    The exit status is 3 if a gateway or a tunnel is down, 6 if a gateway did not answer.
    """
    plan = plan_of(fleet)
    nodes = {node.name: node for node in standing_nodes(plan) if node.duties & {Duty.LAPTOPS, Duty.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="declare `vpn.laptops.gateways` or `sites`")
    statuses, failures = ask_gateways(plan, tuple(nodes.values()), ssh_config)
    number, seconds = newest_list(plan.name, fleet), int(time.time())
    expected = {name: wanted(plan, node, number) for name, node in nodes.items()}
    faults = [fault for name, state in statuses.items() for fault in amiss(nodes[name], expected[name], state, seconds)]
    if json:
        show_document(condition_document(statuses, failures, faults))
    else:
        show(condition_lines(statuses, failures, faults))
    if any(fault.is_failing for fault in faults):
        return ViolationError.exit_code
    return PartError.exit_code if failures else 0
