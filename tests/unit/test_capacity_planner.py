"""Decisions of the capacity planner: growth, spill, gangs, limits, and the end of machines."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.capacity.growth import TRUST
from bedplate.capacity.ladder import HOLD, LONGEST_HOLD, PATIENCE, SHORTAGE_HOLD, Doubt
from bedplate.capacity.observation import (
    NOT_READY,
    Action,
    Activity,
    Cordon,
    CordonNode,
    Decision,
    DrainNode,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    SetDesired,
    Settings,
    Size,
    Spread,
    Terminate,
    UncordonNode,
)
from bedplate.capacity.packing import HOSTNAME, ZONES
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.scenario import Job, Launchable, Scenario
from bedplate.capacity.simulator import Figures, simulate
from bedplate.spec.groups import Market

NOW, DAY = 1_000_000.0, 86_400.0
UNIT, GPU = Size(8, 96.0, 500.0), frozenset({"nvidia.com/gpu"})
WEST = Pool(
    "west",
    "train",
    0,
    "us-west-2",
    ("us-west-2a",),
    0,
    4,
    0,
    size=UNIT,
    price=50.0,
    labels={"group": "train"},
    taints=GPU,
)
EAST = replace(WEST, name="east", rung=1, region="us-east-1", zones=("us-east-1a",))
# Machines have become nodes in both pools before.
PROVEN = Memory(proven={"west": "", "east": ""})
POD = Pod("pod", NOW - 60, Size(8, 10.0, 50.0), {"group": "train"}, GPU)


def _pods(count: int, pod: Pod = POD) -> tuple[Pod, ...]:
    return tuple(replace(pod, id=f"{pod.id}-{number}") for number in range(count))


def _machine(name: str, pool: Pool = WEST, age: float = 3600.0, node: bool = True) -> Machine:  # noqa: FBT001, FBT002
    return Machine(name, pool.name, pool.zones[0], NOW - age, f"node-{name}" if node else None)


def _node(name: str, *pods: Pod, pool: Pool = WEST, idle: float | None = None, cordoned: Cordon | None = None) -> Node:
    """Return the node of a machine, with pods of 8 GPUs or less on it."""
    free = Size(
        8 - sum(p.size.gpus for p in pods), 96 - sum(p.size.cpus for p in pods), 500 - sum(p.size.memory for p in pods)
    )
    labels = {**pool.labels, "zone": pool.zones[0]}
    ids = tuple(pod.id for pod in pods)
    since = None if idle is None else NOW - idle
    return Node(f"node-{name}", name, labels, GPU, UNIT, free, ids, NOW - 3000, since, cordoned)


def _decide(observation: Observation, memory: Memory | None = None) -> Decision:
    return decide(observation, memory or Memory())[0]


def _sizes(actions: Sequence[Action]) -> dict[str, int]:
    return {action.pool: action.count for action in actions if isinstance(action, SetDesired)}


def _failed(pool: Pool, code: str | None, ago: float = 10) -> Activity:
    return Activity("", pool.name, NOW - ago, ok=False, code=code)


def _fleet(nodes: Sequence[Node], pods: Sequence[Pod] = (), **more: object) -> Observation:
    """Return nodes of the first pool with their machines."""
    machines = tuple(_machine(str(node.machine)) for node in nodes)
    pools = (replace(WEST, desired=len(nodes), max=100), EAST)
    return replace(Observation(NOW, tuple(pods), tuple(nodes), machines, pools), **more)  # type: ignore[arg-type]


def test_pending_pods_fill_the_ladder_in_order() -> None:
    """The second rung gets what the maximum of the first leaves; the same observation gives the same decision."""
    observation = Observation(NOW, pods=_pods(6), pools=(WEST, EAST))
    decision = _decide(observation)
    assert _sizes(decision.actions) == {"west": 4, "east": 2}
    assert all(waiting.is_coming for waiting in decision.waiting)
    assert _decide(observation) == decision


def test_reservations_come_first() -> None:
    """A reservation is used before the rungs above it: it is paid for."""
    reserved = replace(EAST, market=Market.RESERVATION)
    assert _sizes(_decide(Observation(NOW, pods=_pods(1), pools=(WEST, reserved))).actions) == {"east": 1}


def test_machines_on_their_way_serve_pending_pods() -> None:
    """Neither booting machines nor those that AWS has not launched yet are asked for again."""
    booting = _machine("i-1", age=100, node=False)
    pools = (replace(WEST, desired=2), EAST)
    assert _decide(Observation(NOW, pods=_pods(2), machines=(booting,), pools=pools)).actions == ()


def test_a_shortage_is_probed_every_ten_minutes() -> None:
    """A refused launch costs nothing, and capacity can be back at any time."""
    memory, now = Memory(), NOW
    for _ in range(6):
        failure = Activity("", "west", now, ok=False, code="InsufficientInstanceCapacity")
        _, memory = decide(Observation(now, pools=(WEST, EAST), activities=(failure,)), memory)
        breaker = memory.breakers["west"]
        assert breaker.until - now <= SHORTAGE_HOLD
        now = breaker.until
        _, memory = decide(Observation(now, pods=_pods(1), pools=(WEST, EAST)), memory)
        now += 30


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"])
def test_a_typed_failure_spills_at_once(code: str) -> None:
    """The failed rung is lowered, so that AWS cannot launch there later, and the next one raised, in this order."""
    pools = (replace(WEST, desired=2), EAST)
    decision = _decide(Observation(NOW, pods=_pods(2), pools=pools, activities=(_failed(WEST, code),)))
    first, second = decision.actions
    assert (first.pool, first.count, second.pool, second.count) == ("west", 0, "east", 2)  # type: ignore[union-attr]
    assert "west:" in second.reason


def test_defect_an_unknown_failure_does_not_clear_the_time_out() -> None:
    """An unknown text neither spills nor resets the wait; after five minutes the next rung is used."""
    pools, memory = (replace(WEST, desired=1), EAST), Memory()

    def sizes(time: float) -> dict[str, int]:
        nonlocal memory
        failure = Activity("", "west", time - 1, ok=False)
        observation = Observation(time, pods=_pods(1), pools=pools, activities=(failure,))
        decision, memory = decide(observation, memory)
        return _sizes(decision.actions)

    assert [sizes(NOW + seconds) for seconds in range(0, int(PATIENCE), 60)] == [{}] * 5
    assert sizes(NOW + PATIENCE) == {"west": 0, "east": 1}


def test_defect_back_off_has_a_ceiling() -> None:
    """Each failed probe doubles the wait, up to an hour; a probe is one machine, and no pod waits for it."""
    memory, now, holds = PROVEN, NOW, []
    pools = (WEST, EAST)
    for _ in range(8):
        failure = Activity("", "west", now, ok=False, code="VcpuLimitExceeded")
        _, memory = decide(Observation(now, pools=pools, activities=(failure,)), memory)
        holds.append(memory.breakers["west"].until - now)
        now = memory.breakers["west"].until
        decision, memory = decide(Observation(now, pods=_pods(3), pools=pools), memory)
        assert _sizes(decision.actions) == {"west": 1, "east": 3}
        now += 30
    assert holds[0] == HOLD
    assert holds[-1] == max(holds) == LONGEST_HOLD


def test_a_successful_probe_closes_the_breaker() -> None:
    """After a launch the rung gets all pods again."""
    pools = (WEST, EAST)
    _, memory = decide(Observation(NOW, pools=pools, activities=(_failed(WEST, "VcpuLimitExceeded"),)), Memory())
    probed = NOW + HOLD
    _, memory = decide(Observation(probed, pods=_pods(1), pools=pools), memory)
    launch = Activity("", "west", probed, ok=True)
    observation = Observation(probed + 30, pods=_pods(3), pools=pools, activities=(launch,))
    assert _sizes(_decide(observation, memory).actions) == {"west": 3}


def test_failed_first_boots_need_a_probe_that_becomes_a_node() -> None:
    """A launch alone does not prove that an image works."""
    pools = (WEST, EAST)
    failures = tuple(replace(_failed(WEST, NOT_READY, ago), id=str(ago)) for ago in (10, 20, 30))
    _, memory = decide(Observation(NOW, pools=pools, activities=failures), Memory())
    time = NOW + HOLD
    _, memory = decide(Observation(time, pods=_pods(1), pools=pools), memory)
    probe = Machine("i-1", "west", "us-west-2a", time)
    launched = Observation(time + 60, pods=_pods(2), machines=(probe,), pools=(replace(WEST, desired=1), EAST))
    assert _sizes(_decide(launched, memory).actions) == {"east": 1}, "one pod has a place on the probe"
    joined = replace(launched, machines=(replace(probe, node="node-i-1"),), nodes=(_node("i-1", POD),))
    assert _sizes(_decide(joined, memory).actions) == {"west": 3}


def test_a_rung_whose_machines_failed_three_times_in_an_hour_is_passed() -> None:
    """Also if they failed one after the other, each replaced by the next; then only a probe is launched there."""
    memory, pools = PROVEN, (replace(WEST, desired=1), EAST)
    for number in range(3):
        now = NOW + 90 * number
        launch = Activity(
            f"{number}", "west", now - 90, ok=False, code=NOT_READY, machine=f"i-{number}", ended=now - 10
        )
        decision, memory = decide(Observation(now, pods=_pods(1), pools=pools, activities=(launch,)), memory)
        assert _sizes(decision.actions).get("east", 0) == (number == 2)
    assert memory.breakers["west"].code == NOT_READY

    probed, _ = decide(Observation(now + HOLD, pods=_pods(4), pools=(WEST, EAST)), memory)
    assert _sizes(probed.actions) == {"west": 1, "east": 4}


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """A gang goes to the first rung that has room for all of it, in one zone; else it waits with a reason."""
    gang = _pods(6, replace(POD, gang="gang"))
    wide = replace(EAST, max=8)
    assert _sizes(_decide(Observation(NOW, pods=gang, pools=(WEST, wide)), PROVEN).actions) == {"east": 6}
    decision = _decide(Observation(NOW, pods=gang, pools=(WEST, EAST)))
    assert decision.actions == ()
    assert "no zone has room for all 6 pods" in decision.waiting[0].reason


def test_a_pod_that_fits_nothing_is_reported_once() -> None:
    """The reason names the closest pool and what it lacks."""
    observation = Observation(NOW, pods=(replace(POD, size=Size(16, 10.0, 50.0)),), pools=(WEST,))
    decision, memory = decide(observation, Memory())
    assert decision.unplaced[0].reason == "no pool fits; west is closest: it has 8 GPUs, not 16"
    assert decide(observation, memory)[0].unplaced == ()


def _apart(key: str) -> Pod:
    """Return a small pod that is apart from its equals."""
    return replace(POD, size=Size(1, 1.0, 1.0), spread=(Spread(key, "web"),), kinds=frozenset({"web"}))


@pytest.mark.parametrize(
    ("pod", "pool", "machines"),
    [
        (replace(POD, size=Size(1, 1.0, 1.0)), replace(WEST, size=replace(UNIT, pods=2)), 2),
        (replace(POD, size=Size(0, 1.0, 1.0, efa=1)), replace(WEST, size=replace(UNIT, efa=2)), 2),
        (replace(POD, size=Size(0, 1.0, 1.0, ephemeral=60.0)), replace(WEST, size=replace(UNIT, ephemeral=100.0)), 3),
        (_apart(HOSTNAME), WEST, 3),
        (_apart(ZONES[0]), WEST, 1),
    ],
    ids=["pods per node", "EFA", "ephemeral storage", "a node each", "a zone each"],
)
def test_every_resource_and_spread_counts(pod: Pod, pool: Pool, machines: int) -> None:
    """Three small pods need as many machines as their rules say; one zone takes one of those that need a zone each."""
    assert _sizes(_decide(Observation(NOW, pods=_pods(3, pod), pools=(pool,))).actions) == {"west": machines}


def test_pools_without_image_link_or_addresses_are_passed() -> None:
    """Pods wait with this reason if there is no other rung."""
    ineligible = replace(WEST, eligible=False)
    assert _sizes(_decide(Observation(NOW, pods=_pods(1), pools=(ineligible, EAST))).actions) == {"east": 1}
    assert "no image" in _decide(Observation(NOW, pods=_pods(1), pools=(ineligible,))).waiting[0].reason


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (Settings(max_cost={"train": 120.0}), {"west": 2}),
        (Settings(fleet_max_cost=60.0), {"west": 1}),
        (Settings(max={"train": 3}), {"west": 3}),
        (Settings(paused=frozenset({"train"})), {}),
    ],
    ids=["group ceiling", "fleet ceiling", "group maximum", "paused"],
)
def test_limits_of_groups_and_of_the_fleet(settings: Settings, sizes: dict[str, int]) -> None:
    """No limit is exceeded, and pods that it stops have it as their reason."""
    decision = _decide(Observation(NOW, pods=_pods(6), pools=(WEST, EAST), settings=settings))
    assert _sizes(decision.actions) == sizes
    assert all(waiting.reason for waiting in decision.waiting)


def test_a_ceiling_ends_no_machine() -> None:
    """Machines that run cost more than the ceiling: they stay, and none is added."""
    above = _fleet((_node("i-1", POD), _node("i-2", POD)), _pods(1), settings=Settings(max_cost={"train": 60.0}))
    assert _decide(above).actions == ()


def test_a_group_has_its_own_idle_time() -> None:
    """The time of the group replaces that of the settings."""
    pools = (replace(WEST, desired=1, idle=1200.0), EAST)
    assert _decide(_fleet((_node("i-1", idle=700),), pools=pools)).actions == ()
    assert _decide(_fleet((_node("i-1", idle=1200),), pools=pools)).actions == (
        CordonNode("node-i-1", "idle for 20 minutes"),
    )


def test_nothing_changes_in_a_paused_group() -> None:
    """Idle, late and own cordoned machines stay as they are, and pending pods have the pause as their reason."""
    nodes = (_node("i-1", idle=DAY), _node("i-2", idle=DAY, cordoned=Cordon.PLANNER))
    machines = (_machine("i-1"), _machine("i-2"), _machine("i-3", age=DAY, node=False))
    large = replace(POD, size=Size(8, 96.0, 500.0))
    paused = _fleet(nodes, _pods(3, large), machines=machines, settings=Settings(paused=frozenset({"train"})))
    decision = _decide(paused)
    assert decision.actions == ()
    assert [waiting.is_coming for waiting in decision.waiting] == [True, False, False]
    assert decision.waiting[-1].reason == "west: train is paused; east: train is paused"


def test_machines_are_bought_at_the_notice() -> None:
    """Pods of a machine that AWS interrupts count as pending; a pool that loses many machines is not used for them."""
    spot = replace(WEST, market=Market.SPOT, desired=2)
    machines = tuple(replace(_machine(name), notice=NOW + 120) for name in ("i-1", "i-2"))
    pods = tuple(replace(pod, node=f"node-i-{at}") for at, pod in enumerate(_pods(2), 1))
    nodes = (_node("i-1", pods[0]), _node("i-2", pods[1]))
    decision = _decide(Observation(NOW, pods, nodes, machines, (spot, EAST)))
    assert _sizes(decision.actions) == {"west": 0, "east": 2}


def test_a_reclaimed_pool_stays_at_its_minimum() -> None:
    """Of machines that AWS interrupts, none that the minimum needs is ended."""
    spot = replace(WEST, market=Market.SPOT, min=2, desired=4)
    machines = [replace(_machine(f"i-{number}"), notice=NOW + 120) for number in range(3)]
    nodes = tuple(_node(f"i-{number}", idle=60) for number in range(3))
    young = _machine("i-3", age=60, node=False)
    decision = _decide(Observation(NOW, (), nodes, (*machines, young), (spot,)))
    assert decision.actions == (SetDesired("west", 2, decision.actions[0].reason),)


def test_defect_idle_counts_from_the_last_pods_end() -> None:
    """Neither the age of a machine nor a change of day matters: an old node that was busy a minute ago stays."""
    busy_lately, idle = _node("i-1", idle=60), _node("i-2", idle=10 * DAY + 5)
    actions = _decide(_fleet((busy_lately, idle))).actions
    assert actions == (CordonNode("node-i-2", "idle for 14400 minutes"),)


def test_an_idle_node_is_cordoned_first_and_ended_if_it_stays_empty() -> None:
    """A pod that was bound meanwhile keeps its node; at the minimum of the pool the node becomes schedulable again."""
    cordoned = _node("i-1", idle=700, cordoned=Cordon.PLANNER)
    busy = _node("i-2", POD, cordoned=Cordon.PLANNER)
    actions = _decide(_fleet((cordoned, busy), [replace(POD, node="node-i-2")])).actions
    assert [(type(a), getattr(a, "machine", "")) for a in actions] == [(Terminate, "i-1")]
    at_minimum = (replace(WEST, min=1, desired=1), EAST)
    assert [type(a) for a in _decide(_fleet((cordoned,), pools=at_minimum)).actions] == [UncordonNode]


def test_defect_uncordoned_nodes_are_not_launched_again() -> None:
    """An own cordoned node serves a pending pod, and no machine is launched for the same pod."""
    actions = _decide(_fleet((_node("i-1", idle=700, cordoned=Cordon.PLANNER),), _pods(1))).actions
    assert [(type(action), getattr(action, "node", "")) for action in actions] == [(UncordonNode, "node-i-1")]


def test_defect_spares_are_not_added_in_each_loop() -> None:
    """The spare machines of a group are launched once, counted while they boot, and kept when they are idle."""
    settings = Settings(spare={"train": 2})
    assert _sizes(_decide(Observation(NOW, pools=(WEST, EAST), settings=settings)).actions) == {"west": 2}
    ordered = Observation(NOW, pools=(replace(WEST, desired=2), EAST), settings=settings)
    assert _decide(ordered).actions == ()
    nodes = [_node(f"i-{number}", idle=5000) for number in range(3)]
    assert len(_decide(_fleet(nodes, settings=settings)).actions) == 1


def test_defect_equal_tolerations_count() -> None:
    """A pod needs a toleration of every taint, whatever its operator was."""
    tainted = replace(WEST, taints=GPU | {"team"})
    tolerant = replace(POD, tolerations=GPU | {"team", "other"})
    assert _sizes(_decide(Observation(NOW, pods=(tolerant,), pools=(tainted, EAST))).actions) == {"west": 1}
    assert _sizes(_decide(Observation(NOW, pods=(POD,), pools=(tainted, EAST))).actions) == {"east": 1}


def test_defect_more_than_fifty_pools_and_several_labels() -> None:
    """All labels of a selector must match, in a ladder of any length."""
    pools = [replace(WEST, name=f"pool-{n}", labels={"group": "train", "kind": str(n)}) for n in range(120)]
    pod = replace(POD, selector={"group": "train", "kind": "117"})
    assert _sizes(_decide(Observation(NOW, pods=(pod,), pools=tuple(pools))).actions) == {"pool-117": 1}


def test_defect_a_node_that_a_person_cordoned_is_left_alone() -> None:
    """The planner neither ends such a node nor uncordons it; pending pods get another machine."""
    node = _node("i-1", idle=DAY, cordoned=Cordon.HUMAN)
    assert _decide(_fleet((node,))).actions == ()
    assert _sizes(_decide(_fleet((node,), _pods(1))).actions) == {"west": 2}


def test_defect_machines_that_never_joined_are_ended_within_the_cap() -> None:
    """Of many late machines a share goes at once, pending pods get others, and the rung is passed after three."""
    late = tuple(_machine(f"i-{number}", age=1000, node=False) for number in range(4))
    nodes = tuple(_node(f"n-{number}", POD, pool=EAST) for number in range(20))
    machines = late + tuple(_machine(f"n-{number}", EAST) for number in range(20))
    pools = (replace(WEST, desired=4), replace(EAST, max=50, desired=20))
    decision = _decide(Observation(NOW, _pods(4), nodes, machines, pools))
    assert sum(isinstance(action, Terminate) for action in decision.actions) == 2
    assert _sizes(decision.actions) == {"east": 24}


def test_defect_the_cap_removes_some_and_not_none() -> None:
    """Of 20 idle nodes two are removed at once, then the next two: a large idle fleet shrinks."""
    nodes = [_node(f"i-{number}", idle=5000) for number in range(20)]
    cordons = [action for action in _decide(_fleet(nodes)).actions if isinstance(action, CordonNode)]
    assert len(cordons) == 2


def test_work_returns_to_a_better_rung() -> None:
    """Pods that may move leave a worse rung for free nodes; those that may not keep their node."""
    pod = replace(POD, size=Size(2, 4.0, 8.0), movable=True, node="node-i-2", since=NOW - 7200)
    better = (replace(WEST, desired=1), replace(EAST, desired=1))
    machines = (_machine("i-1"), _machine("i-2", EAST))
    nodes = (_node("i-1", idle=60), _node("i-2", pod, pool=EAST))
    observation = Observation(NOW, (pod,), nodes, machines, better)
    assert [type(action) for action in _decide(observation).actions] == [DrainNode]
    fixed = replace(observation, pods=(replace(pod, movable=False),))
    assert _decide(fixed).actions == ()


def test_a_cheaper_rung_gets_a_machine_before_work_returns() -> None:
    """One machine is launched on the cheaper rung; nothing is drained before it is a node."""
    pod = replace(POD, movable=True, node="node-i-2", since=NOW - 7200)
    pools = (replace(WEST, price=10.0), replace(EAST, desired=1))
    observation = Observation(NOW, (pod,), (_node("i-2", pod, pool=EAST),), (_machine("i-2", EAST),), pools)
    assert _sizes(_decide(observation).actions) == {"west": 1}
    ordered = replace(observation, pools=(replace(pools[0], desired=1), pools[1]))
    assert _decide(ordered).actions == ()


def _simulated(*refused: Pod, hours: float) -> Figures:
    """Return the figures of pods that the scheduler refuses for a reason that the planner cannot see."""
    pools = (Launchable(WEST, 300.0), Launchable(EAST, 300.0))
    jobs = tuple(Job(pod, 3600.0, refused=True) for pod in refused)
    return simulate(Scenario("refused", "", hours * 3600, pools, jobs)).figures


def test_a_pod_that_the_scheduler_refuses_stops_to_hold_machines() -> None:
    """A pod for which a node has room, and which does not start there, has a machine for minutes, not for days."""
    figures = _simulated(replace(POD, arrival=60.0), hours=72)
    assert 0 < figures.launches <= 8
    assert figures.gpu_hours <= 8 * 3


@pytest.mark.nightly
@settings(max_examples=20, deadline=None)
@given(
    arrivals=st.lists(st.floats(0, 7200), min_size=1, max_size=6),
    gpus=st.integers(1, 8),
    is_gang=st.booleans(),
    is_east=st.booleans(),
)
def test_refused_pods_cost_a_bounded_time(arrivals: list[float], gpus: int, is_gang: bool, is_east: bool) -> None:  # noqa: FBT001
    """Whatever pods the scheduler refuses, each machine for them runs less than an hour, and the pauses double."""
    pods = [
        replace(
            POD,
            id=f"pod-{number}",
            arrival=arrival,
            size=Size(gpus, 10.0, 50.0),
            gang="gang" if is_gang else None,
            gang_size=len(arrivals) if is_gang else 0,
            selector={"group": "train"} if is_east else {},
        )
        for number, arrival in enumerate(arrivals)
    ]
    figures = _simulated(*pods, hours=24)
    assert figures.gpu_hours <= figures.launches * 8
    assert figures.launches <= 7 * len(pods)


def test_a_pod_in_doubt_has_the_message_of_the_scheduler() -> None:
    """A pod that does not start on a node with room is reported with the scheduler's own words, its gang with it."""
    pods = _pods(2, replace(POD, size=Size(4, 10.0, 50.0), gang="g", gang_size=2, message="0/1 nodes: hostPort"))
    memory = Memory(doubts={"g": Doubt(NOW - TRUST)})
    fleet = _fleet([_node("a", idle=100)], pods)
    decision, memory = decide(fleet, memory)
    assert not decision.unplaced
    decision, memory = decide(replace(fleet, time=NOW + 30), memory)
    assert [report.pod for report in decision.unplaced] == [pod.id for pod in pods]
    assert all("0/1 nodes: hostPort" in report.reason for report in decision.unplaced)
    assert decide(replace(fleet, time=NOW + 3700), memory)[0].waiting


