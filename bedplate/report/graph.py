"""Faults of what stacks hold, as an operator reads them and as a program does."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from bedplate.checks.diagnostics import Level
from bedplate.graph.audit.rules import STACK_RULES, StackFault
from bedplate.graph.reach import Trace, Trip
from bedplate.plan.document import Origin, unknown_origin
from bedplate.plan.reachability import Flow, Spot
from bedplate.report.columns import aligned, counted
from bedplate.report.diagnostics import INDENT, wrapped


def stack_fault_lines(faults: Iterable[StackFault], origin: Origin = unknown_origin) -> tuple[str, ...]:
    """Return what is wrong and what to do about it, fault by fault, each led by its stack, resource and rule."""
    told = tuple(faults)
    heads = aligned((*_place(fault), f"{fault.code} {STACK_RULES[fault.code].name}") for fault in told)
    return tuple(line for head, fault in zip(heads, told, strict=True) for line in (head, *_body(fault, origin)))


def audit_lines(where: str, faults: Iterable[StackFault], resources: int) -> Iterator[str]:
    """Yield every fault of a graph, and last how many there are in how many resources."""
    told = tuple(faults)
    looked_at = f"{counted(resources, 'resource')}, {counted(len(STACK_RULES), 'rule')}"
    yield from stack_fault_lines(told)
    if told:
        yield f"{stack_tally(told)} in {where} ({looked_at}); `bedplate check --explain {told[0].code}` says more"
    else:
        yield f"{where} is fine ({looked_at})"


def judgement_lines(faults: Iterable[StackFault], origin: Origin = unknown_origin) -> Iterator[str]:
    """Yield every fault of what a rehearsal made, or that there is none."""
    told = tuple(faults)
    if told:
        yield from ("", *stack_fault_lines(told, origin))
        yield f"{stack_tally(told)} in what the stacks hold; `bedplate check --explain {told[0].code}` says more"
    else:
        yield f"what the stacks hold keeps all {counted(len(STACK_RULES), 'rule')} (docs/checks.md)"


def stack_tally(faults: Iterable[StackFault]) -> str:
    """Return `2 errors, 1 warning`; empty when there is nothing to count."""
    levels = [fault.level for fault in faults]
    counts = ((levels.count(level), level) for level in Level)
    return ", ".join(counted(count, level.value) for count, level in counts if count)


def stack_fault_document(faults: Iterable[StackFault]) -> list[dict[str, str]]:
    """Return the faults as `audit-graph --json` prints them."""
    return [asdict(fault) | {"level": fault.level.value} for fault in faults]


def traced_fault_document(faults: Iterable[StackFault], origin: Origin) -> list[dict[str, str]]:
    """Return the faults as `rehearse --json` prints them: each with where the fleet file asks for what is wrong."""
    told = tuple(faults)
    return [one | {"from": _asker(fault, origin)} for one, fault in zip(stack_fault_document(told), told, strict=True)]


def _asker(fault: StackFault, origin: Origin) -> str:
    stack, _, name = _parts(fault.urn)
    return origin(stack, name)


def _parts(urn: str) -> tuple[str, str, str]:
    """Return the stack, the types and the name of a URN; a text of no known form is all stack."""
    stack, _, rest = urn.removeprefix("urn:pulumi:").partition("::")
    types, _, name = rest.partition("::")[2].rpartition("::")
    return stack, types, name


def _place(fault: StackFault) -> tuple[str, str]:
    """Return the stack and the resource that a URN names; a URN of no known form is told as it is."""
    stack, types, name = _parts(fault.urn)
    package, _, token = types.rpartition("$")[2].partition(":")
    module, _, kind = token.partition(":")
    subject = f"{package}:{module.partition('/')[0]}:{kind} {name} {fault.key}" if kind else f"{name} {fault.key}"
    return stack, subject.strip()


def _body(fault: StackFault, origin: Origin) -> Iterator[str]:
    yield from wrapped(fault.message)
    yield from wrapped(f"fix: {fault.fix}")
    place = _asker(fault, origin)
    if place:
        yield f"{INDENT}from {place}"


Ends = tuple[Spot, Spot]


def reach_lines(ends: Ends, flow: Flow, trip: Trip) -> Iterator[str]:
    """Yield who asks whom for what, the hops, where it arrived or ended and why, and what became of the answer."""
    asked = flow.protocol if flow.protocol == "icmp" else f"{flow.protocol}/{flow.port}"
    yield f"{' to '.join(map(_reach_place, ends))} {asked}"
    yield from _trace_lines(trip.out)
    if trip.back is not None:
        yield "the answer"
        yield from _trace_lines(trip.back)


def reach_document(ends: Ends, flow: Flow, there: Trip, back: Trip) -> dict[str, object]:
    """Return what was asked and both trips in the form of `reach --json`; `there` decides the exit status."""
    source, target = ({"name": spot.name, "address": str(spot.address)} for spot in ends)
    asked = {"from": source, "to": target, "protocol": flow.protocol, "port": flow.port or None}
    return {**asked, "there": trip_document(there), "back": trip_document(back)}


def trip_document(trip: Trip) -> dict[str, object]:
    """Return a trip in the form of `reach --json`."""
    back = None if trip.back is None else _trace_document(trip.back)
    return {"reached": trip.answered, "out": _trace_document(trip.out), "back": back}


def _reach_place(spot: Spot) -> str:
    return spot.name if spot.name == str(spot.address) else f"{spot.name} {spot.address}"


def _trace_lines(trace: Trace) -> Iterator[str]:
    width = max((len(hop.at) for hop in trace.hops), default=0)
    for hop in trace.hops:
        yield f"  {hop.at:<{width}}  {hop.by}"
    yield f"  arrives: {trace.end}" if trace.delivered else f"  ends: {trace.end}"


def _trace_document(trace: Trace) -> dict[str, object]:
    hops = [{"at": hop.at, "by": hop.by} for hop in trace.hops]
    return {"hops": hops, "delivered": trace.delivered, "end": trace.end}
