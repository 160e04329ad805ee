"""The commands that read the fleet file and the lock, and nothing else: check, plan, cost, diff, schema."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.checks.catalogue import RULES
from bedplate.checks.examples import OFFERS_OF_OTHER_ACCOUNT
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import InputError, ViolationError, nearest
from bedplate.load import FleetFaults, in_order, load_fleet
from bedplate.lock import InvalidLock, lock_path, record_plan
from bedplate.operate.fleet import open_fleet, plan_loaded, plan_of, replanned
from bedplate.plan import FleetPlan, bill, plan_document
from bedplate.plan.stacks import Step, stack_order
from bedplate.report.cost import cost_document, cost_lines, price_lines
from bedplate.report.diagnostics import ALL_RULES, fault_document, fault_lines, rule_lines, rules_lines, verdict_lines
from bedplate.report.plan import (
    difference_lines,
    foreign_zone_lines,
    missing_image_lines,
    plan_lines,
    recorded_lines,
    summary,
)
from bedplate.report.updates import (
    diff_document,
    diff_lines,
    order_document,
    order_lines,
    removed_zone_lines,
    removed_zones,
)
from bedplate.rules import Fault, Level
from bedplate.spec.fleet import fleet_schema
from bedplate.update import Effect, consequences


def plan(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[bool, typer.Option("--write", help="Record the plan in fleet.lock.")] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="With --write: free a recorded block, such as region/eu-west-1; repeatable."),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the fleet as SVG.")] = None,
    json: Json = False,
) -> int:
    """Show addresses, machines and pools."""
    if release and not write:
        command = " ".join(("bedplate plan --write", *(f"--release {path}" for path in release)))
        raise InputError("--release changes fleet.lock and requires --write", fix=f"run `{command}`")
    if svg is not None and svg.resolve() == fleet.resolve():
        raise InputError(
            "--svg would overwrite the fleet file", where=str(svg), fix="name another file: `--svg fleet.svg`"
        )
    if write:
        fleet_plan = _record_plan(fleet, tuple(release or ()), json=json)
    else:
        fleet_plan = plan_of(Terminal(fleet), brief=False)
        _print_plan(fleet_plan, difference_lines(fleet_plan), json=json)
    if svg is not None:
        _draw(fleet_plan, svg)
    return 0


def _record_plan(path: Path, release: tuple[str, ...], *, json: bool) -> FleetPlan:
    loaded = open_fleet(Terminal(path), brief=False)
    with loaded.locating_plan_faults():
        recorded = record_plan(lock_path(path), loaded.fleet, load_catalog(), release_of=release)
    lines = (*recorded_lines(recorded.plan, recorded.released),)
    if any(fault.code == OFFERS_OF_OTHER_ACCOUNT.code for fault in loaded.faults):
        lines = (*foreign_zone_lines(recorded.plan, load_catalog()), *lines)
    _print_plan(recorded.plan, lines, json=json)
    return recorded.plan


def _draw(fleet_plan: FleetPlan, file: Path) -> None:
    # Most runs draw nothing.
    from bedplate.files import write_whole
    from bedplate.picture import picture

    write_whole(file, picture(fleet_plan).encode())
    notify([f"wrote {file}"])


def _print_plan(fleet_plan: FleetPlan, lock_lines: Iterable[str], *, json: bool) -> None:
    """Print the plan, then how it differs from the lock. With --json the latter goes to stderr."""
    if json:
        show_document(plan_document(fleet_plan))
        notify(lock_lines)
        return
    show(plan_lines(fleet_plan))
    advice = missing_image_lines(fleet_plan, load_catalog())
    show(("", *price_lines(bill(fleet_plan, load_catalog())), *advice, *lock_lines))


def cost(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the hourly list price.

    By group, rung and region, at the minimum and the maximum number of machines.
    """
    fleet_plan = plan_of(Terminal(fleet), brief=False)
    costs = bill(fleet_plan, load_catalog())
    if json:
        show_document(cost_document(fleet_plan, costs))
    else:
        show(cost_lines(fleet_plan, costs))
    return 0


