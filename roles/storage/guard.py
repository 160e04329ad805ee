"""The limit of waiting for a server: after it, what hangs on its mounts is told an error, and waits no more."""

from collections.abc import Iterable, Iterator

from roles.shipped import Shipped
from roles.storage.attached import Attached
from roles.storage.unit import FOLDER, MARK
from roles.template import text_of

SCRIPT = "/usr/local/sbin/bedplate-storage-guard"
TABLE = "/etc/bedplate/mounts"
TIMER, RELEASE, ANSWERS = (
    "bedplate-storage-guard.timer",
    "bedplate-storage-release.service",
    "bedplate-answers@.service",
)
UNITS = (TIMER, "bedplate-storage-guard.service", RELEASE, ANSWERS)


def guard(attached: Iterable[Attached]) -> Iterator[Shipped]:
    """Yield the guard, its units, and the table of what it looks after."""
    rows = sorted(f"{each.store} {each.path} {each.asked}\n" for each in attached if each.asked)
    yield Shipped("Servers of mounts", TABLE, "".join(rows))
    yield Shipped("Guard of mounts", SCRIPT, text_of("storage/bedplate-storage-guard"), "755")
    for name in UNITS:
        yield Shipped(f"Unit {name}", f"{FOLDER}/{name}", f"{MARK}\n{text_of(f'storage/{name}')}")
