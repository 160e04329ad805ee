"""Shared by the commands of `bedplate vpn`: people, keys, the current time, and the passphrase.

`vpn add` takes a third of a second, so nothing here imports the models of a fleet or boto3 unless it must.
"""

import shlex
import sys
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path

from bedplate.errors import InputError
from bedplate.files import os_errors_as_machine_errors
from bedplate.load.source import Users, read_users
from vpn.certificates import Passphrase
from vpn.pki import FolderKeys, KeyStore, NoAuthority, Pki, folder_of, open_pki

FOLDER, PARAMETERS = "folder", "parameters"
MIN_PASSPHRASE = 12
_GROUP_AND_OTHERS = 0o077


def now() -> datetime:
    """Return the current time in whole seconds. Certificates and lists are dated by the clock of this machine."""
    return datetime.now(UTC).replace(microsecond=0)


def users_of(fleet_file: Path) -> Users:
    """Return the fleet's name and people. Raises FleetFaults, with all errors, if the file cannot be read."""
    users = read_users(fleet_file)
    if users is not None:
        return users
    # Slow: it imports the models of a fleet, which find the errors.
    from bedplate.cli.fleet import open_fleet

    fleet = open_fleet(fleet_file, brief=True).fleet
    return Users(fleet.name, tuple(fleet.people), ())


def keys_of(fleet: str, fleet_file: Path) -> Pki:
    """Return the fleet's certificate authority and keys. Raises as `open_pki` does."""
    return open_pki(folder_of(fleet_file), fleet, lambda begun: store_of(begun.keys, fleet_file))


def newest_list(fleet: str, fleet_file: Path) -> int | None:
    """Return the number of the newest revocation list, or None without an authority. Reads no private key."""
    folder = folder_of(fleet_file)
    try:
        listed = open_pki(folder, fleet, lambda _begun: FolderKeys(folder.keys)).certificates.listed
    except NoAuthority:
        return None
    return listed.number if listed else None


def store_of(kind: str, fleet_file: Path) -> KeyStore:
    """Return the store of private keys. Raises InputError for an unknown kind, or for another AWS account."""
    if kind == FOLDER:
        return FolderKeys(folder_of(fleet_file).keys)
    if kind != PARAMETERS:
        raise InputError(f"unknown key store {kind!r}", fix=f"write {FOLDER} or {PARAMETERS}")
    # Slow: they import boto3.
    from bedplate.account.vpn import ParameterKeys
    from bedplate.cli.fleet import open_account, plan_of

    plan = plan_of(fleet_file)
    return ParameterKeys(open_account(plan), plan.home.name, plan.name)


def known_passphrase(file: Path | None) -> Passphrase:
    """Return the function that reads the passphrase of the private keys, from the file or by a prompt."""

    def passphrase() -> bytes:
        text = _read(file) if file else _ask("Passphrase of the VPN's keys: ")
        if not text:
            raise InputError("the passphrase is empty", fix="enter the passphrase that encrypts the keys")
        return text

    return passphrase


def new_passphrase(file: Path | None) -> bytes:
    """Return a passphrase for new keys, typed twice at a prompt. Raises InputError if it is too short."""
    passphrase = _read(file) if file else _ask("New passphrase for the VPN's keys: ")
    if len(passphrase) < MIN_PASSPHRASE:
        what = f"passphrase too short: {len(passphrase)} characters, at least {MIN_PASSPHRASE} required"
        raise InputError(what, fix="choose a longer one")
    if not file and _ask("Repeat the passphrase: ") != passphrase:
        raise InputError("the two passphrases differ", fix="run the command again and type the same one twice")
    return passphrase


def _read(file: Path) -> bytes:
    if not file.exists():
        raise InputError("no such passphrase file", where=str(file), fix="name an existing file: --passphrase-file")
    if file.is_file() and file.stat().st_mode & _GROUP_AND_OTHERS:
        raise InputError(
            "other users can access the passphrase file", where=str(file), fix=f"chmod 600 {shlex.quote(str(file))}"
        )
    with os_errors_as_machine_errors(file, "read"):
        return file.read_bytes().strip()


def _ask(question: str) -> bytes:
    if not sys.stdin.isatty():
        raise InputError("a passphrase is required and stdin is no terminal", fix="pass --passphrase-file FILE")
    return getpass(question).encode()
