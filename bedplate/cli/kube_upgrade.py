"""The command that upgrades the machines of the cluster: kube upgrade."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
from bedplate.kube.members import LONG, Connection, ask_all, on_all, read_status
from bedplate.kube.upgrade import Action, Versions, Worker, obstacles, parse_nodes, roll, upgrade_steps
from bedplate.lock import check_plan_recorded
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import peer_url
from bedplate.plan.nodes import NodePlan, find_node
from bedplate.report.diagnostics import error_lines
from bedplate.rounds import wait
from roles.containers.role import PACKAGE
from roles.kubernetes.role import PACKAGES, package_version

# A new instance boots, gets its packages and passes its gate.
_REPLACED_SECONDS, _PAUSE = 1800.0, 15.0
# kubelet reports its version with its first status.
_STARTED_SECONDS = 300.0
_KEPT = "somebody has cordoned it"


def _words(versions: Versions) -> str:
    """Return the packages of a machine as apt takes them."""
    words = (f"{name}={package_version(versions.kubernetes)}" for name in PACKAGES)
    return " ".join((*words, f"{PACKAGE}={versions.containerd}-*"))


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade under way: members and workers by name, and their planned versions (`control` and `planned`).

    `ends_work`: pods that may not be moved are ended. `left` has the reason of each worker that was left alone;
    `claimed` has the new instances that have replaced one.
    """

    plan: FleetPlan
    options: SshOptions
    members: Mapping[str, Connection]
    workers: Mapping[str, Worker]
    control: Versions
    planned: Versions
    ends_work: bool
    left: dict[str, str] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    @property
    def first(self) -> Connection:
        """The member that is asked about nodes."""
        return next(iter(self.members.values()))

    def obstacles(self) -> Mapping[str, str]:
        """Return why each worker that has pods which stay is not drained now."""
        return obstacles(self.first.run("work"), ends_work=self.ends_work)

    def run(self, name: str, steps: tuple[Action, ...]) -> None:
        """Carry out the steps of a machine, unless it is left alone. Raises PartialError if one fails."""
        if Action.DRAIN in steps and (reason := self._cordon(name)):
            self.left[name] = reason
            return
        for step in steps:
            notify([f"{name}: {step}"])
            try:
                self._run_step(name, step)
            except PartialError as error:
                what = error.what if name in self.members else f"{error.what}; {self._after_failure(name, step)}"
                raise PartialError(what, fix=error.fix) from error

    def _run_step(self, name: str, step: Action) -> None:
        match step:
            case Action.SNAPSHOT:
                self.members[name].run("snapshot", seconds=LONG)
            case Action.UPGRADE_MEMBER:
                self._upgrade_member(name)
            case Action.UPGRADE_WORKER:
                self._upgrade_worker(name)
            case Action.REPLACE:
                self._replace(name)
            case Action.DRAIN | Action.UNCORDON:
                self.first.run(f"{step} {name}", seconds=LONG)

    def _now(self, name: str) -> Worker:
        return _read_nodes(self.first).get(name, self.workers[name])

    def _cordon(self, name: str) -> str:
        """Cordon a worker, and return why it is left alone; empty if it can be drained."""
        if self._now(name).is_kept:
            return _KEPT
        # The cordon is first: no pod can come between the question and the drain.
        self.first.run(f"cordon {name}", seconds=LONG)
        reason = self.obstacles().get(name, "")
        if reason:
            self.first.run(f"uncordon {name}", seconds=LONG)
        return reason

    def _after_failure(self, name: str, step: Action) -> str:
        """Let a worker take pods again whose drain has failed, and return its state in words."""
        if step is Action.DRAIN:
            with suppress(PartialError):
                self.first.run(f"uncordon {name}", seconds=LONG)
                return f"{name} takes pods again"
        return f"{name} stays cordoned until the same command has succeeded"

    def _upgrade_member(self, name: str) -> None:
        self._apply(name, "containers", "kubernetes", "control")
        for command in (f"upgrade {_words(self.control)}", "ready", "finish"):
            self.members[name].run(command, seconds=LONG)

    def _upgrade_worker(self, name: str) -> None:
        self._apply(name, "containers", "kubernetes")
        with connections(self.plan, [self._node(name)], self.options) as workers:
            workers[name].shell(
                "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --allow-downgrades "
                f"--allow-change-held-packages {_words(self.planned)} "
                f"&& apt-mark hold {' '.join(PACKAGES)} {PACKAGE} && systemctl restart kubelet.service"
            )
        fix = f"`bedplate node logs {name}` shows more; then run the command again"
        late = PartialError(f"{name}: kubelet does not report {self.planned}", fix=fix)
        wait(lambda: self._now(name).versions.are(self.planned), _STARTED_SECONDS, 1, late)

    def _replace(self, name: str) -> None:
        """Terminate an instance; its group starts another one, which installs the new version.

        Wait until a new instance of the group takes pods, or until the group wants no more instances than it has.
        """
        account, region, old = open_account(self.plan), name.partition(".")[2], self.workers[name].instance
        before = {node.instance for node in _read_nodes(self.first).values()}
        group = terminate_machine(account, region, old, replaced=True)
        late = PartialError(f"no machine has replaced {name}", fix="`bedplate node list --live` shows its state")
        members = partial(group_members, account, region, group)
        wait(lambda: self._is_replaced(name, before, *members()), _REPLACED_SECONDS, _PAUSE, late)

    def _is_replaced(self, name: str, before: set[str], desired: int, instances: frozenset[str]) -> bool:
        nodes, new = _read_nodes(self.first), instances - before
        joined = [node for node in nodes.values() if node.instance in new]
        for node in joined:
            if not node.versions.are(self.planned):
                fix = "run `bedplate bundle push`, and `bedplate image bake` if the pool has an image; then continue"
                raise PartialError(f"{node.name} has {node.versions}", fix=fix)
        usable = {node.instance for node in joined if node.is_usable}
        with self.lock:
            unclaimed = usable - self.claimed
            if name in nodes or not (unclaimed or (len(instances) >= desired and usable == new)):
                return False
            self.claimed.update(sorted(unclaimed)[:1])
        return True

    def _apply(self, name: str, *roles: str) -> None:
        location = NodeLocation(self._node(name))
        (outcome,) = apply_machines(self.plan, [location], self.options, frozenset(roles)).outcomes
        if not outcome.is_done:
            error = outcome.error
            what = f"{name}: {error.words if error else 'stopped'}"
            raise PartialError(what, fix=error.fix if error else "run the command again")

    def _node(self, name: str) -> NodePlan:
        return find_node(self.plan, name, load_catalog())


