"""`bedplate vpn add`, `vpn renew`: certificates for people's laptops."""

from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli import output
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, show_document, tell
from bedplate.cli.output import show as output_show
from bedplate.cli.vpn_session import (
    FOLDER,
    PARAMETERS,
    Device,
    PassphraseFile,
    User,
    keys_of,
    known_passphrase,
    new_passphrase,
    now,
    store_of,
    users_of,
)
from bedplate.cli.vpn_tunnels import SshConfig, ask_gateways
from bedplate.errors import BedplateError, InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from bedplate.account.vpn import Doors
    from bedplate.load.fleet import Users
    from bedplate.plan import FleetPlan
    from vpn.certificates import Bundle, Issuer, Subject
    from vpn.laptops.server import LaptopKeys
    from vpn.pki import Pki, PkiFolder


DEVICE = "laptop"


def add(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue a person's laptop its certificate."""
    from bedplate.load.fleet import read_pools
    from bedplate.report.vpn import issued_lines
    from vpn.signing import add as sign
    from vpn.signing import check_room

    users, pki, subject = _asked_for(user, device, fleet)
    check_room(pki.roll, subject.name, read_pools(fleet.with_name("fleet.lock"), users.gateways), now())
    output_show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def renew(
    user: User, fleet: FleetFile = DEFAULT_FLEET, *, device: Device = DEVICE, passphrase_file: PassphraseFile = None
) -> int:
    """Issue the next certificate, with a new key."""
    from bedplate.report.vpn import issued_lines
    from vpn.signing import renew as sign

    _, pki, subject = _asked_for(user, device, fleet)
    output_show(issued_lines(sign(pki, [subject], now(), known_passphrase(passphrase_file)), now()))
    return 0


def _asked_for(user: str, device: str, fleet: Path) -> "tuple[Users, Pki, Subject]":
    from vpn.certificates import laptop

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


class Keys(StrEnum):
    """Where private keys are kept."""

    FOLDER = FOLDER
    PARAMETERS = PARAMETERS


def init(  # noqa: PLR0913  one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root", metavar="FILE", help="The key of a root kept elsewhere, FILE.crt beside it; made if new."
        ),
    ] = None,
    replaces: Annotated[
        Path | None,
        typer.Option(
            "--replaces", metavar="FILE", help="authority.crt of the root's former authority, which it revokes."
        ),
    ] = None,
    keys: Annotated[Keys, typer.Option("--keys", help="Where private keys are kept.")] = Keys.FOLDER,
    locked: Annotated[bool, typer.Option("--locked", help="Lock private keys by a passphrase.")] = False,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Make the fleet's authority, once."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.report.vpn import begun_lines
    from vpn.journal import Begun
    from vpn.pki import FIRST_ROOT_LIST, begin, folder_of, list_replacing

    plan = planned(opened(fleet))
    folder = folder_of(fleet)
    folder.check_unused()
    if replaces and not (root and root.exists()):
        raise InputError(
            "--replaces needs the root that signed the former authority", where="--root", fix="write `--root KEY`"
        )
    lock = new_passphrase(passphrase_file) if locked else None
    top = _root(root, plan.name, folder, lock, passphrase_file)
    moment = now()
    root_list = list_replacing(replaces, top, moment) if replaces and top else FIRST_ROOT_LIST
    begun = Begun(moment, plan.name, "", keys.value)
    begin(folder, begun, store_of(keys, fleet), lock=lock, root=top, root_list=root_list)
    output_show(begun_lines(keys_of(plan.name, fleet), root))
    return 0


def _root(
    file: Path | None, fleet: str, folder: "PkiFolder", lock: bytes | None, passphrase: Path | None
) -> "Issuer | None":
    """Return the root whose key lies in a file, or a new one written there; None where none is named."""
    from vpn.pki import read_root, write_new_root

    if file is None:
        return None
    if file.exists():
        return read_root(file, now(), known_passphrase(passphrase))
    return write_new_root(file, fleet, folder, now(), lock)


def revoke(
    user: User,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="This machine alone; else all of theirs.")
    ] = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Take back a person's certificates, everywhere."""
    from bedplate.report.vpn import revoked_lines
    from vpn.authority import Reason
    from vpn.certificates import laptop, user_of
    from vpn.signing import revoke as sign

    name = users_of(fleet).fleet
    pki = keys_of(name, fleet)
    mine = {each.name for each in pki.roll.issued.values() if user_of(each.name) == user}
    names = mine if device is None else mine & {laptop(user, device).name}
    if not names:
        raise InputError(
            f"no certificate was ever issued to {user}", fix="`bedplate vpn list` names all that there are"
        )
    gone = sign(pki, names, Reason.LOST, now(), known_passphrase(passphrase_file))
    output_show(revoked_lines(gone))
    try:
        _update(fleet, name, ssh_config, names)
    except PartError:
        raise
    except BedplateError as error:
        raise PartError(
            f"revoked, but no gateway was updated: {error.what}",
            where=error.where or str(fleet),
            fix="; ".join(filter(None, (error.fix, "then `bedplate vpn sync`: until then gateways let them in"))),
        ) from None
    return 0


