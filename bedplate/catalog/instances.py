"""Instance types as text: a row a type, cells parted by tabs, `-` for what it lacks or nobody states."""

from collections.abc import Iterable
from itertools import groupby
from typing import cast

from bedplate.catalog.facts import AcceleratorFacts, Arch, GpuFacts, InstanceFacts
from bedplate.catalog.sheet import ABSENT

COLUMNS = (
    "type",
    "arch",
    "vcpus",
    "memory_mib",
    "network_mbps",
    "ebs_mbps",
    "local_nvme_gb",
    "cards",
    "ipv4_per_interface",
    "efa",
    "gpu",
    "accelerator",
    "hypervisor",
)


def read_instances(rows: Iterable[str]) -> dict[str, InstanceFacts]:
    """Return the instance types by name; the first row names the columns."""
    title, *body = rows
    if title != "\t".join(COLUMNS):
        raise ValueError(f"the columns must be {', '.join(COLUMNS)}")
    facts = (_read_row(row) for row in body)
    return {instance.name: instance for instance in facts}


def write_instances(types: Iterable[InstanceFacts]) -> tuple[str, ...]:
    """Return the names of the columns, then one row an instance type, by name."""
    ordered = sorted(types, key=lambda instance: instance.name)
    return ("\t".join(COLUMNS), *(_write_row(instance) for instance in ordered))


def _read_row(row: str) -> InstanceFacts:
    cells = row.split("\t")
    name, arch, vcpus, memory, network, ebs, nvme, cards, ipv4, efa, gpu, accelerator, hypervisor = cells
    return InstanceFacts(
        name=name,
        arch=cast("Arch", arch),
        vcpus=int(vcpus),
        memory_mib=int(memory),
        network_mbps=_read_number(network),
        ebs_mbps=_read_number(ebs),
        local_nvme_gb=_read_number(nvme),
        interfaces_per_card=_read_cards(cards),
        ipv4_per_interface=_read_number(ipv4),
        efa=_read_number(efa),
        gpu=_read_gpu(gpu),
        accelerator=_read_accelerator(accelerator),
        hypervisor="" if hypervisor == ABSENT else hypervisor,
    )


def _write_row(instance: InstanceFacts) -> str:
    gpu, accelerator = instance.gpu, instance.accelerator
    cells: tuple[str | int, ...] = (
        instance.name,
        instance.arch,
        instance.vcpus,
        instance.memory_mib,
        instance.network_mbps,
        instance.ebs_mbps,
        instance.local_nvme_gb,
        _write_cards(instance.interfaces_per_card),
        instance.ipv4_per_interface,
        instance.efa,
        f"{gpu.count} {gpu.manufacturer} {gpu.name} {gpu.memory_mib}" if gpu else "",
        f"{accelerator.count} {accelerator.name}" if accelerator else "",
        instance.hypervisor,
    )
    return "\t".join(str(cell or ABSENT) for cell in cells)


def _read_number(cell: str) -> int:
    return 0 if cell == ABSENT else int(cell)


def _read_gpu(cell: str) -> GpuFacts | None:
    if cell == ABSENT:
        return None
    count, manufacturer, name, memory = cell.split(" ")
    return GpuFacts(name=name, count=int(count), memory_mib=int(memory), manufacturer=manufacturer)


def _read_accelerator(cell: str) -> AcceleratorFacts | None:
    if cell == ABSENT:
        return None
    count, name = cell.split(" ")
    return AcceleratorFacts(name=name, count=int(count))


def _read_cards(cell: str) -> tuple[int, ...]:
    """Read `32x2` (32 cards of 2 interfaces), several runs parted by commas."""
    if cell == ABSENT:
        return ()
    runs = (run.split("x") for run in cell.split(","))
    return tuple(interfaces for count, each in runs for interfaces in [int(each)] * int(count))


def _write_cards(cards: tuple[int, ...]) -> str:
    return ",".join(f"{len(tuple(run))}x{each}" for each, run in groupby(cards))
