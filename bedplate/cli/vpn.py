"""The commands of the certificate authority and of laptops: vpn init, up, revoke, show, record, guard.

`vpn up` runs the steps of other commands. A step that is done is skipped, and an apply or a sync without a difference
changes nothing: after a failure, the same command continues.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.vpn import LaptopEndpoints, read_laptop_endpoints
from bedplate.checks.addresses import HOSTLESS
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.login import SshOptions
from bedplate.cli.output import (
    DEFAULT_FLEET,
    Device,
    FleetFile,
    Identity,
    PassphraseFile,
    Person,
    SshConfig,
    User,
    notify,
    show,
)
from bedplate.cli.trust import trust
from bedplate.cli.vpn_session import (
    FOLDER,
    PARAMETERS,
    keys_of,
    known_passphrase,
    new_passphrase,
    now,
    store_of,
    users_of,
)
from bedplate.cli.vpn_sync import sync, update_gateways
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import write_whole
from bedplate.lock import check_plan_recorded, lock_path, record_endpoints
from bedplate.nodes.apply import exit_status
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import Transport, laptop_gateways, resolver_regions
from bedplate.plan.links import tunnel_pairs
from bedplate.plan.nodes import NodePlan
from bedplate.report.diagnostics import error_lines
from bedplate.report.nodes import apply_lines
from bedplate.report.vpn import address_lines, authority_lines, qr_code_lines, replaced_gateway_lines, revoked_lines
from vpn import signing
from vpn.audit_log import Begun
from vpn.authority import Reason
from vpn.certificates import (
    DEFAULT_DEVICE,
    GATEWAY_PREFIX,
    Issuer,
    Passphrase,
    Subject,
    Use,
    device_words,
    laptop,
    user_of,
)
from vpn.gateways import gateway_keys, gateway_node, gateway_subjects
from vpn.laptops.server import LaptopKeys, client_profile, laptop_rules, remotes
from vpn.pki import (
    FIRST_ROOT_CRL,
    NoAuthority,
    Pki,
    PkiFolder,
    bundle_of,
    create_authority,
    folder_of,
    read_root,
    root_crl_replacing,
    write_new_root,
)
from vpn.status import storage_warnings


class Keys(StrEnum):
    """The store of private keys."""

    FOLDER = FOLDER
    PARAMETERS = PARAMETERS


def init(  # noqa: PLR0913  one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
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
    passphrase_file: PassphraseFile = None,
) -> int:
    """Create the certificate authority."""
    plan = plan_of(fleet)
    folder = folder_of(fleet)
    folder.check_unused()
    if replaces and not (root and root.exists()):
        what = "--replaces requires the root that signed the previous authority"
        raise InputError(what, where="--root", fix="pass its key: --root FILE")
    if root and root.exists() and bool(replaces) == first:
        what = f"{root.name} exists: the authority that it has signed would not be revoked"
        fix = "pass that one's file, --replaces RENAMED/authority.crt, or --first if it has signed none"
        raise InputError(what, where="--root", fix=fix)
    passphrase = new_passphrase(passphrase_file) if locked else None
    issuer = _root(root, plan.name, folder, passphrase, passphrase_file) if root else None
    moment = now()
    root_list = root_crl_replacing(replaces, issuer, moment) if replaces and issuer else FIRST_ROOT_CRL
    begun = Begun(moment, plan.name, "", keys.value)
    create_authority(folder, begun, store_of(keys, fleet), passphrase=passphrase, root=issuer, root_list=root_list)
    pki = keys_of(plan.name, fleet)
    show(authority_lines(pki, root))
    notify(storage_warnings(pki))
    return 0


def _root(file: Path, fleet: str, folder: PkiFolder, new: bytes | None, passphrase_file: Path | None) -> Issuer:
    """Return the root whose key the file holds. A new file gets a new root, encrypted by the passphrase `new`."""
    if file.exists():
        return read_root(file, now(), known_passphrase(passphrase_file))
    return write_new_root(file, fleet, folder, now(), new)


def revoke(  # noqa: PLR0913  one parameter an option
    user: Annotated[
        str, typer.Argument(metavar="USER", help="A person, or with --gateway the region or site of a gateway.")
    ],
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Revoke the gateway of a region or site. Laptops need new profiles.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Only this device. Default: all of the person's.")
    ] = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Revoke a person's certificates, or a gateway's.

    Gateways end the person's sessions within seconds. A revoked gateway gets new keys by the next `bedplate vpn sync`.
    """
    passphrase = cache(known_passphrase(passphrase_file))
    if gateway:
        _revoke_gateway(user, fleet, ssh_config, passphrase)
        return 0
    pki = keys_of(users_of(fleet).fleet, fleet)
    laptops = laptops_of(pki, user)
    if device is not None:
        laptops &= {laptop(user, device).name}
    if not laptops:
        whose = f"{user}.{device}" if device else user
        prefix = f"{GATEWAY_PREFIX}{user}."
        is_gateway = any(issued.name.startswith(prefix) for issued in pki.certificates.issued.values())
        command = f"vpn revoke --gateway {user}" if is_gateway else "vpn list"
        raise InputError(f"{whose} has no certificate", fix=f"run `bedplate {command}`")
    revoke_laptops(fleet, laptops, Reason.LOST, ssh_config, passphrase)
    return 0


