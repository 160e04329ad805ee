"""`bedplate node audit`: whether machines are what the fleet file says, rule by rule."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, Json
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.nodes.audit import Audit
    from bedplate.nodes.verdict import Findings
    from bedplate.plan import FleetPlan

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Machines; all that always stand.")]
Fleet = Annotated[Path, typer.Option("--fleet", metavar="FLEET", help="The fleet file.")]
Local = Annotated[bool, typer.Option("--local", help="NAME is this machine: ask it without SSH.")]
Config = Annotated[Path | None, typer.Option("--ssh-config", metavar="FILE", help="OpenSSH's configuration.")]
Role = Annotated[str | None, typer.Option("--role", help="The rules of one role alone.")]
Whole = Annotated[bool, typer.Option("--all", help="Show the rules that are kept, too.")]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit file.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page.")]


def audit(  # noqa: PLR0913  one for each option
    names: Names = None,
    *,
    fleet: Fleet = DEFAULT_FLEET,
    local: Local = False,
    ssh_config: Config = None,
    role: Role = None,
    whole: Whole = False,
    json: Json = False,
    junit: Junit = None,
    html: Html = None,
) -> int:
    """Check that machines are what the file says."""
    from bedplate.cli.opening import opened, planned
    from bedplate.nodes.audit import Audit, audited
    from bedplate.report.compliance import compliance_document, compliance_lines

    plan = planned(opened(fleet))
    wanted = _wanted(plan, names or [])
    order = Audit(fleet, ssh_config, local, role)
    _check(order, wanted)
    findings = tuple(audited(order, wanted))
    _write(plan.name, findings, junit, html)
    if json:
        show_document(compliance_document(findings))
    else:
        show(compliance_lines(findings, whole=whole))
    return _status(findings)


def _wanted(plan: "FleetPlan", names: "Sequence[str]") -> tuple[str, ...]:
    """Return the machines that are asked for, each once. Raises InputError for one that the fleet does not have."""
    from bedplate.catalog import load_catalog
    from bedplate.plan.nodes import node_of, standing_nodes

    if not names:
        return tuple(node.name for node in standing_nodes(plan))
    return tuple(dict.fromkeys(node_of(plan, name, load_catalog()).name for name in names))


def _check(order: "Audit", wanted: "Sequence[str]") -> None:
    """Refuse what cannot be meant, before any machine is asked."""
    from bedplate.catalog.nearest import nearest
    from bedplate.nodes.audit import roles_checked

    if order.local and len(wanted) != 1:
        raise InputError("--local is about one machine", fix="name the machine that this one is")
    if order.ssh_config and not order.ssh_config.is_file():
        raise InputError("there is no such SSH configuration", where=str(order.ssh_config), fix="name a file")
    if order.role and order.role not in roles_checked():
        near = nearest(order.role, roles_checked())
        fix = f"write {near}" if near else f"write one of {', '.join(roles_checked())}"
        raise InputError(f"{order.role} is no role with rules", fix=fix)


def _write(fleet: str, findings: "Sequence[Findings]", junit: Path | None, html: Path | None) -> None:
    from bedplate.load.clock import today
    from bedplate.report.compliance_page import compliance_page
    from bedplate.report.junit import junit as junit_file
    from bedplate.writer import write_whole

    if junit:
        write_whole(junit, junit_file(findings))
    if html:
        write_whole(html, compliance_page(fleet, str(today()), findings).encode())


def _status(findings: "Sequence[Findings]") -> int:
    from bedplate.nodes.verdict import Outcome

    if any(each.of(Outcome.VIOLATED) for each in findings):
        return ViolationError.exit_code
    return PartError.exit_code if any(each.unreached for each in findings) else 0
