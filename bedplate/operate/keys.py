"""The keys of the VPN and their passphrase, the people who have them, and the current time.

`vpn add` takes a third of a second, so nothing here imports the models of a fleet or boto3 unless it must.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from bedplate.errors import InputError, nearest
from bedplate.files import check_private, os_errors_as_machine_errors
from bedplate.load.source import Users, read_users
from bedplate.operate import Operator, open_account, open_fleet, plan_of
from vpn.certificates import Passphrase
from vpn.pki import FolderKeys, KeyStore, NoAuthority, Pki, folder_of, open_pki

FOLDER, PARAMETERS = "folder", "parameters"
MIN_PASSPHRASE = 12


def now() -> datetime:
    """Return the current time in whole seconds. Certificates and lists are dated by the clock of this machine."""
    return datetime.now(UTC).replace(microsecond=0)


def users_of(operator: Operator) -> Users:
    """Return the fleet's name and people. Raises FleetFaults, with all errors, if the file cannot be read."""
    users = read_users(operator.fleet)
    if users is not None:
        return users
    # The models of a fleet find the errors.
    fleet = open_fleet(operator).fleet
    return Users(fleet.name, tuple(fleet.people), ())


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


def keys_of(fleet: str, operator: Operator) -> Pki:
    """Return the fleet's certificate authority and keys. Raises as `open_pki` does."""
    return open_pki(folder_of(operator.fleet), fleet, lambda begun: store_of(begun.keys, operator))


def newest_list(fleet: str, fleet_file: Path) -> int | None:
    """Return the number of the newest revocation list, or None without an authority. Reads no private key."""
    pki = public_part(fleet, fleet_file)
    return pki.certificates.listed.number if pki and pki.certificates.listed else None


def public_part(fleet: str, fleet_file: Path) -> Pki | None:
    """Return the certificates, which need no private key; None without an authority."""
    folder = folder_of(fleet_file)
    try:
        return open_pki(folder, fleet, lambda _begun: FolderKeys(folder.keys))
    except NoAuthority:
        return None


def store_of(kind: str, operator: Operator) -> KeyStore:
    """Return the store of private keys. Raises InputError for an unknown kind, or for another AWS account."""
    if kind == FOLDER:
        return FolderKeys(folder_of(operator.fleet).keys)
    if kind != PARAMETERS:
        raise InputError(f"unknown key store {kind!r}", fix=f"write {FOLDER} or {PARAMETERS}")
    # Slow: it imports boto3.
    from bedplate.account.vpn import ParameterKeys

    plan = plan_of(operator)
    return ParameterKeys(open_account(plan), plan.home.name, plan.name)


def known_passphrase(operator: Operator) -> Passphrase:
    """Return the function that reads the passphrase of the private keys, once: from the file or by a question."""
    file = operator.passphrase_file

    @cache
    def passphrase() -> bytes:
        text = _read(file) if file else operator.ask_secret("Passphrase of the VPN's keys: ")
        if not text:
            raise InputError("the passphrase is empty", fix="enter the passphrase that encrypts the keys")
        return text

    return passphrase


def new_passphrase(operator: Operator) -> bytes:
    """Return a passphrase for new keys, asked for twice. Raises InputError if it is too short."""
    file = operator.passphrase_file
    passphrase = _read(file) if file else operator.ask_secret("New passphrase for the VPN's keys: ")
    if len(passphrase) < MIN_PASSPHRASE:
        what = f"passphrase too short: {len(passphrase)} characters, at least {MIN_PASSPHRASE} required"
        raise InputError(what, fix="choose a longer one")
    if not file and operator.ask_secret("Repeat the passphrase: ") != passphrase:
        raise InputError("the two passphrases differ", fix="run the command again and type the same one twice")
    return passphrase


def _read(file: Path) -> bytes:
    if not file.exists():
        raise InputError("no such passphrase file", where=str(file), fix="name an existing file: --passphrase-file")
    check_private(file, "the passphrase file")
    with os_errors_as_machine_errors(file, "read"):
        return file.read_bytes().strip()
