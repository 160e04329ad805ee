"""Reads fleet.lock, and changes it under an exclusive lock."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from shlex import quote

from bedplate.catalog import Catalog
from bedplate.checks.file import UNUSABLE_LOCK
from bedplate.errors import InputError
from bedplate.files import held, os_errors_as_machine_errors, write_whole
from bedplate.lock.format import NotALockError, lock_text, parse_lock
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.allocation import release
from bedplate.plan.record import FORMING
from bedplate.rules import fault
from bedplate.spec import Fleet

_NAME = "fleet.lock"
_LARGEST = 16 * 1024 * 1024  # a thousand regions of six zones and a site take one


class InvalidLock(InputError):
    """The lock is damaged, of another fleet or of another version; `fault` has the position."""

    def __init__(self, path: Path, error: NotALockError) -> None:
        unusable = fault(UNUSABLE_LOCK, "", f"cannot use {path.name}: {error.what}", error.fix)
        self.fault = replace(unusable, file=str(path), line=error.line, column=error.column)
        super().__init__(unusable.message, where=str(path), fix=unusable.fix)


def lock_path(fleet_file: Path) -> Path:
    """Return the path of a fleet file's lock, in the same folder."""
    return fleet_file.parent / _NAME


def read_lock(path: Path, fleet: str) -> Record:
    """Return the content of the lock; empty if there is no lock yet.

    Raises InvalidLock for a file that is not the lock of this fleet.
    """
    if not os.path.lexists(path):
        return Record({})
    try:
        with os_errors_as_machine_errors(path, "read"):
            return parse_lock(_text(path), fleet)
    except NotALockError as error:
        raise InvalidLock(path, error) from None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded plan, and the blocks that were released before."""

    plan: FleetPlan
    released: Mapping[str, IPv4Network]


def record_plan(path: Path, fleet: Fleet, catalog: Catalog, *, release_of: tuple[str, ...] = ()) -> Recorded:
    """Plan the fleet again under the lock, write fleet.lock, and return the plan.

    The file is read again, so records of other writers are kept. The blocks of the paths in `release_of` are released
    first. Raises HeldError if another process writes, PlanFaults if planning fails.
    """
    with held(path):
        record = read_lock(path, fleet.name)
        # Each is released from the whole record, so that a path may also be part of another one.
        kept = [release(record, released_path, fleet).blocks for released_path in release_of]
        released = {name: block for name, block in record.blocks.items() if any(name not in blocks for blocks in kept)}
        plan = plan_fleet(fleet, record.without(released), catalog)
        _update(path, fleet.name, record, plan.recorded())
        return Recorded(plan, released)


def record_images(path: Path, fleet: str, images: Mapping[str, str]) -> Record:
    """Record images of regions and architectures without one, and return the new record.

    Raises HeldError if another process writes. An image that another process has recorded since is kept.
    """
    return _change(path, fleet, lambda record: record.adding(images={**images, **record.images}))


def renew_images(path: Path, fleet: str, images: Mapping[str, str]) -> Record:
    """Replace recorded images, and return the new record. Raises as `record_images`."""
    return _change(path, fleet, lambda record: record.adding(images=images))


def record_baked(path: Path, fleet: str, images: Mapping[str, str]) -> Record:
    """Record baked images by region and kind, and return the new record. Raises as `record_images`."""
    return _change(path, fleet, lambda record: record.adding(baked=images))


def record_endpoints(
    path: Path, fleet: str, gateways: Mapping[str, IPv4Address], resolvers: Mapping[str, tuple[IPv4Address, ...]]
) -> Record:
    """Record laptop gateways and DNS resolvers by region, and return the new record. Raises as `record_images`."""
    return _change(path, fleet, lambda record: record.adding(gateways=gateways, resolvers=resolvers))


def record_host_keys(  # noqa: PLR0913  all facts about one machine
    path: Path, fleet: str, machine: str, keys: tuple[str, ...], instance: str | None = None, *, replace_known: bool
) -> Record:
    """Record the host keys of a machine and its EC2 instance, and return the new record. Raises as `record_images`.

    Raises InputError if other keys are recorded and `replace_known` is false.
    """
    with held(path):
        record = read_lock(path, fleet)
        before = record.host_keys.get(machine)
        if before and before != keys and not replace_known:
            fix = "if the machine was reinstalled, add --replace"
            raise InputError(f"{machine} has another recorded host key", where=str(path), fix=fix)
        return _update(path, fleet, record, record.with_host_keys(machine, keys, instance))


def record_authority(path: Path, fleet: str, certificate: str, account_key: str) -> Record:
    """Record the certificate of the cluster's authority and the public key of its tokens, and return the new record.

    Earlier keys stay: the tokens that they signed are valid. Raises as `record_images`, and InputError if another
    authority is recorded: every machine of the cluster trusts it.
    """
    with held(path):
        record = read_lock(path, fleet)
        if record.authority not in ("", certificate):
            fix = "use the key store of the recorded one, or restore fleet.lock from the last commit"
            raise InputError("the lock has the certificate of another cluster authority", where=str(path), fix=fix)
        keys = (account_key, *(key for key in record.account_keys if key != account_key))
        return _update(path, fleet, record, replace(record, authority=certificate, account_keys=keys))


def record_etcd(path: Path, fleet: str, cluster: str, *, replaces: bool = False) -> Record:
    """Record the id of the etcd cluster, and return the new record. Raises as `record_images`.

    Raises InputError if another one is recorded, unless a restore replaces it: a fleet has one cluster.
    """
    with held(path):
        record = read_lock(path, fleet)
        if not replaces and record.etcd not in ("", FORMING, cluster):
            what = f"the lock has etcd cluster {record.etcd}, the members have {cluster}"
            fix = "get the lock of the operator who restored the cluster, or run `bedplate kube restore`"
            raise InputError(what, where=str(path), fix=fix)
        return _update(path, fleet, record, replace(record, etcd=cluster))


def _change(path: Path, fleet: str, change: Callable[[Record], Record]) -> Record:
    """Change the record under the lock, and return the new one."""
    with held(path):
        record = read_lock(path, fleet)
        return _update(path, fleet, record, change(record))


def _update(path: Path, fleet: str, old: Record, new: Record) -> Record:
    """Write the lock if the record differs; only under the lock of `held`."""
    if new != old:
        write_whole(path, lock_text(fleet, new).encode())
    return new


def _text(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        raise NotALockError(
            f"it is a link to {path.readlink()}, which does not exist", "replace the link by the file itself"
        )
    if path.is_symlink() and not path.resolve().is_relative_to(folder := path.parent.resolve()):
        raise NotALockError(f"it is a link to a file outside {folder}", "replace the link by the file itself")
    # A blocking open of a FIFO would wait forever.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotALockError("it is not a regular file", "move it away")
        if status.st_size > _LARGEST:
            raise NotALockError(f"it has {status.st_size:,} bytes; the limit is {_LARGEST:,}")
        try:
            return stream.read(_LARGEST + 1).decode()
        except UnicodeDecodeError as error:
            raise NotALockError(f"it is not UTF-8: {error}") from None


# Without a lock, everything is missing; `bedplate plan` lists it.
_MOST_NAMES = 8


def check_plan_recorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError if the plan has blocks, addresses or ids of people and groups that are not in the lock."""
    check_recorded((*plan.new_blocks, *plan.new_addresses, *plan.new_people, *plan.new_groups), fleet_file)


def check_recorded(names: Iterable[str], fleet_file: Path) -> None:
    """Raise InputError if there are unrecorded names."""
    missing = tuple(names)
    if missing:
        more = (f"and {len(missing) - _MOST_NAMES} more",) if len(missing) > _MOST_NAMES else ()
        raise InputError(
            f"not recorded in {lock_path(fleet_file).name}: {', '.join((*missing[:_MOST_NAMES], *more))}",
            where=str(fleet_file),
            fix=f"run `bedplate plan --write {quote(str(fleet_file))}` first, and commit the lock",
        )
