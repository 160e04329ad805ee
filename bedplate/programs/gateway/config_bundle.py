"""Apply a config bundle: write the files of a gateway's tunnels, and reload the services that read them.

Files that were written and not yet loaded are recorded. After a power failure the next call loads them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from ..program import MissingProgramError, Result, replace, run, stage
from .paths import (
    CHARON,
    CHARON_UNIT,
    DIAL_UNIT,
    FRR_CONF,
    GUARD_RULES,
    IPSEC,
    LAST_ROUTES,
    STRONGSWAN_CONF,
    SWANCTL_CONF,
    SYSCTL_CONF,
    TUNNEL_TABLE,
    UNIT_PREFIX,
    UNITS,
    WATCH_SCRIPT,
    ConfigBundle,
    File,
    GatewayPaths,
    IncompleteError,
    RejectedError,
    lock_folder,
)

_GUARD_UNIT, _FRR_UNIT = "bedplate-guard.service", "frr.service"
_UNIT_TYPES = (".service", ".timer")
_TIMEOUT_S = 25
_XFRM_DEVICE = re.compile(r"^(ipsec[0-9]+)[@ ]", re.MULTILINE)
_INTERFACE_ID = re.compile(r"^\s*if_id_out = ([0-9]+)$", re.MULTILINE)


def apply_bundle(paths: GatewayPaths, bundle: ConfigBundle | None) -> dict[str, tuple[str, ...]]:
    """Apply a config bundle and return the written, removed and started items: none if it is applied already.

    Raise RejectedError, before anything is changed, for an invalid bundle (None), or if the role guard is missing.
    """
    if bundle is None:
        raise RejectedError("invalid config bundle: nothing was changed")
    if not paths.at(UNITS + _GUARD_UNIT).is_file():
        raise RejectedError(f"no {_GUARD_UNIT} on this gateway: apply the role guard first")
    paths.state.mkdir(parents=True, exist_ok=True)
    with lock_folder(paths.state):
        changed = _changed_files(paths, bundle.files)
        stale = _stale_files(paths, bundle)
        pending = _read_pending(paths.pending_files)
        if changed or stale or pending:
            _change(paths, bundle, changed, stale, pending)
        started = _start_units(bundle)
    return {"written": tuple(file.path for file in changed), "removed": stale, "started": started}


def _change(
    paths: GatewayPaths,
    bundle: ConfigBundle,
    changed: tuple[File, ...],
    stale: tuple[str, ...],
    pending: AbstractSet[str],
) -> None:
    to_load = {file.path for file in changed} | pending
    # A run that was interrupted may have replaced the old tunnel table: it cannot be compared any more.
    restarts_charon = any(path.startswith(CHARON) for path in pending) or _removes_tunnel(paths, bundle)
    _replace_files(paths, (_pending_file(paths, {*to_load, *stale}), *changed), _check_guard_rules)
    _stop_units(stale)
    _delete_files(paths, stale)
    _delete_unused_devices(bundle.text(SWANCTL_CONF))
    _reload_services(to_load | set(stale), restarts_charon=restarts_charon)
    paths.pending_files.unlink()


def _changed_files(paths: GatewayPaths, files: Iterable[File]) -> tuple[File, ...]:
    """Return the files that are missing on the gateway, or differ in text or mode."""
    return tuple(file for file in files if not _is_unchanged(paths.at(file.path), file))


def _is_unchanged(path: Path, file: File) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_mode & 0o7777 != file.mode:
        return False
    return path.read_bytes() == file.text.encode()


def _stale_files(paths: GatewayPaths, bundle: ConfigBundle) -> tuple[str, ...]:
    """Return the paths of charon's files and units that are not in the bundle."""
    existing = [*paths.at(IPSEC).rglob("*"), *paths.at(UNITS).glob(f"{UNIT_PREFIX}*")]
    files = {f"/{path.relative_to(paths.root)}" for path in existing if not path.is_dir()}
    return tuple(sorted(files - bundle.paths))


def _removes_tunnel(paths: GatewayPaths, bundle: ConfigBundle) -> bool:
    """Return whether the tunnel table loses a line: charon closes a tunnel only when it restarts."""
    table = paths.tunnel_table
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    return not set(lines) <= set(bundle.text(TUNNEL_TABLE).splitlines())


def _pending_file(paths: GatewayPaths, changed: AbstractSet[str]) -> File:
    return File(f"/{paths.pending_files.relative_to(paths.root)}", json.dumps(sorted(changed)), 0o600)


