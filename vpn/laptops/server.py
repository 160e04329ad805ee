"""OpenVPN for laptops: server configuration for each transport, address files, packet filters, units and profiles.

Pure: configuration names the files of private keys and never contains them; a profile gets its key from the caller.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path, PurePath, PurePosixPath

from bedplate.errors import InputError
from bedplate.plan.laptops import NAME_PREFIX, LaptopGatewayPlan, Transport
from bedplate.templates import templates

CIPHERS: Mapping[str, str] = {
    "tls-version-min": "1.2",
    "tls-cipher": "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384:TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
    "tls-ciphersuites": "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
    "data-ciphers": "AES-256-GCM:CHACHA20-POLY1305",
    "tls-cert-profile": "preferred",
    # Authenticated ciphers do not use it; without it the log names SHA1.
    "auth": "SHA256",
}


_TEMPLATES = templates(Path(__file__).parent)


def _render(template: str, **values: object) -> str:
    return _TEMPLATES.get_template(template).render(values)


@dataclass(frozen=True, slots=True)
class Laptop:
    """A person's device: the name in its certificate, and the slot that determines its address at every gateway."""

    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a gateway's configuration and of its daemons' sockets."""

    settings: PurePosixPath
    sockets: PurePosixPath

    def addresses(self, transport: Transport) -> PurePosixPath:
        """Return the folder with one file for each laptop."""
        return self.settings / f"{transport}.laptops"

    def socket(self, transport: Transport) -> PurePosixPath:
        """Return the management socket of a daemon."""
        return self.sockets / str(transport) / "management"


STANDARD = Folders(PurePosixPath("/etc/bedplate/laptops"), PurePosixPath("/run/bedplate-laptops"))


def device(transport: Transport) -> str:
    """Return the name of a transport's network device."""
    return f"laptops-{transport}"


def server_conf(gateway: LaptopGatewayPlan, transport: Transport, folders: Folders = STANDARD) -> str:
    """Return the configuration of a gateway's daemon for one transport.

    Raise InputError if the lock has no addresses of the DNS resolver.
    """
    if not gateway.name_servers(transport):
        raise InputError(
            f"fleet.lock has no DNS resolver for the laptops of {gateway.place}",
            fix="run `bedplate vpn record` after the stacks are deployed",
        )
    return _render(
        "server.conf.j2",
        gateway=gateway,
        transport=transport,
        block=gateway.block(transport),
        device=device(transport),
        folders=folders,
        ciphers=CIPHERS,
    )


def address_files(gateway: LaptopGatewayPlan, transport: Transport, laptops: Iterable[Laptop]) -> Mapping[str, str]:
    """Return the address file of each laptop by name, without laptops for which the pool is too small."""
    return {laptop.name: _address_file(gateway, transport, laptop) for laptop in laptops if laptop.slot < gateway.most}


def without_address(gateway: LaptopGatewayPlan, laptops: Iterable[Laptop]) -> tuple[str, ...]:
    """Return the names of the laptops for which the gateway's pool is too small."""
    return tuple(laptop.name for laptop in laptops if laptop.slot >= gateway.most)


def _address_file(gateway: LaptopGatewayPlan, transport: Transport, laptop: Laptop) -> str:
    return f"ifconfig-push {gateway.address(transport, laptop.slot)} {gateway.block(transport).netmask}\n"


def guard_rules(gateway: LaptopGatewayPlan) -> str:
    """Return the packet filter of a gateway; loading it replaces the former one atomically."""
    devices = {device(transport): gateway.block(transport) for transport in Transport}
    return _render("guard.nft.j2", gateway=gateway, devices=devices)


def laptop_rules(gateways: Sequence[LaptopGatewayPlan]) -> str:
    """Return the packet filter of a Linux laptop: packets to the fleet leave only through the VPN."""
    reached = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.routes))
    met = tuple(dict.fromkeys(block for gateway in gateways for block in gateway.met))
    return _render("laptop.nft.j2", fleet=gateways[0].fleet, reached=reached, met=met)


USER = "openvpn"
# For the network device and its routes, and for ports below 1024.
CAPABILITIES = ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE")
SERVICE = "bedplate-laptops@.service"
# Starts a daemon when its revocation list appears, which is written after the keys.
KEYS_PATH_UNIT = "bedplate-laptops@.path"


def instance(transport: Transport) -> str:
    """Return the name of a transport's unit."""
    return f"bedplate-laptops@{transport}.service"


def daemon_unit() -> str:
    """Return the template unit of a gateway's daemons, with one instance for each transport."""
    return _render("daemon.service.j2", folders=STANDARD, user=USER, rights=CAPABILITIES)


DNS_UNIT = "bedplate-laptops-dns.service"


def dns_unit(gateway: LaptopGatewayPlan) -> str:
    """Return the unit that forwards DNS, for a gateway with an upstream resolver."""
    addresses = [address for transport in Transport for address in gateway.name_servers(transport)]
    return _render("dns.service.j2", gateway=gateway, addresses=addresses)


def keys_path_unit() -> str:
    """Return the path unit that starts a daemon when its keys appear."""
    return _render("keyed.path.j2", folders=STANDARD)


@dataclass(frozen=True, slots=True)
class LaptopKeys:
    """A laptop's certificate and keys in PEM; `trusted` is the authority that signs gateways."""

    trusted: str
    certificate: str
    key: str = field(repr=False)
    tls_crypt: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """Address and transport of a gateway, as OpenVPN's option `remote` names them."""

    address: IPv4Address
    transport: Transport

    def __str__(self) -> str:
        return f"{self.address} {self.transport.port} {self.transport}4"


def remotes(gateways: Sequence[LaptopGatewayPlan]) -> Iterator[Remote]:
    """Yield the endpoints in the order in which a laptop tries them: every gateway over UDP, then over TCP.

    Raise InputError, with their names, if gateways have no public address yet.
    """
    if unknown := [gateway.place for gateway in gateways if gateway.public is None]:
        raise InputError(
            f"fleet.lock has no public address of the gateway in {', '.join(unknown)}",
            fix="run `bedplate vpn record` after the stacks are deployed",
        )
    for transport in Transport:
        yield from (Remote(gateway.public, transport) for gateway in gateways if gateway.public)


def client_profile(gateways: Sequence[LaptopGatewayPlan], name: str, keys: LaptopKeys) -> str:
    """Return the profile of a laptop; raise InputError if a gateway has no public address yet."""
    return _render(
        "profile.ovpn.j2",
        name=name,
        fleet=gateways[0].fleet,
        remotes=tuple(map(str, remotes(gateways))),
        gateways_name=NAME_PREFIX,
        ciphers=CIPHERS,
        keys=keys,
    )


# Characters to escape in a quoted word: systemd.service(5), "COMMAND LINES", and systemd.unit(5), "SPECIFIERS".
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$"))


def renewal_units(fleet: str, command: Sequence[str], folder: PurePath) -> Mapping[str, str]:
    """Return the texts of a service and a timer by name; they run the command in the folder each day."""
    words = " ".join(map(_quote, command))
    name = f"bedplate-vpn-{fleet}"
    # A path is not quoted, only specifiers are escaped.
    path = str(folder).replace("%", "%%")
    return {
        f"{name}.service": _render("renewal.service.j2", fleet=fleet, command=words, folder=path),
        f"{name}.timer": _render("renewal.timer.j2", fleet=fleet),
    }


def _quote(text: str) -> str:
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return f'"{text}"'
