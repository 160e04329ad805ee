"""What charon and swanctl read: their settings, keys and certificates."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from vpn.sites import pace
from vpn.sites.gateway import Gateway
from vpn.sites.proof import Papers
from vpn.sites.rendered import PRIVATE, Places, RenderedFile
from vpn.sites.template import filled
from vpn.sites.tunnel import Tunnel

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
