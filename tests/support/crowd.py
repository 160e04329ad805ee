"""A fleet's people for tests of the role `people`, and a node in memory that has these accounts."""

from collections.abc import Iterable

from bedplate.plan.accounts import Account, Accounts
from roles.people.role import People
from tests.support.disk import Disk
from tests.support.fleets import ADA, BOB
from tests.support.recorded import Recorded
from tests.support.recorder import Played, Recorder

ACCOUNTED, MARKS, MAKES_HOMES = "roles.people.standing.Accounted", "roles.shipped.Marks", "roles.people.role.MakesHomes"
ACCOUNTS = Accounts(
    (
        Account("ada", 20000, admin=True, keys=(ADA,), groups=("vision",)),
        Account("bob", 20001, admin=False, keys=(BOB,), groups=("vision", "speech")),
    ),
    {"vision": 50000, "speech": 50001},
    {"eve": 20002},
)
FRESH = (
    "login:root:x:0:0:root:/root:/bin/bash",
    "login:ubuntu:x:1000:1000::/home/ubuntu:/bin/bash",
    "group:root:x:0:",
    "group:sudo:x:27:ubuntu",
    "lock:root:*:",
    "lock:ubuntu:!:",
    "busy:0",
)


def answering(system: Recorded, lines: Iterable[str], **more: tuple[str, ...]) -> Recorded:
    """Return a node that has these accounts."""
    table = {ACCOUNTED: tuple(lines), MARKS: None, MAKES_HOMES: ("0",)}
    return system.but({**table, **more})


def played(
    system: Recorded,
    lines: Iterable[str] = FRESH,
    accounts: Accounts = ACCOUNTS,
    homes: str | None = None,
    first: str | None = "ubuntu",
) -> Played:
    """Run the role on a node that has these accounts."""
    node = Recorder(answering(system, lines), Disk.of({}))
    return node.play(People(accounts, homes, first), stages=("configure", "activate"))
