"""The role `nvidia`: the GPU driver of Ubuntu's archive, with modules built and signed by Canonical; DCGM 4 and NVLSM.

Source: https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/, read 2026-11. Nothing here ran
on Ubuntu or on a GPU: package names are those of Ubuntu 24.04's archive, tests use placeholders with the same names.

DCGM and the subnet manager NVLSM are from NVIDIA's repository: Ubuntu's archive has neither. Package names:
https://docs.nvidia.com/datacenter/dcgm/latest/installation.html and the release notes of AWS's base GPU images. The
repository could not be reached from here, so nothing was compared with it.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.server import Arch, LinuxName
from pyinfra.operations import server, systemd

from bedplate.catalog.software import NVIDIA_KEY_SUM, SoftwareSet
from bedplate.catalog.tables import ChipFacts
from bedplate.errors import InputError
from bedplate.plan.nodes import Hardware, Platform
from roles.base import Changes, DiskSpace, Disruption, ManagedFile, Role, changed, file_text, put_files
from roles.nvidia.exporter import DROP_IN, FIELDS, PACKAGE, UNIT, Exporter
from roles.system import BoolFact, LinesFact, Pin, Repository, add, hold_packages, install_packages, start_units

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
    """DCGM for a driver branch, from a software set; `key` is the repository's public key, `switched`: with NVLSM.

    `is_observed`: with the exporter for the hub, and the modules of DCGM that profile GPUs.
    """

    branch: str
    software: SoftwareSet
    key: str
    switched: bool = False
    is_observed: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages to install: DCGM, the exporter, and NVLSM."""
        return (*self.dcgm, *((PACKAGE,) if self.is_observed else ()), *((NVLSM,) if self.switched else ()))

    @property
    def dcgm(self) -> tuple[str, ...]:
        """DCGM for the CUDA version of the driver."""
        cuda = "13" if int(self.branch) >= _CUDA_13 else "12"
        profiling = ("proprietary", f"proprietary-cuda{cuda}") if self.is_observed else ()
        return tuple(f"datacenter-gpu-manager-4-{name}" for name in ("core", f"cuda{cuda}", *profiling))

    @property
    def version(self) -> str:
        """The version of DCGM."""
        return self.software.value("dcgm")

    def is_outdated(self, installed: Mapping[str, Iterable[str]]) -> bool:
        """Return whether DCGM is installed in another version; `installed` has the versions of packages."""
        versions = [version for package in self.dcgm for version in installed.get(package, ())]
        return any(version.removeprefix("1:").partition("-")[0] != self.version for version in versions)

    @property
    def replacement(self) -> str:
        """The command that replaces another version of DCGM, although it is held."""
        options = "--yes --allow-change-held-packages --allow-downgrades"
        packages = " ".join(f"'{package}=1:{self.version}-*'" for package in self.dcgm)
        return f"DEBIAN_FRONTEND=noninteractive apt-get {options} install {packages} && systemctl try-restart {DCGM}"

    @property
    def is_trusted(self) -> bool:
        """Whether the repository's key was compared with NVIDIA's."""
        return bool(self.key and self.software.checksum(NVIDIA_KEY_SUM))

    def add_repository(self) -> None:
        """Declare the repository, from which apt installs these packages only.

        NVLSM's versions are dates, and no list has those of the exporter.
        """
        toolkit = Pin((TOOLKIT,), f"{self.software.value('toolkit')}-*")
        pins = (Pin(("datacenter-gpu-manager-4-*",), f"1:{self.version}-*"), Pin((NVLSM, PACKAGE), "*"), toolkit)
        architecture = _ARCHITECTURES[host.get_fact(Arch)]
        key_sum = self.software.checksum(NVIDIA_KEY_SUM)
        add([Repository("nvidia", f"{_URI}/{architecture}/", ("/",), (), self.key, key_sum, pins)])


class ImexNodes(LinesFact):
    """The nodes of the IMEX domain, in the file that lists them; the same file is on each of them."""

    def command(self) -> str:
        """Read the file without comments."""
        return "grep --no-messages '^[^#]' /etc/nvidia-imex/nodes_config.cfg || true"


