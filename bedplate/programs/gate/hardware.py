"""Checks of the hardware: clock, disks, mounts, EFA devices and GPUs; DCGM's diagnostics; and the burn-in of GPUs.

Sources: the elements of `nvidia-smi -q -x` of driver 580, with its document type nvsmi_device_v12.dtd; and NVIDIA DCGM,
"DCGM Diagnostics", read 2026-11. Diagnostics and burn-in use the GPUs for minutes, so a machine with a program on a GPU
is refused.
"""

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..program import MissingProgramError, ProgramError
from .machine import Expected, Gpus, Machine
from .verdict import Action, Finding

# The share of the root disk that must be free.
_LEAST_FREE = 0.05
_INFINIBAND = "/sys/class/infiniband"


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
        # As a subprocess with a timeout, because a call to a mount whose server does not answer blocks forever.
        machine.output("stat", "--file-system", "--format=%T", f"{machine.root / path.lstrip('/')}/.")
        machine.output("findmnt", "--mountpoint", path, "--types", "nfs,nfs4", "--noheadings")
    except ProgramError as error:
        return Finding("mounts", f"{path}: {error}", Action.REPAIR)
    return Finding("mounts", f"{path} answers")


def _efa(machine: Machine, planned: int) -> Finding:
    devices = [
        name for name in machine.names(_INFINIBAND) if "efa" in machine.read(f"{_INFINIBAND}/{name}/device/uevent")
    ]
    text = f"{len(devices)} EFA devices, planned {planned}"
    return Finding("efa", text, Action.NONE if len(devices) == planned else Action.REPLACE)


FABRIC_MANAGER = "nvidia-fabricmanager.service"
# EC2 counts the memory of a GPU in full; the driver reserves a part of it.
_LEAST_MEMORY = 0.9
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_YES = {"Yes", "Enabled"}


