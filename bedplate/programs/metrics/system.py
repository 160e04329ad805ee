"""Collectors of what any machine may have: mounts, EFA devices, and the age of audit, image and bundle."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..gate.machine import Machine

Sample = tuple[str, Mapping[str, str], float]
"""The name of a metric, its labels and its value."""
INFINIBAND = "/sys/class/infiniband"
_STATE, _IMAGE = "/var/lib/bedplate", "/usr/share/bedplate/image.json"


def collect_mounts(machine: Machine, mounts: Sequence[str]) -> Iterator[Sample]:
    """Yield whether each mount answers, and how fast: a program asks it, which is killed if the server does not."""
    with ThreadPoolExecutor(max(1, len(mounts))) as pool:
        for mount, seconds in zip(mounts, pool.map(partial(_ask, machine), mounts), strict=True):
            yield "bedplate_mount_answers", {"mount": mount}, float(seconds >= 0)
            if seconds >= 0:
                yield "bedplate_mount_seconds", {"mount": mount}, seconds


def _ask(machine: Machine, mount: str) -> float:
    """Return the seconds until a mount answers; below 0 if it does not, or nothing is mounted there."""
    start = time.monotonic()
    path = f"{machine.root / mount.lstrip('/')}/."
    if machine.run("stat", "--file-system", "--format=%T", path).error:
        return -1.0
    seconds = time.monotonic() - start
    # In the list of this process, which has all mounts that the machine has. A look at the path would not end either.
    mounted = (line.split()[1] for line in machine.read("/proc/self/mounts").splitlines())
    return seconds if mount in mounted else -1.0


def collect_efa(machine: Machine) -> Iterator[Sample]:
    """Yield the counters of EFA devices, by the names of AWS's exporter."""
    for device in machine.names(INFINIBAND):
        if "efa" not in machine.read(f"{INFINIBAND}/{device}/device/uevent"):
            continue
        for port in machine.names(f"{INFINIBAND}/{device}/ports"):
            folder = f"{INFINIBAND}/{device}/ports/{port}/hw_counters"
            for name in machine.names(folder):
                value = machine.read(f"{folder}/{name}")
                # Beside the counters there is how long the kernel keeps them.
                if value.isdecimal() and name != "lifespan":
                    yield f"node_amazonefa_{name}", {"device": device, "port": port}, float(value)


def collect_ages(machine: Machine) -> Iterator[Sample]:
    """Yield the last audit by the machine itself, the time of its image, and its bundle: what there is of them."""
    if text := machine.read(f"{_STATE}/status/audit.json"):
        audit = json.loads(text)
        verdicts = [verdict for node in audit["nodes"] for verdict in node["verdicts"]]
        violations = sum(verdict["outcome"] == "failed" for verdict in verdicts)
        yield "bedplate_audit_violations", {}, float(violations)
        yield "bedplate_audit_time_seconds", {}, float(audit["time"])
    image = machine.root / _IMAGE.lstrip("/")
    if image.exists():
        yield "bedplate_image_time_seconds", {}, image.stat().st_mtime
    if text := machine.read(f"{_STATE}/node.json"):
        yield "bedplate_bundle_info", {"version": str(json.loads(text).get("bundle", ""))}, 1.0