MODPROBE = "/etc/modprobe.d/bedplate-nvidia.conf"
PERSISTENCE = "nvidia-persistenced.service"
_DROP_IN = f"/etc/systemd/system/{PERSISTENCE}.d/60-bedplate.conf"
FABRIC_MANAGER, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
_MODULES = "/etc/modules-load.d/bedplate-nvlsm.conf"
# Profilers such as Nsight need the counters; without the option only root may read them.
_PROFILING = "# People profile their jobs without root.\noptions nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
# All users share memory with other machines by this channel.
_IMEX_CHANNEL = "options nvidia NVreg_CreateImexChannel0=1\n"
# The kernel series that Ubuntu 24.04 was released with; newer generic kernels come from its hardware enablement stack.
_FIRST_SERIES = "6.8"
_HWE = "generic-hwe-24.04"
# The branch in the name of a driver's package: 580 in libnvidia-compute-580-server.
_BRANCH = re.compile(r"nvidia-(?:[a-z0-9]+-)*?(\d{3})(?:-|$)")
_REBOOT = "/run/reboot-required"


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver: its branch, such as 580, with open or closed kernel modules.

    `fabric`: with the Fabric Manager; `subnets`: which needs the subnet manager NVLSM. `imex`: with IMEX, which shares
    memory between machines.
    """

    branch: str
    open: bool = True
    fabric: bool = False
    subnets: bool = False
    imex: bool = False

    @property
    def programs(self) -> tuple[str, ...]:
        """The packages that fit any kernel."""
        fabric = (f"nvidia-fabricmanager-{self.branch}",) if self.fabric else ()
        imex = (f"nvidia-imex-{self.branch}",) if self.imex else ()
        return (f"nvidia-headless-no-dkms-{self._variant}", f"nvidia-utils-{self.branch}-server", *fabric, *imex)

    def modules(self, flavour: str) -> str:
        """The package with the modules of a kernel flavour, such as `aws`."""
        return f"linux-modules-nvidia-{self._variant}-{flavour}"

    def others(self, installed: Iterable[str]) -> tuple[str, ...]:
        """Return the installed packages of other branches, and modules of the other kind."""
        return tuple(sorted(filter(self._is_other, installed)))

    def _is_other(self, package: str) -> bool:
        branch = _BRANCH.search(package)
        if branch is None:
            return False
        return branch[1] != self.branch or (package.startswith("linux-") and ("-open" in package) != self.open)

    @property
    def _variant(self) -> str:
        return f"{self.branch}-server-open" if self.open else f"{self.branch}-server"


def driver_of(branch: str, gpus: Hardware, chip: ChipFacts | None) -> Driver:
    """Return the driver for GPUs; one that the catalog does not know is taken for a new one."""
    if chip is None:
        return Driver(branch)
    fabric, is_blackwell = chip.needs_switch(gpus.count), chip.generation == "blackwell"
    # The superchips GB200 and GB300: NVLink connects the GPUs of several machines.
    return Driver(branch, chip.open, fabric, subnets=fabric and is_blackwell, imex=chip.name.startswith("gb"))


def needs_fabric_manager(driver: Driver, platform: Platform, state: Container[str]) -> bool:
    """Return whether the Fabric Manager must run: without an NVSwitch, as on a site's machine with cards, it ends.

    NVSwitches newer than Hopper's are on no PCI bus, and an EC2 type has what the catalog says.
    """
    return driver.fabric and ("switch" in state or driver.subnets or platform is Platform.CLOUD)


def kernel_flavour(release: str) -> str:
    """Return the flavour of a running kernel: `generic-hwe-24.04` for 6.17.0-8-generic.

    Raises InputError for a kernel without prebuilt modules.
    """
    flavour = release.rpartition("-")[2]
    if flavour == "generic" and not release.startswith(f"{_FIRST_SERIES}."):
        return _HWE
    if flavour in {"generic", "aws", "nvidia", "lowlatency"}:
        return flavour
    fix = "install Ubuntu's linux-generic or linux-generic-hwe-24.04, reboot, and apply again"
    raise InputError(f"Ubuntu has no NVIDIA modules for the kernel {release}", fix=fix)


_IS_LOADED = '[ "$(cat /sys/module/nvidia/version)" = "$(modinfo -F version nvidia)" ]'
_ALIEN = "nouveau"
_OUTDATED = "outdated"
_BUSY = "busy"


# /sys and /proc: nvidia-smi would load the driver.
_READ_STATE = (
    "echo kernel=$(uname -r); "
    "for d in /sys/bus/pci/devices/*; do case $(cat $d/vendor $d/class 2>/dev/null | tr -d '\\n') in "
    "0x10de0x03*) echo gpu=;; 0x10de0x0680*) echo switch=;; esac; done; "
    "for m in nouveau nvidia; do [ ! -d /sys/module/$m ] || echo $m=; done; "
    f"[ ! -d /sys/module/nvidia ] || {_IS_LOADED} || echo {_OUTDATED}=; "
    "[ ! -e /dev/nvidia0 ] || find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d/ -f3 | sort -u | "
    "while read p; do case $(cat /proc/$p/comm 2>/dev/null) in "
    "nvidia-persiste*|nv-fabricmanage*|nv-hostengine|nvidia-imex) ;; "
    f"*) echo {_BUSY}=; break;; esac; done"
)


class GpuState(FactBase[Mapping[str, str]]):
    """The state of a machine's GPUs: `kernel` is the release of the running kernel, the others are present or not.

    `gpu`, `switch`: the PCI bus has a GPU, an NVSwitch. `nvidia`, `nouveau`: the module is loaded. `outdated`: the
    loaded driver is not the installed one. `busy`: a program uses a GPU.
    """

    default = dict

    def command(self) -> str:
        """Read the PCI bus, the modules, and the open files of all processes."""
        return _READ_STATE

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Split each line at the equals sign."""
        return dict(line.split("=", 1) for line in output)


