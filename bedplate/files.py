"""Files: atomic writes (temporary file, fsync, rename, fsync of the folder), and exclusive locks (flock).

A write never follows a symbolic link at the path, never replaces anything except a regular file (such as a device), and
never gives the file more permissions than its mode, even for a moment. A lock file in the same folder has the name of
the holder; the kernel releases a lock when its holder ends, so a lock is never stale on one host.
"""

import errno
import fcntl
import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path
from typing import Any

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.foreign import LARGE, one_line, parse_json

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# Message and fix of each error of the operating system.
_ERRORS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("no space left on device", "free some disk space, then run it again"),
    errno.EDQUOT: ("your disk quota is exceeded", "free some disk space, then run it again"),
    errno.EFBIG: ("the file exceeds the size limit of this process", "raise `ulimit -f`"),
    errno.EROFS: ("the file system is read-only", "use another folder, or mount it read-write"),
    errno.EACCES: ("permission denied", "run it as the owner of the file"),
    errno.EPERM: ("permission denied", "run it as the owner of the file"),
    errno.ENOENT: ("the folder does not exist", "create the folder first"),
    errno.ENOTDIR: ("a part of the path is not a folder", "correct the path"),
    errno.EISDIR: ("it is a folder", "use another name, or move the folder"),
    errno.ELOOP: ("it is a symbolic link", "replace the link by the file itself"),
    errno.ENOLCK: ("the file system does not support locks", "use a folder on a local disk"),
    errno.EIO: ("input/output error", "read the kernel log: `dmesg`"),
}


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path`: a reader sees the old or the new content, even after a crash.

    Raises MachineError if the operating system rejects the write; the old file is then unchanged. The umask applies.
    """
    write_together({path: data}, mode)


def write_together(files: Mapping[Path, bytes], mode: int = 0o644) -> None:
    """Write several files: all temporary files are complete before the first is renamed.

    So a full disk or a missing permission raises before any old file is replaced. Raises as `write_whole`.
    """
    with _temporary_files(files, mode) as temporaries:
        for path, temporary in temporaries.items():
            with os_errors_as_machine_errors(path):
                temporary.replace(path)
    for folder, paths in _by_folder(files).items():
        with os_errors_as_machine_errors(paths[0]):
            _sync_folder(folder)


def try_out(paths: Iterable[Path]) -> None:
    """Raise as `write_whole` if one of the paths cannot be written; change nothing."""
    with _temporary_files(dict.fromkeys(paths, b""), 0o600):
        pass


def check_files_exist(*files: Path | None) -> None:
    """Raise InputError for a file that does not exist. Devices such as /dev/null are valid: ssh reads them."""
    for file in filter(None, files):
        if not file.exists():
            raise InputError("no such file", where=str(file), fix="name an existing file")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix="name a file")


def check_private(file: Path, what: str) -> None:
    """Raise InputError if other users can access a file that only its owner may read; `what` names it."""
    if file.is_file() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            f"other users can read or write {what}", where=str(file), fix=f"chmod 600 {shlex.quote(str(file))}"
        )


@contextmanager
def os_errors_as_machine_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Convert operating system errors about reading or writing a file to MachineError; pass on other errors."""
    try:
        yield
    except OSError as error:
        explanation = _ERRORS.get(error.errno or 0)
        if explanation is None:
            raise
        reason, fix = explanation
        raise MachineError(f"cannot {verb} {path.name}: {reason}", where=str(path), fix=fix) from error


def is_alive(pid: int) -> bool:
    """Return whether a process exists on this host, of any user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _temporary_files(files: Mapping[Path, bytes], mode: int) -> Iterator[dict[Path, Path]]:
    """Write a temporary file in the folder of each path; delete those that were not renamed at the end."""
    for path in files:
        with os_errors_as_machine_errors(path):
            _check_regular_file(path)
    suffix = f"{_suffix()}{os.getpid()}.{os.urandom(4).hex()}"
    temporaries = {path: path.with_name(f".{path.name}{suffix}") for path in files}
    try:
        for folder, paths in _by_folder(files).items():
            with os_errors_as_machine_errors(paths[0]):
                _remove_leftovers(folder, {path.name for path in paths})
        for path, data in files.items():
            with os_errors_as_machine_errors(path):
                _write_new(temporaries[path], data, mode)
        yield temporaries
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()


def _check_regular_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise MachineError(
            f"cannot write {path.name}: it is not a regular file", where=str(path), fix="use another name"
        )


def _write_new(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, _CREATE, mode)
    try:
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(handle, remaining) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _by_folder(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    return folders


def _suffix() -> str:
    # Contains the host: on a shared disk, process ids of another machine have no meaning here.
    return f".{os.uname().nodename}.tmp."


def _remove_leftovers(folder: Path, names: Container[str]) -> None:
    """Delete temporary files of killed writers for files of these names."""
    suffix = _suffix()
    for file in folder.iterdir():
        name, _, rest = file.name.removeprefix(".").partition(suffix)
        pid = rest.partition(".")[0]
        if rest and name in names and pid.isdecimal() and not is_alive(int(pid)):
            file.unlink(missing_ok=True)


# A holder writes its name right after it gets the lock, so a process that fails to get it reads several times.
_ATTEMPTS, _PAUSE = 10, 0.02


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock; `since` is Unix time."""

    user: str
    host: str
    pid: int
    since: float
    command: str

    @property
    def has_ended(self) -> bool:
        """Whether it was a process of this machine that has ended."""
        return self.host == os.uname().nodename and not is_alive(self.pid)

    def __str__(self) -> str:
        age = max(0, round(time.time() - self.since))
        return f"{self.user} on {self.host}, process {self.pid}, for {age} s: {self.command}"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock `path` for this process while the block runs.

    Raises HeldError with the name of the holder if another process has the lock; does not wait.
    """
    lock_file = path.with_name(f".{path.name}.held")
    with os_errors_as_machine_errors(lock_file):
        handle = _acquired(lock_file, path)
    try:
        with os_errors_as_machine_errors(lock_file):
            _write_holder(handle)
        yield
    finally:
        # Deleted before the release: a process that has opened it finds it deleted, and opens a new one.
        with suppress(OSError):
            lock_file.unlink()
        os.close(handle)


def _acquired(lock_file: Path, path: Path) -> int:
    """Return a handle of the lock file, locked by this process."""
    while True:
        with ExitStack() as closing:
            handle = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            closing.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _held_error(handle, path) from None
            if _is_at(handle, lock_file):
                closing.pop_all()
                return handle


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _held_error(handle: int, path: Path) -> HeldError:
    return HeldError(
        f"{path.name} is locked by {_holder(handle) or 'an unknown process'}",
        where=str(path),
        fix="wait until that command has ended, then run yours again",
    )


def _write_holder(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(this_process())).encode(), 0)


def this_process() -> Holder:
    """Return this process as a holder."""
    command = " ".join(sys.argv)[:200]
    return Holder(login_name(), os.uname().nodename, os.getpid(), time.time(), command)


def login_name() -> str:
    """Return the name of the current user."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container may run with a uid without an account
        return f"user {os.getuid()}"


def _holder(handle: int) -> Holder | None:
    for _ in range(_ATTEMPTS):
        holder = parse_holder(os.pread(handle, 4096, 0))
        if holder is not None and not holder.has_ended:
            return holder
        time.sleep(_PAUSE)
    return None


def parse_holder(text: bytes) -> Holder | None:
    """Return the holder in a JSON document; None for an invalid one."""
    try:
        holder = parse_json(text)
        user, host, command = (one_line(str(holder[key])) for key in ("user", "host", "command"))
        return Holder(user, host, int(holder["pid"]), float(holder["since"]), command)
    except (ValueError, TypeError, KeyError):
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty for a missing or broken file."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"), LARGE)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
