"""Mounts of a node: systemd units for NFS and EFS, TLS tunnels to EFS, S3; and the NFS exports of a file server.

Programs read S3 with the AWS CLI, of a pinned version with hashes. Buckets are not mounted: mountpoint-s3 is in neither
distribution's archive, and a bucket is no POSIX file system. Credentials come from the node's IAM role, never a file.

Shares are exported over NFSv4, only to the clients of the plan: by the kernel's server, or without one, as in a
container, by nfs-ganesha.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from uuid import NAMESPACE_URL, UUID, uuid5

from pyinfra.context import host
from pyinfra.operations import files, server, systemd

from bedplate.plan.mounts import Mount, MountKind, Share
from bedplate.plan.stores import BucketPlan
from roles.base import Changes, ManagedFile, changed, file_text, put_files, render
from roles.system import BoolFact, TextFact, venv_commands

FOLDER = "/opt/bedplate-aws"
TABLE, SHELL = "/etc/bedplate/buckets", "/etc/profile.d/bedplate-buckets.sh"
_REQUIREMENTS = file_text("storage/aws.txt")
_LIST = f"{FOLDER}.txt"


class AwsVersion(TextFact):
    """The installed version of the AWS CLI, empty if it is not installed."""

    def command(self) -> str:
        """List the package metadata: running `aws --version` takes a second."""
        folders = f"ls -d {FOLDER}/lib/python3*/site-packages/awscli-*.dist-info 2>/dev/null"
        return rf"{folders} | sed 's/.*awscli-\(.*\)\.dist-info/\1/'"


def version() -> str:
    """Return the pinned version."""
    first = next(line for line in _REQUIREMENTS.splitlines() if line.startswith("awscli=="))
    return first.split()[0].removeprefix("awscli==")


def install_aws() -> None:
    """Declare the AWS CLI for all users."""
    put_files(ManagedFile("Write the requirements of the AWS CLI", _LIST, _REQUIREMENTS))
    if host.get_fact(AwsVersion) != version():
        server.shell(name=f"Install the AWS CLI {version()}", commands=venv_commands(FOLDER, _LIST))
    files.link(name="Link aws to /usr/local/bin", path="/usr/local/bin/aws", target=f"{FOLDER}/bin/aws")


def variable(store: str) -> str:
    """Return the shell variable of a store's bucket."""
    return f"S3_{store.upper().replace('-', '_')}"


def variables(buckets: Iterable[BucketPlan]) -> tuple[tuple[str, str], ...]:
    """Return the variable and the name of each bucket, ordered by store."""
    return tuple((variable(bucket.store), bucket.name) for bucket in _by_store(buckets))


def bucket_files(buckets: Iterable[BucketPlan], region: str) -> tuple[ManagedFile, ...]:
    """Return the list of buckets, and the shell variables."""
    rows = _by_store(buckets)
    table = "".join(f"{bucket.store} s3://{bucket.name} {bucket.region}\n" for bucket in rows)
    shell = render("storage/buckets.sh.j2", variables=variables(rows), region=region)
    return (
        ManagedFile("Write the list of buckets", TABLE, table),
        ManagedFile("Set shell variables of buckets", SHELL, shell),
    )


def _by_store(buckets: Iterable[BucketPlan]) -> list[BucketPlan]:
    return sorted(buckets, key=lambda bucket: bucket.store)


# In addition to the message of the day of the role `baseline`. Source: pam_motd(8), `motd_dir`.
NOTICE = "/etc/motd.d/bedplate-storage"


def notice(paths: Iterable[str], buckets: Iterable[BucketPlan], *, holds_role: bool) -> ManagedFile:
    """Return the notice at login. Without an IAM role (`holds_role`), users need their own AWS credentials."""
    rows = variables(buckets)
    width = max((len(name) for name, _ in rows), default=0)
    text = render("storage/motd.j2", folders=sorted(paths), rows=rows, width=width, holds_role=holds_role)
    return ManagedFile("Write the notice of storage", NOTICE, text)


UNIT_FOLDER = "/etc/systemd/system"
MARK = "# Written by bedplate, role storage."
_PLAIN = re.compile(r"[A-Za-z0-9:_.]")


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit; `operation` is the name of the operation that writes it."""

    operation: str
    name: str
    text: str

    @property
    def file(self) -> ManagedFile:
        """The unit file."""
        return ManagedFile(self.operation, f"{UNIT_FOLDER}/{self.name}", f"{MARK}\n{self.text}")


def unit_name(path: str, suffix: str) -> str:
    r"""Return the name of a path's unit: `/mnt/lab-data` is `mnt-lab\x2ddata.mount` (systemd-escape(1))."""
    parts = path.strip("/").split("/")
    return "-".join(_escaped(part) for part in parts) + f".{suffix}"


def _escaped(part: str) -> str:
    text = "".join(char if _PLAIN.fullmatch(char) else f"\\x{ord(char):02x}" for char in part)
    return f"\\x2e{text[1:]}" if text.startswith(".") else text


TUNNEL_FOLDER = "/etc/bedplate/efs"
# The user of the TLS tunnels, whom the packet filter lets connect to EFS. The id is fixed, because the filter of a boot
# loads before any lookup of names; distributions assign system ids from 100 up and from 999 down.
TUNNEL_USER, TUNNEL_UID = "bedplate-efs", 550