class Available(BoolFact):
    """Whether apt's lists have a package."""

    def command(self, package: str) -> str:
        """Ask apt."""
        return f"apt-cache show --no-all-versions {package} 2>/dev/null | grep --max-count=1 ^Package: || true"


@dataclass(frozen=True, slots=True)
class Nvidia(Role):
    """A machine with GPUs; `profiling`: people may read the GPUs' performance counters."""

    driver: Driver
    platform: Platform
    profiling: bool
    tools: Tools
    exporter: Exporter | None = None
    name: ClassVar[str] = "nvidia"
    disruption: ClassVar[Disruption] = Disruption.REBOOT
    space: ClassVar[DiskSpace] = DiskSpace(programs=1700, state=700)

    def install(self) -> None:
        """Install the driver; in the cloud with the modules of AWS's kernel, which every image has."""
        if self._waits():
            host.log(f"driver branch {self.driver.branch} waits until no program uses a GPU; apply again then")
        elif self._is_available():
            _remove(self.driver)
            aws = (self.driver.modules("aws"),) if self.platform is Platform.CLOUD else ()
            _install("Install the driver of GPUs", (*aws, *self.driver.programs))
            self._install_tools()
        else:
            host.log(f"no driver: {host.get_fact(LinuxName)} has no package {self.driver.programs[0]}")

    def _install_tools(self) -> None:
        if self.tools.is_trusted:
            self.tools.add_repository()
        if self._has_tools():
            if self.tools.is_outdated(host.get_fact(DebPackages)):
                server.shell(name=f"Replace DCGM by version {self.tools.version}", commands=[self.tools.replacement])
            _install("Install DCGM", self.tools.packages)
        else:
            host.log(f"no DCGM: the key of its repository is not verified in software set {self.tools.software.name}")

    def configure(self) -> Changes:
        """Disable nouveau, and enable persistence mode."""
        options = file_text("nvidia/modprobe.conf") + (_PROFILING if self.profiling else "")
        options += _IMEX_CHANNEL if self.driver.imex else ""
        module = ManagedFile("Load the module of the subnet manager", _MODULES, "ib_umad\n")
        return put_files(
            ManagedFile("Configure the modules of GPUs", MODPROBE, options),
            ManagedFile("Enable persistence mode of GPUs", _DROP_IN, file_text("nvidia/persistence.conf")),
            *((module,) if self.driver.subnets else ()),
            *(self.exporter.files() if self.exporter else ()),
        )

    def activate(self, changes: Changes) -> None:
        """Load the driver, or ask for a reboot if another one is in use."""
        server.shell(
            name="Update the initial ram disk",
            commands=["! command -v update-initramfs >/dev/null || update-initramfs -u"],
            _if=changed(changes, MODPROBE),
        )
        state = host.get_fact(GpuState)
        if not self._is_available() or self._waits() or "gpu" not in state:
            return
        is_missing = not {*self.driver.programs} <= host.get_fact(DebPackages).keys()
        if self.platform is Platform.METAL:
            # Not in `install`, which must not read the kernel.
            modules = self.driver.modules(kernel_flavour(state["kernel"]))
            is_missing |= modules not in host.get_fact(DebPackages)
            _install("Install the kernel modules of GPUs", (modules,))
        if is_missing or _OUTDATED in state or _ALIEN in state or "nvidia" not in state:
            server.shell(name="Load the driver of GPUs", commands=[_LOAD])
        if self.driver.subnets:
            server.shell(
                name="Load the module of the subnet manager",
                commands=["modprobe ib_umad"],
                _if=changed(changes, _MODULES),
            )
        start_units(self._units(state))
        if self.exporter and self._has_tools():
            # Metrics delay nothing else.
            start_units({"Start the exporter of GPUs": UNIT}, ends_apply=False)
            restart = changed(changes, FIELDS, DROP_IN)
            systemd.service(
                name="Restart the exporter of GPUs", service=UNIT, restarted=True, _if=restart, _ignore_errors=True
            )

    def _units(self, state: Container[str]) -> Mapping[str, str]:
        """Return the units to start, by operation name."""
        has_switch = needs_fabric_manager(self.driver, self.platform, state)
        units = {"Start the Fabric Manager": FABRIC_MANAGER} if has_switch else {}
        if self.driver.imex and host.get_fact(ImexNodes):
            units["Start IMEX"] = IMEX
        if self._has_tools():
            units["Start DCGM"] = DCGM
        return units

    def _has_tools(self) -> bool:
        # A site may have a mirror of the packages.
        return self.tools.is_trusted or host.get_fact(Available, package=self.tools.packages[0])

    def _is_available(self) -> bool:
        # Only Ubuntu has these packages; there a missing one is an error of its archive.
        return host.get_fact(LinuxName) == "Ubuntu" or host.get_fact(Available, package=self.driver.programs[0])

    def _waits(self) -> bool:
        """Return whether another branch must be replaced, and programs use it."""
        return bool(self.driver.others(host.get_fact(DebPackages))) and _BUSY in host.get_fact(GpuState)


def _remove(driver: Driver) -> None:
    """Declare the removal of other branches."""
    others = driver.others(host.get_fact(DebPackages))
    if others:
        purge = f"DEBIAN_FRONTEND=noninteractive apt-get --yes --allow-change-held-packages purge {' '.join(others)}"
        server.shell(name=f"Remove other branches than {driver.branch}", commands=[purge])


def _install(name: str, packages: Sequence[str]) -> None:
    """Declare packages, held at their version."""
    install_packages(name, packages)
    hold_packages(f"{name}: hold its version", packages)


# Modules in the order in which they can be unloaded. A display or a job may keep one: then a reboot is required.
_LOAD = (
    f"systemctl stop {DCGM} {IMEX} {PERSISTENCE} {FABRIC_MANAGER} 2>/dev/null; "
    "for m in nouveau nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia; do "
    "[ ! -d /sys/module/$m ] || modprobe -r $m || break; done; "
    f"if modprobe nvidia && {_IS_LOADED}; then systemctl start {PERSISTENCE}; else touch {_REBOOT}; fi"
)