def test_a_pod_that_starts_is_not_in_doubt() -> None:
    """A pod that finds its place within the time is forgotten."""
    waiting = _fleet([_node("a", idle=100)], [POD])
    _, memory = decide(waiting, Memory())
    assert memory.doubts == {"pod": Doubt(NOW)}
    running = replace(POD, node="node-a")
    assert decide(_fleet([_node("a", running)], [running]), memory)[1].doubts == {}


def test_a_pod_with_an_unknown_requirement_starts_no_machine() -> None:
    """What the planner cannot compare fits no pool: the pod is reported with the requirement."""
    decision = _decide(Observation(NOW, pods=(replace(POD, unsupported="asks for example.com/fpga"),), pools=(WEST,)))
    assert decision.actions == ()
    assert [report.reason for report in decision.unplaced] == ["asks for example.com/fpga"]


def _registered(count: int, lost: int) -> Observation:
    """Return old machines, of which the last `lost` have no Node object any more."""
    nodes = [_node(f"i-{number}", idle=5000) for number in range(count - lost)]
    fleet = _fleet(nodes)
    gone = tuple(_machine(f"i-{number}", node=False, age=36_000) for number in range(count - lost, count))
    present = tuple(replace(machine, registered=True) for machine in fleet.machines)
    pools = (replace(WEST, desired=count, max=100), EAST)
    return replace(fleet, machines=present + gone, pools=pools)


