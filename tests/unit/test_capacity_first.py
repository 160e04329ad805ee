"""The first machines of a launch template: few start before one is a node, so a bad image loses ten at most."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bedplate.capacity.ladder import FIRST, FURTHER, Breaker
from bedplate.capacity.observation import Decision, Machine, Node, Observation, Pod, Pool, SetDesired
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import memory_document, read_memory
from bedplate.capacity.scenario import HOUR, SCENARIOS, Broken, Job, Launchable, Scenario
from bedplate.capacity.simulator import simulate
from tests.unit.test_capacity_planner import EAST, NOW, POD, UNIT, WEST, _pods

BEGIN, SIZE, BOOT = 600.0, 30, 420.0
"""When the burst comes, its machines, and the seconds of a boot, 20 % more or less."""
WESTERN, EASTERN = (replace(pool, max=60, template="8") for pool in (WEST, EAST))
REASON = "no machine is a node with its launch template yet, so it boots at most 4 at once"


def _burst(zones: Sequence[str], bad: Sequence[int] = (), boot: float = BOOT) -> Scenario:
    """Return a burst of whole machines on pools of three regions with these zones; in bad ones all gates fail."""
    regions = ("west", "east", "north")
    pools = tuple(
        replace(WEST, name=name, rung=at, region=name, zones=tuple(f"{name}-{zone}" for zone in letters), max=60)
        for at, (name, letters) in enumerate(zip(regions, zones, strict=False))
    )
    jobs = tuple(Job(replace(POD, id=f"job-{number}", arrival=BEGIN), 3 * HOUR) for number in range(SIZE))
    broken = tuple(Broken(pools[at].name, 0, HOUR, gate=True) for at in bad)
    return Scenario("burst", "", HOUR, tuple(Launchable(pool, boot) for pool in pools), jobs, BEGIN, broken=broken)


class _Lost:
    """The planner, with the machines that a pool had lost, and had, when it was skipped for failed boots."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.skipped: dict[str, tuple[int, float]] = {}
        self.most = 0

    def __call__(self, observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
        self.seen |= {machine.id: machine.pool for machine in observation.machines}
        self.seen |= {launch.machine: launch.pool for launch in observation.activities if launch.machine}
        if not any(machine.node for machine in observation.machines):
            self.most = max(self.most, len(observation.machines))
        decision, after = decide(observation, memory)
        for pool in after.breakers.keys() - self.skipped.keys():
            lost = sum(name == pool for name in self.seen.values())
            self.skipped[pool] = (lost, observation.time - BEGIN)
        return decision, after


@pytest.mark.parametrize("boot", [120.0, 200.0, BOOT])
@pytest.mark.parametrize("letters", ["a", "ab", "abc"])
def test_a_burst_of_thirty_on_a_bad_image_loses_ten_machines_at_most(letters: str, boot: float) -> None:
    """With those that AWS launches in place of failed ones; the region is skipped within 15 minutes."""
    lost = _Lost()
    figures = simulate(_burst([letters, "ab"], bad=[0], boot=boot), lost).figures
    assert lost.skipped["west"][0] <= 10
    assert lost.skipped["west"][1] <= 900
    assert figures.unstarted == 0


def test_at_most_ten_machines_of_an_image_boot_before_one_is_a_node() -> None:
    """In three regions together: if the image is bad in all, no burst loses more at once."""
    lost = _Lost()
    figures = simulate(_burst(["ab", "ab", "ab"], bad=[0, 1, 2]), lost).figures
    assert lost.most == FIRST + 2 * FURTHER <= 10
    assert figures.launches <= 40


@pytest.mark.parametrize("regions", [1, 3])
def test_a_healthy_burst_on_a_new_image_waits_for_one_boot_more(regions: int) -> None:
    """The others start when the first machine is a node; on a proven image all start at once."""
    scenario = _burst(["ab"] * regions)

    def proven(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
        return decide(observation, replace(memory, proven={pool.name: pool.template for pool in observation.pools}))

    at_once, new = (simulate(scenario, plan).figures.wait_max for plan in (proven, decide))
    assert at_once < new <= at_once + 1.2 * BOOT


def _sizes(decision: Decision) -> Mapping[str, int]:
    return {action.pool: action.count for action in decision.actions if isinstance(action, SetDesired)}


def _seen(pods: Sequence[Pod], *machines: Machine, pools: Sequence[Pool] = (WESTERN, EASTERN)) -> Observation:
    """Return machines of the pools, which are as many as desired; those with a node are full."""
    counted = [replace(pool, desired=sum(machine.pool == pool.name for machine in machines)) for pool in pools]
    taken = replace(UNIT, gpus=0, cpus=0.0)
    nodes = [
        Node(machine.node, machine.id, WEST.labels, WEST.taints, UNIT, replace(taken, cpus=1.0), ("busy",), NOW - 100)
        for machine in machines
        if machine.node
    ]
    return Observation(NOW, tuple(pods), tuple(nodes), machines, tuple(counted))


def _machine(name: str, template: str, node: str | None = None, pool: Pool = WEST) -> Machine:
    return Machine(name, pool.name, pool.zones[0], NOW - 400, node, template=template)


def test_the_others_of_a_burst_wait_with_a_reason() -> None:
    """Further pools start fewer: they show whether their region works."""
    decision, _ = decide(_seen(_pods(30)), Memory())
    assert _sizes(decision) == {"west": FIRST, "east": FURTHER}
    waiting = [waiting for waiting in decision.waiting if not waiting.is_coming]
    assert len(waiting) == 30 - FIRST - FURTHER
    assert waiting[0].reason == f"west: {REASON}; east: {REASON.replace('4', '2')}"


@pytest.mark.parametrize(
    ("machine", "failed", "launched"),
    [
        (_machine("i-1", "8", "node-1"), "", 30),
        (_machine("i-1", "7", "node-1"), "", FIRST),
        (_machine("i-1", "8"), "", FIRST - 1),
        (_machine("i-1", "8", "node-1"), "software", FIRST),
    ],
    ids=["a node", "a node with an earlier template", "a machine that boots", "a node whose gate failed"],
)
def test_a_launch_template_is_proven_by_a_node_that_has_it(machine: Machine, failed: str, launched: int) -> None:
    """The gate of the node has passed, and the template is the one that new machines get."""
    observation = _seen(_pods(30 + (launched == FIRST - 1)), machine, pools=(WESTERN,))
    observation = replace(observation, nodes=tuple(replace(node, failed=failed) for node in observation.nodes))
    decision, _ = decide(observation, Memory())
    assert _sizes(decision)["west"] == 1 + launched


def test_a_proven_launch_template_is_remembered() -> None:
    """When no machine runs, and after a restart of the controller; a new template is not proven."""
    _, memory = decide(_seen((), _machine("i-1", "8", "node-1"), pools=(WESTERN,)), Memory())
    memory = read_memory(memory_document(memory))
    for template, launched in (("8", 30), ("9", FIRST)):
        pools = (replace(WESTERN, template=template),)
        assert _sizes(decide(_seen(_pods(30), pools=pools), memory)[0]) == {"west": launched}


def test_a_gang_has_its_place_as_a_whole_before_all_its_machines_start() -> None:
    """Four machines start first, the others of the same pool when one is a node; no other pod gets their place."""
    gang = _pods(16, replace(POD, gang="gang", gang_size=16))
    first, memory = decide(_seen(gang), Memory())
    assert _sizes(first) == {"west": FIRST}
    assert all(waiting.is_coming for waiting in first.waiting)

    booting = [_machine(f"i-{number}", "8") for number in range(FIRST)]
    second, memory = decide(_seen(gang, *booting), memory)
    assert _sizes(second) == {}

    joined = _machine("i-n", "8", "node-n")
    third, _ = decide(_seen(gang, *booting, joined), memory)
    assert _sizes(third) == {"west": 17}


def test_pods_use_a_rung_with_a_proven_template() -> None:
    """What the first rung does not start yet starts there at once."""
    decision, _ = decide(_seen(_pods(30)), Memory(proven={"east": "8"}))
    assert _sizes(decision) == {"west": FIRST, "east": 30 - FIRST}


def test_each_group_has_its_own_first_machines() -> None:
    """Another group may have another image."""
    other = replace(EASTERN, group="burst", labels={"group": "burst"})
    pods = (*_pods(30), *_pods(9, replace(POD, id="other", selector={"group": "burst"})))
    assert _sizes(decide(_seen(pods, pools=(WESTERN, other)), Memory())[0]) == {"west": FIRST, "east": FIRST}


def test_a_silent_region_does_not_stop_the_others() -> None:
    """Machines that boot where AWS does not answer are no result, and nothing starts there."""
    booting = [_machine(f"i-{number}", "8") for number in range(FIRST)]
    pools = (replace(WESTERN, silent=True), EASTERN)
    assert _sizes(decide(_seen(_pods(30), *booting, pools=pools), Memory())[0]) == {"east": FURTHER}


def test_a_probe_after_failed_boots_starts_beside_the_first_machines_elsewhere() -> None:
    """The rule limits no probe: each is one machine."""
    breaker = Breaker("InstanceNotReady", "3 machines did not become nodes", NOW - 600, NOW - 1, needs_node=True)
    decision, _ = decide(_seen(_pods(30)), Memory(breakers={"west": breaker}))
    assert _sizes(decision) == {"west": 1, "east": FURTHER}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["burst-1600", "gangs", "quotas", "dry-hour"])
def test_new_images_cost_a_shipped_scenario_a_quarter_of_an_hour_at_most(name: str) -> None:
    """Compared with the same scenario on proven images."""
    scenario = SCENARIOS[name]()

    def proven(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
        return decide(observation, replace(memory, proven={pool.name: pool.template for pool in observation.pools}))

    assert simulate(scenario).figures.wait_max <= simulate(scenario, proven).figures.wait_max + 900
