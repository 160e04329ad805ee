"""The units of tunnels, told what has changed: the guard first, and charon only if something of its own changed."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from .shipment import BGP, CHARON, DIAL, GUARD, KERNEL, LAST_ROUTES, SERVICE, SETTINGS, TABLE, UNITS, WATCH, Shipment
from .trouble import Refusal, Unfinished

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
