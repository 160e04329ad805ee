"""Checks of GPUs: driver, number, memory, ECC, PCIe and NVLink, and errors in the kernel log.

Source of the elements: `nvidia-smi -q -x` of driver 580, and its document type nvsmi_device_v12.dtd.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .expected import Expected, Gpus
from .machine import FailedProgramError, Machine, MissingProgramError
from .verdict import Action, Finding

FABRIC_MANAGER = "nvidia-fabricmanager.service"
# EC2 counts the memory of a GPU in full; the driver reserves a part of it.
_LEAST_MEMORY = 0.9
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_YES = {"Yes", "Enabled"}


def check_gpus(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the GPUs; none for a machine without."""
    if expected.gpus is None or expected.driver is None:
        return
    yield from check_kernel_log(machine)
    try:
        document = ET.fromstring(machine.output("nvidia-smi", "-q", "-x"))  # noqa: S314  the driver's own
    except MissingProgramError as error:
        yield Finding("driver", str(error), Action.REPAIR)
        return
    except (FailedProgramError, ET.ParseError) as error:
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
    except (FailedProgramError, MissingProgramError) as error:
        yield Finding("nvlink", str(error), Action.REPAIR)
        return
    yield Finding("nvlink", f"{inactive} inactive links", Action.REPLACE if inactive else Action.NONE)


def check_kernel_log(machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each error number (Xid) of a GPU that the kernel has logged since boot."""
    try:
        log = machine.output("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager")
    except (FailedProgramError, MissingProgramError) as error:
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
