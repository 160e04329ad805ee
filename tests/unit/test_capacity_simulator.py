"""The simulator, and what holds for the planner in any fleet with any failure."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.capacity.observation import (
    Cordon,
    Decision,
    Observation,
    Pod,
    Pool,
    SetDesired,
    Settings,
    Size,
    Terminate,
    UncordonNode,
)
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.scenario import (
    HOUR,
    SCENARIOS,
    Broken,
    HumanCordon,
    Interruption,
    Job,
    Launchable,
    Scenario,
    Silence,
)
from bedplate.capacity.simulator import simulate
from bedplate.cli import run
from bedplate.spec.groups import Market

Printed = pytest.CaptureFixture[str]
GPU = frozenset({"nvidia.com/gpu"})
END = 6 * HOUR
USELESS = "its pods go to another rung"


@st.composite
def fleets(draw: st.DrawFn) -> Scenario:
    """Draw pools of one group, pods of the first hour that run for an hour at most or for ever, and failures."""
    pools: list[Launchable] = []
    for rung in range(draw(st.integers(1, 3))):
        minimum = draw(st.integers(0, 2))
        pool = Pool(
            name=f"pool-{rung}",
            group="train",
            rung=rung,
            region=f"region-{rung}",
            zones=tuple(f"region-{rung}{zone}" for zone in "ab"[: draw(st.integers(1, 2))]),
            min=minimum,
            max=minimum + draw(st.integers(0, 4)),
            desired=minimum,
            type="p5",
            market=draw(st.sampled_from([Market.ON_DEMAND, Market.SPOT])),
            size=Size(8, 96.0, 500.0),
            price=draw(st.sampled_from([10.0, 50.0])),
            labels={"group": "train"},
            taints=GPU,
        )
        pools.append(Launchable(pool, draw(st.sampled_from([60.0, 400.0]))))
    zones = [zone for item in pools for zone in item.pool.zones]
    capacity = {
        (zone, "p5", market): ((0.0, draw(st.integers(0, 3))), (2 * HOUR, 9))
        for zone in draw(st.sets(st.sampled_from(zones)))
        for market in (Market.ON_DEMAND, Market.SPOT)
    }
    names = [item.pool.name for item in pools]
    return Scenario(
        "random",
        "",
        END,
        tuple(pools),
        tuple(_job(draw, number) for number in range(draw(st.integers(0, 12)))),
        capacity=capacity,
        interruptions=tuple(
            Interruption(draw(st.floats(0, HOUR)), draw(st.sampled_from(zones)), draw(st.sampled_from([0.5, 1.0])))
            for _ in range(draw(st.integers(0, 2)))
        ),
        broken=tuple(
            Broken(
                name,
                0,
                2 * HOUR,
                draw(st.sampled_from([0.5, 1.0])),
                zone=draw(st.sampled_from([None, *zones])),
                gate=draw(st.booleans()),
            )
            for name in draw(st.sets(st.sampled_from(names)))
        ),
        silences=tuple(
            Silence(f"region-{rung}", draw(st.floats(60, HOUR)), 2 * HOUR)
            for rung in draw(st.sets(st.integers(0, len(pools) - 1), max_size=len(pools) - 1))
        ),
        cordons=tuple(
            HumanCordon(draw(st.floats(0, HOUR)), draw(st.sampled_from(names)), 1, 2 * END, busy=draw(st.booleans()))
            for _ in range(draw(st.integers(0, 2)))
        ),
        settings=Settings(cap=draw(st.sampled_from([0.1, 0.5])), spare={"train": draw(st.integers(0, 1))}),
    )


def _job(draw: st.DrawFn, number: int) -> Job:
    pod = Pod(
        id=f"pod-{number}",
        arrival=draw(st.floats(0, HOUR)),
        size=Size(draw(st.sampled_from([1, 4, 8, 16])), 1.0, 1.0),
        selector={"group": "train"},
        tolerations=GPU,
        gang=draw(st.sampled_from([None, None, "gang"])),
        movable=draw(st.booleans()),
    )
    return Job(pod, draw(st.one_of(st.floats(60, HOUR), st.just(2 * END))))


@dataclass
class _Checked:
    """The planner, with a check of every decision."""

    reported: set[str] = field(default_factory=set)

    def __call__(self, observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
        decision, after = decide(observation, memory)
        self._check_sizes(observation, decision)
        self._check_removals(observation, decision)
        self.reported |= {report.pod for report in decision.unplaced}
        pending = {pod.id for pod in observation.pods if pod.node is None}
        assert pending <= self.reported | {waiting.pod for waiting in decision.waiting if waiting.reason}
        if observation.time > END - HOUR and not pending:
            assert decision.actions == (), "no oscillation in a steady state"
        return decision, after

    def _check_sizes(self, observation: Observation, decision: Decision) -> None:
        pools = {pool.name: pool for pool in observation.pools}
        for action in decision.actions:
            if isinstance(action, SetDesired):
                assert pools[action.pool].min <= action.count <= pools[action.pool].max

    def _check_removals(self, observation: Observation, decision: Decision) -> None:
        machines = {machine.id: machine for machine in observation.machines}
        nodes = {node.name: node for node in observation.nodes}
        ended = [machines[action.machine] for action in decision.actions if isinstance(action, Terminate)]
        cap = max(1, observation.settings.cap * len(nodes))
        # A node of the planner's own cordon was counted then. Machines of a zone that was left, and those of a failed
        # rung that no pod needs, are no nodes yet.
        useless = {
            action.machine for action in decision.actions if isinstance(action, Terminate) and action.reason == USELESS
        }
        own = {name for name, node in nodes.items() if node.cordoned is Cordon.PLANNER}
        out = {(pool.name, zone) for pool in observation.pools for zone in pool.out}
        old = [machine for machine in ended if observation.time - machine.launched > 120 and machine.node not in own]
        young = {m.id for m in old if m.node is None and ((m.pool, m.zone) in out or m.id in useless)}
        assert len([machine for machine in old if machine.id not in young]) <= cap
        for machine in ended:
            assert machine.node is None or not nodes[machine.node].pods, "only empty nodes end"
        touched = {machine.node for machine in ended} | {
            action.node for action in decision.actions if isinstance(action, UncordonNode)
        }
        assert not [name for name in touched if name and nodes[name].cordoned is Cordon.HUMAN]


@pytest.mark.nightly
@settings(max_examples=20, deadline=None)
@given(fleet=fleets())
def test_limits_hold_in_any_fleet(fleet: Scenario) -> None:
    """Sizes and removals keep limits; people's cordons stay; waiting pods have a reason."""
    figures = simulate(fleet, _Checked()).figures
    assert (figures.killed, figures.broken_cordons, figures.refused) == (0, 0, 0)


