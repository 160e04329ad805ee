"""`bedplate node ssh-config`: OpenSSH's configuration for the fleet's machines, with the host keys that are known."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.node_options import FleetOption, Identity, User
from bedplate.cli.options import DEFAULT_FLEET
from bedplate.cli.output import show, tell

KNOWN = "known_hosts"


def ssh_config(
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write it there, and the host keys beside it.")
    ] = None,
    user: User = None,
    identity: Identity = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print what ssh needs to know of the fleet."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.nodes.host_key import known_hosts
    from bedplate.nodes.ssh_config import Login, Reached
    from bedplate.nodes.ssh_config import ssh_config as text
    from bedplate.plan.nodes import pool_nodes, standing_nodes
    from bedplate.writer import write_together

    plan = planned(opened(fleet))
    nodes = (*standing_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or Path("~/.ssh/bedplate")).expanduser().absolute()
    believed = file.with_name(f"{file.name}.{KNOWN}")
    config = text((Reached(node) for node in nodes), believed, Login(user, identity))
    if write is None:
        show(config.splitlines())
        return 0
    _refuse_anothers(file)
    write_together({believed: known_hosts(nodes, plan.record.host_keys).encode(), file: config.encode()})
    tell([f"written to {file} and {believed.name}; at the top of ~/.ssh/config: Include {file}"])
    unknown = sum(node.name not in plan.record.host_keys for node in nodes)
    tell(
        [f"{unknown} of {len(nodes)} machines are refused until `bedplate node trust` knows their keys"]
        if unknown
        else []
    )
    return 0


def _refuse_anothers(file: Path) -> None:
    """Leave what somebody else wrote: the likeliest wrong name is that of a whole configuration of one's own."""
    from bedplate.errors import InputError
    from bedplate.nodes.ssh_config import MARK
    from bedplate.writer import told_plainly

    if not file.is_file():
        return
    with told_plainly(file, "read"):
        theirs = file.read_bytes()
    if theirs and not theirs.startswith(MARK.encode()):
        fix = "write it to a file of its own, such as ~/.ssh/bedplate, and Include that"
        raise InputError(f"{file} is not ours to write over", fix=fix)
