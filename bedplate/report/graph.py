"""Reports of faults in stack resources, and of packet traces."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from bedplate.graph.audit.document import StackFault
from bedplate.graph.audit.run import STACK_RULES
from bedplate.graph.reach import Trace, Trip
from bedplate.plan.reachability import Endpoint, Flow
from bedplate.plan.stacks import Origin, unknown_origin
from bedplate.report.columns import INDENT, aligned, counted, wrapped
from bedplate.report.diagnostics import tally


def stack_fault_lines(faults: Iterable[StackFault], origin: Origin = unknown_origin) -> tuple[str, ...]:
    """Return the faults: each with its stack, resource and rule on one line, then the message and the fix."""
    rows = tuple(faults)
    heads = aligned((*_place(fault), f"{fault.code} {STACK_RULES[fault.code].name}") for fault in rows)
    return tuple(line for head, fault in zip(heads, rows, strict=True) for line in (head, *_body(fault, origin)))


def audit_lines(where: str, faults: Iterable[StackFault], resources: int) -> Iterator[str]:
    """Yield the faults of a graph and a summary."""
    rows = tuple(faults)
    checked = f"{counted(resources, 'resource')}, {counted(len(STACK_RULES), 'rule')}"
    yield from stack_fault_lines(rows)
    if rows:
        found = tally(fault.level for fault in rows)
        yield f"{found} in {where} ({checked}); details: `bedplate check --explain {rows[0].code}`"
    else:
        yield f"no faults in {where} ({checked})"


def judgement_lines(faults: Iterable[StackFault], origin: Origin = unknown_origin) -> Iterator[str]:
    """Yield the faults of the rehearsed resources, or that there are none."""
    rows = tuple(faults)
    if rows:
        yield from ("", *stack_fault_lines(rows, origin))
        found = tally(fault.level for fault in rows)
        yield f"{found} in the resources; details: `bedplate check --explain {rows[0].code}`"
    else:
        yield f"the resources comply with all {counted(len(STACK_RULES), 'rule')} (docs/checks.md)"


def traced_fault_document(faults: Iterable[StackFault], origin: Origin) -> list[dict[str, str]]:
    """Return the faults for `rehearse --json`, each with its place in the fleet file."""
    return [asdict(fault) | {"from": _origin(fault, origin)} for fault in faults]


def _origin(fault: StackFault, origin: Origin) -> str:
    stack, _, name = _parts(fault.urn)
    return origin(stack, name)


def _parts(urn: str) -> tuple[str, str, str]:
    """Return the stack, the types and the name in a URN. An invalid URN counts as a stack."""
    stack, _, rest = urn.removeprefix("urn:pulumi:").partition("::")
    types, _, name = rest.partition("::")[2].rpartition("::")
    return stack, types, name


def _place(fault: StackFault) -> tuple[str, str]:
    """Return the stack and the resource of a fault."""
    stack, types, name = _parts(fault.urn)
    package, _, token = types.rpartition("$")[2].partition(":")
    module, _, kind = token.partition(":")
    subject = f"{package}:{module.partition('/')[0]}:{kind} {name} {fault.key}" if kind else f"{name} {fault.key}"
    return stack, subject.strip()


def _body(fault: StackFault, origin: Origin) -> Iterator[str]:
    yield from wrapped(fault.message)
    yield from wrapped(f"fix: {fault.fix}")
    place = _origin(fault, origin)
    if place:
        yield f"{INDENT}from {place}"


Ends = tuple[Endpoint, Endpoint]


def reach_lines(ends: Ends, flow: Flow, trip: Trip) -> Iterator[str]:
    """Yield source and target, the hops, where the packet arrives or why it is dropped, and the same for the reply."""
    service = flow.protocol if flow.protocol == "icmp" else f"{flow.protocol}/{flow.port}"
    yield f"{' to '.join(map(_endpoint, ends))} {service}"
    yield from _trace_lines(trip.out)
    if trip.back is not None:
        yield "reply"
        yield from _trace_lines(trip.back)


def reach_document(ends: Ends, flow: Flow, there: Trip, back: Trip) -> dict[str, object]:
    """Return the document of `reach --json`."""
    source, target = ({"name": spot.name, "address": str(spot.address)} for spot in ends)
    question = {"from": source, "to": target, "protocol": flow.protocol, "port": flow.port or None}
    directions = {"there": there, "back": back}
    return {**question, **{name: {"reached": trip.answered, **asdict(trip)} for name, trip in directions.items()}}


def _endpoint(spot: Endpoint) -> str:
    return spot.name if spot.name == str(spot.address) else f"{spot.name} {spot.address}"


def _trace_lines(trace: Trace) -> Iterator[str]:
    yield from aligned(((f"  {hop.at}", hop.by) for hop in trace.hops), gap=2)
    yield f"  arrives: {trace.end}" if trace.delivered else f"  dropped: {trace.end}"
