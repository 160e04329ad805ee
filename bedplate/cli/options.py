"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_FLEET = Path("fleet.yaml")

FleetFile = Annotated[Path, typer.Argument(metavar="FLEET", help="The fleet file.")]
FleetOption = Annotated[Path, typer.Option("--fleet", metavar="FLEET", help="The fleet file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Parts = Annotated[
    list[str] | None, typer.Option("--stack", metavar="PART", help="shared, a region, or links; repeatable.")
]

# Which machines.
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Machines, such as titan-01.cellar.")]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="Running machines of a group; repeatable.")
]
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help="All machines of a site; repeatable.")]
Every = Annotated[bool, typer.Option("--all", help="All permanent machines: those of sites, and gateways.")]

# How to log in.
User = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Login name. Default: yours if you are an admin, else ubuntu."),
]
Identity = Annotated[Path | None, typer.Option("--identity", metavar="FILE", help="The private key to log in with.")]
SshConfig = Annotated[
    Path | None,
    typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration, which also names known_hosts."),
]

# Certificates of the VPN.
Person = Annotated[str, typer.Argument(metavar="USER", help="A person in the fleet file.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="The person's device.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        envvar="BEDPLATE_VPN_PASSPHRASE_FILE",
        help="File with the passphrase of the private keys. Default: a prompt.",
    ),
]
