"""`bedplate plan`: every address, machine and pool, what differs from the lock, and the picture of it all."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, show, show_document, tell
from bedplate.errors import BedplateError, InputError, PartError, ViolationError

if TYPE_CHECKING:
    from bedplate.checks.diagnostics import Fault
    from bedplate.plan import FleetPlan
    from bedplate.plan.quotas import Granted, Need


RELEASE_EXAMPLE = "`bedplate plan --write --release region/eu-west-1`"


def plan(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[bool, typer.Option("--write", help="Record the plan in fleet.lock.")] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="With --write: give back a block, as region/eu-west-1 with its tunnels."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the fleet into this file as well.")
    ] = None,
    json: Json = False,
) -> int:
    """Show addresses, machines, pools; record them."""
    if release and not write:
        raise InputError("--release changes the lock, so it needs --write", fix=f"add --write: {RELEASE_EXAMPLE}")
    if svg is not None and svg.resolve() == fleet.resolve():
        raise InputError(
            "--svg names the fleet file itself", where=str(svg), fix="name another file: `--svg fleet.svg`"
        )
    decided = _record(fleet, tuple(release or ()), json=json) if write else _preview(fleet, json=json)
    if svg is not None:
        _draw(decided, svg)
    return 0


def _preview(path: Path, *, json: bool) -> "FleetPlan":
    from bedplate.cli.fleet import opened, planned
    from bedplate.report.plan import difference_lines

    decided = planned(opened(path))
    _print(decided, difference_lines(decided), json=json)
    return decided


def _record(path: Path, release: tuple[str, ...], *, json: bool) -> "FleetPlan":
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, placing
    from bedplate.lock import lock_path, record_plan
    from bedplate.report.plan import recorded_lines

    loaded = opened(path)
    with placing(loaded):
        done = record_plan(lock_path(path), loaded.fleet, load_catalog(), release_of=release)
    _print(done.plan, recorded_lines(done.plan, done.released), json=json)
    return done.plan


def _draw(decided: "FleetPlan", file: Path) -> None:
    from bedplate.picture import picture
    from bedplate.writer import write_whole

    write_whole(file, picture(decided).encode())
    tell([f"drawn in {file}"])


def _print(decided: "FleetPlan", end: Iterable[str], *, json: bool) -> None:
    """Print the plan and how it stands to the lock; for a program the latter goes to stderr."""
    from bedplate.catalog import load_catalog
    from bedplate.plan import bill, plan_document
    from bedplate.report.cost import price_lines
    from bedplate.report.plan import plan_lines, unheard_lines, unpinned_lines

    if json:
        show_document(plan_document(decided))
        tell(end)
        return
    show(plan_lines(decided))
    advice = (*unheard_lines(decided), *unpinned_lines(decided, load_catalog()))
    show(("", *price_lines(bill(decided, load_catalog())), *advice, *end))


def cost(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the list price by group, rung and region."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan import bill
    from bedplate.report.cost import cost_document, cost_lines

    plan = planned(opened(fleet))
    costs = bill(plan, load_catalog())
    if json:
        show_document(cost_document(plan, costs))
    else:
        show(cost_lines(plan, costs))
    return 0


UNASKED = "no AWS credentials here, so nobody could ask what the account was granted"


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the quotas that the fleet needs, and has."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.quotas import needs
    from bedplate.report.cost import quota_document, quota_lines, short

    plan = planned(opened(fleet))
    wanted = needs(plan, load_catalog())
    granted, status = _granted(plan, wanted)
    if json:
        show_document(quota_document(wanted, granted))
    else:
        show(quota_lines(wanted, granted))
    return ViolationError.exit_code if short(wanted, granted) else status


def _granted(plan: "FleetPlan", wanted: "tuple[Need, ...]") -> "tuple[Granted, int]":
    """Return what the account has, and 6 where it could not be asked whole; the table is worth having without it."""
    from bedplate.account.client import NoCredentials, check_account, failure_lines, open_door
    from bedplate.account.facts import granted

    try:
        door = open_door()
        check_account(door, plan.account, plan.home.name)
    except InputError:
        raise
    except NoCredentials:
        tell([UNASKED])
        return {}, 0
    except BedplateError as error:
        _tell_unanswered([error.what], error)
        return {}, PartError.exit_code
    answers = granted(door, wanted)
    if answers.failures:
        _tell_unanswered(failure_lines(answers.failures), next(iter(answers.failures.values())))
    values = {key: value for each in answers.given.values() for key, value in each.items()}
    return values, PartError.exit_code if answers.failures else 0


def _tell_unanswered(lines: "Iterable[str]", error: BedplateError) -> None:
    fixes = (f"  fix  {error.fix}",) if error.fix else ()
    tell((*(f"not known what was granted: {line}" for line in lines), *fixes))


After = Annotated[Path, typer.Argument(metavar="FLEET2", help="The fleet file as it is to become.", show_default=False)]


def diff(fleet2: After, fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show what an edit does to a live fleet."""
    from bedplate.cli.fleet import opened
    from bedplate.report.updates import diff_document, diff_lines
    from bedplate.update.edit import consequences
    from bedplate.update.policies import Effect

    told = consequences(opened(fleet).fleet, opened(fleet2).fleet)
    if json:
        show_document(diff_document(told))
    else:
        show(diff_lines(told))
    is_hard = any(one.effect.weight >= Effect.REPLACES.weight for one in told)
    return ViolationError.exit_code if is_hard else 0


def schema() -> int:
    """Print the fleet file's JSON Schema, for editors."""
    from bedplate.spec.schema import fleet_schema

    show_document(fleet_schema())
    return 0


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
    from bedplate.checks.diagnostics import Level
    from bedplate.report.diagnostics import fault_document, verdict_lines

    faults, facts = _found(path)
    if json:
        show_document(fault_document(faults))
    else:
        show(verdict_lines(str(path), faults, facts))
    return InputError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


def _found(path: Path) -> tuple[tuple["Fault", ...], str]:
    """Return the faults of the file, those that only its lock shows included, and what was looked at."""
    from bedplate.catalog import load_catalog
    from bedplate.checks.catalogue import RULES
    from bedplate.cli.fleet import planned
    from bedplate.load import FleetFaults, load_fleet
    from bedplate.lock import LockRefused
    from bedplate.report.plan import summary

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
    from bedplate.catalog.nearest import nearest
    from bedplate.graph.audit.rules import CATALOGUE
    from bedplate.report.diagnostics import rule_lines, rules_lines

    if code == ALL_RULES:
        show(rules_lines(CATALOGUE))
        return 0
    if code not in CATALOGUE:
        near = nearest(code, CATALOGUE)
        hint = f"the nearest is {near}; " if near else ""
        raise InputError(f"there is no rule {code}", fix=f"{hint}`bedplate check --explain all` lists them")
    show(rule_lines(CATALOGUE[code]))
    return 0
