"""All files of a gateway's tunnels: packet filter, scripts, strongSwan, systemd units and FRR.

The order of the files is the order in which they are written to the gateway.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network, collapse_addresses
from pathlib import Path, PurePosixPath

from bedplate.templates import templates
from vpn.sites import gateway as pace
from vpn.sites.gateway import CALLER, MTU, WAITER, Gateway, Tunnel, TunnelCertificate

_HERE = Path(__file__).parent
_TEMPLATES = templates(_HERE / "templates")


def _render(name: str, **values: object) -> str:
    return _TEMPLATES.get_template(name).render(values)


PRIVATE = 0o600
PUBLIC = 0o644
_PROGRAM = 0o755
# FRR and root can read it.
_FRR_PRIVATE = 0o640


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file of a gateway. The text may hold a key and is not part of the repr."""

    path: PurePosixPath
    text: str = field(repr=False)
    mode: int = PUBLIC


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of a gateway; `log` is a file that charon writes in addition to the journal."""

    etc: PurePosixPath
    run: PurePosixPath
    lib: PurePosixPath
    log: PurePosixPath | None = None

    @property
    def folder(self) -> PurePosixPath:
        """The folder of charon's files."""
        return self.etc / "tunnels"

    @property
    def table(self) -> PurePosixPath:
        """The table of tunnels that the scripts read."""
        return self.folder / "table"

    @property
    def socket(self) -> str:
        """The URI of charon's control socket."""
        return f"unix://{self.run}/tunnels.vici"


STANDARD = Places(
    etc=PurePosixPath("/etc/bedplate/ipsec"),
    run=PurePosixPath("/run/bedplate-ipsec"),
    lib=PurePosixPath("/usr/local/lib/bedplate"),
)


# Only what IKEv2 with AES-GCM, elliptic curves, shared keys and certificates needs: less code to attack.
_PLUGINS = (
    "random nonce openssl pem pkcs1 pkcs8 x509 revocation constraints pubkey hmac kdf gcm drbg vici "
    "kernel-netlink socket-default updown counters"
)


def strongswan_conf_of(places: Places) -> RenderedFile:
    """Return strongswan.conf, the settings of charon."""
    text = _render("strongswan.conf.j2", plugins=_PLUGINS, pace=pace, places=places)
    return RenderedFile(places.folder / "strongswan.conf", text, PRIVATE)


def connections_of(gateway: Gateway, places: Places) -> RenderedFile:
    """Return swanctl.conf, with the connections and shared keys."""
    text = _render("swanctl.conf.j2", gateway=gateway, pace=pace, has_papers=_has_papers, cacerts=_cacerts)
    return RenderedFile(places.folder / "swanctl.conf", text, PRIVATE)


