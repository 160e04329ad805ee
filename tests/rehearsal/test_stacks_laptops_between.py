"""Laptops of two regions: whether they reach each other is the file's to say, and what the stacks hold agrees."""

from itertools import permutations

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import Record, plan_fleet
from bedplate.plan.intent import SSH, Kind, reaches, spots
from bedplate.reach import Packet, read_fabric, trip
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, run
from tests.support.sketch import ZONES, laptops, sketch


@pytest.mark.parametrize("between", [True, False], ids=["between", "apart"])
def test_laptops_of_two_regions_reach_each_other_where_the_file_asks_for_it(*, between: bool) -> None:
    """Their gateways' groups take what comes over transit gateways, of laptops alone; unasked they do not."""
    regions = {name: zones[:1] for name, zones in tuple(ZONES.items())[:2]}
    vpn = laptops(*({"region": name} for name in regions), between=between)
    plan = plan_fleet(sketch(regions, network={"interconnect": "transit"}, vpn=vpn), Record({}), load_catalog())
    with running(plan.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
    fabric = read_fabric(graph(entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()))
    ends = {spot.name: spot for spot in spots(plan) if spot.kind in (Kind.LAPTOPS, Kind.NODES)}
    pairs = [pair for pair in permutations(ends.values(), 2) if pair[1].kind is Kind.LAPTOPS]

    for source, target in pairs:
        packet = Packet(int(source.address), int(target.address), SSH.protocol, SSH.port)
        assert trip(fabric, packet).answered is reaches(plan, source, target), (source.name, target.name)

    assert any(reaches(plan, *pair) for pair in pairs) is between
