"""What the catalogue knows about one region and about one instance type."""

from dataclasses import dataclass
from typing import Literal

Arch = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """One AWS region; `opt_in` where an account must enable it first, `place` as AWS names it."""

    name: str
    zones: tuple[str, ...]
    opt_in: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The GPUs of a type; `count` is 0 where an instance gets a part of one, `memory_mib` is one GPU's."""

    name: str
    count: int
    memory_mib: int
    manufacturer: str


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """The accelerators of a type that are no GPUs, such as Trainium."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One EC2 instance type.

    A figure that the source does not state is 0; `hypervisor` is empty for bare metal. `interfaces_per_card`
    has one entry a network card; `efa` is the most EFA interfaces an instance may have; `local_nvme_gb` sums
    its disks.
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
        """The most network interfaces an instance may have."""
        return sum(self.interfaces_per_card)
