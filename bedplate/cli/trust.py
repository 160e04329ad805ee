"""The command that records host keys of machines in the lock, node trust."""

from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.cli.options import DEFAULT_FLEET, FleetOption, SshConfig, Terminal
from bedplate.errors import InputError
from bedplate.nodes.ssh import nodes_by_name
from bedplate.operate.fleet import plan_of
from bedplate.operate.trust import trust_fingerprint, trust_groups, trust_instance


def trust(  # noqa: PLR0913  each is an option of the command line
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A machine, such as titan-01.cellar.")] = None,
    sha256: Annotated[
        str | None,
        typer.Argument(metavar="SHA256:...", help="Fingerprint from the machine's console. Default: ask AWS."),
    ] = None,
    *,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="All running machines of a group; repeatable.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the recorded key of a reinstalled machine.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Connect to this address instead of the planned one.")
    ] = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Record a machine's host key."""
    operator = Terminal(fleet, ssh_config=ssh_config)
    plan = plan_of(operator)
    if group:
        if name:
            raise InputError(f"{name} and --group exclude each other", fix=f"leave out {name} or --group")
        return trust_groups(operator, plan, group, replace=replace)
    if name is None:
        raise InputError("no machine selected", fix="name a machine or pass --group; see `bedplate node list`")
    (node,) = nodes_by_name(plan, [name], load_catalog())
    if sha256:
        trust_fingerprint(operator, plan, node, sha256, address, replace=replace)
        return 0
    if option := "--address" if address else "--ssh-config" if ssh_config else "":
        raise InputError(f"{option} requires a fingerprint", fix=f"pass the fingerprint, or leave out {option}")
    trust_instance(operator, plan, node, replace=replace)
    return 0
