"""What stands in the packet filter's place while that is not loaded: shut, but for SSH from where the plan lets it in.

Loaded first at each boot, so that whatever keeps the filter away (a damaged file, a module that is missing, a disk that
is lost) leaves the node shut and not open. Never takes the place of a filter that stands.
"""

from collections.abc import Iterable

from bedplate.plan.door import Rule
from roles.hardened.filter import FILES, MOUNTERS, doors_of
from roles.shipped import Shipped
from roles.template import rendered, text_of

PATH = "/etc/bedplate/emergency.nft"
UNIT = "bedplate-shut.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
# What `systemctl enable` makes of its WantedBy, without asking a running systemd.
ENABLED = f"/etc/systemd/system/sysinit.target.wants/{UNIT}"
# An empty chain that the packet filter itself never has; `bedplate-trial` looks for it under this name.
MARK = "emergency"
_SSH = ("tcp", 22)


def ruleset(rules: Iterable[Rule]) -> str:
    """Return the text that nftables loads; of the plan's doors it has those of SSH alone."""
    return rendered(
        "hardened/emergency.nft.j2",
        doors=doors_of(rule for rule in rules if (rule.protocol, rule.port) == _SSH),
        to_files=FILES,
        mounters=MOUNTERS,
        mark=MARK,
    )


def shipped(text: str) -> tuple[Shipped, ...]:
    """Return the files that shut a node at its boot."""
    return (
        Shipped("Packet filter of emergencies", PATH, text, "600"),
        Shipped("Unit that shuts the node first", UNIT_PATH, text_of(f"hardened/{UNIT}")),
    )
