"""The commands that analyse stack resources: graph prints them, reach traces a packet, audit-graph checks them."""

from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, Parts, printed
from bedplate.errors import InputError
from bedplate.operate import reach as analysis
from bedplate.plan.reachability import parse_flow

GraphFile = Annotated[
    str, typer.Argument(metavar="GRAPH", help="File with the output of `graph`; - is stdin.", show_default=False)
]
PLACES = "IP address, machine, hub, zone, zone/edge, region, site, laptops.PLACE, path of a block, or internet."
From = Annotated[str, typer.Argument(metavar="FROM", help=PLACES, show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help="As FROM.", show_default=False)]


def audit_graph(graph: GraphFile, *, json: Json = False) -> int:
    """Check the resources that `graph` printed.

    The exit status is 3 if a resource violates a rule. `bedplate check --explain all` lists the rules.
    """
    return printed(analysis.check(graph), as_json=json)


def reach(  # noqa: PLR0913  each is an option of the command line
    source: From,
    target: To,
    operator: OnFleet,
    *,
    protocol: Annotated[str, typer.Option(metavar="PROTOCOL", help="tcp, udp or icmp.")] = "tcp",
    port: Annotated[int | None, typer.Option(metavar="PORT", help="TCP port (default: 22) or UDP port.")] = None,
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Use the output of `graph --all` (- is stdin) instead of a rehearsal."),
    ] = None,
    json: Json = False,
) -> int:
    """Trace a packet and its reply.

    In both directions. The exit status is 3 if the packet or its reply does not arrive from the first place to the
    second.
    """
    result = analysis.trace(operator, (source, target), parse_flow(protocol, port), graph)
    return printed(result, as_json=json)


def graph(
    operator: OnFleet,
    *,
    stack: Parts = None,
    every: Annotated[bool, typer.Option("--all", help="Print the resources of all stacks.")] = False,
) -> int:
    """Print a stack's resources as JSON.

    As the simulated AWS creates them. The exit status is 2 if AWS would reject a resource.
    """
    if bool(stack) is every:
        what = "--all and --stack exclude each other" if every else "no stack selected"
        raise InputError(what, fix="pass --stack PART or --all")
    return printed(analysis.print_graph(operator, stack or ()), as_json=True)
