"""`bedplate node list`: the machines of the plan, and, where the account is asked, those that run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.node_choice import FleetOption, Identity
from bedplate.cli.output import DEFAULT_FLEET, Json, show, show_document, tell
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.nodes.ssh import Login
    from bedplate.plan import FleetPlan
    from bedplate.plan.nodes import NodePlan


def list_nodes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS which machines of groups run now.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    from bedplate.cli.fleet import opened, planned

    plan = planned(opened(fleet))
    return _live(plan, json=json) if live else _planned(plan, json=json)


def _planned(plan: "FleetPlan", *, json: bool) -> int:
    from bedplate.catalog import load_catalog
    from bedplate.plan.nodes import pool_nodes, standing_nodes
    from bedplate.report.nodes import node_document, node_lines

    standing, pooled = standing_nodes(plan), tuple(pool_nodes(plan, load_catalog()))
    known = plan.record.host_keys
    if json:
        show_document(node_document([*((node, True) for node in standing), *((node, False) for node in pooled)], known))
    else:
        show(node_lines(standing, pooled, known))
    return 0


def _live(plan: "FleetPlan", *, json: bool) -> int:
    from bedplate.account.client import check_account, failure_lines, open_door
    from bedplate.account.machines import machines
    from bedplate.cli.output import tell
    from bedplate.errors import PartError
    from bedplate.report.nodes import machine_document, machine_lines

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    answers = machines(door, plan)
    found = tuple(machine for each in answers.given.values() for machine in each)
    if json:
        show_document(machine_document(found, plan.record.host_keys))
    else:
        show(machine_lines(found, plan.record.host_keys))
    tell(f"not known: {line}" for line in failure_lines(answers.failures))
    return PartError.exit_code if answers.failures else 0


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
    from bedplate.cli.fleet import opened, planned
    from bedplate.nodes.choice import named

    plan = planned(opened(fleet))
    if name is None or group:
        return _of_groups(fleet, plan, name, group or [], replace_known=replace)
    (node,) = named(plan, [name], load_catalog())
    if told is None:
        return _of_one(fleet, plan, node, address, replace_known=replace)
    return _compared(fleet, plan, node, told, address, replace_known=replace)


def _of_one(fleet: Path, plan: "FleetPlan", node: "NodePlan", address: str | None, *, replace_known: bool) -> int:
    from bedplate.cli.node_host_keys import one_trusted

    if address:
        raise InputError("--address needs a fingerprint", fix="name the fingerprint, or leave --address out")
    return one_trusted(fleet, plan, node, replace_known=replace_known)


def _of_groups(fleet: Path, plan: "FleetPlan", name: str | None, groups: list[str], *, replace_known: bool) -> int:
    from bedplate.cli.node_host_keys import group_trusted

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
    from bedplate.nodes.host_keys import fingerprint_of, offered_keys, vouched

    wanted = fingerprint_of(told)
    offered = offered_keys(address or str(node.address or node.full_name))
    key = vouched(node.name, offered, (wanted,), _READ_ANEW)
    record_host_keys(lock_path(fleet), plan.name, node.name, (key,), replace_known=replace_known)
    show([f"recorded in fleet.lock: {node.name} is known by {wanted}"])
    return 0


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
    from bedplate.cli.fleet import opened, planned
    from bedplate.cli.node_choice import refuse_missing
    from bedplate.nodes.host_keys import known_hosts
    from bedplate.nodes.ssh import Reached
    from bedplate.nodes.ssh import ssh_config as text
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
    from bedplate.nodes.ssh import Login, visitor

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
    from bedplate.nodes.ssh import MARK
    from bedplate.writer import told_plainly

    if not file.is_file():
        return
    with told_plainly(file, "read"):
        theirs = file.read_bytes()
    if theirs and not theirs.startswith(MARK.encode()):
        fix = "write it to a file of its own, such as ~/.ssh/bedplate, and Include that"
        raise InputError(f"{file} is not ours to write over", fix=fix)


def bootstrap(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a site, as titan-01.cellar.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print the first-boot script of a machine."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, planned
    from bedplate.nodes.choice import bootstrap as script
    from bedplate.nodes.choice import named

    (node,) = named(planned(opened(fleet)), [name], load_catalog())
    show(script(node).splitlines())
    return 0
