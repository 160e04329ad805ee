"""Files written whole or not at all: temporary file, fsync, rename, fsync of the folder.

Never follows a symbolic link at the path, never takes the place of what is no file (a device would be gone for all of
this machine's programs), and never leaves what it wrote looser than its mode for an instant.
"""

import errno
import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bedplate.errors import MachineError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# What the machine may lack, and what to do about it.
_LACKS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "free some space and run it again"),
    errno.EDQUOT: ("your disk quota is used up", "free some space and run it again"),
    errno.EFBIG: ("the file would be larger than this process may write", "raise `ulimit -f`"),
    errno.EROFS: ("the file system is read-only", "write to another folder, or mount it for writing"),
    errno.EACCES: ("you have no right to it", "run it as its owner"),
    errno.EPERM: ("you have no right to it", "run it as its owner"),
    errno.ENOENT: ("the folder does not exist", "make the folder first"),
    errno.ENOTDIR: ("a part of the path is no folder", "correct the path"),
    errno.EISDIR: ("a folder has that name", "move the folder away"),
    errno.ELOOP: ("a symbolic link stands in the way", "put the file itself there"),
    errno.ENOLCK: ("the file system keeps no locks", "use a folder on a local disk"),
    errno.EIO: ("the disk failed", "look at the kernel's log: `dmesg`"),
}


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put `data` at `path`: a reader sees the old content or the new one, even after a crash.

    Raises MachineError where the machine refuses; the old file is then as it was. The umask narrows `mode`.
    """
    write_together({path: data}, mode)


def write_together(files: Mapping[Path, bytes], mode: int = 0o644) -> None:
    """Put each content at its path, all of them filled before the first takes its name.

    What a machine refuses (a full disk, a right) it refuses before any old file is replaced; raises as `write_whole`.
    """
    with _beside(files, mode) as temporaries:
        for path, temporary in temporaries.items():
            with told_plainly(path):
                temporary.replace(path)
    for folder, paths in _by_folder(files).items():
        with told_plainly(paths[0]):
            _sync_folder(folder)


def try_out(paths: Iterable[Path]) -> None:
    """Raise as `write_whole` where one of the paths cannot be written; leave everything as it is."""
    with _beside(dict.fromkeys(paths, b""), 0o600):
        pass


@contextmanager
def told_plainly(path: Path, verb: str = "write") -> Iterator[None]:
    """Turn what a machine may lack to read or write a file into a MachineError; let other errors through."""
    try:
        yield
    except OSError as error:
        lack = _LACKS.get(error.errno or 0)
        if lack is None:
            raise
        what, fix = lack
        raise MachineError(f"cannot {verb} {path.name}: {what}", where=str(path), fix=fix) from error


def is_alive(pid: int) -> bool:
    """Tell whether a process of this host exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _beside(files: Mapping[Path, bytes], mode: int) -> Iterator[dict[Path, Path]]:
    """Fill a file beside each path; in the end none is left there that has not taken its name."""
    for path in files:
        with told_plainly(path):
            _refuse_what_is_no_file(path)
    mark = f"{_mark()}{os.getpid()}.{os.urandom(4).hex()}"
    temporaries = {path: path.with_name(f".{path.name}{mark}") for path in files}
    try:
        for folder, paths in _by_folder(files).items():
            with told_plainly(paths[0]):
                _sweep(folder, {path.name for path in paths})
        for path, data in files.items():
            with told_plainly(path):
                _fill(temporaries[path], data, mode)
        yield temporaries
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()


def _refuse_what_is_no_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise MachineError(f"cannot write {path.name}: it is no file", where=str(path), fix="name a file")


def _fill(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, _CREATE, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
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


def _mark() -> str:
    # The host is in it: on a shared disk a process number of another machine says nothing here.
    return f".{os.uname().nodename}.tmp."


def _sweep(folder: Path, names: Container[str]) -> None:
    """Remove what writers that were killed have left beside files of these names."""
    mark = _mark()
    for left in folder.iterdir():
        name, _, rest = left.name.removeprefix(".").partition(mark)
        pid = rest.partition(".")[0]
        if rest and name in names and pid.isdecimal() and not is_alive(int(pid)):
            left.unlink(missing_ok=True)
