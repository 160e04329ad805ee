"""`bedplate node ssh-config`: OpenSSH's configuration for the fleet's machines, with the host keys that are known.

Printed it names a file of host keys that only `--write` writes, and says so; nothing is ever trusted without one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.node_options import FleetOption, Identity
from bedplate.cli.options import DEFAULT_FLEET
from bedplate.cli.output import show, tell

if TYPE_CHECKING:
    from bedplate.nodes.ssh_config import Login
    from bedplate.plan import FleetPlan
    from bedplate.plan.node import NodePlan

KNOWN = "known_hosts"
_USUAL = Path("~/.ssh/bedplate")
User = Annotated[
    str | None, typer.Option("--user", metavar="U", help="Who logs in; you if the file has you, else ubuntu.")
]
Write = Annotated[
    Path | None, typer.Option("--write", metavar="FILE", help="Write it there, and the host keys beside it.")
]


def ssh_config(
    *, write: Write = None, user: User = None, identity: Identity = None, fleet: FleetOption = DEFAULT_FLEET
) -> int:
    """Print what ssh needs to know of the fleet."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.node_ways import refuse_missing
    from bedplate.cli.opening import opened, planned
    from bedplate.nodes.host_key import known_hosts
    from bedplate.nodes.ssh_config import Reached
    from bedplate.nodes.ssh_config import ssh_config as text
    from bedplate.plan.nodes import pool_nodes, standing_nodes
    from bedplate.writer import write_together

    plan = planned(opened(fleet))
    refuse_missing(identity)
    nodes = (*standing_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or _USUAL).expanduser().absolute()
    believed, keys = file.with_name(f"{file.name}.{KNOWN}"), known_hosts(nodes, plan.record.host_keys).encode()
    config = text((Reached(node) for node in nodes), believed, _login(plan, user, identity))
    if write is None:
        show(config.splitlines())
        tell(_still_to_write(believed, keys))
    else:
        _refuse_anothers(file)
        write_together({believed: keys, file: config.encode()})
        tell([f"written to {file} and {believed.name}; at the top of ~/.ssh/config: Include {file}"])
    tell(_unknown(plan, nodes))
    return 0


def _login(plan: "FleetPlan", user: str | None, identity: Path | None) -> "Login":
    """Return who logs in; somebody whom the file does not have is told as whom."""
    from bedplate.hold import login_name
    from bedplate.nodes.deployer import visitor
    from bedplate.nodes.ssh_config import Login

    me = login_name()
    name = user or visitor(plan.accounts, me)
    if not user and name != me:
        tell([f"note: the file has nobody called {me}: ssh logs in as {name}, or as --user says"])
    return Login(name, identity and identity.absolute())


def _still_to_write(believed: Path, keys: bytes) -> Iterator[str]:
    """Yield what keeps that which is printed from being of use: host keys that are not where it says."""
    from bedplate.writer import told_plainly

    if believed.is_file():
        with told_plainly(believed, "read"):
            if believed.read_bytes() == keys:
                return
    file = believed.with_name(believed.name.removesuffix(f".{KNOWN}"))
    yield f"note: the host keys that it names are not in {believed}, and without them ssh reaches no machine"
    yield f"  fix  `bedplate node ssh-config --write {file}` writes both"


def _unknown(plan: "FleetPlan", nodes: "Sequence[NodePlan]") -> Iterator[str]:
    unknown = sum(node.name not in plan.record.host_keys for node in nodes)
    if unknown:
        yield f"{unknown} of {len(nodes)} machines are refused until `bedplate node trust` knows their keys"


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
