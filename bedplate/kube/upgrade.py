"""The steps of an upgrade by one minor version: members one after the other, then workers.

The API server must not be older than a kubelet, and kubelets may be three minor versions older.
Source: https://kubernetes.io/releases/version-skew-policy/, read 2026-11.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bedplate.errors import InputError

# The oldest kubelet that an API server accepts.
_SKEW = 3


class Action(StrEnum):
    """What a step does."""

    SNAPSHOT = "take a snapshot of etcd"
    UPGRADE_MEMBER = "upgrade the member"
    DRAIN = "drain"
    UPGRADE_WORKER = "upgrade the packages"
    REPLACE = "replace the instance"
    UNCORDON = "uncordon"


@dataclass(frozen=True, slots=True)
class Step:
    """A step on a member or node; the next one begins when it has succeeded."""

    action: Action
    node: str


@dataclass(frozen=True, slots=True)
class Worker:
    """A node that is no member: its name, version of kubelet, and provider id."""

    name: str
    version: str
    provider: str

    @property
    def instance(self) -> str:
        """The EC2 instance; empty for a machine of a site."""
        return self.provider.rpartition("/")[2] if self.provider.startswith("aws:") else ""


def upgrade_steps(
    members: Mapping[str, str], workers: tuple[Worker, ...], control: str, kubelet: str
) -> tuple[Step, ...]:
    """Return the steps from the versions of members and workers to the minor versions of the plan.

    What has its version already has no step, so that a second run continues. Raises InputError if a step would be
    larger than one minor version, or if a version would be lowered.
    """
    for name, version in members.items():
        _check(name, version, control)
    for worker in workers:
        _check_worker(worker, min((_minor(version) for version in members.values()), default=0), control, kubelet)
    return tuple(_steps(members, workers, control, kubelet))


def _steps(members: Mapping[str, str], workers: tuple[Worker, ...], control: str, kubelet: str) -> Iterator[Step]:
    late = [name for name, version in members.items() if _minor(version) != _minor(control)]
    if late:
        yield Step(Action.SNAPSHOT, late[0])
    for name in late:
        yield Step(Action.UPGRADE_MEMBER, name)
    for worker in workers:
        if _minor(worker.version) == _minor(kubelet):
            continue
        yield Step(Action.DRAIN, worker.name)
        if worker.instance:
            yield Step(Action.REPLACE, worker.name)
        else:
            yield Step(Action.UPGRADE_WORKER, worker.name)
            yield Step(Action.UNCORDON, worker.name)


def _check(name: str, version: str, control: str) -> None:
    now, target = _minor(version), _minor(control)
    if target < now:
        raise InputError(f"{name} has version {version}: Kubernetes cannot go back", fix=f"write version: '1.{now}'")
    if target > now + 1:
        what = f"{name} has version {version}: {control} is {target - now} minor versions newer"
        raise InputError(what, fix=f"write version: '1.{now + 1}', upgrade, then write the next one")


def _check_worker(worker: Worker, oldest: int, control: str, kubelet: str) -> None:
    now, target = _minor(worker.version), _minor(kubelet)
    if target < now:
        what = f"{worker.name} has version {worker.version}, newer than {kubelet}"
        raise InputError(what, fix=f"write image.kubernetes: '1.{now}'")
    if now < _minor(control) - _SKEW and oldest < _minor(control):
        what = f"{worker.name} has version {worker.version}, too old for an API server of {control}"
        raise InputError(what, fix=f"write version: '1.{oldest}', and upgrade the workers first")


def _minor(version: str) -> int:
    """Return the minor version of `1.36` or `v1.36.3`."""
    return int(version.removeprefix("v").split(".")[1])


def parse_workers(text: str, members: frozenset[str]) -> tuple[Worker, ...]:
    """Return the workers in the output of `bedplate-member nodes`: name, version and provider id a line."""
    rows = (line.split() for line in text.splitlines() if line.strip())
    return tuple(Worker(row[0], row[1], row[2] if len(row) > 2 else "") for row in rows if row[0] not in members)  # noqa: PLR2004
