"""The NFS exports of a file server: its shares, over NFSv4, only to the clients of the plan.

The kernel's server exports them; without one, as in a container, nfs-ganesha does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import NAMESPACE_URL, UUID, uuid5

from pyinfra.api.facts import FactBase
from pyinfra.operations import server, systemd

from bedplate.plan.nodes import Share
from roles.base import Changes, changed
from roles.files import ManagedFile, file_text, render
from roles.storage.mounts import HOMES

EXPORTS, SETTINGS = "/etc/exports.d/bedplate.exports", "/etc/nfs.conf.d/bedplate.conf"
GANESHA = "/etc/ganesha/ganesha.conf"


class KernelServes(FactBase[bool]):
    """Whether the node's kernel has an NFS server."""

    default = bool

    def command(self) -> str:
        """Check whether nfsd is built in or can be loaded."""
        return "grep -qw nfsd /proc/filesystems || modprobe --dry-run --quiet nfsd && echo yes || true"

    def process(self, output: Iterable[str]) -> bool:
        """Return whether anything was printed."""
        return bool("".join(output).strip())


@dataclass(frozen=True, slots=True)
class Server:
    """An NFS server: its files, those that need a restart, and the reload commands of the others, by path."""

    service: str
    packages: tuple[str, ...]
    files: tuple[ManagedFile, ...]
    restart_files: frozenset[str]
    reload_commands: Mapping[str, str] = field(default_factory=dict)


def server_of(shares: Iterable[Share], *, by_kernel: bool) -> Server:
    """Return the server of these shares. A share without clients is left out: exports(5) would allow all clients."""
    ordered = sorted((share for share in shares if share.clients), key=lambda share: share.path)
    return _kernel_server(ordered) if by_kernel else _ganesha(ordered)


def _kernel_server(shares: list[Share]) -> Server:
    text = render("storage/exports.j2", lines=[(share, _id(share)) for share in shares])
    files = (
        ManagedFile("Write NFS exports", EXPORTS, text),
        ManagedFile("Configure the NFS server", SETTINGS, file_text("storage/nfs.conf")),
    )
    return Server("nfs-server", ("nfs-kernel-server",), files, frozenset({SETTINGS}), {EXPORTS: "exportfs -ra"})


def _ganesha(shares: list[Share]) -> Server:
    text = render("storage/ganesha.conf.j2", lines=list(_numbered(shares)))
    packages = ("nfs-ganesha", "nfs-ganesha-vfs")
    return Server("nfs-ganesha", packages, (ManagedFile("Configure nfs-ganesha", GANESHA, text),), frozenset({GANESHA}))


def _id(share: Share) -> UUID:
    """Return the file system id for clients, derived from the store's name: a new disk does not change it."""
    return uuid5(NAMESPACE_URL, f"bedplate:{share.store}")


def _numbered(shares: list[Share]) -> Iterator[tuple[Share, int]]:
    """Yield each share with the 16-bit id that ganesha needs, derived from its name and made unique."""
    used: set[int] = set()
    for share in shares:
        number = _id(share).int % 65000 + 1
        while number in used:
            number += 1
        used.add(number)
        yield share, number


def run_server(nfs: Server, changes: Changes) -> None:
    """Start the server, and restart or reload it after a change of its files."""
    systemd.service(name=f"Start {nfs.service}", service=nfs.service, running=True, enabled=True)
    for file in nfs.files:
        has_changed = changed(changes, file.path)
        if file.path in nfs.restart_files:
            systemd.service(name=f"Restart {nfs.service}", service=nfs.service, restarted=True, _if=has_changed)
        else:
            server.shell(name="Reload NFS exports", commands=[nfs.reload_commands[file.path]], _if=has_changed)


def create_folder(share: Share) -> str:
    """Return the command that creates a share's folder: writable by root for homes, by all users otherwise."""
    mode = "755" if share.mount == HOMES else "1777"
    return f"[ -d {share.path} ] || install -d -m {mode} {share.path}"
