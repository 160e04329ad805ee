"""Mounts beside each other: one place has each path once, no mount lies in another, and none hides an export."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.storage import EfsStore, NfsStore

# Every machine of the cloud mounts every store of the cloud, whatever the regions of both are.
_CLOUD = "the cloud"


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where one store is mounted: `place` is the cloud or a site, `machine` the one that exports and mounts nothing."""

    store: str
    place: str
    path: str
    machine: str = ""
    export: str = ""

    @property
    def key(self) -> str:
        """The key that says where."""
        return f"storage.{self.store}.mount"


def check_mounts(evidence: Evidence) -> Iterator[Fault]:
    """Tell mounts of one place that are in each other's way, and two exports of one folder."""
    mounts = tuple(_mounts(evidence))
    for key, (place, path), first in repeated((each.key, (each.place, each.path)) for each in mounts):
        yield fault("E403", key, f"{path} in {place} is the mount point of {first.split('.')[1]} too")
    exports = (each for each in mounts if each.export)
    folders = ((f"storage.{each.store}.export", (each.place, each.machine, each.export)) for each in exports)
    for key, (_, machine, folder), first in repeated(folders):
        yield fault("E409", key, f"{folder} of {machine} is exported for {first.split('.')[1]} too")
    for mount in mounts:
        yield from _nested(mount, [other for other in mounts if other.place == mount.place])


def lies_in(path: str, folder: str) -> bool:
    """Say whether a path is a folder or lies below it."""
    return f"{path}/".startswith(f"{folder}/")


def _mounts(evidence: Evidence) -> Iterator[_Mount]:
    for name, store in evidence.fleet.storage.items():
        if isinstance(store, EfsStore):
            yield _Mount(name, _CLOUD, store.mount)
        elif isinstance(store, NfsStore):
            yield _Mount(name, store.site, store.mount, store.machine, store.export)


def _nested(mount: _Mount, beside: Sequence[_Mount]) -> Iterator[Fault]:
    """Tell a mount that lies in another, or that hides what a machine of its site exports."""
    for other in beside:
        if mount.path != other.path and lies_in(mount.path, other.path):
            yield fault("E416", mount.key, f"{mount.path} lies in {other.path}, the mount point of {other.store}")
        elif other.export and other.machine != mount.machine and lies_in(other.export, mount.path):
            yield fault("E416", mount.key, f"{mount.path} hides {other.export}, which {other.machine} exports")