@pytest.mark.parametrize(("count", "lost", "is_held"), [(20, 20, True), (20, 10, True), (20, 9, False), (1, 1, False)])
def test_nothing_is_ended_if_the_nodes_of_many_machines_are_missing(count: int, lost: int, is_held: bool) -> None:  # noqa: FBT001
    """A cluster that lacks half of its nodes may be another one: their machines may be at work."""
    _, memory = decide(_registered(count, 0), Memory())
    decision, memory = decide(_registered(count, lost), memory)
    ends = [action for action in decision.actions if isinstance(action, Terminate | CordonNode | DrainNode)]
    assert (bool(decision.held), not ends) == (is_held, is_held)
    # The second decision has the same memory of the nodes.
    assert bool(decide(_registered(count, lost), memory)[0].held) is is_held


def test_ended_machines_are_not_missing_nodes() -> None:
    """Machines that AWS has ended take their nodes with them: that is no loss."""
    _, memory = decide(_registered(20, 0), Memory())
    assert not decide(_registered(5, 0), memory)[0].held


def test_a_silent_region_stays_as_it_was() -> None:
    """Nothing is changed in a region that does not answer; what it was asked for is launched by the next rungs."""
    silent = replace(WEST, desired=3, silent=True)
    busy = replace(POD, node="node-a")
    fleet = _fleet([_node("a", busy), _node("b", idle=9000)], [busy, *_pods(2)])
    decision = _decide(replace(fleet, pools=(silent, EAST)))
    assert _sizes(decision.actions) == {"east": 1}
    assert not any(isinstance(action, Terminate | CordonNode | DrainNode) for action in decision.actions)


