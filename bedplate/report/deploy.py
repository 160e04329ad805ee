"""The table of a deployment: stack, phase, operations, current resource, time; errors, next steps; and drift."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from bedplate.catalog.tables import HOURS_OF_MONTH
from bedplate.deploy.progress import STOPPED, Difference, Progress, Status, resource_name
from bedplate.deploy.state import Resource
from bedplate.plan.cost import Granted, QuotaNeed
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan, next_start, next_stop
from bedplate.plan.stacks import parts
from bedplate.report.columns import aligned, counted
from bedplate.report.compliance import xml_file, xml_text

_CHANGES = ("create", "import", "update", "replace", "delete")
_LISTED = ("replace", "delete")
# Of what is replaced or deleted, these types are shown by name, in this order; of the others the number.
_NAMED = ("Group", "NatGateway", "TransitGateway", "VpnConnection", "Eip", "Vpc", "Zone", "FileSystem", "Bucket", "Key")
LOG_WIDTH = 200
"""The width of progress in a log."""
DESTRUCTIVE = rf"\b\d+ ({'|'.join(_LISTED)})\b|^  ({'|'.join(_LISTED)}) .*|\bends \d+ .*|\bmay end .*"
"""The parts of lines that are red on a terminal, as a regular expression."""
_NAME, _STATE, _COUNT, _TIME = 24, 16, 12, 8


def progress_lines(states: Sequence[Progress], width: int) -> Iterator[str]:
    """Yield one line for each stack, at most as wide as the terminal."""
    for state in states:
        line = (
            f"{state.stack:<{_NAME}} {_state(state):<{_STATE}} {_count(state):>{_COUNT}} "
            f"{_seconds(state):>{_TIME}}  {state.current}"
        )
        yield line[:width].rstrip()


def _state(state: Progress) -> str:
    if STOPPED in state.causes:
        return f"{state.operation} stopped"
    return str(state.operation) if state.status is Status.RUNNING else f"{state.operation} {state.status}"


def _count(state: Progress) -> str:
    if state.status is Status.WAITING:
        return f"{state.total}" if state.total else ""
    done = len(state.steps)
    return f"{done}/{state.total}" if state.total > done else f"{done}"


def _seconds(state: Progress) -> str:
    return f"{state.seconds:.1f} s" if state.seconds else ""


def change_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield the planned changes of each stack; the most important of the replaced and deleted resources by name."""
    for state in states:
        counts = ", ".join(f"{state.changes[kind]} {kind}" for kind in _CHANGES if kind in state.changes)
        later = "previewed after the stacks that it reads" if state.status is Status.LATER else ""
        yield f"{state.stack:<{_NAME}} {later or counts or 'no change'}"
        yield from _folded((kind, resource_name(urn)) for urn, kind in state.steps.items() if kind in _LISTED)


def detail_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield every change of a preview, with the properties that it changes; secrets are hidden."""
    for state in states:
        for urn, kind in state.steps.items():
            yield f"{state.stack}: {kind} {resource_name(urn)}"
            changes = (change for change in state.differences if change.urn == urn and change.key)
            yield from (f"    {change.key}: {_cell(change.recorded)} -> {_cell(change.real)}" for change in changes)


def first_lines(plan: FleetPlan) -> Iterator[str]:
    """Yield what a first deployment creates: stacks, machines, and the address range of each region."""
    fixed = sum(pool.place in plan.regions_by_name for pool in plan.laptops)
    fixed += len(plan.control_plane.members) if plan.control_plane else 0
    fixed += bool(plan.hub and plan.hub.region)
    groups = {pool.group: pool.group_spec.nodes for pool in plan.pools}.values()
    least, most = fixed + sum(pool.min for pool in plan.pools), fixed + sum(nodes.max for nodes in groups)
    machines = counted(most, "machine") if least == most else f"{least} to {counted(most, 'machine')}"
    yield f"first deployment: {counted(len(parts(plan)), 'stack')}, {machines}; `bedplate rehearse` lists the resources"
    yield from (f"  {region.name}  {region.block}" for region in plan.regions)


def early_lines(pools: Iterable[PoolPlan], now: datetime) -> Iterator[str]:
    """Yield a line for each pool outside its hours: AWS starts the minimum of a group when the group is made."""
    for pool in pools:
        start, stop = next_start(pool, now), next_stop(pool, now)
        if pool.min and start and stop:
            end, begin = (f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC" for time in (stop, start))
            machines = counted(pool.min, "machine")
            yield f"{pool.name}: starts {machines} at once, outside its hours, until {end}; they begin at {begin}"


def _folded(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the changes of the types to name, and the number of the others."""
    by_type = [(name.partition(" ")[0].rpartition(":")[2], kind, name) for kind, name in rows]
    named = [row for token in _NAMED for row in by_type if row[0] == token]
    yield from (f"  {kind:<8} {name}" for _, kind, name in named)
    if others := len(by_type) - len(named):
        yield f"  and {counted(others, 'other resource')}"


def removal_lines(stack: str, resources: Iterable[Resource]) -> Iterator[str]:
    """Yield the number of resources that a stack loses, the most important by name."""
    names = [resource_name(resource["urn"]) for resource in resources]
    yield f"{stack:<{_NAME}} {len(names)} delete"
    yield from _folded(("delete", name) for name in names)


