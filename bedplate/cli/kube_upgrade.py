"""The command kube upgrade: it shows the steps of the plan, asks, and carries them out one after the other."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.cli.deploy import Yes, confirm
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.kube_session import cluster_of, connections, locked, member_nodes
from bedplate.cli.login import SshOptions
from bedplate.cli.node_apply import apply_machines
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Identity, SshConfig, User, notify, show
from bedplate.errors import PartialError
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
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan
from bedplate.plan.nodes import NodePlan, find_node

# A new instance boots, gets its packages and passes its gate.
_REPLACED_SECONDS, _PAUSE = 1800.0, 15.0


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
        packages = " ".join(f"{package}={self.cluster.kubelet}.*" for package in ("kubelet", "kubeadm", "kubectl"))
        with connections(self.plan, [self._node(name)], self.options) as workers:
            workers[name].shell(
                "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install "
                f"--allow-change-held-packages {packages} && systemctl restart kubelet.service"
            )

    def _replace(self, name: str) -> None:
        """Terminate an instance; its group starts another one, which installs the new version."""
        # Slow: it imports boto3.
        from bedplate.account.capacity import terminate_machine

        worker = self.workers[name]
        count, region = len(self._nodes()), name.partition(".")[2]
        terminate_machine(open_account(self.plan), region, worker.instance, replaced=True)
        deadline = time.monotonic() + _REPLACED_SECONDS
        while name in (nodes := self._nodes()) or len(nodes) < count:
            if time.monotonic() > deadline:
                raise PartialError(f"no machine has replaced {name}", fix="`bedplate node list --live` shows its state")
            time.sleep(_PAUSE)

    def _nodes(self) -> dict[str, Worker]:
        return {worker.name: worker for worker in parse_workers(self.first.run("nodes"), frozenset(self.members))}

    def _apply(self, name: str, *roles: str) -> None:
        location = NodeLocation(self._node(name))
        (outcome,) = apply_machines(self.plan, [location], self.options, frozenset(roles)).outcomes
        if not outcome.is_done:
            trouble = outcome.trouble
            what = f"{name}: {trouble.words if trouble else 'stopped'}"
            raise PartialError(what, fix=trouble.fix if trouble else "run the command again")

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
