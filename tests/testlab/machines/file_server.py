"""A file server for tests: a folder of this machine over TCP, with or without TLS, in place of NFS.

Test nodes reach it by tests/testlab/machines/kernel/mount.nfs4. The protocol is that of FUSE (linux/fuse.h, 7.31):
requests have the user and group id of their program, as in AUTH_SYS, and new files belong to them. Permissions are
checked by the kernel of the client (`default_permissions`). It differs from NFS: no locks, no leases, no recovery after
a lost connection, and root is not squashed, as on EFS.
"""

import errno
import os
import ssl
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from socket import SHUT_RDWR, socket
from threading import Thread

from tests.testlab.machines.node_lab import bind_socket
from tests.testlab.network.netlab import LabHost

PORT = 2049
_HEAD, _REPLY, _ENTRY_TIMES = (
    struct.Struct("=IIQQIIII"),
    struct.Struct("=IiQ"),
    struct.pack("=QQQQII", 0, 0, 0, 0, 0, 0),
)
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _MKDIR, _UNLINK, _RMDIR, _RENAME = 1, 2, 3, 4, 9, 10, 11, 12
_OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC, _FLUSH, _INIT = 14, 15, 16, 17, 18, 20, 25, 26
_OPENDIR, _READDIR, _RELEASEDIR, _FSYNCDIR, _CREATE, _BATCH_FORGET, _RENAME2 = 27, 28, 29, 30, 35, 42, 45
_SYMLINK, _READLINK, _LINK = 6, 5, 13
# Bits of SETATTR.
_MODE, _UID, _GID, _SIZE, _ATIME, _MTIME, _ATIME_NOW, _MTIME_NOW = 1, 2, 4, 8, 16, 32, 128, 256
_WRITE_SIZE = 131072


@dataclass(frozen=True, slots=True)
class _Request:
    code: int
    node: int
    uid: int
    gid: int
    body: bytes

    def name(self, offset: int = 0) -> str:
        return os.fsdecode(self.body[offset:].split(b"\0", 1)[0])


@dataclass
class _Session:
    """One connection: the paths of its nodes, 1 is the exported folder."""

    paths: dict[int, Path]
    files: dict[int, int] = field(default_factory=dict)

    def answer(self, request: _Request) -> bytes | None:
        """Return the body of the reply; None for a request without one. Raises OSError."""
        if request.code in (_FORGET, _BATCH_FORGET):
            return None
        if request.code not in _ACTIONS:
            raise OSError(errno.ENOSYS, "")
        return _ACTIONS[request.code](self, request)

    def path(self, request: _Request, offset: int | None = None) -> Path:
        """Return the path of the node, or of the name at this offset in its folder."""
        folder = self.paths[request.node]
        return folder if offset is None else folder / request.name(offset)

    def entry(self, path: Path) -> bytes:
        """Return a fuse_entry_out without caching."""
        state = path.lstat()
        number = next((number for number, other in self.paths.items() if other == path), 0) or max(self.paths) + 1
        self.paths[number] = path
        return struct.pack("=QQQQII", number, 0, 0, 0, 0, 0) + _attributes(number, state)

    def owned(self, request: _Request, path: Path) -> bytes:
        os.chown(path, request.uid, request.gid, follow_symlinks=False)
        return self.entry(path)

    def opened(self, path: Path, flags: int, mode: int = 0o600) -> bytes:
        """Open a file; return a fuse_open_out with direct input and output."""
        handle = os.open(path, flags & ~(os.O_EXCL | os.O_NOFOLLOW), mode)
        self.files[handle] = handle
        return struct.pack("=QII", handle, 1, 0)

    def close(self) -> None:
        for handle in self.files:
            os.close(handle)


def _attributes(number: int, state: os.stat_result) -> bytes:
    times = [int(moment) for moment in (state.st_atime, state.st_mtime, state.st_ctime)]
    numbers = (number, state.st_size, state.st_blocks, *times, 0, 0, 0, state.st_mode, state.st_nlink)
    return struct.pack("=QQQQQQIIIIIIIIII", *numbers, state.st_uid, state.st_gid, 0, 4096, 0)