def _gated(name: str, *pods: Pod, cordoned: Cordon | None = None) -> Node:
    return replace(_node(name, *pods, idle=None if pods else 60, cordoned=cordoned), failed="hardware")


def test_a_node_whose_gate_has_failed_is_drained_and_replaced() -> None:
    """Its movable pods go, others end by themselves; the empty machine ends, also at the minimum of its pool."""
    stays = replace(POD, id="stays", node="node-a", size=Size(1, 1, 1))
    goes = replace(stays, id="goes", movable=True)
    busy = [replace(POD, id=f"busy-{number}", node=f"node-{number}") for number in range(9)]
    others = [_node(str(number), pod) for number, pod in enumerate(busy)]

    def actions(node: Node, *pods: Pod) -> tuple[Action, ...]:
        fleet = _fleet([node, *others], [*pods, *busy])
        return _decide(replace(fleet, pools=(replace(WEST, desired=10, min=10, max=100), EAST))).actions

    (drain,) = actions(_gated("a", stays, goes), stays, goes)
    assert isinstance(drain, DrainNode)
    assert actions(_gated("a", stays, cordoned=Cordon.PLANNER), stays) == ()
    assert isinstance(actions(_gated("a"))[0], DrainNode)
    (end,) = actions(_gated("a", cordoned=Cordon.PLANNER))
    assert end == Terminate("a", decrement=False, reason="the health gate of node-a finds broken hardware")
    assert actions(_gated("a", cordoned=Cordon.HUMAN)) == ()


