"""Files of tunnels on this machine: which are not as they were sent, and how they come to be, all of them or none."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from .shipment import IPSEC, UNIT_PREFIX, UNITS, File, Shipment

_NEW = ".new"


def differing(root: Path, files: Iterable[File]) -> tuple[File, ...]:
    """Return the files that are not there, or not with this text and this mode."""
    return tuple(file for file in files if not _stands(_at(root, file.path), file))


def left_over(root: Path, shipment: Shipment) -> tuple[str, ...]:
    """Return the paths of charon's files and units here that were not sent."""
    found = [*_at(root, IPSEC).rglob("*"), *_at(root, UNITS).glob(f"{UNIT_PREFIX}*")]
    paths = {f"/{each.relative_to(root)}" for each in found if not each.is_dir()}
    return tuple(sorted(paths - shipment.paths))


def replace(root: Path, files: Iterable[File], judge: Callable[[Path, File], None]) -> None:
    """Put files in place, once all are written and none was refused: whatever `judge` raises leaves the old ones."""
    staged: dict[Path, Path] = {}
    try:
        for file in files:
            path = _at(root, file.path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if file.path.startswith(IPSEC) else 0o755)
            staged[path] = path.with_name(path.name + _NEW)
            _write(staged[path], file, _owner(path))
            judge(staged[path], file)
        for path, new in staged.items():
            new.replace(path)
    finally:
        for new in staged.values():
            new.unlink(missing_ok=True)


def remove(root: Path, paths: Iterable[str]) -> None:
    """Delete files, and charon's folders that are empty then."""
    for path in paths:
        _at(root, path).unlink(missing_ok=True)
    folders = [each for each in _at(root, IPSEC).rglob("*") if each.is_dir()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def text_at(root: Path, path: str) -> str:
    """Return the text of a file, nothing where there is none."""
    file = _at(root, path)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _stands(path: Path, file: File) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_mode & 0o7777 != file.mode:
        return False
    return path.read_bytes() == file.text.encode()


def _owner(path: Path) -> tuple[int, int]:
    """Return to whom a new file belongs: FRR's own is FRR's, and says so where it lies."""
    found = (path if path.exists() else path.parent).stat()
    return found.st_uid, found.st_gid


def _write(path: Path, file: File, owner: tuple[int, int]) -> None:
    """Write a file that nobody but root reads before it is whole."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(file.text.encode())
        stream.flush()
        os.fchown(handle, *owner)
        os.fchmod(handle, file.mode)
        os.fsync(handle)


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