def _update(fleet: Path, name: str, ssh_config: Path | None, names: set[str]) -> None:
    """Send every gateway the new list; PartError names those that were not reached."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.cli.vpn_tunnels import tell_gateways

    tell_gateways(planned(opened(fleet)), keys_of(name, fleet), ssh_config, cut=names)


def show(
    user: User,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = "laptop",
    qr: Annotated[bool, typer.Option("--qr", help="Draw it as codes for a phone's camera.")] = False,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Print a laptop's profile: it holds its key."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from bedplate.report.vpn import code_lines
    from vpn.certificates import laptop
    from vpn.laptops.server import client_profile
    from vpn.pki import bundle_of

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
    from bedplate.cli.vpn_session import now
    from bedplate.errors import InputError

    held = pki.roll.current(name)
    if held is None:
        raise InputError(f"{name} has no certificate", fix="`bedplate vpn add` issues one")
    if held.until <= now():
        raise InputError(f"the certificate of {name} ended on {held.until:%Y-%m-%d}", fix="`bedplate vpn renew`")


def _keys(pki: "Pki", bundle: "Bundle") -> "LaptopKeys":
    from vpn.laptops.server import LaptopKeys

    return LaptopKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)


NOBODY_ASKED: "Mapping[str, datetime]" = {}


def list_certificates(  # the verb
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    seen: Annotated[bool, typer.Option("--seen", help="Ask gateways when each laptop was last there.")] = False,
    ssh_config: SshConfig = None,
    json: Json = False,
) -> int:
    """Show certificates, and how long they last."""
    from bedplate.report.vpn import roll_document, roll_lines
    from vpn.status import standing

    users = users_of(fleet)
    told = standing(keys_of(users.fleet, fleet), users.people, now())
    there, status = _seen(fleet, ssh_config) if seen else (NOBODY_ASKED, 0)
    if json:
        show_document(roll_document(told, there))
    else:
        output_show(roll_lines(told, there))
    return ViolationError.exit_code if told.is_failing else status


def _seen(fleet: Path, config: Path | None) -> "tuple[Mapping[str, datetime], int]":
    """Return when each laptop was last at any gateway, and 6 where one did not say; those are named on stderr."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from vpn.gateways import node_of_gateway
    from vpn.status import last_seen

    plan = planned(opened(fleet))
    nodes = tuple(node_of_gateway(plan, gateway) for gateway in laptop_gateways(plan))
    answers = ask_gateways(plan, nodes, config)
    failures = {name: each for name, each in answers.items() if isinstance(each, BedplateError)}
    tell(f"not known who was at {name}: {error.what}" for name, error in failures.items())
    known = last_seen(each for each in answers.values() if not isinstance(each, BedplateError))
    return known, PartError.exit_code if failures else 0


Addresses = Annotated[
    list[str] | None,
    typer.Option("--address", metavar="REGION=IP", help="A gateway's public address; nothing is asked of AWS then."),
]
Resolvers = Annotated[
    list[str] | None,
    typer.Option("--resolver", metavar="REGION=IP,IP", help="A resolver's addresses; nothing is asked of AWS then."),
]


def record(fleet: FleetFile = DEFAULT_FLEET, *, address: Addresses = None, resolver: Resolvers = None) -> int:
    """Record where laptops dial and ask for names."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.lock import lock_path, record_doors
    from bedplate.plan.laptops import resolver_region
    from bedplate.report.vpn import door_lines

    plan = planned(opened(fleet))
    regions = {region.name for region in plan.regions}
    gateways = [pool.place for pool in plan.laptops if pool.place in regions]
    answering = sorted({resolver_region(plan, pool.place) for pool in plan.laptops})
    if address or resolver:
        found = _given(address or (), resolver or (), gateways, answering)
    else:
        found = _asked(plan, gateways, answering)
    now = record_doors(lock_path(fleet), plan.name, found.gateways, found.resolvers)
    output_show(door_lines(plan.record, now))
    return 0


def _asked(plan: "FleetPlan", gateways: "Iterable[str]", answering: "Iterable[str]") -> "Doors":
    from bedplate.account.client import check_account, open_door
    from bedplate.account.vpn import laptop_doors

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return laptop_doors(door, plan.name, gateways, answering)


def _given(
    addresses: "Iterable[str]", resolvers: "Iterable[str]", gateways: "Collection[str]", answering: "Collection[str]"
) -> "Doors":
    from bedplate.account.vpn import Doors

    public = dict(_pair("--address", each, gateways) for each in addresses)
    inside = dict(_pair("--resolver", each, answering) for each in resolvers)
    return Doors({region: _only(region, found) for region, found in public.items()}, inside)


def _pair(option: str, text: str, regions: "Collection[str]") -> tuple[str, tuple[IPv4Address, ...]]:
    region, _, told = text.partition("=")
    if region not in regions:
        raise InputError(f"{option} {text}: {region!r} has none", fix=f"one of {', '.join(regions) or 'no region'}")
    try:
        found = tuple(sorted(map(IPv4Address, told.split(","))))
    except AddressValueError as error:
        raise InputError(f"{option} {text}: {error}", fix=f"write it as {option} {region}=198.51.100.7") from None
    for address in found:
        _check_dialled(f"{option} {text}", address)
    return region, found


def _check_dialled(given: str, address: IPv4Address) -> None:
    """Raise InputError for an address at which no machine is reached, by the first range that says so."""
    from bedplate.checks.addresses import NOBODYS

    why = next((why for block, why in NOBODYS.items() if address in block), None)
    if why:
        raise InputError(f"{given}: nobody is reached at {address} ({why})", fix="give the one that AWS gave out")


def _only(region: str, found: tuple[IPv4Address, ...]) -> IPv4Address:
    if len(found) != 1:
        raise InputError(f"--address names {len(found)} addresses of {region}", fix="a gateway has one")
    return found[0]


def guard(fleet: FleetFile = DEFAULT_FLEET) -> int:
    """Print a Linux laptop's packet filter."""
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from vpn.laptops.server import laptop_rules

    gateways = laptop_gateways(planned(opened(fleet)))
    if not gateways:
        raise InputError("the fleet has no gateway of laptops", fix="name one: `vpn.laptops.gateways`")
    output_show(laptop_rules(gateways).splitlines())
    return 0
