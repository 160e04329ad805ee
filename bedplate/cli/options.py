"""The arguments and options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_FLEET = Path("fleet.yaml")

FleetFile = Annotated[Path, typer.Argument(metavar="FLEET", help="The fleet file.")]
Parts = Annotated[
    list[str] | None, typer.Option("--stack", metavar="PART", help="shared, a region, or links; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