def create_tunnel_user() -> None:
    """Declare the user of the tunnels; a machine that uses its id for another account is refused."""
    server.group(name=f"Create group {TUNNEL_USER}", group=TUNNEL_USER, gid=TUNNEL_UID, system=True)
    server.user(  # noqa: S604  # the login shell of the account
        name=f"Create user {TUNNEL_USER}",
        user=TUNNEL_USER,
        uid=TUNNEL_UID,
        group=TUNNEL_USER,
        home="/nonexistent",
        shell="/usr/sbin/nologin",
        system=True,
        ensure_home=False,
        create_home=False,
    )


def loopback(store: str) -> str:
    """Return the loopback address of a store's tunnel, derived from its name: other stores do not change it."""
    high, middle, low = sha256(store.encode()).digest()[:3]
    return f"127.{high or 1}.{middle}.{low % 254 + 1}"


def tunnel(mount: Mount) -> tuple[ManagedFile, Unit]:
    """Return the stunnel configuration of an EFS mount, and its unit."""
    path = f"{TUNNEL_FOLDER}/{mount.store}.conf"
    # The certificate of EFS is valid for all names of its region.
    server_name = f"{mount.store}.efs.{mount.region}.amazonaws.com"
    text = render("storage/stunnel.conf.j2", mount=mount, address=loopback(mount.store), server_name=server_name)
    unit = render("storage/tunnel.service.j2", mount=mount, path=path, user=TUNNEL_USER)
    return ManagedFile(f"Configure the TLS tunnel to {mount.store}", path, text), Unit(
        f"Write the unit of the TLS tunnel to {mount.store}", f"bedplate-efs-{mount.store}.service", unit
    )


NFS_PORT = 2049
HOMES = "/home"
# EFS as recommended by AWS; NFS 4.2 between Linux machines. `noresvport`: a client that reconnects from another port
# keeps its locks. A site's server accepts only reserved ports: from other ports, any user of a client could claim any
# identity. Source: EFS user guide, "Recommended NFS mount settings"; nfs(5); exports(5), `secure`.
_COMMON = "hard,proto=tcp,timeo=600,retrans=2,nosuid,nodev,_netdev"
_OPTIONS = {
    MountKind.EFS: f"vers=4.1,rsize=1048576,wsize=1048576,noresvport,{_COMMON}",
    MountKind.NFS: f"vers=4.2,nconnect=4,{_COMMON}",
}


@dataclass(frozen=True, slots=True)
class Attached:
    """A mounted file system: `source` and `kind` as for mount(8), `server` that must answer before the mount.

    `permission_unit` is the unit that makes the mounted folder writable by all users, if its server does not.
    """

    store: str
    path: str
    source: str
    kind: str
    options: str
    server: str | None = None
    tunnel: str | None = None
    permission_unit: str | None = None

    @property
    def mount(self) -> str:
        """The name of its mount unit."""
        return unit_name(self.path, "mount")

    @property
    def trigger(self) -> str:
        """The name of the unit that starts at boot: of a remote mount its automount unit."""
        return unit_name(self.path, "automount") if self.server else self.mount

    def units(self) -> Iterator[Unit]:
        """Yield its units."""
        mount = render("storage/mount.j2", at=self, port=NFS_PORT)
        yield Unit(f"Write the mount unit of {self.path}", self.mount, mount)
        if self.server:
            text = render("storage/automount.j2", at=self)
            yield Unit(f"Write the automount unit of {self.path}", self.trigger, text)
        if self.permission_unit:
            yield Unit(
                f"Write the permission unit of {self.path}", self.permission_unit, render("storage/commons.j2", at=self)
            )


def client_mount(mount: Mount) -> Attached:
    """Return the mount of shared storage on a client."""
    by_tunnel = mount.kind is MountKind.EFS
    address = loopback(mount.store) if by_tunnel else mount.server
    return Attached(
        store=mount.store,
        path=mount.path,
        source=f"{address}:{mount.export}",
        kind="nfs4",
        # Else the kernel holds what it cannot write, and each removal of the mount ends only some of it.
        options=_OPTIONS[mount.kind] + ",sync" * mount.is_synchronous,
        server=mount.server,
        tunnel=f"bedplate-efs-{mount.store}.service" if by_tunnel else None,
        # AWS creates the top folder writable only by root, which is right for homes.
        permission_unit=f"bedplate-commons-{mount.store}.service" if by_tunnel and mount.path != HOMES else None,
    )


def bind_mount(share: Share) -> Attached:
    """Return the bind mount of a share on its own file server, at the same path as on clients."""
    return Attached(share.store, share.mount, share.path, "none", "bind")


EXPORTS, SETTINGS = "/etc/exports.d/bedplate.exports", "/etc/nfs.conf.d/bedplate.conf"
GANESHA = "/etc/ganesha/ganesha.conf"


class KernelServes(BoolFact):
    """Whether the node's kernel has an NFS server."""

    def command(self) -> str:
        """Check whether nfsd is built in or can be loaded."""
        return "grep -qw nfsd /proc/filesystems || modprobe --dry-run --quiet nfsd && echo yes || true"


@dataclass(frozen=True, slots=True)
class Server:
    """An NFS server; `restart_files` need a restart, the other files have a reload command by path."""

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
