"""`bedplate graph`: the resources of a stack as the rehearsal created them."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Parts
from bedplate.cli.output import show_document, tell
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan


class Form(StrEnum):
    """What a graph is printed as."""

    GRAPH = "graph"
    TERRAFORM_PLAN = "terraform-plan"


def graph(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    every: Annotated[bool, typer.Option("--all", help="Of all stacks.")] = False,
    form: Annotated[
        Form, typer.Option("--format", help="terraform-plan is for policy tools: checkov, conftest and the like.")
    ] = Form.GRAPH,
) -> int:
    """Print a stack's resources as JSON."""
    from bedplate.cli.opening import opened, planned

    if bool(stack) is every:
        what = "--all and --stack contradict each other" if every else "which stack is not said"
        raise InputError(what, fix="give --stack PART, or --all")
    return _graph(planned(opened(fleet)), tuple(stack or ()), form)


def _graph(plan: "FleetPlan", asked: tuple[str, ...], form: Form) -> int:
    from bedplate.cli.waves import waves
    from bedplate.rehearsal.graph import graph as nodes
    from bedplate.rehearsal.rehearse import create
    from bedplate.rehearsal.report import Phase
    from bedplate.report.rehearsal import failure_lines
    from bedplate.terraform.plan import plan_document
    from stacks.names import stack_name

    report = create(plan.account, waves(plan, asked))
    wanted = {stack_name(plan, part) for part in asked}
    shown = [stack for stack in report.stacks if not wanted or stack.name in wanted]
    for stack in report.stacks:
        tell(failure_lines(stack))
    found = [node for stack in shown for node in nodes(stack.runs[Phase.CREATE].snapshot.entries.values())]
    show_document(plan_document(found) if form is Form.TERRAFORM_PLAN else found)
    return InputError.exit_code if any(stack.failures for stack in report.stacks) else 0