def _init(_session: _Session, _request: _Request) -> bytes:
    return struct.pack("=IIIIHHIIHHI7I", 7, 31, _WRITE_SIZE, 0, 16, 12, _WRITE_SIZE, 1, 32, 0, 0, *(0,) * 7)


def _getattr(session: _Session, request: _Request) -> bytes:
    return struct.pack("=QII", 0, 0, 0) + _attributes(request.node, session.path(request).lstat())


def _setattr(session: _Session, request: _Request) -> bytes:
    valid, _, _, size, _, atime, mtime, *_, mode, _, uid, gid, _ = struct.unpack("=IIQQQQQQIIIIIIII", request.body[:88])
    path = session.path(request)
    if valid & (_UID | _GID):
        os.chown(path, uid if valid & _UID else -1, gid if valid & _GID else -1, follow_symlinks=False)
    if valid & _MODE:
        path.chmod(stat.S_IMODE(mode))
    if valid & _SIZE:
        os.truncate(path, size)
    if valid & (_ATIME_NOW | _MTIME_NOW):
        os.utime(path)
    elif valid & (_ATIME | _MTIME):
        state = path.lstat()
        os.utime(path, (atime if valid & _ATIME else state.st_atime, mtime if valid & _MTIME else state.st_mtime))
    return _getattr(session, request)


def _mkdir(session: _Session, request: _Request) -> bytes:
    mode, _ = struct.unpack("=II", request.body[:8])
    path = session.path(request, 8)
    path.mkdir()
    path.chmod(stat.S_IMODE(mode))
    return session.owned(request, path)


def _create(session: _Session, request: _Request) -> bytes:
    flags, mode, _, _ = struct.unpack("=IIII", request.body[:16])
    path = session.path(request, 16)
    is_new = not path.exists()
    opened = session.opened(path, flags | os.O_CREAT)
    if is_new:
        path.chmod(stat.S_IMODE(mode))
        return session.owned(request, path) + opened
    return session.entry(path) + opened


def _rename(session: _Session, request: _Request) -> bytes:
    size = 8 if request.code == _RENAME else 16
    (folder,) = struct.unpack("=Q", request.body[:8])
    old, new = request.body[size:].split(b"\0")[:2]
    before, after = session.path(request) / os.fsdecode(old), session.paths[folder] / os.fsdecode(new)
    before.rename(after)
    for number, path in session.paths.items():
        if path == before or before in path.parents:
            session.paths[number] = after / path.relative_to(before)
    return b""


def _symlink(session: _Session, request: _Request) -> bytes:
    name, target = request.body.split(b"\0")[:2]
    path = session.path(request) / os.fsdecode(name)
    path.symlink_to(os.fsdecode(target))
    return session.owned(request, path)


def _link(session: _Session, request: _Request) -> bytes:
    (old,) = struct.unpack("=Q", request.body[:8])
    path = session.path(request, 8)
    path.hardlink_to(session.paths[old])
    return session.entry(path)


def _remove(session: _Session, request: _Request) -> bytes:
    path = session.path(request, 0)
    path.rmdir() if request.code == _RMDIR else path.unlink()
    return b""


def _readdir(session: _Session, request: _Request) -> bytes:
    _, offset, size = struct.unpack("=QQI", request.body[:20])
    names, data = [".", "..", *sorted(entry.name for entry in session.path(request).iterdir())], b""
    for number, name in enumerate(names[offset:], offset + 1):
        encoded = os.fsencode(name)
        row = struct.pack("=QQII", number, number, len(encoded), 0) + encoded
        row += b"\0" * (-len(row) % 8)
        if len(data) + len(row) > size:
            break
        data += row
    return data


def _read(_session: _Session, request: _Request) -> bytes:
    handle, offset, size = struct.unpack("=QQI", request.body[:20])
    return os.pread(handle, size, offset)