Files = Annotated[list[Path], typer.Argument(metavar="[OLD] NEW", help="Fleet files before and after the edit.")]
_OLD_HELP = "The fleet file before the edit, as OLD.  [default: fleet.yaml]"


def diff(
    files: Files,
    *,
    fleet: Annotated[Path | None, typer.Option("--fleet", metavar="OLD", help=_OLD_HELP)] = None,
    json: Json = False,
) -> int:
    """Show the effects of an edit.

    On a fleet that is deployed. The exit status is 2 if `check` would reject the new file, 3 if the edit replaces or
    removes something, or is refused.
    """
    *named, new = (*filter(None, [fleet]), *files)
    if len(named) > 1:
        raise InputError("more than two fleet files", fix="write `bedplate diff OLD NEW`")
    (old,) = named or [DEFAULT_FLEET]
    before, after = open_fleet(Terminal(old)), open_fleet(Terminal(new))
    edits = consequences(before.fleet, after.fleet)
    fleet_plan = plan_loaded(before)
    order: tuple[Step, ...] = ()
    try:
        later_plan = replanned(after, fleet_plan)
        if edits and all(edit.effect is not Effect.REFUSED for edit in edits):
            order = stack_order(fleet_plan, later_plan)
    except FleetFaults as refused:
        if not any(edit.effect is Effect.REFUSED for edit in edits):
            raise
        notify(fault_lines(refused.faults))
    zones = removed_zones(fleet_plan, after.fleet)
    if json:
        document = diff_document(edits) | {"removed_zones": [asdict(zone) for zone in zones]}
        show_document(document | order_document(fleet_plan, order))
    else:
        lines = (*diff_lines(edits), *removed_zone_lines(fleet_plan, zones), *order_lines(fleet_plan, order))
        show((f"from {old} to {new}", "", *lines))
    is_destructive = any(edit.effect.weight >= Effect.REPLACES.weight for edit in edits)
    return ViolationError.exit_code if is_destructive else 0


def schema() -> int:
    """Print the fleet file's JSON Schema.

    An editor completes and checks the file by it.
    """
    show_document(fleet_schema())
    return 0


ALL = "all"


def check(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    json: Json = False,
    explain: Annotated[
        str, typer.Option(metavar="CODE", help="Explain a rule instead, such as E301; `all` lists the rules.")
    ] = "",
) -> int:
    """Check the fleet file; print every error."""
    if explain:
        _explain(explain)
        return 0
    faults, facts = _find_faults(fleet)
    if json:
        show_document(fault_document(faults))
    else:
        show(verdict_lines(str(fleet), faults, facts))
    return InputError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


def _find_faults(path: Path) -> tuple[tuple[Fault, ...], str]:
    """Return the faults of the file, including those against its lock, and a summary of what was checked."""
    try:
        loaded = load_fleet(path, load_catalog())
    except FleetFaults as refused:
        return refused.faults, ""
    facts = f"{summary(loaded.fleet)}; {loaded.rules} of {len(RULES)} rules apply"
    try:
        plan_loaded(loaded)
    except FleetFaults as refused:
        return in_order((*loaded.faults, *refused.faults)), facts
    except InvalidLock as refused:
        return (*loaded.faults, refused.fault), facts
    return loaded.faults, facts


def _explain(code: str) -> None:
    if code == ALL:
        show(rules_lines(ALL_RULES))
        return
    if code not in ALL_RULES:
        names = {rule.name: rule.code for rule in ALL_RULES.values()}
        same = [other for other in ALL_RULES if other[1:] == code[1:]]
        closest = names.get(code) or next(iter(same), None) or nearest(code, ALL_RULES)
        hint = f"write {closest}; " if closest else ""
        raise InputError(f"no rule with code {code}", fix=f"{hint}`bedplate check --explain all` lists all rules")
    show(rule_lines(ALL_RULES[code]))
