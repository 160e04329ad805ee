"""The commands that read or issue certificates of laptops: vpn add, vpn renew, vpn list."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, Device, FleetFile, Json, PassphraseFile, Person, SshConfig, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import PartialError, ViolationError
from bedplate.load.source import Users, read_pools
from bedplate.operate import Operator
from bedplate.operate.keys import check_person, keys_of, known_passphrase, now, users_of
from bedplate.report.vpn import certificate_document, certificate_lines, issued_lines
from vpn import signing
from vpn.certificates import DEFAULT_DEVICE, Subject, laptop
from vpn.pki import Pki


def add(
    user: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = DEFAULT_DEVICE,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Issue a certificate to a laptop."""
    operator = Terminal(fleet, passphrase_file=passphrase_file)
    users, pki, subject = _open(operator, user, device)
    pools = read_pools(fleet.with_name("fleet.lock"), users.gateways)
    signing.check_free_slot(pki.certificates, subject.name, pools, now())
    show(issued_lines(signing.add(pki, [subject], now(), known_passphrase(operator)), now()))
    return 0


def renew(
    user: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = DEFAULT_DEVICE,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Replace a certificate and its key.

    The previous certificate stays valid until it expires.
    """
    operator = Terminal(fleet, passphrase_file=passphrase_file)
    _, pki, subject = _open(operator, user, device)
    show(issued_lines(signing.renew(pki, [subject], now(), known_passphrase(operator)), now()))
    return 0


def _open(operator: Operator, user: str, device: str) -> tuple[Users, Pki, Subject]:
    users = users_of(operator)
    check_person(user, users.people)
    return users, keys_of(users.fleet, operator), laptop(user, device)


def list_certificates(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    seen: Annotated[bool, typer.Option("--seen", help="Ask gateways when each laptop was last connected.")] = False,
    ssh_config: SshConfig = None,
    json: Json = False,
) -> int:
    """Show certificates and expiry dates.

    The exit status is 3 if one has expired or is about to.
    """
    # Slow: it imports the models of a fleet.
    from vpn.status import keys_status, storage_warnings

    operator = Terminal(fleet, ssh_config=ssh_config)
    users = users_of(operator)
    pki = keys_of(users.fleet, operator)
    state = keys_status(pki, users.people, now())
    notify(storage_warnings(pki))
    last_seen, status = _ask_gateways(operator) if seen else ({}, 0)
    if json:
        show_document(certificate_document(state, last_seen))
    else:
        show(certificate_lines(state, last_seen))
    return ViolationError.exit_code if state.is_failing else status


def _ask_gateways(operator: Operator) -> tuple[Mapping[str, datetime], int]:
    """Return when each laptop was last connected to a gateway, and 6 if a gateway did not answer."""
    # Slow: they import the models of a fleet.
    from bedplate.operate.fleet import plan_of
    from bedplate.operate.gateways import ask_gateways
    from bedplate.plan.laptops import laptop_gateways
    from vpn.gateways import gateway_node
    from vpn.status import last_seen

    plan = plan_of(operator)
    nodes = [gateway_node(plan, gateway) for gateway in laptop_gateways(plan)]
    statuses, failures = ask_gateways(operator, plan, nodes)
    notify(f"unknown sessions at {name}: {error.what}" for name, error in failures.items())
    return last_seen(statuses.values()), PartialError.exit_code if failures else 0
