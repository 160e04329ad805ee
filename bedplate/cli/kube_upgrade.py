"""The command that upgrades the machines of the cluster: kube upgrade."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock
from typing import Annotated

import typer

from bedplate.account.capacity import group_members, terminate_machine
from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.kube_session import Without, cluster_of, connections, locked, member_nodes
from bedplate.cli.login import SshOptions
from bedplate.cli.node_apply import apply_machines
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Identity, SshConfig, User, Yes, confirm, notify, show
from bedplate.errors import PartialError
from bedplate.kube.formation import remaining_members
from bedplate.kube.members import LONG, Connection, MemberStatus, on_all, read_status
from bedplate.kube.upgrade import Action, Obstacles, Step, Versions, Worker, obstacles, parse_nodes, roll, upgrade_steps
from bedplate.lock import check_plan_recorded
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, peer_url
from bedplate.plan.nodes import NodePlan, find_node
from bedplate.report.diagnostics import error_lines
from roles.containers.role import PACKAGE
from roles.kubernetes.role import PACKAGES, package_version

# A new instance boots, gets its packages and passes its gate.
_REPLACED_SECONDS, _PAUSE = 1800.0, 15.0
# kubelet reports its version with its first status.
_STARTED_SECONDS = 300.0


def _words(versions: Versions) -> str:
    """Return the packages of a machine as apt takes them."""
    words = (f"{name}={package_version(versions.kubernetes)}" for name in PACKAGES)
    return " ".join((*words, f"{PACKAGE}={versions.containerd}-*"))


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade under way: the connections of members, and the workers by name.

    `ends_work`: pods that may not be moved are ended. `left` has the reason of each worker that was left alone;
    `claimed` has the new instances that have replaced one.
    """

    plan: FleetPlan
    cluster: ClusterPlan
    options: SshOptions
    members: Mapping[str, Connection]
    workers: Mapping[str, Worker]
    ends_work: bool
    left: dict[str, str] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    @property
    def first(self) -> Connection:
        """The member that is asked about nodes."""
        return next(iter(self.members.values()))

    def run(self, step: Step) -> None:
        """Carry out a step. Raises PartialError if it fails."""
        actions: Mapping[Action, Callable[[str], None]] = {
            Action.SNAPSHOT: lambda name: self._on_member(name, "snapshot"),
            Action.UPGRADE_MEMBER: self._upgrade_member,
            Action.DRAIN: lambda name: self._on_member(self.first.name, f"drain {name}"),
            Action.UPGRADE_WORKER: self._upgrade_worker,
            Action.REPLACE: self._replace,
            Action.UNCORDON: lambda name: self._on_member(self.first.name, f"uncordon {name}"),
        }
        notify([f"{step.node}: {step.action}"])
        actions[step.action](step.node)

    def run_node(self, steps: Sequence[Step]) -> None:
        """Carry out the steps of a worker, unless it must be left alone. Raises PartialError if one fails."""
        name = steps[0].node
        if steps[0].action is Action.DRAIN:
            # The cordon is first: no pod can come between the question and the drain.
            self._on_member(self.first.name, f"cordon {name}")
            if reason := self.read_obstacles().get(name, Obstacles()).reason(ends_work=self.ends_work):
                self.left[name] = reason
                self._on_member(self.first.name, f"uncordon {name}")
                return
        for step in steps:
            try:
                self.run(step)
            except PartialError as error:
                raise PartialError(f"{error.what}; {self._after_failure(step)}", fix=error.fix) from error

    def _after_failure(self, step: Step) -> str:
        """Let a worker take pods again whose drain has failed, and return its state in words."""
        if step.action is Action.DRAIN:
            try:
                self._on_member(self.first.name, f"uncordon {step.node}")
            except PartialError:
                pass
            else:
                return f"{step.node} takes pods again"
        return f"{step.node} stays cordoned until the same command has succeeded"

    def read_obstacles(self) -> Mapping[str, Obstacles]:
        """Return what keeps each worker from being drained now."""
        return obstacles(self.first.run("work"))

    def _on_member(self, member: str, command: str) -> None:
        self.members[member].run(command, seconds=LONG)

    def _upgrade_member(self, name: str) -> None:
        self._apply(name, "containers", "kubernetes", "control")
        self._on_member(name, f"upgrade {_words(_planned(self.cluster, self.cluster.version))}")
        self._on_member(name, "ready")
        self._on_member(name, "finish")

    def _upgrade_worker(self, name: str) -> None:
        planned = _planned(self.cluster, self.cluster.kubelet)
        self._apply(name, "containers", "kubernetes")
        with connections(self.plan, [self._node(name)], self.options) as workers:
            workers[name].shell(
                "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --allow-downgrades "
                f"--allow-change-held-packages {_words(planned)} "
                f"&& apt-mark hold {' '.join(PACKAGES)} {PACKAGE} && systemctl restart kubelet.service"
            )
        deadline = time.monotonic() + _STARTED_SECONDS
        while not self._nodes()[name].versions.are(planned):
            if time.monotonic() > deadline:
                what = f"{name}: kubelet does not report {planned}"
                raise PartialError(what, fix=f"`bedplate node logs {name}` shows more; then run the command again")
            time.sleep(1)

    def _replace(self, name: str) -> None:
        """Terminate an instance; its group starts another one, which installs the new version.

        Wait until a new instance of the group takes pods, or until the group wants no more instances than it has.
        """
        account, region, old = open_account(self.plan), name.partition(".")[2], self.workers[name].instance
        before = {node.instance for node in self._nodes().values()}
        group = terminate_machine(account, region, old, replaced=True)
        deadline = time.monotonic() + _REPLACED_SECONDS
        while not self._is_replaced(name, before, *group_members(account, region, group)):
            if time.monotonic() > deadline:
                raise PartialError(f"no machine has replaced {name}", fix="`bedplate node list --live` shows its state")
            time.sleep(_PAUSE)

    def _is_replaced(self, name: str, before: set[str], desired: int, instances: frozenset[str]) -> bool:
        nodes, planned = self._nodes(), _planned(self.cluster, self.cluster.kubelet)
        new, joined = instances - before, {node.instance: node for node in nodes.values()}
        for instance in new & joined.keys():
            if not joined[instance].versions.are(planned):
                fix = "run `bedplate bundle push`, and `bedplate image bake` if the pool has an image; then continue"
                raise PartialError(f"{joined[instance].name} has {joined[instance].versions}", fix=fix)
        usable = {instance for instance in new & joined.keys() if joined[instance].is_usable}
        with self.lock:
            unclaimed = usable - self.claimed
            if name in nodes or not (unclaimed or (len(instances) >= desired and usable == new)):
                return False
            self.claimed.update(sorted(unclaimed)[:1])
        return True

    def _nodes(self) -> dict[str, Worker]:
        return {node.name: node for node in _read_nodes(self.first) if node.name not in self.members}

    def _apply(self, name: str, *roles: str) -> None:
        location = NodeLocation(self._node(name))
        (outcome,) = apply_machines(self.plan, [location], self.options, frozenset(roles)).outcomes
        if not outcome.is_done:
            error = outcome.error
            what = f"{name}: {error.words if error else 'stopped'}"
            raise PartialError(what, fix=error.fix if error else "run the command again")

    def _node(self, name: str) -> NodePlan:
        return find_node(self.plan, name, load_catalog())