def _write(_session: _Session, request: _Request) -> bytes:
    handle, offset, size = struct.unpack("=QQI", request.body[:20])
    return struct.pack("=II", os.pwrite(handle, request.body[40 : 40 + size], offset), 0)


def _release(session: _Session, request: _Request) -> bytes:
    (handle,) = struct.unpack("=Q", request.body[:8])
    if session.files.pop(handle, None) is not None:
        os.close(handle)
    return b""


def _statfs(session: _Session, request: _Request) -> bytes:
    state = os.statvfs(session.path(request))
    counts = (state.f_blocks, state.f_bfree, state.f_bavail, state.f_files, state.f_ffree)
    return struct.pack("=QQQQQIIII6I", *counts, state.f_bsize, state.f_namemax, state.f_frsize, 0, *(0,) * 6)


_ACTIONS: dict[int, Callable[[_Session, _Request], bytes]] = {
    _INIT: _init,
    _LOOKUP: lambda session, request: session.entry(session.path(request, 0)),
    _GETATTR: _getattr,
    _SETATTR: _setattr,
    _READLINK: lambda session, request: os.fsencode(session.path(request).readlink()),
    _SYMLINK: _symlink,
    _LINK: _link,
    _MKDIR: _mkdir,
    _UNLINK: _remove,
    _RMDIR: _remove,
    _RENAME: _rename,
    _RENAME2: _rename,
    _OPEN: lambda session, request: session.opened(session.path(request), struct.unpack("=I", request.body[:4])[0]),
    _CREATE: _create,
    _READ: _read,
    _WRITE: _write,
    _RELEASE: _release,
    _STATFS: _statfs,
    _FLUSH: lambda _session, _request: b"",
    _FSYNC: lambda _session, _request: b"",
    _FSYNCDIR: lambda _session, _request: b"",
    _OPENDIR: lambda _session, _request: struct.pack("=QII", 0, 0, 0),
    _READDIR: _readdir,
    _RELEASEDIR: lambda _session, _request: b"",
}


@dataclass
class FileServer:
    """The exported folders by path; `peers` are the addresses and ports of clients that mounted."""

    exports: dict[str, Path]
    peers: list[tuple[str, int]] = field(default_factory=list)

    def serve(self, stream: socket) -> None:
        """Answer one client until it unmounts."""
        with stream, stream.makefile("rb") as reader:
            export = reader.readline(4096).decode().strip()
            if export not in self.exports:
                stream.sendall(b"no\n")
                return
            self.peers.append(stream.getpeername())
            stream.sendall(b"ok\n")
            session = _Session({1: self.exports[export]})
            with suppress(OSError, ssl.SSLError):
                while len(head := reader.read(_HEAD.size)) == _HEAD.size:
                    length, code, unique, node, uid, gid, _, _ = _HEAD.unpack(head)
                    request = _Request(code, node, uid, gid, reader.read(length - _HEAD.size))
                    reply = _reply(session, request, unique)
                    if reply:
                        stream.sendall(reply)
            session.close()


def _reply(session: _Session, request: _Request, unique: int) -> bytes:
    try:
        body, error = session.answer(request), 0
    except OSError as failed:
        body, error = b"", failed.errno or errno.EIO
    except KeyError:
        body, error = b"", errno.ESTALE
    return b"" if body is None else _REPLY.pack(_REPLY.size + len(body), -error, unique) + body


@contextmanager
def serving_files(
    host: LabHost, address: IPv4Address | str, server: FileServer, tls: ssl.SSLContext | None = None
) -> Iterator[None]:
    """Serve folders at port 2049 of an address of a lab host; with TLS if a context is given."""
    listener = bind_socket(host, address, PORT)
    listener.listen()

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=_greet, args=(server, listener.accept()[0], tls), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(SHUT_RDWR)
        listener.close()


def _greet(server: FileServer, stream: socket, tls: ssl.SSLContext | None) -> None:
    # A client that is refused, or only checks that the server answers.
    with suppress(OSError, ssl.SSLError):
        server.serve(tls.wrap_socket(stream, server_side=True) if tls else stream)
