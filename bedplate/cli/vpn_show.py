"""`bedplate vpn show`: the one file that a laptop needs, as text or as pictures for a camera."""

from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli import output
from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.vpn_opening import Device, PassphraseFile, User, keys_of, known_passphrase

if TYPE_CHECKING:
    from vpn.bundle import Bundle
    from vpn.laptops.profile import LaptopKeys
    from vpn.pki import Pki


def show(
    user: User,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = "laptop",
    qr: Annotated[bool, typer.Option("--qr", help="Draw it as codes for a phone's camera.")] = False,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Print a laptop's profile: it holds its key."""
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from bedplate.report.code import code_lines
    from vpn.laptops.profile import client_profile
    from vpn.pki import bundle_of
    from vpn.subject import laptop

    plan = planned(opened(fleet))
    pki = keys_of(plan.name, fleet)
    name = laptop(user, device).name
    _check_counts(pki, name)
    keys = _keys(pki, bundle_of(pki, name, known_passphrase(passphrase_file)))
    profile = client_profile(laptop_gateways(plan), name, keys)
    output.show(code_lines(profile) if qr else profile.splitlines())
    return 0


def _check_counts(pki: "Pki", name: str) -> None:
    """Raise InputError for a laptop whose certificate opens nothing: a profile of it would only puzzle."""
    from bedplate.cli.vpn_opening import now
    from bedplate.errors import InputError

    held = pki.roll.current(name)
    if held is None:
        raise InputError(f"{name} has no certificate", fix="`bedplate vpn add` issues one")
    if held.until <= now():
        raise InputError(f"the certificate of {name} ended on {held.until:%Y-%m-%d}", fix="`bedplate vpn renew`")


def _keys(pki: "Pki", bundle: "Bundle") -> "LaptopKeys":
    from vpn.laptops.profile import LaptopKeys

    return LaptopKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)
