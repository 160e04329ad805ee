"""What a file server exports: its shares, to the plan's addresses alone, by version 4 of NFS alone.

The kernel serves where it can; where it cannot, as in a container, nfs-ganesha does the same without it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import NAMESPACE_URL, UUID, uuid5

from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.nodes import Share
from roles.files import Shipped, rendered, text_of
from roles.storage.mounts import HOMES

EXPORTS, SETTINGS = "/etc/exports.d/bedplate.exports", "/etc/nfs.conf.d/bedplate.conf"
GANESHA = "/etc/ganesha/ganesha.conf"


class KernelServes(FactBase[bool]):
    """Whether the node's kernel has a server of NFS."""

    default = bool

    def command(self) -> str:
        """Ask what it has, and what it could load."""
        return "grep -qw nfsd /proc/filesystems || modprobe --dry-run --quiet nfsd && echo yes || true"

    def process(self, output: Iterable[str]) -> bool:
        """Take a word for yes."""
        return bool("".join(output).strip())


@dataclass(frozen=True, slots=True)
class Server:
    """A server of NFS: its files, which of them it starts anew for, and what lets it know of the others."""

    service: str
    packages: tuple[str, ...]
    files: tuple[Shipped, ...]
    anew: frozenset[str]
    told: Mapping[str, str] = field(default_factory=dict)


def server_of(shares: Iterable[Share], *, by_kernel: bool) -> Server:
    """Return what serves these shares. A share without clients is left out: exports(5) would open it to everybody."""
    ordered = sorted((share for share in shares if share.clients), key=lambda share: share.path)
    return _kernel(ordered) if by_kernel else _ganesha(ordered)


def _kernel(shares: list[Share]) -> Server:
    text = rendered("storage/exports.j2", lines=[(share, _id(share)) for share in shares])
    files = Shipped("Exports", EXPORTS, text), Shipped("NFS by version 4", SETTINGS, text_of("storage/nfs.conf"))
    return Server("nfs-server", ("nfs-kernel-server",), files, frozenset({SETTINGS}), {EXPORTS: "exportfs -ra"})


def _ganesha(shares: list[Share]) -> Server:
    text = rendered("storage/ganesha.conf.j2", lines=list(_numbered(shares)))
    packages = ("nfs-ganesha", "nfs-ganesha-vfs")
    return Server("nfs-ganesha", packages, (Shipped("Exports", GANESHA, text),), frozenset({GANESHA}))


def _id(share: Share) -> UUID:
    """Return what clients know a file system by: of its name, so that it stays when the disk below is another."""
    return uuid5(NAMESPACE_URL, f"bedplate:{share.store}")


def _numbered(shares: list[Share]) -> Iterator[tuple[Share, int]]:
    """Yield each share with a number of 16 bits, which ganesha wants: of its name too; neighbours give way."""
    taken: set[int] = set()
    for share in shares:
        number = _id(share).int % 65000 + 1
        while number in taken:
            number += 1
        taken.add(number)
        yield share, number


def serve(by: Server, changed: Mapping[str, OperationMeta]) -> None:
    """Let the server run with its settings, and know what it exports; otherwise its clients notice nothing."""
    systemd.service(name=f"{by.service} runs", service=by.service, running=True, enabled=True)
    for file in by.files if changed else ():
        when = any_changed(changed[file.path])
        if file.path in by.anew:
            systemd.service(name=f"{by.service} anew", service=by.service, restarted=True, _if=when)
        else:
            server.shell(name=f"{file.name} are known", commands=[by.told[file.path]], _if=when)


def folder(share: Share) -> str:
    """Return what makes a folder: of homes, for root to make them in; of anything else, for everybody to write to."""
    mode = "755" if share.mount == HOMES else "1777"
    return f"[ -d {share.path} ] || install -d -m {mode} {share.path}"
