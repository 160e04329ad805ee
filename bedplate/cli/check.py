"""`bedplate check`: what is wrong with a fleet file, and what each rule means."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.checks.fault import Fault

ALL_RULES = "all"


def check(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    json: Json = False,
    explain: Annotated[
        str, typer.Option(metavar="CODE", help="Say what a rule means instead; `all` lists the rules.")
    ] = "",
) -> int:
    """Validate the fleet file; print every fault."""
    return _explain(explain) if explain else _examine(fleet, json=json)


def _examine(path: Path, *, json: bool) -> int:
    from bedplate.checks.fault import Level
    from bedplate.report.faults import fault_document, verdict_lines

    faults, facts = _found(path)
    if json:
        show_document(fault_document(faults))
    else:
        show(verdict_lines(str(path), faults, facts))
    return InputError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


def _found(path: Path) -> tuple[tuple["Fault", ...], str]:
    """Return the faults of the file, those that only its lock shows included, and what was looked at."""
    from bedplate.catalog import load_catalog
    from bedplate.checks.rules import RULES
    from bedplate.cli.opening import planned
    from bedplate.load import FleetFaults, load_fleet
    from bedplate.lock import LockRefused
    from bedplate.report.fleet import summary

    try:
        loaded = load_fleet(path, load_catalog())
    except FleetFaults as refused:
        return refused.faults, ""
    facts = f"{summary(loaded.fleet)}; {loaded.rules} of {len(RULES)} rules apply"
    try:
        planned(loaded)
    except FleetFaults as refused:
        return (*loaded.faults, *refused.faults), facts
    except LockRefused as refused:
        return (*loaded.faults, refused.fault), facts
    return loaded.faults, facts


def _explain(code: str) -> int:
    from bedplate.audit.rules import CATALOGUE
    from bedplate.catalog.nearest import nearest
    from bedplate.report.rules import rule_lines, rules_lines

    if code == ALL_RULES:
        show(rules_lines(CATALOGUE))
        return 0
    if code not in CATALOGUE:
        near = nearest(code, CATALOGUE)
        hint = f"the nearest is {near}; " if near else ""
        raise InputError(f"there is no rule {code}", fix=f"{hint}`bedplate check --explain all` lists them")
    show(rule_lines(CATALOGUE[code]))
    return 0