def _read_nodes(member: Connection) -> tuple[Worker, ...]:
    """Return the nodes that a member reports. Raises PartialError for the answer of an older program."""
    try:
        return parse_nodes(member.run("nodes"))
    except ValueError:
        fix = f"run `bedplate node apply {member.name}`: it has the program of another version of bedplate"
        raise PartialError(f"invalid answer from {member.name}", fix=fix) from None


def _planned(cluster: ClusterPlan, version: str) -> Versions:
    return Versions(version, cluster.containerd)


def upgrade(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the steps, and workers to leave alone.")] = False,
    now: Annotated[bool, typer.Option("--now", help="End pods that may not be moved.")] = False,
    max_unavailable: Annotated[
        int | None,
        typer.Option("--max-unavailable", min=1, metavar="N", help="Workers of a group at a time. Default: a tenth."),
    ] = None,
    without: Without = None,
    yes: Yes = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
) -> int:
    """Upgrade Kubernetes and containerd on all machines.

    To the versions of the plan: first the members, one after the other, then workers, all groups at a time. Workers of
    sites are drained and upgraded, instances are drained and replaced. A worker with a pod that may not be moved is
    left alone. After a failure, the same command continues. The exit status is 6 while workers are left. With
    --without, the others remove a member that is away from etcd; replace it later, and run the command again.
    """
    plan = plan_of(fleet)
    cluster, options = cluster_of(plan), SshOptions(fleet, user, identity, ssh_config)
    check_plan_recorded(plan, fleet)
    remaining = [member.name for member in remaining_members(cluster, without or ())]
    with locked(fleet), connections(plan, member_nodes(plan), options) as connected:
        members = {name: connected[name] for name in remaining}
        statuses = on_all(members.values(), read_status)
        _check_ready(statuses)
        nodes = {node.name: node for node in _read_nodes(next(iter(members.values())))}
        workers = {name: node for name, node in nodes.items() if name not in connected}
        versions = {name: _of_member(status, nodes.get(name)) for name, status in statuses.items()}
        control, planned = (_planned(cluster, version) for version in (cluster.version, cluster.kubelet))
        steps = upgrade_steps(versions, tuple(workers.values()), control, planned)
        work = Upgrade(plan, cluster, options, members, workers, ends_work=now)
        current = versions | {name: worker.versions for name, worker in workers.items()}
        show([f"planned: {control}" + (f"; of workers: {planned}" if planned != control else "")])
        show([f"{step.node}: {step.action} ({current[step.node]})" for step in steps] or ["every machine has them"])
        if any(step.action is Action.DRAIN for step in steps):
            show(f"{name}: left alone: {reason}" for name, reason in _left(work, steps))
        if check or not steps:
            return 0
        confirm("upgrade?", yes=yes)
        for member in cluster.members:
            if member.name not in members:
                show([f"remove {member.name} from etcd; later: `bedplate kube member replace {member.name}`"])
                members[remaining[0]].run(f"forget {peer_url(member)}")
        return _run(work, steps, max_unavailable)


