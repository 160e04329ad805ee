"""The commands of the VPN, but those that only read or issue certificates of laptops."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import (
    By,
    Device,
    Json,
    OnFleet,
    OnFleetByKeys,
    OnGateways,
    OnMachines,
    Person,
    Terminal,
    printed,
)
from bedplate.errors import InputError
from bedplate.operate import gateways, people, vpn_setup
from bedplate.operate.keys import FOLDER, PARAMETERS
from vpn.certificates import DEFAULT_DEVICE


class Keys(StrEnum):
    """The store of private keys."""

    FOLDER = FOLDER
    PARAMETERS = PARAMETERS


def init(  # noqa: PLR0913  each is an option of the command line
    *,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root", metavar="FILE", help="Key of a separate root, with FILE.crt beside it. Created if missing."
        ),
    ] = None,
    replaces: Annotated[
        Path | None,
        typer.Option(
            "--replaces", metavar="FILE", help="authority.crt of the root's previous authority, which it revokes."
        ),
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="The existing root has signed no authority before: it revokes none.")
    ] = False,
    keys: Annotated[
        Keys, typer.Option("--keys", help="Store of private keys: a folder, or SSM parameters.")
    ] = Keys.FOLDER,
    locked: Annotated[bool, typer.Option("--locked", help="Encrypt private keys by a passphrase.")] = False,
    operator: OnFleetByKeys,
) -> None:
    """Create the certificate authority."""
    vpn_setup.init(operator, keys.value, root, replaces, is_first=first, is_locked=locked)


def revoke(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="A person, or with --gateway the region or site of a gateway.")
    ],
    *,
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Revoke the gateway of a region or site. Laptops need new profiles.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Only this device. Default: all of the person's.")
    ] = None,
    operator: OnGateways,
) -> None:
    """Revoke a person's certificates, or a gateway's.

    Gateways end the person's sessions within seconds. A revoked gateway gets new keys by the next `bedplate vpn sync`.
    """
    if gateway:
        gateways.revoke_gateway(operator, user)
    else:
        people.revoke_laptops_of(operator, user, device)


def show_profile(
    user: Person,
    *,
    device: Device = DEFAULT_DEVICE,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write to FILE, which only you can read (mode 0600).")
    ] = None,
    qr: Annotated[bool, typer.Option("--qr", help="Draw QR codes for a phone's camera.")] = False,
    operator: OnFleetByKeys,
) -> None:
    """Print a laptop's OpenVPN profile.

    It contains the laptop's private key: give it only to the person.
    """
    if write and qr:
        raise InputError("--write and --qr exclude each other", fix="leave out one of them")
    people.write_profile(operator, user, device, write, is_drawn=qr)


def record_addresses(operator: OnFleet) -> None:
    """Record public gateway addresses.

    And the addresses of the DNS resolvers that laptops and sites use. AWS is asked for both.
    """
    vpn_setup.record_addresses(operator)


def guard(operator: OnFleet) -> int:
    """Print nftables rules for Linux laptops.

    They drop packets for the fleet that would leave the laptop outside the tunnel.
    """
    return printed(people.guard_rules(operator))


def up(operator: OnMachines) -> int:
    """Set up the gateways of laptops.

    Records addresses, creates the certificate authority, records host keys, applies all roles to the gateways, and
    sends them certificates. Skips what is done. The exit status is 6 if a gateway failed; the same command continues.
    """
    return vpn_setup.set_up(operator)


def sync(operator: OnGateways) -> None:
    """Update certificates and all gateways.

    Revoke certificates of people who left the fleet file, renew those of gateways, and send both to the gateways.
    """
    gateways.sync(operator)


_UNITS = Path("~/.config/systemd/user")


def timer(
    *,
    write: Annotated[
        Path, typer.Option("--write", metavar="FOLDER", help="The folder of your own systemd units.")
    ] = _UNITS,
    operator: OnGateways,
) -> None:
    """Write a systemd timer for daily syncs."""
    vpn_setup.write_timer(operator, write.expanduser())


def status(operator: Annotated[Terminal, By(("ssh_config",))], *, json: Json = False) -> int:
    """Show sessions, tunnels and expiry dates.

    The exit status is 3 if a gateway or a tunnel is down, 6 if a gateway did not answer.
    """
    return printed(gateways.status(operator), as_json=json)


def tunnels(
    *,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Replace the keys of tunnels between gateways of the fleet.")
    ] = False,
    operator: OnGateways,
) -> None:
    """Send gateways their tunnels and keys."""
    gateways.update_tunnels(operator, new_keys=new_keys)
