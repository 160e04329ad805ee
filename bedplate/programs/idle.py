"""`python3 -m bedplate.machine.idle`: see whether this machine is in use, and report it to its bucket.

A timer runs it every minute, with the standard library only. A value that cannot be read counts as use, because an
unused machine ends. A reboot or a missed quarter of an hour begins the idle time again.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .gpus import gpu_files, is_locked
from .program import ProgramError, output, write_text

LOAD = 0.5
"""The load average of five minutes from which CPUs work: half a thread, for any number of CPUs."""
OWN_LOAD = 1.0
"""The load that the machine's own configuration run may add to an unused machine."""
_PERIOD, _GAP, _LOOK = 300, 900, 60
PROGRAM = "/usr/local/lib/bedplate/bootstrap"
_NVIDIA = "0x10de"
_OWN_RUN = "bedplate-node.service"
_OWN_RUN_SECONDS = 600.0  # after its end, the load average still has it


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine; tests use another root, and answer for its programs."""

    root: Path = Path("/")

    def output(self, *command: str) -> str:
        """Return the output of a program. Raises ProgramError."""
        return output(*command)

    def read(self, path: str) -> str:
        """Return the text of a file. Raises ProgramError."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ProgramError(f"cannot read /{path}: {error}") from None


def use_of(machine: Machine, *, was_idle: bool) -> str:
    """Return what uses a machine, in words; empty if nothing does."""
    try:
        return _sessions(machine) or _leases(machine) or _load(machine, was_idle=was_idle) or _gpus(machine)
    except ProgramError as error:
        return f"unknown use: {error}"
    except (ValueError, IndexError):
        return "unknown use: a program printed something unexpected"


def _sessions(machine: Machine) -> str:
    """Return who is logged in. A session that is closing has programs left, but no person: their load counts."""
    ids = [line.split()[0] for line in machine.output("loginctl", "list-sessions", "--no-legend").splitlines() if line]
    if not ids:
        return ""
    text = machine.output("loginctl", "show-session", "--property=Name", "--property=Class", "--property=State", *ids)
    sessions = [dict(line.split("=", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
    people = {entry["Name"] for entry in sessions if entry["Class"].startswith("user") and entry["State"] != "closing"}
    return f"logged in: {', '.join(sorted(people))}" if people else ""


def _leases(machine: Machine) -> str:
    """Return which GPUs somebody has leased: the program may be loading its data."""
    files = gpu_files(machine.root / "run/bedplate/gpus").items()
    return ", ".join(f"GPU {index} is leased" for index, path in files if is_locked(path))


def _load(machine: Machine, *, was_idle: bool) -> str:
    load = float(machine.read("proc/loadavg").split()[1])
    limit = LOAD + OWN_LOAD if was_idle and _configures_itself(machine) else LOAD
    return f"CPU load {load:.2f}" if load >= limit else ""


def _configures_itself(machine: Machine) -> bool:
    """Return whether the configuration run is active, or has just ended."""
    text = machine.output("systemctl", "show", "--property=ActiveState,InactiveEnterTimestampMonotonic", _OWN_RUN)
    values = dict(line.split("=", 1) for line in text.splitlines())
    ended = int(values["InactiveEnterTimestampMonotonic"]) / 1e6
    return values["ActiveState"] == "activating" or (ended > 0 and time.monotonic() - ended < _OWN_RUN_SECONDS)


def _gpus(machine: Machine) -> str:
    vendors = (machine.root / "sys/bus/pci/devices").glob("*/vendor")
    if not any(vendor.read_text(encoding="utf-8").strip() == _NVIDIA for vendor in vendors):
        return ""
    text = machine.output("nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    busy = [f"GPU {index} at {share} %" for index, share in rows if share != "0"]
    return ", ".join(busy) if rows else "unknown use: nvidia-smi lists no GPU"


def next_report(last: Mapping[str, Any], use: str, now: int) -> Mapping[str, Any]:
    """Return the report after a look at the machine; `last` is that of the look before, or empty."""
    since = last.get("idle_since") if now - last.get("time", 0) <= _GAP else None
    return {"version": 1, "time": now, "idle_since": None if use else since or now, "use": use}


def is_due(published: Mapping[str, Any], report: Mapping[str, Any]) -> bool:
    """Return whether a report must be written to the bucket: every five minutes, or after the use has changed."""
    has_changed = published.get("idle_since") != report["idle_since"]
    return bool(has_changed or report["time"] - published.get("time", 0) >= _PERIOD)


def is_over(machine: Machine, now: float) -> bool:
    """Return whether the idle time of the machine's plan is over; once in five minutes, for one try to end."""
    node = _read_json(machine.root / "var/lib/bedplate/document.json").get("node", {})
    since = _read_json(machine.root / "run/bedplate/idle.json").get("idle_since")
    if not (isinstance(node, dict) and isinstance(limit := node.get("idle"), int | float) and since):
        return False
    return bool(now - since >= limit and (now - since - limit) % _PERIOD < _LOOK)


def main(machine: Machine, now: int) -> None:
    """Look at the machine, and write the report."""
    looks, published = machine.root / "run/bedplate/idle.json", machine.root / "var/lib/bedplate/status/idle.json"
    last = _read_json(looks)
    report = next_report(last, use_of(machine, was_idle=bool(last.get("idle_since"))), now)
    write_text(looks, json.dumps(report) + "\n")
    if is_due(_read_json(published), report):
        write_text(published, json.dumps(report) + "\n")
        try:
            machine.output("env", "STATUS=idle", PROGRAM, "put_status")
        except ProgramError as error:
            published.unlink()  # the next look tries again
            sys.stderr.write(f"{error}\n")


def _read_json(path: Path) -> Mapping[str, Any]:
    """Return a report of this program; empty for a missing or broken one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
