"""`bedplate diff`: what an edit of the fleet file would do to a fleet that lives."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document
from bedplate.errors import ViolationError

After = Annotated[Path, typer.Argument(metavar="FLEET2", help="The fleet file as it is to become.", show_default=False)]


def diff(fleet2: After, fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show what an edit does to a live fleet."""
    from bedplate.cli.opening import opened
    from bedplate.report.diff import diff_document, diff_lines
    from bedplate.update.consequence import consequences
    from bedplate.update.effect import Effect

    told = consequences(opened(fleet).fleet, opened(fleet2).fleet)
    if json:
        show_document(diff_document(told))
    else:
        show(diff_lines(told))
    is_hard = any(one.effect.weight >= Effect.REPLACES.weight for one in told)
    return ViolationError.exit_code if is_hard else 0