def _read_nodes(member: Connection) -> dict[str, Worker]:
    """Return the nodes by name, members too. Raises PartialError for the answer of an older program."""
    try:
        return parse_nodes(member.run("nodes"))
    except ValueError:
        fix = f"run `bedplate node apply {member.name}`: it has the program of another version of bedplate"
        raise PartialError(f"invalid answer from {member.name}", fix=fix) from None


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
    sites are drained and upgraded, instances are drained and replaced. A worker with a pod that may not be moved, or
    that somebody has cordoned, is left alone. After a failure, the same command continues. The exit status is 6 while
    workers are left. With --without, the others remove a member that is away from etcd; replace it later, and run the
    command again.
    """
    plan = plan_of(fleet)
    cluster, options = cluster_of(plan), SshOptions(fleet, user, identity, ssh_config)
    check_plan_recorded(plan, fleet)
    remaining = [member.name for member in remaining_members(cluster, without or ())]
    control, planned = (Versions(version, cluster.containerd) for version in (cluster.version, cluster.kubelet))
    with locked(fleet), connections(plan, member_nodes(plan), options) as connected:
        members = {name: connected[name] for name in remaining}
        statuses = on_all(members.values(), read_status)
        # A member whose upgrade was interrupted may still start.
        starting = [members[name] for name, status in statuses.items() if not status.is_ready]
        if silent := ask_all(starting, lambda member: member.run("ready"))[1]:
            fix = "run `bedplate kube init` first: every member must run before one is stopped"
            raise PartialError(f"{', '.join(silent)} not ready", fix=fix)
        nodes = _read_nodes(members[remaining[0]])
        runtimes = {name: node.versions.containerd for name, node in nodes.items()}
        versions = {name: Versions(status.version, runtimes.get(name, "")) for name, status in statuses.items()}
        workers = {name: node for name, node in nodes.items() if name not in connected}
        work = Upgrade(plan, options, members, workers, control, planned, ends_work=now)
        steps = upgrade_steps(versions, tuple(workers.values()), control, planned)
        current = versions | {name: worker.versions for name, worker in workers.items()}
        show([f"planned: {control}" + (f"; of workers: {planned}" if planned != control else "")])
        lines = [f"{name}: {step} ({current[name]})" for name, of_machine in steps.items() for step in of_machine]
        show(lines or ["every machine has them"])
        if drained := [name for name, of_machine in steps.items() if Action.DRAIN in of_machine]:
            reasons = {**work.obstacles(), **{name: _KEPT for name, worker in workers.items() if worker.is_kept}}
            show(f"{name}: left alone: {reasons[name]}" for name in drained if name in reasons)
        if check or not steps:
            return 0
        confirm("upgrade?", yes=yes)
        for member in cluster.members:
            if member.name not in members:
                show([f"remove {member.name} from etcd; later: `bedplate kube member replace {member.name}`"])
                work.first.run(f"forget {peer_url(member)}")
        return _run(work, steps, max_unavailable)


def _run(work: Upgrade, steps: Mapping[str, tuple[Action, ...]], max_unavailable: int | None) -> int:
    """Carry out the steps: those of members in their order, then those of workers by group. Return the exit status."""
    groups: dict[str, list[str]] = {}
    for name in steps:
        if name in work.workers:
            groups.setdefault(work.workers[name].group, []).append(name)
        else:
            work.run(name, steps[name])
    errors = roll(groups, max_unavailable, lambda name: work.run(name, steps[name]))
    notify(line for error in errors for line in error_lines(error))
    notify(f"{name}: left alone: {reason}" for name, reason in sorted(work.left.items()))
    if work.left:
        notify(["run the command again when these reasons have ended; --now ends pods that may not be moved"])
    if errors or work.left:
        return PartialError.exit_code
    next_step = "run `bedplate kube addons apply`: kube-proxy has the version of the control plane"
    show([f"upgraded to {work.control}", next_step])
    return 0