def _left(work: Upgrade, steps: Iterable[Step]) -> Iterable[tuple[str, str]]:
    """Yield each worker that would be left alone now, and the reason."""
    by_node = work.read_obstacles()
    for step in steps:
        found = by_node.get(step.node, Obstacles()) if step.action is Action.DRAIN else Obstacles()
        if reason := found.reason(ends_work=work.ends_work):
            yield step.node, reason


def _check_ready(statuses: Mapping[str, MemberStatus]) -> None:
    if silent := [name for name, status in statuses.items() if not status.is_ready]:
        fix = "run `bedplate kube init` first: every member must run before one is stopped"
        raise PartialError(f"{', '.join(silent)} not ready", fix=fix)


def _of_member(status: MemberStatus, node: Worker | None) -> Versions:
    return Versions(status.version, node.versions.containerd if node else "")


def _run(work: Upgrade, steps: Sequence[Step], max_unavailable: int | None) -> int:
    """Carry out the steps: those of members in their order, then those of workers by group. Return the exit status."""
    for step in steps:
        if step.node in work.members:
            work.run(step)
    groups: dict[str, list[tuple[Step, ...]]] = {}
    for name, of_node in groupby((step for step in steps if step.node in work.workers), key=lambda step: step.node):
        groups.setdefault(work.workers[name].group, []).append(tuple(of_node))
    errors = roll(groups, max_unavailable, work.run_node)
    notify(line for error in errors for line in error_lines(error))
    notify(f"{name}: left alone: {reason}" for name, reason in sorted(work.left.items()))
    if errors or work.left:
        if work.left:
            notify(["run the command again when these pods have ended, or with --now, which ends work"])
        return PartialError.exit_code
    done = f"upgraded to {_planned(work.cluster, work.cluster.version)}"
    show([done, "run `bedplate kube addons apply`: kube-proxy has the version of the control plane"])
    return 0
