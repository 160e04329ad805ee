"""The options that the commands of a machine share."""

from pathlib import Path
from typing import Annotated

import typer

FleetOption = Annotated[Path, typer.Option("--fleet", metavar="FLEET", help="The fleet file.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Machines, as titan-01.cellar.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="G", help="Machines of a group that run.")]
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="S", help="All machines of a site.")]
Every = Annotated[bool, typer.Option("--all", help="All machines that always stand.")]
User = Annotated[str | None, typer.Option("--user", metavar="U", help="Who logs in; you if an admin, else ubuntu.")]
Identity = Annotated[Path | None, typer.Option("--identity", metavar="FILE", help="The private key to log in with.")]
Config = Annotated[
    Path | None, typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration and host keys.")
]