def _read_pending(path: Path) -> frozenset[str]:
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


def _replace_files(paths: GatewayPaths, files: Iterable[File], check: Callable[[Path, File], None]) -> None:
    """Replace files after all are staged and checked; an error of `check` leaves the old files."""
    staged: dict[Path, Path] = {}
    try:
        for file in files:
            path = paths.at(file.path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if file.path.startswith(IPSEC) else 0o755)
            staged[path] = stage(path, file.text.encode(), file.mode, _owner(path))
            check(staged[path], file)
        for path, new in staged.items():
            replace(new, path)
    finally:
        for new in staged.values():
            new.unlink(missing_ok=True)


def _owner(path: Path) -> tuple[int, int]:
    """Return the user and group of a new file: of the old file or its folder, as for FRR's files."""
    status = (path if path.exists() else path.parent).stat()
    return status.st_uid, status.st_gid


def _check_guard_rules(staged: Path, file: File) -> None:
    """Raise RejectedError if nftables does not accept the packet filter."""
    if file.path != GUARD_RULES:
        return
    try:
        _run("nft", "--check", "--file", str(staged))
    except IncompleteError as error:
        raise RejectedError(f"invalid packet filter in the config bundle: {error}") from None


def _delete_files(paths: GatewayPaths, files: Iterable[str]) -> None:
    """Delete files, and the folders of charon that are empty then."""
    for file in files:
        paths.at(file).unlink(missing_ok=True)
    folders = [path for path in paths.at(IPSEC).rglob("*") if path.is_dir()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def _stop_units(files: Iterable[str]) -> None:
    """Stop and disable the units among these files."""
    units = [file.removeprefix(UNITS) for file in files if file.startswith(UNITS) and file.endswith(_UNIT_TYPES)]
    if units:
        _run("systemctl", "disable", "--now", *units)


def _start_units(bundle: ConfigBundle) -> tuple[str, ...]:
    """Enable and start all units, and return the inactive ones; raise IncompleteError if one fails."""
    units = tuple(_units(bundle))
    states = _run_unchecked("systemctl", "is-active", *units).text.split()
    _run("systemctl", "enable", "--now", *units)
    return tuple(unit for unit, state in zip(units, states, strict=True) if state != "active")


def _units(bundle: ConfigBundle) -> Iterator[str]:
    yield _GUARD_UNIT
    if FRR_CONF in bundle.paths:
        yield _FRR_UNIT
    if bundle.has_tunnels:
        yield from (CHARON_UNIT, DIAL_UNIT)


def _reload_services(changed: AbstractSet[str], *, restarts_charon: bool) -> None:
    """Reload or restart every service that reads a changed file."""
    if {GUARD_RULES, LAST_ROUTES} & changed:
        _run("systemctl", "reload-or-restart", _GUARD_UNIT)
    if SYSCTL_CONF in changed:
        _run("systemctl", "restart", "systemd-sysctl.service")
    if any(path.startswith(UNITS) for path in changed):
        _run("systemctl", "daemon-reload")
    if restarts_charon or {STRONGSWAN_CONF, f"{UNITS}{CHARON_UNIT}"} & changed:
        _run("systemctl", "try-restart", CHARON_UNIT)
    elif any(path.startswith(CHARON) for path in changed):
        _run("systemctl", "try-reload-or-restart", CHARON_UNIT)
    # The script reads the table only when it starts.
    if {f"{UNITS}{DIAL_UNIT}", TUNNEL_TABLE, WATCH_SCRIPT} & changed:
        _run("systemctl", "try-restart", DIAL_UNIT)
    if FRR_CONF in changed:
        _run("systemctl", "reload-or-restart", _FRR_UNIT)


def _delete_unused_devices(connections: str) -> None:
    """Delete the XFRM interfaces that no connection uses."""
    used = {f"ipsec{number}" for number in _INTERFACE_ID.findall(connections)}
    for device in _XFRM_DEVICE.findall(_run_unchecked("ip", "-brief", "link", "show", "type", "xfrm").text):
        if device not in used:
            _run("ip", "link", "delete", device)


def _run(*command: str) -> None:
    """Run a command; raise IncompleteError if it fails."""
    if error := _run_unchecked(*command).error:
        raise IncompleteError(error)


def _run_unchecked(*command: str) -> Result:
    try:
        result = run(*command, seconds=_TIMEOUT_S)
    except MissingProgramError:
        raise RejectedError(f"no program {command[0]} on this gateway: apply the role guard first") from None
    if result.limit:
        raise IncompleteError(result.error)
    return result
