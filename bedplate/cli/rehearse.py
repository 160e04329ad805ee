"""The command that runs stacks in the simulated AWS."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Parts, Terminal, printed
from bedplate.operate import rehearsal


def rehearse(  # noqa: PLR0913 - one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    changed: Annotated[
        Path | None, typer.Option(metavar="FLEET2", help="Also change the stacks to this fleet file.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rehearse your own Pulumi program instead of a fleet.")
    ] = None,
    region: Annotated[str, typer.Option(metavar="REGION", help="With --program: its region.")] = "us-east-1",
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help=f"Inject {rehearsal.FAULTS} while stacks are created; repeatable."),
    ] = None,
    types: Annotated[bool, typer.Option("--types", help="List the simulated resource types instead.")] = False,
    json: Json = False,
) -> int:
    """Run the stacks in a simulated AWS.

    The command creates each stack, runs it again, changes it and destroys it. The exit status is 2 if AWS would
    reject a resource. It is 3 if a second run changes something, or a rule is violated. It is 6 if only injected
    faults prevented resources.
    """
    operator = Terminal(fleet)
    if types:
        result = rehearsal.list_types()
    elif program:
        result = rehearsal.rehearse_program(operator, program, region, fault or ())
    else:
        later = Terminal(changed) if changed else None
        result = rehearsal.rehearse_fleet(operator, tuple(stack or ()), later, fault or ())
    return printed(result, as_json=json)
