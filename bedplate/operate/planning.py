"""What the fleet file and the lock say, and nothing else: faults, the plan and its price, the effects of an edit."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from bedplate.checks.catalogue import RULES
from bedplate.checks.examples import OFFERS_OF_OTHER_ACCOUNT
from bedplate.errors import InputError, ViolationError, nearest
from bedplate.files import write_whole
from bedplate.load import FleetFaults, in_order, load_fleet
from bedplate.load.catalog import InvalidCatalog
from bedplate.lock import InvalidLock, lock_path, record_plan
from bedplate.operate import Operator, Result, open_fleet, plan_loaded, plan_of
from bedplate.plan import FleetPlan, bill, plan_document
from bedplate.plan.stacks import Step, stack_order
from bedplate.report import updates
from bedplate.report.cost import cost_document, cost_lines, price_lines
from bedplate.report.diagnostics import fault_document, fault_lines, verdict_lines
from bedplate.report.plan import (
    difference_lines,
    foreign_zone_lines,
    missing_image_lines,
    plan_lines,
    recorded_lines,
    summary,
)
from bedplate.rules import Fault, Level
from bedplate.update import Effect, consequences

_ALL = "all"


def read_plan(operator: Operator, *, as_json: bool) -> tuple[FleetPlan, Result]:
    """Return the plan, and how it differs from the lock."""
    plan = plan_of(operator, with_warnings=True)
    return plan, _plan_result(plan, difference_lines(plan), as_json=as_json)


def write_plan(operator: Operator, release: Sequence[str], *, as_json: bool) -> tuple[FleetPlan, Result]:
    """Record the plan in the lock, which frees the blocks of `release`, and return it with what was recorded."""
    loaded = open_fleet(operator, with_warnings=True)
    with loaded.locating_plan_faults():
        recorded = record_plan(lock_path(operator.fleet), loaded.fleet, loaded.catalog, release_of=tuple(release))
    lines = (*recorded_lines(recorded.plan, recorded.released),)
    if any(fault.code == OFFERS_OF_OTHER_ACCOUNT.code for fault in loaded.faults):
        lines = (*foreign_zone_lines(recorded.plan, loaded.catalog), *lines)
    return recorded.plan, _plan_result(recorded.plan, lines, as_json=as_json)


def _plan_result(plan: FleetPlan, lock_lines: Iterable[str], *, as_json: bool) -> Result:
    """Return the plan with how it differs from the lock; the latter is a note beside JSON."""
    if as_json:
        return Result((), plan_document(plan), notes=lock_lines)
    advice = missing_image_lines(plan, plan.catalog)
    return Result((*plan_lines(plan), "", *price_lines(bill(plan, plan.catalog)), *advice, *lock_lines))


def draw(operator: Operator, plan: FleetPlan, file: Path) -> None:
    """Draw a plan as SVG."""
    # Most runs draw nothing.
    from bedplate.picture.page import picture

    write_whole(file, picture(plan).encode())
    operator.notify([f"wrote {file}"])


def price(operator: Operator) -> Result:
    """Return the hourly list price by group, rung and region."""
    plan = plan_of(operator, with_warnings=True)
    costs = bill(plan, plan.catalog)
    return Result(cost_lines(plan, costs), cost_document(plan, costs))


def compare(old: str, new: Operator, text: str | None = None) -> Result:
    """Return the effects of an edit on a deployed fleet; the exit status is 3 if it replaces or removes something.

    `text` is an earlier one of the file, which `old` then describes.
    """
    before = load_fleet(Path(old)) if text is None else load_fleet(new.fleet, text=text, name=old)
    after = open_fleet(new)
    edits = consequences(before.fleet, after.fleet)
    plan = plan_loaded(before)
    order: tuple[Step, ...] = ()
    try:
        later_plan = after.plan(plan.recorded())
        if edits and all(edit.effect is not Effect.REFUSED for edit in edits):
            order = stack_order(plan, later_plan)
    except FleetFaults as refused:
        if not any(edit.effect is Effect.REFUSED for edit in edits):
            raise
        new.notify(fault_lines(refused.faults))
    zones = updates.removed_zones(plan, after.fleet)
    document = updates.diff_document(edits) | {"removed_zones": [asdict(zone) for zone in zones]}
    lines = (*updates.diff_lines(edits), *updates.removed_zone_lines(plan, zones), *updates.order_lines(order))
    is_destructive = any(edit.effect.weight >= Effect.REPLACES.weight for edit in edits)
    return Result(
        (f"from {old} to {new.fleet}", "", *lines),
        document | updates.order_document(plan, order),
        ViolationError.exit_code if is_destructive else 0,
    )


def check(operator: Operator) -> Result:
    """Return the faults of the fleet file; the exit status is 2 if one is an error."""
    faults, facts = _find_faults(operator.fleet)
    status = InputError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0
    return Result(verdict_lines(str(operator.fleet), faults, facts), fault_document(faults), status)


def _find_faults(path: Path) -> tuple[tuple[Fault, ...], str]:
    """Return the faults of the file, including those against its lock, and a summary of what was checked."""
    try:
        loaded = load_fleet(path)
    except FleetFaults as refused:
        return refused.faults, ""
    except InvalidCatalog as refused:
        return (refused.fault,), ""
    facts = f"{summary(loaded.fleet)}; {loaded.rules} of {len(RULES)} rules apply"
    try:
        plan_loaded(loaded)
    except FleetFaults as refused:
        return in_order((*loaded.faults, *refused.faults)), facts
    except InvalidLock as refused:
        return (*loaded.faults, refused.fault), facts
    return loaded.faults, facts


def explain(code: str) -> Result:
    """Return the explanation of a rule, or with `all` the list of rules."""
    # Most runs need no rules of stacks.
    from bedplate.report.rules import ALL_RULES, rule_lines, rules_lines

    if code == _ALL:
        return Result(rules_lines(ALL_RULES))
    if code not in ALL_RULES:
        names = {rule.name: rule.code for rule in ALL_RULES.values()}
        same = [other for other in ALL_RULES if other[1:] == code[1:]]
        closest = names.get(code) or next(iter(same), None) or nearest(code, ALL_RULES)
        hint = f"write {closest}; " if closest else ""
        raise InputError(f"no rule with code {code}", fix=f"{hint}`bedplate check --explain all` lists all rules")
    return Result(rule_lines(ALL_RULES[code]))
