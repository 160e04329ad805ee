"""The commands that update and check gateways over SSH: vpn sync, vpn tunnels, vpn timer, vpn status."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, PassphraseFile, SshConfig, Terminal
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.files import os_errors_as_machine_errors, write_together
from bedplate.operate import gateways
from bedplate.operate.fleet import plan_of
from bedplate.operate.keys import newest_list, users_of
from bedplate.operate.tunnels import update_tunnels
from bedplate.plan.nodes import NodeRole, permanent_nodes
from bedplate.report.vpn import condition_document, condition_lines
from vpn.laptops.server import renewal_units
from vpn.status import expected_gateway, gateway_findings


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Update certificates and all gateways.

    Revoke certificates of people who left the fleet file, renew those of gateways, and send both to the gateways.
    """
    gateways.sync(Terminal(fleet, ssh_config=ssh_config, passphrase_file=passphrase_file))
    return 0


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
    units = renewal_units(users_of(Terminal(fleet)).fleet, command, Path(__file__).parents[2])
    with os_errors_as_machine_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    show([f"wrote {', '.join(units)} to {folder}", f"next: systemctl --user enable --now {list(units)[-1]}"])
    return 0


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and expiry dates.

    The exit status is 3 if a gateway or a tunnel is down, 6 if a gateway did not answer.
    """
    operator = Terminal(fleet, ssh_config=ssh_config)
    plan = plan_of(operator)
    nodes = {node.name: node for node in permanent_nodes(plan) if node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="declare `vpn.laptops.gateways` or `sites`")
    statuses, failures = gateways.ask_gateways(operator, plan, tuple(nodes.values()))
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
    update_tunnels(Terminal(fleet, ssh_config=ssh_config, passphrase_file=passphrase_file), new_keys=new_keys)
    return 0