def check_gpus(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the GPUs; nothing if the plan has no GPUs for this machine."""
    if expected.gpus is None or expected.driver is None:
        return
    yield from check_kernel_log(machine)
    try:
        document = ET.fromstring(machine.output("nvidia-smi", "-q", "-x"))  # noqa: S314  the driver's own
    except MissingProgramError as error:
        yield Finding("driver", str(error), Action.REPAIR)
        return
    except (ProgramError, ET.ParseError) as error:
        yield Finding("driver", str(error), Action.REBOOT)
        return
    gpus = document.findall("gpu")
    yield _driver(machine, document.findtext("driver_version", ""), expected.driver)
    yield from _hardware(gpus, expected.gpus)
    for gpu in gpus:
        yield from _memory_errors(gpu)
        yield from _links(gpu)
    if expected.gpus.switched:
        yield from _fabric(machine, gpus)


def _driver(machine: Machine, version: str, branch: str) -> Finding:
    loaded = machine.read("/sys/module/nvidia/version")
    if loaded != version:
        return Finding("driver", f"the kernel has loaded {loaded or 'none'}, installed is {version}", Action.REBOOT)
    if not version.startswith(f"{branch}."):
        return Finding("driver", f"version {version}, planned is branch {branch}", Action.REPAIR)
    return Finding("driver", f"version {version}")


def _hardware(gpus: list[ET.Element], planned: Gpus) -> Iterator[Finding]:
    words = set(planned.model.lower().split("-"))
    names = [gpu.findtext("product_name", "") for gpu in gpus]
    matching = [name for name in names if words <= set(re.split(r"[ ()-]+", name.lower()))]
    text = f"{len(matching)} {planned.model}, planned {planned.count}"
    others = f"; the machine has {', '.join(sorted(set(names)))}" if len(matching) != len(names) else ""
    yield Finding(
        "gpus", text + others, Action.NONE if len(matching) == planned.count == len(names) else Action.REPLACE
    )
    for gpu in gpus:
        memory = int(_digits(gpu.findtext("fb_memory_usage/total", "0")))
        if memory < planned.memory * _LEAST_MEMORY:
            yield Finding("gpu-memory", f"{_id(gpu)} has {memory} MiB, planned {planned.memory}", Action.REPLACE)


def _memory_errors(gpu: ET.Element) -> Iterator[Finding]:
    counts = (entry for entry in gpu.iterfind("ecc_errors/volatile//*") if "uncorrectable" in entry.tag)
    total = sum(int(_digits(entry.text or "0")) for entry in counts)
    if total:
        yield Finding("gpu-ecc", f"{_id(gpu)} has {total} uncorrectable memory errors since boot", Action.REBOOT)
    if gpu.findtext("remapped_rows/remapped_row_failure") in _YES:
        yield Finding("gpu-rows", f"{_id(gpu)} could not remap a faulty row", Action.REPLACE)
    elif gpu.findtext("remapped_rows/remapped_row_pending") in _YES:
        yield Finding("gpu-rows", f"{_id(gpu)} remaps a faulty row at the next reset", Action.REBOOT)
    if gpu.findtext("retired_pages/pending_retirement") in _YES:
        yield Finding("gpu-rows", f"{_id(gpu)} retires a faulty page at the next reset", Action.REBOOT)


def _links(gpu: ET.Element) -> Iterator[Finding]:
    widths = gpu.find("pci/pci_gpu_link_info/link_widths")
    if widths is None:
        return
    current, most = (_digits(widths.findtext(f"{name}_link_width", "0")) for name in ("current", "max"))
    if int(current) < int(most):
        yield Finding("gpu-pcie", f"{_id(gpu)} has {current} of {most} PCIe lanes", Action.REPLACE)


def _fabric(machine: Machine, gpus: list[ET.Element]) -> Iterator[Finding]:
    for gpu in gpus:
        state = gpu.findtext("fabric/state", "N/A"), gpu.findtext("fabric/status", "N/A")
        # Ampere has no such state.
        if "N/A" not in state and state != ("Completed", "Success"):
            yield Finding("nvlink", f"{_id(gpu)}: fabric {' '.join(state).lower()}", Action.REBOOT)
    try:
        machine.output("systemctl", "is-active", FABRIC_MANAGER)
        inactive = machine.output("nvidia-smi", "nvlink", "--status").count("<inactive>")
    except ProgramError as error:
        yield Finding("nvlink", str(error), Action.REPAIR)
        return
    yield Finding("nvlink", f"{inactive} inactive links", Action.REPLACE if inactive else Action.NONE)


def check_kernel_log(machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each error number (Xid) of a GPU that the kernel has logged since boot."""
    try:
        log = machine.output("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager")
    except ProgramError as error:
        yield Finding("gpu-errors", str(error), Action.REPAIR)
        return
    actions = read_actions(Path(__file__).with_name("xid.txt").read_text(encoding="utf-8").splitlines())
    errors = sorted({(gpu, int(number)) for gpu, number in _XID.findall(log)})
    for gpu, number in errors:
        # A number without a row is new: somebody must look, but the machine may work.
        yield Finding("gpu-errors", f"Xid {number} on {gpu}", actions.get(number, Action.MONITOR))
    if not errors:
        yield Finding("gpu-errors", "no Xid in the kernel log")


def read_actions(rows: Iterable[str]) -> Mapping[int, Action]:
    """Return the action for each error number."""
    cells = (row.split("\t") for row in rows if row and not row.startswith("#"))
    return {int(number): Action(action) for number, action in cells}


def _id(gpu: ET.Element) -> str:
    return f"GPU {gpu.get('id', '?')}"


def _digits(text: str) -> str:
    match = re.search(r"\d+", text)
    return match[0] if match else "0"


_FAILED = re.compile("fail", re.IGNORECASE)


def diagnose(machine: Machine, level: int, missing: Action = Action.REPAIR) -> Iterator[Finding]:
    """Yield a finding for each failed test, or one if all passed; `missing` is the action if DCGM is not installed."""
    try:
        report = json.loads(machine.output("dcgmi", "diag", "--run", str(level), "--json"))
    except MissingProgramError as error:
        yield Finding("dcgm", str(error), missing)
        return
    except (ProgramError, ValueError) as error:
        # DCGM exits with an error if a test fails.
        yield Finding("dcgm", str(error), Action.REPLACE)
        return
    failed = [name for name, is_failed in _tests(report) if is_failed]
    yield from (Finding("dcgm", f"{name} failed", Action.REPLACE) for name in failed)
    if not failed:
        yield Finding("dcgm", f"{len(list(_tests(report)))} tests of level {level} passed")


def _tests(report: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each test, and whether a result of it is a failure."""
    root = report.get("DCGM Diagnostic") or report.get("DCGM GPU Diagnostic") or {}
    for category in root.get("test_categories", ()):
        for test in category.get("tests", ()):
            results = [*test.get("results", ()), test.get("test_summary") or {}]
            yield str(test.get("name")), any(_FAILED.search(str(result.get("status", ""))) for result in results)


# Level 3 takes about 15 minutes; slow machines get four times as long. Source: DCGM's reference of `dcgmi diag`.
_TIMEOUT = 3600.0
# One large message: small ones measure latency. Source: README of nccl-tests.
_ALL_REDUCE = ("all_reduce_perf", "-b", "8G", "-e", "8G", "-g")
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth *: *([0-9.]+)", re.MULTILINE)


def burn_in(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings of a machine; if it has no GPUs or they are in use, one finding that says so."""
    if expected.gpus is None:
        yield Finding("gpus", "this machine has no GPUs", Action.REPAIR)
        return
    try:
        users = machine.output("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").split()
    except ProgramError as error:
        yield Finding("driver", str(error), Action.REPAIR)
        return
    if users:
        yield Finding("in-use", f"processes on the GPUs: {', '.join(sorted(set(users)))}", Action.REPAIR)
        return
    with_timeout = replace(machine, timeout=_TIMEOUT)
    yield from diagnose(with_timeout, 3)
    yield _all_reduce(with_timeout, expected.gpus.count, expected.gpus.bandwidth)


def _all_reduce(machine: Machine, count: int, least: int) -> Finding:
    """Compare the bandwidth of an all-reduce with the minimum, 0 for none."""
    try:
        match = _BANDWIDTH.search(machine.output(*_ALL_REDUCE, str(count)))
    except MissingProgramError as error:
        return Finding("all-reduce", f"not measured: {error}", Action.MONITOR)
    except ProgramError as error:
        return Finding("all-reduce", str(error), Action.REPLACE)
    if match is None:
        return Finding("all-reduce", "all_reduce_perf printed no bandwidth", Action.REPAIR)
    text = f"{match[1]} GB/s over {count} GPUs"
    if not least:
        return Finding("all-reduce", f"{text}; no pass mark for this GPU", Action.MONITOR)
    is_slow = float(match[1]) < least
    return Finding("all-reduce", f"{text}, at least {least} required", Action.REPLACE if is_slow else Action.NONE)
