"""The steps of an upgrade, what keeps a worker from being drained, and the rollout by groups.

In an upgrade the API server must not be older than a kubelet, and kubelets may be three minor versions older. Source:
https://kubernetes.io/releases/version-skew-policy/, read 2026-11.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from threading import Event
from typing import Any, cast

from lightkube.models.meta_v1 import LabelSelector
from lightkube.resources.core_v1 import Pod

from bedplate.catalog.tables import read_version
from bedplate.cluster.pods import has_ended, is_daemon, is_movable, selects
from bedplate.errors import BedplateError, InputError
from bedplate.foreign import LARGE, WORD, parse_json
from bedplate.plan.cluster import has_version, minor_version, region_of_node

# The oldest kubelet that an API server accepts.
_SKEW = 3
_NOT_USABLE = ("bedplate/gate", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Of a group, one in so many machines is upgraded at a time by default.
_SHARE = 10


class Action(StrEnum):
    """The action of a step."""

    SNAPSHOT = "take a snapshot of etcd"
    UPGRADE_MEMBER = "upgrade the member"
    DRAIN = "drain"
    UPGRADE_WORKER = "upgrade the packages"
    REPLACE = "replace the instance"
    UNCORDON = "uncordon"


@dataclass(frozen=True, slots=True)
class Step:
    """A step on a member or node; the next one of the same node begins when it has succeeded."""

    action: Action
    node: str


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of Kubernetes and containerd that a machine has, such as `v1.36.3`, or that are planned for it."""

    kubernetes: str
    containerd: str

    def are(self, planned: "Versions") -> bool:
        """Return whether both are the planned ones."""
        is_kubernetes = has_version(self.kubernetes, planned.kubernetes)
        return is_kubernetes and has_version(self.containerd, planned.containerd)

    def __str__(self) -> str:
        """Return both in words."""
        return f"Kubernetes {self.kubernetes.removeprefix('v')}, containerd {self.containerd}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A node, with the versions that its kubelet reports.

    `is_upgrading`: an upgrade has drained it and not uncordoned it yet. `is_usable`: it is ready and takes pods.
    """

    name: str
    versions: Versions
    provider: str
    is_upgrading: bool = False
    is_usable: bool = True

    @property
    def instance(self) -> str:
        """The EC2 instance; empty for a machine of a site."""
        return self.provider.rpartition("/")[2] if self.provider.startswith("aws:") else ""

    @property
    def group(self) -> str:
        """The group and region of an instance; the site of another machine."""
        host, _, place = self.name.partition(".")
        return f"{host.rpartition('-')[0]}.{place}" if region_of_node(self.name) else place


def parse_nodes(text: str) -> tuple[Worker, ...]:
    """Return the nodes in the output of `bedplate-member nodes`, a line each; members included."""
    return tuple(_parse_node(line) for line in text.splitlines() if line.strip())


def _parse_node(line: str) -> Worker:
    name, kubelet, runtime, provider, mark, taints = line.split("\t")
    versions = Versions(kubelet, runtime.removeprefix("containerd://"))
    return Worker(name, versions, provider, mark == "upgrading", not set(taints.split()) & {*_NOT_USABLE})


def upgrade_steps(
    members: Mapping[str, Versions], workers: Sequence[Worker], control: Versions, planned: Versions
) -> tuple[Step, ...]:
    """Return the steps from the versions of members and workers to those of the plan.

    What has its versions already has no step, so that a second run continues. Raises InputError if a step would be
    larger than one minor version, or if the version of a member would be lowered.
    """
    for name, versions in members.items():
        _check(name, versions.kubernetes, control.kubernetes)
    oldest = min((minor_version(versions.kubernetes) for versions in members.values()), default=0)
    for worker in workers:
        _check_worker(worker, oldest, control.kubernetes, planned.kubernetes)
    return tuple(_steps(members, workers, control, planned))


def _steps(
    members: Mapping[str, Versions], workers: Sequence[Worker], control: Versions, planned: Versions
) -> Iterator[Step]:
    late = [name for name, versions in members.items() if not versions.are(control)]
    if late:
        yield Step(Action.SNAPSHOT, late[0])
    for name in late:
        yield Step(Action.UPGRADE_MEMBER, name)
    for worker in workers:
        if worker.versions.are(planned):
            if worker.is_upgrading:
                yield Step(Action.UNCORDON, worker.name)
            continue
        yield Step(Action.DRAIN, worker.name)
        if worker.instance:
            yield Step(Action.REPLACE, worker.name)
        else:
            yield Step(Action.UPGRADE_WORKER, worker.name)
            yield Step(Action.UNCORDON, worker.name)


def _check(name: str, version: str, control: str) -> None:
    actual, planned = read_version(version), read_version(control)
    now, target = minor_version(version), minor_version(control)
    if planned < actual[: len(planned)]:
        back = version.removeprefix("v") if now == target else f"1.{now}"
        raise InputError(f"{name} has version {version}: Kubernetes cannot go back", fix=f"write version: '{back}'")
    if target > now + 1:
        what = f"{name} has version {version}: {control} is {target - now} minor versions newer"
        raise InputError(what, fix=f"write version: '1.{now + 1}', upgrade, then write the next one")


def _check_worker(worker: Worker, oldest: int, control: str, kubelet: str) -> None:
    version = worker.versions.kubernetes
    now, target = minor_version(version), minor_version(kubelet)
    if target < now:
        what = f"{worker.name} has version {version}, newer than {kubelet}"
        raise InputError(what, fix=f"write image.kubernetes: '1.{now}'")
    if now < minor_version(control) - _SKEW and oldest < minor_version(control):
        what = f"{worker.name} has version {version}, too old for an API server of {control}"
        raise InputError(what, fix=f"write version: '1.{oldest}', and upgrade the workers first")


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What keeps a worker from being drained: pods that may not move, and pods whose disruption budget allows none."""

    work: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def reason(self, *, ends_work: bool) -> str:
        """Return why the worker is left alone, in words; empty if it is drained. `ends_work`: pods may be ended."""
        pods = self.budgets or (() if ends_work else self.work)
        why = "its disruption budget allows no eviction" if self.budgets else "it may not be moved"
        others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        return f"pod {pods[0]}{others}: {why}" if pods else ""


