"""The commands that start and stop machines of groups: node start, node stop."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetOption, Terminal, Yes
from bedplate.operate import group_machines


def start(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group of the fleet file.")],
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, help="Machines that run afterwards, in total.")] = 1,
    *,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="8h", help="Stop them after this time. Default: no end.")
    ] = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Start machines of a group.

    Tries the rungs of its ladder in order, until N machines run in total. Running machines count.
    """
    group_machines.start(Terminal(fleet), group, count, duration)
    return 0


def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a group, or its instance id.")],
    *,
    yes: Yes = False,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Terminate a machine of a group.

    Its group does not replace it. Gateways, machines of sites and of the control plane are refused.
    """
    group_machines.stop(Terminal(fleet, yes=yes), name)
    return 0
