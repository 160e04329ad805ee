"""`bedplate node apply`: configure machines over SSH, or see what that would change."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.node_choice import Config, Every, FleetOption, Groups, Identity, Names, Sites, User
from bedplate.cli.output import DEFAULT_FLEET, Json, show, show_document
from bedplate.errors import InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.cli.node_choice import Asked
    from bedplate.nodes.audit import Findings
    from bedplate.nodes.ssh import Reached
    from bedplate.plan import FleetPlan


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
    from bedplate.cli.fleet import opened, planned
    from bedplate.cli.node_choice import Asked, chosen, roles_chosen, ways_to
    from bedplate.cli.progress import carried_out
    from bedplate.lock import refuse_unrecorded
    from bedplate.nodes.apply import Order, exit_status
    from bedplate.report.nodes import apply_document, apply_lines

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


Local = Annotated[bool, typer.Option("--local", help="NAME is this machine: ask it without SSH.")]
Roles = Annotated[
    list[str] | None, typer.Option("--role", metavar="R", help="The rules of this role alone; repeatable.")
]
Whole = Annotated[bool, typer.Option("--verbose", help="Show the rules that are kept, too.")]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit file.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page.")]


def audit(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    local: Local = False,
    role: Roles = None,
    user: User = None,
    identity: Identity = None,
    ssh_config: Config = None,
    fleet: FleetOption = DEFAULT_FLEET,
    verbose: Whole = False,
    json: Json = False,
    junit: Junit = None,
    html: Html = None,
) -> int:
    """Check that machines are what the plan says.

    Those that are named, or all that always stand.
    """
    from bedplate.cli.fleet import opened, planned
    from bedplate.cli.node_choice import Asked, chosen, roles_chosen
    from bedplate.report.compliance import compliance_document, compliance_lines

    plan = planned(opened(fleet))
    machines = chosen(plan, names or (), group or (), site or (), every=every or not (names or group or site))
    if local and len(machines) != 1:
        raise InputError("--local is about one machine", fix="name the machine that this one is")
    only = roles_chosen(role or (), machines)
    _check_files(junit, html)
    asked = None if local else Asked(user, identity, ssh_config)
    findings = _looked_at(_Look(fleet, plan, only), machines, asked)
    if json:
        show_document(compliance_document(findings))
    else:
        show(compliance_lines(findings, whole=verbose))
    _write(plan.name, findings, junit, html)
    return _status(findings)


@dataclass(frozen=True, slots=True)
class _Look:
    fleet: Path
    plan: "FleetPlan"
    only: frozenset[str] | None


def _looked_at(look: _Look, machines: "Sequence[Reached]", asked: "Asked | None") -> "tuple[Findings, ...]":
    """Return what is found on each machine, asked over SSH, or this one itself where nobody says how."""
    from bedplate.cli.node_choice import ways_to
    from bedplate.cli.progress import looked_at
    from bedplate.nodes.audit import Audit, Findings
    from bedplate.nodes.ssh import Login

    if asked is None:
        return looked_at(Audit(look.fleet, only=look.only), [each.node.name for each in machines])
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ways_to(Path(folder), look.plan, machines, asked)
        # What ways_to writes says already who logs in.
        login = Login(asked.user, asked.identity) if asked.config else Login()
        pools = {each.node.name: each.pool for each in machines if each.pool}
        order = Audit(look.fleet, asked.config or Path(folder) / "ssh_config", login, look.only, pools)
        found = {each.node: each for each in looked_at(order, [target.node.name for target in ways.targets])}
        lost = {each.node: Findings(each.node, unreached=f"{each.words}; {each.fix}") for each in ways.missing}
    return tuple({**found, **lost}[each.node.name] for each in machines)


def _check_files(*files: Path | None) -> None:
    """Refuse files that cannot be written, before any machine is asked."""
    from bedplate.writer import try_out

    for file in filter(None, files):
        if not file.absolute().parent.is_dir():
            raise InputError(f"{file} has no folder to lie in", fix=f"make {file.parent}, or write it elsewhere")
        if file.is_dir():
            raise InputError(f"{file} is a folder", fix=f"name a file, such as {file / 'audit'}")
    try_out(filter(None, files))


def _write(fleet: str, findings: "Sequence[Findings]", junit: Path | None, html: Path | None) -> None:
    from bedplate.load.source import today
    from bedplate.report.compliance import compliance_page
    from bedplate.report.compliance import junit as junit_file
    from bedplate.writer import write_together

    texts: dict[Path, bytes] = {}
    if junit:
        texts[junit] = junit_file(findings)
    if html:
        texts[html] = compliance_page(fleet, str(today()), findings).encode()
    write_together(texts)


def _status(findings: "Sequence[Findings]") -> int:
    from bedplate.nodes.audit import Outcome
    from bedplate.report.compliance import is_partial

    if any(each.of(Outcome.VIOLATED) for each in findings):
        return ViolationError.exit_code
    return PartError.exit_code if any(map(is_partial, findings)) else 0
