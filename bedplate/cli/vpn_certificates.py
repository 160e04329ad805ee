"""The commands that read or issue certificates of laptops: vpn add, vpn renew, vpn list."""

from typing import Annotated

import typer

from bedplate.cli.options import (
    DEFAULT_FLEET,
    Device,
    FleetFile,
    Json,
    PassphraseFile,
    Person,
    SshConfig,
    Terminal,
    printed,
)
from bedplate.operate import certificates
from vpn.certificates import DEFAULT_DEVICE


def add(
    user: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = DEFAULT_DEVICE,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Issue a certificate to a laptop."""
    return printed(certificates.issue(Terminal(fleet, passphrase_file=passphrase_file), user, device))


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
    return printed(certificates.renew(Terminal(fleet, passphrase_file=passphrase_file), user, device))


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
    return printed(certificates.read(Terminal(fleet, ssh_config=ssh_config), is_seen=seen), as_json=json)
