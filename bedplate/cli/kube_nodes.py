"""The commands that join machines of sites to the cluster (kube join) and upgrade its machines (kube upgrade)."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.cli.deploy import Yes, confirm
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.kube_session import cluster_of, connections, locked, member_nodes
from bedplate.cli.login import SshOptions
from bedplate.cli.node_apply import apply_machines
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, FleetOption, Identity, SshConfig, User, notify, show
from bedplate.errors import HeldError, InputError, PartialError
from bedplate.kube.members import (
    LONG,
    Action,
    Connection,
    Step,
    Worker,
    on_all,
    parse_workers,
    read_status,
    upgrade_steps,
)
from bedplate.lock import check_plan_recorded
from bedplate.nodes.ssh import NodeLocation, nodes_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import BOOTSTRAPPERS, ClusterPlan, machine_group
from bedplate.plan.nodes import NodePlan, NodeRole, Platform, find_node
from bedplate.report.diagnostics import error_lines

_AGENT = "/usr/local/sbin/bedplate-worker"
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}", re.ASCII)
# The agent waits two minutes for the approver.
_SECONDS = 180.0


def join(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a site, such as titan-01.cellar.")],
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Let a machine of a site join the cluster.

    Makes a token on a control-plane member, which is valid for 15 minutes and for this machine only, and sends it to
    the machine over SSH. A machine that is in the cluster is not changed.
    """
    plan = plan_of(fleet)
    (node,) = nodes_by_name(plan, [name], load_catalog())
    _check(plan, node)
    with connections(plan, (*member_nodes(plan), node), SshOptions(fleet, user, identity, ssh_config)) as machines:
        machine = machines.pop(node.name)
        token = _make_token(machines.values(), node.name)
        show([f"{node.name}: {_send(machine, token)}"])
    return 0


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


def _make_token(members: Iterable[Connection], name: str) -> str:
    """Return a new token, made on the first member that can. Raises the last error of all members."""
    groups = f"--groups {BOOTSTRAPPERS} --groups {machine_group(name)}"
    options = f"--kubeconfig /etc/kubernetes/admin.conf --ttl 15m --usages authentication {groups}"
    errors: list[PartialError] = []
    for member in members:
        try:
            token = member.shell(f"kubeadm token create {options}", seconds=60.0).strip()
        except HeldError:
            raise
        except PartialError as error:
            errors.append(error)
            continue
        notify(line for skipped in errors for line in error_lines(skipped))
        if not _TOKEN.fullmatch(token):
            raise PartialError(f"{member.name} made no token", fix=f"run `bedplate node apply {member.name}`")
        return token
    raise errors[-1]


def _send(machine: Connection, token: str) -> str:
    """Write the token to the agent's standard input; return its answer. Raises PartialError."""
    missing = f"{{ echo the role worker is missing: run bedplate node apply {machine.name} >&2; exit 1; }}"
    return machine.shell(f"test -x {_AGENT} || {missing}; exec {_AGENT} join", _SECONDS, f"{token}\n".encode()).strip()