def laptops_of(pki: Pki, user: str) -> set[str]:
    """Return the laptops of a person that ever had a certificate."""
    clients = (issued.name for issued in pki.certificates.issued.values() if issued.use is Use.CLIENT)
    return {name for name in clients if user_of(name) == user}


def revoke_laptops(
    fleet: Path, laptops: Collection[str], reason: Reason, ssh_config: Path | None, passphrase: Passphrase
) -> None:
    """Revoke laptops, update the gateways and end the sessions. Raises PartialError if a gateway was not updated."""
    name = users_of(fleet).fleet
    show(revoked_lines(signing.revoke(keys_of(name, fleet), laptops, reason, now(), passphrase)))
    with _nothing_updated(fleet):
        update_gateways(plan_of(fleet), keys_of(name, fleet), SshOptions(fleet, config=ssh_config), cut=laptops)


def _revoke_gateway(place: str, fleet: Path, ssh_config: Path | None, passphrase: Passphrase) -> None:
    """Revoke and reissue the certificate of a gateway, and send the new tls-crypt-v2 key to all others."""
    plan = plan_of(fleet)
    pki = keys_of(plan.name, fleet)
    subjects = gateway_subjects(plan)
    if place not in subjects:
        places = ", ".join(subjects) or "none"
        raise InputError(f"no gateway for laptops in {place!r}", fix=f"write one of the places of gateways: {places}")
    show(revoked_lines(signing.replace_gateway(pki, subjects[place], now(), passphrase)))
    show(replaced_gateway_lines(place))
    with _nothing_updated(fleet):
        keys = partial(gateway_keys, plan, passphrase=passphrase, now=now())
        options = SshOptions(fleet, config=ssh_config)
        update_gateways(plan, keys_of(plan.name, fleet), options, keys=keys, skip=place)


@contextmanager
def _nothing_updated(fleet: Path) -> Iterator[None]:
    """Turn an error before the first gateway is reached into a PartialError: the revocation is signed."""
    try:
        yield
    except PartialError:
        raise
    except BedplateError as error:
        raise PartialError(
            f"revoked, but no gateway was updated: {error.what}",
            where=error.where or str(fleet),
            fix="; ".join(filter(None, (error.fix, "then run `bedplate vpn sync`: until then gateways accept them"))),
        ) from None


