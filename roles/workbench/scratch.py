"""Local disk for work that may be lost: a folder each, private, and no more than half of the disk for anybody.

The node does it by itself, at each boot (bedplate-scratch): disks that the plan names, else those of EC2's host, else
none. Whatever is mounted at /scratch serves. Where its file system keeps no quotas there are none: the audit says so.
What fails here is told at the end of an apply: it keeps nothing else of the node undone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Mounts, MountsDict
from pyinfra.operations import server

from bedplate.plan.fleet import Account
from roles.files import Shipped, text_of
from roles.system import install, keep_running

# How EC2 calls the disks of the host that a machine runs on. Source: EC2 user guide, "NVMe instance store volumes".
_LOCAL = "Amazon EC2 NVMe Instance Storage"
# The kernel's part of quotas as ext4 keeps them.
_COUNTER = "quota_v2"
# repquota's columns: user, two marks, blocks used, soft limit, hard limit.
_HARD = 5


class LocalDisks(FactBase[int]):
    """How many disks of the host under it a machine of EC2 has."""

    default = int

    def command(self) -> str:
        """Ask the kernel for the model of each disk; a container sees those of its host, and has none of them."""
        here = f'[ -b "/dev/${{at##*/}}" ] && grep -qsF "{_LOCAL}" "$at/device/model"'
        return f'for at in /sys/block/nvme*; do ! {{ {here}; }} || echo "$at"; done'

    def process(self, output: Iterable[str]) -> int:
        """Count them."""
        return len(list(output))


class Uncounted(FactBase[str]):
    """The release of a kernel of Ubuntu's that lacks quotas; nothing where the kernel has them, or is another's."""

    default = str

    def command(self) -> str:
        """Ask what it has or could load."""
        return f"grep -qsx ID=ubuntu /etc/os-release && ! modprobe --dry-run --quiet {_COUNTER} && uname -r || true"

    def process(self, output: Iterable[str]) -> str:
        """Take its name."""
        return "".join(output).strip()


class Folders(FactBase[Mapping[str, str]]):
    """Owners and mode of each folder in a folder, by its name: one question for everybody."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """List them."""
        return StringCommand(
            "find", QuoteString(path), "-mindepth 1 -maxdepth 1 -type d -printf '%f %u:%g %m\\n' 2>/dev/null || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Part names from what is said of them."""
        return {name: told for name, _, told in (line.partition(" ") for line in output)}


class Quotas(FactBase[Mapping[str, int]]):
    """What each user may take of a file system, in KiB; its size under the empty name."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """Ask for the size, then for each user's hard limit."""
        size = StringCommand("echo ,,,,,$(df --output=size -k", QuoteString(path), "| tail -n 1)")
        return StringCommand(
            size, "; repquota --user --output=csv --no-names", QuoteString(path), "| tail -n +2 || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Take the columns of the id and of the hard limit of blocks."""
        rows = (line.split(",") for line in output if line.count(",") >= _HARD)
        return {row[0].lstrip("#"): int(row[_HARD]) for row in rows}


SCRATCH = "/scratch"
TABLE = "/etc/bedplate/scratch"
SCRIPT = "/usr/local/sbin/bedplate-scratch"
LABEL = "scratch"
"""What the file system bears that the node made for it."""
UNIT = "bedplate-scratch.service"
# Options by which ext4 and xfs keep account of users. Source: mount(8), xfs(5).
_COUNTING = {"usrquota", "uquota", "quota", "usrjquota"}


@dataclass(frozen=True, slots=True)
class Scratch:
    """Whose it is, and the disks that it is made of, where the plan names some."""

    people: Sequence[Account]
    disks: tuple[str, ...] = ()

    @property
    def shipped(self) -> tuple[Shipped, ...]:
        """Return what the node does it with: a table, a program, a unit."""
        rows = (
            *(f"disk {disk}\n" for disk in self.disks),
            *(f"person {each.name} {each.uid}\n" for each in self.people),
        )
        return (
            Shipped("Table of scratch", TABLE, "".join(rows)),
            Shipped("Program of scratch", SCRIPT, text_of("workbench/bedplate-scratch"), "755"),
            Shipped(f"Unit {UNIT}", f"/etc/systemd/system/{UNIT}", text_of("workbench/scratch.service")),
        )

    def install(self) -> None:
        """Install what makes one device of several disks, where there are several, and what the kernel counts by."""
        disks = len(self.disks) or host.get_fact(LocalDisks)
        if disks > 1:
            install("One device of several disks", ("mdadm",))
        # Kernels of Ubuntu's for clouds have rarer modules in a package of their own.
        if disks and (kernel := host.get_fact(Uncounted)):
            install(f"Quotas of {kernel}", (f"linux-modules-extra-{kernel}",), ends_apply=False)

    def share(self) -> None:
        """Let the node make what is missing, now and at each boot."""
        mounts = host.get_fact(Mounts)
        if SCRATCH not in mounts and (self.disks or host.get_fact(LocalDisks)):
            server.shell(name=f"Disks at {SCRATCH}", commands=[SCRIPT], _ignore_errors=True)
        elif late := self._late(mounts):
            server.shell(name=f"Scratch of {', '.join(late)}", commands=[SCRIPT], _ignore_errors=True)
        keep_running({f"{SCRATCH} at each boot": UNIT}, ends_apply=False)

    def _late(self, mounts: dict[str, MountsDict]) -> Collection[str]:
        """Return the names of those whose folder or share is not as it should be."""
        found = host.get_fact(Folders, path=SCRATCH)
        late = {each.name: each for each in self.people if found.get(each.name) != f"{each.name}:{each.name} 700"}
        if keeps_quotas(mounts):
            limits = host.get_fact(Quotas, path=SCRATCH)
            half = limits.get("", 0) // 2
            late |= {each.name: each for each in self.people if limits.get(str(each.uid)) != half}
        else:
            host.log(f"{SCRATCH} is shared without limits: its file system keeps no quotas of users")
        return late


def keeps_quotas(mounts: dict[str, MountsDict]) -> bool:
    """Say whether what is mounted at /scratch counts by user."""
    options = mounts[SCRATCH]["options"] if SCRATCH in mounts else []
    return not _COUNTING.isdisjoint(each.partition("=")[0] for each in options)
