"""The way of a packet, as lines and as a document."""

from collections.abc import Iterator

from bedplate.plan.intent import Flow, Spot
from bedplate.reach import Trace, Trip

Ends = tuple[Spot, Spot]


def reach_lines(ends: Ends, flow: Flow, trip: Trip) -> Iterator[str]:
    """Yield who asks whom for what, the hops, where it arrived or ended and why, and what became of the answer."""
    asked = flow.protocol if flow.protocol == "icmp" else f"{flow.protocol}/{flow.port}"
    yield f"{' to '.join(map(_place, ends))} {asked}"
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


def _place(spot: Spot) -> str:
    return spot.name if spot.name == str(spot.address) else f"{spot.name} {spot.address}"


def _trace_lines(trace: Trace) -> Iterator[str]:
    width = max((len(hop.at) for hop in trace.hops), default=0)
    for hop in trace.hops:
        yield f"  {hop.at:<{width}}  {hop.by}"
    yield f"  arrives: {trace.end}" if trace.delivered else f"  ends: {trace.end}"


def _trace_document(trace: Trace) -> dict[str, object]:
    hops = [{"at": hop.at, "by": hop.by} for hop in trace.hops]
    return {"hops": hops, "delivered": trace.delivered, "end": trace.end}
