"""The commands for the access of a person: person invite and person remove."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import OnMachines, Person
from bedplate.operate import people
from vpn.certificates import DEFAULT_DEVICE


def invite(
    name: Person,
    *,
    device: Annotated[str, typer.Option("--laptop", metavar="LAPTOP", help="The person's laptop.")] = DEFAULT_DEVICE,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="The archive. Default: USER.zip.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also update gateways, and create the account on all machines.")
    ] = False,
    operator: OnMachines,
) -> int:
    """Write an archive with a person's access.

    It has a VPN profile, the ssh configuration with host keys, and instructions. Run it again after new machines.
    """
    return people.invite(operator, name, device, write or Path(f"{name}.zip"), is_applied=apply)


def remove(
    name: Annotated[str, typer.Argument(metavar="USER", help="A person, also one who is no longer in the fleet file.")],
    *,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="Let running pods in the cluster go on until they end.")
    ] = False,
    operator: OnMachines,
) -> int:
    """Remove a person's access.

    Revokes their laptops, ends their pods in the cluster, where nothing of theirs starts any more, and removes their
    accounts from all machines once they are deleted from the fleet file. The exit status is 6 while something is left
    that the same command does.
    """
    return people.remove(operator, name, keeps_pods=keep_pods)
