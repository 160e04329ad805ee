"""`bedplate node trust`: take a machine's host key into the lock, once somebody has compared its fingerprint."""

from typing import Annotated

import typer

from bedplate.cli.node_options import FleetOption
from bedplate.cli.options import DEFAULT_FLEET
from bedplate.cli.output import show
from bedplate.errors import ViolationError


def trust(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine, as titan-01.cellar.")],
    told: Annotated[str, typer.Argument(metavar="SHA256:...", help="The fingerprint read at its console.")],
    *,
    replace: Annotated[bool, typer.Option("--replace", help="It was made anew: its former key goes.")] = False,
    address: Annotated[str | None, typer.Option(metavar="A", help="Where it is, if not where the plan says.")] = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Record a machine's host key."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.lock import lock_path, record_host_keys
    from bedplate.nodes.choice import named
    from bedplate.nodes.host_key import fingerprint, fingerprint_of
    from bedplate.nodes.scan import offered_keys

    wanted = fingerprint_of(told)
    plan = planned(opened(fleet))
    (node,) = named(plan, [name], load_catalog())
    offered = {fingerprint(key): key for key in offered_keys(address or str(node.address or node.full_name))}
    if wanted not in offered:
        fix = "read it anew at the console; if it stays so, somebody else answers in the machine's place"
        raise ViolationError(f"{node.name} does not offer that key, but {', '.join(offered)}", fix=fix)
    record_host_keys(lock_path(fleet), plan.name, node.name, (offered[wanted],), replace_known=replace)
    show([f"recorded in fleet.lock: {node.name} is known by {wanted}"])
    return 0
