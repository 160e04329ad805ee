"""Everything that lies on a gateway for its tunnels: one list, in the order in which it is to be put there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath

from jinja2 import Environment, PackageLoader, StrictUndefined

from vpn.guard.guard import guard_text, last_routes_text
from vpn.sites import gateway as pace
from vpn.sites.gateway import CALLER, MTU, WAITER, Gateway, Papers, Tunnel

_TEMPLATES = Environment(
    loader=PackageLoader("vpn.sites"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701  settings of daemons, not HTML; what fills them was judged when it was loaded
)


def filled(name: str, **values: object) -> str:
    """Return the text of a template with its values."""
    return _TEMPLATES.get_template(name).render(values)


# Only root reads it.
PRIVATE = 0o600
PUBLIC = 0o644
PROGRAM = 0o755


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file: where, what and for whom. Its text is not shown when it is printed."""

    path: PurePosixPath
    text: str = field(repr=False)
    mode: int = PUBLIC


@dataclass(frozen=True, slots=True)
class Places:
    """Where a gateway's files lie; `log` is a file that charon writes beside the journal's lines."""

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
        """The file in which the scripts find the tunnels."""
        return self.folder / "table"

    @property
    def socket(self) -> str:
        """The control socket of charon, as swanctl names it."""
        return f"unix://{self.run}/tunnels.vici"


STANDARD = Places(
    etc=PurePosixPath("/etc/bedplate/ipsec"),
    run=PurePosixPath("/run/bedplate-ipsec"),
    lib=PurePosixPath("/usr/local/lib/bedplate"),
)


# Only what IKEv2 with AES-GCM, groups of elliptic curves, keys and certificates needs: what is not loaded has no fault.
_PLUGINS = (
    "random nonce openssl pem pkcs1 pkcs8 x509 revocation constraints pubkey hmac kdf gcm drbg vici "
    "kernel-netlink socket-default updown counters"
)


def settings_of(places: Places) -> RenderedFile:
    """Return what charon itself reads."""
    text = filled("strongswan.conf.j2", plugins=_PLUGINS, pace=pace, places=places)
    return RenderedFile(places.folder / "strongswan.conf", text, PRIVATE)


def connections_of(gateway: Gateway, places: Places) -> RenderedFile:
    """Return the connections and the shared keys, as swanctl reads them."""
    text = filled("swanctl.conf.j2", gateway=gateway, pace=pace, has_papers=_has_papers, cacerts=_cacerts)
    return RenderedFile(places.folder / "swanctl.conf", text, PRIVATE)


