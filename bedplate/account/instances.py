"""One entry of EC2's DescribeInstanceTypes, read as the catalogue tells an instance type.

Never guesses: what EC2 does not state is 0 or absent, and a type of neither architecture is no type of ours.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from bedplate.catalog.facts import AcceleratorFacts, Arch, GpuFacts, InstanceFacts

Entry = Mapping[str, Any]

_ARCHITECTURES = ("x86_64", "arm64")
# `200 Gigabit`, `4x 100 Gigabit`; `Up to 10 Gigabit` is a burst.
_RATE = re.compile(r"(?:(\d+)x )?([\d.]+) Gigabit")


def read_instance(entry: Entry) -> InstanceFacts | None:
    """Return what an entry says of a type; None for the architecture of a Mac, which runs nothing of ours."""
    known = [arch for arch in entry["ProcessorInfo"]["SupportedArchitectures"] if arch in _ARCHITECTURES]
    if not known:
        return None
    network = entry.get("NetworkInfo", {})
    return InstanceFacts(
        name=entry["InstanceType"],
        arch=cast("Arch", known[-1]),
        vcpus=entry["VCpuInfo"]["DefaultVCpus"],
        memory_mib=entry["MemoryInfo"]["SizeInMiB"],
        network_mbps=_network(network),
        ebs_mbps=_ebs(entry),
        local_nvme_gb=_local_nvme(entry),
        interfaces_per_card=tuple(card["MaximumNetworkInterfaces"] for card in network.get("NetworkCards", ())),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        gpu=_gpu(entry),
        accelerator=_accelerator(entry),
        hypervisor=entry.get("Hypervisor", ""),
    )


def _network(network: Entry) -> int:
    """Return the sustained rate in Mbit/s: what EC2 says of the type as a whole, else of its cards together."""
    if stated := _RATE.fullmatch(network.get("NetworkPerformance", "")):
        return round(1000 * int(stated[1] or 1) * float(stated[2]))
    cards: Iterable[float] = (card.get("BaselineBandwidthInGbps", 0) for card in network.get("NetworkCards", ()))
    return round(1000 * sum(cards))


def _ebs(entry: Entry) -> int:
    rates = entry.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    return cast("int", rates.get("MaximumBandwidthInMbps", 0))


def _local_nvme(entry: Entry) -> int:
    storage = entry.get("InstanceStorageInfo", {})
    is_nvme = storage.get("NvmeSupport", "unsupported") != "unsupported"
    return cast("int", storage.get("TotalSizeInGB", 0) if is_nvme else 0)


def _gpu(entry: Entry) -> GpuFacts | None:
    gpus = entry.get("GpuInfo", {}).get("Gpus", ())
    if not gpus:
        return None
    first, count = gpus[0], sum(gpu.get("Count", 0) for gpu in gpus)
    memory = first.get("MemoryInfo", {}).get("SizeInMiB", 0)
    return GpuFacts(_word(first["Name"]), count, memory, first["Manufacturer"].lower())


def _accelerator(entry: Entry) -> AcceleratorFacts | None:
    neuron = entry.get("NeuronInfo", {}).get("NeuronDevices", ())
    inference = entry.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    for device in (*neuron, *inference):
        return AcceleratorFacts(_word(device["Name"]), device["Count"])
    return None


def _word(name: str) -> str:
    return "-".join(name.lower().split())