@pytest.mark.parametrize("verdict", ["software", "unknown"])
def test_only_broken_hardware_ends_a_node(verdict: str) -> None:
    """Software can be repaired, and a gate that cannot tell is no reason: an idle machine ends as any other does."""
    busy = replace(POD, id="busy", node="node-a", movable=True)
    taints = frozenset({f"bedplate/gate={verdict}:NoSchedule"})

    def actions(*pods: Pod, idle: float) -> tuple[Action, ...]:
        node = replace(_node("a", *pods, idle=None if pods else idle), failed=verdict, taints=taints)
        return _decide(_fleet([node], [*pods])).actions

    assert actions(busy, idle=0) == actions(idle=60) == ()
    assert [type(action) for action in actions(idle=7200)] == [
        type(action) for action in _decide(_fleet([_node("a", idle=7200)])).actions
    ]


def test_a_gate_that_fails_on_half_of_a_pool_ends_nothing() -> None:
    """A gate that fails nearly everywhere is a defect of the gate, or of what it checks, not of the machines."""
    nodes = [_gated(str(number)) for number in range(3)] + [_node(str(number), idle=60) for number in range(3, 6)]
    assert _decide(_fleet(nodes)).actions == ()


def test_failed_gates_are_replaced_a_few_at_a_time() -> None:
    """Of twenty nodes with nine failed gates two are drained at once."""
    nodes = [_gated(str(number)) for number in range(9)] + [_node(str(number), idle=60) for number in range(9, 20)]
    assert len(_decide(_fleet(nodes)).actions) == 2
