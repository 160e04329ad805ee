"""The commands for the access of a person: person invite and person remove."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Identity, PassphraseFile, Person, SshConfig, Terminal, User
from bedplate.operate import people
from vpn.certificates import DEFAULT_DEVICE


def invite(  # noqa: PLR0913  one parameter an option
    name: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Annotated[str, typer.Option("--laptop", metavar="LAPTOP", help="The person's laptop.")] = DEFAULT_DEVICE,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="The archive. Default: USER.zip.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also update gateways, and create the account on all machines.")
    ] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Write an archive with a person's access.

    It has a VPN profile, the ssh configuration with host keys, and instructions. Run it again after new machines.
    """
    operator = Terminal(fleet, user, identity, ssh_config, passphrase_file)
    return people.invite(operator, name, device, write or Path(f"{name}.zip"), is_applied=apply)


def remove(  # noqa: PLR0913  one parameter an option
    name: Annotated[str, typer.Argument(metavar="USER", help="A person, also one who is no longer in the fleet file.")],
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="Let running pods in the cluster go on until they end.")
    ] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Remove a person's access.

    Revokes their laptops, ends their pods in the cluster, where nothing of theirs starts any more, and removes their
    accounts from all machines once they are deleted from the fleet file. The exit status is 6 while something is left
    that the same command does.
    """
    operator = Terminal(fleet, user, identity, ssh_config, passphrase_file)
    return people.remove(operator, name, keeps_pods=keep_pods)
