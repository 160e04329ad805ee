"""The steps of an upgrade, what keeps a worker from being drained, and the rollout by groups.

In an upgrade the API server must not be older than a kubelet, and kubelets may be three minor versions older. Source:
https://kubernetes.io/releases/version-skew-policy/, read 2026-11.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from threading import Event
from typing import Any

from lightkube import codecs
from lightkube.models.meta_v1 import LabelSelector
from lightkube.resources.core_v1 import Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from bedplate.catalog.tables import read_version
from bedplate.errors import BedplateError, InputError
from bedplate.foreign import LARGE, WORD, parse_json
from bedplate.kubernetes.demand import GATE, NOT_READY, UNSCHEDULABLE, pod_id
from bedplate.kubernetes.pods import has_ended, is_daemon, is_movable, selects
from bedplate.plan.cluster import has_version, minor_version, region_of_node
from bedplate.rounds import ask_each

# The oldest kubelet that an API server accepts.
_SKEW = 3
_NOT_USABLE = (GATE, NOT_READY, "node.kubernetes.io/unreachable")
# Of a group, one in so many machines is upgraded at a time by default.
_SHARE = 10


class Action(StrEnum):
    """A step on a machine; the next one of the same machine begins when it has succeeded."""

    SNAPSHOT = "take a snapshot of etcd"
    UPGRADE_MEMBER = "upgrade the member"
    DRAIN = "drain"
    UPGRADE_WORKER = "upgrade the packages"
    REPLACE = "replace the instance"
    UNCORDON = "uncordon"


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

    `is_upgrading`: an upgrade has cordoned it and not uncordoned it yet. `is_kept`: somebody else has cordoned it.
    `is_usable`: it is ready and has passed its gate.
    """

    name: str
    versions: Versions
    provider: str
    is_upgrading: bool = False
    is_kept: bool = False
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


def parse_nodes(text: str) -> dict[str, Worker]:
    """Return the nodes by name, members too, from the output of `bedplate-member nodes`: a line each."""
    nodes: dict[str, Worker] = {}
    for line in filter(str.strip, text.splitlines()):
        name, kubelet, runtime, provider, mark, taints = line.split("\t")
        versions, keys = Versions(kubelet, runtime.removeprefix("containerd://")), {*taints.split()}
        is_upgrading, is_usable = mark == "upgrading", keys.isdisjoint(_NOT_USABLE)
        is_kept = UNSCHEDULABLE in keys and not is_upgrading
        nodes[name] = Worker(name, versions, provider, is_upgrading, is_kept, is_usable)
    return nodes


def upgrade_steps(
    members: Mapping[str, Versions], workers: Sequence[Worker], control: Versions, planned: Versions
) -> dict[str, tuple[Action, ...]]:
    """Return the steps of each machine to the versions of the plan, of members first.

    What has its versions already has no step, so that a second run continues. Raises InputError if a step would be
    larger than one minor version, or if the version of a member would be lowered.
    """
    for name, versions in members.items():
        _check(name, versions.kubernetes, control.kubernetes)
    oldest = min((minor_version(versions.kubernetes) for versions in members.values()), default=0)
    for worker in workers:
        _check_worker(worker, oldest, control.kubernetes, planned.kubernetes)
    late = [name for name, versions in members.items() if not versions.are(control)]
    steps: dict[str, tuple[Action, ...]] = dict.fromkeys(late, (Action.UPGRADE_MEMBER,))
    if late:
        steps[late[0]] = (Action.SNAPSHOT, Action.UPGRADE_MEMBER)
    return steps | {worker.name: of_worker for worker in workers if (of_worker := _worker_steps(worker, planned))}


def _worker_steps(worker: Worker, planned: Versions) -> tuple[Action, ...]:
    if worker.versions.are(planned):
        return (Action.UNCORDON,) if worker.is_upgrading else ()
    if worker.instance:
        return (Action.DRAIN, Action.REPLACE)
    return (Action.DRAIN, Action.UPGRADE_WORKER, Action.UNCORDON)


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


def obstacles(text: str, *, ends_work: bool) -> dict[str, str]:
    """Return why each worker with such pods is not drained, from the output of `bedplate-member work`.

    A pod may not be moved, unless `ends_work`, or its disruption budget allows no eviction.
    """
    items: list[Any] = [codecs.from_dict(item) for item in parse_json(text, LARGE, largest_int=WORD)["items"]]
    # None while the controller has not counted the pods.
    closed = [
        item
        for item in items
        if isinstance(item, PodDisruptionBudget) and not (item.status and item.status.disruptionsAllowed)
    ]
    fixed, protected = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for pod in items:
        if not isinstance(pod, Pod) or not (pod.spec and pod.spec.nodeName) or is_daemon(pod) or has_ended(pod):
            continue
        if any(_protects(budget, pod) for budget in closed):
            protected[pod.spec.nodeName].append(pod_id(pod))
        if not (ends_work or is_movable(pod)):
            fixed[pod.spec.nodeName].append(pod_id(pod))
    reasons = {node: f"{_names(pods)}: it may not be moved" for node, pods in fixed.items()}
    budgets = {node: f"{_names(pods)}: its disruption budget allows no eviction" for node, pods in protected.items()}
    return reasons | budgets


def _names(pods: Sequence[str]) -> str:
    return f"pod {pods[0]}" + (f" and {len(pods) - 1} more" if len(pods) > 1 else "")


def _protects(budget: Any, pod: Any) -> bool:  # noqa: ANN401  lightkube's own types, whose every field is optional
    selector = (budget.spec and budget.spec.selector) or LabelSelector()
    return bool(budget.metadata.namespace == pod.metadata.namespace and selects(selector, pod.metadata.labels or {}))


def roll(
    groups: Mapping[str, Sequence[str]], at_once: int | None, run: Callable[[str], object]
) -> tuple[BedplateError, ...]:
    """Run an upgrade of each node of each group; return the errors.

    All groups at the same time, in each `at_once` nodes, by default a tenth. After an error no further node is begun,
    and those begun are finished.
    """
    has_failed = Event()

    def upgrade(node: str) -> None:
        if has_failed.is_set():
            return
        try:
            run(node)
        except BaseException:
            has_failed.set()
            raise

    def upgrade_group(group: str) -> tuple[BedplateError, ...]:
        nodes = groups[group]
        return tuple(ask_each(nodes, upgrade, at_once or len(nodes) // _SHARE)[1].values())

    with ThreadPoolExecutor(max(1, len(groups))) as pool:
        errors = pool.map(upgrade_group, groups)
        try:
            return tuple(chain.from_iterable(errors))
        finally:
            # Before the pool is awaited, also after an interrupt: only what is begun is finished.
            has_failed.set()
