"""Machines of the cluster: those of sites join it, and all are upgraded to the planned versions."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from bedplate.account.capacity import group_members, terminate_machine
from bedplate.errors import InputError, PartialError, error_lines
from bedplate.kubernetes.formation import remaining_members
from bedplate.kubernetes.members import LONG, Connection, ask_all, on_all, read_status
from bedplate.kubernetes.upgrade import Action, Versions, Worker, obstacles, parse_nodes, roll, upgrade_steps
from bedplate.lock import check_plan_recorded
from bedplate.nodes.ssh import NodeLocation, nodes_by_name
from bedplate.operate import Operator, open_account, plan_of
from bedplate.operate.apply import apply_machines
from bedplate.operate.control_plane import cluster_of, connections, locked, member_nodes
from bedplate.operate.terminations import Termination, confirm
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import BOOTSTRAPPERS, machine_group, peer_url
from bedplate.plan.nodes import NodePlan, NodeRole, Platform, find_node
from bedplate.rounds import wait
from roles.containers.role import PACKAGE
from roles.kubernetes.role import PACKAGES, package_version

# A new instance boots, gets its packages and passes its gate.
_REPLACED_SECONDS, _PAUSE = 1800.0, 15.0
# kubelet reports its version with its first status.
_STARTED_SECONDS = 300.0
_KEPT = "somebody has cordoned it"


def _packages(versions: Versions) -> tuple[str, ...]:
    """Return the packages of a machine as apt takes them."""
    of_kubernetes = (f"{name}={package_version(versions.kubernetes)}" for name in PACKAGES)
    return (*of_kubernetes, f"{PACKAGE}={versions.containerd}-*")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade under way: members and workers by name, and their planned versions (`control` and `planned`).

    `ends_work`: pods that may not be moved are ended. `left` has the reason of each worker that was left alone;
    `claimed` has the new instances that have replaced one.
    """

    operator: Operator
    plan: FleetPlan
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
            self.operator.notify([f"{name}: {step}"])
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
                self.first.run(str(step), name, seconds=LONG)

    def _now(self, name: str) -> Worker:
        return _read_nodes(self.first).get(name, self.workers[name])

    def _cordon(self, name: str) -> str:
        """Cordon a worker, and return why it is left alone; empty if it can be drained."""
        if self._now(name).is_kept:
            return _KEPT
        # The cordon is first: no pod can come between the question and the drain.
        self.first.run("cordon", name, seconds=LONG)
        reason = self.obstacles().get(name, "")
        if reason:
            self.first.run("uncordon", name, seconds=LONG)
        return reason

    def _after_failure(self, name: str, step: Action) -> str:
        """Let a worker take pods again whose drain has failed, and return its state in words."""
        if step is Action.DRAIN:
            with suppress(PartialError):
                self.first.run("uncordon", name, seconds=LONG)
                return f"{name} is uncordoned"
        return f"{name} stays cordoned until the same command has succeeded"

    def _upgrade_member(self, name: str) -> None:
        self._apply(name, "containers", "kubernetes", "control")
        for command in (("upgrade", *_packages(self.control)), ("ready",), ("finish",)):
            self.members[name].run(*command, seconds=LONG)

    def _upgrade_worker(self, name: str) -> None:
        self._apply(name, "containers", "kubernetes")
        with connections(self.operator, self.plan, [self._node(name)]) as workers:
            workers[name].shell(
                "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --allow-downgrades "
                f"--allow-change-held-packages {shlex.join(_packages(self.planned))} "
                f"&& apt-mark hold {' '.join(PACKAGES)} {PACKAGE} && systemctl restart kubelet.service"
            )
        fix = f"`bedplate node logs {name}` shows more; then run the command again"
        late = PartialError(f"{name}: kubelet does not report {self.planned}", fix=fix)
        wait(lambda: self._now(name).versions.are(self.planned), _STARTED_SECONDS, 1, late)

    def _replace(self, name: str) -> None:
        """Terminate an instance; its group starts another one, which installs the new version.

        Wait until a new instance of the group accepts pods, or until the group wants no more instances than it has.
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
        (outcome,) = apply_machines(self.operator, self.plan, [location], frozenset(roles)).outcomes
        if not outcome.is_done:
            error = outcome.error
            what = f"{name}: {error.words if error else 'stopped'}"
            raise PartialError(what, fix=error.fix if error else "run the command again")

    def _node(self, name: str) -> NodePlan:
        return find_node(self.plan, name, self.plan.catalog)


def _read_nodes(member: Connection) -> dict[str, Worker]:
    """Return the nodes by name, members too. Raises PartialError for the answer of an older program."""
    try:
        return parse_nodes(member.run("nodes"))
    except ValueError:
        fix = f"run `bedplate node apply {member.name}`: it has the program of another version of bedplate"
        raise PartialError(f"invalid answer from {member.name}", fix=fix) from None


def upgrade(
    operator: Operator, without: Sequence[str], max_unavailable: int | None, *, check: bool, ends_work: bool
) -> int:
    """Upgrade all machines but the members `without`; return the exit status. `check` only shows the steps."""
    plan = plan_of(operator)
    cluster = cluster_of(plan)
    check_plan_recorded(plan, operator.fleet)
    remaining = [member.name for member in remaining_members(cluster, without)]
    control, planned = (Versions(version, cluster.containerd) for version in (cluster.version, cluster.kubelet))
    with locked(operator), connections(operator, plan, member_nodes(plan)) as connected:
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
        work = Upgrade(operator, plan, members, workers, control, planned, ends_work)
        steps = upgrade_steps(versions, tuple(workers.values()), control, planned)
        current = versions | {name: worker.versions for name, worker in workers.items()}
        operator.show([f"planned: {control}" + (f"; of workers: {planned}" if planned != control else "")])
        lines = [f"{name}: {step} ({current[name]})" for name, of_machine in steps.items() for step in of_machine]
        operator.show(lines or ["every machine has them"])
        if drained := [name for name, of_machine in steps.items() if Action.DRAIN in of_machine]:
            reasons = {**work.obstacles(), **{name: _KEPT for name, worker in workers.items() if worker.is_kept}}
            operator.show(f"{name}: left alone: {reasons[name]}" for name in drained if name in reasons)
        if check or not steps:
            return 0
        replaced = [name for name, of_machine in steps.items() if Action.REPLACE in of_machine]
        ends = [Termination(workers[name].group, name.partition(".")[2], (name,), 1) for name in replaced]
        confirm(operator, "upgrade?", ends)
        for member in cluster.members:
            if member.name not in members:
                operator.show([f"remove {member.name} from etcd; later: `bedplate kube member replace {member.name}`"])
                work.first.run("forget", peer_url(member))
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
    work.operator.notify(error_lines(*errors))
    work.operator.notify(f"{name}: left alone: {reason}" for name, reason in sorted(work.left.items()))
    if work.left:
        advice = "run the command again when these reasons have ended; --now ends pods that may not be moved"
        work.operator.notify([advice])
    if errors or work.left:
        return PartialError.exit_code
    next_step = "run `bedplate kube addons apply`: kube-proxy has the version of the control plane"
    work.operator.show([f"upgraded to {work.control}", next_step])
    return 0


_AGENT = "/usr/local/sbin/bedplate-worker"
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}", re.ASCII)
# The agent waits two minutes for the approver.
_SECONDS = 180.0


def join(operator: Operator, name: str) -> None:
    """Let a machine of a site join the cluster, with a token for it alone that is valid for 15 minutes."""
    plan = plan_of(operator)
    (node,) = nodes_by_name(plan, [name], plan.catalog)
    _check(plan, node)
    with connections(operator, plan, (*member_nodes(plan), node)) as machines:
        machine = machines.pop(node.name)
        token = _make_token(operator, machines.values(), node.name)
        operator.show([f"{node.name}: {_send(machine, token)}"])


def _check(plan: FleetPlan, node: NodePlan) -> None:
    """Raise InputError for a machine that cannot join by this command."""
    cluster = cluster_of(plan)
    if node.platform is Platform.CLOUD:
        raise InputError(f"{node.name} is an EC2 instance", fix="an EC2 instance joins by itself")
    if NodeRole.WORKER not in node.roles:
        fix = f"write `use: kubernetes` for {node.host} in the fleet file, and run `bedplate node apply {node.name}`"
        raise InputError(f"{node.name} is no worker of the cluster", fix=fix)
    if not cluster.authority:
        raise InputError("the cluster has no authorities", fix="run `bedplate kube init`")


def _make_token(operator: Operator, members: Iterable[Connection], name: str) -> str:
    """Return a new token, made on the first member that can. Raises the last error of all members."""
    groups = f"--groups {BOOTSTRAPPERS} --groups {machine_group(name)}"
    options = f"--kubeconfig /etc/kubernetes/admin.conf --ttl 15m --usages authentication {groups}"
    errors: list[PartialError] = []
    for member in members:
        try:
            token = member.shell(f"kubeadm token create {options}", seconds=60.0).strip()
        except PartialError as error:
            errors.append(error)
            continue
        operator.notify(error_lines(*errors))
        if not _TOKEN.fullmatch(token):
            raise PartialError(f"{member.name} made no token", fix=f"run `bedplate node apply {member.name}`")
        return token
    raise errors[-1]


def _send(machine: Connection, token: str) -> str:
    """Write the token to the agent's standard input; return its answer. Raises PartialError."""
    missing = f"{{ echo the role worker is missing: run bedplate node apply {machine.name} >&2; exit 1; }}"
    return machine.shell(f"test -x {_AGENT} || {missing}; exec {_AGENT} join", _SECONDS, f"{token}\n".encode()).strip()
