"""The state of a fleet on one page. Its parts are asked at the same time; one that does not answer is unknown."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cryptography import x509

from bedplate.catalog.tables import HOURS_OF_MONTH
from bedplate.checks.lifetimes import NOTICE
from bedplate.deploy.engine import BY, Engine, open_engine
from bedplate.errors import BedplateError, PartialError, ViolationError, worst
from bedplate.operate import (
    Operator,
    Result,
    capacity,
    cluster_objects,
    gateways,
    plan_of,
)
from bedplate.operate.keys import public_part
from bedplate.plan import FleetPlan, bill
from bedplate.plan.nodes import NodeRole, permanent_nodes
from bedplate.plan.stacks import chosen_parts, stack_name
from bedplate.report.columns import aligned, counted
from bedplate.rounds import ask_each, ask_within
from bedplate.spec.text import PERMANENT
from vpn.status import keys_status


def status(operator: Operator, seconds: float, began: float) -> Result:
    """Return what is deployed and runs; the exit status is 3 if something is wrong, else 6 if a part is unknown."""
    engines: list[Engine] = []
    plan, reader = plan_of(operator), replace(operator, is_attended=False)
    asks: dict[str, Callable[[], Result]] = {
        "stacks": partial(_stacks, reader, plan, engines),
        "machines": partial(capacity.status, reader, None),
        "gateways": lambda: _in_brief(gateways.status(reader)),
        "cluster": partial(cluster_objects.status, reader, None, is_early=False),
        "dates": partial(dates_due, reader, plan, datetime.now(UTC)),
    }
    if not any(node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS} for node in permanent_nodes(plan)):
        del asks["gateways"]
    if plan.control_plane is None:
        del asks["cluster"]
    answers, errors = ask_within(asks, seconds, began)
    for engine in engines:
        # A process of Pulumi that waits for its backend would outlive this one.
        engine.command.interrupt()
    try:
        answers["cost"] = _cost(plan, answers.get("machines"), answers.get("stacks"))
    except BedplateError as error:
        errors["cost"] = error
    names = (*asks, "cost")
    codes = {part.status for part in answers.values()} | ({PartialError.exit_code} if errors else set())
    document = {name: answers[name].document if name in answers else {"unknown": errors[name].what} for name in names}
    lines = (line for name in names for line in _lines(name, answers.get(name), errors.get(name)))
    return Result(lines, {"fleet": plan.name, **document}, worst(codes))


def _lines(name: str, part: Result | None, error: BedplateError | None) -> Iterator[str]:
    yield name
    if error:
        yield f"  unknown: {error.what}"
        yield from (f"  fix  {error.fix}",) if error.fix else ()
    yield from (f"  {line}" for line in (*part.lines, *part.notes)) if part else ()


def _in_brief(result: Result) -> Result:
    """Return a result without the lines below its headings."""
    return replace(result, lines=tuple(line for line in result.lines if not line.startswith(" ") or "  fix  " in line))


CHANGED, NEVER = "last change", "not deployed"


def _stacks(operator: Operator, plan: FleetPlan, engines: list[Engine]) -> Result:
    """Return the last change of each stack and who made it, and its unfinished operations."""
    engine = open_engine(operator.fleet.absolute().parent)
    engines.append(engine)
    states = engine.states(plan.name)
    names = {part: stack_name(plan, part) for part in chosen_parts(plan, (), states)}
    changes, errors = ask_each((names[part] for part in states), engine.last_change, len(states))
    deployed = {part for part, state in states.items() if not state.is_empty}
    stacks: dict[str, dict[str, str]] = {}
    faults = []
    for part, stack in names.items():
        change = changes.get(stack, {})
        by = change.get("message", "")
        pending = len(states[part].pending) if part in states else 0
        stacks[stack] = {
            CHANGED: change.get("endTime", "unknown") if part in deployed else NEVER,
            "by": by.removeprefix(BY) if by.startswith(BY) else "-",
            "unfinished": str(pending),
        }
        if pending:
            faults.append(f"fault: {stack}: a killed run left {counted(pending, 'operation')}: run `bedplate recover`")
    table = aligned(
        [("stack", *next(iter(stacks.values()))), *((stack, *row.values()) for stack, row in stacks.items())]
    )
    lines = (*table, *faults, *(f"unknown: {stack}: {error.what}" for stack, error in errors.items()))
    code = ViolationError.exit_code if faults else PartialError.exit_code if errors else 0
    return Result(lines, stacks, code)


def _cost(plan: FleetPlan, machines: Result | None, stacks: Result | None) -> Result:
    """Return the list price of a month of what runs now. Raises PartialError if that is unknown."""
    if machines is None or stacks is None:
        raise PartialError("the machines or the stacks are unknown")
    state: Any = machines.document
    deployed: Any = stacks.document
    prices = bill(plan, plan.catalog)
    running = sum(rung["usd_per_hour"] for rung in state["rungs"]) * HOURS_OF_MONTH
    lines_of_deployed = (line for line in prices.lines if deployed[stack_name(plan, line.region)][CHANGED] != NEVER)
    fixed = sum(line.usd for line in lines_of_deployed) * HOURS_OF_MONTH
    budget = plan.budget.monthly if plan.budget else None
    lines = [f"{running:,.2f} USD/month at list price for machines of groups, {fixed:,.2f} for all else"]
    lines += [f"unknown price: {', '.join(prices.unknown)}; counted as 0"] if prices.unknown else []
    lines += [f"budget: {budget:,} USD/month" if budget else "no budget"]
    is_over = budget is not None and running + fixed > budget
    lines += ["fault: what runs costs more than the budget"] if is_over else []
    document = {"machines": running, "all_else": fixed, "budget": budget, "unknown": list(prices.unknown)}
    return Result(lines, document, ViolationError.exit_code if is_over else 0)


def dates_due(operator: Operator, plan: FleetPlan, now: datetime) -> Result:
    """Return what ends within two months, the soonest first, and the next end after that."""
    ends = sorted((day, what) for what, day in _ends(operator, plan, now))
    due = sum(day < now + NOTICE for day, _ in ends)
    rows = [
        (f"{day:%Y-%m-%d}", what, "over" if day < now else f"in {counted((day - now).days, 'day')}")
        for day, what in ends[: due + 1]
    ]
    document = [{"end": day.isoformat(), "of": what} for day, what in ends]
    return Result(
        aligned(rows) or ("nothing",), document, ViolationError.exit_code if any(day < now for day, _ in ends) else 0
    )


def _ends(operator: Operator, plan: FleetPlan, now: datetime) -> Iterator[tuple[str, datetime]]:
    days = {f"group {pool.group}": pool.group_spec.expires for pool in plan.pools}
    if plan.control_plane:
        keys = plan.catalog.keys.values()
        days |= {f"key of the package repository {key.name}": str(key.ends or PERMANENT) for key in keys}
    for what, day in days.items():
        if day and day != PERMANENT:
            # Until the end of the last day.
            yield what, datetime.fromisoformat(f"{day}T23:59:59+00:00")
    for pool in plan.pools:
        if block := pool.rung_spec.ends:
            yield f"capacity block of {pool.name}", datetime.fromisoformat(block)
    if plan.record.authority:
        authority = x509.load_pem_x509_certificate(plan.record.authority.encode())
        yield "authority of the cluster", authority.not_valid_after_utc
    if pki := public_part(plan.name, operator.fleet):
        state = keys_status(pki, plan.accounts.uids, now)
        yield "authority of the VPN", state.authority
        yield from (("revocation list of the VPN", state.until),) if state.until else ()
        yield from ((f"certificate of {holder.name}", holder.until) for holder in state.holders)
