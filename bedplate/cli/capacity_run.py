"""The commands around the capacity controller: status, explain, run, pause, resume."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, WithFleet, printed
from bedplate.operate import Result, capacity
from bedplate.operate.capacity_loop import Outputs, run_controller

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="How to reach the cluster's API."),
]
Group = Annotated[str | None, typer.Argument(metavar="[GROUP]", help="A group of the fleet file. Default: all.")]


def status(operator: OnFleet, *, kubeconfig: Kubeconfig = None, as_json: Json = False) -> int:
    """Show the machines of each rung, and whether it can have more.

    Without a kubeconfig, pods and nodes are not read.
    """
    return printed(capacity.status(operator, kubeconfig), as_json=as_json)


def explain(
    name: Annotated[str | None, typer.Argument(metavar="[GROUP|POD]", help="A group, or NAMESPACE/POD.")] = None,
    *,
    kubeconfig: Kubeconfig = None,
    operator: WithFleet,
) -> int:
    """Explain in sentences what each rung does, what happens next, and why."""
    return printed(Result(capacity.explain(operator, name, kubeconfig)))


def pause(group: Group = None, *, operator: WithFleet) -> int:
    """Leave a group as it is: no machine starts or ends by itself."""
    lines = (f"paused {name}" for name in capacity.pause(operator, group))
    return printed(Result(lines))


def resume(group: Group = None, *, operator: WithFleet) -> int:
    """End a pause of `capacity pause`."""
    lines = (f"resumed {name}" for name in capacity.resume(operator, group))
    return printed(Result(lines))


def run(  # noqa: PLR0913  each is an option of the command line
    operator: OnFleet,
    *,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and print, change nothing.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append each observation as a JSON line.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="File of metrics for the node exporter.")
    ] = None,
) -> None:
    """Run the controller: start and end machines as pods need them.

    Prints one JSON line for each action, with its reason. Of several controllers one acts.
    """
    plan, account = capacity.controller_inputs(operator)
    outputs = Outputs(
        lambda entry: operator.show([json.dumps(entry)]), lambda note: operator.notify([note]), record, metrics
    )
    run_controller(plan, account, kubeconfig, outputs, once=once, is_dry=dry_run)
