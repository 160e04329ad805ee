"""`bedplate vpn add`, `vpn renew`: certificates for people's laptops."""

from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_opening import Device, PassphraseFile, User, keys_of, known_passphrase, now
from bedplate.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vpn.pki import Pki
    from vpn.subject import Subject

DEVICE = "laptop"


def add(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue a person's laptop its certificate."""
    from bedplate.report.vpn import issued_lines
    from vpn.signing import add as sign

    pki, subject = _asked_for(user, device, fleet)
    show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def renew(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue the next certificate, with a new key."""
    from bedplate.report.vpn import issued_lines
    from vpn.signing import renew as sign

    pki, subject = _asked_for(user, device, fleet)
    show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def _asked_for(user: str, device: str, fleet: Path) -> "tuple[Pki, Subject]":
    from bedplate.cli.opening import opened, planned
    from vpn.subject import laptop

    loaded = opened(fleet)
    check_person(user, loaded.fleet.people)
    return keys_of(planned(loaded), fleet), laptop(user, device)


def check_person(user: str, people: "Iterable[str]") -> None:
    """Raise InputError, with the nearest name, for somebody whom the fleet file does not know."""
    from bedplate.catalog.nearest import nearest

    known = tuple(people)
    if user not in known:
        near = nearest(user, known)
        fix = f"the nearest is {near}" if near else "add them to `people` first"
        raise InputError(f"{user!r} is nobody of the fleet file's people", where="people", fix=fix)