def obstacles(text: str) -> dict[str, Obstacles]:
    """Return the obstacles by node, from the output of `bedplate-member work`: pods and disruption budgets."""
    items = parse_json(text, LARGE, largest_int=WORD)["items"]
    closed = [item for item in items if item["kind"] == "PodDisruptionBudget" and not _allowed(item)]
    by_node: dict[str, Obstacles] = {}
    for item in items:
        pod: Pod | None = cast("Any", Pod.from_dict(item)) if item["kind"] == "Pod" else None
        if pod is None or not (pod.spec and pod.spec.nodeName) or is_daemon(pod) or has_ended(pod):
            continue
        before, name = by_node.get(pod.spec.nodeName, Obstacles()), f"{_meta(item)['namespace']}/{_meta(item)['name']}"
        work = before.work if is_movable(pod) else (*before.work, name)
        budgets = (*before.budgets, name) if any(_protects(budget, item) for budget in closed) else before.budgets
        by_node[pod.spec.nodeName] = Obstacles(work, budgets)
    return by_node


def _meta(item: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = item["metadata"]
    return metadata


def _allowed(budget: Mapping[str, Any]) -> int:
    """Return how many pods may be evicted; none while the controller has not counted them."""
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def _protects(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    selector: LabelSelector = cast("Any", LabelSelector.from_dict(budget["spec"].get("selector") or {}))
    is_same = _meta(budget)["namespace"] == _meta(pod)["namespace"]
    return is_same and selects(selector, _meta(pod).get("labels", {}))


def roll(
    steps: Mapping[str, Sequence[tuple[Step, ...]]], at_once: int | None, run: Callable[[tuple[Step, ...]], object]
) -> tuple[BedplateError, ...]:
    """Carry out the steps of each node; return the errors.

    `steps` are by group: groups are upgraded at the same time, in each `at_once` nodes, by default a tenth. After an
    error no further node is begun, and those begun are finished.
    """
    has_failed, errors = Event(), list[BedplateError]()

    def upgrade(node: tuple[Step, ...]) -> None:
        if has_failed.is_set():
            return
        try:
            run(node)
        except BedplateError as error:
            has_failed.set()
            errors.append(error)

    with ExitStack() as stack:
        futures: list[Future[None]] = []
        for nodes in steps.values():
            pool = stack.enter_context(ThreadPoolExecutor(at_once or max(1, len(nodes) // _SHARE)))
            futures += [pool.submit(upgrade, node) for node in nodes]
        try:
            for future in futures:
                future.result()
        finally:
            # Also after an interrupt: what is begun is finished.
            has_failed.set()
    return tuple(errors)