def papers_of(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    """Yield the certificates, keys and revocation lists in the folders that swanctl loads."""
    for tunnel in gateway.tunnels:
        if isinstance(tunnel.proof, TunnelCertificate):
            yield from _papers(tunnel.name, tunnel.proof, places.folder)


def _papers(name: str, papers: TunnelCertificate, folder: PurePosixPath) -> Iterator[RenderedFile]:
    yield RenderedFile(folder / "x509" / f"{name}.crt", papers.certificate, PRIVATE)
    for file, text in zip(_authority_files(name, papers), papers.authorities, strict=True):
        yield RenderedFile(folder / "x509ca" / file, text, PRIVATE)
    for number, text in enumerate(papers.revoked, start=1):
        yield RenderedFile(folder / "x509crl" / f"{name}-{number}.crl", text, PRIVATE)
    yield RenderedFile(folder / "private" / f"{name}.key", papers.key, PRIVATE)


def _authority_files(name: str, papers: TunnelCertificate) -> tuple[str, ...]:
    """Return the file names of the authorities, one for each: swanctl reads only the first certificate of a file."""
    return tuple(f"{name}-{number}.crt" for number in range(1, len(papers.authorities) + 1))


def _cacerts(tunnel: Tunnel) -> str:
    return ",".join(_authority_files(tunnel.name, tunnel.proof)) if isinstance(tunnel.proof, TunnelCertificate) else ""


def _has_papers(tunnel: Tunnel) -> bool:
    return isinstance(tunnel.proof, TunnelCertificate)


# Unit names without `.service`.
SERVICE = "bedplate-ipsec-tunnels"
DIAL = f"{SERVICE}-dial"
_SYSTEMD = PurePosixPath("/etc/systemd/system")


def units_of(gateway: Gateway, places: Places) -> tuple[RenderedFile, ...]:
    """Return the units of charon and of the watch script."""
    values = {
        "service": SERVICE,
        "dial": DIAL,
        "paces": " ".join(f"{interval.first} {interval.every}" for interval in (CALLER, WAITER)),
        "source": gateway.address or "-",
        "places": places,
    }
    templates = {SERVICE: "charon.service.j2", DIAL: "dial.service.j2"}
    return tuple(
        RenderedFile(_SYSTEMD / f"{name}.service", _render(file, **values)) for name, file in templates.items()
    )


_FRR_CONF = PurePosixPath("/etc/frr/frr.conf")


def frr_conf_of(gateway: Gateway) -> RenderedFile | None:
    """Return FRR's configuration, or None for a gateway with fixed routes."""
    if gateway.asn is None:
        return None
    tunnels = tuple(tunnel for tunnel in gateway.tunnels if tunnel.asn is not None)
    text = _render("frr.conf.j2", gateway=gateway, tunnels=tunnels, peer=_neighbour_address, pace=pace)
    return RenderedFile(_FRR_CONF, text, _FRR_PRIVATE)


def _neighbour_address(tunnel: Tunnel) -> str:
    """Return the far end's address inside a tunnel."""
    if tunnel.far.inside is None:
        raise ValueError(f"tunnel {tunnel.name} uses BGP, but its far end has no inside address")
    return str(tunnel.far.inside.ip)


_SCRIPTS = ("ipsec-devices", "ipsec-look", "ipsec-watch")
GUARD_RULES = PurePosixPath("/etc/bedplate/guard/guard.nft")
LAST_ROUTES = PurePosixPath("/etc/bedplate/guard/last-routes")
SYSCTL_CONF = PurePosixPath("/etc/sysctl.d/60-bedplate-gateway.conf")


def files_of(gateway: Gateway, places: Places = STANDARD) -> tuple[RenderedFile, ...]:
    """Return all files of a gateway, the guard first: no tunnel may come up before it is loaded."""
    return tuple(_files(gateway, places))


def guard_files(remote_blocks: tuple[IPv4Network, ...], places: Places = STANDARD) -> Iterator[RenderedFile]:
    """Yield the files that do not depend on tunnels: the guard and its routes, sysctl settings, scripts."""
    yield RenderedFile(GUARD_RULES, guard_text(remote_blocks, MTU))
    yield RenderedFile(LAST_ROUTES, last_routes_text(remote_blocks))
    yield RenderedFile(SYSCTL_CONF, (_HERE / "gateway.sysctl").read_text(encoding="utf-8"))
    for script in _SCRIPTS:
        yield RenderedFile(places.lib / script, (_HERE / f"{script}.sh").read_text(encoding="utf-8"), _PROGRAM)


def _files(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    yield from guard_files(gateway.remote_blocks, places)
    if gateway.tunnels:
        yield strongswan_conf_of(places)
        yield from papers_of(gateway, places)
        yield connections_of(gateway, places)
        yield RenderedFile(places.table, _table(gateway))
        yield from units_of(gateway, places)
    frr_conf = frr_conf_of(gateway)
    if frr_conf:
        yield frr_conf


def _table(gateway: Gateway) -> str:
    """Return the tunnels for the scripts: name, number, inside address, MTU, routes, dials or waits, ping address."""
    return "".join(f"{_table_row(tunnel)}\n" for tunnel in gateway.tunnels)


def _table_row(tunnel: Tunnel) -> str:
    columns = (
        tunnel.name,
        str(tunnel.number),
        str(tunnel.near.inside or "-"),
        str(MTU),
        ",".join(map(str, tunnel.fixed_routes)) or "-",
        "dials" if tunnel.dials else "waits",
        *((str(tunnel.ping_address),) if tunnel.ping_address else ()),
    )
    return " ".join(columns)


# The XFRM interfaces of tunnels.
_TUNNEL_DEVICES = '"ipsec*"'
# IPv4 and TCP headers without options.
_HEADER_BYTES = 40


def guard_text(remote_blocks: Iterable[IPv4Network], mtu: int) -> str:
    """Return a gateway's packet filter; `remote_blocks` are behind other gateways, `mtu` is the tunnels' MTU."""
    blocks = tuple(collapse_addresses(remote_blocks))
    return _render("guard.nft.j2", remote_blocks=blocks, tunnels=_TUNNEL_DEVICES, segment=mtu - _HEADER_BYTES)


# Marks these routes, so that the next run can delete them; not used by a daemon (linux/rtnetlink.h, FRR's zebra).
PROTOCOL = 98
# FRR reads the upper byte as an administrative distance: it does not use or announce a route of distance 255.
_METRIC = 0xFF00_2000


def last_routes_text(remote_blocks: Iterable[IPv4Network]) -> str:
    """Return an `ip -batch` file that rejects packets to blocks behind other gateways while no tunnel routes them."""
    blocks = collapse_addresses(remote_blocks)
    routes = "".join(f"route replace unreachable {block} metric {_METRIC} proto {PROTOCOL}\n" for block in blocks)
    return f"# Managed by bedplate: manual changes are overwritten.\nroute flush proto {PROTOCOL}\n{routes}"
