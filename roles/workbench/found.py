"""What a node has of local disk: disks of its host, the kernel's counting, and who has which share of a file system.

Asks, and changes nothing.
"""

from collections.abc import Iterable, Mapping

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase

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
