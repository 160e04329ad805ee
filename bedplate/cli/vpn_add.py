"""`bedplate vpn add`, `vpn renew`: certificates for people's laptops."""

from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_opening import Device, PassphraseFile, User, keys_of, known_passphrase, now, users_of
from bedplate.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.load.people import Users
    from vpn.pki import Pki
    from vpn.subject import Subject

DEVICE = "laptop"


def add(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue a person's laptop its certificate."""
    from bedplate.load.pools import read_pools
    from bedplate.report.vpn import issued_lines
    from vpn.room import check_room
    from vpn.signing import add as sign

    users, pki, subject = _asked_for(user, device, fleet)
    check_room(pki.roll, subject.name, read_pools(fleet.with_name("fleet.lock"), users.gateways), now())
    show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def renew(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue the next certificate, with a new key."""
    from bedplate.report.vpn import issued_lines
    from vpn.signing import renew as sign

    _, pki, subject = _asked_for(user, device, fleet)
    show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def _asked_for(user: str, device: str, fleet: Path) -> "tuple[Users, Pki, Subject]":
    from vpn.subject import laptop

    users = users_of(fleet)
    check_person(user, users.people)
    return users, keys_of(users.fleet, fleet), laptop(user, device)


def check_person(user: str, people: "Iterable[str]") -> None:
    """Raise InputError, with the nearest name, for somebody whom the fleet file does not know."""
    known = tuple(people)
    if user not in known:
        from bedplate.catalog.nearest import nearest

        near = nearest(user, known)
        fix = f"the nearest is {near}" if near else "add them to `people` first"
        raise InputError(f"{user!r} is nobody of the fleet file's people", where="people", fix=fix)
