"""`python3 -m bedplate.machine.idle`: see whether this machine is in use, and report it to its bucket.

A timer runs it every minute, with the standard library only. A value that cannot be read counts as use: the report of
an unused machine ends it. A reboot or a missed quarter of an hour begins the idle time again.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.files import read_json, write_whole

LOAD = 0.5
"""The load average of five minutes from which CPUs work: half a thread, for any number of CPUs."""
OWN_LOAD = 1.0
"""The load that the machine's own configuration run may add to an unused machine."""
_PERIOD, _GAP = 300, 900
_PROGRAM = "/usr/local/lib/bedplate/bootstrap"
_NVIDIA = "0x10de"
_OWN_RUN = "bedplate-node.service"
_OWN_RUN_SECONDS = 600.0  # after its end, the load average still has it
_PATIENCE = 60


class UnknownError(Exception):
    """A program that reports use has failed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine; tests use another root, and answer for its programs."""

    root: Path = Path("/")

    def output(self, *command: str) -> str:
        """Return the output of a program. Raises UnknownError."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            raise UnknownError(f"unknown use: {command[0]} failed ({type(error).__name__})") from None
        return done.stdout

    def read(self, path: str) -> str:
        """Return the text of a file. Raises UnknownError."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UnknownError(f"unknown use: cannot read /{path}: {error}") from None


def use_of(machine: Machine, *, was_idle: bool) -> str:
    """Return what uses a machine, in words; empty if nothing does."""
    try:
        return _sessions(machine) or _load(machine, was_idle=was_idle) or _gpus(machine)
    except UnknownError as error:
        return str(error)
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


def main(machine: Machine, now: int) -> None:
    """Look at the machine, and write the report."""
    looks, published = machine.root / "run/bedplate/idle.json", machine.root / "var/lib/bedplate/status/idle.json"
    last = read_json(looks)
    report = next_report(last, use_of(machine, was_idle=bool(last.get("idle_since"))), now)
    _write_json(looks, report)
    if is_due(read_json(published), report):
        _write_json(published, report)
        try:
            machine.output("env", "STATUS=idle", _PROGRAM, "put_status")
        except UnknownError as error:
            published.unlink()  # the next look tries again
            sys.stderr.write(f"{error}\n")


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(document) + "\n").encode())
