"""The commands that read or issue certificates of laptops: vpn add, vpn renew, vpn list."""

from typing import Annotated

import typer

from bedplate.cli.options import By, Device, Json, OnFleetByKeys, Person, Terminal, printed
from bedplate.operate import certificates
from vpn.certificates import DEFAULT_DEVICE


def add(user: Person, *, device: Device = DEFAULT_DEVICE, operator: OnFleetByKeys) -> int:
    """Issue a certificate to a laptop."""
    return printed(certificates.issue(operator, user, device))


def renew(user: Person, *, device: Device = DEFAULT_DEVICE, operator: OnFleetByKeys) -> int:
    """Replace a certificate and its key.

    The previous certificate stays valid until it expires.
    """
    return printed(certificates.renew(operator, user, device))


def list_certificates(
    *,
    seen: Annotated[bool, typer.Option("--seen", help="Ask gateways when each laptop was last connected.")] = False,
    operator: Annotated[Terminal, By(("ssh_config",))],
    json: Json = False,
) -> int:
    """Show certificates and expiry dates.

    The exit status is 3 if one has expired or is about to.
    """
    return printed(certificates.read(operator, is_seen=seen), as_json=json)
