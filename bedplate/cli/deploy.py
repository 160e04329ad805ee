"""The commands that run Pulumi's engine on the stacks of the fleet: preview, up, destroy."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Parts, Terminal, Yes
from bedplate.cli.output import show_document
from bedplate.operate import deploy, machines

NoMachines = Annotated[bool, typer.Option("--no-machines", help="Do not configure machines after the deployment.")]


def preview(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, json: Json = False) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    operator = Terminal(fleet)
    preview = deploy.preview(operator, stack or [])
    if json:
        show_document(preview.document)
    else:
        preview.show(operator)
    return deploy.exit_status(operator, preview.states)


def up(
    fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False, no_machines: NoMachines = False
) -> int:
    """Deploy the fleet.

    Records missing addresses and images, creates a missing backend, shows a preview, asks, then runs every stack in
    order, regions in parallel. Stacks that the fleet file no longer has are destroyed. Without --stack, it then applies
    roles to running machines. The exit status is 6 if a stack or machine failed; the same command continues.
    """
    operator = Terminal(fleet, yes=yes)
    if (status := deploy.up(operator, stack or [])) or stack or no_machines:
        return status
    return machines.ready_machines(operator, deploy.again("up", operator))


def destroy(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Delete what was deployed, except for data.

    File systems, buckets and keys are protected and kept.
    """
    return deploy.destroy(Terminal(fleet, yes=yes), stack or [])
