"""The packet filter and sshd's settings on trial: what would shut its own operator out goes back by itself.

Begins a trial, and says how whoever applied confirms it: over a second connection, opened since. Without a confirmation
the node takes back what it had. `bedplate-trial`, shipped beside, says what happens on the node.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from roles.base import Changes
from roles.hardened.shipped import Shipped, ship, text_of

SCRIPT = "/usr/local/sbin/bedplate-trial"
# What whoever applied runs as root over a new connection; exit status 3 says that it is too late.
CONFIRM = f"{SCRIPT} confirm"
# Longer than what else activates on a node may take, and than a person waits in vain.
SECONDS = 120
_WANTED = "/etc/bedplate/wanted"
_IN_FORCE = (
    (f"{_WANTED}/filter.nft", "/etc/bedplate/filter.nft"),
    (f"{_WANTED}/sshd.conf", "/etc/ssh/sshd_config.d/00-bedplate.conf"),
)
_UNIT = "/etc/systemd/system/bedplate-filter.service"
# What `systemctl enable` makes of its WantedBy, without asking a running systemd.
_ENABLED = "/etc/systemd/system/sysinit.target.wants/bedplate-filter.service"


class InForce(FactBase[bool]):
    """Whether what was last wanted of a node is in force, confirmed, and nobody has changed it by hand since."""

    def command(self) -> StringCommand:
        """Compare the files, and the table as the kernel has it with what it was when it was loaded."""
        same = " && ".join(f"cmp -s {wanted} {live}" for wanted, live in _IN_FORCE)
        table = "nft -s list table inet bedplate 2>/dev/null | cmp -s - /var/lib/bedplate/filter.loaded"
        asked = f"test ! -e /var/lib/bedplate/trial && {same} && {table} && echo in force || echo differs"
        return StringCommand("sh", "-c", f"'{asked}'")

    def process(self, output: Iterable[str]) -> bool:
        """Read the answer."""
        return "in force" in list(output)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is wanted of a node's packet filter and of its sshd."""

    filter: str
    sshd: str

    def write(self) -> Changes:
        """Put both where a trial finds them, with the program that tries them."""
        files.link(name="Packet filter at boot", path=_ENABLED, target=_UNIT)
        return ship(
            Shipped(SCRIPT, text_of("bedplate-trial"), "755"),
            Shipped(_UNIT, text_of("bedplate-filter.service")),
            Shipped(f"{_WANTED}/filter.nft", self.filter, "600"),
            Shipped(f"{_WANTED}/sshd.conf", self.sshd, "600"),
        )

    def begin(self, written: Changes) -> None:
        """Take them on trial, if they are new or what is in force is something else."""
        if written or not host.get_fact(InForce):
            server.shell(name="Packet filter and sshd, on trial", commands=[f"{SCRIPT} begin {SECONDS}"])
