"""Checks of everything but GPUs: clock, disks, mounts and EFA devices."""

import os
from collections.abc import Iterator

from .expected import Expected
from .machine import FailedProgramError, Machine, MissingProgramError
from .verdict import Action, Finding

_LEAST_FREE = 0.05


def check_system(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the machine."""
    yield _clock(machine)
    yield _root_disk(machine)
    yield from (_mount(machine, path) for path in expected.mounts)
    if expected.efa:
        yield _efa(machine, expected.efa)


def _clock(machine: Machine) -> Finding:
    if container := machine.read("/run/systemd/container"):
        return Finding("clock", f"that of the host of this {container}")
    try:
        report = machine.output("chronyc", "-n", "tracking")
    except (FailedProgramError, MissingProgramError) as error:
        return Finding("clock", str(error), Action.REPAIR)
    leap = next((line.partition(":")[2].strip() for line in report.splitlines() if line.startswith("Leap")), "unknown")
    if leap == "Not synchronised":
        return Finding("clock", "not synchronised", Action.REPAIR)
    return Finding("clock", f"synchronised, leap status {leap}")


def _root_disk(machine: Machine) -> Finding:
    state = os.statvfs(machine.root)
    # The mounts of process 1: a unit may see the root read-only.
    mounts = (line.split() for line in machine.read("/proc/1/mounts").splitlines())
    if any(path == "/" and "ro" in options.split(",") for _, path, _, options, *_ in mounts):
        return Finding("root-disk", "read-only: the kernel saw an error of the disk", Action.REPLACE)
    free = state.f_bavail / state.f_blocks if state.f_blocks else 1.0
    return Finding("root-disk", f"{free:.0%} free", Action.REPAIR if free < _LEAST_FREE else Action.NONE)


def _mount(machine: Machine, path: str) -> Finding:
    container = machine.read("/run/systemd/container")
    if container and "nfs4" not in machine.read("/proc/filesystems").split():
        return Finding("mounts", f"{path}: the host of this {container} has no NFS")
    try:
        # A program, because a hanging server blocks whoever asks. Its time limit kills it.
        machine.output("stat", "--file-system", "--format=%T", f"{machine.root / path.lstrip('/')}/.")
        machine.output("findmnt", "--mountpoint", path, "--types", "nfs,nfs4", "--noheadings")
    except (FailedProgramError, MissingProgramError) as error:
        return Finding("mounts", f"{path}: {error}", Action.REPAIR)
    return Finding("mounts", f"{path} answers")


def _efa(machine: Machine, planned: int) -> Finding:
    devices = [
        name for name in machine.names("/sys/class/infiniband") if "efa" in machine.read(f"{_DEVICE}/{name}/{_DRIVER}")
    ]
    text = f"{len(devices)} EFA devices, planned {planned}"
    return Finding("efa", text, Action.NONE if len(devices) == planned else Action.REPLACE)


_DEVICE, _DRIVER = "/sys/class/infiniband", "device/uevent"