def price_lines(before: float | None, after: float, *, is_first: bool = False) -> Iterator[str]:
    """Yield the list price of a month at the minimum of the groups, and its difference; prices are per hour."""
    price = f"list price at minimum: {after * HOURS_OF_MONTH:,.2f} USD/month"
    if is_first:
        yield price
    elif before is None:
        yield f"{price}; that of the last deployment is not recorded"
    else:
        yield f"{price}, {(after - before) * HOURS_OF_MONTH:+,.2f} to the last deployment"


def cause_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield the errors of each failed stack."""
    for state in states:
        for cause in (cause for cause in state.causes if cause is not STOPPED):
            first, *rest = cause.message.splitlines() or [""]
            place = f"{state.stack} {cause.resource}".rstrip()
            yield f"error: {place}: {first}"
            yield from (f"  {line.strip()}" for line in rest)


def results_document(states: Iterable[Progress]) -> dict[str, object]:
    """Return the result of each stack."""
    return {
        state.stack: {"state": _state(state), "changes": dict(state.changes), "errors": [*cause_lines([state])]}
        for state in states
    }


def kept_lines(
    kept: Mapping[str, Sequence[Resource]], price: float, gib: int | None, rates: Mapping[str, float]
) -> Iterator[str]:
    """Yield the protected resources that each stack kept, and the list price of these, of their data and of images."""
    for stack, resources in kept.items():
        counts = Counter(resource["type"].rpartition(":")[2] for resource in resources if resource.get("protect"))
        names = (counted(counts[kind], noun) for kind, noun in _DATA.items() if counts[kind])
        yield f"{stack:<{_NAME}} kept {counted(len(resources), 'resource')}: {', '.join(names)}"
    month = {name: rate * HOURS_OF_MONTH for name, rate in rates.items()}
    if kept:
        data = f"{month['bucket-gib']:.3f} per GiB in buckets, {month['file-gib']:.2f} per GiB in file systems"
        yield f"kept resources cost {price * HOURS_OF_MONTH:,.2f} USD/month, and their data {data}"
    if gib is None:
        yield "images are kept too; their price is unknown, as a region does not answer"
    elif gib:
        # A snapshot stores the used blocks of a volume.
        yield f"kept images cost at most {gib * month['snapshot-gib']:,.2f} USD/month, for {gib:,} GiB"


# The protected types that hold data; the others are settings of these.
_DATA = {"Key": "key", "Bucket": "bucket", "FileSystem": "file system", "Volume": "volume"}


_CONSOLE = "https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas/{code}"


def quota_warning_lines(needs: Iterable[QuotaNeed], granted: Granted) -> Iterator[str]:
    """Yield a warning for each granted quota that is smaller than the maximum, with the page that requests more."""
    for need in needs:
        quota = granted.get((need.region, need.quota.code), need.most)
        if quota < need.most:
            what = f"{need.most:,} at maximum" if need.least <= quota else f"{need.least:,} at minimum"
            yield f"warning: {need.region}: quota of {need.quota.name} is {quota:,.0f}; the fleet needs {what}"
            page = _CONSOLE.format(region=need.region, service=need.quota.service, code=need.quota.code)
            yield f"  fix  request {need.most:,}: {page}"


_LONGEST = 40


def drift_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield a row for each property that differs, and the number of differences."""
    rows = [
        (state.stack, resource_name(drift.urn), drift.key or "-", _cell(drift.recorded), _real(drift))
        for state in states
        for drift in state.differences
    ]
    if rows:
        yield from aligned([("stack", "resource", "key", "recorded value", "real value"), *rows])
    yield counted(len(rows), "difference") if rows else "no drift"


def _real(drift: Difference) -> str:
    if drift.key and drift.real == drift.recorded:
        return "missing, or not shown"  # such as a tag that AWS does not return
    return _cell(drift.real) if drift.key else "deleted" if drift.real is None else "changed"


def _cell(value: object) -> str:
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def drift_document(states: Iterable[Progress]) -> dict[str, Any]:
    """Return the document of `refresh --check --json`."""
    return {
        "stacks": {
            state.stack: {
                "checked": state.status is Status.DONE,
                "differences": [
                    {"urn": drift.urn, "resource": resource_name(drift.urn), **asdict(drift)}
                    for drift in state.differences
                ],
            }
            for state in states
        }
    }


def drift_junit(states: Iterable[Progress]) -> bytes:
    """Return the JUnit XML: a case for each stack. Drift is a failure, a check that failed is an error."""
    root = Element("testsuites", name="bedplate refresh --check")
    for state in states:
        is_drifted, is_checked = bool(state.differences), state.status is Status.DONE
        counts = {"tests": "1", "failures": str(int(is_drifted)), "errors": str(int(not is_checked)), "skipped": "0"}
        suite = SubElement(root, "testsuite", {"name": state.stack, **counts})
        case = SubElement(suite, "testcase", classname=state.stack, name="drift", time=f"{state.seconds:.3f}")
        if is_drifted:
            *rows, total = drift_lines([state])
            SubElement(case, "failure", message=total).text = xml_text("\n".join(rows))
        if not is_checked:
            SubElement(case, "error", message=xml_text("; ".join(cause.message for cause in state.causes)))
    return xml_file(root)
