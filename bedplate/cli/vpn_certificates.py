"""The commands that read or issue certificates of laptops: vpn add, vpn renew, vpn list."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.output import (
    DEFAULT_FLEET,
    Device,
    FleetFile,
    Json,
    PassphraseFile,
    Person,
    SshConfig,
    notify,
    show,
    show_document,
)
from bedplate.cli.vpn_session import keys_of, known_passphrase, now, users_of
from bedplate.errors import InputError, PartialError, ViolationError, nearest
from bedplate.load.source import Users, read_pools
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
    users, pki, subject = _open(user, device, fleet)
    pools = read_pools(fleet.with_name("fleet.lock"), users.gateways)
    signing.check_free_slot(pki.certificates, subject.name, pools, now())
    show(issued_lines(signing.add(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
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
    _, pki, subject = _open(user, device, fleet)
    show(issued_lines(signing.renew(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def _open(user: str, device: str, fleet: Path) -> tuple[Users, Pki, Subject]:
    users = users_of(fleet)
    check_person(user, users.people)
    return users, keys_of(users.fleet, fleet), laptop(user, device)


def check_person(user: str, people: Iterable[str]) -> None:
    """Raise InputError for a name that is not in `people`, with the nearest name and the line for a new person."""
    names = tuple(people)
    if user not in names:
        closest = nearest(user, names)
        entry = f'add a line below `people:`, with their public key: `  {user}: {{keys: ["ssh-ed25519 AAAA..."]}}`'
        fix = f"write {closest}; for a new person {entry}" if closest else entry
        person, _, device = user.partition(".")
        if person in names:
            fix = f"write {person} --device {device}"
        raise InputError(f"no person named {user} in the fleet file", where="people", fix=fix)


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

    users = users_of(fleet)
    pki = keys_of(users.fleet, fleet)
    state = keys_status(pki, users.people, now())
    notify(storage_warnings(pki))
    last_seen, status = _ask_gateways(fleet, ssh_config) if seen else ({}, 0)
    if json:
        show_document(certificate_document(state, last_seen))
    else:
        show(certificate_lines(state, last_seen))
    return ViolationError.exit_code if state.is_failing else status


def _ask_gateways(fleet: Path, config: Path | None) -> tuple[Mapping[str, datetime], int]:
    """Return when each laptop was last connected to a gateway, and 6 if a gateway did not answer."""
    # Slow: they import the models of a fleet.
    from bedplate.cli.fleet import plan_of
    from bedplate.cli.login import SshOptions
    from bedplate.cli.vpn_sync import ask_gateways
    from bedplate.plan.laptops import laptop_gateways
    from vpn.gateways import gateway_node
    from vpn.status import last_seen

    plan = plan_of(fleet)
    nodes = [gateway_node(plan, gateway) for gateway in laptop_gateways(plan)]
    statuses, failures = ask_gateways(plan, nodes, SshOptions(fleet, config=config))
    notify(f"unknown sessions at {name}: {error.what}" for name, error in failures.items())
    return last_seen(statuses.values()), PartialError.exit_code if failures else 0
