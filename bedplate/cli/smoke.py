"""The command that tests bedplate in a real AWS account."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Terminal, Yes, printed
from bedplate.errors import PartialError
from bedplate.folder.files import FLEET_FILE
from bedplate.operate import smoke as workflow

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the fleet and the report.")]


def smoke(  # noqa: PLR0913  each is an option of the command line
    folder: Folder = Path("smoke"),
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Only show the stages, their length and price.")] = False,
    stage: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, max=12, help="Only this stage and what it needs; repeatable."),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="ARN", help="The role of a deployer, for all commands.")] = None,
    minutes: Annotated[int, typer.Option(metavar="N", min=1, help="The limit of time.")] = 240,
    keep: Annotated[bool, typer.Option("--keep", help="Do not destroy the fleet.")] = False,
    destroy: Annotated[bool, typer.Option("--destroy", help="Only destroy the fleet in DIR.")] = False,
    yes: Yes = False,
) -> int:
    """Test bedplate in your AWS account.

    Makes a fleet of its own, runs twelve stages, and destroys the fleet with its data. It costs money: see --plan. The
    exit status is 3 if a stage failed, 6 if a stage was not run or anything is left. Stage 10 needs a quota for GPUs.
    """
    operator = Terminal((folder / FLEET_FILE).absolute(), yes=yes)
    if plan:
        return printed(workflow.show_plan(operator, minutes))
    if destroy:
        left = workflow.destroy(operator)
        operator.show([f"left in the account: {name}" for name in left] or ["nothing is left in the account"])
        return PartialError.exit_code if left else 0
    return printed(workflow.smoke(operator, stage or workflow.DEFAULT, role, minutes, keep=keep))
