"""The commands around the controller of capacity: status, explain, run, pause, resume."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import open_client
from bedplate.account.groups import FleetGroups
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, FleetOption, Json, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import InputError, nearest, nearest_fix
from bedplate.files import login_name
from bedplate.operate.capacity import check_managed, plan_capacity, read_state
from bedplate.operate.capacity_loop import Outputs, check_cluster, read_plan, run_controller
from bedplate.operate.fleet import open_account, plan_of
from bedplate.report.capacity_state import explain_group, explain_pod, status_document, status_lines

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="How to reach the cluster's API."),
]
Group = Annotated[str | None, typer.Argument(metavar="[GROUP]", help="A group of the fleet file. Default: all.")]


def status(fleet: FleetFile = DEFAULT_FLEET, *, kubeconfig: Kubeconfig = None, as_json: Json = False) -> int:
    """Show the machines of each rung, and whether it can have more.

    Without a kubeconfig, pods and nodes are not read.
    """
    plan = plan_of(Terminal(fleet))
    state = read_state(plan, open_account(plan), kubeconfig)
    if as_json:
        show_document(status_document(state))
    else:
        show(status_lines(state))
    return 0


def explain(
    name: Annotated[str | None, typer.Argument(metavar="[GROUP|POD]", help="A group, or NAMESPACE/POD.")] = None,
    *,
    kubeconfig: Kubeconfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Explain in sentences what each rung does, what happens next, and why."""
    plan = plan_of(Terminal(fleet))
    groups = tuple(dict.fromkeys(pool.group for pool in plan.pools))
    if name is not None and "/" in name and kubeconfig is None:
        raise InputError(f"{name}: pods are not known without a kubeconfig", fix="set KUBECONFIG, or add --kubeconfig")
    if name is not None and "/" not in name and name not in groups:
        raise _unknown_name(name, groups)
    state = read_state(plan, open_account(plan), kubeconfig)
    pods = {pod.id: pod for pod in state.observation.pods}
    if name is None:
        for number, group in enumerate(state.groups):
            show([*([""] if number else []), *explain_group(state, group)])
    elif name in state.groups:
        show(explain_group(state, name))
    elif name in pods:
        show(explain_pod(state, pods[name]))
    else:
        raise _unknown_name(name, tuple(pods))
    return 0


def _unknown_name(name: str, names: tuple[str, ...]) -> InputError:
    fix = nearest_fix(name, names)
    if "/" in name and nearest(name, names) is None:
        fix = "`kubectl get pods -A` lists all"
    return InputError(f"no group or pod named {name}", fix=fix)


def pause(group: Group = None, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Let the controller leave a group alone: it starts and ends nothing there."""
    show(f"paused {name}" for name in _groups_of(fleet, group).pause(group, login_name()))
    return 0


def resume(group: Group = None, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Continue the controller's work after `capacity pause`."""
    show(f"resumed {name}" for name in _groups_of(fleet, group).resume(group))
    return 0


def _groups_of(fleet: Path, group: str | None) -> FleetGroups:
    plan = plan_of(Terminal(fleet))
    capacity = plan_capacity(plan)
    check_managed(plan, capacity, group)
    return FleetGroups(open_account(plan), capacity)


def run(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and print, change nothing.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append each observation as a JSON line.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="The plan on a member, instead of FLEET.")
    ] = None,
    etcd_cluster: Annotated[
        Path | None, typer.Option("--etcd-cluster", metavar="FILE", help="The id of the etcd cluster of this member.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="File of metrics for the node exporter.")
    ] = None,
) -> int:
    """Run the controller: start and end machines as pods need them.

    It also ends machines for SSH that nobody uses. Prints one JSON line for each action, with its reason. Of several
    controllers one acts.
    """
    if plan_file:
        capacity, account = read_plan(plan_file), open_client()
    else:
        plan = plan_of(Terminal(fleet))
        capacity, account = plan_capacity(plan), open_account(plan)
    if etcd_cluster:
        check_cluster(capacity, etcd_cluster)
    outputs = Outputs(lambda entry: show([json.dumps(entry)]), lambda note: notify([note]), record, metrics)
    run_controller(capacity, account, kubeconfig, outputs, once=once, is_dry=dry_run)
    return 0
