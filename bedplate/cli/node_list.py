"""`bedplate node list`: the machines of the plan, and, where the account is asked, those that run."""

from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.node_options import FleetOption
from bedplate.cli.options import DEFAULT_FLEET, Json
from bedplate.cli.output import show, show_document

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan


def list(  # noqa: A001  the command's own name
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS which machines of groups run now.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    from bedplate.cli.opening import opened, planned

    plan = planned(opened(fleet))
    return _live(plan, json=json) if live else _planned(plan, json=json)


def _planned(plan: "FleetPlan", *, json: bool) -> int:
    from bedplate.catalog import load_catalog
    from bedplate.plan.nodes import pool_nodes, standing_nodes
    from bedplate.report.nodes import node_document, node_lines

    standing, pooled = standing_nodes(plan), tuple(pool_nodes(plan, load_catalog()))
    known = plan.record.host_keys
    if json:
        show_document(node_document([*((node, True) for node in standing), *((node, False) for node in pooled)], known))
    else:
        show(node_lines(standing, pooled, known))
    return 0


def _live(plan: "FleetPlan", *, json: bool) -> int:
    from bedplate.account.door import check_account, open_door
    from bedplate.account.machines import machines
    from bedplate.account.regions import failure_lines
    from bedplate.cli.output import tell
    from bedplate.errors import PartError
    from bedplate.report.machines import machine_document, machine_lines

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    answers = machines(door, plan)
    found = tuple(machine for each in answers.given.values() for machine in each)
    if json:
        show_document(machine_document(found, plan.record.host_keys))
    else:
        show(machine_lines(found, plan.record.host_keys))
    tell(f"not known: {line}" for line in failure_lines(answers.failures))
    return PartError.exit_code if answers.failures else 0
