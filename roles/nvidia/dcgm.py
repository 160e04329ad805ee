"""DCGM 4 and the subnet manager NVLSM from NVIDIA's repository: Ubuntu's archive has neither.

Package names: https://docs.nvidia.com/datacenter/dcgm/latest/installation.html and the release notes of AWS's base GPU
images. The repository could not be reached from here, so nothing was compared with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Arch

from bedplate.catalog.stacks import NVIDIA_KEY_SUM, StackLock
from roles.repository import Pin, Repository, add

DCGM = "nvidia-dcgm.service"
NVLSM = "nvlsm"
# For GPUs in containers, which the role `containers` installs.
TOOLKIT = "nvidia-container-toolkit-base"
_URI = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404"
# NVIDIA's names of architectures, by `uname -m`.
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
# The first branch whose driver has CUDA 13.
_CUDA_13 = 580


@dataclass(frozen=True, slots=True)
class Tools:
    """DCGM for a driver branch, from a stack; `key` is the repository's public key, `switched`: with NVLSM."""

    branch: str
    stack: StackLock
    key: str
    switched: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages to install: DCGM, and NVLSM."""
        return (*self._dcgm, NVLSM) if self.switched else self._dcgm

    @property
    def _dcgm(self) -> tuple[str, ...]:
        """DCGM for the CUDA version of the driver."""
        cuda = "13" if int(self.branch) >= _CUDA_13 else "12"
        return ("datacenter-gpu-manager-4-core", f"datacenter-gpu-manager-4-cuda{cuda}")

    @property
    def version(self) -> str:
        """The version of DCGM."""
        return self.stack.value("dcgm")

    def is_outdated(self, installed: Mapping[str, Iterable[str]]) -> bool:
        """Return whether DCGM is installed in another version; `installed` has the versions of packages."""
        versions = [version for package in self._dcgm for version in installed.get(package, ())]
        return any(version.removeprefix("1:").partition("-")[0] != self.version for version in versions)

    @property
    def replacement(self) -> str:
        """The command that replaces another version of DCGM, although it is held."""
        options = "--yes --allow-change-held-packages --allow-downgrades"
        packages = " ".join(f"'{package}=1:{self.version}-*'" for package in self._dcgm)
        return f"DEBIAN_FRONTEND=noninteractive apt-get {options} install {packages} && systemctl try-restart {DCGM}"

    @property
    def is_trusted(self) -> bool:
        """Whether the repository's key was compared with NVIDIA's."""
        return bool(self.key and self.stack.checksum(NVIDIA_KEY_SUM))

    def add_repository(self) -> None:
        """Declare the repository, from which apt installs these packages only; NVLSM's versions are dates."""
        toolkit = Pin((TOOLKIT,), f"{self.stack.value('toolkit')}-*")
        pins = (Pin(("datacenter-gpu-manager-4-*",), f"1:{self.version}-*"), Pin((NVLSM,), "*"), toolkit)
        architecture = _ARCHITECTURES[host.get_fact(Arch)]
        key_sum = self.stack.checksum(NVIDIA_KEY_SUM)
        add([Repository("nvidia", f"{_URI}/{architecture}/", ("/",), (), self.key, key_sum, pins)])


class ImexNodes(FactBase[tuple[str, ...]]):
    """The nodes of the IMEX domain, in the file that lists them; the same file is on each of them."""

    default = tuple

    def command(self) -> str:
        """Read the file without comments."""
        return "grep --no-messages '^[^#]' /etc/nvidia-imex/nodes_config.cfg || true"

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Return the lines."""
        return tuple(line for line in output if line.strip())
