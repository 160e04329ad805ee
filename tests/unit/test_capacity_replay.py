"""Recorded observations as scenarios of the simulator."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.capacity.observation import Activity, Decision, Machine, Node, Observation, Pod, Pool, Size
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import observation_document, parse_observation
from bedplate.capacity.scenario import ENDLESS, SCENARIOS
from bedplate.capacity.simulator import recorded_scenario, simulate
from bedplate.cli import run

Printed = pytest.CaptureFixture[str]
SIZE = Size(8, 96.0, 500.0, 0, 0.0, 20)
POOL = Pool("west", "train", 0, "us-west-2", ("us-west-2a",), 0, 4, 2, size=SIZE)
POD = Pod("ada/job", 1000.0, Size(8, 1.0, 1.0), movable=True)


def _line(observation: Observation) -> str:
    return json.dumps(observation_document(observation))


@pytest.mark.parametrize("name", ["quotas", pytest.param("dry-region", marks=pytest.mark.nightly)])
def test_a_recorded_simulation_replays_with_the_same_waits(name: str, tmp_path: Path, capsys: Printed) -> None:
    """Within 10 %, with the refusals of AWS that were recorded; the command prints the figures of a scenario."""
    lines: list[str] = []

    def recorded(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
        lines.append(_line(observation))
        return decide(observation, memory)

    first = simulate(SCENARIOS[name](), recorded).figures
    path = tmp_path / "record.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert run(["capacity", "simulate", "--replay", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["figures"]
    assert (again["pods"], again["unstarted"]) == (first.pods, 0)
    for key in ("wait_p50", "wait_p95", "wait_max", "usd"):
        assert again[key] == pytest.approx(getattr(first, key), rel=0.1), key


def test_a_recording_says_when_pods_and_capacity_came_and_went() -> None:
    """Work of a movable pod before a stop counts; a refusal limits a zone to its machines, a later launch ends that."""
    machine = Machine("i-1", "west", "us-west-2a", 1000.0, "n")
    more = tuple(replace(machine, id=name) for name in ("i-1", "i-2"))
    node = Node("n", "i-1", {}, frozenset(), SIZE, SIZE, joined=1240.0)
    site = Node("titan", None, {}, frozenset(), SIZE, Size())
    refusal = Activity("1", "west", 1290.0, ok=False, zone="us-west-2a", code="InsufficientInstanceCapacity")
    on_node = replace(POD, node="n", since=1250.0)
    observations = (
        Observation(1000.0, (POD,), (site,), (), (POOL,)),
        Observation(1300.0, (on_node,), (node,), (machine,), (replace(POOL, desired=4),), (refusal,)),
        Observation(1400.0, (replace(POD, since=1250.0),), (node,), (machine,), (POOL,), (refusal,)),
        Observation(1500.0, (replace(POD, node="n", since=1450.0),), (node,), more, (POOL,), (refusal,)),
        Observation(1600.0, (), (node,), more, (POOL,)),
    )
    scenario = recorded_scenario("record", map(parse_observation, map(_line, observations)))
    (job,), (launchable,) = scenario.jobs, scenario.pools
    assert (job.pod.arrival, job.pod.node, job.duration) == (0.0, None, 150 + 150)
    assert (launchable.pool.desired, launchable.boot, scenario.interval, scenario.horizon) == (2, 240.0, 100.0, 700.0)
    assert list(scenario.capacity.values()) == [[(0.0, ENDLESS), (0.0, 1), (400.0, ENDLESS)]]
    assert [(node.name, node.free) for node in scenario.nodes] == [("titan", SIZE)]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ((), "has no observation"),
        (("{",), "line 1"),
        ((_line(Observation(60.0)), _line(Observation(30.0))), "the time 30 is not after 60"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(
    lines: tuple[str, ...], what: str, tmp_path: Path, capsys: Printed
) -> None:
    """The exit status is 2, and the message names the file."""
    path = tmp_path / "record.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert run(["capacity", "simulate", "--replay", str(path)]) == 2
    errors = capsys.readouterr().err
    assert what in errors
    assert str(path) in errors