def show_profile(  # noqa: PLR0913  one parameter an option
    user: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Device = DEFAULT_DEVICE,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write to FILE, which only you can read (mode 0600).")
    ] = None,
    qr: Annotated[bool, typer.Option("--qr", help="Draw QR codes for a phone's camera.")] = False,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Print a laptop's OpenVPN profile.

    It contains the laptop's private key: give it only to the person.
    """
    if write and qr:
        raise InputError("--write and --qr exclude each other", fix="leave out one of them")
    plan = plan_of(fleet)
    name = laptop(user, device).name
    profile = profile_of(plan, keys_of(plan.name, fleet), name, known_passphrase(passphrase_file))
    if write:
        write_whole(write, profile.encode(), 0o600)
        notify([f"wrote {write}"])
    else:
        show(qr_code_lines(profile) if qr else profile.splitlines())
    return 0


def profile_of(plan: FleetPlan, pki: Pki, name: str, passphrase: Passphrase) -> str:
    """Return the profile of a laptop. Raises InputError if it would not connect."""
    check_gateways(plan)
    _check_valid(pki, name)
    bundle = bundle_of(pki, name, passphrase)
    signing.check_bundle(name, bundle, Subject(name, Use.CLIENT), pki, now())
    keys = LaptopKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)
    return client_profile(laptop_gateways(plan), name, keys)


def check_gateways(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways of laptops."""
    if not plan.laptops:
        raise InputError("the fleet has no gateway for laptops", fix="declare one in `vpn.laptops.gateways`")


