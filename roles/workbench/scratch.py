"""Local disk for work that may be lost: a folder each, private, and no more than half of the disk for anybody.

Whatever is mounted at /scratch serves. Where its file system keeps no quotas there are none: the audit says so.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Mounts, MountsDict
from pyinfra.operations import files, server

from bedplate.plan.accounts import Account

SCRATCH = "/scratch"
# Options by which ext4 and xfs keep account of users. Source: mount(8), xfs(5).
_COUNTING = {"usrquota", "uquota", "quota", "usrjquota"}


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


# repquota's columns: user, two marks, blocks used, soft limit, hard limit.
_HARD = 5


def keeps_quotas(mounts: dict[str, MountsDict]) -> bool:
    """Say whether what is mounted at /scratch counts by user."""
    options = mounts[SCRATCH]["options"] if SCRATCH in mounts else []
    return not _COUNTING.isdisjoint(each.partition("=")[0] for each in options)


def share_scratch(people: Sequence[Account]) -> None:
    """Declare each person's folder, and their share where it can be kept."""
    files.directory(name="Scratch", path=SCRATCH, user="root", group="root", mode="755")
    found = host.get_fact(Folders, path=SCRATCH)
    for name in (person.name for person in people if found.get(person.name) != f"{person.name}:{person.name} 700"):
        files.directory(name=f"Scratch of {name}", path=f"{SCRATCH}/{name}", user=name, group=name, mode="700")
    if keeps_quotas(host.get_fact(Mounts)):
        _limit(people)
    else:
        host.log(f"{SCRATCH} is shared without limits: its file system keeps no quotas of users")


def _limit(people: Sequence[Account]) -> None:
    found = host.get_fact(Quotas, path=SCRATCH)
    half = found.get("", 0) // 2
    late = [person for person in people if found.get(str(person.uid)) != half]
    for person in late:
        command = f"setquota --user {person.uid} 0 {half} 0 0 {SCRATCH}"
        server.shell(name=f"Share of {person.name}", commands=[command])
