"""Checks of the machine: clock, root disk, mounts and EFA devices."""

import os
from collections.abc import Iterator

from ..program import ProgramError
from .machine import Expected, Machine
from .verdict import Finding, hardware, software, unknown

# The share of the root disk that must be free.
_LEAST_FREE = 0.05
_INFINIBAND = "/sys/class/infiniband"
_EFA = {"vendor": "0x1d0f", "device": "0xefa"}


def check_system(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the machine."""
    yield _clock(machine)
    yield _root_disk(machine)
    yield from (_mount(machine, path) for path in expected.mounts)
    if expected.efa:
        yield _efa(machine, expected.efa)


def _clock(machine: Machine) -> Finding:
    if container := machine.read("/run/systemd/container"):
        return Finding("clock", f"not checked: this {container} uses the clock of its host")
    try:
        report = machine.output("chronyc", "-n", "tracking")
    except ProgramError as error:
        return software("clock", str(error))
    leap = next((line.partition(":")[2].strip() for line in report.splitlines() if line.startswith("Leap")), "unknown")
    if leap == "Not synchronised":
        return software("clock", "not synchronised")
    return Finding("clock", f"synchronised, leap status {leap}")


def _root_disk(machine: Machine) -> Finding:
    state = os.statvfs(machine.root)
    # The mounts of process 1: a unit may see the root read-only.
    mounts = (line.split() for line in machine.read("/proc/1/mounts").splitlines())
    if any(path == "/" and "ro" in options.split(",") for _, path, _, options, *_ in mounts):
        return hardware("root-disk", "read-only: the kernel saw an error of the disk")
    free = state.f_bavail / state.f_blocks if state.f_blocks else 1.0
    text = f"{free:.0%} free"
    return software("root-disk", text) if free < _LEAST_FREE else Finding("root-disk", text)


def _mount(machine: Machine, path: str) -> Finding:
    container = machine.read("/run/systemd/container")
    if container and "nfs4" not in machine.read("/proc/filesystems").split():
        return Finding("mounts", f"{path}: the host of this {container} has no NFS")
    try:
        # As a subprocess with a timeout, because a call to a mount whose server does not answer blocks forever.
        machine.output("stat", "--file-system", "--format=%T", f"{machine.root / path.lstrip('/')}/.")
        machine.output("findmnt", "--mountpoint", path, "--types", "nfs,nfs4", "--noheadings")
    except ProgramError as error:
        return software("mounts", f"{path}: {error}")
    return Finding("mounts", f"{path} answers")


def _efa(machine: Machine, planned: int) -> Finding:
    devices = [
        name for name in machine.names(_INFINIBAND) if "efa" in machine.read(f"{_INFINIBAND}/{name}/device/uevent")
    ]
    text = f"{len(devices)} EFA devices, planned {planned}"
    if len(devices) < planned:
        # Devices that the bus has, and the kernel has not, lack their driver.
        on_bus = machine.count_devices(_EFA)
        has_driver = bool(devices) or on_bus is None or on_bus < planned
        return hardware("efa", text) if has_driver else software("efa", f"{text}: no driver is loaded")
    return Finding("efa", text) if len(devices) == planned else unknown("efa", text)
