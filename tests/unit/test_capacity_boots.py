"""First boots that fail: what the planner sees of them, by pool and zone, and what it does about them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bedplate.capacity.boots import Boot, failed_boots, failing
from bedplate.capacity.observation import NOT_READY, Activity, Machine, Observation, SetDesired, SetZones, Terminate
from bedplate.capacity.planner import Memory, decide
from tests.unit.test_capacity_planner import EAST, NOW, WEST, _pods

ZONES = ("us-west-2a", "us-west-2b")
POOL = replace(WEST, zones=ZONES)


def _boots(count: int, zone: str | None = ZONES[0], seconds: float = 60.0, ago: float = 600.0) -> list[Boot]:
    return [Boot(NOW - ago + number, NOW - ago + number + seconds, zone) for number in range(count)]


def _nodes(count: int, zone: str, ago: float = 600.0) -> list[Machine]:
    return [Machine(f"i-{zone}-{number}", "west", zone, NOW - ago, f"node-{number}") for number in range(count)]


BOOTING = Machine("i-new", "west", ZONES[1], NOW - 700)


@pytest.mark.parametrize(
    ("boots", "machines", "failed", "zones"),
    [
        (_boots(2), [], 0, ()),
        (_boots(2) + _boots(2, ZONES[1]), [], 4, ()),
        (_boots(3), _nodes(3, ZONES[1]), 3, ZONES[:1]),
        (_boots(3), [BOOTING], 3, ZONES[:1]),
        (_boots(3), _nodes(1, ZONES[0], 300), 3, ZONES[:1]),
        (_boots(3), _nodes(9, ZONES[0], 300) + _nodes(9, ZONES[1], 300), 0, ()),
        (_boots(3), _nodes(9, ZONES[0], 900) + _nodes(9, ZONES[1], 300), 3, ZONES[:1]),
        (_boots(3, None), [], 3, ()),
        (_boots(1, seconds=400), [], 1, ()),
        (_boots(1, seconds=400), [BOOTING], 0, ()),
        (_boots(1, seconds=400), _nodes(1, ZONES[1], 500), 0, ()),
    ],
    ids=[
        "two are too few",
        "both zones",
        "one zone, the other works",
        "the other zone has no result yet",
        "a node among them: three of four",
        "three of twelve",
        "three in a row after nine nodes",
        "an unknown zone counts for all",
        "one slow boot without another result",
        "one slow boot while another machine boots",
        "one slow boot beside a node",
    ],
)
def test_boots_are_judged_by_zone_and_rate(
    boots: Sequence[Boot], machines: Sequence[Machine], failed: int, zones: tuple[str, ...]
) -> None:
    """Three in a row, or three and a third of all, fail a zone; the pool fails if no zone is left that works."""
    found, in_zones = failing(POOL, machines, boots)
    assert (len(found), in_zones) == (failed, zones)


def test_a_failed_boot_counts_for_an_hour_from_its_end() -> None:
    """Also if AWS reports it no longer; a machine that was late before AWS ended it is one boot."""
    launch = Activity("1", "west", NOW - 430, ok=False, code=NOT_READY, machine="i-1", ended=NOW)
    late = Machine("i-1", "west", ZONES[0], NOW - 1000)
    seen = failed_boots([launch], [late], {}, (), NOW)
    assert set(seen) == {"i-1"}
    assert set(failed_boots([], [], seen, (), NOW + 3600)) == {"i-1"}
    assert not failed_boots([], [], seen, (), NOW + 3601)


@pytest.mark.parametrize("relaunched", [[], [5.0]], ids=["no relaunch", "AWS has launched another"])
def test_a_boot_that_failed_after_minutes_is_seen(relaunched: Sequence[float]) -> None:
    """A launch that began 430 s ago and failed now opens the breaker, also if a later one boots."""
    launches = [
        Activity(f"{n}", "west", NOW - 430, ok=False, code=NOT_READY, machine=f"i-{n}", ended=NOW - 10)
        for n in range(30)
    ]
    launches += [Activity(f"r{ago}", "west", NOW - ago, ok=True, machine="i-r") for ago in relaunched]
    machines = tuple(Machine("i-r", "west", WEST.zones[0], NOW - ago) for ago in relaunched)
    pools = (replace(WEST, desired=1), EAST)
    decision, memory = decide(Observation(NOW, _pods(1), (), machines, pools, tuple(launches)), Memory())
    assert memory.breakers["west"].code == NOT_READY
    sizes = {action.pool: action.count for action in decision.actions if isinstance(action, SetDesired)}
    assert sizes["east"] == 1


def test_the_longest_boot_of_a_type_counts_in_each_region() -> None:
    """A machine of the second region is late as soon as one of the first would be."""
    west, east = (replace(pool, type="p5.48xlarge", desired=1) for pool in (WEST, EAST))
    slow = Machine("i-1", "east", EAST.zones[0], NOW - 700)
    memory = Memory(boots={"west": 420.0})
    _, memory = decide(Observation(NOW, _pods(1), machines=(slow,), pools=(west, east)), memory)
    assert set(memory.unready["east"]) == {"i-1"}


def test_a_machine_that_the_planner_ended_is_no_failed_boot() -> None:
    """AWS reports its launch as failed; three such launches close no rung."""
    launches = [
        Activity(f"{n}", "west", NOW - 100, ok=False, code=NOT_READY, machine=f"i-{n}", ended=NOW - 10)
        for n in range(3)
    ]
    memory = Memory(ended={launch.machine or "": NOW - 20 for launch in launches})
    _, memory = decide(Observation(NOW, pools=(WEST, EAST), activities=tuple(launches)), memory)
    assert not memory.breakers
    assert len(memory.ended) == len(launches)


def test_ended_machines_are_remembered() -> None:
    """A late machine that is ended counts once: as late."""
    late = Machine("i-1", "west", WEST.zones[0], NOW - 1000)
    pools = (replace(WEST, desired=1), EAST)
    _, memory = decide(Observation(NOW, machines=(late,), pools=pools), Memory())
    assert memory.ended == {"i-1": NOW}
    assert set(memory.unready["west"]) == {"i-1"}


def _zonal(failed: int, boots: Sequence[str], nodes: int = 0, **pool: object) -> Observation:
    """Return failed launches in the first zone, machines that boot in some zones, and nodes in the second."""
    gates = [
        Activity(
            f"{n}", "west", NOW - 600 + n, ok=False, zone=ZONES[0], code=NOT_READY, machine=f"i-{n}", ended=NOW - n
        )
        for n in range(failed)
    ]
    booting = [Machine(f"i-boots-{n}", "west", zone, NOW - 90) for n, zone in enumerate(boots)]
    machines = (*_nodes(nodes, ZONES[1]), *booting)
    west = replace(POOL, desired=len(machines), max=9, **pool)  # type: ignore[arg-type]
    return Observation(NOW, _pods(len(boots)), (), machines, (west, EAST), tuple(gates))


def test_a_bad_zone_leaves_its_pool_while_the_pool_goes_on() -> None:
    """Its booting machines end when the zone is out; AWS replaces them in the others, so no pod goes elsewhere."""
    first, memory = decide(_zonal(3, ZONES, nodes=2), Memory())
    reason = "machines in us-west-2a do not become nodes"
    assert first.actions == (SetZones("west", ZONES[1:], reason),)
    assert all(waiting.is_coming for waiting in first.waiting)
    assert not memory.breakers

    second, _ = decide(_zonal(3, ZONES, nodes=2, zones=ZONES[1:], out=ZONES[:1]), memory)
    assert second.actions == (Terminate("i-boots-0", decrement=False, reason=reason),)
    assert all(waiting.is_coming for waiting in second.waiting)


def test_a_zone_comes_back_when_its_failures_are_old() -> None:
    """An hour after the last one, AWS may launch there again."""
    observation = replace(_zonal(0, (), nodes=2, zones=ZONES[1:], out=ZONES[:1]), time=NOW + 3601)
    boots = {"west": {str(n): boot for n, boot in enumerate(_boots(3))}}
    for time, zones in ((NOW + 2900, []), (NOW + 3601, [ZONES])):
        decision, _ = decide(replace(observation, time=time), Memory(unready=boots))
        assert [action.zones for action in decision.actions if isinstance(action, SetZones)] == zones


def test_the_probe_of_a_pool_goes_where_no_boot_has_failed() -> None:
    """Without a machine elsewhere the image may be bad: pods spill, and one machine probes the other zone at once."""
    decision, memory = decide(_zonal(3, ZONES[:1]), Memory())
    assert SetZones("west", ZONES[1:], "machines in us-west-2a do not become nodes") in decision.actions
    assert Terminate("i-boots-0", decrement=False, reason="its pods go to another rung") in decision.actions
    assert [action.pool for action in decision.actions if isinstance(action, SetDesired)] == ["east"]
    assert memory.breakers["west"].probe == NOW


def test_a_zone_that_cannot_leave_its_pool_opens_the_breaker() -> None:
    """Somebody forbids the change, or takes it back: three more failures there, and pods use the next rung."""
    boots = [*_boots(3, ago=1800), *_boots(3, ago=900)]
    memory = Memory(unready={"west": {str(number): boot for number, boot in enumerate(boots)}})
    decision, memory = decide(_zonal(0, ZONES[:1], nodes=1), memory)
    assert memory.breakers["west"].cause == "6 machines in us-west-2a did not become nodes"
    assert any(isinstance(action, SetDesired) and action.pool == "east" for action in decision.actions)


def test_a_silent_or_paused_pool_keeps_its_zones() -> None:
    """Nothing is changed there, also not a zone that was left."""
    for changes in ({"silent": True}, {"silent": True, "zones": ZONES[1:], "out": ZONES[:1]}):
        decision, _ = decide(_zonal(3, ZONES, nodes=2, **changes), Memory())
        assert not [action for action in decision.actions if isinstance(action, SetZones)]
