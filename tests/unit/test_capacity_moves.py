"""Moves of pods to other nodes, the ends of nodes that were cordoned, and reasons for pods that fit nothing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bedplate.capacity.observation import Action, Cordon, CordonNode, DrainNode, Observation, Settings, Size, Terminate
from bedplate.capacity.planner import Memory, decide
from tests.unit.test_capacity_planner import EAST, NOW, POD, WEST, _fleet, _machine, _node


def _light(since: float, restarts: int = 0, restart: float = 600.0) -> Observation:
    """Return a node of the second rung with one pod, which has run for some seconds, and a free node of the first."""
    pod = replace(
        POD, id="p-2", size=Size(1, 1.0, 1.0), movable=True, node="node-b", since=NOW - since, restarts=restarts
    )
    stays = replace(POD, id="stays", size=Size(1, 1.0, 1.0), node="node-a", since=NOW - 9000)
    pod = replace(pod, owner="lab/ReplicaSet/web")
    nodes = (_node("a", stays), _node("b", pod, pool=EAST))
    pools = (replace(WEST, desired=1), replace(EAST, desired=1))
    machines = (_machine("a"), _machine("b", EAST))
    return Observation(NOW, (stays, pod), nodes, machines, pools, settings=Settings(restart=restart))


def _drained(actions: Sequence[Action]) -> list[str]:
    return [action.node for action in actions if isinstance(action, DrainNode)]


@pytest.mark.parametrize(
    ("observation", "moves", "is_moved"),
    [
        (_light(1799), 0, False),
        (_light(1800), 0, True),
        (_light(3599, restarts=1), 0, False),
        (_light(3600, restarts=1), 0, True),
        (_light(7199), 2, False),
        (_light(7200), 2, True),
        (_light(7199, restart=2400), 0, False),
    ],
    ids=["young", "settled", "restarted", "settled again", "moved twice", "settled after two moves", "dear restart"],
)
def test_each_move_doubles_the_time_to_the_next(observation: Observation, moves: int, is_moved: bool) -> None:  # noqa: FBT001
    """A pod runs three times as long as a restart costs before it moves, twice as long after each move of a day."""
    memory = Memory(moves={"lab/ReplicaSet/web": (NOW - 5000.0,) * moves})
    assert _drained(decide(observation, memory)[0].actions) == ["node-b"] * is_moved


def test_moves_count_for_a_day_by_owner() -> None:
    """The owner of a pod creates it again under another name; a drain that goes on is one move."""
    old = {"lab/ReplicaSet/web": (NOW - 90_000,), "other": (NOW - 90_000,)}
    _, memory = decide(_light(4000), Memory(moves=old))
    assert memory.moves == {"lab/ReplicaSet/web": (NOW,)}
    drained = _light(2000)
    cordoned = tuple(replace(node, cordoned=Cordon.PLANNER, failed="hardware") for node in drained.nodes)
    assert decide(replace(drained, nodes=cordoned), memory)[1].moves == memory.moves


def test_the_end_of_a_cordoned_node_is_not_counted_again() -> None:
    """The cap counted it with its cordon: small fleets end a node a round, and cordon the next one."""
    nodes = [_node(str(number), idle=900) for number in range(4)]
    nodes[0] = replace(nodes[0], cordoned=Cordon.PLANNER)
    actions = decide(_fleet(nodes), Memory())[0].actions
    assert [type(action) for action in actions] == [Terminate, CordonNode]


def test_labels_that_no_pod_selects_cost_nothing() -> None:
    """Nodes with labels of their own, as AWS has for its topology, are compared once for each shape of pods."""
    nodes = [
        replace(node, labels={**node.labels, "topology.k8s.aws/network-node-layer-3": node.name})
        for node in (
            _node(str(number), replace(POD, id=f"runs-{number}", node=f"node-{number}")) for number in range(50)
        )
    ]
    pods = [replace(POD, id=f"p-{n}", size=Size(9 + n, 1.0, 1.0)) for n in range(50)]
    decision, _ = decide(_fleet(nodes, pods), Memory())
    assert {report.pod for report in decision.unplaced} == {pod.id for pod in pods}
    assert {report.reason.partition(", not ")[0] for report in decision.unplaced} == {
        "no pool fits; west is closest: it has 8 GPUs"
    }


def test_a_gang_with_a_pod_that_fits_nothing_starts_nothing() -> None:
    """Its pods start together or not at all: machines for the others would stay empty."""
    gang = [replace(POD, id=f"g-{n}", gang="g", gang_size=2, size=Size(8 + 8 * n, 1.0, 1.0)) for n in range(2)]
    decision, _ = decide(Observation(NOW, tuple(gang), pools=(WEST, EAST)), Memory())
    assert (decision.actions, [report.pod for report in decision.unplaced]) == ((), ["g-1"])
    assert [waiting.pod for waiting in decision.waiting] == ["g-0"]
