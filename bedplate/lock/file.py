"""fleet.lock as a file: read strictly, and changed only under the hold."""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from shlex import quote

from bedplate.catalog import Catalog
from bedplate.checks.diagnostics import fault
from bedplate.errors import InputError
from bedplate.hold import held
from bedplate.lock.format import NotALockError, lock_text, parse_lock
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.allocation import release
from bedplate.spec import Fleet
from bedplate.writer import told_plainly, write_whole

_NAME = "fleet.lock"
_LARGEST = 16 * 1024 * 1024  # a thousand regions of six zones and a site take one


class LockRefused(InputError):
    """A lock that is not whole, not of this fleet, or not of this version; `fault` says so in its place."""

    def __init__(self, path: Path, error: NotALockError) -> None:
        told = fault("E290", "", f"{path.name} is refused: {error.what}", error.fix)
        self.fault = replace(told, file=str(path), line=error.line, column=error.column)
        super().__init__(told.message, where=str(path), fix=told.fix)


def lock_path(fleet_file: Path) -> Path:
    """Return where the lock of a fleet file lies: beside it."""
    return fleet_file.with_name(_NAME)


def read_lock(path: Path, fleet: str) -> Record:
    """Return what the lock holds; nothing where there is no lock yet.

    Raises LockRefused for anything but the lock of this fleet.
    """
    if not os.path.lexists(path):
        return Record({})
    try:
        with told_plainly(path, "read"):
            return parse_lock(_text(path), fleet)
    except NotALockError as error:
        raise LockRefused(path, error) from None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A plan that was recorded, and the blocks that were given back before it."""

    plan: FleetPlan
    released: Mapping[str, IPv4Network]


def record_plan(path: Path, fleet: Fleet, catalog: Catalog, *, release_of: tuple[str, ...] = ()) -> Recorded:
    """Plan the fleet once more under the hold, write its lock, and return what was recorded.

    The lock is read again under the hold, so what another writer has recorded since is kept. `release_of`
    names the paths to give back first. Raises HeldError while somebody else writes, PlanFaults as planning does.
    """
    with held(path):
        known = read_lock(path, fleet.name)
        # Each is released from what the lock holds, so that one may name what another takes along.
        left = [release(known, each, fleet).blocks for each in release_of]
        gone = {name: block for name, block in known.blocks.items() if any(name not in blocks for blocks in left)}
        plan = plan_fleet(fleet, known.without(gone), catalog)
        _rewritten(path, fleet.name, known, plan.recorded())
        return Recorded(plan, gone)


def record_images(path: Path, fleet: str, images: Mapping[str, str]) -> Record:
    """Record images of places that have none yet, and return what the lock holds now.

    The lock is read again under the hold: an image that another writer has recorded since stays. HeldError while
    somebody else writes.
    """
    with held(path):
        known = read_lock(path, fleet)
        return _rewritten(path, fleet, known, known.with_images({**images, **known.images}))


def renew_images(path: Path, fleet: str, images: Mapping[str, str]) -> Record:
    """Record images in place of those that the lock holds, and return what it holds now; raises as `record_images`."""
    with held(path):
        known = read_lock(path, fleet)
        return _rewritten(path, fleet, known, known.with_images(images))


def record_doors(
    path: Path, fleet: str, gateways: Mapping[str, IPv4Address], resolvers: Mapping[str, tuple[IPv4Address, ...]]
) -> Record:
    """Record where laptops dial and ask for names, region by region, and return what the lock holds now.

    Raises as `record_images`.
    """
    with held(path):
        known = read_lock(path, fleet)
        return _rewritten(path, fleet, known, known.with_doors(gateways, resolvers))


def record_host_keys(  # noqa: PLR0913  what is known of one machine
    path: Path, fleet: str, machine: str, keys: tuple[str, ...], instance: str | None = None, *, replace_known: bool
) -> Record:
    """Record the host keys of a machine, and return what the lock holds now; raises as `record_images`.

    `instance` is the EC2 instance that has them.
    InputError where other keys are recorded and are not to be replaced: another writer may have done so since.
    """
    with held(path):
        known = read_lock(path, fleet)
        before = known.host_keys.get(machine)
        if before and before != keys and not replace_known:
            fix = "where the machine was made anew, add --replace"
            raise InputError(f"another host key of {machine} is recorded", where=str(path), fix=fix)
        return _rewritten(path, fleet, known, known.with_host_keys(machine, keys, instance))


def _rewritten(path: Path, fleet: str, known: Record, record: Record) -> Record:
    """Write the lock where it is to hold something else than is known; only for the holder."""
    if record != known:
        write_whole(path, lock_text(fleet, record).encode())
    return record


def _text(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        raise NotALockError(f"it is a link to nothing: {path.readlink()} is not there", "put the file itself there")
    # A pipe would block an ordinary open for ever.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotALockError("it is no ordinary file", "move it away")
        if status.st_size > _LARGEST:
            raise NotALockError(f"it has {status.st_size:,} bytes; no lock is that large")
        try:
            return stream.read(_LARGEST + 1).decode()
        except UnicodeDecodeError as error:
            raise NotALockError(f"it is no text: {error}") from None


# Of a file that has no lock yet, all is missing: the plan lists it.
_TOLD = 8


def refuse_unrecorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError where a node would get a block, an address, a user's or a group's id that the lock lacks."""
    refuse_names((*plan.news, *plan.new_addresses, *plan.new_people, *plan.new_groups), fleet_file)


def refuse_names(names: Iterable[str], fleet_file: Path) -> None:
    """Raise InputError that names the first of these, where there are any, and says how they are recorded."""
    missing = tuple(names)
    if missing:
        more = (f"and {len(missing) - _TOLD} more",) if len(missing) > _TOLD else ()
        raise InputError(
            f"not recorded in {lock_path(fleet_file).name}: {', '.join((*missing[:_TOLD], *more))}",
            where=str(fleet_file),
            fix=f"run `bedplate plan --write {quote(str(fleet_file))}` first, and commit the lock",
        )
