"""The role `efa`: libfabric, the NCCL plugin and Open MPI from AWS's installer, and huge pages.

Source: EC2 user guide, "Get started with EFA and MPI". The kernel has the driver, so its DKMS package is not installed.
The installer could not be downloaded here; tests replace it. Limits of locked memory are in the role `baseline`, and
`ptrace_scope` in `hardened`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.operations import server

from bedplate.catalog.software import EFA_SUM, SoftwareSet
from roles.base import Changes, DiskSpace, ManagedFile, Role, file_text, put_files
from roles.system import TextFact, apply_sysctls

FI_INFO = "/opt/amazon/efa/bin/fi_info"
SYSCTL = "/etc/sysctl.d/60-bedplate-efa.conf"
HUGE_PAGES = ("vm.nr_hugepages", "5128")
DOWNLOADS = "https://efa-installer.amazonaws.com"
FOLDER = "/var/tmp/bedplate-efa"  # noqa: S108  # created by root, and removed


class EfaVersion(TextFact):
    """The version of the installer that installed the software; empty for none."""

    def command(self) -> str:
        """Read the installer's record."""
        return "sed -n 's/^# EFA installer version: //p' /opt/amazon/efa_installed_packages 2>/dev/null || true"


@dataclass(frozen=True, slots=True)
class Efa(Role):
    """A machine with EFA interfaces."""

    software: SoftwareSet
    name: ClassVar[str] = "efa"
    space: ClassVar[DiskSpace] = DiskSpace(programs=600, state=2000)

    def install(self) -> None:
        """Install AWS's software; an error is reported at the end of the apply."""
        version = self.software.value("efa")
        if not self.software.checksum(EFA_SUM):
            name = self.software.name
            host.log(f"no EFA software: the checksum of installer {version} is not verified in software set {name}")
        elif host.get_fact(EfaVersion) != version:
            commands = [" && ".join(_commands(version, self.software.checksum(EFA_SUM)))]
            server.shell(name=f"Install EFA {version}", commands=commands, _ignore_errors=True)

    def configure(self) -> Changes:
        """Write the number of huge pages."""
        return put_files(ManagedFile("Write the number of huge pages", SYSCTL, file_text("efa/sysctl.conf")))

    def activate(self, changes: Changes) -> None:
        """Reserve the huge pages, also if other programs have released some."""
        del changes
        apply_sysctls("Reserve huge pages", SYSCTL, dict([HUGE_PAGES]))


def _commands(version: str, checksum: str) -> Iterator[str]:
    """Yield the commands that download, verify and run the installer; a failed one leaves the folder for the next."""
    file = f"aws-efa-installer-{version}.tar.gz"
    yield f"rm -rf {FOLDER} && mkdir -m 700 {FOLDER} && cd {FOLDER}"
    yield f"curl -fsSL --connect-timeout 10 --retry 3 --remote-name {DOWNLOADS}/{file}"
    yield f"echo '{checksum}  {file}' | sha256sum --check --quiet"
    yield f"tar --extract --gzip --file {file} && cd aws-efa-installer"
    # An image is built on a machine without EFA, where the installer's test would fail.
    yield "DEBIAN_FRONTEND=noninteractive ./efa_installer.sh -y --skip-kmod --no-verify"
    yield f"rm -rf {FOLDER}"
