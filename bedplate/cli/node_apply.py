"""`bedplate node apply`: configure machines over SSH, or see what that would change."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.node_options import Config, Every, FleetOption, Groups, Identity, Names, Sites, User
from bedplate.cli.options import DEFAULT_FLEET, Json
from bedplate.cli.output import show, show_document

INTERRUPTED = 130


def apply(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; show what would change.")] = False,
    role: Annotated[list[str] | None, typer.Option("--role", metavar="R", help="This role alone; repeatable.")] = None,
    user: User = None,
    identity: Identity = None,
    ssh_config: Config = None,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Make machines what the plan says."""
    from bedplate.cli.node_choice import chosen, roles_chosen
    from bedplate.cli.node_progress import carried_out
    from bedplate.cli.node_ways import Asked, ways_to
    from bedplate.cli.opening import opened, planned
    from bedplate.lock import refuse_unrecorded
    from bedplate.nodes.order import Order
    from bedplate.nodes.outcome import exit_status
    from bedplate.report.apply import apply_document, apply_lines

    plan = planned(opened(fleet))
    machines = chosen(plan, names or (), group or (), site or (), every=every)
    only = roles_chosen(role or (), machines)
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ways_to(Path(folder), plan, machines, Asked(user, identity, ssh_config))
        if not check:
            refuse_unrecorded(plan, fleet)
        order = Order(ways.targets, _me(), check=check, only=only)
        done = carried_out(order, ways.missing)
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=check))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=check)


def _me() -> str:
    """Return who applies, as others are told who find a machine taken."""
    import os
    import socket

    from bedplate.hold import login_name

    return f"{login_name()} on {socket.gethostname()}, process {os.getpid()}"
