"""A site's tunnels, put in force: its files come to lie as they were sent, and what reads them is told.

What an end of the power left between the two is remembered, and done by the next.
"""

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

from .place import (
    BGP,
    CHARON,
    CONNECTIONS,
    DIAL,
    GUARD,
    IPSEC,
    KERNEL,
    LAST_ROUTES,
    SERVICE,
    SETTINGS,
    TABLE,
    UNIT_PREFIX,
    UNITS,
    WATCH,
    File,
    Place,
    Refusal,
    Shipment,
    Unfinished,
)

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


GUARD_UNIT, BGP_UNIT = "bedplate-guard.service", "frr.service"
_KINDS = (".service", ".timer")
_SECONDS = 25
_LONGEST = 160
_XFRM = re.compile(r"^(ipsec[0-9]+)[@ ]", re.MULTILINE)
_SENT_BY = re.compile(r"^\s*if_id_out = ([0-9]+)$", re.MULTILINE)


def check_rules(path: Path) -> None:
    """Refuse rules that the packet filter would not take; Refusal."""
    try:
        _run("nft", "--check", "--file", str(path))
    except Unfinished as error:
        raise Refusal(f"what was sent is no packet filter: {error}") from None


def stop(paths: Iterable[str]) -> None:
    """Stop the units among these files, for good."""
    units = [path.removeprefix(UNITS) for path in paths if path.startswith(UNITS) and path.endswith(_KINDS)]
    if units:
        _run("systemctl", "disable", "--now", *units)


def tell(changed: AbstractSet[str], *, is_anew: bool) -> None:
    """Have everything that runs take the files that changed; `is_anew` restarts charon."""
    if {GUARD, LAST_ROUTES} & changed:
        _run("systemctl", "reload-or-restart", GUARD_UNIT)
    if KERNEL in changed:
        _run("systemctl", "restart", "systemd-sysctl.service")
    if any(path.startswith(UNITS) for path in changed):
        _run("systemctl", "daemon-reload")
    _tell_charon(changed, is_anew=is_anew)
    if BGP in changed:
        _run("systemctl", "reload-or-restart", BGP_UNIT)


def start(shipment: Shipment) -> tuple[str, ...]:
    """Start what does not run, now and at each boot, and return its names; Unfinished where one does not start."""
    units = tuple(_units(shipment))
    told = _ask("systemctl", "is-active", *units).split()
    _run("systemctl", "enable", "--now", *units)
    return tuple(unit for unit, state in zip(units, told, strict=True) if state != "active")


def drop_devices(connections: str) -> None:
    """Delete the XFRM interfaces that no connection uses."""
    wanted = {f"ipsec{number}" for number in _SENT_BY.findall(connections)}
    for device in _XFRM.findall(_ask("ip", "-brief", "link", "show", "type", "xfrm")):
        if device not in wanted:
            _run("ip", "link", "delete", device)


def _tell_charon(changed: AbstractSet[str], *, is_anew: bool) -> None:
    if is_anew or {SETTINGS, f"{UNITS}{SERVICE}"} & changed:
        _run("systemctl", "try-restart", SERVICE)
    elif any(path.startswith(CHARON) for path in changed):
        _run("systemctl", "try-reload-or-restart", SERVICE)
    # It reads the table when it starts, and is a process of the script that there was then.
    if {f"{UNITS}{DIAL}", TABLE, WATCH} & changed:
        _run("systemctl", "try-restart", DIAL)


def _units(shipment: Shipment) -> Iterator[str]:
    yield GUARD_UNIT
    if BGP in shipment.paths:
        yield BGP_UNIT
    if shipment.has_tunnels:
        yield from (SERVICE, DIAL)


def _run(*command: str) -> None:
    done = _done(command)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:_LONGEST]
        raise Unfinished(f"{' '.join(command[:3])}: status {done.returncode}: {last}")


def _ask(*command: str) -> str:
    return _done(command).stdout


def _done(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  # names of units, charons and devices that were judged when they came in
            command, capture_output=True, errors="replace", check=False, timeout=_SECONDS
        )
    except FileNotFoundError:
        raise Refusal(f"there is no {command[0]} here: apply the role guard first") from None
    except subprocess.TimeoutExpired:
        raise Unfinished(f"{' '.join(command[:3])}: nothing after {_SECONDS} s") from None


def lay(place: Place, shipment: Shipment | None) -> dict[str, tuple[str, ...]]:
    """Put a shipment in force, and return what was written, taken away and started: nothing the second time.

    Raises Refusal, before anything is changed, for what bedplate never sends, and where the role is not in force.
    """
    if shipment is None:
        raise Refusal("these are no files of tunnels, or not all: nothing was changed")
    _check_ground(place.root)
    place.memory.mkdir(parents=True, exist_ok=True)
    with _alone(place.memory):
        written = differing(place.root, shipment.files)
        gone = left_over(place.root, shipment)
        unfinished = _unfinished(place.unfinished)
        if written or gone or unfinished:
            _change(place, shipment, written, gone, unfinished)
        started = start(shipment)
    return {"written": tuple(file.path for file in written), "removed": gone, "started": started}


def _change(
    place: Place, shipment: Shipment, written: tuple[File, ...], gone: tuple[str, ...], unfinished: AbstractSet[str]
) -> None:
    changed = {file.path for file in written} | unfinished
    # What an unfinished run replaced is not known any more.
    is_anew = any(path.startswith(CHARON) for path in unfinished) or _loses_a_tunnel(place.root, shipment)
    replace(place.root, (_note(place, {*changed, *gone}), *written), _judge)
    stop(gone)
    remove(place.root, gone)
    drop_devices(shipment.text(CONNECTIONS))
    tell(changed | set(gone), is_anew=is_anew)
    place.unfinished.unlink()


def _loses_a_tunnel(root: Path, shipment: Shipment) -> bool:
    """Tell whether the table loses a line: new settings alone do not take a tunnel down."""
    return not set(text_at(root, TABLE).splitlines()) <= set(shipment.text(TABLE).splitlines())


def _judge(new: Path, file: File) -> None:
    if file.path == GUARD:
        check_rules(new)


def _note(place: Place, changed: AbstractSet[str]) -> File:
    return File(f"/{place.unfinished.relative_to(place.root)}", json.dumps(sorted(changed)), 0o600)


def _unfinished(path: Path) -> frozenset[str]:
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


def _check_ground(root: Path) -> None:
    if not (root / UNITS.lstrip("/") / GUARD_UNIT).is_file():
        raise Refusal(f"there is no {GUARD_UNIT} here: apply the role guard first")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
