"""Facts about a region, and about an instance type with its GPUs and accelerators."""

from dataclasses import dataclass
from typing import Literal

Arch = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """One AWS region; `opt_in` if an account must enable it first; `place` is its location in AWS's words."""

    name: str
    zones: tuple[str, ...]
    opt_in: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The GPUs of a type; `count` is 0 for a part of a GPU; `memory_mib` is the memory of one GPU."""

    name: str
    count: int
    memory_mib: int
    manufacturer: str


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """The accelerators of a type other than GPUs, such as Trainium."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One EC2 instance type.

    A number that the source does not state is 0; `hypervisor` is empty for bare metal. `interfaces_per_card` has one
    entry per network card; `efa` is the maximum of EFA interfaces; `local_nvme_gb` is the total of all local disks.
    """

    name: str
    arch: Arch
    vcpus: int
    memory_mib: int
    network_mbps: int = 0
    ebs_mbps: int = 0
    local_nvme_gb: int = 0
    interfaces_per_card: tuple[int, ...] = ()
    ipv4_per_interface: int = 0
    efa: int = 0
    gpu: GpuFacts | None = None
    accelerator: AcceleratorFacts | None = None
    hypervisor: str = "nitro"

    @property
    def interfaces(self) -> int:
        """The maximum number of network interfaces."""
        return sum(self.interfaces_per_card)