def test_an_interrupted_machine_stops_its_gang_once() -> None:
    """Two pods of a gang share a machine that AWS interrupts: the gang stops as a whole, and runs again elsewhere."""
    size, zone = Size(8, 96.0, 500.0), "region-0a"
    pool = Pool(
        "pool-0", "train", 0, "region-0", (zone,), 0, 4, 0, "p5", Market.SPOT, size, 10.0, {"group": "train"}, GPU
    )
    pod = Pod("a", 0.0, Size(4, 1.0, 1.0), {"group": "train"}, GPU, gang="gang")
    jobs = tuple(Job(replace(pod, id=name), HOUR) for name in "ab")
    fleet = Scenario("gang", "", END, (Launchable(pool, 60.0),), jobs, interruptions=(Interruption(600, zone, 1.0),))

    figures = simulate(fleet, decide).figures

    assert (figures.unstarted, figures.interrupted) == (0, 2)
    assert figures.useful_gpu_hours == pytest.approx(8)


def test_the_same_scenario_gives_the_same_figures() -> None:
    """Two runs differ in processor times only."""
    first, second = (replace(simulate(SCENARIOS["quotas"]()).figures, cpu_per_decision=0, cpu_longest=0) for _ in "12")
    assert first == second


def test_simulate_prints_a_table_a_document_and_a_plot(tmp_path: Path, capsys: Printed) -> None:
    """A misspelt scenario is refused with the nearest name."""
    plot = tmp_path / "plot.svg"
    assert run(["capacity", "simulate", "gangs", "--svg", str(plot)]) == 0
    assert "spills" in capsys.readouterr().out
    names = {text.strip() for text in ET.parse(plot).getroot().itertext()}  # noqa: S314  our own file
    assert {"gangs: two gangs of 16 machines", "train-us-east-1", "waiting"} <= names
    assert run(["capacity", "simulate", "gangs", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["unstarted"] == 0
    assert document["frames"]
    assert run(["capacity", "simulate", "gang"]) == 2
    assert "write gangs" in capsys.readouterr().err


def test_a_pod_that_ends_gives_back_all_that_it_used() -> None:
    """Also EFA interfaces, disk and its place among the pods of a node: the next pod starts on the same node."""
    size = Size(8, 96.0, 500.0, efa=1, ephemeral=100.0, pods=1)
    pool = Pool("west", "train", 0, "region", ("region-a",), min=0, max=1, desired=0, size=size)
    requested = Size(1, 1.0, 1.0, efa=1, ephemeral=80.0)
    jobs = tuple(Job(Pod(f"job-{number}", 60.0, requested), HOUR / 2) for number in range(3))

    figures = simulate(Scenario("one-node", "", END, (Launchable(pool, 60.0),), jobs)).figures

    assert (figures.pods, figures.unstarted, figures.launches) == (3, 0, 1)
