"""The command that joins a machine of a site to the cluster: kube join."""

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import plan_of
from bedplate.cli.kube_session import cluster_of, connections, member_nodes
from bedplate.cli.login import SshOptions
from bedplate.cli.output import DEFAULT_FLEET, FleetOption, Identity, SshConfig, User, notify, show
from bedplate.errors import InputError, PartialError
from bedplate.kube.members import Connection
from bedplate.nodes.ssh import nodes_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import BOOTSTRAPPERS, machine_group
from bedplate.plan.nodes import NodePlan, NodeRole, Platform
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
