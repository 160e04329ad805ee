"""The commands that look at everything: status at the fleet, doctor at this machine and its rights."""

from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, OnMachines, printed
from bedplate.operate import doctor as machine
from bedplate.operate import status as page

Seconds = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="What has not answered by then is unknown.")
]


def status(context: typer.Context, operator: OnMachines, *, timeout: Seconds = 60, json: Json = False) -> int:
    """Show what is deployed, runs and is due.

    The stacks, machines, gateways, cluster, dates and the cost of what runs, all asked at the same time. The
    exit status is 3 if something is wrong, else 6 if something did not answer.
    """
    return printed(page.status(operator, timeout, context.obj), as_json=json)


def doctor(context: typer.Context, operator: OnFleet, *, timeout: Seconds = 60, json: Json = False) -> int:
    """Show what this machine and account lack.

    Programs, and the credentials, rights and quotas in AWS. The exit status is 4 if `bedplate up` lacks
    something, else 6 if something that it needs is unknown.
    """
    return printed(machine.examine(operator, timeout, context.obj), as_json=json)