# A new instance boots, gets its packages and passes its gate.
_REPLACED_SECONDS, _PAUSE = 1800.0, 15.0
# kubelet reports its version with its first status.
_STARTED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade under way: the members' connections, and the workers by name."""

    plan: FleetPlan
    cluster: ClusterPlan
    options: SshOptions
    members: Mapping[str, Connection]
    workers: Mapping[str, Worker]

    @property
    def first(self) -> Connection:
        """The member that is asked about nodes."""
        return next(iter(self.members.values()))

    def run(self, step: Step) -> None:
        """Carry out a step. Raises PartialError if it fails."""
        actions: Mapping[Action, Callable[[str], None]] = {
            Action.SNAPSHOT: self._take_snapshot,
            Action.UPGRADE_MEMBER: self._upgrade_member,
            Action.DRAIN: lambda name: self._on_node("drain", name),
            Action.UPGRADE_WORKER: self._upgrade_worker,
            Action.REPLACE: self._replace,
            Action.UNCORDON: lambda name: self._on_node("uncordon", name),
        }
        actions[step.action](step.node)

    def _take_snapshot(self, name: str) -> None:
        self.members[name].run("snapshot", seconds=LONG)

    def _upgrade_member(self, name: str) -> None:
        self._apply(name, "kubernetes", "control")
        self.members[name].run(f"upgrade {self.cluster.version}", seconds=LONG)
        self.members[name].run("ready")
        self.members[name].run("finish")

    def _on_node(self, command: str, name: str) -> None:
        self.first.run(f"{command} {name}", seconds=LONG)

    def _upgrade_worker(self, name: str) -> None:
        self._apply(name, "kubernetes")
        names = ("kubelet", "kubeadm", "kubectl")
        packages = " ".join(f"{package}={self.cluster.kubelet}.*" for package in names)
        with connections(self.plan, [self._node(name)], self.options) as workers:
            workers[name].shell(
                "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install "
                f"--allow-change-held-packages {packages} && apt-mark hold {' '.join(names)} "
                "&& systemctl restart kubelet.service"
            )
        deadline = time.monotonic() + _STARTED_SECONDS
        while not self._nodes()[name].has_version(self.cluster.kubelet):
            if time.monotonic() > deadline:
                what = f"{name}: kubelet does not report version {self.cluster.kubelet}"
                raise PartialError(what, fix=f"`bedplate node logs {name}` shows more; then run the command again")
            time.sleep(1)

    def _replace(self, name: str) -> None:
        """Terminate an instance; its group starts another one, which installs the new version."""
        # Slow: it imports boto3.
        from bedplate.account.capacity import terminate_machine

        worker = self.workers[name]
        before, region = self._nodes(), name.partition(".")[2]
        terminate_machine(open_account(self.plan), region, worker.instance, replaced=True)
        deadline = time.monotonic() + _REPLACED_SECONDS
        while name in (nodes := self._nodes()) or len(nodes) < len(before):
            if time.monotonic() > deadline:
                raise PartialError(f"no machine has replaced {name}", fix="`bedplate node list --live` shows its state")
            time.sleep(_PAUSE)
        for new in nodes.keys() - before.keys():
            if not nodes[new].has_version(self.cluster.kubelet):
                fix = "run `bedplate bundle push`, and `bedplate image bake` if the pool has an image; then continue"
                raise PartialError(f"{new} has version {nodes[new].version}", fix=fix)

    def _nodes(self) -> dict[str, Worker]:
        return {worker.name: worker for worker in parse_workers(self.first.run("nodes"), frozenset(self.members))}

    def _apply(self, name: str, *roles: str) -> None:
        location = NodeLocation(self._node(name))
        (outcome,) = apply_machines(self.plan, [location], self.options, frozenset(roles)).outcomes
        if not outcome.is_done:
            error = outcome.error
            what = f"{name}: {error.words if error else 'stopped'}"
            raise PartialError(what, fix=error.fix if error else "run the command again")

    def _node(self, name: str) -> NodePlan:
        return find_node(self.plan, name, load_catalog())


def upgrade(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the steps.")] = False,
    yes: Yes = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
) -> int:
    """Upgrade the cluster by a minor version.

    To the version in the fleet file. First the members, one after the other, then workers: those of sites are drained
    and upgraded, instances are drained and replaced. After a failure, the same command continues.
    """
    plan = plan_of(fleet)
    cluster, options = cluster_of(plan), SshOptions(fleet, user, identity, ssh_config)
    check_plan_recorded(plan, fleet)
    with locked(fleet), connections(plan, member_nodes(plan), options) as members:
        statuses = on_all(members.values(), read_status)
        if silent := [name for name, status in statuses.items() if not status.is_ready]:
            fix = "run `bedplate kube init` first: every member must run before one is stopped"
            raise PartialError(f"{', '.join(silent)} not ready", fix=fix)
        workers = parse_workers(next(iter(members.values())).run("nodes"), frozenset(members))
        versions = {name: status.version for name, status in statuses.items()}
        steps = upgrade_steps(versions, workers, cluster.version, cluster.kubelet)
        show([f"{step.node}: {step.action}" for step in steps] or [f"every machine has version {cluster.version}"])
        if check or not steps:
            return 0
        confirm("upgrade?", yes=yes)
        work = Upgrade(plan, cluster, options, members, {worker.name: worker for worker in workers})
        for step in steps:
            notify([f"{step.node}: {step.action}"])
            work.run(step)
    show([f"upgraded to {cluster.version}"])
    return 0
