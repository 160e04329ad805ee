"""Every pair of places of a fleet of ten regions, walked there and back, given the graph that its stacks make.

The floor is the number of walks times what one plain lookup of each packet's two addresses in a list of the fleet's
subnets takes. The target is 2 s for all pairs; what it takes to rehearse the fleet first is told, and not counted.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import permutations
from time import process_time
from typing import Any

from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan
from bedplate.plan.intent import INTERNET, SSH, Spot, spots
from bedplate.reach import Fabric, Packet, read_fabric, trip
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.rehearse import create
from bedplate.rehearsal.report import Phase
from benchmarks.fleet import plan_of

REGIONS, MOST_SECONDS = 10, 2.0
Pairs = Sequence[tuple[Spot, Spot]]


def resources_of(plan: FleetPlan) -> list[dict[str, Any]]:
    """Return what the stacks of a fleet hold, once they are made in the simulated AWS."""
    report = create(plan.account, waves(plan))
    made = (stack.runs[Phase.CREATE].snapshot.entries.values() for stack in report.stacks)
    return [node for entries in made for node in graph(entries)]


def walk_all(fabric: Fabric, pairs: Pairs) -> int:
    """Walk a connection between each two places; return how many come about."""
    packets = (Packet(int(one.address), int(two.address), SSH.protocol, SSH.port) for one, two in pairs)
    return sum(trip(fabric, packet).answered for packet in packets)


def look_up_all(fabric: Fabric, pairs: Pairs) -> int:
    """Find the subnets of each two places, and nothing else; return how many there are."""
    return sum(subnet is not None for pair in pairs for subnet in _subnets(fabric, pair))


def _subnets(fabric: Fabric, pair: tuple[Spot, Spot]) -> Iterator[object]:
    for spot in pair:
        address = int(spot.address)
        yield next((each for each in fabric.subnets if each.block.first <= address <= each.block.last), None)


def main() -> int:
    """Print the figures; return 1 where the target is missed."""
    plan = plan_of(REGIONS)
    started = process_time()
    resources = resources_of(plan)
    made = process_time()
    fabric = read_fabric(resources)
    read = process_time()
    pairs = tuple(permutations((*spots(plan), INTERNET), 2))
    reached = walk_all(fabric, pairs)
    walked = process_time()
    look_up_all(fabric, pairs)
    floor = process_time() - walked
    seconds = walked - made
    print(f"rehearsed once: {len(resources):,} resources in {made - started:.1f} s")
    print(f"read: {read - made:.2f} s; {len(pairs):,} pairs, {reached:,} reached: {walked - read:.2f} s")
    print(f"together {seconds:.2f} s, {seconds / floor:.1f} x the floor of {floor:.2f} s")
    return 0 if seconds < MOST_SECONDS else 1


sys.exit(main())