def papers_of(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    """Yield the certificates, keys and revocation lists, where swanctl looks for them."""
    for tunnel in gateway.tunnels:
        if isinstance(tunnel.proof, Papers):
            yield from _papers(tunnel.name, tunnel.proof, places.folder)


def _papers(name: str, papers: Papers, folder: PurePosixPath) -> Iterator[RenderedFile]:
    yield RenderedFile(folder / "x509" / f"{name}.crt", papers.certificate, PRIVATE)
    for file, text in zip(authority_files(name, papers), papers.authorities, strict=True):
        yield RenderedFile(folder / "x509ca" / file, text, PRIVATE)
    for number, text in enumerate(papers.revoked, start=1):
        yield RenderedFile(folder / "x509crl" / f"{name}-{number}.crl", text, PRIVATE)
    yield RenderedFile(folder / "private" / f"{name}.key", papers.key, PRIVATE)


def authority_files(name: str, papers: Papers) -> tuple[str, ...]:
    """Return the names of the files of the authorities, one certificate in each: swanctl reads no second one."""
    return tuple(f"{name}-{number}.crt" for number in range(1, len(papers.authorities) + 1))


def _cacerts(tunnel: Tunnel) -> str:
    return ",".join(authority_files(tunnel.name, tunnel.proof)) if isinstance(tunnel.proof, Papers) else ""


def _has_papers(tunnel: Tunnel) -> bool:
    return isinstance(tunnel.proof, Papers)


# Without the ending `.service`.
SERVICE = "bedplate-ipsec-tunnels"
DIAL = f"{SERVICE}-dial"
_SYSTEMD = PurePosixPath("/etc/systemd/system")


def units_of(gateway: Gateway, places: Places) -> tuple[RenderedFile, ...]:
    """Return both units."""
    values = {
        "service": SERVICE,
        "dial": DIAL,
        "paces": " ".join(f"{each.first} {each.every}" for each in (CALLER, WAITER)),
        "source": gateway.address or "-",
        "places": places,
    }
    templates = {SERVICE: "charon.service.j2", DIAL: "dial.service.j2"}
    return tuple(RenderedFile(_SYSTEMD / f"{name}.service", filled(file, **values)) for name, file in templates.items())


_FILE = PurePosixPath("/etc/frr/frr.conf")
# Only FRR's own people, and root, read it.
_MODE = 0o640


def bgp_of(gateway: Gateway) -> RenderedFile | None:
    """Return FRR's settings, without a neighbour where no tunnel is left; None for a gateway whose routes are fixed."""
    if gateway.asn is None:
        return None
    tunnels = tuple(tunnel for tunnel in gateway.tunnels if tunnel.asn is not None)
    return RenderedFile(_FILE, filled("frr.conf.j2", gateway=gateway, tunnels=tunnels, peer=_peer, pace=pace), _MODE)


def _peer(tunnel: Tunnel) -> str:
    """Return the far end's address inside a tunnel."""
    if tunnel.far.inside is None:
        raise ValueError(f"{tunnel.name} speaks BGP and has no address inside")
    return str(tunnel.far.inside.ip)


_HERE = Path(__file__).parent
_SCRIPTS = ("ipsec-devices", "ipsec-look", "ipsec-watch")
GUARD = PurePosixPath("/etc/bedplate/guard/guard.nft")
LAST_ROUTES = PurePosixPath("/etc/bedplate/guard/last-routes")
KERNEL = PurePosixPath("/etc/sysctl.d/60-bedplate-gateway.conf")


def files_of(gateway: Gateway, places: Places = STANDARD) -> tuple[RenderedFile, ...]:
    """Return every file of a gateway, the guard first: nothing may pass before it is loaded."""
    return tuple(_files(gateway, places))


def ground_of(elsewhere: tuple[IPv4Network, ...], places: Places = STANDARD) -> Iterator[RenderedFile]:
    """Yield what a gateway has before it has a tunnel: the guard and its routes, the kernel's settings, the scripts."""
    yield RenderedFile(GUARD, guard_text(elsewhere, MTU))
    yield RenderedFile(LAST_ROUTES, last_routes_text(elsewhere))
    yield RenderedFile(KERNEL, (_HERE / "gateway.sysctl").read_text(encoding="utf-8"))
    for script in _SCRIPTS:
        yield RenderedFile(places.lib / script, (_HERE / f"{script}.sh").read_text(encoding="utf-8"), PROGRAM)


def _files(gateway: Gateway, places: Places) -> Iterator[RenderedFile]:
    yield from ground_of(gateway.elsewhere, places)
    if gateway.tunnels:
        yield settings_of(places)
        yield from papers_of(gateway, places)
        yield connections_of(gateway, places)
        yield RenderedFile(places.table, _table(gateway))
        yield from units_of(gateway, places)
    told = bgp_of(gateway)
    if told:
        yield told


def _table(gateway: Gateway) -> str:
    """Return the tunnels as the scripts read them: name, number, inside address, MTU, fixed routes, who dials, echo."""
    return "".join(f"{_row(tunnel)}\n" for tunnel in gateway.tunnels)


def _row(tunnel: Tunnel) -> str:
    inside = tunnel.near.inside or "-"
    who = "dials" if tunnel.dials else "waits"
    row = f"{tunnel.name} {tunnel.number} {inside} {MTU} {_joined(tunnel.fixed_routes)} {who}"
    return f"{row} {tunnel.echo}" if tunnel.echo else row


def _joined(blocks: tuple[IPv4Network, ...]) -> str:
    return ",".join(map(str, blocks)) or "-"
