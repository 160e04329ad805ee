"""`bedplate node trust`: take a host key into the lock, once somebody has compared it, or AWS has told it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.node_options import FleetOption
from bedplate.cli.options import DEFAULT_FLEET
from bedplate.cli.output import show
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan
    from bedplate.plan.node import NodePlan

_READ_ANEW = "read it anew at the console; if it stays so, somebody else answers in the machine's place"
Told = Annotated[
    str | None, typer.Argument(metavar="SHA256:...", help="The fingerprint read at its console; else AWS is asked.")
]


def trust(  # noqa: PLR0913  each is an option of the command line
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A machine, as titan-01.cellar.")] = None,
    told: Told = None,
    *,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="G", help="All machines of a group, as AWS tells them.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="It was made anew: its former key goes.")] = False,
    address: Annotated[str | None, typer.Option(metavar="A", help="Where it is, if not where the plan says.")] = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Record a machine's host key."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.nodes.choice import named

    plan = planned(opened(fleet))
    if name is None or group:
        return _of_groups(fleet, plan, name, group or [], replace_known=replace)
    (node,) = named(plan, [name], load_catalog())
    if told is None:
        return _of_one(fleet, plan, node, address, replace_known=replace)
    return _compared(fleet, plan, node, told, address, replace_known=replace)


def _of_one(fleet: Path, plan: "FleetPlan", node: "NodePlan", address: str | None, *, replace_known: bool) -> int:
    from bedplate.cli.node_vouching import one_trusted

    if address:
        raise InputError("--address needs a fingerprint", fix="name the fingerprint, or leave --address out")
    return one_trusted(fleet, plan, node, replace_known=replace_known)


def _of_groups(fleet: Path, plan: "FleetPlan", name: str | None, groups: list[str], *, replace_known: bool) -> int:
    from bedplate.cli.node_vouching import group_trusted

    if not groups:
        raise InputError("no machine is named", fix="name a machine, or --group; see `bedplate node list`")
    if name:
        raise InputError(f"{name} and --group are two things", fix="give one or the other")
    return group_trusted(fleet, plan, groups, replace_known=replace_known)


def _compared(  # noqa: PLR0913  what an operator says of one machine
    fleet: Path, plan: "FleetPlan", node: "NodePlan", told: str, address: str | None, *, replace_known: bool
) -> int:
    """Take the key that somebody has read at the machine's console."""
    from bedplate.lock import lock_path, record_host_keys
    from bedplate.nodes.host_key import fingerprint_of
    from bedplate.nodes.scan import offered_keys
    from bedplate.nodes.vouched import vouched

    wanted = fingerprint_of(told)
    offered = offered_keys(address or str(node.address or node.full_name))
    key = vouched(node.name, offered, (wanted,), _READ_ANEW)
    record_host_keys(lock_path(fleet), plan.name, node.name, (key,), replace_known=replace_known)
    show([f"recorded in fleet.lock: {node.name} is known by {wanted}"])
    return 0
