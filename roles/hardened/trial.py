"""The packet filter and sshd's settings on trial: what would shut its own operator out goes back by itself.

Begins a trial, and says how whoever applied confirms it: over a second connection, opened since. Without a confirmation
the node takes back what it had. `bedplate-trial`, shipped beside, says what happens on the node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from roles.drop_ins import removed
from roles.hardened import emergency
from roles.hardened.filter import HELD, TRIED
from roles.hardened.sshd import DROP_IN, MAIN, UNREAD
from roles.shipped import Shipped, ship
from roles.template import text_of

SCRIPT = "/usr/local/sbin/bedplate-trial"
# What whoever applied runs as root over a new connection; exit status 3 says that it is too late.
CONFIRM = f"{SCRIPT} confirm"
# Longer than what else activates on a node may take, and than a person waits in vain.
SECONDS = 120
_FILTER = "/etc/bedplate/filter.nft"
UNIT = "bedplate-filter.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
# What `systemctl enable` makes of its WantedBy, without asking a running systemd.
_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{UNIT}"


class InForce(FactBase[bool]):
    """Whether these two files are in force, confirmed, sshd has read them and no others, and the table is theirs."""

    default = bool

    def command(self, packets: str, sshd: str) -> StringCommand:
        """Compare the files by their SHA-256, and the kernel's table with what it makes of the file."""
        sums = f'printf "%s  %s\\n" {packets} {_FILTER} {sshd} {DROP_IN} | sha256sum --check --status'
        table = f'wanted=$({TRIED} < {_FILTER}) && [ "$wanted" = "$({HELD})" ]'
        # Read first, and alone.
        first = f'[ "$(head -n 1 {MAIN})" = "Include {DROP_IN}" ]'
        alone = f"""[ "$(grep -ciE '^[[:space:]]*"?include' {MAIN})" = 1 ]"""
        read = f'unread=$({UNREAD}) && [ -z "$unread" ]'
        both = f"{sums} 2>/dev/null && {first} && {alone} && {read} && {{ {table}; }} 2>/dev/null"
        return StringCommand(f"[ ! -e /var/lib/bedplate/trial ] && {both} && echo yes || :")

    def process(self, output: Iterable[str]) -> bool:
        """Read the answer."""
        return "yes" in list(output)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is wanted of a node's packet filter and of its sshd, and what stands in for a filter that does not load."""

    packets: str
    sshd: str
    shut: str

    def write(self) -> None:
        """Put both where a trial finds them, with the program that tries them."""
        ship(
            Shipped("Program of trials", SCRIPT, text_of("hardened/bedplate-trial"), "755"),
            *emergency.shipped(self.shut),
            Shipped("Unit of the packet filter", UNIT_PATH, text_of(f"hardened/{UNIT}")),
            Shipped("Packet filter", "/etc/bedplate/wanted/filter.nft", self.packets, "600"),
            Shipped("Settings of sshd", "/etc/bedplate/wanted/sshd.conf", self.sshd, "600"),
        )
        removed("Units of the packet filter are as they are written", (UNIT, emergency.UNIT))
        # What it was compared with, where somebody could write.
        files.file(name="No copy of the loaded filter", path="/var/lib/bedplate/filter.loaded", present=False)
        files.link(name="Shut at boot", path=emergency.ENABLED, target=emergency.UNIT_PATH)
        files.link(name="Packet filter at boot", path=_ENABLED, target=UNIT_PATH)

    def begin(self) -> None:
        """Take them on trial, unless they are in force already."""
        packets, sshd = (sha256(text.encode()).hexdigest() for text in (self.packets, self.sshd))
        if not host.get_fact(InForce, packets=packets, sshd=sshd):
            server.shell(name="Packet filter and sshd, on trial", commands=[f"{SCRIPT} begin {SECONDS}"])