def check_endpoints(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways, or with one without a recorded address: no profile would work."""
    check_gateways(plan)
    tuple(remotes(laptop_gateways(plan)))


def _check_valid(pki: Pki, name: str) -> None:
    """Raise InputError for a laptop without a valid certificate: its profile would not connect."""
    certificate = pki.certificates.current(name)
    if certificate is None:
        raise InputError(f"{name} has no certificate", fix=f"run `bedplate vpn add {device_words(name)}`")
    if certificate.until <= now():
        what = f"the certificate of {name} expired on {certificate.until:%Y-%m-%d}"
        raise InputError(what, fix=f"run `bedplate vpn renew {device_words(name)}`")


def record_addresses(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="REGION=IP", help="Public address of a gateway. AWS is not asked then."),
    ] = None,
    resolver: Annotated[
        list[str] | None,
        typer.Option("--resolver", metavar="REGION=IP,IP", help="Addresses of a resolver. AWS is not asked then."),
    ] = None,
) -> int:
    """Record public gateway addresses.

    And the addresses of the DNS resolvers that laptops and sites use. Both come from AWS, or from the options.
    """
    plan = plan_of(fleet)
    gateway_regions = [pool.place for pool in plan.laptops if pool.place in plan.regions_by_name]
    regions_with_resolver = resolver_regions(plan)
    if address or resolver:
        public = dict(_parse_addresses("--address", text, gateway_regions) for text in address or ())
        inside = dict(_parse_addresses("--resolver", text, regions_with_resolver) for text in resolver or ())
        endpoints = LaptopEndpoints({region: _only(region, addresses) for region, addresses in public.items()}, inside)
    else:
        endpoints = read_laptop_endpoints(open_account(plan), plan.name, gateway_regions, regions_with_resolver)
    recorded = record_endpoints(lock_path(fleet), plan.name, endpoints.gateways, endpoints.resolvers)
    show(address_lines(plan.record, recorded))
    return 0


def _parse_addresses(option: str, text: str, regions: Collection[str]) -> tuple[str, tuple[IPv4Address, ...]]:
    region, _, value = text.partition("=")
    if region not in regions:
        noun = "gateway" if option == "--address" else "resolver"
        fix = f"write one of {', '.join(regions)}" if regions else "leave it out: the fleet has none in a region"
        raise InputError(f"{option} {text}: {region!r} has no {noun}", fix=fix)
    try:
        addresses = tuple(sorted(map(IPv4Address, value.split(","))))
    except AddressValueError as error:
        raise InputError(f"{option} {text}: {error}", fix=f"write it as {option} {region}=198.51.100.7") from None
    _check_usable(f"{option} {text}", addresses)
    return region, addresses


def _check_usable(option: str, addresses: Iterable[IPv4Address]) -> None:
    """Raise InputError for an address that no host can have."""
    for address in addresses:
        why = next((why for block, why in HOSTLESS.items() if address in block), None)
        if why:
            raise InputError(f"{option}: no host can have the address {address} ({why})", fix="write the one from AWS")


def _only(region: str, addresses: tuple[IPv4Address, ...]) -> IPv4Address:
    if len(addresses) != 1:
        raise InputError(f"--address names {len(addresses)} addresses for {region}", fix="name one: a gateway has one")
    return addresses[0]


def guard(fleet: FleetFile = DEFAULT_FLEET) -> int:
    """Print nftables rules for Linux laptops.

    They drop packets for the fleet that would leave the laptop outside the tunnel.
    """
    plan = plan_of(fleet)
    check_gateways(plan)
    show(laptop_rules(laptop_gateways(plan)).splitlines())
    return 0


def up(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Set up the gateways of laptops.

    Records addresses, creates the certificate authority, records host keys, applies all roles to the gateways, and
    sends them certificates. Skips what is done. The exit status is 6 if a gateway failed; the same command continues.
    """
    from bedplate.cli.node_apply import INTERRUPTED, apply_machines

    plan = plan_of(fleet)
    check_gateways(plan)
    check_plan_recorded(plan, fleet)
    _record_addresses(fleet, plan)
    _create_authority(fleet, plan, passphrase_file)
    if ssh_config is None:
        _trust(fleet, plan)
    # Read again: the steps above have changed the lock.
    plan = plan_of(fleet)
    nodes = _nodes(plan)
    show([f"apply roles: {', '.join(node.name for node in nodes)}"])
    done = apply_machines(plan, tuple(map(NodeLocation, nodes)), SshOptions(fleet, user, identity, ssh_config))
    show(apply_lines(done.outcomes, check=False))
    if done.interrupted:
        return INTERRUPTED
    if not any(outcome.is_done for outcome in done.outcomes):
        return exit_status(done.outcomes, check=False)
    show(["send certificates and access lists"])
    sync(fleet, ssh_config=ssh_config, passphrase_file=passphrase_file)
    if status := exit_status(done.outcomes, check=False):
        return status
    if plan.tunnels or tunnel_pairs(plan):
        show(["next: `bedplate vpn tunnels` for the tunnels of sites and regions"])
    show(["next: `bedplate person invite NAME --apply` for each person"])
    return 0


def _nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    return tuple(gateway_node(plan, gateway) for gateway in laptop_gateways(plan))


def _record_addresses(fleet: Path, plan: FleetPlan) -> None:
    if all(gateway.public and gateway.name_servers(Transport.UDP) for gateway in laptop_gateways(plan)):
        show(["addresses: recorded"])
        return
    show(["record addresses"])
    record_addresses(fleet)


def _create_authority(fleet: Path, plan: FleetPlan, passphrase_file: Path | None) -> None:
    """Create a missing authority; its keys are encrypted if there is a file with a passphrase."""
    try:
        keys_of(plan.name, fleet)
    except NoAuthority:
        show(["create the certificate authority"])
        init(fleet, locked=passphrase_file is not None, passphrase_file=passphrase_file)
    else:
        show(["certificate authority: exists"])


def _trust(fleet: Path, plan: FleetPlan) -> None:
    """Record the host keys of the gateways. An error is shown; the apply reports that gateway as well."""
    untrusted = [node.name for node in _nodes(plan) if not plan.record.host_keys.get(node.name)]
    if not untrusted:
        show(["host keys: recorded"])
    for name in untrusted:
        show([f"record the host key of {name}"])
        try:
            trust(name, fleet=fleet)
        except BedplateError as error:
            notify(error_lines(error))
