"""Checks of the GPUs against the plan and against each other: driver, number, memory, lanes, clocks, MIG and NVLink."""

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from ..program import ProgramError
from .kernel_log import check_kernel_log
from .machine import Expected, Gpus, Machine
from .smi import check_states, id_of, read_document
from .verdict import Action, Cause, Finding, hardware, software, unfinished, unknown

FABRIC_MANAGER = "nvidia-fabricmanager.service"
# EC2 counts the memory of a GPU in full; the driver reserves a part of it.
_LEAST_MEMORY = 0.9
# Display controllers of NVIDIA.
_GPU = {"vendor": "0x10de", "class": "0x03"}
# Cards for PCIe slots, which bridges connect in pairs at most: A100-PCIE-40GB, A100 80GB PCIe, H100 NVL.
_CARDS = {"pcie", "nvl"}
# GPUs of servers are delivered with ECC; on those of desktops it is a choice, and off.
_SERVER_BRANDS = {"NVIDIA", "Tesla"}
_WIDEST = 32
_SLOWDOWN = re.compile(r"clocks_(?:event|throttle)_reason_(hw_\w+)")
# The gate runs every five minutes: two gates in a row.
_SLOW_SECONDS = 240


def check_gpus(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the GPUs; nothing if the plan has no GPUs for this machine."""
    if expected.gpus is None or expected.driver is None:
        return
    document, findings = read_document(machine)
    yield from findings
    if document is not None:
        yield from _check_document(machine, expected, expected.gpus, document)
    yield from check_kernel_log(machine)


def _check_document(machine: Machine, expected: Expected, planned: Gpus, document: ET.Element) -> Iterator[Finding]:
    gpus, has_switch = document.findall("gpu"), is_switched(planned, document)
    # The driver's own verdict on each GPU comes first.
    for gpu in gpus:
        for finding in check_states(gpu):
            # A single GPU of a board with NVSwitch may be of no fabric.
            is_notice = finding.check == "nvlink" and finding.cause is Cause.SOFTWARE and not has_switch
            yield unknown(finding.check, finding.text) if is_notice else finding
    # CUDA 14 has the second name only.
    version = document.findtext("driver_version") or document.findtext("kmd_version")
    if gpus:
        yield _driver(machine, version or "unknown", str(expected.driver))
    yield from _number(machine, gpus, planned)
    yield from _lanes(machine, gpus)
    for gpu in gpus:
        yield from _clocks(machine, gpu, is_cloud=expected.cloud)
        yield from _modes(gpu, planned)
    if has_switch:
        yield from _fabric(machine, gpus)


def is_switched(planned: Gpus, document: ET.Element) -> bool:
    """Return whether NVSwitch connects the GPUs: cards for PCIe slots have the same names in the plan."""
    gpus = document.findall("gpu")
    return planned.switched and bool(gpus) and not all(_words(gpu) & _CARDS for gpu in gpus)


def _driver(machine: Machine, version: str, branch: str) -> Finding:
    loaded = machine.read("/sys/module/nvidia/version")
    if loaded != version:
        return software("driver", f"the kernel has loaded {loaded or 'none'}, installed is {version}", Action.REBOOT)
    if not version.startswith(f"{branch}."):
        return software("driver", f"version {version}, planned is branch {branch}")
    return Finding("driver", f"version {version}")


def _words(gpu: ET.Element) -> set[str]:
    return set(re.split(r"[ ()-]+", gpu.findtext("product_name", "").lower()))


def _number(machine: Machine, gpus: Sequence[ET.Element], planned: Gpus) -> Iterator[Finding]:
    matching = [gpu for gpu in gpus if set(planned.model.lower().split("-")) <= _words(gpu)]
    text = f"{len(matching)} {planned.model}, planned {planned.count}"
    if len(matching) != len(gpus):
        text += f"; the machine has {', '.join(sorted({gpu.findtext('product_name', '') for gpu in gpus}))}"
    on_bus = machine.count_devices(_GPU)
    if len(gpus) >= planned.count:
        # The name of a new model may differ from that of the plan, but not on some GPUs only.
        is_mixed = 0 < len(matching) < len(gpus)
        is_planned = len(matching) == len(gpus) == planned.count
        action = Action.REPAIR if is_mixed else Action.MONITOR
        yield Finding("gpus", text) if is_planned else unknown("gpus", text, action)
    elif gpus or (on_bus is not None and on_bus < planned.count):
        yield hardware("gpus", text if on_bus is None else f"{text}, the PCI bus has {on_bus}")
    else:
        # The driver finds no GPU at all.
        yield unknown("gpus", text, Action.REBOOT)
    for gpu in gpus:
        memory = _number_of(gpu.findtext("fb_memory_usage/total", ""))
        if memory is not None and memory < planned.memory * _LEAST_MEMORY:
            yield hardware("gpu-memory", f"{id_of(gpu)} has {memory} MiB, planned {planned.memory}")


def _number_of(text: str) -> int | None:
    match = re.match(r"\d+", text.strip())
    return int(match[0]) if match else None


def _slot_width(machine: Machine, gpu: ET.Element) -> int | None:
    """Return the most PCIe lanes that the slot of a GPU has; None if unknown, as in a virtual machine."""
    is_metal = gpu.findtext("gpu_virtualization_mode/virtualization_mode", "None") == "None"
    ends = [_number_of(machine.read_device(gpu.get("id", ""), f"{end}max_link_width")) for end in ("", "../")]
    known = [width for width in ends if width and width <= _WIDEST]
    return min(known) if is_metal and len(known) == len(ends) else None


def _lanes(machine: Machine, gpus: Sequence[ET.Element]) -> Iterator[Finding]:
    """Compare lanes with those of card and slot, and with those of equal GPUs: boards connect a card with fewer."""
    widths = "pci/pci_gpu_link_info/link_widths"
    full, narrow = set(), []
    for gpu in gpus:
        current, most = (_number_of(gpu.findtext(f"{widths}/{name}_link_width", "")) for name in ("current", "max"))
        if current is None or most is None:
            continue
        slot = _slot_width(machine, gpu)
        most = min(most, slot or most)
        kind = (gpu.findtext("product_name"), most)
        if current >= most:
            full.add(kind)
            continue
        # An idle GPU may use fewer lanes.
        is_busy = gpu.findtext("clocks_event_reasons/clocks_event_reason_gpu_idle") == "Not Active"
        text = f"{id_of(gpu)} has {current} of {most} PCIe lanes"
        narrow.append((kind, text, slot is not None and is_busy))
    for kind, text, is_broken in narrow:
        if is_broken or kind in full:
            yield hardware("gpu-pcie", text)
        else:
            yield unknown("gpu-pcie", f"{text}, as its board may have")


def _clocks(machine: Machine, gpu: ET.Element, *, is_cloud: bool) -> Iterator[Finding]:
    """Yield a finding if the hardware slows a GPU: at first a notice, a fault if the next gate still finds it."""
    reasons = [match[1] for entry in gpu.iter() if entry.text == "Active" and (match := _SLOWDOWN.fullmatch(entry.tag))]
    if not reasons:
        return
    text, now = f"{id_of(gpu)} is slowed by its hardware", int(time.time())
    before = [entry for entry in machine.last.get("findings", ()) if entry["text"].startswith(text)]
    since = min((entry.get("since") or now for entry in before), default=now)
    text = f"{text}: {', '.join(reason.replace('_', ' ') for reason in reasons)}"
    if now - since < _SLOW_SECONDS:
        yield unknown("gpu-clocks", text, since=since)
    else:
        # In a data centre of one's own, power and cooling can be repaired.
        yield hardware("gpu-clocks", text, Action.REPLACE if is_cloud else Action.REPAIR, since)


def _modes(gpu: ET.Element, planned: Gpus) -> Iterator[Finding]:
    if gpu.findtext("mig_mode/current_mig") == "Enabled":
        text = f"{id_of(gpu)} has MIG enabled"
        fix = "disable it (`nvidia-smi -mig 0`), or declare `mig: true`"
        yield Finding("gpu-mig", f"{text}, as planned") if planned.mig else software("gpu-mig", f"{text}: {fix}")
    ecc, next_ecc = (gpu.findtext(f"ecc_mode/{name}_ecc") for name in ("current", "pending"))
    if gpu.findtext("product_brand") not in _SERVER_BRANDS or "Disabled" not in {ecc, next_ecc}:
        return
    if next_ecc == "Enabled":
        yield software("gpu-ecc", f"{id_of(gpu)} has ECC disabled until the next reboot", Action.REBOOT)
    else:
        state = "disabled" if ecc == "Disabled" else "disabled from the next reboot on"
        yield software("gpu-ecc", f"{id_of(gpu)} has ECC {state}: run `nvidia-smi -e 1`, and reboot")


def _fabric(machine: Machine, gpus: Sequence[ET.Element]) -> Iterator[Finding]:
    try:
        state = machine.run("systemctl", "is-active", FABRIC_MANAGER, attempts=2)
        if state.error:
            yield Finding("nvlink", state.error, Action.REPAIR, Cause.UNKNOWN if state.limit else Cause.SOFTWARE)
            return
        status = machine.run("nvidia-smi", "nvlink", "--status", attempts=2)
    except ProgramError as error:
        yield unfinished("nvlink", error)
        return
    inactive, links = status.text.count("<inactive>"), len(re.findall(r"^\s*Link \d+:", status.text, re.MULTILINE))
    if status.error:
        yield unknown("nvlink", status.error, Action.REPAIR)
    elif any(gpu.findtext("mig_mode/current_mig") == "Enabled" for gpu in gpus):
        yield Finding("nvlink", "not checked: GPUs with MIG have no NVLink")
    elif inactive < links or not inactive:
        yield hardware("nvlink", f"{inactive} inactive links") if inactive else Finding("nvlink", "0 inactive links")
    else:
        yield unknown("nvlink", f"all {inactive} links are inactive", Action.REPAIR)
