"""What OpenVPN is told on a gateway: one configuration a transport, and one file a laptop with the address it gets.

Pure: never reads a key, only names the files that hold them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path, PurePath, PurePosixPath

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate.errors import InputError
from bedplate.plan.laptops import NAME_PREFIX, LaptopGateway, Transport

CIPHERS: Mapping[str, str] = {
    "tls-version-min": "1.2",
    "tls-cipher": "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384:TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
    "tls-ciphersuites": "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
    "data-ciphers": "AES-256-GCM:CHACHA20-POLY1305",
    "tls-cert-profile": "preferred",
    # No packet of an authenticated cipher uses it; said so that nobody reads SHA1 in a log.
    "auth": "SHA256",
}


def filled(template: str, **values: object) -> str:
    """Return the text of a template, `server.conf.j2`, with these values in it."""
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  configuration of a daemon, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@dataclass(frozen=True, slots=True)
class Laptop:
    """A device of a person: `name` is what its certificate says, `slot` gives its address at every gateway."""

    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a gateway keeps what is written for it, and where its daemons put their sockets."""

    settings: PurePosixPath
    sockets: PurePosixPath

    def addresses(self, transport: Transport) -> PurePosixPath:
        """Return the folder that holds a file a laptop."""
        return self.settings / f"{transport}.laptops"

    def socket(self, transport: Transport) -> PurePosixPath:
        """Return the socket by which a daemon is asked and told."""
        return self.sockets / str(transport) / "management"


STANDARD = Folders(PurePosixPath("/etc/bedplate/laptops"), PurePosixPath("/run/bedplate-laptops"))


def device(transport: Transport) -> str:
    """Return the name of the network device that a transport's laptops are behind."""
    return f"laptops-{transport}"


def server_conf(gateway: LaptopGateway, transport: Transport, folders: Folders = STANDARD) -> str:
    """Return the configuration of a gateway's daemon for one transport.

    Raises InputError where the addresses that answer for the fleet's names are not recorded yet.
    """
    if not gateway.resolvers:
        raise InputError(
            f"fleet.lock does not say who answers the laptops of {gateway.place} for the fleet's names",
            fix="run `bedplate vpn record` once the fleet's stacks are up",
        )
    return filled(
        "server.conf.j2",
        gateway=gateway,
        transport=transport,
        block=gateway.block(transport),
        device=device(transport),
        folders=folders,
        ciphers=CIPHERS,
    )


def address_files(gateway: LaptopGateway, transport: Transport, laptops: Iterable[Laptop]) -> Mapping[str, str]:
    """Return the files that let laptops in, by the name of each; one that the pool has no room for has none."""
    return {each.name: _address_file(gateway, transport, each) for each in laptops if each.slot < gateway.most}


def without_room(gateway: LaptopGateway, laptops: Iterable[Laptop]) -> tuple[str, ...]:
    """Return the names of the laptops that the gateway's pool has no room for."""
    return tuple(each.name for each in laptops if each.slot >= gateway.most)


def _address_file(gateway: LaptopGateway, transport: Transport, laptop: Laptop) -> str:
    return f"ifconfig-push {gateway.address(transport, laptop.slot)} {gateway.block(transport).netmask}\n"


def guard_rules(gateway: LaptopGateway) -> str:
    """Return the rules of a gateway; loading them takes the place of those that it had, in one step."""
    doors = {device(transport): gateway.block(transport) for transport in Transport}
    return filled("guard.nft.j2", gateway=gateway, doors=doors)


def laptop_rules(gateways: Sequence[LaptopGateway]) -> str:
    """Return the rules by which a Linux laptop sends nothing that is for the fleet past the tunnel."""
    reached = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.routes))
    met = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.met))
    return filled("laptop.nft.j2", fleet=gateways[0].fleet, reached=reached, met=met)


USER = "openvpn"
# To make a network device and its routes, and to listen below 1024.
RIGHTS = ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE")
SERVICE = "bedplate-laptops@.service"
# It starts a daemon once its keys are there: the list of revoked certificates is the last of them to come.
KEYED = "bedplate-laptops@.path"


def instance(transport: Transport) -> str:
    """Return the name of the unit that serves one transport."""
    return f"bedplate-laptops@{transport}.service"


def daemon_unit(folders: Folders = STANDARD) -> str:
    """Return the unit of a gateway's daemons, one instance a transport."""
    return filled("daemon.service.j2", folders=folders, user=USER, rights=RIGHTS)


def keyed_unit(folders: Folders = STANDARD) -> str:
    """Return the unit that waits for a gateway's keys."""
    return filled("keyed.path.j2", folders=folders)


@dataclass(frozen=True, slots=True)
class LaptopKeys:
    """What one laptop proves itself by, each as PEM; `trusted` is who signs gateways."""

    trusted: str
    certificate: str
    key: str = field(repr=False)
    tls_crypt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """One door of one gateway."""

    address: IPv4Address
    transport: Transport

    def __str__(self) -> str:
        return f"{self.address} {self.transport.port} {self.transport}4"


def remotes(gateways: Sequence[LaptopGateway]) -> Iterator[Remote]:
    """Yield where a laptop dials, in that order: every gateway over UDP, then every one over TCP.

    Raises InputError, naming them, where gateways have no public address yet.
    """
    if unknown := [gateway.place for gateway in gateways if gateway.public is None]:
        raise InputError(
            f"fleet.lock holds no public address of the gateway in {', '.join(unknown)}",
            fix="run `bedplate vpn record` once the fleet's stacks are up",
        )
    for transport in Transport:
        yield from (Remote(gateway.public, transport) for gateway in gateways if gateway.public)


def client_profile(gateways: Sequence[LaptopGateway], name: str, keys: LaptopKeys) -> str:
    """Return the profile of the laptop of that name; InputError where a gateway's public address is not recorded."""
    return filled(
        "profile.ovpn.j2",
        name=name,
        fleet=gateways[0].fleet,
        remotes=tuple(map(str, remotes(gateways))),
        gateways_name=NAME_PREFIX,
        ciphers=CIPHERS,
        keys=keys,
    )


# systemd.service(5), "COMMAND LINES", and systemd.unit(5), "SPECIFIERS": what is more than itself in a quoted word.
_MEANT = (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$"))


def renewal_units(fleet: str, command: Sequence[str], folder: PurePath) -> Mapping[str, str]:
    """Return the text of both units by their names; `command` runs a sync, in that folder."""
    words = " ".join(map(_word, command))
    name = f"bedplate-vpn-{fleet}"
    return {
        f"{name}.service": filled("renewal.service.j2", fleet=fleet, command=words, folder=_plain(folder)),
        f"{name}.timer": filled("renewal.timer.j2", fleet=fleet),
    }


def _word(text: str) -> str:
    for character, written in _MEANT:
        text = text.replace(character, written)
    return f'"{text}"'


def _plain(folder: PurePath) -> str:
    """Return a path as a setting takes it, to the end of its line."""
    return str(folder).replace("%", "%%")
