"""What every command of the VPN's keys begins with: the fleet, its keys, the moment, and whoever knows a passphrase."""

import shlex
import sys
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.errors import InputError
from bedplate.writer import told_plainly

if TYPE_CHECKING:
    from bedplate.load.fleet import Users
    from vpn.certificates import Passphrase
    from vpn.pki import KeyStore, Pki


FOLDER, PARAMETERS = "folder", "parameters"
SHORTEST = 12
_OTHERS = 0o077

User = Annotated[str, typer.Argument(metavar="USER", help="A person of the fleet file.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="Which of their machines.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        envvar="BEDPLATE_VPN_PASSPHRASE_FILE",
        help="Where the passphrase of locked keys stands; else it is asked for.",
    ),
]


def now() -> datetime:
    """Return this moment, to the second: what is signed is dated by the machine's own clock and nothing else."""
    return datetime.now(UTC).replace(microsecond=0)


def users_of(fleet_file: Path) -> "Users":
    """Return the fleet's name and people; FleetFaults, with all that is wrong, where the file cannot be read."""
    from bedplate.load.fleet import Users, read_users

    users = read_users(fleet_file)
    if users is not None:
        return users
    from bedplate.cli.fleet import opened

    fleet = opened(fleet_file).fleet
    return Users(fleet.name, tuple(fleet.people), ())


def keys_of(fleet: str, fleet_file: Path) -> "Pki":
    """Return the VPN's keys of the fleet of that name; raises as `open_pki`."""
    from vpn.pki import folder_of, open_pki

    return open_pki(folder_of(fleet_file), fleet, lambda begun: store_of(begun.keys, fleet_file))


def newest_list(fleet: str, fleet_file: Path) -> int | None:
    """Return the number of the newest list of revoked certificates, None where no authority was begun.

    The journal tells it: no key is asked for, wherever keys lie.
    """
    from vpn.pki import FolderKeys, NoAuthority, folder_of, open_pki

    folder = folder_of(fleet_file)
    try:
        listed = open_pki(folder, fleet, lambda _begun: FolderKeys(folder.keys)).roll.listed
    except NoAuthority:
        return None
    return listed.number if listed else None


def store_of(kind: str, fleet_file: Path) -> "KeyStore":
    """Return the store of private keys; InputError for an unknown kind, or in another account."""
    from vpn.pki import FolderKeys, folder_of

    if kind == FOLDER:
        return FolderKeys(folder_of(fleet_file).keys)
    if kind == PARAMETERS:
        return _in_account(fleet_file)
    raise InputError(f"unknown key store {kind!r}", fix=f"use {FOLDER} or {PARAMETERS}")


def _in_account(fleet_file: Path) -> "KeyStore":
    from bedplate.account.client import check_account, open_door
    from bedplate.account.vpn import ParameterKeys
    from bedplate.cli.fleet import opened, planned

    plan, door = planned(opened(fleet_file)), open_door()
    check_account(door, plan.account, plan.home.name)
    return ParameterKeys(door, plan.home.name, plan.name)


def known_passphrase(file: Path | None) -> "Passphrase":
    """Return what knows the passphrase that keys are locked by: the file, or whoever sits at the terminal."""
    return lambda: _given(_read(file) if file else _asked("passphrase of the VPN's keys: "))


def new_passphrase(file: Path | None) -> bytes:
    """Return a passphrase for new keys, asked for twice at a terminal; InputError for a short one."""
    told = _read(file) if file else _asked("passphrase for the VPN's keys: ")
    if len(told) < SHORTEST:
        raise InputError(f"a passphrase of {len(told)} characters", fix=f"take {SHORTEST} or more")
    if not file and _asked("once more: ") != told:
        raise InputError("the two differ", fix="type the same twice")
    return told


def _given(passphrase: bytes) -> bytes:
    if not passphrase:
        raise InputError("the passphrase is empty", fix="give the one that the keys were locked with")
    return passphrase


def _read(file: Path) -> bytes:
    if not file.exists():
        raise InputError("there is no such file of a passphrase", where=str(file), fix="name it: --passphrase-file")
    if file.is_file() and file.stat().st_mode & _OTHERS:
        raise InputError("others may read this passphrase", where=str(file), fix=f"chmod 600 {shlex.quote(str(file))}")
    with told_plainly(file, "read"):
        return file.read_bytes().strip()


def _asked(question: str) -> bytes:
    if not sys.stdin.isatty():
        raise InputError("the keys are locked, and nobody is here to be asked", fix="name a file: --passphrase-file")
    return getpass(question).encode()
