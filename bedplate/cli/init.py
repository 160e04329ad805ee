"""The command that makes a fleet folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Terminal, printed
from bedplate.operate import new_folder
from bedplate.operate.new_folder import TEXTS


def init(  # noqa: PLR0913  one option for each value
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")] = Path(),
    *,
    example: Annotated[str, typer.Option("--example", metavar="EXAMPLE", help="Example to start from.")] = "gpu-box",
    name: Annotated[str | None, typer.Option(help=TEXTS["name"] + ".")] = None,
    account: Annotated[str | None, typer.Option(help=TEXTS["account"] + ".")] = None,
    region: Annotated[str | None, typer.Option(help=TEXTS["region"] + ", for an example of one region.")] = None,
    owner: Annotated[str | None, typer.Option(help=TEXTS["owner"] + ".")] = None,
    domain: Annotated[str | None, typer.Option(help=TEXTS["domain"] + ".")] = None,
    person: Annotated[str | None, typer.Option(help=TEXTS["person"] + ".")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY|FILE", help=TEXTS["key"] + ".")] = None,
    gateway: Annotated[str | None, typer.Option(metavar="IP", help=TEXTS["gateway"] + ".")] = None,
    reservation: Annotated[str | None, typer.Option(metavar="ID", help=TEXTS["reservation"] + ".")] = None,
    link: Annotated[
        bool, typer.Option("--link", help="Only prepare an existing fleet folder on this machine.")
    ] = False,
) -> int:
    """Create a fleet folder.

    It has a fleet file, a Pulumi project and a CI workflow.

    Values that are not given are taken from AWS credentials, git and ~/.ssh, and asked for on a terminal.
    """
    operator = Terminal(folder, is_attended=sys.stdin.isatty())
    if link:
        new_folder.link(operator, folder)
        return 0
    values = {
        "name": name,
        "account": account,
        "region": region,
        "owner": owner,
        "domain": domain,
        "person": person,
        "key": key,
        "gateway": gateway,
        "reservation": reservation,
    }
    return printed(new_folder.make_folder(operator, folder, example, values))
