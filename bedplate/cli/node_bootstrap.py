"""`bedplate node bootstrap`: what to run on a fresh machine of a site before it can be configured."""

from typing import Annotated

import typer

from bedplate.cli.node_options import FleetOption
from bedplate.cli.options import DEFAULT_FLEET
from bedplate.cli.output import show


def bootstrap(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a site, as titan-01.cellar.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print the first-boot script of a machine."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.nodes.bootstrap import bootstrap as script
    from bedplate.nodes.choice import named

    (node,) = named(planned(opened(fleet)), [name], load_catalog())
    show(script(node).splitlines())
    return 0
