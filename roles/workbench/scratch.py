"""/scratch: temporary space on local disks, with a private folder and half of the disk as quota for each person.

The program bedplate-scratch creates it at each boot, on the disks of the plan or else on EC2's instance store disks. A
file system that is already mounted at /scratch is used. A file system without quotas gets none, which the audit
reports. Errors are reported at the end of an apply, because no other operation needs /scratch.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Mounts, MountsDict
from pyinfra.operations import server

from bedplate.plan.fleet import Account
from roles.files import ManagedFile, file_text
from roles.system import install_packages, start_units

# The model of EC2's instance store disks. Source: EC2 user guide, "NVMe instance store volumes".
_LOCAL = "Amazon EC2 NVMe Instance Storage"
# The kernel module for ext4 quotas.
_QUOTA_MODULE = "quota_v2"
# repquota's columns: user, two marks, blocks used, soft limit, hard limit.
_HARD = 5


class LocalDisks(FactBase[bool]):
    """Whether an EC2 machine has instance store disks."""

    default = bool

    def command(self) -> str:
        """Read the model of each disk; a container sees the disks of its host, but has no device files."""
        is_local = f'[ -b "/dev/${{at##*/}}" ] && grep -qsF "{_LOCAL}" "$at/device/model"'
        return f'for at in /sys/block/nvme*; do ! {{ {is_local}; }} || echo "$at"; done'

    def process(self, output: Iterable[str]) -> bool:
        """Return whether a disk was printed."""
        return any(output)


class KernelWithoutQuotas(FactBase[str]):
    """The release of an Ubuntu kernel without quota support; empty for any other kernel."""

    default = str

    def command(self) -> str:
        """Check whether the module can be loaded."""
        return (
            f"grep -qsx ID=ubuntu /etc/os-release && ! modprobe --dry-run --quiet {_QUOTA_MODULE} && uname -r || true"
        )

    def process(self, output: Iterable[str]) -> str:
        """Return the release."""
        return "".join(output).strip()


class Folders(FactBase[Mapping[str, str]]):
    """Owner, group and mode of each folder in a folder, by name."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """List the folders."""
        return StringCommand(
            "find", QuoteString(path), "-mindepth 1 -maxdepth 1 -type d -printf '%f %u:%g %m\\n' 2>/dev/null || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Split names from owners and modes."""
        return {name: state for name, _, state in (line.partition(" ") for line in output)}


class Quotas(FactBase[Mapping[str, int]]):
    """The hard limit of each user id in KiB; the size of the file system under the empty name."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """Print the size, then each user's hard limit."""
        size = StringCommand("echo ,,,,,$(df --output=size -k", QuoteString(path), "| tail -n 1)")
        return StringCommand(
            size, "; repquota --user --output=csv --no-names", QuoteString(path), "| tail -n +2 || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Return the columns of the id and of the hard limit."""
        rows = (line.split(",") for line in output if line.count(",") >= _HARD)
        return {row[0].lstrip("#"): int(row[_HARD]) for row in rows}


SCRATCH = "/scratch"
TABLE = "/etc/bedplate/scratch"
SCRIPT = "/usr/local/sbin/bedplate-scratch"
LABEL = "scratch"
"""The label of a file system that the node created for /scratch."""
UNIT = "bedplate-scratch.service"
# Mount options of ext4 and xfs for user quotas. Source: mount(8), xfs(5).
_QUOTA_OPTIONS = {"usrquota", "uquota", "quota", "usrjquota"}


@dataclass(frozen=True, slots=True)
class Scratch:
    """The people with a folder in /scratch, and the disks of the plan."""

    people: Sequence[Account]
    disks: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[ManagedFile, ...]:
        """The table of disks and people, the program and its unit."""
        rows = (
            *(f"disk {disk}\n" for disk in self.disks),
            *(f"person {person.name} {person.uid}\n" for person in self.people),
        )
        return (
            ManagedFile("Write the table of /scratch", TABLE, "".join(rows)),
            ManagedFile(f"Write {SCRIPT}", SCRIPT, file_text("workbench/bedplate-scratch"), "755"),
            ManagedFile(f"Write {UNIT}", f"/etc/systemd/system/{UNIT}", file_text("workbench/scratch.service")),
        )

    def share(self) -> None:
        """Create what is missing, now and at each boot."""
        has_disks = bool(self.disks or host.get_fact(LocalDisks))
        # Ubuntu's cloud kernels have rarely used modules in a separate package. Not in `install`, which runs on another
        # machine's kernel if it builds an image.
        if has_disks and (kernel := host.get_fact(KernelWithoutQuotas)):
            install_packages(
                f"Install quota modules of kernel {kernel}", (f"linux-modules-extra-{kernel}",), ends_apply=False
            )
        mounts = host.get_fact(Mounts)
        if SCRATCH not in mounts and has_disks:
            server.shell(name=f"Mount {SCRATCH}", commands=[SCRIPT], _ignore_errors=True)
        elif names := self._incomplete(mounts):
            server.shell(name=f"Create {SCRATCH} folders of {', '.join(names)}", commands=[SCRIPT], _ignore_errors=True)
        start_units({f"Start {UNIT}": UNIT}, ends_apply=False)

    def _incomplete(self, mounts: dict[str, MountsDict]) -> Collection[str]:
        """Return the names of people whose folder or quota is missing or wrong."""
        folders = host.get_fact(Folders, path=SCRATCH)
        names = [person.name for person in self.people if folders.get(person.name) != _folder_state(person.name)]
        if keeps_quotas(mounts):
            limits = host.get_fact(Quotas, path=SCRATCH)
            half = limits.get("", 0) // 2
            names += [person.name for person in self.people if limits.get(str(person.uid)) != half]
        else:
            host.log(f"{SCRATCH} has no quotas: its file system does not support them")
        return list(dict.fromkeys(names))


def _folder_state(name: str) -> str:
    return f"{name}:{name} 700"


def keeps_quotas(mounts: dict[str, MountsDict]) -> bool:
    """Return whether the file system at /scratch has user quotas."""
    options = mounts[SCRATCH]["options"] if SCRATCH in mounts else []
    return not _QUOTA_OPTIONS.isdisjoint(option.partition("=")[0] for option in options)
